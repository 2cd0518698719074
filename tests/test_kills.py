"""tests/kills.py finds whatever a killed program did otherwise, and nothing else."""

import json
import os
import shutil
import subprocess
import sys

import pytest
import tensorflow as tf

from tests import kills

SERIES = """
import json, pathlib, sys
from tests import kills
for forget in (False, True):
    flags = lambda inputs, output: {"output": output, "forget": forget}
    kills.PROGRAMS = {"tests.forgetful": kills.Program(flags)}
    print(json.dumps(kills.run_series("tests.forgetful", pathlib.Path(sys.argv[1]) / str(forget), 0, 4)))
"""


@pytest.fixture(scope="module")
def outcome(tmp_path_factory):
    """The folder of a run, as small as can be."""
    folder = tmp_path_factory.mktemp("outcome")
    tf.train.Checkpoint(weight=tf.Variable([1.0, 2.0]), step=tf.Variable(3)).save(str(folder / "checkpoints/ckpt"))
    (folder / "metrics.jsonl").write_text('{"step": 1, "loss": 0.5, "examples_per_second": 3.5}\n{"step": 2}\n')
    (folder / "info.json").write_text('{"num_examples": 3, "versions": {"git_commit": "a"}}')
    (folder / "records-00000-of-00001.tfrecord").write_bytes(b"abc")
    (folder / "export").mkdir()
    (folder / "export/saved_model.pb").write_bytes(b"graph 1")
    return folder


def save_again(folder, **variables):
    """Writes the checkpoint anew, with one saving more."""
    checkpoint = tf.train.Checkpoint(weight=tf.Variable([1.0, 2.0]), step=tf.Variable(3))
    for name, value in variables.items():
        getattr(checkpoint, name).assign(value)
    checkpoint.save_counter.assign(7)
    checkpoint.write(str(folder / "checkpoints/ckpt-1"))


def replace(name, old, new):
    return lambda folder: (folder / name).write_bytes((folder / name).read_bytes().replace(old, new, 1))


HARMLESS = {
    "nothing": lambda folder: None,
    "speed": replace("metrics.jsonl", b"3.5", b"4.5"),
    "commit": replace("info.json", b'"a"', b'"b"'),
    "graph": replace("export/saved_model.pb", b"1", b"2"),
    "number of savings": save_again,
    "times of checkpoints": replace("checkpoints/checkpoint", b"timestamps: 1", b"timestamps: 2"),
}
WEIGHT = "checkpoints/ckpt-1.index: weight/.ATTRIBUTES/VARIABLE_VALUE"
PLANTED = {
    "a weight": (lambda folder: save_again(folder, weight=[1.0, 2.0000002]), [WEIGHT]),
    "a metric": (replace("metrics.jsonl", b"0.5", b"0.25"), ["metrics.jsonl: line 1"]),
    "a line twice": (replace("metrics.jsonl", b'{"step": 2}', b'{"step": 2}\n{"step": 2}'), ["metrics.jsonl: line 3"]),
    "a count": (replace("info.json", b"3", b"4"), ["info.json: num_examples"]),
    "a record": (replace("records-00000-of-00001.tfrecord", b"b", b"B"), ["records-00000-of-00001.tfrecord: content"]),
    "what is left over": (lambda folder: (folder / "x.tmp-1").touch(), ["x.tmp-1", "x.tmp-1: content"]),
    "the last checkpoint": (replace("checkpoints/checkpoint", b"ckpt-1", b"ckpt-9"), ["checkpoints/checkpoint: paths"]),
}


def differences_after(change, outcome, copy):
    shutil.copytree(outcome, copy)
    change(copy)
    return kills.find_differences(kills.read_outcome(outcome), kills.read_outcome(copy))


@pytest.mark.parametrize("change", HARMLESS)
def test_what_no_result_depends_on_is_no_difference(change, outcome, tmp_path):
    assert differences_after(HARMLESS[change], outcome, tmp_path / "copy") == []


@pytest.mark.parametrize("change", PLANTED)
def test_a_planted_difference_is_found_and_named(change, outcome, tmp_path):
    change, expected = PLANTED[change]
    assert differences_after(change, outcome, tmp_path / "copy") == expected


def test_a_missing_file_is_a_difference(outcome, tmp_path):
    def remove(folder):
        os.remove(folder / "info.json")

    assert differences_after(remove, outcome, tmp_path / "copy") == ["info.json", "info.json: num_examples"]


@pytest.mark.slow
def test_courses_of_a_program_that_goes_on_wrongly_are_not_equal(tmp_path):
    command = [sys.executable, "-c", SERIES, str(tmp_path)]
    output = subprocess.run(command, cwd=kills.ROOT, capture_output=True, text=True, check=True).stdout
    honest, forgetful = (json.loads(line) for line in output.splitlines() if line.startswith("["))
    assert honest[1] == forgetful[1] == 4  # kills
    assert honest[2] == honest[3]
    assert forgetful[2] > forgetful[3]
