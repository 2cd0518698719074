"""utils/run_dir.py: what a run leaves behind survives kills and tells what went wrong."""

import contextlib
import fcntl
import json
import math
import os
import pty
import re
import select
import struct
import sys
import termios
import types

import numpy as np
import pytest
import tensorflow as tf

from tests.full_disk import full_disk
from utils import files, run_dir
from utils.settings import Settings, config_class, setting


@config_class()
class Config(Settings):
    train_steps: int = setting(100, "Number of updates.")
    log_steps: int = setting(10, "Steps between lines.", resumable=True)


# ---- config.json ----------------------------------------------------------------------------------------------------


def test_a_new_folder_is_made_and_the_configuration_kept(tmp_path):
    model_dir = str(tmp_path / "runs" / "new")
    run_dir.prepare(model_dir, Config())
    assert files.read_json(f"{model_dir}/config.json") == {"train_steps": 100, "log_steps": 10}


def test_a_run_of_the_same_configuration_is_taken_up_with_its_resumable_settings_changed(tmp_path):
    run_dir.prepare(str(tmp_path), Config())
    run_dir.prepare(str(tmp_path), Config(log_steps=5))
    assert files.read_json(str(tmp_path / "config.json"))["log_steps"] == 5


@pytest.mark.parametrize("folder", ["checkpoints", "best"])
def test_a_run_of_another_configuration_is_refused_and_left_alone(tmp_path, folder):
    run_dir.prepare(str(tmp_path), Config())
    (tmp_path / folder).mkdir()
    message = r"holds a run of another configuration \(train_steps: was 100, now 7\)\. Give those settings again to "
    with pytest.raises(ValueError, match=message + r"continue it, or choose another --model_dir\."):
        run_dir.prepare(str(tmp_path), Config(train_steps=7, log_steps=5))
    assert files.read_json(str(tmp_path / "config.json")) == {"train_steps": 100, "log_steps": 10}


def test_a_run_on_other_data_is_refused_and_one_on_the_same_is_taken_up(tmp_path):
    data = {"labelled": "a", "unlabelled": "b"}
    run_dir.prepare(str(tmp_path), Config(), {"labelled": "before its first checkpoint"})
    run_dir.prepare(str(tmp_path), Config(), data)
    (tmp_path / "checkpoints").mkdir()
    run_dir.prepare(str(tmp_path), Config(), data)
    run_dir.prepare(str(tmp_path), Config())  # to evaluate it
    message = "holds a run of the same configuration on other unlabelled examples. Choose another --model_dir, or"
    with pytest.raises(ValueError, match=message):
        run_dir.prepare(str(tmp_path), Config(), data | {"unlabelled": "c"})
    assert files.read_json(str(tmp_path / "data.json")) == data


def test_a_run_from_before_data_were_compared_is_taken_up(tmp_path):
    run_dir.prepare(str(tmp_path), Config())
    (tmp_path / "checkpoints").mkdir()
    run_dir.prepare(str(tmp_path), Config(), {"labelled": "a"})
    assert files.read_json(str(tmp_path / "data.json")) == {"labelled": "a"}


def test_an_attempt_that_left_no_checkpoint_does_not_bind_the_next_one(tmp_path):
    run_dir.prepare(str(tmp_path), Config())
    run_dir.prepare(str(tmp_path), Config(train_steps=7))
    assert files.read_json(str(tmp_path / "config.json")) == {"train_steps": 7, "log_steps": 10}


def test_a_folder_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    for model_dir in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(
            ValueError, match=rf"model_dir={model_dir} cannot be written \(.*\): choose another --model_d"
        ):
            run_dir.prepare(str(model_dir), Config())


