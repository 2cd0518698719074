"""Frozen dataclasses of settings, and the absl flags made from them: one flag per field.

@config_class(train_steps=10_000)                  # another default for an inherited setting
class Config(DataConfig, ObjectiveConfig):
    model_name: str = setting("bert", "Network.", choices=("bert", "transformer"))
"""

import dataclasses
import os
import types

from absl import flags

from utils import files
from utils.objective import TSA_SCHEDULES

# The flags belong to the module that calls define_flags, so that its --help shows them.
flags.disclaim_key_flags()

DEFINE = {bool: flags.DEFINE_bool, int: flags.DEFINE_integer, float: flags.DEFINE_float, str: flags.DEFINE_string}


# ---- classes of settings --------------------------------------------------------------------------------------------


def setting(default, help_text, choices=None, minimum=None, maximum=None, resumable=False, alias="", synonym=None):
    """A dataclass field with its meaning and its allowed values.

    Args:
      resumable: True if the setting may change between two runs in one model_dir, since it does not affect the result.
      alias: another name of its flag, which users know from elsewhere, or of before.
      synonym: a value that, in runs of before, meant what the default means.
    """
    metadata = {"help": help_text, "choices": choices, "minimum": minimum, "maximum": maximum}
    metadata |= {"resumable": resumable, "alias": alias, "synonym": synonym}
    return dataclasses.field(default=default, metadata=metadata)


def config_class(**defaults):
    """A decorator that makes a frozen dataclass; `defaults` are for inherited settings, which stay as they are else."""

    def decorate(cls):
        inherited = {field.name: field for base in cls.__bases__ for field in dataclasses.fields(base)}
        for name, default in defaults.items():
            cls.__annotations__[name] = inherited[name].type
            setattr(cls, name, dataclasses.field(default=default, metadata=inherited[name].metadata))
        return dataclasses.dataclass(frozen=True)(cls)

    return decorate


@dataclasses.dataclass(frozen=True)
class Settings:
    """What every class of settings is: its values are checked when it is made."""

    # Settings that belong together, by name: dicts of other defaults, for the flag --recipe.
    recipes = types.MappingProxyType({})

    def __post_init__(self):
        check(self)


@config_class()
class RunConfig(Settings):
    """The course of any training; the defaults are for small runs."""

    train_batch_size: int = setting(64, "Labelled examples (of pre-training: sequences) per step, in all.", minimum=1)
    train_steps: int = setting(1000, "Number of updates.", minimum=1)
    learning_rate: float = setting(0.03, "Peak learning rate.", minimum=0)
    warmup_steps: int = setting(0, "Steps of linear warm-up.", minimum=0)
    # The input pipeline makes several 32-bit seeds out of this one.
    seed: int = setting(0, "Seed of weights, data order, crops, masks and dropout.", minimum=0, maximum=2**29)
    jit_compile: bool = setting(False, "Compile the step with XLA (one device; a TPU always does).")
    shuffle_buffer: int = setting(100_000, "Records held in memory for shuffling.", minimum=1)
    eval_batch_size: int = setting(32, "Examples per evaluation step.", minimum=1, resumable=True)
    save_steps: int = setting(1000, "Steps between checkpoints, and evaluations on the development split.", minimum=1)
    max_save: int = setting(5, "Number of checkpoints kept, beside the best.", minimum=1, resumable=True)
    log_steps: int = setting(100, "Steps between lines of metrics.", minimum=1, resumable=True)
    iterations: int = setting(
        10, "Most steps in one call of the device; lowered to divide the other step counts.", minimum=1, resumable=True
    )

    def __post_init__(self):
        super().__post_init__()
        if self.warmup_steps >= self.train_steps:
            raise ValueError(f"warmup_steps={self.warmup_steps}: expected fewer than train_steps={self.train_steps}.")

    @property
    def intervals(self):
        """The training stops at multiples of these numbers of steps: for a log line, a checkpoint, the end."""
        return [self.log_steps, self.save_steps, self.train_steps]

    @property
    def examples_per_step(self):
        return self.train_batch_size


