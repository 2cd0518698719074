"""One process at a time: a lock on a folder, which names its holder and never outlives it.

with hold("runs/mine", "another training", "wait for its end, or choose another --model_dir."):
    ...

On a file system of this machine, or one that it shares with others by NFS, the kernel keeps the lock and releases it
when its process ends, however that happens. Elsewhere, as on gs://, the holder renews its file every few seconds, and
a file that was not renewed for long counts as left behind.
"""

import contextlib
import datetime
import errno
import fcntl
import json
import os
import socket
import sys
import threading
import time

from utils import files

NAME = ".lock"
RENEWED, LEFT_BEHIND = 20, 120  # seconds: between two renewals; after which a file counts as left behind
UNSUPPORTED = {errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL}
FIELDS = {"host": str, "process": int, "since": str, "renewed": float}


class BusyError(ValueError):
    """Another process holds the lock."""


@contextlib.contextmanager
def hold(folder, what, advice, wait=False, name=NAME):
    """Holds the lock of a folder, which has to exist, for the time of the block.

    Args:
      what: what is done there, and advice: what to do if another process does it already; for the message.
      wait: wait for the other process, instead of a BusyError that names it.
      name: of the file; different ones are locks of different things in the folder.
    """
    path, since = os.path.join(folder, name), datetime.datetime.now().astimezone().isoformat(timespec="seconds")
    holder, told = {"host": socket.gethostname(), "process": os.getpid(), "since": since}, False
    while True:
        with contextlib.ExitStack() as stack:
            with files.explain_refusal(path, "choose another folder."):
                other = _try_to_lock(path, holder, stack)
            if not other:
                yield
                return
        if not wait:
            raise BusyError(f"{folder} is in use by {what}, {other}: {advice}")
        if not told:
            print(f"{folder} is in use by {what}, {other}: waiting for its end.", file=sys.stderr)
        told = True
        time.sleep(1)


def _try_to_lock(path, holder, stack):
    """Returns who else holds the lock, in words, or "" after it was taken; the end of `stack` gives it back."""
    if "://" in path:
        return _try_to_renew(path, holder, stack)
    while True:
        file = stack.enter_context(open(path, "ab", buffering=0))
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return _describe(_read_holder(path))
        except OSError as error:
            if error.errno not in UNSUPPORTED:
                raise
            return _try_to_renew(path, holder, stack)
        if _is_named(path, file):
            break
        file.close()  # its last holder ended, and so deleted it, at this moment
    stack.callback(_remove, path)  # comes before the kernel's release: what is deleted here is this one
    with contextlib.suppress(OSError):  # a full disk: what is written there is for messages only
        file.truncate(0)
        file.write(json.dumps(holder | {"renewed": time.time()}).encode())
    return ""


def _is_named(path, file):
    """Whether the path still leads to this open file; other processes may delete and create at any moment."""
    try:
        return os.path.samestat(os.stat(path), os.fstat(file.fileno()))
    except FileNotFoundError:
        return False


def _try_to_renew(path, holder, stack):
    """The same for file systems without locks."""
    other = _read_holder(path)
    ended = other and other["host"] == holder["host"] and not _is_running(other["process"])
    if other and not ended and time.time() - other["renewed"] < LEFT_BEHIND:
        return _describe(other)
    files.write_json(path, holder | {"renewed": time.time()})
    stack.callback(_remove, path)
    released = threading.Event()

    def renew():
        while not released.wait(RENEWED):
            with contextlib.suppress(*files.file_errors()):  # the next attempt may succeed
                files.write_json(path, holder | {"renewed": time.time()})

    thread = threading.Thread(target=renew, daemon=True)
    thread.start()
    stack.callback(thread.join)
    stack.callback(released.set)
    return ""


def _read_holder(path):
    """The content of the lock, or {} if there is none, or none that makes sense."""
    try:
        return files.check_fields(path, files.read_json(path), FIELDS)
    except (ValueError, *files.file_errors()):
        return {}


def _describe(holder):
    if not holder:
        return "another process"
    return f"process {holder['process']} on {holder['host']} since {holder['since']}"


def _is_running(process):
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):  # of another user; of another machine with larger numbers
        return True
    return True


def _remove(path):
    with contextlib.suppress(*files.file_errors()):
        files.remove(path)
