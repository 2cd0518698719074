"""utils/preprocessing.py: the same records whoever writes them, and nothing done twice."""

import os
import signal
import subprocess
import sys

import pytest
import tensorflow as tf

from utils import preprocessing, records
from utils.preprocessing import SetPlan, write_sets

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
COMMON = {"task_name": "numbers"}


@pytest.fixture(autouse=True)
def small_shards(monkeypatch):
    monkeypatch.setattr(preprocessing, "SHARD_SIZE", 4)


def plan_numbers(folder, num_examples=10, factors=(1, 2, 3)):
    """Sets of the numbers from 0 on, times a factor; they share their examples."""
    numbers = list(range(num_examples))
    return [
        SetPlan(os.path.join(folder, f"times_{factor}"), numbers, num_examples, {"factor": factor}, factor)
        for factor in factors
    ]


def read_numbers(numbers, shards):
    for shard in shards:
        yield numbers[shard * preprocessing.SHARD_SIZE : (shard + 1) * preprocessing.SHARD_SIZE]


def encode_numbers(shard, numbers, counts):
    def encode(factor):
        counts["written"] += len(numbers)
        return [b"%d" % (factor * number) for number in numbers]

    return encode


def write(plans, **options):
    return write_sets(plans, COMMON, encode_numbers, read_numbers, **options)


def contents(folder):
    """dict from set to its records, file by file."""
    found = {}
    for name in sorted(os.listdir(folder)):
        paths = sorted(path for path in os.listdir(os.path.join(folder, name)) if path.endswith(".tfrecord"))
        datasets = [tf.data.TFRecordDataset(os.path.join(folder, name, path)) for path in paths]
        found[name] = [[int(record) for record in dataset.as_numpy_iterator()] for dataset in datasets]
    return found


EXPECTED = {
    f"times_{factor}": [[factor * n for n in part] for part in (range(4), range(4, 8), range(8, 10))]
    for factor in (1, 2, 3)
}


def test_all_sets_are_written_shard_by_shard(tmp_path):
    counts = write(plan_numbers(tmp_path))
    assert contents(tmp_path) == EXPECTED and counts == {"written": 30}
    record_set = records.read_set(str(tmp_path / "times_2"), COMMON | {"factor": 2}, "")
    assert record_set.num_examples == 10


@pytest.mark.parametrize("sets_per_job", [1, 2, 8])
def test_it_does_not_matter_how_many_sets_share_a_job(sets_per_job, tmp_path, monkeypatch):
    monkeypatch.setattr(preprocessing, "SETS_PER_JOB", sets_per_job)
    write(plan_numbers(tmp_path))
    assert contents(tmp_path) == EXPECTED


def test_replicas_share_the_work_and_each_does_its_own_part(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(preprocessing, "SETS_PER_JOB", 1)
    counts = [write(plan_numbers(tmp_path), replicas=2, worker_id=worker_id)["written"] for worker_id in (1, 0)]
    assert sum(counts) == 30 and all(counts)
    assert contents(tmp_path) == EXPECTED
    assert capsys.readouterr().out == "3 sets wait for shards of other workers (replicas=2).\n"
    assert all(records.read_set(plan.set_dir, COMMON, "").num_examples == 10 for plan in plan_numbers(tmp_path))


def test_what_is_finished_is_neither_read_nor_made_again(tmp_path):
    plans = plan_numbers(tmp_path, factors=(1, 2))
    write(plans[:1])
    asked = []

    def read(numbers, shards):
        asked.extend(shards)
        return read_numbers(numbers, shards)

    assert write_sets(plans, COMMON, encode_numbers, read) == {"written": 10} and asked == [0, 1, 2]
    assert write_sets(plans, COMMON, encode_numbers, read) == {} and asked == [0, 1, 2]


def test_inputs_of_shards_that_are_not_written_here_are_not_asked_for(tmp_path):
    asked = []

    def read(numbers, shards):
        asked.append(shards)
        return read_numbers(numbers, shards)

    write_sets(plan_numbers(tmp_path), COMMON, encode_numbers, read, replicas=2, worker_id=0)
    assert asked == [[0, 2]]


def test_sets_of_other_examples_have_jobs_of_their_own(tmp_path):
    plans = plan_numbers(tmp_path, factors=(1,)) + plan_numbers(tmp_path, num_examples=5, factors=(2,))
    jobs = list(preprocessing.split_into_jobs(plans))
    assert [(job.shard, [plan.content for plan in job.plans]) for job in jobs] == [
        (0, [1]),
        (1, [1]),
        (2, [1]),
        (0, [2]),
        (1, [2]),
    ]


def test_a_set_of_other_settings_is_refused_with_the_given_advice(tmp_path):
    write(plan_numbers(tmp_path))
    plans = [plan._replace(settings={"factor": 7}) for plan in plan_numbers(tmp_path)]
    with pytest.raises(ValueError, match=r"factor: found 1, expected 7\)\. Ask someone\."):
        write(plans, advice="Ask someone.")


# ---- real processes -------------------------------------------------------------------------------------------------


def encode_or_die(shard, numbers, counts):
    if shard == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    return encode_numbers(shard, numbers, counts)


PROGRAM = """
import sys
from tests.utils import test_preprocessing as this
from utils import preprocessing, work

if __name__ == "__main__":
    preprocessing.SHARD_SIZE = 4
    encode = getattr(this, sys.argv[2])
    with work.start_processes(2) as ordered_map:
        preprocessing.write_sets(
            this.plan_numbers(sys.argv[1]), this.COMMON, encode, this.read_numbers, ordered_map
        )
"""


def run_program(tmp_path, encode):
    (tmp_path / "program.py").write_text(PROGRAM)
    command = [sys.executable, str(tmp_path / "program.py"), str(tmp_path / "sets"), encode]
    environment = os.environ | {"PYTHONPATH": ROOT, "TF_CPP_MIN_LOG_LEVEL": "3"}
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)


@pytest.mark.slow
def test_a_worker_that_is_killed_ends_the_work_with_advice_and_the_next_attempt_goes_on(tmp_path):
    process = run_program(tmp_path, "encode_or_die")
    assert process.returncode == 1
    assert "One of workers=2 processes was ended from outside, perhaps for lack of memory. Use" in process.stderr
    finished = [name for name in os.listdir(tmp_path / "sets" / "times_1") if name.endswith(".tfrecord")]
    assert finished and len(finished) < 3
    process = run_program(tmp_path, "encode_numbers")
    assert process.returncode == 0, process.stderr
    write(plan_numbers(tmp_path / "one"))
    for path in sorted((tmp_path / "one").rglob("*.tfrecord")):  # what one process writes
        assert path.read_bytes() == (tmp_path / "sets" / path.relative_to(tmp_path / "one")).read_bytes()
