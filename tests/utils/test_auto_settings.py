"""utils/auto_settings.py: what is chosen follows the data, the budget and what is given; a continued run keeps it."""

import dataclasses
import json

import numpy as np
import pytest
from sklearn.datasets import load_digits

import image.classifier
import text.main
from tests.programs import run_main
from utils import auto_settings, features, run_dir
from utils.auto_settings import Budget, Facts, choose_for_images, choose_for_texts
from utils.settings import ObjectiveConfig

DIGITS = Facts(num_labels=20, num_classes=10, num_unlabeled=1297)
FROZEN = dataclasses.asdict(features.HeadConfig())
FINETUNE = FROZEN | {"trainable_layers": -1, "tsa": "linear", "train_steps": 1000, "warmup_steps": 100}


def values(choices):
    return {choice.name: choice.value for choice in choices}


def test_digits_get_about_the_settings_of_the_quickstart():
    chosen = values(choose_for_images(DIGITS, {}))
    assert chosen == {
        "wrn_depth": 10,
        "wrn_size": 16,
        "wrn_stem_stride": 2,
        "train_batch_size": 16,
        "unsup_ratio": 4,
        "uda_confidence_thresh": 0.8,
        "unsup_coeff": 1.0,
        "uda_softmax_temp": 0.4,
        "tsa": "",
        "train_steps": 810,
        "ema_decay": 0.9877,
        "save_steps": 162,
        "log_steps": 30,
    }


def test_an_accelerator_gets_the_batches_of_the_paper_and_its_network():
    chosen = values(choose_for_images(Facts(4000, 10, 50_000, has_accelerator=True), {}))
    assert (chosen["train_batch_size"], chosen["unsup_ratio"], chosen["train_steps"]) == (64, 7, 20_000)
    assert (chosen["ema_decay"], chosen["save_steps"], chosen["log_steps"]) == (0.9995, 2000, 200)
    assert "wrn_depth" not in chosen


def test_many_classes_get_the_thresholds_of_imagenet():
    chosen = values(choose_for_images(Facts(128_000, 1000, 1_281_167, has_accelerator=True), {}))
    assert (chosen["uda_confidence_thresh"], chosen["unsup_coeff"]) == (0.5, 20.0)


@pytest.mark.parametrize("num_unlabeled, ratio", [(0, 0), (10, 1), (40, 2), (1000, 4)])
def test_no_more_unlabelled_examples_are_in_a_step_than_there_are(num_unlabeled, ratio):
    assert values(choose_for_images(Facts(20, 10, num_unlabeled), {}))["unsup_ratio"] == ratio


def test_what_is_given_counts_more_and_the_rest_follows_it():
    given = {"train_batch_size": 32, "train_steps": 5000, "model_name": "resnet50"}
    choices = choose_for_images(DIGITS, given)
    chosen = values(choices)
    assert (chosen["train_batch_size"], chosen["train_steps"], chosen["ema_decay"]) == (32, 5000, 0.998)
    assert {choice.name for choice in choices if choice.why == "given"} == {"train_batch_size", "train_steps"}
    assert "wrn_depth" not in chosen  # another network has none


def test_a_frozen_text_run_is_that_of_its_recipe_but_for_the_steps_of_many_classes():
    two = values(choose_for_texts(Facts(20, 2, 4800), {}, FROZEN))
    assert all(FROZEN[name] == value for name, value in two.items() if name not in ("save_steps", "log_steps"))
    assert two["train_steps"] == 600 and "ema_decay" not in two and "warmup_steps" not in two
    fourteen = values(choose_for_texts(Facts(28, 14, 10_000), {}, FROZEN))
    assert fourteen["train_steps"] == 1500
    # A linear classifier has learnt all it can by then, however much time there is.
    assert values(choose_for_texts(Facts(20, 2, 4800), {}, FROZEN, Budget(10**6, "")))["train_steps"] == 600


@pytest.mark.parametrize("num_labels, tsa", [(20, "linear"), (2500, "log")])
def test_a_fine_tuning_has_tsa_by_the_number_of_labels_and_warms_up_for_a_tenth(num_labels, tsa):
    chosen = values(choose_for_texts(Facts(num_labels, 5, 10_000), {}, FINETUNE, Budget(3000, "")))
    assert (chosen["tsa"], chosen["train_steps"], chosen["warmup_steps"]) == (tsa, 3000, 300)


@pytest.mark.parametrize("steps, decay", [(5, 0.0), (300, 0.9667), (1000, 0.99), (10_000, 0.999), (10**6, 0.9999)])
def test_the_decay_leaves_nothing_of_the_start(steps, decay):
    assert auto_settings.suggest_decay(steps) == decay and decay**steps < 0.1


