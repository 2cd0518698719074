"""Settings that contradict each other are refused when the configuration is made."""

import dataclasses
import re
from pathlib import Path

import pytest

from augmentation.randaugment import choose_ops
from image.config import Config, PreprocessConfig
from image.datasets import READ_BY, SOURCES

IMAGENET = {"task_name": "imagenet", "aug_mode": "online"}
CONTRADICTIONS = {
    "ema_decay=1.0: expected less than 1": {"ema_decay": 1.0},
    "warmup_steps=10: expected fewer than train_steps=10": {"warmup_steps": 10, "train_steps": 10},
    "uda_softmax_temp=0.0: expected more than 0, or -1 for no sharpening": {"uda_softmax_temp": 0.0},
    "uda_softmax_temp=-2.0: expected more than 0, or -1": {"uda_softmax_temp": -2.0},
    "unsup_ratio=-1: expected at least 0": {"unsup_ratio": -1},
    "num_ops=16: expected 1 to 15, or 0 for all": {"num_ops": 16},
    r"got ops='Rotate,Blur', unknown=\['Blur'\]": {"ops": "Rotate,Blur"},
    "ops=Rotate, but aug_ops=cutout: only randaugment has any": {"ops": "Rotate", "aug_ops": "cutout"},
    "unsup_size=5: ImageNet is used with all": {"task_name": "imagenet", "unsup_size": 5, "aug_mode": "online"},
    "tsa='sine': expected one of '', 'log', 'linear', 'exp'": {"tsa": "sine"},
    "aug_mode=offline: ImageNet is augmented while training.*Use --aug_mode=online": {"task_name": "imagenet"},
    "dev_size=5: ImageNet has no development split here": IMAGENET | {"dev_size": 5},
    "sup_size=128000: on ImageNet label_fraction says.*use --label_fraction": IMAGENET | {"sup_size": 128_000},
    "label_fraction=0.0: expected more than 0, and at most 1": IMAGENET | {"label_fraction": 0.0},
    "label_fraction=1.5: expected at most 1": IMAGENET | {"label_fraction": 1.5},
    "image_size=-1: expected at least 0": {"image_size": -1},
    "label_fraction=0.5 is for training on task_name=imagenet only": {"label_fraction": 0.5},
    "unlabeled_dir='more' is for training on task_name=imagenet only": {"unlabeled_dir": "more"},
    "lr_schedule='linear': expected one of 'cosine', 'whole_cosine', 'steps'": {"lr_schedule": "linear"},
}


@pytest.mark.parametrize("message", CONTRADICTIONS)
def test_contradictions_are_explained(message):
    with pytest.raises(ValueError, match=message):
        Config(**CONTRADICTIONS[message])


def test_what_a_data_set_does_not_read_is_refused_in_preprocessing():
    fields = {field.name: field for field in dataclasses.fields(PreprocessConfig) if field.name in READ_BY}
    assert fields.keys() == READ_BY.keys()
    for task_name in SOURCES:
        PreprocessConfig(task_name=task_name, **{name: field.default for name, field in fields.items()})
        for name, field in fields.items():
            given = {"task_name": task_name, name: True if field.type is bool else "photos"}
            if task_name in READ_BY[name]:
                assert getattr(PreprocessConfig(**given), name)
            else:
                message = f"{name}={given[name]!r} is for task_name={' and '.join(READ_BY[name])} only. .*task_name="
                with pytest.raises(ValueError, match=message + task_name):
                    PreprocessConfig(**given)


@pytest.mark.parametrize(
    "given, instead",
    [
        ({"task_name": "npz", "unlabeled_dir": "more"}, "train_file, unlabeled_file, test_file, flip"),
        ({"task_name": "folder", "unlabeled_file": "x"}, "train_dir, unlabeled_dir, test_dir, flip"),
        ({"task_name": "cifar10", "unlabeled_dir": "more"}, "its own images alone"),
    ],
)
def test_what_it_reads_instead_is_named(given, instead):
    with pytest.raises(ValueError, match=rf"Leave it away: task_name={given['task_name']} reads {instead}\."):
        PreprocessConfig(**given)


def test_sharpening_and_the_confidence_mask_can_be_switched_off():
    assert Config(uda_softmax_temp=-1.0, uda_confidence_thresh=-1.0).uda_softmax_temp == -1


def test_the_operations_may_be_a_part():
    assert Config(ops="Rotate,Invert").chosen_ops == ("Invert", "Rotate")
    assert Config(num_ops=4, ops_seed=1).chosen_ops == choose_ops(num_ops=4, ops_seed=1) != Config(num_ops=4).chosen_ops
    assert Config(aug_ops="cutout", sup_aug_ops="randaugment", num_ops=4).num_ops == 4


# Appendix E: labelled and unlabelled examples per step, steps (14,000 are our choice), peak of the learning rate.
RECIPES = {
    "run_imagenet_10pct_tpu": (512, 15_360, 40_000, 0.3, {"unsup_coeff": 20, "uda_confidence_thresh": 0.5}),
    "run_imagenet_full_tpu": (8_192, 16_384, 14_000, 1.6, {"unsup_coeff": 1, "image_size": 331}),
    "run_cifar10_shake_shake_tpu": (128, 512, 300_000, 0.03, {"model_name": "shake_shake", "shake_shake_width": 96}),
    "run_cifar10_pyramidnet_tpu": (64, 128, 700_000, 0.03, {"model_name": "pyramid_net", "sup_size": 4000}),
}


def read_config(script):
    """The configuration that a script makes of its flags."""
    text = (Path(__file__).parent.parent.parent / f"scripts/{script}.sh").read_text()
    given = dict(re.findall(r"[\s(]--(\w+)=([^\s\")][^\s)]*)", text))
    fields = [field for field in dataclasses.fields(Config) if field.name in given]
    return Config(**{field.name: field.type(given[field.name]) for field in fields})


@pytest.mark.parametrize("script", RECIPES)
def test_scripts_of_the_large_networks_have_the_settings_of_the_paper(script):
    sup_size, unsup_size, train_steps, learning_rate, others = RECIPES[script]
    config = read_config(script)
    assert config.train_batch_size == sup_size and config.train_batch_size * config.unsup_ratio == unsup_size
    assert (config.train_steps, config.learning_rate) == (train_steps, learning_rate)
    assert {name: getattr(config, name) for name in others} == others


@pytest.mark.parametrize("script", [script for script in RECIPES if "imagenet" in script])
def test_scripts_of_imagenet_warm_up_for_5_of_90_epochs_and_decay_in_steps(script):
    config = read_config(script)
    assert config.lr_schedule == "steps" and config.model_name == "resnet50"
    assert config.warmup_steps == round(config.train_steps * 5 / 90)
