"""image/train.py from records to result: what a run leaves, and that a stopped run ends like an uninterrupted one."""

import collections
import dataclasses
import os
import random
import shutil
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import tensorflow as tf

from image import export, input_pipeline, main, train
from tests.image.small_data import run_preprocess, tiny_config, write_cifar10
from tests.programs import run_main
from tests.runs import assert_equal_runs, checkpoint_steps, read_checkpoint, read_lines, without_timing
from utils import files, run_dir, training
from utils.distribution import create_strategy
from utils.uda_model import CLASS_METRICS, METRIC_NAMES

pytestmark = pytest.mark.slow

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
RUN = {
    "dev_size": 10,
    "train_steps": 16,
    "save_steps": 4,
    "log_steps": 2,
    "eval_steps": 8,
    "iterations": 2,
    "max_save": 2,
    "tsa": "linear",
    "ent_min_coeff": 0.1,
    "uda_confidence_thresh": 0.1,
    "warmup_steps": 3,
}


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    write_cifar10(folder)
    for dev_size in (0, 10):
        run_preprocess(folder, folder / "records", dev_size=dev_size)
    return folder / "records"


@pytest.fixture(scope="module")
def config(data_dir):
    return tiny_config(data_dir, **RUN)


WholeRun = collections.namedtuple("WholeRun", "model_dir result writes")


@pytest.fixture(scope="module")
def whole_run(config, tmp_path_factory):
    """A run that nothing interrupted: its folder, its result, and what was written in which order."""
    model_dir, writes = tmp_path_factory.mktemp("whole") / "run", []

    def note(owner, name):
        method = getattr(owner, name)

        def note_and_call(self, step, *arguments):
            writes.append((step, name))
            return method(self, step, *arguments)

        monkeypatch.setattr(owner, name, note_and_call)

    with pytest.MonkeyPatch.context() as monkeypatch:
        note(run_dir.MetricsWriter, "write")
        note(run_dir.Checkpoints, "save")
        note(run_dir.Checkpoints, "save_if_best")
        result = run_training(config, model_dir)
    return WholeRun(model_dir, result, writes)


def run_training(config, model_dir, **options):
    return train.train_and_evaluate(config, str(model_dir), create_strategy("one_device"), **options)


# ---- what a run leaves ----------------------------------------------------------------------------------------------


def test_a_run_leaves_its_files(whole_run, config):
    assert {path.name for path in whole_run.model_dir.iterdir()} == {
        "best",
        "best.json",
        "checkpoints",
        "config.json",
        "data.json",
        "evaluation.npz",
        "export",
        "metrics.jsonl",
        "result.json",
        "run.json",
        "tensorboard",
    }
    assert files.read_json(str(whole_run.model_dir / "config.json")) == dataclasses.asdict(config)
    assert len(list((whole_run.model_dir / "tensorboard").glob("events.out.tfevents.*"))) == 1


def test_the_last_checkpoints_are_kept_and_hold_their_step(whole_run):
    assert checkpoint_steps(whole_run.model_dir) == [12, 16]
    for step in (12, 16):
        values = read_checkpoint(whole_run.model_dir / f"checkpoints/ckpt-{step}")
        assert values["optimizer/_iterations/.ATTRIBUTES/VARIABLE_VALUE"] == step
        parts = {name.split("/")[0] for name in values}
        assert parts == {"network", "average_network", "optimizer", "save_counter"}


def test_the_result_has_all_that_a_table_needs(whole_run):
    model_dir, result, _ = whole_run
    assert files.read_json(str(model_dir / "result.json")) == result
    assert set(result) == {
        "task_name",
        "accuracy",
        "top5_accuracy",
        "error_rate",
        "loss",
        "sup_size",
        "seed",
        "label_seed",
        "step",
        "train_steps",
        "examples_per_second",
        "train_seconds",
        "versions",
    }
    assert (result["task_name"], result["sup_size"], result["seed"], result["label_seed"]) == ("cifar10", 20, 0, -1)
    assert result["train_steps"] == 16
    assert result["step"] == files.read_json(str(model_dir / "best.json"))["step"]
    assert result["accuracy"] * 12 == pytest.approx(round(result["accuracy"] * 12), abs=1e-5)  # of 12 test images
    assert result["error_rate"] == 1 - result["accuracy"]
    assert np.isfinite(result["loss"])
    assert result["examples_per_second"] > 0
    assert result["versions"] == run_dir.versions()


