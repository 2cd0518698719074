"""utils/diagnosis.py: each rule finds its disease in a real small run, and nothing in a healthy one."""

import functools
import json
import time

import numpy as np
import pytest
import tensorflow as tf
from sklearn.datasets import load_digits

from utils import diagnosis, features, run_dir, training
from utils.distribution import create_strategy
from utils.uda_model import UDAModel

# ---- runs -----------------------------------------------------------------------------------------------------------

HEALTHY = {"task_name": "features", "sup_size": 20, "label_seed": 0, "train_batch_size": 16, "unsup_ratio": 4}
HEALTHY |= {"train_steps": 200, "save_steps": 200, "log_steps": 10, "iterations": 10, "learning_rate": 5e-3}
HEALTHY |= {"unsup_coeff": 1.0, "uda_softmax_temp": 0.4, "uda_confidence_thresh": 0.5, "ema_decay": 0.9}
EVERY_20 = {"dev_size": 100, "save_steps": 20}
EAGER = {"uda_confidence_thresh": -1.0, "uda_softmax_temp": 0.1, "unsup_coeff": 20.0}

# From the name of a rule to what is done to the data and to the settings of a healthy run.
DISEASES = {
    "nothing passes the confidence threshold": ({}, {"uda_confidence_thresh": 0.9999, "learning_rate": 1e-3}),
    "sure of wrong targets": ({}, {**EAGER, **EVERY_20, "learning_rate": 5e-2, "sup_size": 10}),
    "one class swallows the others": ({"classes": (3, 8), "pairs": False}, {**EAGER, "sup_size": 4}),
    "unlabelled data unlike the labelled": ({"unlabeled_classes": range(4)}, {}),
    "labels learnt by heart": ({"contrast": 0.05}, {"learning_rate": 0.2, "unsup_coeff": 0.1}),
    "average of the weights still at its start": ({}, {"ema_decay": 0.9999}),
    "augmentation too strong": ({"contrast": 0.05}, {}),
    "augmentation too weak": ({"noise": 0.001}, {}),
    "labels forgotten": ({"pairs": False}, {**EAGER, "uda_softmax_temp": 0.4}),
    "development accuracy falls": ({"pairs": False}, {**EAGER, **EVERY_20, "uda_softmax_temp": 0.4}),
}


def create_data(classes=range(10), unlabeled_classes=range(10), noise=1.0, contrast=1.0, pairs=True):
    """Pixels of digits as features. The augmented views have less contrast, and noise; without `pairs` they belong to
    other examples."""
    pixels, labels = load_digits(return_X_y=True)
    pixels, labels = pixels[np.isin(labels, classes)], labels[np.isin(labels, classes)]
    unlabeled, rng = pixels[np.isin(labels, unlabeled_classes)], np.random.default_rng(0)
    faded = contrast * unlabeled + (1 - contrast) * unlabeled.mean(axis=0)
    augmented = faded + noise * rng.normal(size=unlabeled.shape)
    return features.create_data(pixels, labels, unlabeled, augmented if pairs else rng.permutation(augmented))


def run_features(model_dir, changes, data_changes):
    config = features.HeadConfig(**HEALTHY | changes)
    data = features.split_labelled(create_data(**data_changes), config)
    strategy = create_strategy("one_device")
    features.train_and_evaluate(config, data, str(model_dir), strategy, do_eval=False, export=lambda *_: None)
    return read_run(model_dir)


def run_two_layers(model_dir, changes, create_batches=features.create_train_dataset):
    """A run of a network that can break, with plain gradient descent."""
    config, data = features.HeadConfig(**HEALTHY | changes), create_data()

    def create_network():
        pixels = tf.keras.Input([data.width])
        return tf.keras.Model(pixels, tf.keras.layers.Dense(10)(tf.keras.layers.Dense(32, "relu")(pixels)))

    job = training.Job(
        create_model=lambda: UDAModel(create_network, 10, config),
        create_optimizer=lambda _: tf.keras.optimizers.SGD(config.learning_rate, jit_compile=False),
        create_batches=functools.partial(create_batches, config, features.split_labelled(data, config)),
        export=lambda *_: None,
    )
    training.run(job, config, str(model_dir), create_strategy("one_device"), do_eval=False)
    return read_run(model_dir)


