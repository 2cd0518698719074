"""Texts in memory as a Source, for TextClassifier."""

import functools
import itertools

from text.datasets.source import Example, Facts, Source, Tally, clean


def create_source(name, class_names, train, unlabeled=None, test=None):
    """A Source of lists.

    Args:
      train, test: (texts, labels) or (texts, titles, labels), lists; labels are numbers from 0.
      unlabeled: texts, or (texts, titles); None: those of train.
    """
    has_title = len(train) == 3
    if unlabeled is None:
        unlabeled = train[:2] if has_title else train[0]
    splits = {"train": train, "unlabeled": unlabeled if has_title else (unlabeled,)}
    splits |= {"test": test} if test is not None else {}
    examples = {split: _create_examples(split, columns, has_title) for split, columns in splits.items()}
    readers = {split: functools.partial(iter, examples[split]) for split in splits}
    identify = functools.partial(_identify, examples["unlabeled"])
    return Source(Facts(name, tuple(class_names), has_title), readers, identify)


def _create_examples(split, columns, has_title):
    texts, *others = columns
    titles = others.pop(0) if has_title else itertools.repeat(None)
    labels = others.pop(0) if others else itertools.repeat(-1)
    return [
        Example(f"{split}/{number}", clean(text), title and clean(title), int(label))
        for number, (text, title, label) in enumerate(zip(texts, titles, labels))
    ]


def _identify(examples):
    tally = Tally()
    for example in examples:
        tally.add(example)
    return tally.finish("unlabeled").sha256
