"""utils/settings.py: one flag per field, values checked by name, and what may change between two runs."""

import dataclasses
import types

import pytest
from absl import flags

from image.config import Config as ImageConfig
from image.config import PreprocessConfig as ImagePreprocessConfig
from tests.programs import parsed_flags
from text.config import Config as TextConfig
from text.config import PreprocessConfig as TextPreprocessConfig
from utils import settings
from utils.settings import Settings, config_class, setting


@config_class()
class Config(Settings):
    train_steps: int = setting(100, "Number of updates.", minimum=1, maximum=1000)
    learning_rate: float = setting(0.5, "Peak learning rate.", minimum=0)
    use_average: bool = setting(False, "Whether to average.")
    tsa: str = setting("", "Schedule.", ("", "log", "exp"))
    log_steps: int = setting(10, "Steps between lines.", resumable=True)


MODULE = types.SimpleNamespace(define_flags=lambda: settings.define_flags(Config))
IMAGE_MODULE = types.SimpleNamespace(define_flags=lambda: settings.define_flags(ImageConfig))


# ---- flags ----------------------------------------------------------------------------------------------------------


def test_every_field_has_a_flag_with_its_default_and_meaning():
    with parsed_flags(MODULE):
        for field in dataclasses.fields(Config):
            flag = flags.FLAGS[field.name]
            assert flag.default == field.default
            assert flag.help.startswith(field.metadata["help"])
        assert flags.FLAGS["tsa"].help == "Schedule. One of: '', 'log', 'exp'."
        assert settings.from_flags(Config) == Config()


def test_flags_make_the_config_that_they_name():
    arguments = ["--train_steps=7", "--learning_rate=2", "--use_average", "--tsa=log", "--log_steps=3"]
    with parsed_flags(MODULE, *arguments):
        assert settings.from_flags(Config) == Config(7, 2.0, True, "log", 3)
    with parsed_flags(MODULE, "--nouse_average", "--tsa="):
        assert settings.from_flags(Config) == Config()


def changed_value(field):
    """An allowed value that is not the default."""
    if field.type is bool:
        return not field.default
    if field.metadata["choices"]:
        return next(choice for choice in field.metadata["choices"] if choice != field.default)
    if field.type is str:
        return f"other {field.default}"
    return field.default / 2 if field.type is float else field.default + 1


def test_every_setting_of_an_image_run_can_be_given_as_a_flag():
    fields = dataclasses.fields(ImageConfig)
    choices = {field.name: field.metadata["choices"] for field in fields}
    changed = {
        field.name: changed_value(field)
        for field in fields
        if choices[field.name] is None or len(choices[field.name]) > 1
    }
    assert set(choices) - set(changed) <= {"model_name"}
    # Not all of them can be given together.
    imagenet = {name: changed.pop(name) for name in ("image_size", "label_fraction", "unlabeled_dir")}
    imagenet |= {"task_name": "imagenet", "aug_mode": "online"}
    operations = {"ops": "Invert,Rotate"}
    del changed["ops"]
    for given in (changed, imagenet, operations):
        with parsed_flags(IMAGE_MODULE, *(f"--{name}={value}" for name, value in given.items())):
            assert settings.from_flags(ImageConfig) == ImageConfig(**given)


def test_every_setting_of_an_image_run_has_a_meaning():
    for field in dataclasses.fields(ImageConfig):
        assert field.metadata["help"].endswith("."), field.name


def test_a_flag_of_the_wrong_type_is_refused_by_name():
    with pytest.raises(flags.IllegalFlagValueError, match="flag --train_steps=many"):
        with parsed_flags(MODULE, "--train_steps=many"):
            pass


def test_a_flag_value_that_is_not_allowed_is_refused_by_the_config():
    with parsed_flags(MODULE, "--train_steps=0"), pytest.raises(ValueError, match="train_steps=0: expected at least 1"):
        settings.from_flags(Config)


# ---- allowed values -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "values, message",
    [
        ({"train_steps": "7"}, r"train_steps='7': expected a value of type int\."),
        ({"train_steps": 7.0}, r"train_steps=7\.0: expected a value of type int\."),
        ({"train_steps": True}, r"train_steps=True: expected a value of type int\."),
        ({"learning_rate": "fast"}, r"learning_rate='fast': expected a value of type float\."),
        ({"learning_rate": False}, r"learning_rate=False: expected a value of type float\."),
        ({"use_average": 1}, r"use_average=1: expected a value of type bool\."),
        ({"tsa": None}, r"tsa=None: expected a value of type str\."),
        ({"tsa": "linear"}, r"tsa='linear': expected one of '', 'log', 'exp'\."),
        ({"train_steps": 0}, r"train_steps=0: expected at least 1\."),
        ({"train_steps": 1001}, r"train_steps=1001: expected at most 1000\."),
        ({"learning_rate": -0.1}, r"learning_rate=-0\.1: expected at least 0\."),
        ({"learning_rate": float("nan")}, r"learning_rate=nan: expected at least 0\."),
    ],
)
def test_a_value_that_is_not_allowed_is_named(values, message):
    with pytest.raises(ValueError, match=message):
        Config(**values)


