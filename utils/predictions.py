"""predictions.csv: one line for each example that a model was asked about."""

import csv

import numpy as np

from utils import files


def write_predictions(path, inputs, probabilities, class_names):
    """Writes a CSV file: the input (name of an image, or text), its label, its probability, and that of each class."""
    with files.explain_refusal(path, "make room, or choose another --predict_output."):
        with files.replacing(path) as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(["input", "label", "probability", *class_names])
            for name, row in zip(inputs, probabilities):
                best = int(np.argmax(row))
                writer.writerow([name, class_names[best], f"{row[best]:.6f}", *(f"{value:.6f}" for value in row)])
