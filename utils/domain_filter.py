"""Domain-relevance filtering (paper, section 2.4): of a large pool, the examples that a model is most confident about.

    selection = select(read, num_examples, predict_proba, num_classes, config, state_path, settings)
    positions, labels, probabilities = selection.kept()

The pool is read once, in blocks, whatever its size. A stopped run goes on from its state file.
"""

import collections
import concurrent.futures
import itertools
import json
import os
import time

import numpy as np
import tensorflow as tf
from matplotlib.figure import Figure
from tqdm import tqdm

from utils import files
from utils.settings import Settings, config_class, setting

Block = collections.namedtuple("Block", "positions examples skipped end")
Kept = collections.namedtuple("Kept", "positions labels probabilities")

# The pool's probabilities are counted in bins of their number of nines: 0.9 begins bin 5, 0.99 bin 10, and so on.
BINS_PER_NINE, NUM_NINES = 5, 8


# ---- the best of each class -----------------------------------------------------------------------------------------


class Selection:
    """Of the examples seen so far, those of each class that the model is most confident about.

    An example counts for the class that the model predicts. Its rank there is by the model's doubt, which is what the
    other classes get together: the probabilities of a confident model round to 1, their doubts still differ. Among
    equals the first in the pool comes first.
    """

    def __init__(self, num_classes, num_per_class, min_probability=0.0):
        self.num_classes, self.num_per_class, self.min_probability = num_classes, num_per_class, min_probability
        self.end = 0  # position in the pool up to which it has been seen
        self.skipped = np.zeros(0, np.int64)  # positions of examples that cannot be used
        self.num_predicted = np.zeros(num_classes, np.int64)
        self.histogram = np.zeros(BINS_PER_NINE * NUM_NINES, np.int64)
        self.least_doubt = np.float32(1)
        self._candidates = [(np.zeros(0, np.int64), np.zeros(0, np.int32), np.zeros(0, np.float32))]
        self._num_candidates = 0
        self._limits = np.full(num_classes, np.inf, np.float32)  # doubt of the last one of a class that is full

    def add(self, block, probabilities):
        """Takes in the next block of the pool; probabilities: [len(block.positions), num_classes]."""
        self._check(block, probabilities)
        rows, labels = np.arange(len(block.positions)), np.argmax(probabilities, axis=1).astype(np.int32)
        highest, others = probabilities[rows, labels], probabilities.astype(np.float64)
        others[rows, labels] = 0
        doubts = others.sum(axis=1).astype(np.float32)
        # A later example as good as the last one of a full class has lost against it.
        chosen = (highest >= self.min_probability) & (doubts < self._limits[labels])
        self._candidates.append((block.positions[chosen], labels[chosen], doubts[chosen]))
        self._num_candidates += np.count_nonzero(chosen)
        self.num_predicted += np.bincount(labels, minlength=self.num_classes)
        self.histogram += np.bincount(bins_of(doubts), minlength=len(self.histogram))
        self.least_doubt = min(self.least_doubt, doubts.min(initial=1))
        self.skipped = np.concatenate([self.skipped, block.skipped])
        self.end = block.end
        if self._num_candidates > 2 * self.num_classes * self.num_per_class:  # seldom, and memory stays bounded
            self._drop_losers()

    def _check(self, block, probabilities):
        expected = (len(block.positions), self.num_classes)
        if np.shape(probabilities) != expected:
            raise ValueError(f"predict_proba gave shape={np.shape(probabilities)}: expected {expected}.")
        if np.any(probabilities < 0) or not np.allclose(np.sum(probabilities, axis=1), 1, atol=1e-2):
            raise ValueError(
                f"predict_proba gave no probabilities for the examples {block.positions[0]} to {block.positions[-1]}: "
                "expected numbers from 0 to 1 with the sum 1. Has the training diverged?"
            )

    def _drop_losers(self):
        positions, labels, doubts = (np.concatenate(column) for column in zip(*self._candidates))
        order = np.lexsort((positions, doubts, labels))
        starts = np.searchsorted(labels[order], np.arange(self.num_classes))
        ranks = np.arange(len(order)) - starts[labels[order]]
        last = order[ranks == self.num_per_class - 1]
        self._limits[labels[last]] = doubts[last]
        winners = np.sort(order[ranks < self.num_per_class])
        self._candidates = [(positions[winners], labels[winners], doubts[winners])]
        self._num_candidates = len(winners)

    def kept(self):
        """The chosen examples in the order of the pool: positions int64, labels int32, probabilities float64."""
        self._drop_losers()
        [(positions, labels, doubts)] = self._candidates
        return Kept(positions, labels, 1 - doubts.astype(np.float64))

    def save(self, path, settings):
        """Writes everything to a file, which is the old one or the new one at any time."""
        self._drop_losers()
        [(positions, labels, doubts)] = self._candidates
        arrays = {"positions": positions, "labels": labels, "doubts": doubts}
        arrays |= {name: getattr(self, name) for name in STATE_FIELDS}
        with files.explain_refusal(path, "make room; the same command goes on from what is finished."):
            files.write_arrays(path, settings=json.dumps(settings), **arrays)

    def restore(self, path, settings):
        """Takes up what `save` wrote; refuses the state of another selection."""
        advice = "delete it to start again."
        arrays = files.read_arrays(path, advice)
        with files.explain_damage(path, advice):
            found = json.loads(str(arrays["settings"]))
            self._check_state(found, arrays)
        names = [name for name in {**found, **settings} if found.get(name) != settings.get(name)]
        if names:
            lines = "; ".join(
                f"{name}: was {files.shorten(found.get(name))}, now {settings.get(name)!r}" for name in names
            )
            raise ValueError(
                f"{path} is of another selection ({lines}). Delete it to start again, of images with the rest "
                "of its folder, or choose another output."
            )
        self._candidates = [(arrays["positions"], arrays["labels"], arrays["doubts"])]
        self._num_candidates = len(arrays["positions"])
        for name in STATE_FIELDS:
            setattr(self, name, arrays[name][()])

    def _check_state(self, settings, arrays):
        """Raises ValueError unless the arrays of a state have the types and shapes, and numbers, that belong to it."""
        number = arrays["positions"].shape[:1]
        shapes = {"positions": (np.int64, number), "labels": (np.int32, number), "doubts": (np.float32, number)}
        shapes |= {"end": (np.int64, ()), "skipped": (np.int64, arrays["skipped"].shape[:1])}
        shapes |= {name: (np.int64, getattr(self, name).shape) for name in ("num_predicted", "histogram")}
        shapes["least_doubt"] = (np.float32, ())
        for name, (dtype, shape) in shapes.items():
            if arrays[name].dtype != dtype or arrays[name].shape != shape:
                found = f"shape={arrays[name].shape}, dtype={arrays[name].dtype}"
                raise ValueError(f"{name} has {found}: expected shape={shape}, dtype={np.dtype(dtype)}")
        limits = {"positions": arrays["end"] - 1, "skipped": arrays["end"] - 1, "labels": self.num_classes - 1}
        limits |= {"doubts": 2, "least_doubt": 2, "num_predicted": arrays["end"], "histogram": arrays["end"]}
        for name, limit in limits.items():
            if not np.all((arrays[name] >= 0) & (arrays[name] <= limit)):
                raise ValueError(f"{name} has numbers that are not from 0 to {limit}")
        if type(settings) is not dict:
            raise ValueError("its settings are no object")


