"""Which training examples keep their labels, and which further ones choose the best checkpoint."""

import re

import numpy as np

from text.datasets.lines import find_file, read_lines
from utils import files, labelled_subsets

PUBLISHED, LABELLED, DEV = 1, 2, 3  # begin the seeds of what is drawn, so that no two draws share a stream of numbers


def draw_labelled(source, sup_size, dev_size=0, label_seed=-1, ids=None):
    """Draws sup_size labelled examples and dev_size further ones, equally many of each class, or all there are.

    Candidates are taken in an order that does not depend on sup_size, so a smaller set is part of a larger one:
    with ids, in their order; with a label_seed from 0 on, drawn; with -1, the first of the files, as in the original
    release. IMDb's published order is known for 20 examples only: these come first, and others are drawn.

    Args:
      ids: as read_ids returns them. They come before label_seed.

    Returns:
      int64 [sup_size] and [dev_size], ascending positions among the training examples.
    """
    order = _order_candidates(source, label_seed, ids)
    labels, names = source.labels("train"), source.facts.class_names
    chosen = labelled_subsets.draw(labels, order, names, sup_size, dev_size, [DEV, label_seed + 1], balanced=True)
    return tuple(map(np.sort, chosen))


def read_ids(path):
    """Reads the ids of labelled examples, one a line. Lines that name IMDb's unsup reviews are passed over."""
    lines = [line.strip() for line in read_lines(find_file("sup_ids_file", path))]
    return [line for line in lines if line and "unsup" not in line]


def short_id(key):
    """9716_10 for train/pos/9716_10.txt, 9716_10 or, as in the id list of the original release, pos_9716_10.txt."""
    return re.sub(r"^(pos|neg)_|\.txt$", "", key.rpartition("/")[2])


def _order_candidates(source, label_seed, ids):
    num_examples = len(source.labels("train"))
    if ids is not None:
        return _find_ids(source, ids)
    if label_seed >= 0:
        return np.random.default_rng([LABELLED, label_seed]).permutation(num_examples)
    if not source.facts.labelled_ids:
        return np.arange(num_examples)
    published = _find_ids(source, source.facts.labelled_ids, allow_missing=True)  # in a part of IMDb some are missing
    others = np.random.default_rng([PUBLISHED, 0]).permutation(num_examples)
    return np.concatenate([published, others[~np.isin(others, published)]])


def _find_ids(source, ids, allow_missing=False):
    wanted = {short_id(name): name for name in ids}
    positions = {}
    for position, example in enumerate(source.read("train")):
        if short_id(example.key) in wanted:
            positions[short_id(example.key)] = position
    missing = [name for key, name in wanted.items() if key not in positions]
    if missing and not allow_missing:
        raise ValueError(
            f"{len(missing)} of {len(wanted)} ids in sup_ids_file are no training examples, such as "
            f"{files.shorten(missing[0])}: expected ids such as {example.key!r} or {short_id(example.key)!r}"
        )
    return np.array([positions[key] for key in wanted if key in positions], np.int64)
