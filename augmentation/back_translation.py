"""Joins paraphrases made by back-translation (paper, section 2.3) to their texts, unless their length differs too much.

    path = paraphrase_path("data/back_translation", "unsup_in", temperature=0.9, copy=0)
    paraphrases = open_paraphrases(path, num_texts=len(texts))              # reads the file once to check it
    accepted = accept([len(text) for text in texts[100:200]], paraphrases.read(100, 200))

Files are laid out as the original release's. Examples of two texts have two lines each, first the body, then the title.
"""

import itertools
import os
from typing import NamedTuple

from utils import files

MIN_CHARACTERS = 10
MAX_LENGTH_DIFFERENCE = 0.5  # as a share of the original's length
LINES_PER_OFFSET = 256


def paraphrase_path(bt_dir, sub_set, temperature, copy):
    return os.path.join(bt_dir, sub_set, f"sample_{temperature:.1f}", "para", f"para_{copy}.txt")


class Paraphrases(NamedTuple):
    """A checked file of paraphrases; small enough to be sent to other processes, and read there from any line on."""

    path: str
    num_texts: int
    offsets: tuple[int, ...]  # where lines 0, LINES_PER_OFFSET, 2·LINES_PER_OFFSET, ... begin

    def read(self, start, stop):
        """Returns the paraphrases of texts `start` to `stop` - 1 as a list of str."""
        if not 0 <= start <= stop <= self.num_texts:
            raise ValueError(f"expected 0 <= start <= stop <= {self.num_texts}, got start={start}, stop={stop}.")
        if start == stop:
            return []
        with files.open_file(self.path, "rb") as file:
            file.seek(self.offsets[start // LINES_PER_OFFSET])
            lines = list(itertools.islice(file, start % LINES_PER_OFFSET, start % LINES_PER_OFFSET + stop - start))
        if len(lines) < stop - start:
            raise ValueError(
                f"{self.path} ends before line {start + len(lines) + 1}, expected {self.num_texts} lines: it has "
                "changed since it was checked. Start again."
            )
        return [_decode(line, self.path, number) for number, line in enumerate(lines, start)]


def refuse_missing(path):
    if not files.is_file(path):
        raise ValueError(
            f"{path} is missing, expected a file of paraphrases: make it with back_translate/run.sh, or check the "
            "folder, the sub-set, the temperature and the number of copies. tf_idf-0.7 needs no paraphrases."
        )


def open_paraphrases(path, num_texts):
    """Checks a file of paraphrases from beginning to end, in bounded memory, and returns it as Paraphrases.

    Args:
      num_texts: number of lines that it must have.
    """
    refuse_missing(path)
    offsets, offset, num_lines = [], 0, 0
    with files.open_file(path, "rb") as file:
        for line in file:
            if num_lines % LINES_PER_OFFSET == 0:
                offsets.append(offset)
            _decode(line, path, num_lines)
            offset += len(line)
            num_lines += 1
    if num_lines != num_texts:
        where = f"goes on after line {num_texts}" if num_lines > num_texts else f"ends before line {num_lines + 1}"
        raise ValueError(
            f"{path} {where}: it has {num_lines} lines, expected {num_texts}, one for each text (two for an example "
            "with a title). It was made from other data or is unfinished: make it again with back_translate/run.sh."
        )
    return Paraphrases(path, num_texts, tuple(offsets))


def _decode(line, path, number):
    try:
        text = line.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{path} line {number + 1} is not valid UTF-8 ({error.reason} at byte {error.start}): save it as UTF-8."
        ) from error
    return text.removeprefix("\ufeff").strip()  # a byte order mark and Windows line ends are no part of the text


def accept(lengths, paraphrases):
    """Whether each paraphrase is taken, given the lengths of the originals in characters; else the original is kept."""
    if len(lengths) != len(paraphrases):
        raise ValueError(
            f"expected one paraphrase for each text, got {len(paraphrases)} paraphrases of {len(lengths)} texts: "
            "read the same range of both."
        )
    return [is_acceptable(length, len(paraphrase)) for length, paraphrase in zip(lengths, paraphrases)]


def is_acceptable(original_length, paraphrase_length):
    """True if both have ten characters or more and the length changes by half the original's at most."""
    if min(original_length, paraphrase_length) < MIN_CHARACTERS:
        return False
    return abs(paraphrase_length - original_length) <= MAX_LENGTH_DIFFERENCE * original_length