@pytest.mark.parametrize(
    "content, message",
    [
        ("[]", r"config\.json holds \[\]: expected an object"),
        ("[" * 100_000, r"config\.json is not valid JSON \(nested too deeply\)"),
        ('{"train_steps": [1]}', r"another configuration \(train_steps: was \[1\], now 100\)"),
        ('{"train_steps": {"a": 1}}', r"another configuration \(train_steps: was \{'a': 1\}, now 100\)"),
    ],
)
def test_a_damaged_configuration_is_described(tmp_path, content, message):
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "config.json").write_text(content)
    with pytest.raises(ValueError, match=message):
        run_dir.prepare(str(tmp_path), Config())


# ---- one at a time --------------------------------------------------------------------------------------------------


def test_no_two_trainings_run_in_one_folder(tmp_path):
    @run_dir.alone
    def train(config, model_dir, then):
        return then()

    def train_again():
        return train(None, str(tmp_path / "run"), lambda: "both")

    message = f"run is in use by another training, process {os.getpid()} on .*: wait for its end, or choose another --m"
    with pytest.raises(ValueError, match=message):
        train(None, str(tmp_path / "run"), train_again)
    assert train(None, str(tmp_path / "run"), lambda: "one") == "one"
    assert not (tmp_path / "run").exists()  # since nothing was written there


def test_what_a_killed_training_left_half_written_is_removed_by_the_next_one(tmp_path):
    for name in ("config.json.tmp-7", "metrics.jsonl.tmp-7", "predictions.csv.tmp-7"):
        (tmp_path / name).touch()
    with run_dir.hold(str(tmp_path)):
        assert sorted(path.name for path in tmp_path.iterdir()) == [".lock", "predictions.csv.tmp-7"]


def test_a_folder_in_which_nothing_can_be_written_is_named_before_anything_is_done(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match=r"model_dir=.*file/run cannot be written \(.*\): choose another --model_dir"):
        run_dir.alone(lambda config, model_dir: None)(None, str(tmp_path / "file" / "run"))


# ---- versions -------------------------------------------------------------------------------------------------------


def test_versions_of_what_a_result_depends_on():
    versions = run_dir.versions()
    assert versions["tensorflow"] == tf.__version__ and versions["numpy"] == np.__version__
    assert set(versions) == {"python", "tensorflow", "numpy", "git_commit"}
    assert len(versions["git_commit"].removesuffix("-dirty")) in (0, 40)


@pytest.mark.parametrize("status, mark", [("", ""), (" M utils/objective.py", "-dirty")])
def test_the_commit_tells_whether_files_were_changed_since(status, mark, monkeypatch, tmp_path):
    git = tmp_path / "git"
    git.write_text(f"#!/bin/sh\ncase $3 in rev-parse) echo 0123abc ;; status) printf '{status}' ;; esac\n")
    git.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert run_dir.versions()["git_commit"] == f"0123abc{mark}"


