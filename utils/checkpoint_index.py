"""The index of a TensorFlow checkpoint: blocks with checksums, found by a footer that has none.

TensorFlow allocates as much as the footer says before it looks at a checksum, so the footer is checked first. The file
is a table as LevelDB writes it: blocks, each with a trailer, then the places of two of them, then a magic number.
"""

import os

from utils import files
from utils.varint import read_varint

FOOTER_BYTES, TRAILER_BYTES = 48, 5
MAGIC = bytes.fromhex("57fb808b247547db")


def check(prefix):
    """Raises ValueError if the footer of `<prefix>.index` names blocks outside of it; a missing file is accepted."""
    path = f"{prefix}.index"
    if not files.is_file(path):
        return
    with files.open_file(path, "rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(size - FOOTER_BYTES, 0))
        footer = file.read(FOOTER_BYTES)
    if len(footer) < FOOTER_BYTES or not footer.endswith(MAGIC):
        raise ValueError(f"{os.path.basename(path)} is no table of TensorFlow's, or was cut off")
    numbers, position = [], 0
    for _ in range(4):  # where the block of metadata begins and how long it is, then the same of the block of keys
        number, position = read_varint(footer, position)
        numbers.append(number)
    for start, length in (numbers[:2], numbers[2:]):
        if start + length + TRAILER_BYTES > size - FOOTER_BYTES:
            raise ValueError(f"{os.path.basename(path)}: a block of {length} bytes at {start} in a file of {size}")
