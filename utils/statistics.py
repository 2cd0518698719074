"""Intervals and calibration: how far the figures of a run can be trusted."""

import collections

import numpy as np
from scipy import special  # not scipy.stats, which takes a second and more to import

LEVEL = 0.95  # of all intervals
NUM_RESAMPLES = 10_000
TARGET, MIN_KEPT = 0.95, 20  # of suggest_threshold
THRESHOLDS = (*(number / 100 for number in range(100)), 0.995, 0.999, 0.9999)

Interval = collections.namedtuple("Interval", "low high")
Bin = collections.namedtuple("Bin", "low high count confidence accuracy")  # the last two are None in an empty one
Threshold = collections.namedtuple("Threshold", "value coverage accuracy")


# ---- intervals ------------------------------------------------------------------------------------------------------


def share_interval(num_hits, num_examples):
    """Wilson's interval of a share, such as the accuracy on a test set; it stays within 0 and 1."""
    z = special.ndtri((1 + LEVEL) / 2)
    share, square = num_hits / num_examples, z * z / num_examples
    center = (share + square / 2) / (1 + square)
    half = z * np.sqrt(share * (1 - share) / num_examples + square / (4 * num_examples)) / (1 + square)
    return Interval(float(max(center - half, 0.0)), float(min(center + half, 1.0)))


def mean_interval(values):
    """Student's interval of the mean of two or more values, such as paired differences over draws of the labels."""
    half = special.stdtrit(len(values) - 1, (1 + LEVEL) / 2) * np.std(values, ddof=1) / np.sqrt(len(values))
    return Interval(float(np.mean(values) - half), float(np.mean(values) + half))


def paired_interval(errors, baseline_errors):
    """Bootstrap interval of the difference of two error rates on the same test examples.

    Args:
      errors, baseline_errors: whether each example is wrong, bool [examples].
    """
    differences = errors.astype(int) - baseline_errors.astype(int)  # -1, 0 or 1
    counts = np.array([(differences == value).sum() for value in (-1, 0, 1)])
    # To draw examples with replacement is to draw the numbers of the three kinds.
    draws = np.random.default_rng(0).multinomial(len(errors), counts / len(errors), NUM_RESAMPLES)
    means = (draws[:, 2] - draws[:, 0]) / len(errors)
    return Interval(*map(float, np.quantile(means, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])))


# ---- calibration ----------------------------------------------------------------------------------------------------


def reliability(confidence, correct, num_bins=10):
    """Bins of equal width from 0 to 1: how many examples, how sure on average, how many of them right."""
    numbers = np.minimum((confidence * num_bins).astype(int), num_bins - 1)
    bins = []
    for number in range(num_bins):
        rows = numbers == number
        means = [float(values[rows].mean()) if rows.any() else None for values in (confidence, correct)]
        bins.append(Bin(number / num_bins, (number + 1) / num_bins, int(rows.sum()), *means))
    return bins


def calibration_error(bins):
    """The expected calibration error: |confidence − accuracy|, averaged over the examples."""
    gaps = [each.count * abs(each.confidence - each.accuracy) for each in bins if each.count]
    return sum(gaps) / sum(each.count for each in bins)


def apply_threshold(confidence, correct, value):
    """What part of the examples is at least so sure, and how many of these are right (None if there are none)."""
    kept = confidence >= value
    return Threshold(value, float(kept.mean()), float(correct[kept].mean()) if kept.any() else None)


def suggest_threshold(confidence, correct, target=TARGET):
    """The lowest of THRESHOLDS with an accuracy of at least `target` on MIN_KEPT or more examples; None if none is."""
    for value in THRESHOLDS:
        if np.sum(confidence >= value) < MIN_KEPT:
            return None
        found = apply_threshold(confidence, correct, value)
        if found.accuracy >= target:
            return found
    return None
