"""utils/beam.py: the records of --runner=beam are those of the local runner, and no worker's death changes them.

Where Apache Beam is not installed (requirements-beam.txt), only the messages are tested.
"""

import contextlib
import functools
import importlib.util
import os
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
import tensorflow as tf

import image.preprocess
import text.preprocess
from back_translate import translate
from tests.back_translate import small_translation
from tests.image.small_data import files_below, preprocess_arguments, run_preprocess, write_cifar10
from tests.programs import run_main
from tests.text import small_data, small_run
from tests.utils import beam_jobs
from utils import beam, files, preprocessing, records

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
TWO_PROCESSES = "--direct_num_workers=2 --direct_running_mode=multi_processing"
with_beam = pytest.mark.skipif(not importlib.util.find_spec("apache_beam"), reason="Apache Beam is not installed")
# Beam's and Dask's own warnings are not ours.
pytestmark = pytest.mark.filterwarnings("ignore")


# ---- bad input ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("program", [image.preprocess, text.preprocess, translate])
def test_without_beam_the_message_tells_how_to_install_it(monkeypatch, program):
    monkeypatch.setitem(sys.modules, "apache_beam", None)
    required = ["--input_file=a", "--output_file=b"] if program is translate else []
    message = "error: runner=beam: Apache Beam is not installed.*pip install --no-deps -r requirements-beam.txt"
    with pytest.raises(SystemExit, match=message):
        run_main(program, *required, "--runner=beam")


def test_beam_args_without_beam_are_refused():
    with pytest.raises(SystemExit, match="beam_args='--runner=DaskRunner': expected only together with --runner=beam"):
        run_main(image.preprocess, "--beam_args=--runner=DaskRunner")


def test_beam_is_not_loaded_unless_asked_for():
    """In a program that does all but write."""
    code = "import sys, image.preprocess, text.preprocess; assert 'apache_beam' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)


@with_beam
@pytest.mark.parametrize(
    "beam_args, message",
    [
        ("--runner=SparkyRunner", "unknown or not installed.*SparkyRunner"),
        ("--runner=DataflowRunner", "unknown or not installed"),
        ("--runner=no.such.Runner", "unknown or not installed.*No module named 'no'"),
        ("--direct_num_workers=two", "cannot be read: expected flags of Beam's runners|unknown or not installed"),
    ],
)
def test_a_runner_that_is_not_there_is_named(beam_args, message):
    with pytest.raises(SystemExit, match=f"error: beam_args='{beam_args}'.*{message}"):
        run_main(image.preprocess, "--runner=beam", f"--beam_args={beam_args}")


# ---- the direct runner ----------------------------------------------------------------------------------------------


@with_beam
@pytest.mark.slow
def test_results_come_in_order_and_an_error_is_one_line(tmp_path):
    with beam.start(TWO_PROCESSES, str(tmp_path)) as ordered_map:
        assert list(ordered_map(beam_jobs.square, iter(range(11)))) == [number**2 for number in range(11)]
        assert list(ordered_map(beam_jobs.square, [])) == []
        assert ordered_map.combine(beam_jobs.refuse_seven, range(7), beam_jobs.union) == set(range(7))
        for run in (
            lambda: list(ordered_map(beam_jobs.refuse_seven, range(9))),
            lambda: ordered_map.combine(beam_jobs.refuse_seven, range(9), beam_jobs.union),
        ):
            with pytest.raises(ValueError, match="^number=7: expected another one.$"):
                run()
    assert os.listdir(tmp_path) == []  # what was kept on the way


@with_beam
@pytest.mark.slow
def test_images_are_those_of_the_local_runner(tmp_path):
    """As a program of its own, whose functions are those of __main__."""
    write_cifar10(tmp_path / "raw")
    run_preprocess(tmp_path / "raw", tmp_path / "local", aug_copy=3)
    settings = {"aug_copy": 3, "runner": "beam", "beam_args": TWO_PROCESSES}
    command = [sys.executable, "-m", "image.preprocess"]
    command += preprocess_arguments(tmp_path / "raw", tmp_path / "beam", **settings)
    subprocess.run(command, cwd=ROOT, check=True)
    assert files_below(tmp_path / "beam") == files_below(tmp_path / "local")


@with_beam
@pytest.mark.slow
def test_texts_and_word_statistics_are_those_of_the_local_runner(tmp_path, monkeypatch):
    monkeypatch.setattr(preprocessing, "SHARD_SIZE", 8)  # several blocks to count, and to write
    small_run.write_bert(tmp_path / "bert")
    small_data.write_user_file(tmp_path / "train.csv", 40)
    settings = {"train_file": tmp_path / "train.csv", "aug_ops": "tf_idf-0.5"}
    small_run.run_preprocess(tmp_path / "bert", tmp_path / "local", **settings)
    settings |= {"runner": "beam", "beam_args": TWO_PROCESSES}
    small_run.run_preprocess(tmp_path / "bert", tmp_path / "beam", **settings)
    assert files_below(tmp_path / "beam") == files_below(tmp_path / "local")
    assert len([name for name in files_below(tmp_path / "beam") if name.endswith(".tfrecord")]) > 5