def read_run(model_dir):
    return run_dir.read_metrics(str(model_dir)), json.loads((model_dir / "config.json").read_text())


@pytest.fixture(scope="module")
def run_of(tmp_path_factory):
    """A function from the name of a disease, or "healthy", to the lines and settings of a run that has it."""

    @functools.cache
    def run(name):
        data_changes, changes = DISEASES.get(name, ({}, {}))
        return run_features(tmp_path_factory.mktemp("run"), changes, data_changes)

    return run


def names(lines, config):
    return [finding.name for finding in diagnosis.diagnose(lines, config)]


# ---- rules ----------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("name", DISEASES)
def test_a_run_with_a_disease_is_found_to_have_it(name, run_of):
    lines, config = run_of(name)
    finding = {finding.name: finding for finding in diagnosis.diagnose(lines, config)}[name]
    print(diagnosis.format_finding(finding))
    assert "--" in finding.advice and any(character.isdigit() for character in finding.saw)


def test_lines_of_few_labelled_examples_may_differ_by_chance():
    right = np.random.default_rng(0).binomial(8, 0.8, size=300)  # of eight examples in each step
    lines = [{"step": step, "sup_accuracy": number / 8} for step, number in enumerate(right, start=1)]
    config = {"train_batch_size": 8, "log_steps": 1}
    assert names(lines, config) == []
    assert names(lines, config | {"log_steps": 100}) == ["labels forgotten"]  # of 800 examples it would be no chance


@pytest.mark.slow
def test_annealing_is_not_advised_together_with_a_threshold(run_of):
    for name, alone in (("labels learnt by heart", "--tsa=exp"), ("sure of wrong targets", "--tsa=linear")):
        lines, config = run_of(name)
        for threshold in (-1.0, 0.8):
            config = config | {"uda_confidence_thresh": threshold}
            (advice,) = [finding.advice for finding in diagnosis.diagnose(lines, config) if finding.name == name]
            both = "--tsa" in advice and "--uda_confidence_thresh=-1" not in advice
            assert alone in advice if threshold < 0 else not both


@pytest.mark.slow
def test_a_rate_that_breaks_the_network_is_found_and_a_lower_one_is_not(tmp_path):
    few = {"train_steps": 50, "save_steps": 50, "log_steps": 5, "iterations": 5, "unsup_ratio": 0}
    lines, config = run_two_layers(tmp_path / "high", {**few, "learning_rate": 3.0})
    (finding,) = diagnosis.diagnose(lines, config)
    print(diagnosis.format_finding(finding))
    assert finding.name == "learning rate too high" and "--learning_rate=0.3" in finding.advice
    for rate in (0.01, 1e-6):  # the latter is too low
        assert names(*run_two_layers(tmp_path / str(rate), {**few, "learning_rate": rate})) == []


@pytest.mark.slow
def test_input_that_comes_slowly_is_found_in_a_long_run_and_does_not_matter_in_a_short_one(tmp_path):
    def create_slow_batches(config, data, start_step, share):
        def wait(step):
            time.sleep(0.05)
            return step

        waits = tf.data.Dataset.range(start_step, tf.int64.max).map(
            lambda step: tf.numpy_function(wait, [step], step.dtype)
        )
        batches = features.create_train_dataset(config, data, start_step, share)
        return tf.data.Dataset.zip((waits, batches)).map(lambda _, batch: batch)

    few = {"train_steps": 40, "save_steps": 40, "log_steps": 10, "learning_rate": 0.01, "unsup_ratio": 0}
    few |= {"ema_decay": 0.0}
    lines, config = run_two_layers(tmp_path / "slow", few, create_slow_batches)
    assert names(lines, config) == []
    (finding,) = diagnosis.diagnose(lines, config | {"train_steps": 100_000})
    assert finding.name == "input slower than the step"