@pytest.mark.parametrize("steps, number, part", [(800, 20, 40), (810, 4, 162), (997, 20, 49), (3, 20, 1)])
def test_parts_of_the_steps_divide_them_if_possible(steps, number, part):
    assert auto_settings.part_of(steps, number) == part


# ---- a run ----------------------------------------------------------------------------------------------------------


def choose(given, budget=None):
    return choose_for_images(DIGITS, {"model_name": "resnet50"} | given, budget)


def never(_):
    raise AssertionError("nothing is to be measured")


def test_minutes_become_steps_by_what_a_step_takes(tmp_path, capsys):
    measured = []

    def measure(config):
        measured.append(config)
        return 0.5

    config = auto_settings.resolve(ObjectiveConfig(), {"unsup_ratio": 2}, choose, str(tmp_path), 30, measure)
    assert measured[0].train_batch_size == 16 and measured[0].unsup_ratio == 2  # the batches that were chosen
    assert (config.train_steps, config.ema_decay) == (3200, 0.9969)  # 0.9 · 1,800 s / 0.5 s, to two digits
    table = capsys.readouterr().out
    assert "| train_steps " in table and "30 minutes, less a tenth, at 0.5 s a step" in table
    assert "| unsup_ratio " in table and "given" in table


def test_a_continued_run_takes_what_was_chosen_for_it_and_does_not_measure_again(tmp_path):
    begun = auto_settings.resolve(ObjectiveConfig(), {}, choose, str(tmp_path), 30, lambda config: 0.5)
    run_dir.prepare(str(tmp_path), begun)
    (tmp_path / "checkpoints").mkdir()
    continued = auto_settings.resolve(ObjectiveConfig(), {"max_save": 2}, choose, str(tmp_path), 30, never)
    assert continued == dataclasses.replace(begun, max_save=2)
    run_dir.prepare(str(tmp_path), continued)  # which refuses other settings


@pytest.mark.parametrize("minutes, given", [(-1, {}), (5, {"train_steps": 100})])
def test_minutes_that_contradict_are_refused(minutes, given, tmp_path):
    with pytest.raises(ValueError, match="minutes=.*expected"):
        auto_settings.resolve(ObjectiveConfig(), given, choose, str(tmp_path), minutes, never)
    with pytest.raises(ValueError, match="minutes=5: expected settings=auto"):
        auto_settings.check_mode("", 5)


# ---- programs and classifiers ---------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_run_of_some_minutes_is_measured_once_and_its_choice_is_stored(tmp_path, capsys):
    pixels, labels = load_digits(return_X_y=True)
    np.savez(tmp_path / "digits.npz", features=pixels, labels=labels, unlabeled=pixels, augmented=pixels + 1)
    command = ["--do_train", "--recipe=frozen", "--task_name=features", f"--features_file={tmp_path}/digits.npz"]
    command += ["--sup_size=20", "--settings=auto", "--strategy=one_device", f"--model_dir={tmp_path}/run"]
    run_main(text.main, *command, "--minutes=0.001", "--unsup_ratio=2")
    table = capsys.readouterr().out
    stored = json.loads((tmp_path / "run/config.json").read_text())
    assert f"| train_steps           | {stored['train_steps']}" in table and "0.001 minutes, less a tenth" in table
    assert stored["unsup_ratio"] == 2 and 20 <= stored["train_steps"] < 600
    run_main(text.main, *command, "--minutes=30", "--unsup_ratio=2")
    assert json.loads((tmp_path / "run/config.json").read_text()) == stored
    with pytest.raises(SystemExit, match="another configuration .train_steps: was"):
        run_main(text.main, *command, "--train_steps=999", "--unsup_ratio=2")


def test_an_image_classifier_takes_chosen_settings_and_those_given_count_more(tmp_path, monkeypatch):
    configs = []
    monkeypatch.setattr(image.classifier, "train_and_evaluate", lambda config, *_, **__: configs.append(config))
    monkeypatch.setattr(image.classifier.export, "load", lambda _: None)
    images = np.random.default_rng(0).integers(0, 256, [40, 8, 8, 3], np.uint8)
    classifier = image.classifier.ImageClassifier(str(tmp_path), settings="auto", train_steps=300, aug_copy=1)
    classifier.fit(images, np.arange(40) % 2, images)
    config = configs[0]
    assert (config.train_batch_size, config.unsup_ratio, config.train_steps) == (16, 4, 300)
    assert (config.ema_decay, config.save_steps, config.wrn_depth) == (0.9667, 75, 10)
    with pytest.raises(ValueError, match="settings='automatic': expected 'auto'"):
        image.classifier.ImageClassifier(str(tmp_path), settings="automatic")