def test_without_git_the_commit_is_left_empty(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert run_dir.versions()["git_commit"] == ""


# ---- metrics --------------------------------------------------------------------------------------------------------


def write_lines(model_dir, steps, start_step=0):
    writer = run_dir.MetricsWriter(str(model_dir), start_step, train_steps=40)
    for step in steps:
        writer.write(step, {"loss": tf.constant(0.5), "sup_accuracy": np.float32(step / 64)})
    writer.close()


def test_metrics_come_back(tmp_path):
    write_lines(tmp_path, [10, 20])
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert lines == run_dir.read_metrics(str(tmp_path))
    assert lines == [
        {"step": 10, "loss": 0.5, "sup_accuracy": 10 / 64},
        {"step": 20, "loss": 0.5, "sup_accuracy": 20 / 64},
    ]


def test_a_folder_without_metrics_has_no_lines(tmp_path):
    assert run_dir.read_metrics(str(tmp_path)) == []


def test_lines_after_the_checkpoint_are_dropped_when_a_run_is_taken_up(tmp_path):
    write_lines(tmp_path, [10, 20, 30])
    write_lines(tmp_path, [30, 40], start_step=20)
    assert [line["step"] for line in run_dir.read_metrics(str(tmp_path))] == [10, 20, 30, 40]
    write_lines(tmp_path, [10], start_step=0)
    assert [line["step"] for line in run_dir.read_metrics(str(tmp_path))] == [10]


def test_a_half_written_last_line_is_dropped(tmp_path):
    write_lines(tmp_path, [10, 20])
    text = (tmp_path / "metrics.jsonl").read_text()
    (tmp_path / "metrics.jsonl").write_text(text[:-5])
    assert [line["step"] for line in run_dir.read_metrics(str(tmp_path))] == [10]
    write_lines(tmp_path, [20], start_step=10)
    assert (tmp_path / "metrics.jsonl").read_text() == text


@pytest.mark.parametrize(
    "line, message",
    [
        (b"{}", "line 2: step is missing: expected a whole number"),
        (b"[]", r"line 2 holds \[\]: expected an object with step"),
        (b'{"step": "20"}', "line 2: step='20': expected a whole number"),
        (b'{"step": 20, "loss": "low"}', "line 2: loss='low': expected a number"),
        (b'{"step": 20, "loss": {}}', "line 2: loss={}: expected a number"),
        (b'{"step": 2', r"line 2 is not valid JSON \(.*\)"),
        (b"\xff", r"line 2 is not valid JSON \(.*utf-8.*\)"),
        (b"[" * 100_000, r"line 2 is not valid JSON \(.*\)"),
    ],
)
def test_a_damaged_line_of_metrics_is_named(tmp_path, line, message):
    write_lines(tmp_path, [10])
    content = (tmp_path / "metrics.jsonl").read_bytes()
    (tmp_path / "metrics.jsonl").write_bytes(content + line + b"\n")
    with pytest.raises(ValueError, match=rf"metrics\.jsonl, {message}.*: delete that line\.|; delete that line\."):
        run_dir.read_metrics(str(tmp_path))
    with pytest.raises(ValueError, match="delete that line"):  # before the first step
        run_dir.MetricsWriter(str(tmp_path), 20, train_steps=40)


def test_metrics_that_are_no_numbers_are_kept(tmp_path):
    (tmp_path / "metrics.jsonl").write_text('{"step": 1, "loss": NaN, "accuracy": Infinity}\n')
    assert math.isnan(run_dir.read_metrics(str(tmp_path))[0]["loss"])


def test_metrics_go_to_tensorboard(tmp_path):
    write_lines(tmp_path, [10, 20])
    found = {}
    for record in tf.data.TFRecordDataset([str(path) for path in (tmp_path / "tensorboard").iterdir()]):
        event = tf.compat.v1.Event.FromString(record.numpy())
        for value in event.summary.value:
            found[value.tag, event.step] = float(tf.make_ndarray(value.tensor))
    expected = {("loss", 10): 0.5, ("loss", 20): 0.5, ("sup_accuracy", 10): 10 / 64, ("sup_accuracy", 20): 20 / 64}
    assert found == expected


def test_the_console_shows_the_step_the_metrics_and_the_time_left(tmp_path, capsys, monkeypatch):
    writer = run_dir.MetricsWriter(str(tmp_path), 10, train_steps=40)
    monkeypatch.setattr(run_dir.time, "time", lambda: writer.start_time + 20.0)  # ten steps took 20 seconds
    writer.write(0, {"dev_accuracy": 0.25})  # nothing to tell the time from
    writer.write(20, {"loss": 1.25, "sup_accuracy": 0.5, "tsa_threshold": 0.1})
    writer.close()
    lines = capsys.readouterr().err.splitlines()
    assert lines == ["step 0/40  dev_accuracy 0.25  ? left", "step 20/40  loss 1.25  sup_accuracy 0.5  00:40 left"]


@contextlib.contextmanager
def terminal(monkeypatch, columns):
    """A real terminal as stderr. Gives a function that returns what it has shown since."""
    keyboard, screen = pty.openpty()
    fcntl.ioctl(screen, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    with open(screen, "w") as stderr, open(keyboard, "rb", buffering=0) as shown:

        def read_screen():
            """What comes until nothing does for a while: the kernel passes it on in pieces."""
            content = b""
            while select.select([shown], [], [], 0.5 if content else 30)[0]:
                content += shown.read(65536)
            return content.decode()

        monkeypatch.setattr(sys, "stderr", stderr)
        yield read_screen


def test_a_terminal_shows_one_live_line(tmp_path, monkeypatch):
    with terminal(monkeypatch, 80) as read_screen:
        writer = run_dir.MetricsWriter(str(tmp_path), 10, train_steps=4000)
        monkeypatch.setattr(run_dir, "LIVE_SECONDS", -1)
        writer.advance(20, lambda: {"loss": 1.23456, "unsup_kept_ratio": 0.5, "sup_loss": 7.0})
        shown = read_screen()
        assert "\n" not in shown  # the line is written over
        last = shown.split("\r")[-1]
        assert re.match(r"step (10|20)/4000, loss 1\.23, kept 0\.5, .* left, ", last) and len(last) <= 80
        writer.write(2000, {"loss": 0.75, "unsup_kept_ratio": 0.625, "test_accuracy": 0.875, "tsa_threshold": 0.1})
        writer.advance(2010, lambda: {"loss": 0.5})
        last = read_screen().split("\r")[-1]
        assert "loss 0.5, kept 0.625, test accuracy 0.875, " in last and "tsa_threshold" not in last
        writer.close()
    lines = run_dir.read_metrics(str(tmp_path))
    assert [(line["step"], line["loss"]) for line in lines] == [(2000, 0.75)]


def test_a_narrow_terminal_shows_what_matters_most(tmp_path, monkeypatch):
    with terminal(monkeypatch, 40) as read_screen:
        writer = run_dir.MetricsWriter(str(tmp_path), 0, train_steps=4000)
        writer.advance(20, lambda: {"loss": 1.23456, "unsup_kept_ratio": 0.5, "test_accuracy": 0.5})
        last = read_screen().split("\r")[-1]
        assert last.startswith("step ") and "loss 1.23, kept 0.5" in last and len(last) <= 40
        writer.close()


def test_metrics_are_read_for_a_terminal_only_and_twice_a_second_at_most(tmp_path, monkeypatch, capsys):
    calls = []
    writer = run_dir.MetricsWriter(str(tmp_path), 0, train_steps=4000)
    writer.advance(10, lambda: calls.append(1) or {})
    assert not calls and capsys.readouterr().err == ""
    writer.close()
    with terminal(monkeypatch, 80):
        writer = run_dir.MetricsWriter(str(tmp_path), 0, train_steps=4000)
        monkeypatch.setattr(run_dir, "LIVE_SECONDS", 3600)
        for step in range(10, 100, 10):
            writer.advance(step, lambda: calls.append(1) or {})
        writer.close()
    assert len(calls) == 1


def test_metrics_that_cannot_be_written_are_told(tmp_path):
    writer = run_dir.MetricsWriter(str(tmp_path), 0, train_steps=40)
    (tmp_path / "metrics.jsonl").unlink()
    (tmp_path / "metrics.jsonl").mkdir()
    message = r"step=10: .*metrics\.jsonl cannot be written \(.*\): make room; the same command goes on from"
    with pytest.raises(ValueError, match=message):
        writer.write(10, {"loss": 1.0})
    writer.close()


def create_mean_metrics(weight=1.0, **values):
    metrics = {name: tf.keras.metrics.Mean(name) for name in ("loss", "sup_loss", "unsup_loss")}
    for name, numbers in values.items():
        for number in numbers:
            metrics[name].update_state(number)

    def reset_metrics():
        for metric in metrics.values():
            metric.reset_state()

    network = types.SimpleNamespace(weights=[tf.Variable(7, dtype=tf.int64), tf.Variable([0.0, weight])])
    return types.SimpleNamespace(train_metrics=metrics, reset_metrics=reset_metrics, network=network)


def test_metrics_are_means_since_the_last_reading_and_unused_ones_are_left_out():
    model = create_mean_metrics(loss=[1.0, 2.0], sup_loss=[3.0])
    assert run_dir.take_metrics(model, 10) == {"loss": 1.5, "sup_loss": 3.0}
    model.train_metrics["loss"].update_state(7.0)
    assert run_dir.take_metrics(model, 20) == {"loss": 7.0}


@pytest.mark.parametrize("loss", [math.nan, math.inf, -math.inf])
def test_a_loss_that_is_no_number_ends_the_run(loss):
    message = (
        rf"step=10: loss={loss}\. The training has diverged; the last checkpoint is from before\. Use a lower --lea"
    )
    with pytest.raises(ValueError, match=message):
        run_dir.take_metrics(create_mean_metrics(loss=[1.0, loss]), 10)


@pytest.mark.parametrize("weight", [math.nan, math.inf])
def test_weights_that_the_last_update_broke_end_the_run_before_they_are_saved(weight):
    with pytest.raises(ValueError, match="step=10: loss=1.0. The training has diverged"):
        run_dir.take_metrics(create_mean_metrics(weight, loss=[1.0]), 10)


# ---- checkpoints ----------------------------------------------------------------------------------------------------


def create_model(width=3, average=True):
    """A network, its average and its optimizer, as run_dir.Checkpoints takes them."""

    def create_network():
        return tf.keras.Sequential([tf.keras.layers.Dense(width, input_shape=[2])])

    model = types.SimpleNamespace(network=create_network(), average_network=create_network() if average else None)
    model.optimizer = tf.keras.optimizers.SGD(0.1, momentum=0.9, jit_compile=False)
    model.optimizer.build(model.network.trainable_variables)
    return model


def all_weights(model):
    networks = [model.network, model.average_network] if model.average_network else [model.network]
    return [weight.numpy() for network in networks for weight in network.weights] + [
        variable.numpy() for variable in model.optimizer.variables
    ]


def make_step(model):
    variables = model.network.trainable_variables
    model.optimizer.apply_gradients([(tf.ones_like(variable), variable) for variable in variables])


def train_with_checkpoints(model_dir, dev_accuracies, max_to_keep=2, model=None):
    """One step and one checkpoint for each of the accuracies; returns the weights of each step."""
    model = model or create_model()
    checkpoints, weights = run_dir.Checkpoints(str(model_dir), model, max_to_keep), []
    for step, accuracy in enumerate(dev_accuracies, start=1):
        make_step(model)
        checkpoints.save_if_best(step, accuracy)
        checkpoints.save(step)
        weights.append(all_weights(model))
    return weights


def assert_weights(model, expected):
    for weight, value in zip(all_weights(model), expected, strict=True):
        np.testing.assert_array_equal(weight, value)


@pytest.mark.parametrize("average", [True, False])
def test_the_last_checkpoint_restores_network_average_and_optimizer(tmp_path, average):
    weights = train_with_checkpoints(tmp_path, [0.1, 0.3, 0.2], model=create_model(average=average))
    model = create_model(average=average)
    assert run_dir.Checkpoints(str(tmp_path), model, 2).restore_last() == 3
    assert_weights(model, weights[-1])


def test_a_restored_step_is_the_one_in_the_checkpoints_name(tmp_path):
    """Not the optimizer's count of updates, which other optimizers may keep in other ways."""
    model = create_model()
    checkpoints = run_dir.Checkpoints(str(tmp_path / "run-1"), model, 2)
    make_step(model)
    checkpoints.save(7)
    checkpoints.save_if_best(5, 0.5)
    assert (checkpoints.restore_last(), checkpoints.restore_chosen(by_dev=True)) == (7, 5)


def test_without_a_checkpoint_a_run_starts_at_step_0(tmp_path):
    assert run_dir.Checkpoints(str(tmp_path), create_model(), 2).restore_last() == 0


def checkpoint_steps(folder):
    return sorted(int(path.stem.removeprefix("ckpt-")) for path in folder.glob("*.index"))


def test_only_the_last_few_checkpoints_and_the_best_are_kept(tmp_path):
    train_with_checkpoints(tmp_path, [0.1, 0.4, 0.2, 0.3, 0.1], max_to_keep=2)
    assert checkpoint_steps(tmp_path / "checkpoints") == [4, 5]
    assert checkpoint_steps(tmp_path / "best") == [2]
    assert files.read_json(str(tmp_path / "best.json")) == {"step": 2, "dev_accuracy": 0.4}


def test_what_a_process_left_of_a_checkpoint_that_it_was_at_is_removed(tmp_path):
    """TensorFlow leaves its temporary folder when the disk is full, and when it is killed also what is in it."""
    checkpoints = run_dir.Checkpoints(str(tmp_path), create_model(), 2)
    checkpoints.save(1)
    with full_disk(50), pytest.raises(ValueError, match="cannot be written"):
        checkpoints.save(2)
    for name in ("checkpoint.tmp0123", "ckpt-2_temp/part-00000-of-00001.data-00000-of-00001.tempstate4567"):
        (tmp_path / "checkpoints" / name).touch()
    assert run_dir.Checkpoints(str(tmp_path), create_model(), 2).restore_last() == 1
    names = {"checkpoint", "ckpt-1.index", "ckpt-1.data-00000-of-00001"}
    assert {path.name for path in (tmp_path / "checkpoints").iterdir()} == names


def test_a_continued_run_still_keeps_only_the_last_few(tmp_path):
    train_with_checkpoints(tmp_path, [0.1, 0.2, 0.3], max_to_keep=2)
    checkpoints = run_dir.Checkpoints(str(tmp_path), create_model(), 2)
    for step in (4, 5):
        checkpoints.save(step)
    assert checkpoint_steps(tmp_path / "checkpoints") == [4, 5]


def test_the_first_of_equally_good_checkpoints_stays_the_best(tmp_path):
    weights = train_with_checkpoints(tmp_path, [0.2, 0.4, 0.4, 0.3])
    model = create_model()
    assert run_dir.Checkpoints(str(tmp_path), model, 2).restore_chosen(by_dev=True) == 2
    assert_weights(model, weights[1])


def test_the_best_of_an_earlier_part_of_the_run_is_remembered(tmp_path):
    train_with_checkpoints(tmp_path, [0.2, 0.4])
    checkpoints = run_dir.Checkpoints(str(tmp_path), create_model(), 2)
    checkpoints.save_if_best(3, 0.3)
    assert files.read_json(str(tmp_path / "best.json")) == {"step": 2, "dev_accuracy": 0.4}
    checkpoints.save_if_best(4, 0.5)
    assert checkpoint_steps(tmp_path / "best") == [4]


def test_without_a_development_split_the_last_checkpoint_is_chosen(tmp_path):
    weights = train_with_checkpoints(tmp_path, [0.9, 0.4, 0.3])
    model = create_model()
    assert run_dir.Checkpoints(str(tmp_path), model, 2).restore_chosen(by_dev=False) == 3
    assert_weights(model, weights[2])


@pytest.mark.parametrize("by_dev", [True, False])
def test_choosing_without_a_checkpoint_is_refused(tmp_path, by_dev):
    checkpoints = run_dir.Checkpoints(str(tmp_path), create_model(), 2)
    with pytest.raises(ValueError, match=rf"model_dir={tmp_path} holds no checkpoint: train first, with --do_train\."):
        checkpoints.restore_chosen(by_dev)


@pytest.mark.parametrize("damage", ["cut", "garbage", "missing"])
@pytest.mark.parametrize("ending", ["index", "data-00000-of-00001"])
def test_a_damaged_checkpoint_is_named_and_can_be_deleted(tmp_path, ending, damage):
    weights = train_with_checkpoints(tmp_path, [0.1, 0.2])
    path = tmp_path / f"checkpoints/ckpt-2.{ending}"
    content = path.read_bytes()
    path.unlink()
    if damage != "missing":
        path.write_bytes(content[: len(content) // 2] if damage == "cut" else bytes(len(content)))
    if path.exists() or ending != "index":
        message = r"ckpt-2 cannot be restored: it is damaged, or of another network \((?s:.*)\)\. Delete its files to "
        with pytest.raises(ValueError, match=message + "go on from the one before it, or choose another --model_dir"):
            run_dir.Checkpoints(str(tmp_path), create_model(), 2).restore_last()
        (tmp_path / "checkpoints/ckpt-2.index").unlink()
    model = create_model()
    checkpoints = run_dir.Checkpoints(str(tmp_path), model, 2)
    assert checkpoints.restore_last() == 1
    assert_weights(model, weights[0])
    make_step(model)
    checkpoints.save(2)
    model = create_model()
    assert run_dir.Checkpoints(str(tmp_path), model, 2).restore_last() == 2
    assert_weights(model, weights[1])


@pytest.mark.parametrize("folder", ["checkpoints", "best"])
@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"garbage",
        b"\x00\xff\xfe",
        b'model_checkpoint_path: "ckpt-2"\n',
        b'model_checkpoint_path: "ckpt-1"\nall_model_checkpoint_paths: 7\n',
        b'model_checkpoint_path: "x"\nall_model_checkpoint_paths: "x"\nall_model_checkpoint_timestamps: 1.5\n',
        b'model_checkpoint_path: "ckpt-1"\nall_model_checkpoint_paths: "ckpt-1"\n',
    ],
)
def test_a_damaged_list_of_checkpoints_is_named_and_nothing_is_written_over(tmp_path, folder, content):
    train_with_checkpoints(tmp_path, [0.1, 0.2])
    (tmp_path / folder / "checkpoint").write_bytes(content)
    message = rf"{folder}/checkpoint is damaged: expected TensorFlow's list of checkpoints\. Restore it, delete"
    with pytest.raises(ValueError, match=message):
        run_dir.Checkpoints(str(tmp_path), create_model(), 2)


@pytest.mark.parametrize("content", ["[]", "{}", '{"step": 1}', '{"step": 1, "dev_accuracy": "x"}'])
def test_a_damaged_note_of_the_best_checkpoint_is_named(tmp_path, content):
    train_with_checkpoints(tmp_path, [0.1])
    (tmp_path / "best.json").write_text(content)
    with pytest.raises(ValueError, match=r"best\.json.*: expected .*; delete it, to choose among the checkpoints from"):
        run_dir.Checkpoints(str(tmp_path), create_model(), 2).save_if_best(2, 0.5)


def test_a_checkpoint_of_another_network_is_named(tmp_path):
    train_with_checkpoints(tmp_path, [0.1])
    with pytest.raises(ValueError, match="ckpt-1 cannot be restored: it is damaged, or of another network"):
        run_dir.Checkpoints(str(tmp_path), create_model(width=5), 2).restore_last()


def test_a_full_disk_is_told_with_the_last_good_checkpoint(tmp_path):
    model = create_model()
    checkpoints = run_dir.Checkpoints(str(tmp_path), model, 2)
    make_step(model)
    checkpoints.save(1)
    weights = all_weights(model)
    make_step(model)
    message = r"step=2: the checkpoint in .*checkpoints cannot be written \((?s:.*)File too large(?s:.*)\): make room; "
    message += r"the same command goes on from the last one, .*ckpt-1\.$"
    with full_disk(), pytest.raises(ValueError, match=message):
        checkpoints.save(2)
    model = create_model()
    assert run_dir.Checkpoints(str(tmp_path), model, 2).restore_last() == 1
    assert_weights(model, weights)


def test_a_first_checkpoint_that_cannot_be_written_names_no_earlier_one(tmp_path):
    (tmp_path / "checkpoints").write_text("a file where the folder should be")
    checkpoints = run_dir.Checkpoints(str(tmp_path), create_model(), 2)
    with pytest.raises(ValueError, match=r": make room; the same command starts again\.$"):
        checkpoints.save(2)
