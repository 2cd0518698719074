"""SIGTERM while training: a checkpoint at the next step, and a continued run that equals an undisturbed one."""

import json
import os
import signal
import time

import numpy as np
import pytest
import tensorflow as tf

import text.main
from tests.programs import run_main
from utils import run_dir, speed

STEPS = {"train_steps": 60, "save_steps": 40, "log_steps": 20, "iterations": 5}
STOPPED = "stopped: what is finished is kept, and the same command goes on from it."
MEASURED = ("examples_per_second", "input_wait_ratio")  # by the clock


@pytest.fixture(scope="module")
def features_path(tmp_path_factory):
    rng, path = np.random.default_rng(0), tmp_path_factory.mktemp("features") / "features.npz"
    arrays = {"features": rng.normal(size=[16, 3]), "labels": np.arange(16) % 2, "unlabeled": rng.normal(size=[40, 3])}
    np.savez(path, **arrays, augmented=arrays["unlabeled"] + 0.1)
    return path


@pytest.fixture(autouse=True)
def default_signal():
    before = signal.signal(signal.SIGTERM, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGTERM, before)


def run(features_path, model_dir, **settings):
    flags = {"recipe": "frozen", "task_name": "features", "features_file": features_path, "sup_size": 8}
    flags |= {"train_batch_size": 4, "model_dir": model_dir, "do_train": True, "ema_decay": 0.9}
    run_main(text.main, *(f"--{name}={value}" for name, value in (flags | STEPS | settings).items()))


@pytest.fixture(scope="module")
def undisturbed(features_path, tmp_path_factory):
    model_dir = tmp_path_factory.mktemp("undisturbed")
    run(features_path, model_dir)
    return model_dir


def terminate_at(steps, monkeypatch):
    """Sends the signal in the call of the device that ends with one of these steps."""
    advance = run_dir.MetricsWriter.advance

    def advance_and_send(writer, step, *arguments):
        if step in steps:
            os.kill(os.getpid(), signal.SIGTERM)
        return advance(writer, step, *arguments)

    monkeypatch.setattr(run_dir.MetricsWriter, "advance", advance_and_send)


def read(model_dir):
    """Metrics but for those of the clock, and all weights, of a finished run."""
    lines = [{k: v for k, v in line.items() if k not in MEASURED} for line in run_dir.read_metrics(str(model_dir))]
    reader = tf.train.load_checkpoint(str(model_dir / "checkpoints/ckpt-60"))
    return lines, {
        name: reader.get_tensor(name) for name in reader.get_variable_to_shape_map() if "counter" not in name
    }


@pytest.mark.parametrize("step", [5, 20, 35, 40])  # within an interval, at a line, within again, at a checkpoint
def test_a_terminated_run_continues_like_an_undisturbed_one(
    step, features_path, undisturbed, tmp_path, monkeypatch, capsys
):
    with monkeypatch.context() as patch, pytest.raises(SystemExit) as raised:
        terminate_at([step], patch)
        run(features_path, tmp_path)
    assert raised.value.code == 143 and capsys.readouterr().err.splitlines()[-1] == STOPPED
    assert tf.train.latest_checkpoint(tmp_path / "checkpoints").endswith(f"ckpt-{step}")
    assert (tmp_path / speed.NAME).exists() == (step % 20 > 0)
    run(features_path, tmp_path)
    lines, weights = read(tmp_path)
    expected_lines, expected_weights = read(undisturbed)
    assert lines == expected_lines
    for name, value in expected_weights.items():
        np.testing.assert_array_equal(weights[name], value, err_msg=name)


def test_a_terminated_run_keeps_its_stops_when_more_steps_fit_in_a_call(features_path, tmp_path, monkeypatch):
    with monkeypatch.context() as patch, pytest.raises(SystemExit):
        terminate_at([5], patch)
        run(features_path, tmp_path)
    run(features_path, tmp_path, iterations=20)
    assert [line["step"] for line in run_dir.read_metrics(str(tmp_path))] == [20, 40, 60]


def test_a_damaged_record_of_an_interruption_is_refused(features_path, tmp_path, monkeypatch):
    with monkeypatch.context() as patch, pytest.raises(SystemExit):
        terminate_at([5], patch)
        run(features_path, tmp_path)
    path = tmp_path / speed.NAME
    values = json.loads(path.read_text())
    path.write_text(json.dumps(values | {"metrics": values["metrics"] | {"loss": ["much"]}}))
    with pytest.raises(SystemExit, match=r"interrupted.json is damaged \(.*\): delete it"):
        run(features_path, tmp_path)


# ---- waiting for input ----------------------------------------------------------------------------------------------


def test_the_time_in_which_a_step_waits_for_its_batch_is_measured():
    def wait(number):
        time.sleep(0.02)
        return number

    slow = tf.data.Dataset.range(100).map(
        lambda number: tf.ensure_shape(tf.numpy_function(wait, [number], tf.int64), [])
    )
    batches = speed.TimedIterator(slow)

    @tf.function
    def take_ten(iterator):
        total = tf.constant(0, tf.int64)
        for _ in tf.range(10):
            total += next(iterator)
        return total

    started = time.time()
    assert take_ten(batches) == 45
    assert 10 * 0.02 <= float(batches.wait_seconds) <= time.time() - started


def test_a_step_begins_after_its_waiting_was_measured():
    """Otherwise a single thread may compute first, and all of that would count as waiting."""
    batches = speed.TimedIterator(tf.data.Dataset.range(3).repeat())
    graph = tf.function(lambda iterator: tf.square(next(iterator), name="step")).get_concrete_function(batches).graph
    found, ancestors = set(), [graph.get_operation_by_name("step")]
    while ancestors:
        operation = ancestors.pop()
        found.add(operation.type)
        ancestors += [tensor.op for tensor in operation.inputs] + list(operation.control_inputs)
    assert "AssignAddVariableOp" in found
