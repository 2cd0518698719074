"""Which examples the page of a run shows: the surest mistakes and the least sure predictions."""

import numpy as np

from utils import files, page
from utils.page import escape
from utils.run_page import percent

NUM_EXAMPLES = 12


def surest_mistakes(evaluation):
    """Rows of the wrong predictions, the surest first."""
    wrong = np.flatnonzero(~evaluation.correct)
    return wrong[np.argsort(-evaluation.confidence[wrong], kind="stable")][:NUM_EXAMPLES].tolist()


def least_sure(evaluation):
    return np.argsort(evaluation.confidence, kind="stable")[:NUM_EXAMPLES].tolist()


def describe(evaluation, row):
    """What was predicted, how surely, and what is true."""
    predicted, true = evaluation.predictions[row], evaluation.labels[row]
    sure = percent("evaluation.confidence", float(evaluation.confidence[row]))
    text = f"<b>{escape(evaluation.class_names[predicted])}</b> {sure}"
    return f"{text} <br>" + ("right" if predicted == true else f"true: {escape(evaluation.class_names[true])}")


def create(run, show_pairs, show_rows):
    """The sections of a page; where the examples cannot be read, a sentence says why.

    Args:
      show_pairs: a function from the Run to HTML: originals beside their augmentations.
      show_rows: a function (Run, rows of the test set) to HTML.
    """
    sections = [attempt("Augmentation", show_pairs, run)] if run.config.get("unsup_ratio", 1) else []
    if run.evaluation is not None:
        wrong, unsure = surest_mistakes(run.evaluation), least_sure(run.evaluation)
        if wrong:
            sections.append(attempt("The surest mistakes", show_rows, run, wrong))
        sections.append(attempt("The least sure predictions", show_rows, run, unsure))
    return sections


def attempt(title, show, *arguments):
    try:
        return page.section(title, show(*arguments))
    except (ValueError, *files.file_errors()) as error:
        return page.section(title, note=f"Not shown: {' '.join(str(error).split())[:300]}")