STATE_FIELDS = ("end", "skipped", "num_predicted", "histogram", "least_doubt")


def bins_of(doubts):
    """Which bin of the histogram each of these examples falls into."""
    nines = -np.log10(np.maximum(doubts, np.finfo(np.float32).tiny))
    return np.clip(BINS_PER_NINE * nines, 0, BINS_PER_NINE * NUM_NINES - 1).astype(np.int64)


# ---- the whole pool -------------------------------------------------------------------------------------------------


def select(read, num_examples, predict_proba, num_classes, config, state_path, settings, save_seconds=60.0):
    """Chooses the num_per_class examples of each predicted class with the highest probability, or all there are.

    Args:
      read: a function from a position to an iterator over the examples of the pool from there on, always in the same
        order, with None for each that cannot be used. It is used in another thread.
      num_examples: of the pool, with those that cannot be used.
      predict_proba: a function from a list of examples to an array of probabilities [n, num_classes].
      config: FilterConfig, of which num_per_class, min_probability and block_size are used.
      state_path: file for the state, written every `save_seconds` and at the end. If it is there, the run goes on.
      settings: dict of JSON values that tells this pool and this model from others.

    Returns:
      Selection, with at least one example.
    """
    selection = Selection(num_classes, config.num_per_class, config.min_probability)
    settings = settings | {"num_per_class": config.num_per_class, "min_probability": config.min_probability}
    if files.exists(state_path):
        selection.restore(state_path, settings)
    saved = time.monotonic()
    with tqdm(total=num_examples, initial=int(selection.end), unit="example", desc="scoring") as progress:
        for block in read_ahead(create_blocks(read(selection.end), selection.end, config.block_size)):
            probabilities = predict_proba(block.examples) if block.examples else np.zeros([0, num_classes])
            selection.add(block, np.asarray(probabilities))
            progress.update(block.end - progress.n)
            if time.monotonic() - saved >= save_seconds:
                selection.save(state_path, settings)
                saved = time.monotonic()
    if selection.end != num_examples:
        raise ValueError(f"The pool had {num_examples} examples, now {selection.end}: it was changed. Start again.")
    if not len(selection.kept().positions):
        if files.exists(state_path):
            files.remove(state_path)  # of no use: the next attempt has other settings
        raise nothing_kept(selection)
    selection.save(state_path, settings)
    return selection


