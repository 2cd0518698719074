"""Writes the records that image.main trains on: labelled subset, test set, augmented copies of all training images.

    python -m image.preprocess --task_name=cifar10 --raw_data_dir=data/raw/cifar10 --output_dir=data/cifar10 \
        --sup_size=4000 --aug_copy=100 --workers=8

    python -m image.preprocess --task_name=folder --train_dir=photos/train --unlabeled_dir=photos/more \
        --test_dir=photos/test --output_dir=data/photos --sup_size=100 --use_equal_split     # image/own_images.py

The records depend on the flags alone, not on the number of workers. A stopped run is taken up by the same command.
"""

import collections
import multiprocessing
import os

import numpy as np
from absl import app, flags
from tqdm import tqdm

from augmentation.randaugment import AUGMENTATIONS, OP_NAMES, choose_ops
from image import datasets, own_images, record_format
from utils import records

FLAGS = flags.FLAGS
SHARD_SIZE = 4096
BLOCK_PIXELS = SHARD_SIZE * 32 * 32  # that are in memory at once: a shard of CIFAR-10, less than one of larger images
ORDER, AUGMENTATION, SUBSET = 1, 2, 3  # begin the seeds of what is drawn: no two draws share a stream of numbers

# A set of records to write: rows `indices` of arrays[split], in that order. `augmentation` is "" for plain records, and
# `options` are its arguments.
SetPlan = collections.namedtuple("SetPlan", "set_dir split indices labelled augmentation options random_key settings")
# One shard of it: the unit of work, and of what a kill can lose.
Job = collections.namedtuple("Job", "set_dir shard num_shards split indices labelled augmentation options random_key")


# ---- what is to be written ------------------------------------------------------------------------------------------


def plan_labelled(output_dir, facts, labels, draw, augmentation, num_copies, seed, ops=OP_NAMES):
    """The labelled draw: training and development examples, and augmented copies of the training examples.

    Args:
      draw: dict with sup_size, use_equal_split, label_seed and dev_size.
    """
    chosen = datasets.choose_labelled(
        labels,
        draw["sup_size"],
        facts.num_classes,
        facts.label_order,
        draw["use_equal_split"],
        draw["label_seed"] if draw["label_seed"] >= 0 else None,
    )
    train, dev = datasets.split_dev(chosen, labels, facts.num_classes, draw["dev_size"], draw["use_equal_split"])
    sup_dir = record_format.sup_dir(output_dir, **draw)
    parts = {"train": train} | ({"dev": dev} if len(dev) else {})
    for part, indices in parts.items():
        # The chosen indices stand in info.json beside the records.
        settings = {"split": "train", **draw, "indices": indices.tolist()}
        yield SetPlan(os.path.join(sup_dir, part), "train", indices, True, "", {}, (), settings)
    yield from _plan_copies(sup_dir, "train", train, True, augmentation, num_copies, seed, ops, draw)


def print_missing_classes(facts, labels):
    """What is never seen with a label cannot be learnt."""
    missing = [name for number, name in enumerate(facts.class_names) if number not in labels]
    if missing:
        print(f"note: no labelled example is of {', '.join(map(str, missing))}; --use_equal_split draws from each.")


def plan_test(output_dir, num_examples):
    settings = {"split": "test", "num_planned": num_examples}
    yield SetPlan(os.path.join(output_dir, "test"), "test", np.arange(num_examples), True, "", {}, (), settings)


def plan_unlabelled(output_dir, num_examples, augmentation, num_copies, seed, ops=OP_NAMES, unsup_size=0):
    """Copies of all training images, the labelled ones included, as in the original release, or unsup_size of them."""
    indices, subset = choose_unlabelled(num_examples, unsup_size)
    unsup_dir = record_format.unsup_dir(output_dir, unsup_size)
    yield from _plan_copies(unsup_dir, "unlabelled", indices, False, augmentation, num_copies, seed, ops, subset)


def plan_originals(output_dir, num_examples, unsup_size=0):
    """The same training images once and as they are: what the trainer augments itself."""
    indices, subset = choose_unlabelled(num_examples, unsup_size)
    settings = {"split": "unlabelled", **subset, "num_planned": len(indices)}
    set_dir = record_format.originals_dir(output_dir, unsup_size)
    yield SetPlan(set_dir, "unlabelled", indices, False, "", {}, (), settings)