@config_class()
class ReadingConfig(Settings):
    """How records are read."""

    verify_records: bool = setting(
        False, "Check all records; otherwise labelled ones always, others once on each machine.", resumable=True
    )


@config_class()
class ObjectiveConfig(RunConfig, ReadingConfig):
    """A run with the UDA objective (utils/objective.py)."""

    unsup_ratio: int = setting(7, "Unlabelled examples per labelled one in a batch; 0 trains without them.", minimum=0)
    tsa: str = setting("", "Training signal annealing: schedule of the threshold, '' for none.", ("", *TSA_SCHEDULES))
    uda_softmax_temp: float = setting(-1.0, "Temperature τ that sharpens the target; -1 for none.")
    uda_confidence_thresh: float = setting(-1.0, "Confidence β an unlabelled example must exceed; -1 for none.")
    unsup_coeff: float = setting(1.0, "Weight λ of the consistency loss.", minimum=0, alias="uda_coeff")
    ent_min_coeff: float = setting(0.0, "Weight of the entropy of predictions on unlabelled examples.", minimum=0)
    ema_decay: float = setting(
        0.0, "Decay of the averaged weights used in evaluation; 0 for none. Runs of few steps need 0.99.", minimum=0
    )
    eval_steps: int = setting(
        0, "Steps between evaluations on the test set, for the curve only; 0 for none.", minimum=0, resumable=True
    )

    def __post_init__(self):
        super().__post_init__()
        if self.uda_softmax_temp <= 0 and self.uda_softmax_temp != -1:
            raise ValueError(
                f"uda_softmax_temp={self.uda_softmax_temp}: expected more than 0, or -1 for no sharpening."
            )
        if not self.ema_decay < 1:
            raise ValueError(f"ema_decay={self.ema_decay}: expected less than 1.")

    @property
    def intervals(self):
        return super().intervals + [self.eval_steps] * (self.eval_steps > 0)

    @property
    def examples_per_step(self):
        return self.train_batch_size * (1 + 2 * self.unsup_ratio)


@config_class()
class RecordsConfig(Settings):
    """What preprocessing writes and the trainer reads."""

    task_name: str = setting("", "Data set.")
    data_dir: str = setting("", "Folder of the records; default data/<task_name>.", resumable=True, alias="output_dir")
    sup_size: int = setting(4000, "Number of labelled examples that are trained on.", minimum=1)
    label_seed: int = setting(-1, "Seed of the draw of labelled examples; -1 is the original release's.", minimum=-1)
    dev_size: int = setting(
        0, "Further examples whose labels are used, too: to choose the best checkpoint by them.", minimum=0
    )
    aug_copy: int = setting(10, "Number of augmented copies of each example; more can be added later.", minimum=1)

    def __post_init__(self):
        super().__post_init__()
        if not self.data_dir:
            object.__setattr__(self, "data_dir", f"data/{self.task_name}")


@config_class()
class WorkConfig(Settings):
    """How a program that writes records shares its work; the records do not depend on it."""

    data_type: str = setting("all", "sup: labelled and test sets; unsup: unlabelled sets.", ("all", "sup", "unsup"))
    runner: str = setting("local", "local: processes on this machine; beam: Apache Beam.", ("local", "beam"))
    beam_args: str = setting("", "beam: its own flags, such as --runner=DaskRunner, in quotes.")
    workers: int = setting(os.cpu_count() or 1, "local: number of processes.", minimum=1)
    replicas: int = setting(1, "Number of machines that share the work.", minimum=1)
    worker_id: int = setting(0, "Which of the replicas this is, from 0.", minimum=0)

    def __post_init__(self):
        super().__post_init__()
        if self.worker_id >= self.replicas:
            raise ValueError(f"worker_id={self.worker_id}: expected less than replicas={self.replicas}.")


