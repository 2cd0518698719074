"""Which examples keep their labels, and which further ones choose the best checkpoint.

labelled, dev = draw(labels, order, class_names, sup_size=20, dev_size=10, dev_seed=[3, 1], balanced=True)
"""

import numpy as np

from utils import files


def folder_name(config, kind="", ids=""):
    """Name of the folder of one draw, which tells how it was drawn.

    Args:
      config: utils.settings.RecordsConfig; kind, ids: what else there is to tell, or "".
    """
    seed = f"seed_{config.label_seed}" if config.label_seed >= 0 else ""
    dev = f"dev_{config.dev_size}" if config.dev_size else ""
    return "-".join(filter(None, (f"sup-size_{config.sup_size}", kind, seed, dev, ids)))


def draw(labels, order, class_names, sup_size, dev_size, dev_seed, balanced):
    """Takes the labelled examples from the front of `order`, and the development split from the others at random.

    Neither depends on the size of the other, and a smaller set is a part of a larger one. Where both together are all
    examples there are, the development split is drawn first and the rest is labelled.

    Args:
      labels: integers [n], from 0 to len(class_names) - 1.
      order: positions in `labels` that are candidates for a label, the first ones first.
      dev_seed: of the draw of the development split; a list of numbers that no other draw begins with.
      balanced: equally many of each class, unless all candidates are taken.

    Returns:
      labelled int64 [sup_size], in the order of the candidates; dev int64 [dev_size], in random order.
    """
    dev_order = np.random.default_rng(dev_seed).permutation(len(labels))
    if dev_size and sup_size + dev_size == len(labels) == len(order):
        dev = _take("dev_size", dev_size, labels, dev_order, class_names, balanced)
        return order[~np.isin(order, dev)], dev
    labelled = _take("sup_size", sup_size, labels, order, class_names, balanced)
    others = dev_order[~np.isin(dev_order, labelled)]
    return labelled, _take("dev_size", dev_size, labels, others, class_names, balanced) if dev_size else others[:0]


def _take(name, size, labels, candidates, class_names, balanced):
    """The first `size` candidates; with `balanced` the first of each class."""
    candidates = np.asarray(candidates, np.int64)
    if not 1 <= size <= len(candidates):
        raise ValueError(f"{name}={size} is out of range: there are {len(candidates)} examples to choose from.")
    if not balanced or size == len(candidates):
        return candidates[:size]
    per_class, rest = divmod(size, len(class_names))
    if rest:
        choices = f"{size - rest} or {size - rest + len(class_names)}" if per_class else f"{len(class_names)}"
        raise ValueError(
            f"{name}={size} is not divisible by num_classes={len(class_names)}: use {choices}, as many of each class."
        )
    positions = [np.flatnonzero(labels[candidates] == label)[:per_class] for label in range(len(class_names))]
    for class_name, found in zip(class_names, positions):
        if len(found) < per_class:
            raise ValueError(
                f"{name}={size} needs {per_class} examples of each class, but {files.shorten(class_name)} has "
                f"{len(found)} to choose from: use less, or {name}={len(candidates)} for all, whatever their classes."
            )
    return candidates[np.sort(np.concatenate(positions))]