@with_beam
@pytest.mark.slow
def test_translations_are_those_of_the_local_runner(tmp_path):
    model = small_translation.write_model(tmp_path / "model")
    (tmp_path / "in.txt").write_text("".join(f"the cat has {number} dogs, Tom!\n" for number in range(20)))
    common = [f"--input_file={tmp_path / 'in.txt'}", f"--model={model}", "--seed=1", "--block_size=4"]
    run_main(translate, *common, f"--output_file={tmp_path / 'local.txt'}")
    on_beam = ["--runner=beam", f"--beam_args={TWO_PROCESSES}"]
    run_main(translate, *common, f"--output_file={tmp_path / 'beam.txt'}", *on_beam)
    assert (tmp_path / "beam.txt").read_bytes() == (tmp_path / "local.txt").read_bytes()
    names = {"beam.txt", "beam.txt.json", "local.txt", "local.txt.json", "in.txt", "model"}
    assert set(os.listdir(tmp_path)) == names


# ---- Dask -----------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def dask_cluster(folder, num_workers=2):
    """A scheduler and workers, each a process; gives the arguments for Beam, and the processes of the workers."""
    scheduler_file = str(folder / "scheduler.json")
    common = {"cwd": ROOT, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    start = functools.partial(subprocess.Popen, **common)
    command = [sys.executable, "-m", "distributed.cli.dask_scheduler", "--port=0", "--no-dashboard"]
    processes = [start([*command, f"--scheduler-file={scheduler_file}", "--host=127.0.0.1"])]
    command = [sys.executable, "-m", "distributed.cli.dask_worker", f"--scheduler-file={scheduler_file}", "--no-nanny"]
    command += ["--nthreads=1", "--no-dashboard", f"--local-directory={folder}"]
    try:
        processes += [start(command) for _ in range(num_workers)]
        wait_for(lambda: os.path.exists(scheduler_file))
        yield f"--runner=DaskRunner --dask_scheduler_file={scheduler_file}", processes[1:]
    finally:
        for process in processes:
            process.kill()
            process.wait()


def wait_for(condition, seconds=300):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "this took too long"
        time.sleep(0.05)


@with_beam
@pytest.mark.slow
def test_a_killed_dask_worker_loses_no_shard_and_makes_none_twice(tmp_path):
    files.make_folder(str(tmp_path / "set"))

    def begun_by(process):
        return len(list(tmp_path.glob(f"begun-*-{process.pid}")))

    with dask_cluster(tmp_path) as (beam_args, workers):

        def kill():
            """In the middle of its second shard, when the other one works, too."""
            wait_for(lambda: begun_by(workers[0]) >= 2 and begun_by(workers[1]) >= 1)
            os.kill(workers[0].pid, signal.SIGKILL)

        killer = threading.Thread(target=kill, daemon=True)
        killer.start()
        with beam.start(beam_args, str(tmp_path)) as ordered_map:
            jobs = functools.partial(beam_jobs.write_slowly, str(tmp_path))
            assert list(ordered_map(jobs, range(beam_jobs.NUM_JOBS))) == list(range(beam_jobs.NUM_JOBS))
        killer.join()
        assert workers[0].wait() == -signal.SIGKILL and workers[1].poll() is None
    paths = [records.shard_path(str(tmp_path / "set"), number, beam_jobs.NUM_JOBS) for number in range(12)]
    found = [[int(record) for record in tf.data.TFRecordDataset(path).as_numpy_iterator()] for path in paths]
    assert found == (100 * np.arange(12)[:, None] + np.arange(5)).tolist()
    assert len(list(tmp_path.glob("begun-*"))) > beam_jobs.NUM_JOBS  # what the dead had begun was begun again
    names = [os.path.basename(path) for path in paths]
    assert sorted(path.name for path in (tmp_path / "set").glob("*.tfrecord")) == names


@with_beam
@pytest.mark.slow
def test_texts_on_dask_are_those_of_the_local_runner(tmp_path, monkeypatch):
    monkeypatch.setattr(preprocessing, "SHARD_SIZE", 8)
    small_run.write_bert(tmp_path / "bert")
    small_data.write_user_file(tmp_path / "train.csv", 40)
    settings = {"train_file": tmp_path / "train.csv", "aug_ops": "tf_idf-0.5"}
    small_run.run_preprocess(tmp_path / "bert", tmp_path / "local", **settings)
    (tmp_path / "dask").mkdir()
    with dask_cluster(tmp_path / "dask") as (beam_args, _):
        settings |= {"runner": "beam", "beam_args": beam_args}
        small_run.run_preprocess(tmp_path / "bert", tmp_path / "beam", **settings)
    assert files_below(tmp_path / "beam") == files_below(tmp_path / "local")