def test_the_result_is_that_of_the_exported_model(whole_run, config):
    model_dir, result, _ = whole_run
    batches = input_pipeline.create_eval_dataset(input_pipeline.open_data(config).test, 32, 12)
    batch = next(batches.as_numpy_iterator())
    exported = export.load(str(model_dir / "export"))
    assert exported.facts == input_pipeline.open_data(config).facts
    probabilities = exported.predict_proba(batch["sup"][..., :3])
    assert np.mean(np.argmax(probabilities, axis=-1) == batch["label"]) == pytest.approx(result["accuracy"])
    true_probabilities = probabilities[np.arange(12), batch["label"]]
    assert -np.log(true_probabilities).mean() == pytest.approx(result["loss"], rel=1e-4)


def test_every_line_has_the_promised_metrics(whole_run, config):
    lines = run_dir.read_metrics(str(whole_run.model_dir))
    assert [line["step"] for line in lines] == list(range(2, 17, 2))
    schedule = train.create_optimizer(config)._learning_rate
    for line in lines:
        extra = {"dev_accuracy"} if line["step"] % 4 == 0 else set()
        extra |= {"test_accuracy", "test_top5_accuracy"} if line["step"] % 8 == 0 else set()
        assert set(line) == {"step", "examples_per_second", "input_wait_ratio", *METRIC_NAMES, *extra}
        assert all(np.isfinite(value) for value in line.values())
        parts = line["sup_loss"] + line["unsup_loss"] + line["entropy_loss"] + line["l2_loss"]
        assert line["loss"] == pytest.approx(parts, rel=1e-5)
        # A line is the mean over its two steps, which had made these numbers of updates when they began.
        updates = np.array([line["step"] - 2, line["step"] - 1])
        assert line["tsa_threshold"] == pytest.approx(np.mean(updates / 16 * 0.9 + 0.1), rel=1e-5)
        assert line["learning_rate"] == pytest.approx(np.mean(schedule(updates)), rel=1e-5)


def test_accuracies_are_of_the_averaged_weights(whole_run, config):
    """The last line's test accuracy is that of the last checkpoint's average."""
    data = input_pipeline.open_data(config)
    model = train.create_model(config, data.facts)
    checkpoint = tf.train.Checkpoint(average_network=model.average_network)
    checkpoint.restore(str(whole_run.model_dir / "checkpoints/ckpt-16")).expect_partial()
    batch = next(input_pipeline.create_eval_dataset(data.test, 32, 12).as_numpy_iterator())
    predicted = np.argmax(model.average_network(batch["sup"], training=False), axis=-1)
    line = run_dir.read_metrics(str(whole_run.model_dir))[-1]
    assert line["test_accuracy"] == pytest.approx(np.mean(predicted == batch["label"]))


DEV_ACCURACIES, TEST_ACCURACIES = [0.2, 0.3, 0.6, 0.1, 0.6, 0.5], [0.9, 0.5, 0.1, 0.8, 0.2, 0.3]


@pytest.fixture(scope="module")
def supervised_run(data_dir, tmp_path_factory):
    """A run without unlabelled examples, whose accuracies are given so that the best on dev is the worst on test."""
    settings = {"train_steps": 6, "log_steps": 1, "save_steps": 1, "eval_steps": 1}
    config = tiny_config(data_dir, dev_size=10, unsup_ratio=0, **settings)
    given = {"dev": iter(DEV_ACCURACIES), "test": iter(TEST_ACCURACIES)}

    def evaluate(model, strategy, create_batches, num_examples, batch_size):
        split = "dev" if num_examples == config.dev_size else "test"
        return {"accuracy": next(given[split]), "loss": 1.0}

    model_dir = tmp_path_factory.mktemp("supervised")
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(training, "evaluate", evaluate)
        monkeypatch.setattr(training, "evaluate_finally", lambda *arguments: {"accuracy": 0.123, "loss": 1.0})
        monkeypatch.setattr(train, "export", lambda *arguments: None)  # slow, and another test's matter
        return model_dir, run_training(config, model_dir)


def test_a_supervised_run_has_the_metrics_that_apply(supervised_run):
    unsupervised = {"unsup_loss", "unsup_cross_entropy", "unsup_kept_ratio", "entropy_loss"}
    unsupervised |= {"original_confidence", "augmented_confidence", "view_divergence", *CLASS_METRICS}
    lines = run_dir.read_metrics(str(supervised_run[0]))
    assert [line["step"] for line in lines] == [1, 2, 3, 4, 5, 6]
    expected = set(METRIC_NAMES) - unsupervised | {"step", "dev_accuracy", "test_accuracy"}
    expected |= {"examples_per_second", "input_wait_ratio"}
    assert all(set(line) == expected for line in lines)


