"""Seeded damage to the files of a folder: bytes, blocks, numbers, JSON values, whole files.

description = mutate(paths, np.random.default_rng(seed))
"""

import json
import os
import re

# What numbers are replaced by: the borders of what programs can count, and what is no number at all.
NUMBERS = ("0", "1", "-1", "2", "1.5", "-0", "255", "256", "65536", "2147483648", "4294967296", "9223372036854775807")
NUMBERS += ("9223372036854775808", "-9223372036854775809", "1e308", "1e400", "NaN", "Infinity", "9" * 40, "", "x", "٣")
VALUES = (None, True, False, 0, -1, 1, 1.5, 2**31, 2**63, 10**40, 1e308, float("nan"), float("inf"), "", "0", "1", "x")
VALUES += ("é", "\ud800", "a\0b", "../../x", "x" * 5000, [], [[]], {}, {"x": 1}, ["x"], [0], [None] * 3, [1e400])
SPECIAL_BYTES = (b"\0", b"\n", b"\r", b'"', b",", b"\t", b"\xff", b"\xef\xbb\xbf", b"{", b"}", b"[", b"]", b"\0" * 64)
SPECIAL_BYTES += (b"\xff" * 64, b"../", b"\xf0\x9f\x98\x80", b"\xed\xa0\x80", b"[" * 1000, b"x" * 5000)
NUMBER = re.compile(rb"-?\d+(?:\.\d+)?")


def mutate(paths, rng):
    """Damages one of these files in one to three ways; returns what was done, in words."""
    path = str(paths[rng.integers(len(paths))])
    done = [os.path.basename(path)]
    for _ in range(min(rng.geometric(0.7), 3)):
        if not os.path.isfile(path):
            break
        choices = [*WAYS] + 4 * [change_json] * path.endswith((".json", ".jsonl"))
        way = choices[rng.integers(len(choices))]
        done.append(way.__name__)
        way(path, rng)
    return " ".join(done)


def on_bytes(change):
    """Makes a way to damage a file of a function from its content to another."""

    def way(path, rng):
        with open(path, "rb") as file:
            content = file.read()
        with open(path, "wb") as file:
            file.write(change(content, rng))

    way.__name__ = change.__name__
    return way


def place(content, rng):
    """A position; headers, which lie at the beginning or the end, are hit as often as all the rest."""
    length = len(content) + 1
    kind = rng.integers(4)
    if kind == 0:
        return int(rng.integers(min(length, 64)))
    return length - 1 - int(rng.integers(min(length, 128))) if kind == 1 else int(rng.integers(length))


@on_bytes
def flip_bits(content, rng):
    changed = bytearray(content)
    for _ in range(rng.geometric(0.5)):
        if changed:
            changed[min(place(content, rng), len(changed) - 1)] ^= 1 << rng.integers(8)
    return bytes(changed)


@on_bytes
def set_byte(content, rng):
    start = place(content, rng)
    return content[:start] + bytes([rng.integers(256)]) + content[start + 1 :]


@on_bytes
def insert_bytes(content, rng):
    start = place(content, rng)
    inserted = SPECIAL_BYTES[rng.integers(len(SPECIAL_BYTES))] if rng.integers(2) else rng.bytes(rng.integers(1, 17))
    return content[:start] + inserted + content[start:]


@on_bytes
def delete_bytes(content, rng):
    start = place(content, rng)
    return content[:start] + content[start + int(rng.integers(1, 17)) :]


@on_bytes
def truncate(content, rng):
    return content[: place(content, rng)]


@on_bytes
def swap_blocks(content, rng):
    first, second, third = sorted(place(content, rng) for _ in range(3))
    return content[:first] + content[second:third] + content[first:second] + content[third:]


@on_bytes
def repeat_block(content, rng):
    start, end = sorted(place(content, rng) for _ in range(2))
    return content[:end] + content[start:end] * int(rng.integers(1, 4)) + content[end:]


@on_bytes
def double_content(content, _):
    return content * 2


@on_bytes
def empty(_, __):
    return b""


@on_bytes
def write_garbage(_, rng):
    return rng.bytes(rng.integers(1, 2000))


@on_bytes
def change_number(content, rng):
    """Another number in a text; in binary files digits are found, too, and do no harm."""
    matches = list(NUMBER.finditer(content[: 1 << 20]))
    if not matches:
        return content
    match = matches[rng.integers(len(matches))]
    return content[: match.start()] + NUMBERS[rng.integers(len(NUMBERS))].encode() + content[match.end() :]


@on_bytes
def change_json(content, rng):
    """Another value, or none, at a random place of a JSON file, or of one line of a file of JSON lines."""
    lines = [content] if content.lstrip()[:1] in (b"{", b"[") and b"}\n{" not in content else content.split(b"\n")
    number = rng.integers(len(lines))
    try:
        value = json.loads(lines[number])
    except (ValueError, RecursionError):
        return content
    lines[number] = json.dumps(change_value(value, rng)).encode()
    return b"\n".join(lines)


def change_value(value, rng):
    """The value with a change somewhere inside, or another one in its place."""
    inner = list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    if not inner or rng.random() < 0.1:
        return VALUES[rng.integers(len(VALUES))]
    key = inner[rng.integers(len(inner))]
    changed = dict(value) if isinstance(value, dict) else list(value)
    if rng.random() < 0.1:
        del changed[key]
    elif rng.random() < 0.1:
        changed = changed | {"unknown": 1} if isinstance(value, dict) else changed * 2
    else:
        changed[key] = change_value(value[key], rng)
    return changed


def remove(path, _):
    os.remove(path)


def make_folder(path, _):
    os.remove(path)
    os.mkdir(path)


def break_link(path, _):
    os.remove(path)
    os.symlink("nowhere", path)


WAYS = (flip_bits, set_byte, insert_bytes, delete_bytes, truncate, swap_blocks, repeat_block, change_number)
WAYS += WAYS + (double_content, empty, write_garbage, remove, make_folder, break_link)
