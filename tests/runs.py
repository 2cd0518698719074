"""What a run has left in its folder, and whether two runs have left the same."""

import numpy as np
import tensorflow as tf

from utils import run_dir


def checkpoint_steps(model_dir, folder="checkpoints"):
    return sorted(int(path.stem.removeprefix("ckpt-")) for path in (model_dir / folder).glob("*.index"))


def read_checkpoint(path):
    """dict from name to array: networks, average, state of the optimizer, number of steps."""
    reader = tf.train.load_checkpoint(str(path))
    names = [name for name in reader.get_variable_to_shape_map() if name != "_CHECKPOINTABLE_OBJECT_GRAPH"]
    return {name: reader.get_tensor(name) for name in names}


def without_timing(values):
    measured = ("examples_per_second", "train_seconds", "input_wait_ratio")
    return {name: value for name, value in values.items() if name not in measured}


def read_lines(model_dir):
    return [without_timing(line) for line in run_dir.read_metrics(str(model_dir))]


def assert_equal_runs(model_dir, other_dir):
    """The same weights in all checkpoints, bit for bit, and the same metrics."""
    for folder in ("checkpoints", "best"):
        assert checkpoint_steps(model_dir, folder) == checkpoint_steps(other_dir, folder)
        for step in checkpoint_steps(model_dir, folder):
            first, second = (read_checkpoint(path / folder / f"ckpt-{step}") for path in (model_dir, other_dir))
            assert first.keys() == second.keys()
            for name in first:
                np.testing.assert_array_equal(first[name], second[name], err_msg=f"{folder}/ckpt-{step}: {name}")
    assert read_lines(model_dir) == read_lines(other_dir)
