"""Reading lines, CSV and JSON lines, also from .gz files; what cannot be read is named with its line."""

import csv
import functools
import gzip
import json
import zlib

from utils import files

# Longer than any text, and short enough to notice a missing quote before the rest of the file is in memory.
MAX_FIELD_LENGTH = 1 << 24
MAX_LINE_BYTES = 1 << 26  # a line may have several fields; a small .gz file can unpack to a line of any length
BARE_RETURNS = r"its lines end with \r alone: save the file with the line ends of Unix (\n) or Windows (\r\n)"


def find_file(name, path):
    """The path of a file that was given by a setting of this name."""
    if not path or not files.is_file(path):
        raise ValueError(f"{name}={str(path)!r} does not exist: expected the path of a file")
    return str(path)


def decode(content, where):
    if b"\0" in content:
        raise ValueError(f"{where}: a NUL byte, so it is not UTF-8 text: save the file as UTF-8")
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"{where}: not UTF-8 text ({error}): save the file as UTF-8") from error


def read_lines(path):
    """Yields the lines of a file, or of a .gz file, with their line ends."""
    with files.open_file(path, "rb") as stored:
        file = gzip.GzipFile(fileobj=stored) if str(path).endswith(".gz") else stored
        number = 0
        try:
            for number, line in enumerate(iter(functools.partial(file.readline, MAX_LINE_BYTES + 1), b""), 1):
                _check_line(line, number, path)
                text = decode(line, f"{path}, line {number}")
                yield text.removeprefix("\ufeff") if number == 1 else text  # spreadsheets begin with this mark
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise ValueError(f"{path}, after line {number}: not a whole .gz file ({error}): get it again") from error


def _check_line(line, number, path):
    if len(line) > MAX_LINE_BYTES:
        raise ValueError(
            f"{path}, line {number}: more than {MAX_LINE_BYTES >> 20} MB without a line end: expected lines of text"
        )
    if number == 1 and not line.endswith(b"\n") and b"\r" in line.rstrip(b"\r"):
        raise ValueError(f"{path}: {BARE_RETURNS}")


# ---- CSV ------------------------------------------------------------------------------------------------------------


def read_csv(path, columns, width, delimiter):
    """Yields (line, values of the columns). Quotes inside of quoted fields are doubled, as in the official files."""
    positions = None
    for line, row in _read_csv_rows(path, delimiter):
        if positions is None:
            positions, width = find_columns(path, columns, row), width or len(row)
            # A header of numbers, as tables without names of columns are saved, has in each place that place.
            if not has_positions(columns) or [row[position] for position in positions] == list(map(str, positions)):
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
            raise ValueError(f"{path}, line {line}: {_explain_csv_error(error)}") from error
        if row:
            yield line, row


def _explain_csv_error(error):
    """The csv module tells its errors apart by their text only."""
    if "field larger than" in str(error):
        return f"a field of more than {MAX_FIELD_LENGTH:,} characters. A quote that opens it may not be closed"
    if "new-line character" in str(error):
        return BARE_RETURNS
    return (
        f"bad quotes ({error}). A text that begins with a quote has to be quoted as a whole, and the quotes in it "
        "doubled"
    )


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
    repeated = [column for column in found.values() if known.count(column) > 1]
    if repeated:
        raise ValueError(f"{path} has several columns {repeated[0]!r}: rename all but the one that is meant")
    return [known.index(column) for column in found.values()]


def refuse_missing(path, columns, known):
    for name, column in columns.items():
        if column not in known:
            raise ValueError(
                f"{path} has no {name}_column={column!r}: its columns are {files.join_names(map(repr, known))}"
            )


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