def test_the_checkpoint_is_chosen_by_the_development_split_and_never_by_the_test_set(supervised_run):
    model_dir, result = supervised_run
    assert (result["step"], result["accuracy"]) == (3, 0.123)
    assert files.read_json(str(model_dir / "best.json")) == {"step": 3, "dev_accuracy": 0.6}
    lines = run_dir.read_metrics(str(model_dir))
    assert [line["dev_accuracy"] for line in lines] == DEV_ACCURACIES
    assert [line["test_accuracy"] for line in lines] == TEST_ACCURACIES
    best, last = (read_checkpoint(model_dir / f"{folder}/ckpt-3") for folder in ("best", "checkpoints"))
    for name in set(last) - {"save_counter/.ATTRIBUTES/VARIABLE_VALUE"}:
        np.testing.assert_array_equal(best[name], last[name])


# ---- stops ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "steps, interval, most, expected",
    [
        ({"train_steps": 500_000, "save_steps": 10_000, "log_steps": 1000}, [1000, 10_000, 500_000], 10, 10),
        ({"train_steps": 24, "save_steps": 8, "log_steps": 6, "eval_steps": 12}, [6, 8, 24, 12], 10, 2),
        ({"train_steps": 24, "save_steps": 12, "log_steps": 12}, [12, 12, 24], 10, 6),
        ({"train_steps": 7, "save_steps": 4, "log_steps": 2}, [2, 4, 7], 10, 1),
        ({"train_steps": 100, "save_steps": 50, "log_steps": 50}, [50, 50, 100], 1, 1),
    ],
)
def test_the_device_makes_as_many_steps_at_once_as_no_stop_forbids(steps, interval, most, expected):
    config = tiny_config("data", iterations=most, **steps)
    assert config.intervals == interval
    assert training.steps_per_call(config) == expected


def test_examples_per_step_count_all_views():
    assert tiny_config("data", train_batch_size=64, unsup_ratio=7).examples_per_step == 960
    assert tiny_config("data", train_batch_size=64, unsup_ratio=0).examples_per_step == 64


# ---- interrupted runs -----------------------------------------------------------------------------------------------


class Killed(BaseException):
    """Stands for a kill in the test process: no handler of the trainer catches it."""


def test_resumed_run_equals_uninterrupted_run(config, whole_run, tmp_path, monkeypatch):
    """The run dies when the metrics of step 8 are written and its checkpoint is not, and goes on from step 4."""
    save = run_dir.Checkpoints.save

    def save_or_die(self, step):
        if step == 8:
            raise Killed
        save(self, step)

    with monkeypatch.context() as context, pytest.raises(Killed):
        context.setattr(run_dir.Checkpoints, "save", save_or_die)
        run_training(config, tmp_path)
    assert checkpoint_steps(tmp_path) == [4]
    assert read_lines(tmp_path)[-1]["step"] == 8
    monkeypatch.setattr(train, "export", lambda *arguments: None)  # slow, and another test's matter
    assert run_training(config, tmp_path, do_eval=False) == {}
    assert not (tmp_path / "result.json").exists()
    assert_equal_runs(tmp_path, whole_run.model_dir)


def test_a_kill_at_any_write_loses_no_line_of_metrics(whole_run):
    """A resumed run repeats what came after its checkpoint only, so the checkpoint is the last that a step writes."""
    expected = []
    for step in (4, 8, 12, 16):
        expected += [(step - 2, "write"), (step, "save_if_best"), (step, "write"), (step, "save")]
    assert whole_run.writes == expected


def test_a_process_killed_at_a_random_moment_ends_like_an_uninterrupted_run(config, whole_run, tmp_path, capsys):
    arguments = ["--do_train", "--do_eval", f"--model_dir={tmp_path}"]
    arguments += [f"--{name}={value}" for name, value in dataclasses.asdict(config).items()]
    num_lines, metrics_path = random.Random(0).randint(2, 4), tmp_path / "metrics.jsonl"
    command = [sys.executable, "-m", "image.main", *arguments]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    deadline = time.monotonic() + 240

    def is_time_to_kill():
        has_checkpoint = (tmp_path / "checkpoints/checkpoint").exists()
        return has_checkpoint and metrics_path.read_text().count("\n") >= num_lines

    while process.poll() is None and time.monotonic() < deadline and not is_time_to_kill():
        time.sleep(0.001)
    process.send_signal(signal.SIGKILL)
    output = process.communicate()[0].decode()
    assert process.returncode == -signal.SIGKILL, output
    assert 0 < max(checkpoint_steps(tmp_path)) < config.train_steps, f"killed after {num_lines} lines"
    capsys.readouterr()
    run_main(main, *arguments)
    accuracy, top5 = whole_run.result["accuracy"], whole_run.result["top5_accuracy"]
    expected = f"cifar10: accuracy {accuracy:.4f} (top-5 {top5:.4f}), error rate {1 - accuracy:.4f}\n"
    assert capsys.readouterr().out == expected + f"report: {tmp_path / 'report.html'}\n"
    assert_equal_runs(tmp_path, whole_run.model_dir)
    assert without_timing(files.read_json(str(tmp_path / "result.json"))) == without_timing(whole_run.result)


