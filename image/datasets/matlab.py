"""Numeric arrays of MATLAB 5 files, read strictly: a size is compared with what is there before it is used.

arrays = read_arrays("train_32x32.mat", names=("X", "y"))     # dict; elements of other kinds are passed over
"""

import math
import zlib

import numpy as np

from utils import files

# Types of data elements, as the format numbers them.
TYPES = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8", 12: "i8", 13: "u8"}
INT8, INT32, UINT32, MATRIX, COMPRESSED = 1, 5, 6, 14, 15
# Classes of arrays: the type of the values, which may be stored in a smaller one.
CLASSES = {6: "f8", 7: "f4", 8: "i1", 9: "u1", 10: "i2", 11: "u2", 12: "i4", 13: "u4", 14: "i8", 15: "u8"}
COMPLEX = 0x0800  # a flag of an array
HEADER_BYTES, MAX_DIMENSIONS = 128, 8
ENDS = {b"IM": "<", b"MI": ">"}  # order of bytes, by the last two of the header


def read_arrays(path, names):
    """Returns a dict with those of the named arrays that the file has.

    Raises:
      ValueError: if the file is damaged; the message does not name it.
    """
    content = memoryview(files.read_bytes(path))
    order = ENDS.get(bytes(content[126:HEADER_BYTES]))
    if order is None or np.frombuffer(content[124:126], order + "u2")[0] != 0x0100:
        raise ValueError("its first 128 bytes are not those of a MATLAB 5 file")
    arrays, position = {}, HEADER_BYTES
    while position < len(content):
        kind, element, position = _read_element(content, position, order, padded=False)
        if kind == COMPRESSED:
            kind, element, _ = _read_element(_inflate(element, order), 0, order, padded=False)
        if kind == MATRIX:
            name, array = _read_matrix(element, order, names)
            arrays |= {name: array} if array is not None else {}
    return arrays


def _read_element(content, position, order, padded=True):
    """Returns the type and the data of an element, and where the next one begins; within arrays they are padded."""
    tag = np.frombuffer(_part(content, position, 8), order + "u4")
    kind, size, start = int(tag[0]), int(tag[1]), position + 8
    if kind >> 16:  # a small element: type, size and up to four bytes of data in the tag itself
        kind, size, start = kind & 0xFFFF, kind >> 16, position + 4
        if size > 4:
            raise ValueError(f"a small element of {size} bytes at {position}: expected at most 4")
        return kind, _part(content, start, size), position + 8
    end = start + size
    return kind, _part(content, start, size), end + (-end % 8 if padded else 0)


def _part(content, start, size):
    if start + size > len(content):
        raise ValueError(f"it breaks off: expected {size} bytes at {start}, found {max(len(content) - start, 0)}")
    return content[start : start + size]


def _inflate(packed, order):
    """The one element that was packed, with its tag, which tells its size."""
    tag = zlib.decompressobj().decompress(packed[:1024], 8)
    size = 8 + int(np.frombuffer(_part(tag, 4, 4), order + "u4")[0])
    if size > files.MOST_INFLATED * len(packed):
        raise ValueError(f"an element is said to be {size} bytes, packed into {len(packed)}")
    inflater = zlib.decompressobj()
    content = inflater.decompress(packed, size)
    rest = inflater.decompress(inflater.unconsumed_tail, 1)  # also compares the checksum at the end
    if len(content) != size or rest or not inflater.eof:
        raise ValueError(f"an element of {size} bytes unpacks to {len(content) + len(rest)} or more")
    return memoryview(content)


def _read_matrix(content, order, names):
    """Name and values of an array, in Fortran order; the values are None unless they are wanted."""
    parts, position = [], 0
    for expected in (UINT32, INT32, INT8):  # flags, dimensions, name
        kind, part, position = _read_element(content, position, order)
        if kind != expected:
            raise ValueError(f"an array has an element of type {kind}: expected {expected}")
        parts.append(part)
    flags, shape = np.frombuffer(parts[0], order + "u4"), np.frombuffer(parts[1], order + "i4").tolist()
    name = bytes(parts[2]).decode("ascii", errors="replace")
    if name not in names:
        return name, None
    if len(flags) != 2 or (flags[0] & 0xFF) not in CLASSES or flags[0] & COMPLEX:
        raise ValueError(f"{name} has flags={flags.tolist()}: expected an array of real numbers")
    kind, part, _ = _read_element(content, position, order)
    if kind not in TYPES:
        raise ValueError(f"{name} has values of type {kind}: expected numbers")
    stored = np.dtype(order + TYPES[kind])
    fits = 2 <= len(shape) <= MAX_DIMENSIONS and min(shape) >= 0
    if not fits or math.prod(shape) * stored.itemsize != len(part):
        raise ValueError(f"{name} has shape={shape[:MAX_DIMENSIONS]}, dtype={stored}, but {len(part)} bytes of values")
    values = np.frombuffer(part, stored).reshape(shape, order="F")
    return name, _to_class(name, values, np.dtype(CLASSES[int(flags[0] & 0xFF)]))


def _to_class(name, values, dtype):
    """Values in the type of their class; they are stored in a smaller one if that holds them all."""
    converted = values.astype(dtype, copy=False)
    if converted is not values and not np.array_equal(converted, values):
        raise ValueError(f"{name} has values of dtype={values.dtype} that {dtype} does not hold")
    return converted
