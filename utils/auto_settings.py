"""Settings from the data and a budget: what --settings=auto chooses, and why. The evidence is in docs/settings.md.

    choices = choose_for_images(Facts(num_labels=20, num_classes=10, num_unlabeled=1297), given={"unsup_ratio": 2})
    config = apply(config, choices)

What is given counts more than what is chosen, and what follows from it is chosen accordingly.
"""

import collections
import contextlib
import dataclasses
import io
import tempfile
from typing import NamedTuple

import tensorflow as tf
from absl import flags

from utils import cluster, run_dir

# The flags belong to the programs that call define_flags, so that their --help shows them.
flags.disclaim_key_flags()

Choice = collections.namedtuple("Choice", "name value why")
Budget = collections.namedtuple("Budget", "train_steps why")

MEASURED_STEPS = 10  # after as many that are not measured, since they compile the step
FOR_TRAINING = 0.9  # of the minutes; the rest is for evaluations, checkpoints and the exported model


class Facts(NamedTuple):
    num_labels: int
    num_classes: int
    num_unlabeled: int
    has_accelerator: bool = False


class Chooser:
    """Collects choices; those that are given replace their rules."""

    def __init__(self, given):
        self.given, self.choices = given, []

    def choose(self, name, value, why):
        if name in self.given:
            value, why = self.given[name], "given"
        self.choices.append(Choice(name, value, why))
        return value


# ---- images ---------------------------------------------------------------------------------------------------------


def choose_for_images(facts, given, budget=None):
    """Args:
      given: dict from names of settings to values that are not to be chosen.
      budget: Budget, or None for as many steps as the data suggest.

    Returns:
      A list of Choice.
    """
    chooser = Chooser(given)
    if not facts.has_accelerator and given.get("model_name", "wrn") == "wrn":
        for name, value in {"wrn_depth": 10, "wrn_size": 16, "wrn_stem_stride": 2}.items():
            chooser.choose(name, value, "a small network: there is neither GPU nor TPU")
    batch_size, unsup_ratio = choose_batches(chooser, facts, *((64, 7) if facts.has_accelerator else (16, 4)))
    many = facts.num_classes > 100
    why = f"{facts.num_classes} classes: as the paper on {'ImageNet' if many else 'CIFAR-10 and SVHN'}"
    chooser.choose("uda_confidence_thresh", 0.5 if many else 0.8, why)
    chooser.choose("unsup_coeff", 20.0 if many else 1.0, why)
    chooser.choose("uda_softmax_temp", 0.4, "the paper's, for few labels and for many")
    chooser.choose("tsa", "", "the paper has none for images")
    choose_course(chooser, budget or suggest_image_steps(facts, batch_size * max(unsup_ratio, 1)), has_average=True)
    return chooser.choices


def suggest_image_steps(facts, examples_per_step):
    if facts.has_accelerator:
        return Budget(20_000, "an accelerator; more steps are better, 500,000 are the paper's")
    passes = round_steps(40 * max(facts.num_unlabeled, facts.num_labels) / examples_per_step)
    return Budget(min(max(passes, 400), 20_000), "40 passes over the unlabelled examples, from 400 to 20,000 steps")


