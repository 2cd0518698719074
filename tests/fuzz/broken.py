"""A reader that breaks in every way there is, to see that the runner notices."""

import os
import time

import numpy as np

from tests.fuzz.cases import Loader


def read(folder):
    kind = (folder / "kind").read_text()
    if kind == "traceback":
        raise KeyError(kind)
    if kind == "crash":
        os.abort()
    if kind == "memory":
        return np.ones(1 << 26).sum()  # 512 MB
    if kind == "hang":
        time.sleep(60)
    if kind == "no_message":
        raise ValueError
    if kind == "long_message":
        raise ValueError("x" * 10_000)
    if kind == "fine":
        raise ValueError(f"{folder}/kind: expected another kind; restore it.")


def write(kind):
    return lambda folder: (folder / "kind").write_text(kind)


KINDS = ("traceback", "crash", "memory", "hang", "no_message", "long_message", "fine")
LOADERS = {"broken": Loader(write("valid"), read, lambda result: None)}
SEEDS = {"broken": {kind: write(kind) for kind in KINDS}}