def choose_unlabelled(num_examples, unsup_size):
    """Which images are unlabelled examples, and what the settings say about it.

    A part of them is drawn at random, always in the same way: a smaller part lies in a larger one.
    """
    if not unsup_size:
        return np.arange(num_examples), {}
    if unsup_size > num_examples:
        raise ValueError(f"unsup_size={unsup_size} is out of range: use 1 to {num_examples}, or 0 for all images")
    order = np.random.default_rng([SUBSET, 1]).permutation(num_examples)
    return np.sort(order[:unsup_size]), {"unsup_size": unsup_size, "num_examples": num_examples}


def _plan_copies(parent_dir, split, indices, labelled, augmentation, num_copies, seed, ops, draw):
    options = {"ops": ops} if augmentation == "randaugment" and ops != OP_NAMES else {}
    for copy in range(num_copies):
        # A fresh order for every copy, so that copies read side by side do not show the same image at once.
        order = np.random.default_rng([ORDER, labelled, seed, copy]).permutation(indices)
        settings = {"split": split, **draw, "augmentation": augmentation, "copy": copy, "seed": seed}
        settings |= {"num_planned": len(indices)} | {name: list(value) for name, value in options.items()}
        set_dir = record_format.copy_dir(parent_dir, augmentation, copy, ops)
        key = (AUGMENTATION, labelled, seed, copy)
        yield SetPlan(set_dir, split, order, labelled, augmentation, options, key, settings)


# ---- writing --------------------------------------------------------------------------------------------------------


