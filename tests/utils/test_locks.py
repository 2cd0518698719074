"""utils/locks.py: of two processes one works in a folder, the other learns who does, and nobody waits for the dead."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time

import pytest
import tensorflow as tf

from utils import files, locks

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
HOLDER = """
import sys, time
from utils import files, locks
with locks.hold(sys.argv[1], "another training", "wait."):
    print("held", flush=True)
    time.sleep(60)
"""


@pytest.fixture
def holder(tmp_path):
    """A process that holds the lock of tmp_path."""
    command = [sys.executable, "-c", HOLDER, str(tmp_path)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "held\n"
        yield process
        process.kill()


def hold(folder, **options):
    return locks.hold(str(folder), "another training", "wait for its end.", **options)


def test_a_second_process_is_told_who_holds_the_lock(tmp_path, holder):
    expected = f"{tmp_path} is in use by another training, process {holder.pid} on {socket.gethostname()} since 20"
    with pytest.raises(ValueError, match=re.escape(expected) + r"[\d:T+-]*: wait for its end\.$"):
        with hold(tmp_path):
            pass


def test_a_killed_holder_leaves_nothing_that_others_wait_for(tmp_path, holder):
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    assert os.listdir(tmp_path) == [locks.NAME]
    with hold(tmp_path):
        assert json.loads((tmp_path / locks.NAME).read_text())["process"] == os.getpid()
    assert os.listdir(tmp_path) == []


def test_a_lock_is_given_back_when_the_work_fails(tmp_path):
    for _ in range(2):
        with pytest.raises(KeyError), hold(tmp_path):
            raise KeyError
    assert os.listdir(tmp_path) == []


def test_whoever_waits_goes_on_when_the_other_has_ended(tmp_path, holder, capsys):
    threading.Timer(0.5, holder.kill).start()
    with hold(tmp_path, wait=True):
        assert holder.poll() is not None or holder.wait() is not None
    assert f"process {holder.pid} on" in capsys.readouterr().err


def test_one_process_does_not_hold_a_lock_twice(tmp_path):
    with hold(tmp_path), pytest.raises(ValueError, match=f"process {os.getpid()} on"):
        with hold(tmp_path):
            pass


def test_many_processes_hold_it_one_after_the_other(tmp_path):
    code = """
import os, sys, time
from utils import files, locks
for _ in range(20):
    with locks.hold(sys.argv[1], "x", "y", wait=True):
        os.mkdir(os.path.join(sys.argv[1], "work"))
        os.rmdir(os.path.join(sys.argv[1], "work"))
"""
    code = code.replace("import locks\n", "import locks\nlocks.time.sleep = lambda _: None\n")
    command = [sys.executable, "-c", code, str(tmp_path)]
    processes = [subprocess.Popen(command, cwd=ROOT, stderr=subprocess.DEVNULL) for _ in range(4)]
    assert [process.wait(timeout=120) for process in processes] == [0] * 4


def test_damaged_content_of_a_lock_does_not_matter(tmp_path, holder):
    for content in (b"", b"\xff", b"[]", b'{"host": 3}', b"{}"):
        (tmp_path / locks.NAME).write_bytes(content)
        with pytest.raises(ValueError, match="is in use by another training, another process: wait for its end"):
            with hold(tmp_path):
                pass


def test_a_folder_that_cannot_be_written_is_named(tmp_path):
    with pytest.raises(ValueError, match=r"missing/\.lock cannot be written \(.*\): choose another folder"):
        with hold(tmp_path / "missing"):
            pass


# ---- file systems without locks -------------------------------------------------------------------------------------


def write_remote(folder, **changes):
    holder = {"host": "elsewhere", "process": 1, "since": "2020-01-01T00:00:00+00:00", "renewed": time.time()} | changes
    tf.io.gfile.makedirs(folder)
    with tf.io.gfile.GFile(f"{folder}/{locks.NAME}", "w") as file:
        file.write(json.dumps(holder))


def test_elsewhere_a_renewed_file_is_a_lock():
    write_remote("ram://renewed")
    with pytest.raises(ValueError, match="ram://renewed is in use by another training, process 1 on elsewhere since"):
        with hold("ram://renewed"):
            pass


def test_elsewhere_a_file_that_was_not_renewed_for_long_counts_as_left_behind():
    write_remote("ram://old", renewed=time.time() - locks.LEFT_BEHIND - 1)
    with hold("ram://old"):
        assert tf.io.gfile.exists(f"ram://old/{locks.NAME}")
    assert not tf.io.gfile.exists(f"ram://old/{locks.NAME}")


def test_elsewhere_a_dead_process_of_this_machine_holds_nothing():
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    write_remote("ram://dead", host=socket.gethostname(), process=process.pid)
    with hold("ram://dead"):
        pass


def test_elsewhere_a_lock_is_renewed_while_it_is_held(monkeypatch):
    tf.io.gfile.makedirs("ram://held")
    monkeypatch.setattr(locks, "RENEWED", 0.01)

    def renewed():
        return files.read_json(f"ram://held/{locks.NAME}")["renewed"]

    with hold("ram://held"):
        first, deadline = renewed(), time.monotonic() + 30
        while renewed() == first:
            assert time.monotonic() < deadline
