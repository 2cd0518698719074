"""utils/checkpoint_index.py: what the footer of an index says is checked before TensorFlow believes it."""

import pytest
import tensorflow as tf

from utils import checkpoint_index
from utils.varint import read_varint, write_varint


@pytest.fixture
def prefix(tmp_path):
    """A checkpoint as TensorFlow writes it, with more weights than fit in one block of the index."""
    variables = {f"weight_{number}": tf.Variable([float(number)]) for number in range(200)}
    return tf.train.Checkpoint(**variables).write(str(tmp_path / "ckpt"))


def change(prefix, damage):
    with open(f"{prefix}.index", "r+b") as file:
        content = damage(file.read())
        file.seek(0)
        file.truncate()
        file.write(content)


def test_what_tensorflow_writes_is_accepted(prefix, tmp_path):
    checkpoint_index.check(prefix)
    checkpoint_index.check(str(tmp_path / "nothing"))  # which TensorFlow tells better


@pytest.mark.parametrize("place", range(4))
def test_a_block_outside_of_the_file_is_refused(prefix, place):
    def damage(content):
        numbers, position = [], 0
        for _ in range(4):
            number, position = read_varint(content[-48:], position)
            numbers.append(number)
        numbers[place] = 1 << 34
        footer = b"".join(write_varint(number) for number in numbers)
        return content[:-48] + footer + bytes(40 - len(footer)) + content[-8:]

    change(prefix, damage)
    with pytest.raises(ValueError, match=r"ckpt.index: a block of \d+ bytes at \d+ in a file of \d+"):
        checkpoint_index.check(prefix)


@pytest.mark.parametrize(
    "damage",
    [lambda content: content[:-1], lambda content: content[-40:], lambda content: b"", lambda content: content + b"x"],
)
def test_a_file_that_does_not_end_as_it_should_is_refused(prefix, damage):
    change(prefix, damage)
    with pytest.raises(ValueError, match="ckpt.index is no table of TensorFlow's, or was cut off"):
        checkpoint_index.check(prefix)


def test_a_number_without_end_is_refused(prefix):
    change(prefix, lambda content: content[:-48] + b"\xff" * 40 + content[-8:])
    with pytest.raises(ValueError, match="a number without end"):
        checkpoint_index.check(prefix)