def test_the_bounds_themselves_and_whole_numbers_for_floats_are_allowed():
    assert Config(train_steps=1).train_steps == 1
    assert Config(train_steps=1000).train_steps == 1000
    assert Config(learning_rate=0).learning_rate == 0


@pytest.mark.parametrize(
    "values, message",
    [
        ({"ema_decay": 1.0}, r"ema_decay=1\.0: expected less than 1\."),
        ({"train_steps": 5, "warmup_steps": 5}, r"warmup_steps=5: expected fewer than train_steps=5\."),
        ({"tsa": "cosine"}, r"tsa='cosine': expected one of '', 'log', 'linear', 'exp'\."),
        ({"aug_ops": "autoaugment"}, r"aug_ops='autoaugment': expected one of 'randaugment', 'cutout', 'crop_flip'\."),
        ({"model_name": "vgg"}, r"model_name='vgg': expected one of 'wrn'"),
    ],
)
def test_settings_of_an_image_run_that_exclude_each_other_are_named(values, message):
    with pytest.raises(ValueError, match=message):
        ImageConfig(**values)


# ---- classes of settings --------------------------------------------------------------------------------------------


@config_class(train_steps=7)
class Derived(Config):
    width: int = setting(3, "Width.", minimum=1)


def test_a_derived_class_has_its_own_defaults_and_the_inherited_limits():
    assert (Derived().train_steps, Derived().learning_rate, Derived().width) == (7, 0.5, 3)
    assert Config().train_steps == 100
    with pytest.raises(ValueError, match="train_steps=0: expected at least 1"):
        Derived(train_steps=0)
    with pytest.raises(KeyError, match="depth"):
        config_class(depth=3)(type("Wrong", (Config,), {"__annotations__": {}}))


@config_class()
class Renamed(Settings):
    unsup_coeff: float = setting(1.0, "Weight.", alias="uda_coeff")


def test_a_flag_answers_to_its_other_name_too():
    module = types.SimpleNamespace(define_flags=lambda: settings.define_flags(Renamed))
    with parsed_flags(module, "--uda_coeff=2"):
        assert settings.from_flags(Renamed) == Renamed(unsup_coeff=2.0)


def test_a_run_of_before_a_setting_was_renamed_can_be_continued():
    assert settings.contradictions(Renamed(unsup_coeff=2.0), {"uda_coeff": 2.0}) == []
    assert settings.contradictions(Renamed(), {"uda_coeff": 2.0}) == ["unsup_coeff: was 2.0, now 1.0"]


def test_the_default_of_before_is_the_default_of_now():
    stored = dataclasses.asdict(ImageConfig()) | {"image_size": 224}
    assert settings.contradictions(ImageConfig(), stored) == []
    assert settings.contradictions(ImageConfig(image_size=32), stored) == ["image_size: was 224, now 32"]


def test_the_pairs_of_preprocessing_and_training_share_one_definition_of_each_setting():
    for preprocess, train in ((ImagePreprocessConfig, ImageConfig), (TextPreprocessConfig, TextConfig)):
        fields = [{field.name: field for field in dataclasses.fields(config)} for config in (preprocess, train)]
        shared = (fields[0].keys() & fields[1].keys()) - {"seed"}  # of the augmentation, and of the training
        assert len(shared) >= 10
        for name in shared:
            assert fields[0][name].default == fields[1][name].default, name
            assert fields[0][name].metadata is fields[1][name].metadata, name


# ---- continued runs -------------------------------------------------------------------------------------------------


def test_equal_settings_do_not_contradict():
    assert settings.contradictions(Config(), dataclasses.asdict(Config())) == []


def test_a_changed_setting_is_named_with_both_values():
    config = Config(train_steps=7, tsa="log")
    lines = settings.contradictions(config, dataclasses.asdict(Config()))
    assert lines == ["train_steps: was 100, now 7", "tsa: was '', now 'log'"]


def test_resumable_settings_may_change():
    assert settings.contradictions(Config(log_steps=11), dataclasses.asdict(Config())) == []


def test_a_setting_that_an_older_version_lacked_had_its_default():
    assert settings.contradictions(Config(), {"train_steps": 100}) == []
    assert settings.contradictions(Config(use_average=True), {}) == ["use_average: was False, now True"]


def test_which_settings_of_an_image_run_may_change():
    resumable = {field.name for field in dataclasses.fields(ImageConfig) if field.metadata["resumable"]}
    steps = {"log_steps", "eval_steps", "iterations"}
    assert resumable == {"data_dir", "eval_batch_size", "max_save", "verify_records"} | steps
