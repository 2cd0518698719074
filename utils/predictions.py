"""predictions.csv: one line for each example that a model was asked about."""

import codecs
import csv

import numpy as np
from absl import flags

from utils import files, settings

# The flags belong to the programs that call define_flags, so that their --help shows them.
flags.disclaim_key_flags()

ADVICE = "make room, or choose another --predict_output."


def define_flags():
    flags.DEFINE_integer("top_k", 1, "For --do_predict: name so many of the most probable classes.", lower_bound=1)
    flags.DEFINE_bool("class_probabilities", True, "For --do_predict: a column with the probability of each class.")
    flags.DEFINE_float(
        "unsure_below",
        None,
        "For --do_predict: a column that marks what is less probable as too unsure; report.html suggests a value.",
        lower_bound=0,
        upper_bound=1,
    )


def chosen_options():
    """The options of write_predictions that the flags ask for."""
    return settings.flag_values("top_k", "class_probabilities", "unsure_below")


def check(path, class_names, top_k=1):
    """Raises the errors of write_predictions before there are predictions, which may take hours."""
    if not 1 <= top_k <= len(class_names):
        raise ValueError(f"top_k={top_k}: expected 1 to {len(class_names)}, the number of classes.")
    with files.explain_refusal(path, ADVICE):
        files.open_file(f"{path}.check", "w").close()
        files.remove(f"{path}.check")


def write_predictions(path, inputs, probabilities, class_names, top_k=1, class_probabilities=True, unsure_below=None):
    """Writes a CSV file: the input (name of an image, or text), its label and its probability, and what is asked for.

    Args:
      probabilities: float32 [inputs, classes].
      top_k: add label_2, probability_2 and so on, the next most probable classes.
      class_probabilities: add a column with the probability of each class.
      unsure_below: add a column "unsure": yes if the probability is below, else no; None for no such column.
    """
    check(path, class_names, top_k)
    columns = [("input", inputs)]
    order = np.argsort(-probabilities, axis=1, kind="stable")
    for rank in range(top_k):
        suffix = f"_{rank + 1}" if rank else ""
        columns.append((f"label{suffix}", (class_names[each] for each in order[:, rank])))
        chosen = np.take_along_axis(probabilities, order[:, rank : rank + 1], axis=1)[:, 0]
        columns.append((f"probability{suffix}", map("{:.6f}".format, chosen)))
    if unsure_below is not None:
        columns.append(("unsure", ("yes" if unsure else "no" for unsure in probabilities.max(axis=1) < unsure_below)))
    if class_probabilities:
        columns += [(name, map("{:.6f}".format, probabilities[:, each])) for each, name in enumerate(class_names)]
    with files.explain_refusal(path, ADVICE), files.replacing(path, "wb") as file:  # names of files may be any bytes
        writer = csv.writer(codecs.getwriter("utf-8")(file, "surrogateescape"), lineterminator="\n")
        writer.writerow(name for name, _ in columns)
        writer.writerows(zip(*(values for _, values in columns)))
