"""The one way into all programs: a known error ends in one line, and so do Ctrl-C and the signal to terminate.

if __name__ == "__main__":
    cli.run(main, define_flags)
"""

import atexit
import contextlib
import os
import signal
import sys
import threading

from absl import app

from utils import files


class Terminated(KeyboardInterrupt):
    """SIGTERM: whatever is done on Ctrl-C is done on it, too."""


def run(main, define_flags, with_words=False):
    """Defines the flags, parses them and calls `main`, a function without arguments, or of the words beside the flags.

    Args:
      with_words: whether `main` takes what is no flag, such as `add RUN_DIR`.
    """
    define_flags()
    try:
        app.run(lambda arguments: call(main, *(arguments[1:] if with_words else ())))
    except SystemExit as end:
        if not end.code:
            _leave_at_once()
        raise


def _leave_at_once():
    """Ends a program that has done its work, without taking TensorFlow apart object by object.

    That takes seconds, and often many of them: an iterator over a dataset ends with the thread that tunes it, which may
    miss its end and sleep on, for as long as the training has lasted, up to a minute. A worker of several has to take
    its leave from the others, and ends as usual.
    """
    cluster = sys.modules.get("utils.cluster")
    if cluster and len(cluster.current_task().addresses) == 1:
        atexit._run_exitfuncs()
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        os._exit(0)


def call(main, *arguments):
    """Calls `main`; errors that a user can do something about become one line and the exit code 1."""
    try:
        with _signals_as_exceptions():
            main(*arguments)
    except known_errors() as error:
        raise SystemExit(f"error: {' '.join(str(error).splitlines())}{_advise(error)}") from error
    except KeyboardInterrupt as stop:
        print("\nstopped: what is finished is kept, and the same command goes on from it.", file=sys.stderr)
        number = signal.SIGTERM if isinstance(stop, Terminated) else signal.SIGINT
        raise SystemExit(128 + number) from None  # as a shell gives it


def _advise(error):
    """What to do about an error whose message does not say so."""
    no_room = isinstance(error, OSError) and error.errno in files.NO_ROOM
    return ": make room there, and give the same command again." if no_room else ""


@contextlib.contextmanager
def _signals_as_exceptions():
    """Ctrl-C and SIGTERM raise an exception in the main thread; a second one ends the program at once."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(number, _):
        for other in before:
            signal.signal(other, lambda number, _: os._exit(128 + number))
        if number == signal.SIGTERM and _deferred:
            _deferred[-1].set()
            return
        raise Terminated if number == signal.SIGTERM else KeyboardInterrupt

    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    before = {number: handler for number, handler in before.items() if handler != signal.SIG_IGN}  # as nohup wants it
    for number in before:
        signal.signal(number, stop)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


_deferred = []  # an event for each block of deferred_termination


@contextlib.contextmanager
def deferred_termination():
    """Within the block SIGTERM raises nothing. Gives a function that tells whether it came; a second one ends at once.

    So a training can save a checkpoint at its next step, and raise Terminated itself. In a program that has not been
    started by `call`, signals do what they always do there.
    """
    terminated = threading.Event()
    _deferred.append(terminated)
    try:
        yield terminated.is_set
    finally:
        _deferred.remove(terminated)


def known_errors():
    """Errors whose message tells a user what to do; others are defects and show where they come from."""
    tensorflow = sys.modules.get("tensorflow")  # a program that did not load it cannot meet its errors
    if not tensorflow:
        return ValueError, OSError
    # Of TensorFlow's own: a file that is missing, a disk or device that is full.
    return ValueError, OSError, tensorflow.errors.NotFoundError, tensorflow.errors.ResourceExhaustedError