def test_settings_that_do_not_change_the_result_may_change_between_two_runs(
    config, whole_run, tmp_path, data_dir, monkeypatch
):
    monkeypatch.setattr(train, "export", lambda *arguments: None)  # slow, and another test's matter
    model_dir = tmp_path / "run"
    shutil.copytree(whole_run.model_dir, model_dir)
    shutil.copytree(data_dir, tmp_path / "moved")
    changed = dataclasses.replace(
        config, data_dir=str(tmp_path / "moved"), eval_batch_size=5, max_save=1, log_steps=3, eval_steps=1, iterations=1
    )
    result = run_training(changed, model_dir, do_train=False)
    assert (result["accuracy"], result["step"]) == (whole_run.result["accuracy"], whole_run.result["step"])
    assert result["loss"] == pytest.approx(whole_run.result["loss"], rel=1e-5)
    assert read_lines(model_dir) == read_lines(whole_run.model_dir)
    assert files.read_json(str(model_dir / "config.json")) == dataclasses.asdict(changed)


# ---- errors ---------------------------------------------------------------------------------------------------------


def test_a_run_of_another_configuration_is_refused_by_the_name_of_the_setting(config, whole_run):
    other = dataclasses.replace(config, learning_rate=0.01, seed=3)
    message = r"holds a run of another configuration \(learning_rate: was 0\.03, now 0\.01; seed: was 0, now 3\)\."
    with pytest.raises(ValueError, match=message):
        run_training(other, whole_run.model_dir)
    assert files.read_json(str(whole_run.model_dir / "config.json")) == dataclasses.asdict(config)


def test_a_model_dir_whose_first_attempt_failed_may_be_used_with_other_settings(config, tmp_path):
    with pytest.raises(ValueError, match=r"wrn_depth=11: a Wide ResNet has 6n \+ 4 layers"):
        run_training(dataclasses.replace(config, wrn_depth=11), tmp_path)
    with pytest.raises(ValueError, match=r"holds no checkpoint: train first, with --do_train\."):
        run_training(config, tmp_path, do_train=False)


def test_a_model_dir_that_is_a_file_is_refused(config, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match=r"model_dir=.*/file cannot be written \(.*\): choose another --model_dir\."):
        run_training(config, tmp_path / "file")


def test_a_damaged_checkpoint_is_refused(config, whole_run, tmp_path):
    shutil.copytree(whole_run.model_dir, tmp_path / "run")
    path = tmp_path / "run/checkpoints/ckpt-16.data-00000-of-00001"
    os.truncate(path, path.stat().st_size // 2)
    with pytest.raises(ValueError, match=r"ckpt-16 cannot be restored: it is damaged, or of another network \("):
        run_training(config, tmp_path / "run")


def test_a_diverged_run_ends_with_advice_and_keeps_its_earlier_checkpoint(data_dir, tmp_path):
    # The warm-up makes the first step with a learning rate of 0, so that the checkpoint of step 1 is sound.
    settings = {"learning_rate": 1e30, "warmup_steps": 1, "train_steps": 8, "log_steps": 1, "save_steps": 1}
    config = tiny_config(data_dir, unsup_ratio=1, **settings)
    message = (
        r"step=(\d): loss=(nan|inf)\. The training has diverged; the last checkpoint is from before\. Use a lower "
    )
    with pytest.raises(
        ValueError, match=message + "--learning_rate or more --warmup_steps, in a new --model_dir"
    ) as raised:
        run_training(config, tmp_path)
    failed_step = int(str(raised.value)[len("step=")])
    assert checkpoint_steps(tmp_path) == list(range(1, failed_step))
    assert [line["step"] for line in run_dir.read_metrics(str(tmp_path))] == list(range(1, failed_step))
    assert all(np.all(np.isfinite(value)) for value in read_checkpoint(tmp_path / "checkpoints/ckpt-1").values())
    assert not (tmp_path / "result.json").exists()


def test_batch_sizes_that_the_devices_cannot_share_are_refused(config, tmp_path):
    strategy = create_strategy("mirrored")
    for name in ("train_batch_size", "eval_batch_size"):
        with pytest.raises(ValueError, match=f"{name}=7 cannot be divided among 2 replicas: use a multiple of 2"):
            train.train_and_evaluate(dataclasses.replace(config, **{name: 7}), str(tmp_path / "run"), strategy)
    assert not (tmp_path / "run").exists()