def nothing_kept(selection):
    num_used = selection.num_predicted.sum()
    if not num_used:
        return ValueError(f"None of the {selection.end} examples of the pool can be used: all are empty or unreadable.")
    return ValueError(
        f"None of the {num_used} examples of the pool reaches min_probability={selection.min_probability}: the highest "
        f"probability is {1 - float(selection.least_doubt):.6f}. Use a lower --min_probability or another pool."
    )


def create_blocks(examples, start, block_size):
    while part := list(itertools.islice(examples, block_size)):
        usable = np.array([example is not None for example in part])
        positions = np.arange(start, start + len(part))
        start += len(part)
        yield Block(positions[usable], [e for e in part if e is not None], positions[~usable], start)


def read_ahead(blocks):
    """Yields the blocks; while one is used, the next is read in a thread."""
    with concurrent.futures.ThreadPoolExecutor(1) as executor:
        upcoming = executor.submit(next, blocks, None)
        while (block := upcoming.result()) is not None:
            upcoming = executor.submit(next, blocks, None)
            yield block


# ---- the programs image.filter_domain and text.filter_domain --------------------------------------------------------


@config_class()
class FilterConfig(Settings):
    model_dir: str = setting("", "Folder of the run whose exported model scores the pool.")
    pool: str = setting("", "Images: a folder, .npy or .npz file. Texts: .txt, .csv, .tsv or .jsonl, also with .gz.")
    num_per_class: int = setting(0, "Most examples to keep of each class.", minimum=1)
    min_probability: float = setting(0.0, "Keep no example that is less probable.", minimum=0, maximum=1)
    batch_size: int = setting(32, "Examples that go through the network at once.", minimum=1)

    batches_per_block, required = 1, ("model_dir", "pool")  # of a subclass there may be more

    def __post_init__(self):
        for name in self.required:
            if not getattr(self, name):
                raise ValueError(f"{name}='' is missing: give --{name}.")
        super().__post_init__()

    @property
    def block_size(self):
        return self.batches_per_block * self.batch_size