@pytest.mark.slow
@pytest.mark.parametrize("number", [0, 1, 5, 10, 20])
def test_a_healthy_run_has_nothing_at_any_time(number, run_of):
    lines, config = run_of("healthy")
    assert len(lines) == 20 and names(lines[:number], config) == []


# ---- while a run trains ---------------------------------------------------------------------------------------------


def lines_of(kept, number=10):
    """Lines of a run in which so many unlabelled examples are kept."""
    return [{"step": step, "unsup_kept_ratio": kept, "original_confidence": 0.42} for step in range(1, number + 1)]


MASKED = {"train_steps": 10, "uda_confidence_thresh": 0.8}


def test_a_finding_is_told_when_it_becomes_clear_and_once_more_at_the_end():
    told = []
    adviser = diagnosis.Adviser([], MASKED, told.append)
    for line in lines_of(kept=0.0):
        adviser.look(line["step"], {name: value for name, value in line.items() if name != "step"})
        assert len(told) == (line["step"] >= 3)  # three lines must agree
    assert "--uda_confidence_thresh=0.4" in told[0] and "0.42" in told[0]
    adviser.conclude()
    assert len(told) == 2 and told[1].startswith("diagnosis: nothing passes")


def test_a_continued_run_is_not_told_again_what_it_was_told_before():
    told = []
    adviser = diagnosis.Adviser(lines_of(kept=0.0, number=5), MASKED, told.append)
    adviser.look(6, lines_of(kept=0.0)[5])
    assert told == []
    healthy = diagnosis.Adviser([{"step": 1, "sup_loss": 1.0}], {"train_steps": 1}, told.append)
    healthy.conclude()
    assert told == ["diagnosis: nothing conspicuous."]


def test_what_the_settings_alone_show_is_told_before_the_first_step():
    told = []
    diagnosis.Adviser([], {"train_steps": 1000, "ema_decay": 0.9999}, told.append)
    assert len(told) == 1 and "90% of the averaged weights" in told[0] and "--ema_decay=0.99:" in told[0]


def test_a_line_without_the_metrics_of_a_rule_is_no_error():
    lines = [{"step": step, "loss": 1.0, "mlm_accuracy": 0.5} for step in range(1, 9)]  # of pre-training
    assert names(lines, {"train_steps": 8}) == names(lines, {}) == []
    told = []
    diagnosis.Adviser(lines, {"train_steps": 8}, told.append).conclude()
    assert told == []


@pytest.mark.parametrize("first, advised", [(0, False), (10, True)])
def test_no_steps_at_all_are_never_advised(first, advised):
    falling = zip(range(first, first + 50, 10), (0.9, 0.8, 0.7, 0.7, 0.7))
    lines = [{"step": step, "dev_accuracy": accuracy} for step, accuracy in falling]
    (finding,) = diagnosis.diagnose(lines, {"train_steps": 50, "dev_size": 10_000})
    assert f"90.0% at step {first} and" in finding.saw
    assert ("--train_steps=10" in finding.advice) == ("--train_steps" in finding.advice) == advised


@pytest.mark.parametrize("waits, found", [([0.9, 0.5, 0.5, 0.4], 1), ([0.9, 0.2, 0.1, 0.5], 0), ([0.9, 0.9, 0.9], 0)])
def test_input_that_is_waited_for_is_found_in_several_lines_after_the_first(waits, found):
    lines = [{"step": step, "input_wait_ratio": wait} for step, wait in enumerate(waits, start=1)]
    lines.insert(0, {"step": 0, "dev_accuracy": 0.5})  # before the second of two stages
    findings = diagnosis.diagnose(lines, {"train_steps": 100, "aug_mode": "online"})
    assert [finding.name for finding in findings] == ["input slower than the step"] * found
    assert all("--aug_mode=offline" in finding.advice for finding in findings)