@config_class()
class AugmentationConfig(WorkConfig):
    """How preprocessing writes its records, and how it augments."""

    seed: int = setting(0, "Seed of the augmentation.", minimum=0)


# ---- values ---------------------------------------------------------------------------------------------------------


def check(config):
    """Raises ValueError for the first field whose value is not allowed."""
    for field in dataclasses.fields(config):
        value, allowed = getattr(config, field.name), field.metadata
        if isinstance(value, bool) != (field.type is bool) or not isinstance(
            value, (int, float) if field.type is float else field.type
        ):
            raise ValueError(f"{field.name}={value!r}: expected a value of type {field.type.__name__}.")
        if allowed["choices"] is not None and value not in allowed["choices"]:
            raise ValueError(f"{field.name}={value!r}: expected one of {', '.join(map(repr, allowed['choices']))}.")
        if allowed["minimum"] is not None and not value >= allowed["minimum"]:
            raise ValueError(f"{field.name}={value}: expected at least {allowed['minimum']}.")
        if allowed["maximum"] is not None and not value <= allowed["maximum"]:
            raise ValueError(f"{field.name}={value}: expected at most {allowed['maximum']}.")


def contradictions(config, stored):
    """Fields of `stored` (a dict, as read from config.json) that would change the result of `config`'s run.

    Returns:
      A list of lines "name: stored value, now value".
    """
    lines = []
    for field in dataclasses.fields(config):
        alias, synonym, default = field.metadata["alias"], field.metadata["synonym"], field.default
        now, before = getattr(config, field.name), stored.get(alias, stored.get(field.name, default))
        same = now == before or (now, before) in ((default, synonym), (synonym, default))
        if not same and not field.metadata["resumable"]:
            lines.append(f"{field.name}: was {files.shorten(before)}, now {now!r}")
    return lines


def from_stored(config_class, stored):
    """The config that a dict describes, as read from config.json; what is missing or unknown there is as by default."""
    names = [field.name for field in dataclasses.fields(config_class)]
    return config_class(**{name: stored[name] for name in names if name in stored})


# ---- flags ----------------------------------------------------------------------------------------------------------


def define_flags(config_class):
    """Defines one absl flag per field, with the field's default, and --recipe where the class has recipes."""
    if config_class.recipes:
        help_text = "Settings that belong together; flags that are given count more."
        flags.DEFINE_enum("recipe", next(iter(config_class.recipes)), list(config_class.recipes), help_text)
    for field in dataclasses.fields(config_class):
        choices, alias = field.metadata["choices"], field.metadata["alias"]
        help_text = field.metadata["help"] + (f" One of: {', '.join(repr(c) for c in choices)}." if choices else "")
        DEFINE[field.type](field.name, field.default, help_text)
        if alias:
            flags.DEFINE_alias(alias, field.name)


def from_flags(config_class, flag_values=flags.FLAGS, fit=None):
    """Builds the config from parsed flags; those that are not given are as the recipe says, where there is one.

    Args:
      fit: a function from all values and the given ones, both by name, to the values to use.
    """
    recipe = config_class.recipes[flag_values["recipe"].value] if config_class.recipes else {}
    defaults = {field.name: flag_values[field.name].value for field in dataclasses.fields(config_class)}
    recipe = {name: value for name, value in recipe.items() if name in defaults}  # which may be of several programs
    given = given_flags(config_class, flag_values)
    values = defaults | recipe | given
    return config_class(**fit(values, given) if fit else values)


def given_flags(config_class, flag_values=flags.FLAGS):
    """Names and values of the settings whose flags, or their aliases, were given."""
    names = {field.name: {field.name, field.metadata["alias"]} - {""} for field in dataclasses.fields(config_class)}
    is_given = {name: any(flag_values[other].present for other in both) for name, both in names.items()}
    return {name: flag_values[name].value for name in names if is_given[name]}


def flag_values(*names):
    """The values of these flags, as a dict."""
    return {name: flags.FLAGS[name].value for name in names}
