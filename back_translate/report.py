"""Shows paraphrases beside their originals, and how far they are from them, to choose a temperature by eye.

python -m back_translate.report --original=texts.txt --paraphrases=bt/unsup_in/sample_0.7/para/para_0.txt \
    --paraphrases=bt/unsup_in/sample_0.9/para/para_0.txt --output=report.html

Writes a page, HTML or Markdown as the ending says. The self-BLEU of a file is the BLEU of the paraphrases with their
originals as the reference: 100 if nothing has changed. A lower one means more diverse paraphrases, and sooner or later
ones that no longer mean the same.
"""

import collections
import html
import math
import os
import re

import sacrebleu
from absl import flags

from back_translate import stage_files
from utils import cli, files

FLAGS = flags.FLAGS
MAX_COMPARED = 2000  # so many lines, spread over the file, are compared, so that a file of any length can be
NUM_PRINTED = 5
KEPT_RATIOS = (0.5, 1.5)  # of lengths: training takes the original in place of a paraphrase outside them

Row = collections.namedtuple("Row", "name changed length_ratio kept self_bleu")


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


def short_names(paths):
    """The temperature and the copy, of files where run.sh puts them; else the paths."""
    names = []
    for path in paths:
        match = re.search(r"(sample_[^/]*)/para/(para_\d+)\.txt$", path)
        names.append(f"{match[1]}, {match[2]}" if match else path)
    return names if len(set(names)) == len(names) else list(paths)


# ---- pages ----------------------------------------------------------------------------------------------------------

TITLES = ("", "changed", "length ratio", "ratio 0.5 to 1.5", "self-BLEU")


def cells_of(rows):
    return [
        (row.name, f"{row.changed:.1%}", f"{row.length_ratio:.2f}", f"{row.kept:.1%}", f"{row.self_bleu:.1f}")
        for row in rows
    ]


def format_markdown(rows, names, examples):
    def table(titles, lines):
        escaped = [[escape_markdown(cell) for cell in line] for line in (titles, *lines)]
        escaped.insert(1, ["---"] * len(titles))
        return "\n".join(f"| {' | '.join(line)} |" for line in escaped)

    return "\n\n".join(["# Paraphrases", table(TITLES, cells_of(rows)), table(("original", *names), examples)]) + "\n"


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
        f"<style>{style}</style></head><body>\n<h1>Paraphrases</h1>\n{table(TITLES, cells_of(rows))}\n"
        f"{table(('original', *names), examples)}\n</body></html>\n"
    )


FORMATS = {".html": format_html, ".md": format_markdown}


def write_report(original, paraphrases, output, num_examples):
    """Writes the page. Returns the rows and some examples, tuples of an original and its paraphrases."""
    ending = os.path.splitext(output)[1]
    if ending not in FORMATS:
        raise ValueError(f"output={output}: expected a name that ends in {' or '.join(FORMATS)}.")
    names = short_names(paraphrases)
    originals, *others = compare(original, paraphrases)
    rows = [measure(name, originals, lines) for name, lines in zip(names, others)]
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


def main():
    rows, examples = write_report(FLAGS.original, FLAGS.paraphrases, FLAGS.output, FLAGS.num_examples)
    for original, *paraphrases in examples[:NUM_PRINTED]:
        print("\n".join([f"  {original}", *(f"→ {paraphrase}" for paraphrase in paraphrases)]))
    for row in rows:
        print(
            f"{row.name}: {row.changed:.1%} changed, length ratio {row.length_ratio:.2f}, self-BLEU {row.self_bleu:.1f}"
        )
    print(f"more in {FLAGS.output}")


if __name__ == "__main__":
    cli.run(main, define_flags)
