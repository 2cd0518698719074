"""Writes the records that image.main trains on: labelled subset, test set, augmented copies of all training images.

    python -m image.preprocess --task_name=cifar10 --raw_data_dir=data/raw/cifar10 --data_dir=data/cifar10 \
        --sup_size=4000 --aug_copy=100 --workers=8

    python -m image.preprocess --task_name=folder --train_dir=photos/train --unlabeled_dir=photos/more \
        --test_dir=photos/test --data_dir=data/photos --sup_size=100 --use_equal_split   # image/datasets/folder.py

The records depend on the flags alone, not on the number of workers. A stopped run is taken up by the same command.
"""

import functools
import os
from typing import NamedTuple

import numpy as np

from augmentation.randaugment import AUGMENTATIONS, choose_options
from image import record_format
from image.config import PreprocessConfig
from image.datasets import open_source
from image.datasets.source import LABEL_ORDERS
from utils import cli, labelled_subsets, preprocessing, settings, work
from utils.preprocessing import SetPlan

PIXELS_AT_ONCE = 4096 * 32 * 32  # that are in memory: a shard of CIFAR-10, less than one of larger images
# These begin the seeds of what is drawn: no two draws share a stream of numbers.
ORDER, AUGMENTATION, SUBSET, DEV = 1, 2, 3, 4


class Content(NamedTuple):
    """What the records of a set are made of: rows of one split of Source.read, as they are or augmented."""

    split: str
    labelled: bool
    augmentation: str = ""  # "" for plain records
    options: dict = {}  # of the augmentation
    random_key: tuple = ()  # begins the seed of each shard


# ---- what is to be written ------------------------------------------------------------------------------------------


def plan_sets(config, source, seed, data_type="all"):
    """Plans all sets of a data set.

    Args:
      config: image.config.DataConfig.
      source: image.datasets.Source; sets of splits that it does not have are left out.
      seed: of the augmentation.
      data_type: "sup": labelled and test sets; "unsup": unlabelled sets; "all": both.

    Returns:
      A list of SetPlan; their examples are positions in the arrays of their split.
    """
    arrays, plans = load(source.read), []
    if data_type != "unsup" and "train" in arrays:
        plans += plan_labelled(config, source.facts, arrays["train"][1], seed)
    if data_type != "unsup" and "test" in arrays and len(arrays["test"][0]):
        content = Content("test", labelled=True)
        plans.append(_plan_set(os.path.join(config.data_dir, "test"), np.arange(len(arrays["test"][0])), content, {}))
    if data_type != "sup" and "unlabeled" in arrays:
        plans += plan_unlabeled(config, len(arrays["unlabeled"][0]), seed)
    return [_add_checksum(plan, source.checksums) for plan in plans]


def _add_checksum(plan, checksums):
    checksum = {"data_sha256": checksums[plan.content.split]} if checksums else {}
    return plan._replace(settings=plan.settings | checksum)


def plan_labelled(config, facts, labels, seed):
    """The labelled draw: training and development examples, and augmented copies of the training examples."""
    labelled, dev = draw_labelled(config, facts, labels)
    print_missing_classes(facts, labels[labelled])
    draw = {name: getattr(config, name) for name in ("sup_size", "use_equal_split", "label_seed", "dev_size")}
    sup_dir, content = record_format.sup_dir(config), Content("train", labelled=True)
    for part, indices in {"train": labelled, "dev": dev}.items():
        if len(indices):
            # The chosen indices stand in info.json beside the records.
            plan_settings = draw | {"indices": indices.tolist()}
            yield SetPlan(os.path.join(sup_dir, part), indices, len(indices), plan_settings, content)
    if config.aug_mode == "offline" and not AUGMENTATIONS[config.sup_aug_ops].is_identity:
        content = content._replace(augmentation=config.sup_aug_ops)
        yield from _plan_copies(config, sup_dir, labelled, content, seed, draw)


def draw_labelled(config, facts, labels):
    """Positions of the labelled examples, and of the development split."""
    order = LABEL_ORDERS[facts.label_order](len(labels))
    if config.label_seed >= 0:
        order = np.random.default_rng(config.label_seed).permutation(len(labels))
    sizes, dev_seed = (config.sup_size, config.dev_size), [DEV, config.label_seed + 1]
    return labelled_subsets.draw(labels, order, facts.class_names, *sizes, dev_seed, config.use_equal_split)


def print_missing_classes(facts, labels):
    """What is never seen with a label cannot be learnt."""
    missing = [name for number, name in enumerate(facts.class_names) if number not in labels]
    if missing:
        print(f"note: no labelled example is of {', '.join(map(str, missing))}; use_equal_split draws from each class.")


