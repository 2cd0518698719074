"""text/config.py: contradictions are explained when the configuration is made; every setting is a flag."""

import dataclasses
import types

import pytest

from tests.programs import parsed_flags
from text.config import Config, DataConfig, PreprocessConfig
from utils import settings

BERT = {"init_checkpoint": "data/bert"}
BAG_OF_WORDS = {"model_name": "bag_of_words", "init_checkpoint": ""}
CONTRADICTIONS = {
    "layer_decay=0.5 would be without effect: trainable_layers=0": {"trainable_layers": 0, "layer_decay": 0.5},
    "accumulation_parts=4 would be without effect": {"trainable_layers": 0, "accumulation_parts": 4},
    "model_dropout=0.5 would be without effect": {"trainable_layers": 0, "model_dropout": 0.5},
    "pooling=mean would be without effect: model_name=bag_of_words": BAG_OF_WORDS | {"pooling": "mean"},
    "feature_layer=3 would be without effect": BAG_OF_WORDS | {"feature_layer": "3"},
    "model_name=bert needs bert_config_file, or init_checkpoint with such a file": {"init_checkpoint": ""},
    "model_name=transformer has its own size and no pre-trained weights: use bert": {"model_name": "transformer"},
    "train_batch_size=8: expected a multiple of accumulation_parts=3": {"accumulation_parts": 3},
    "ema_decay=1.0: expected less than 1": {"ema_decay": 1.0},
    "warmup_steps=1000: expected fewer than train_steps=1000": {"train_steps": 1000},
    "uda_softmax_temp=0.0: expected more than 0, or -1 for no sharpening": {"uda_softmax_temp": 0.0},
    "uda_softmax_temp=-2.0: expected more than 0, or -1": {"uda_softmax_temp": -2.0},
    "model_dropout=-0.5: expected at least 0, or -1 for the encoder's own rates": {"model_dropout": -0.5},
    "model_dropout=1.0: expected at most 0.9": {"model_dropout": 1.0},
    "unsup_ratio=-1: expected at least 0": {"unsup_ratio": -1},
    "unsup_coeff=-1.0: expected at least 0": {"unsup_coeff": -1.0},
    "max_seq_length=3: expected at least 4": {"max_seq_length": 3},
    "trainable_layers=-2: expected at least -1": {"trainable_layers": -2},
    "tsa='sine': expected one of '', 'log', 'linear', 'exp'": {"tsa": "sine"},
    "task_name='mnist': expected one of 'imdb', 'yelp-2', .*, 'csv'": {"task_name": "mnist"},
    "model_name='lstm': expected one of 'bert', 'transformer'": {"model_name": "lstm"},
    "pooling='max': expected one of 'auto', 'cls', 'mean'": {"pooling": "max"},
    "mixed_precision='float8': expected one of '', 'float16', 'bfloat16'": {"mixed_precision": "float8"},
    "seed=536870913: expected at most 536870912": {"seed": 2**29 + 1},
    "unknown augmentation 'eda-0.1': expected one of tf_idf, tf_idf_paper, unif, bt": {"aug_ops": "eda-0.1"},
    r"aug_ops='unif-0.1\+unif-0.1' names 'unif-0.1' twice": {"aug_ops": "unif-0.1+unif-0.1"},
}


@pytest.mark.parametrize("message", CONTRADICTIONS)
def test_contradictions_are_explained(message):
    with pytest.raises(ValueError, match=message):
        Config(**BERT | CONTRADICTIONS[message])


def test_the_random_transformer_needs_no_files():
    assert Config(model_name="transformer").init_checkpoint == ""


def test_without_unlabelled_examples_the_augmentation_does_not_matter():
    assert Config(**BERT, unsup_ratio=0, aug_ops="").unsup_ratio == 0


def test_the_defaults_are_the_published_recipe_for_one_gpu():
    recipe = Config(**BERT, tsa="linear")
    assert (recipe.sup_size, recipe.aug_ops, recipe.aug_copy, recipe.max_seq_length) == (20, "bt-0.9", 1, 128)
    assert (recipe.train_batch_size, recipe.unsup_ratio, recipe.learning_rate) == (8, 3, 2e-5)
    assert (recipe.train_steps, recipe.warmup_steps) == (10_000, 1000)
    assert (recipe.uda_softmax_temp, recipe.uda_confidence_thresh, recipe.unsup_coeff) == (-1, -1, 1)
    assert (recipe.weight_decay_rate, recipe.clip_norm, recipe.ema_decay) == (0.01, 1.0, 0.0)


CHANGED = {
    "feature_layer": "2,3",
    "task_name": "csv",
    "features_file": "",  # is for another task
    "model_name": "bert",
    "trainable_layers": 2,
    "init_checkpoint": "other",
    "aug_ops": "tf_idf-0.7+unif-0.1",
    "accumulation_parts": 3,
    "train_batch_size": 9,
    "model_dropout": 0.5,
    "uda_softmax_temp": 0.5,
    "ema_decay": 0.5,
    "ent_min_coeff": 0.5,
}


def changed_value(field):
    """An allowed value, which is not the default where one can be chosen alone."""
    if field.name in CHANGED:
        return CHANGED[field.name]
    if field.type is bool:
        return not field.default
    if field.metadata["choices"]:
        return field.metadata["choices"][-1]
    if field.type is str:
        return f"other {field.default}"
    return field.default / 2 if field.type is float else field.default + 1


def test_every_setting_is_a_flag_with_a_meaning():
    fields = dataclasses.fields(Config)
    changed = {field.name: changed_value(field) for field in fields}
    module = types.SimpleNamespace(define_flags=lambda: settings.define_flags(Config))
    with parsed_flags(module, *(f"--{name}={value}" for name, value in changed.items())):
        assert settings.from_flags(Config) == Config(**changed)
    unchanged = [field.name for field in fields if changed[field.name] == field.default]
    assert unchanged == ["features_file", "model_name"]
    assert all(field.metadata["help"].endswith(".") for field in fields)


def test_preprocessing_and_training_have_the_settings_of_the_records_in_common():
    """But for the augmentation, their defaults are the same: so the same flags lead to the same folders."""
    shared = {field.name: field.default for field in dataclasses.fields(DataConfig)}
    for config_class in (PreprocessConfig, Config):
        defaults = {field.name: field.default for field in dataclasses.fields(config_class)}
        assert {name: defaults[name] for name in shared} | {"aug_ops": ""} == shared | {"aug_ops": ""}
    assert PreprocessConfig(task_name="dbpedia").data_dir == "data/dbpedia"


def test_what_is_not_augmented_needs_no_augmentation():
    assert PreprocessConfig(data_type="sup", aug_ops="").aug_ops == ""
    with pytest.raises(ValueError, match="unknown augmentation ''"):
        PreprocessConfig(aug_ops="")


def test_runs_of_before_there_were_encoders_by_name_are_continued():
    stored = dataclasses.asdict(Config(**BERT)) | {"pooling": "cls"}
    assert settings.contradictions(Config(**BERT), stored) == []
    lines = settings.contradictions(Config(**BERT), stored | {"pooling": "mean"})
    assert lines == ["pooling: was 'mean', now 'auto'"]


def test_what_does_not_change_the_result_may_change_between_two_runs():
    resumable = {field.name for field in dataclasses.fields(Config) if field.metadata["resumable"]}
    assert resumable == {
        "data_dir",
        "eval_batch_size",
        "max_save",
        "log_steps",
        "eval_steps",
        "iterations",
        "verify_records",
    }
