"""Shows paraphrases beside their originals, and how far they are from them, to choose a temperature by eye.

python -m back_translate.report --original=texts.txt --paraphrases=bt/unsup_in/sample_0.7/para/para_0.txt \
    --paraphrases=bt/unsup_in/sample_0.9/para/para_0.txt --output=report.html --encoder=e5-small

Writes a page, HTML or Markdown as the ending says. Two measures stand side by side:

- self-BLEU, for diversity: the BLEU of the paraphrases with their originals as the reference. 100 if nothing has
  changed; the lower, the more diverse.
- cosine, for validity, with --encoder: the mean cosine of the features of an original and of its paraphrase, each less
  the mean feature of the originals. 1 if nothing has changed; about 0 if originals and paraphrases were paired at
  random. Without the subtraction that would be 0.72 with e5-small, whose features lie in a narrow cone.
"""

import collections
import html
import math
import os
import re

import numpy as np
import sacrebleu
from absl import flags

from back_translate import stage_files
from utils import cli, files

FLAGS = flags.FLAGS
MAX_COMPARED = 2000  # so many lines, spread over the file, are compared, so that a file of any length can be
NUM_PRINTED = 5
KEPT_RATIOS = (0.5, 1.5)  # of lengths: training takes the original in place of a paraphrase outside them

Row = collections.namedtuple("Row", "name changed length_ratio kept self_bleu cosine", defaults=(None,))


def compare(original, paraphrases):
    """Reads the same lines of all files.

    Args:
      original: path; paraphrases: paths.

    Returns:
      lists of str, one for each file: the originals first.
    """
    num_lines = stage_files.count_lines(original)
    if not num_lines:
        raise ValueError(f"original={original} is empty.")
    for path in paraphrases:
        found = stage_files.count_lines(path)
        if found != num_lines:
            raise ValueError(
                f"{path} has {found} lines, {original} has {num_lines}: expected paraphrases line by line."
            )
    step = math.ceil(num_lines / MAX_COMPARED)
    return [
        [" ".join(line.split()) for number, line in enumerate(stage_files.read_lines(path)) if number % step == 0]
        for path in (original, *paraphrases)
    ]


def measure(name, originals, paraphrases):
    pairs = [(old, new) for old, new in zip(originals, paraphrases) if old]
    if not pairs:
        raise ValueError("expected originals that are not all empty.")
    ratios = [len(new) / len(old) for old, new in pairs]
    return Row(
        name,
        changed=sum(old != new for old, new in pairs) / len(pairs),
        length_ratio=sum(ratios) / len(pairs),
        kept=sum(KEPT_RATIOS[0] <= ratio <= KEPT_RATIOS[1] for ratio in ratios) / len(pairs),
        self_bleu=sacrebleu.corpus_bleu([new for _, new in pairs], [[old for old, _ in pairs]]).score,
    )


def measure_cosines(originals, paraphrases, encoder):
    """Mean cosines of originals and paraphrases, see the head of this file.

    Args:
      originals: texts; paraphrases: a list of such lists; encoder: as --init_checkpoint of text.main.

    Returns:
      A float for each list of paraphrases.
    """
    from text import features  # which loads TensorFlow

    real = [number for number, text in enumerate(originals) if text]
    columns = [[texts[number] for number in real] for texts in (originals, *paraphrases)]
    # One call, since loading an encoder takes longer than some hundred texts; each text once, since many stay the same.
    distinct = list(dict.fromkeys(text for column in columns for text in column))
    numbers = {text: number for number, text in enumerate(distinct)}
    try:
        embedded = features.embed(distinct, encoder)  # [texts, width]
    except ValueError as error:
        message = f"encoder={encoder}: expected the name of an encoder, such as e5-small, or its folder"
        raise ValueError(f"{message} ({error})") from error
    old, *others = (embedded[[numbers[text] for text in column]] for column in columns)
    centre = old.mean(axis=0)
    return [float(np.mean(cosines(old - centre, new - centre))) for new in others]


def cosines(left, right):
    """Of the rows of two matrices; 0 where a row is zero, as that of an only original is after the subtraction."""
    lengths = np.linalg.norm(left, axis=1) * np.linalg.norm(right, axis=1)
    return np.sum(left * right, axis=1) / np.maximum(lengths, 1e-12)


def short_names(paths):
    """The temperature and the copy, of files where run.sh puts them; else the paths."""
    names = []
    for path in paths:
        match = re.search(r"(sample_[^/]*)/para/(para_\d+)\.txt$", path)
        names.append(f"{match[1]}, {match[2]}" if match else path)
    return names if len(set(names)) == len(names) else list(paths)


