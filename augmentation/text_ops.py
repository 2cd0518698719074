"""The names of text augmentations, as --aug_ops takes them and folders bear them.

parse_op("tf_idf-0.7")              # TextOp(kind="tf_idf", value=0.7)
split_ops("bt-0.9+tf_idf-0.7")      # ["bt-0.9", "tf_idf-0.7"]: copies of both, mixed when training
"""

import re
from typing import NamedTuple

# What the number behind the hyphen means.
KINDS = {
    "tf_idf": "probability",  # of a word to be replaced, word_level.replace_by_tf_idf
    "tf_idf_paper": "probability",  # the same, where the words put in are drawn by the paper's S(w)
    "unif": "probability",  # of a word to be replaced, word_level.replace_uniformly
    "bt": "temperature",  # of sampling the translations, back_translation
}
EXAMPLES = "tf_idf-0.7, unif-0.1 or bt-0.9"


class TextOp(NamedTuple):
    kind: str  # a key of KINDS
    value: float


def parse_op(name):
    """Returns the TextOp that `name` stands for."""
    kind, _, number = name.partition("-")
    if kind not in KINDS:
        raise ValueError(f"unknown augmentation {name!r}: expected one of {', '.join(KINDS)} and a number: {EXAMPLES}.")
    if not re.fullmatch(r"[0-9]+(\.[0-9]+)?", number):
        raise ValueError(f"augmentation {name!r}: {number!r} is not a plain decimal number; write {EXAMPLES}.")
    value = float(number)
    if KINDS[kind] == "probability" and not 0 < value <= 1:
        raise ValueError(f"augmentation {name!r}: expected a probability above 0 and at most 1, got {number}.")
    # Folders of paraphrases bear the temperature with one decimal: 0.85 would silently mean another folder.
    if KINDS[kind] == "temperature" and not (value <= 1 and value == round(value, 1)):
        raise ValueError(f"augmentation {name!r}: expected a temperature from 0 to 1 with one decimal, got {number}.")
    return TextOp(kind, value)


def split_ops(aug_ops):
    """Splits "a+b" into a list of valid names, each of another augmentation."""
    names = aug_ops.split("+")
    seen = set()
    for name in names:
        op = parse_op(name)
        if op in seen:
            raise ValueError(f"aug_ops={aug_ops!r} names {name!r} twice: leave it out once, or use more --aug_copy.")
        seen.add(op)
    return names
