"""A frozen dataclass of settings, and the absl flags made from it: one flag per field.

@dataclasses.dataclass(frozen=True)
class Config:
    train_steps: int = setting(500_000, "number of updates")
"""

import dataclasses

from absl import flags

# The flags belong to the module that calls define_flags, so that its --help shows them.
flags.disclaim_key_flags()

DEFINE = {bool: flags.DEFINE_bool, int: flags.DEFINE_integer, float: flags.DEFINE_float, str: flags.DEFINE_string}


def setting(default, help_text, choices=None, minimum=None, maximum=None, resumable=False):
    """A dataclass field with its meaning and its allowed values.

    Args:
      resumable: True if the setting may change between two runs in one model_dir, since it does not affect the result.
    """
    metadata = {"help": help_text, "choices": choices, "minimum": minimum, "maximum": maximum, "resumable": resumable}
    return dataclasses.field(default=default, metadata=metadata)


def check(config):
    """Raises ValueError for the first field whose value is not allowed. For a dataclass's __post_init__."""
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


def check_objective(config):
    """Raises ValueError for settings that images and text share and that only make sense together."""
    if config.uda_softmax_temp <= 0 and config.uda_softmax_temp != -1:
        raise ValueError(f"uda_softmax_temp={config.uda_softmax_temp}: expected more than 0, or -1 for no sharpening.")
    if not config.ema_decay < 1:
        raise ValueError(f"ema_decay={config.ema_decay}: expected less than 1.")
    if config.warmup_steps >= config.train_steps:
        raise ValueError(f"warmup_steps={config.warmup_steps}: expected fewer than train_steps={config.train_steps}.")


def define_flags(config_class):
    """Defines one absl flag per field, with the field's default."""
    for field in dataclasses.fields(config_class):
        choices = field.metadata["choices"]
        help_text = field.metadata["help"] + (f" One of: {', '.join(repr(c) for c in choices)}." if choices else "")
        DEFINE[field.type](field.name, field.default, help_text)


def from_flags(config_class, flag_values=flags.FLAGS):
    """Builds the config from parsed flags."""
    return config_class(**{field.name: flag_values[field.name].value for field in dataclasses.fields(config_class)})


def contradictions(config, stored):
    """Fields of `stored` (a dict, as read from config.json) that would change the result of `config`'s run.

    Returns:
      A list of lines "name: stored value, now value".
    """
    lines = []
    for field in dataclasses.fields(config):
        now, before = getattr(config, field.name), stored.get(field.name, field.default)
        if now != before and not field.metadata["resumable"]:
            lines.append(f"{field.name}: was {before!r}, now {now!r}")
    return lines