def choose_batches(chooser, facts, largest, unsup_ratio):
    """Batches of a power of two that the labels can fill, and no more unlabelled examples than there are."""
    power = 1 << (max(facts.num_labels, 8).bit_length() - 1)
    why = f"{facts.num_labels} labels" if power < largest else f"at most {largest}"
    batch_size = chooser.choose("train_batch_size", min(power, largest), f"{why}; a step needs no label twice")
    fitting = min(unsup_ratio, max(facts.num_unlabeled // batch_size, 1)) if facts.num_unlabeled else 0
    why = f"{facts.num_unlabeled:,} unlabelled examples; at most {unsup_ratio}"
    return batch_size, chooser.choose("unsup_ratio", fitting, why)


# ---- texts and features ---------------------------------------------------------------------------------------------


def choose_for_texts(facts, given, recipe, budget=None):
    """Like choose_for_images, for a recipe of texts or of features.

    Args:
      recipe: dict of all settings, as they are without any choice.
    """
    chooser = Chooser(given)
    chooser.choose("train_batch_size", recipe["train_batch_size"], "the recipe's")
    batch_size = given.get("train_batch_size", recipe["train_batch_size"])
    fitting = min(recipe["unsup_ratio"], max(facts.num_unlabeled // batch_size, 1)) if facts.num_unlabeled else 0
    chooser.choose("unsup_ratio", fitting, f"{facts.num_unlabeled:,} unlabelled examples; at most the recipe's")
    for name in ("uda_confidence_thresh", "unsup_coeff", "uda_softmax_temp"):
        chooser.choose(name, recipe[name], "the recipe's")
    is_frozen = recipe.get("trainable_layers", 0) == 0 or recipe.get("task_name") == "features"
    few = facts.num_labels < 1000
    tsa = "" if is_frozen or not recipe["tsa"] else "linear" if few else "log"
    chooser.choose("tsa", tsa, "the recipe has none" if not tsa else f"{facts.num_labels} labels: from 1,000 on log")
    suggested = Budget(recipe["train_steps"], "the recipe's")
    if is_frozen and facts.num_classes > 4:
        suggested = Budget(1500, f"{facts.num_classes} classes: more than four gain from more steps than 600")
    if is_frozen and budget:  # a linear classifier has learnt all it can by then
        budget = min(budget, suggested, key=lambda one: one.train_steps)
    choose_course(chooser, budget or suggested, has_average=recipe["ema_decay"] > 0, has_warmup=recipe["warmup_steps"])
    return chooser.choices


def fit_warmup(values, given):
    """`values` with no longer a warm-up than the given steps have room for; how long it is, is chosen afterwards."""
    if "train_steps" not in given or "warmup_steps" in given:
        return values
    return values | {"warmup_steps": min(values.get("warmup_steps", 0), values["train_steps"] - 1)}


# ---- what follows from the number of steps --------------------------------------------------------------------------


def choose_course(chooser, budget, has_average, has_warmup=False):
    steps = chooser.choose("train_steps", *budget)
    if has_average:
        chooser.choose("ema_decay", suggest_decay(steps), "an average over a tenth of the steps, at most 10,000")
    if has_warmup:
        chooser.choose("warmup_steps", steps // 10, "a tenth of the steps")
    chooser.choose("save_steps", part_of(steps, 4 if steps < 10_000 else 10), "a part of the steps")
    chooser.choose("log_steps", part_of(steps, 20 if steps < 10_000 else 100), "a part of the steps")


def suggest_decay(steps):
    """A decay whose average goes over a tenth of the steps: 0.99 for 1,000, 0.999 for 10,000, at most 0.9999."""
    return round(min(max(1 - 10 / steps, 0.0), 0.9999), 4)


def round_steps(number):
    """Two digits and zeros, which have many divisors."""
    scale = 10 ** max(len(str(int(number))) - 2, 0)
    return max(int(number) // scale * scale, 1)


def part_of(steps, number):
    """About steps / number; if possible a divisor, so that several steps are made in one call of the device."""
    largest = max(steps // number, 1)
    divisor = next(part for part in range(largest, 0, -1) if steps % part == 0)
    return divisor if divisor > largest / 4 else largest


# ---- a budget of minutes --------------------------------------------------------------------------------------------


def measure_seconds(train_and_evaluate, config, strategy):
    """Seconds per step of a run: makes some of its steps in a folder that is deleted afterwards."""
    if len(cluster.current_task().addresses) > 1:
        raise ValueError("minutes: several workers would not agree on a number of steps; give --train_steps instead.")
    course = {"train_steps": 2 * MEASURED_STEPS, "save_steps": 2 * MEASURED_STEPS, "log_steps": MEASURED_STEPS}
    trial = dataclasses.replace(config, **course, warmup_steps=0, eval_steps=0)
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stderr(io.StringIO()):
        train_and_evaluate(trial, folder, strategy, do_eval=False)
        speed = run_dir.read_metrics(folder)[-1]["examples_per_second"]
    return trial.examples_per_step / speed


def steps_in(minutes, seconds_per_step):
    steps = max(round_steps(FOR_TRAINING * 60 * minutes / seconds_per_step), 20)
    return Budget(steps, f"{minutes:g} minutes, less a tenth, at {seconds_per_step:.2g} s a step")


# ---- a run ----------------------------------------------------------------------------------------------------------


def resolve(config, given, choose, model_dir, minutes=0.0, measure=None):
    """The configuration of a run with chosen settings; a run that is continued takes those that it was begun with.

    Args:
      given: names and values of the settings that the user gave.
      choose: a function (given, budget=None) → list of Choice.
      measure: a function from a configuration to its seconds per step; for `minutes`.
    """
    if minutes < 0 or (minutes and "train_steps" in given):
        expected = "at least 0" if minutes < 0 else "no --train_steps beside them"
        raise ValueError(f"minutes={minutes:g}: expected {expected}.")
    choices, stored = choose(given), run_dir.read_begun(model_dir)
    if stored:
        begun = {choice.name: stored.get(choice.name, choice.value) for choice in choices}
        return dataclasses.replace(config, **begun | given)
    if minutes:
        choices = choose(given, budget=steps_in(minutes, measure(apply(config, choices))))
    print(format_choices(choices), flush=True)
    return apply(config, choices)


def apply(config, choices):
    return dataclasses.replace(config, **{choice.name: choice.value for choice in choices})


def format_choices(choices):
    """A Markdown table."""
    cells = [("setting", "chosen", "why"), *((name, format_value(value), why) for name, value, why in choices)]
    widths = [max(len(line[column]) for line in cells) for column in range(3)]
    lines = ["| " + " | ".join(cell.ljust(width) for cell, width in zip(line, widths)) + " |" for line in cells]
    return "\n".join([lines[0], "|" + "|".join("-" * (width + 2) for width in widths) + "|", *lines[1:]])


def format_value(value):
    return f"{value:g}" if isinstance(value, float) else repr(value) if isinstance(value, str) else str(value)


def define_flags():
    flags.DEFINE_enum("settings", "", ("", "auto"), "auto: choose batch sizes, thresholds and steps from the data.")
    flags.DEFINE_float("minutes", 0.0, "For --settings=auto: train about so long; 0: as long as the data suggest.")


def check_mode(mode, minutes):
    if mode not in ("", "auto"):
        raise ValueError(f"settings={mode!r}: expected 'auto', or '' for none.")
    if minutes and not mode:
        raise ValueError(f"minutes={minutes:g}: expected settings=auto, which chooses the steps.")


def has_accelerator():
    return bool(tf.config.list_physical_devices("GPU") + tf.config.list_physical_devices("TPU"))