def num_shards(plan):
    return -(-len(plan.indices) // SHARD_SIZE)


def split_into_jobs(plan):
    for shard in range(num_shards(plan)):
        indices = plan.indices[shard * SHARD_SIZE : (shard + 1) * SHARD_SIZE]
        augmentation = plan.augmentation, plan.options, (*plan.random_key, shard)
        yield Job(plan.set_dir, shard, num_shards(plan), plan.split, indices, plan.labelled, *augmentation)


def write_job(job, arrays):
    """Writes one shard.

    Args:
      arrays: dict from split to (images uint8 [n, size, size, 3], labels [n]).
    """
    images, labels = arrays[job.split]
    block_size = max(1, BLOCK_PIXELS // (images.shape[1] * images.shape[2]))

    def examples():
        rng = np.random.default_rng(job.random_key) if job.augmentation else None
        for start in range(0, len(job.indices), block_size):
            indices, augmented = job.indices[start : start + block_size], None
            originals = images[indices]
            if job.augmentation:
                augmented = AUGMENTATIONS[job.augmentation](originals, rng, **job.options)
            yield from record_format.encode(originals, indices, labels[indices] if job.labelled else None, augmented)

    records.write_shard(job.set_dir, job.shard, job.num_shards, examples)


def write_sets(plans, read_arrays, facts, replicas=1, worker_id=0, workers=1):
    """Writes all planned sets, or this replica's share of their shards.

    Args:
      read_arrays: a picklable function without arguments that returns the arrays for write_job; each process calls it.
    """
    common = {"task_name": facts.name, "image_size": facts.image_size, "num_classes": facts.num_classes}
    plans = list(plans)
    # Every replica counts all shards, whatever is written already: so their shares fit together whenever they start.
    jobs = [job for plan in plans for job in split_into_jobs(plan)][worker_id::replicas]
    plans = [plan for plan in plans if records.begin_set(plan.set_dir, common | plan.settings)]
    unfinished_dirs = {plan.set_dir for plan in plans}
    jobs = [job for job in jobs if job.set_dir in unfinished_dirs]
    left = collections.Counter(job.set_dir for job in jobs)
    with tqdm(total=len(jobs), unit="shard", desc=f"writing {len(jobs)} shards", disable=not jobs) as progress:
        for job in _write_jobs(jobs, read_arrays, min(workers, len(jobs))):
            progress.update()
            left[job.set_dir] -= 1
            if not left[job.set_dir]:  # each copy can be used as soon as it is whole
                records.finish_set(job.set_dir, job.num_shards)
    unfinished = [plan for plan in plans if not records.finish_set(plan.set_dir, num_shards(plan))]
    if unfinished:
        print(f"{len(unfinished)} sets wait for shards of other workers (replicas={replicas}).")


def _write_jobs(jobs, read_arrays, workers):
    """Yields each job when it is done."""
    if workers <= 1:
        arrays = read_arrays() if jobs else None
        for job in jobs:
            write_job(job, arrays)
            yield job
    else:
        # Spawned, not forked: TensorFlow's threads do not survive a fork.
        context = multiprocessing.get_context("spawn")
        with context.Pool(workers, _start_process, (read_arrays,)) as pool:
            yield from pool.imap_unordered(_write_in_process, jobs)


_process_arrays = None


def _start_process(read_arrays):
    global _process_arrays
    _process_arrays = read_arrays()


def _write_in_process(job):
    write_job(job, _process_arrays)
    return job


# ---- from the command line ------------------------------------------------------------------------------------------


class RawFiles(collections.namedtuple("RawFiles", "task_name raw_data_dir use_extra allow_partial")):
    """Reads the raw files of a data set when called; small enough to be sent to other processes."""

    def __call__(self):
        read = [self.task_name, self.raw_data_dir]
        arrays = {split: datasets.read_split(*read, split, self.allow_partial) for split in ("train", "test")}
        if not self.use_extra:
            return arrays | {"unlabelled": arrays["train"]}
        parts = arrays["train"], datasets.read_split(*read, "extra", self.allow_partial)
        return arrays | {"unlabelled": tuple(np.concatenate(part) for part in zip(*parts))}


def open_official():
    """Returns own_images.Prepared for one of datasets.DATASETS; its files are known, and need no checksum."""
    raw_data_dir = FLAGS.raw_data_dir or os.path.join("data", "raw", FLAGS.task_name)
    read_arrays = RawFiles(FLAGS.task_name, raw_data_dir, FLAGS.use_extra, FLAGS.allow_partial)
    return own_images.Prepared(datasets.DATASETS[FLAGS.task_name], read_arrays, {})


def open_own(output_dir):
    if FLAGS.task_name == "folder":
        splits = own_images.open_folders(FLAGS.train_dir, FLAGS.unlabeled_dir, FLAGS.test_dir)
    else:
        splits = own_images.open_files(FLAGS.train_file, FLAGS.unlabeled_file, FLAGS.test_file)
    return own_images.prepare(FLAGS.task_name, splits, output_dir, FLAGS.image_size, FLAGS.flip)


def define_flags():
    task_names = [*sorted(datasets.DATASETS), *own_images.TASKS]
    flags.DEFINE_enum("task_name", "cifar10", task_names, "Data set; folder and npz are your own images.")
    flags.DEFINE_string("raw_data_dir", "", "Folder with the official files; default data/raw/<task_name>.")
    flags.DEFINE_string("train_dir", "", "folder: labelled images, those of each class in a folder of its name.")
    flags.DEFINE_string("unlabeled_dir", "", "folder: more images, without labels, anywhere below; may be left out.")
    flags.DEFINE_string("test_dir", "", "folder: test images, in folders as those of train_dir; may be left out.")
    flags.DEFINE_string("train_file", "", "npz: file with images, uint8 [n, height, width, 3], and labels.")
    flags.DEFINE_string("unlabeled_file", "", "npz: file with more images, without labels; may be left out.")
    flags.DEFINE_string("test_file", "", "npz: file with images and labels to test on; may be left out.")
    flags.DEFINE_integer("image_size", 0, "folder, npz: width of the records' images; 0 finds it from the data.")
    flags.DEFINE_bool("flip", False, "folder, npz: a mirrored image belongs to the same class.")
    flags.DEFINE_string("output_dir", "", "Where the records go; default data/<task_name>.")
    flags.DEFINE_enum(
        "data_type", "all", ["all", "sup", "unsup"], "sup: labelled and test sets; unsup: copies; or both."
    )
    flags.DEFINE_integer("sup_size", 4000, "Number of labelled examples.", lower_bound=1)
    flags.DEFINE_bool("use_equal_split", False, "Draw the labelled examples in equal numbers from each class.")
    flags.DEFINE_integer("label_seed", -1, "Seed of the draw; -1 is the original release's.", lower_bound=-1)
    flags.DEFINE_integer("dev_size", 0, "Labelled examples held out to choose the best checkpoint.", lower_bound=0)
    flags.DEFINE_enum("aug", "randaugment", sorted(AUGMENTATIONS), "Augmentation of the unlabelled copies.")
    flags.DEFINE_enum("aug_mode", "offline", ["offline", "online"], "online: write no copies, the trainer augments.")
    flags.DEFINE_integer("aug_copy", 10, "Number of augmented copies; more can be added later.", lower_bound=1)
    flags.DEFINE_enum(
        "sup_aug", "crop_flip", sorted(AUGMENTATIONS), "Also write augmented copies of the labelled examples."
    )
    flags.DEFINE_string("ops", "", "randaugment: draw from these operations only, separated by commas.")
    flags.DEFINE_integer("num_ops", 0, "randaugment: draw from so many operations, chosen at random; 0 for all.")
    flags.DEFINE_integer("ops_seed", 0, "Seed of the choice of --num_ops operations.", lower_bound=0)
    flags.DEFINE_integer("unsup_size", 0, "Use only so many unlabelled examples; 0 for all.", lower_bound=0)
    flags.DEFINE_bool("use_extra", False, "SVHN: add its extra split to the unlabelled data.")
    flags.DEFINE_bool("allow_partial", False, "Take what there is when some of the official files are missing.")
    flags.DEFINE_integer("seed", 0, "Seed of the augmentation.", lower_bound=0)
    flags.DEFINE_integer("workers", os.cpu_count() or 1, "Processes on this machine.", lower_bound=1)
    flags.DEFINE_integer("replicas", 1, "Number of machines that share the work.", lower_bound=1)
    flags.DEFINE_integer("worker_id", 0, "Which of the replicas this is, from 0.", lower_bound=0)


def main(_):
    try:
        preprocess()
    except ValueError as error:
        raise SystemExit(f"error: {error}") from error


def preprocess():
    if FLAGS.worker_id >= FLAGS.replicas:
        raise ValueError(f"worker_id={FLAGS.worker_id}: expected less than replicas={FLAGS.replicas}.")
    output_dir = FLAGS.output_dir or os.path.join("data", FLAGS.task_name)
    own = FLAGS.task_name in own_images.TASKS
    facts, read_arrays, checksums = open_own(output_dir) if own else open_official()
    arrays = read_arrays()
    labels, num_test = arrays["train"][1], len(arrays["test"][1])
    ops = choose_ops(FLAGS.ops, FLAGS.num_ops, FLAGS.ops_seed)
    if ops != OP_NAMES and "randaugment" not in (FLAGS.aug, FLAGS.sup_aug):
        raise ValueError(f"ops={','.join(ops)}, but aug={FLAGS.aug}: only randaugment has operations.")
    plans = []
    if FLAGS.data_type != "unsup":
        draw = {name: FLAGS[name].value for name in ("sup_size", "use_equal_split", "label_seed", "dev_size")}
        num_copies = FLAGS.aug_copy if FLAGS.sup_aug != "crop_flip" and FLAGS.aug_mode == "offline" else 0
        plans += plan_labelled(output_dir, facts, labels, draw, FLAGS.sup_aug, num_copies, FLAGS.seed, ops)
        print_missing_classes(facts, labels[plans[0].indices])
        plans += plan_test(output_dir, num_test) if num_test else []
    num_unlabelled, unsup_size = len(arrays["unlabelled"][0]), FLAGS.unsup_size
    if FLAGS.data_type != "sup" and FLAGS.aug_mode == "online":
        plans += plan_originals(output_dir, num_unlabelled, unsup_size)
    elif FLAGS.data_type != "sup":
        copies = FLAGS.aug, FLAGS.aug_copy, FLAGS.seed
        plans += plan_unlabelled(output_dir, num_unlabelled, *copies, ops, unsup_size)
    if own:
        plans = [plan._replace(settings=plan.settings | {"data_sha256": checksums[plan.split]}) for plan in plans]
    record_format.write_facts(output_dir, facts)
    write_sets(plans, read_arrays, facts, FLAGS.replicas, FLAGS.worker_id, FLAGS.workers)
    print(f"records of {FLAGS.task_name} are in {output_dir}")


if __name__ == "__main__":
    define_flags()
    app.run(main)