# ---- pages ----------------------------------------------------------------------------------------------------------

COLUMNS = {
    "": lambda row: row.name,
    "changed": lambda row: f"{row.changed:.1%}",
    "length ratio": lambda row: f"{row.length_ratio:.2f}",
    "ratio 0.5 to 1.5": lambda row: f"{row.kept:.1%}",
    "self-BLEU": lambda row: f"{row.self_bleu:.1f}",
    "cosine": lambda row: f"{row.cosine:.3f}",
}


def columns_of(rows):
    """Titles, and the cells of each row; without cosines where none were measured."""
    titles = [title for title in COLUMNS if title != "cosine" or rows[0].cosine is not None]
    return titles, [[COLUMNS[title](row) for title in titles] for row in rows]


def format_markdown(rows, names, examples):
    def table(titles, lines):
        escaped = [[escape_markdown(cell) for cell in line] for line in (titles, *lines)]
        escaped.insert(1, ["---"] * len(titles))
        return "\n".join(f"| {' | '.join(line)} |" for line in escaped)

    return "\n\n".join(["# Paraphrases", table(*columns_of(rows)), table(("original", *names), examples)]) + "\n"


def escape_markdown(text):
    return re.sub(r"([\\`*_\[\]|~])", r"\\\1", html.escape(text, quote=False))


def format_html(rows, names, examples):
    def table(titles, lines):
        def line(tag, cells):
            return f"<tr>{''.join(f'<{tag}>{html.escape(cell)}</{tag}>' for cell in cells)}</tr>"

        return "\n".join(["<table>", line("th", titles), *(line("td", cells) for cells in lines), "</table>"])

    style = "body{font-family:sans-serif}td,th{border:1px solid #bbb;padding:.3em;text-align:left;vertical-align:top}"
    style += "table{border-collapse:collapse;margin-bottom:2em}"
    return (
        f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><title>Paraphrases</title>'
        f"<style>{style}</style></head><body>\n<h1>Paraphrases</h1>\n{table(*columns_of(rows))}\n"
        f"{table(('original', *names), examples)}\n</body></html>\n"
    )


FORMATS = {".html": format_html, ".md": format_markdown}


def write_report(original, paraphrases, output, num_examples, encoder=""):
    """Writes the page, with cosines if there is an encoder.

    Returns:
      the rows and some examples, tuples of an original and its paraphrases.
    """
    ending = os.path.splitext(output)[1]
    if ending not in FORMATS:
        raise ValueError(f"output={output}: expected a name that ends in {' or '.join(FORMATS)}.")
    names = short_names(paraphrases)
    originals, *others = compare(original, paraphrases)
    rows = [measure(name, originals, lines) for name, lines in zip(names, others)]
    if encoder:
        values = measure_cosines(originals, others, encoder)
        rows = [row._replace(cosine=value) for row, value in zip(rows, values)]
    examples = [lines for lines in zip(originals, *others) if lines[0]]
    examples = examples[:: math.ceil(len(examples) / num_examples)]
    with files.replacing(output) as file:
        file.write(FORMATS[ending](rows, names, examples))
    return rows, examples


def define_flags():
    flags.DEFINE_string("original", None, "Text file, one text per line.", required=True)
    flags.DEFINE_multi_string("paraphrases", None, "Paraphrases of it; repeat for more files.", required=True)
    flags.DEFINE_string("output", "paraphrases.html", "Page to write, .html or .md.")
    flags.DEFINE_integer("num_examples", 100, "About how many originals the page shows.", lower_bound=1)
    flags.DEFINE_string(
        "encoder", "", "For cosines: a pre-trained encoder, as --init_checkpoint of text.main; '' for no cosines."
    )


def main():
    arguments = FLAGS.original, FLAGS.paraphrases, FLAGS.output, FLAGS.num_examples, FLAGS.encoder
    rows, examples = write_report(*arguments)
    for original, *paraphrases in examples[:NUM_PRINTED]:
        print("\n".join([f"  {original}", *(f"→ {paraphrase}" for paraphrase in paraphrases)]))
    for row in rows:
        cosine = "" if row.cosine is None else f", cosine {row.cosine:.3f}"
        values = f"length ratio {row.length_ratio:.2f}, self-BLEU {row.self_bleu:.1f}{cosine}"
        print(f"{row.name}: {row.changed:.1%} changed, {values}")
    print(f"more in {FLAGS.output}")


if __name__ == "__main__":
    cli.run(main, define_flags)