def load_model(load, model_dir):
    """Returns facts and predict_proba, by the `load` of text.export or image.export, and what tells it from others."""
    export_dir = os.path.join(model_dir, "export")
    return *load(export_dir), tf.saved_model.experimental.read_fingerprint(export_dir).singleprint()


def write_summary(path, config, selection, class_names, **more):
    """Writes <path>.json and the picture <path>.png. Returns what `summarize` does, and more."""
    summary = summarize(selection, class_names) | more
    with files.explain_refusal(path, "make room; the same command goes on from what is finished."):
        files.write_json(f"{path}.json", {"pool": config.pool, "model_dir": config.model_dir, **summary})
        draw_histogram(f"{path}.png", selection, class_names)
    return summary


# ---- report ---------------------------------------------------------------------------------------------------------


def summarize(selection, class_names):
    """What was kept, as a dict of JSON values."""
    kept = selection.kept()
    classes = {}
    for label, name in enumerate(class_names):
        probabilities = kept.probabilities[kept.labels == label]
        classes[name] = {"predicted": int(selection.num_predicted[label]), "kept": len(probabilities)}
        if len(probabilities):
            classes[name] |= {
                "lowest_probability": round(probabilities.min(), 9),
                "highest_probability": round(probabilities.max(), 9),
            }
    return {
        "num_examples": int(selection.end),
        "num_skipped": len(selection.skipped),
        "num_kept": len(kept.positions),
        "share_of_pool": len(kept.positions) / int(selection.end),
        "num_per_class": selection.num_per_class,
        "min_probability": selection.min_probability,
        "classes": classes,
    }


def describe(summary):
    """A line on what was kept, and one on the classes that lack examples, if there are any."""
    lines = [f"kept {summary['num_kept']:,} of {summary['num_examples']:,} examples ({summary['share_of_pool']:.2%})"]
    if summary["num_skipped"]:
        lines[0] += f"; {summary['num_skipped']:,} could not be used"
    wanted = summary["num_per_class"]
    short = {name: entry["kept"] for name, entry in summary["classes"].items() if entry["kept"] < wanted}
    if short:
        names = files.join_names(f"{name!r} {number}" for name, number in short.items())
        number = f"{len(short)} of {len(summary['classes'])} classes have"
        lines.append(f"{number} fewer than num_per_class={wanted}: {names}")
    return "\n".join(lines)


def draw_histogram(path, selection, class_names):
    """A picture of the probabilities and of the classes, of the pool and of what was kept."""
    kept = selection.kept()
    figure = Figure(figsize=(11, 4), layout="tight")
    left, right = figure.subplots(1, 2)
    counts = np.bincount(bins_of(1 - kept.probabilities), minlength=len(selection.histogram))
    nines = np.arange(len(counts)) / BINS_PER_NINE
    for values, label, color in ((selection.histogram, "pool", "lightgrey"), (counts, "kept", "tab:blue")):
        left.bar(nines, values, 1 / BINS_PER_NINE, align="edge", label=label, color=color)
    left.set_yscale("symlog", linthresh=1)
    left.set_xticks(range(NUM_NINES), ["0", "0.9", "0.99", "0.999", *(f"1 − 10⁻{d}" for d in "⁴⁵⁶⁷")], fontsize=7)
    left.set_xlabel("probability of the predicted class")
    left.set_ylabel("examples")
    left.legend(loc="lower right", bbox_to_anchor=(1, 1), ncols=2, frameon=False)  # above: the bars may be anywhere
    labels = np.arange(len(class_names))
    right.bar(labels, selection.num_predicted, label="pool", color="lightgrey")
    right.bar(labels, np.bincount(kept.labels, minlength=len(labels)), label="kept", color="tab:blue")
    right.set_yscale("symlog", linthresh=1)
    if len(class_names) <= 30:
        right.set_xticks(labels, class_names, rotation=60, ha="right", fontsize=8)
    right.set_xlabel("predicted class")
    files.write_figure(path, figure)
