"""Reading lines, CSV and JSON lines, also from .gz files; what cannot be read is named with its line."""

import csv
import functools
import gzip
import json
import zlib
from pathlib import Path

# Longer than any text, and short enough to notice a missing quote before the rest of the file is in memory.
MAX_FIELD_LENGTH = 1 << 24


def find_file(name, path):
    """The Path of a file that was given by a setting of this name."""
    if not path or not Path(path).is_file():
        raise ValueError(f"{name}={str(path)!r} does not exist: expected the path of a file")
    return Path(path)


def decode(content, where):
    if b"\0" in content:
        raise ValueError(f"{where}: a NUL byte, so it is not UTF-8 text: save the file as UTF-8")
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"{where}: not UTF-8 text ({error}): save the file as UTF-8") from error


def read_lines(path):
    """Yields the lines of a file, or of a .gz file, with their line ends."""
    opened = gzip.open(path, "rb") if path.suffix == ".gz" else open(path, "rb")
    with opened as file:
        number = 0
        try:
            for number, line in enumerate(file, 1):
                text = decode(line, f"{path}, line {number}")
                yield text.removeprefix("\ufeff") if number == 1 else text  # spreadsheets begin with this mark
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise ValueError(f"{path}, after line {number}: not a whole .gz file ({error}): get it again") from error


# ---- CSV ------------------------------------------------------------------------------------------------------------


def read_csv(path, columns, width, delimiter):
    """Yields (line, values of the columns). Quotes inside of quoted fields are doubled, as in the official files."""
    positions = None
    for line, row in _read_csv_rows(path, delimiter):
        if positions is None:
            positions, width = find_columns(path, columns, row), width or len(row)
            if not has_positions(columns):
                continue
        if len(row) != width:
            raise ValueError(
                f"{path}, line {line}: expected {width} columns, found {len(row)}. A text with {delimiter!r} "
                "in it has to be quoted"
            )
        yield line, [row[position] for position in positions]


def _read_csv_rows(path, delimiter):
    """Yields (line on which the row starts, fields) of all rows but empty lines."""
    csv.field_size_limit(MAX_FIELD_LENGTH)
    reader = csv.reader(read_lines(path), delimiter=delimiter, strict=True)
    while True:
        line = reader.line_num + 1
        try:
            row = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            raise ValueError(
                f"{path}, line {line}: bad quotes ({error}). A text that begins with a quote has to be quoted as a "
                "whole, and the quotes in it doubled"
            ) from error
        if row:
            yield line, row


def has_positions(columns):
    return all(column.isdecimal() for column in columns.values())


def find_columns(path, columns, first_row):
    """Positions of the columns, which are names in the first row or numbers already."""
    given = ", ".join(f"{name}_column={column!r}" for name, column in columns.items())
    if any(column.isdecimal() for column in columns.values()) and not has_positions(columns):
        raise ValueError(f"{given}: expected names for all of them, or positions (a file without a header) for all")
    if has_positions(columns):
        known = [str(position) for position in range(len(first_row))]
        found = {name: str(int(column)) for name, column in columns.items()}
    else:
        known, found = first_row, columns
    refuse_missing(path, found, known)
    return [known.index(column) for column in found.values()]


def refuse_missing(path, columns, known):
    for name, column in columns.items():
        if column not in known:
            raise ValueError(f"{path} has no {name}_column={column!r}: its columns are {', '.join(map(repr, known))}")


# ---- JSON lines -----------------------------------------------------------------------------------------------------


def read_json_lines(path, columns, _width):
    """Yields (line, values of the columns). The first object has to have all columns; in others null is like ""."""
    first = True
    for line, text in enumerate(read_lines(path), 1):
        if not text.strip():
            continue
        where = f"{path}, line {line}"
        try:
            record = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"{where}: not JSON ({error}). Expected one object on each line") from error
        if not isinstance(record, dict):
            raise ValueError(f"{where}: expected a JSON object such as {{...}}, found {type(record).__name__}")
        if first:
            refuse_missing(path, columns, list(record))
            first = False
        yield line, [_json_text(record.get(column), column, where) for column in columns.values()]


def _json_text(value, column, where):
    if value is None:
        return ""
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        raise ValueError(f"{where}: {column!r} is {json.dumps(value)[:50]}: expected a string or a number")
    # JSON can spell half of a surrogate pair, which no UTF-8 file can hold.
    return str(value).encode("utf-8", "replace").decode("utf-8")


# How the columns of a file are read, a dict from name to column: (path, columns, width) -> (line, values).
ENDINGS = {
    "csv": functools.partial(read_csv, delimiter=","),
    "tsv": functools.partial(read_csv, delimiter="\t"),
    "jsonl": read_json_lines,
    "json": read_json_lines,
}
