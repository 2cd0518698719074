"""utils/run_dir.py: what a run leaves behind survives kills and tells what went wrong."""

import json
import math
import resource
import types

import numpy as np
import pytest
import tensorflow as tf

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


# ---- versions -------------------------------------------------------------------------------------------------------


def test_versions_of_what_a_result_depends_on():
    versions = run_dir.versions()
    assert versions["tensorflow"] == tf.__version__ and versions["numpy"] == np.__version__
    assert set(versions) == {"python", "tensorflow", "numpy", "git_commit"}
    assert len(versions["git_commit"]) in (0, 40)


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
    writer.write(20, {"loss": 1.25, "sup_accuracy": 0.5, "tsa_threshold": 0.1})
    writer.close()
    assert capsys.readouterr().err == "step 20/40  loss 1.25  sup_accuracy 0.5  00:40 left\n"


def test_a_terminal_shows_a_bar_with_the_metrics(tmp_path, capsys, monkeypatch):
    bar = run_dir.tqdm
    monkeypatch.setattr(run_dir, "tqdm", lambda **options: bar(**options | {"disable": False, "mininterval": 0}))
    writer = run_dir.MetricsWriter(str(tmp_path), 10, train_steps=40)
    writer.advance(20)
    writer.write(20, {"loss": 1.25, "tsa_threshold": 0.1})
    writer.close()
    shown = capsys.readouterr().err
    assert "10/40" in shown and "20/40" in shown and "loss=1.25" in shown and "tsa_threshold" not in shown


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
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, hard))  # larger files fail, as on a full disk
    try:
        message = (
            r"step=2: the checkpoint in .*checkpoints cannot be written \((?s:.*)File too large(?s:.*)\): make room; "
        )
        with pytest.raises(ValueError, match=message + r"the same command goes on from the last one, .*ckpt-1\.$"):
            checkpoints.save(2)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    model = create_model()
    assert run_dir.Checkpoints(str(tmp_path), model, 2).restore_last() == 1
    assert_weights(model, weights)


def test_a_first_checkpoint_that_cannot_be_written_names_no_earlier_one(tmp_path):
    (tmp_path / "checkpoints").write_text("a file where the folder should be")
    checkpoints = run_dir.Checkpoints(str(tmp_path), create_model(), 2)
    with pytest.raises(ValueError, match=r": make room; the same command starts again\.$"):
        checkpoints.save(2)