def plan_unlabeled(config, num_examples, seed):
    """Copies of all training images, the labelled ones included, as in the original release, or unsup_size of them.

    Without copies on disk: the same images once and as they are, which the trainer augments itself.
    """
    indices, subset = choose_unlabeled(num_examples, config.unsup_size)
    if config.aug_mode == "online":
        content = Content("unlabeled", labelled=False)
        yield _plan_set(record_format.originals_dir(config), indices, content, subset)
    else:
        content = Content("unlabeled", labelled=False, augmentation=config.aug_ops)
        yield from _plan_copies(config, record_format.unsup_dir(config), indices, content, seed, subset)


def choose_unlabeled(num_examples, unsup_size):
    """Which images are unlabelled examples, and what the settings say about it.

    A part of them is drawn at random, always in the same way: a smaller part lies in a larger one.
    """
    if not unsup_size:
        return np.arange(num_examples), {}
    if unsup_size > num_examples:
        raise ValueError(f"unsup_size={unsup_size} is out of range: use 1 to {num_examples}, or 0 for all images.")
    order = np.random.default_rng([SUBSET, 1]).permutation(num_examples)
    return np.sort(order[:unsup_size]), {"unsup_size": unsup_size, "num_examples": num_examples}


def _plan_copies(config, parent_dir, indices, content, seed, draw):
    ops = config.chosen_ops
    options = choose_options(content.augmentation, ops)
    for copy in range(config.aug_copy):
        # A fresh order for every copy, so that copies read side by side do not show the same image at once.
        order = np.random.default_rng([ORDER, content.labelled, seed, copy]).permutation(indices)
        made_by = {"augmentation": content.augmentation, "copy": copy, "seed": seed}
        made_by |= {name: list(value) for name, value in options.items()}
        set_dir = record_format.copy_dir(parent_dir, content.augmentation, copy, ops)
        key = (AUGMENTATION, content.labelled, seed, copy)
        yield _plan_set(set_dir, order, content._replace(options=options, random_key=key), draw | made_by)


def _plan_set(set_dir, indices, content, plan_settings):
    return SetPlan(set_dir, indices, len(indices), plan_settings | {"num_planned": len(indices)}, content)


# ---- writing --------------------------------------------------------------------------------------------------------


def write_records(config, source, seed, data_type="all", workers=1, runner="local", beam_args="", **share):
    """Writes the sets of plan_sets, or completes them.

    Args:
      workers, runner, beam_args: see utils.settings.WorkConfig.
      share: replicas and worker_id of utils.preprocessing.write_sets.
    """
    facts = source.facts
    common = {"task_name": facts.name, "image_size": facts.image_size, "num_classes": facts.num_classes}
    encode = functools.partial(open_shard, source.read)
    try:
        plans = plan_sets(config, source, seed, data_type)
        record_format.write_facts(config.data_dir, facts)
        with work.start_workers(config.data_dir, workers, runner, beam_args) as ordered_map:
            preprocessing.write_sets(plans, common, encode, read_indices, ordered_map, **share)
    finally:
        load.cache_clear()  # the arrays may be large


@functools.lru_cache(maxsize=1)
def load(read):
    """The arrays of a Source, which each process reads once."""
    return read()


def read_indices(indices, shards):
    """Yields the positions of the images in each of these shards."""
    size = preprocessing.SHARD_SIZE
    return (indices[shard * size : (shard + 1) * size] for shard in shards)


def open_shard(read, shard, indices, counts):
    """Returns a function from a Content to the serialised examples of a shard."""
    return functools.partial(encode_shard, read, shard, indices)


def encode_shard(read, shard, indices, content):
    images, labels = load(read)[content.split]
    block_size = max(1, PIXELS_AT_ONCE // (images.shape[1] * images.shape[2]))
    rng = np.random.default_rng((*content.random_key, shard)) if content.augmentation else None
    for start in range(0, len(indices), block_size):
        block, augmented = indices[start : start + block_size], None
        originals = images[block]
        if content.augmentation:
            augmented = AUGMENTATIONS[content.augmentation].function(originals, rng, **content.options)
        yield from record_format.encode(originals, block, labels[block] if content.labelled else None, augmented)


# ---- from the command line ------------------------------------------------------------------------------------------


def define_flags():
    settings.define_flags(PreprocessConfig)


def main():
    config = settings.from_flags(PreprocessConfig)
    work.check_runner(config.runner, config.beam_args)
    share = {name: getattr(config, name) for name in ("workers", "runner", "beam_args", "replicas", "worker_id")}
    write_records(config, open_source(config), config.seed, config.data_type, **share)
    print(f"records of {config.task_name} are in {config.data_dir}")


if __name__ == "__main__":
    cli.run(main, define_flags)
