"""utils/statistics.py: intervals that hold what they say, calibration, and the threshold that is suggested."""

import numpy as np
import pytest

from utils import statistics


def test_the_interval_of_a_share_is_that_of_wilson():
    assert statistics.share_interval(45, 50) == (pytest.approx(0.7864, abs=1e-4), pytest.approx(0.9565, abs=1e-4))
    assert statistics.share_interval(50, 50) == (pytest.approx(0.9287, abs=1e-4), pytest.approx(1))
    assert statistics.share_interval(0, 50).low == pytest.approx(0)


def test_the_interval_of_a_mean_is_that_of_student():
    # 2.776 is the 97.5 % quantile with four degrees of freedom; the deviation is the square root of 2.5.
    half = 2.7764451 * np.sqrt(2.5 / 5)
    assert statistics.mean_interval([1, 2, 3, 4, 5]) == (pytest.approx(3 - half), pytest.approx(3 + half))


def test_intervals_of_the_mean_cover_it_as_often_as_they_should():
    rng = np.random.default_rng(0)
    found = [statistics.mean_interval(rng.normal(3, 2, 5)) for _ in range(2000)]
    assert np.mean([low <= 3 <= high for low, high in found]) == pytest.approx(0.95, abs=0.015)


def test_the_paired_bootstrap_agrees_with_drawing_the_examples_one_by_one():
    rng = np.random.default_rng(1)
    other = rng.random(200) < 0.4
    errors = other & (rng.random(200) < 0.7)
    draws = rng.integers(0, 200, [4000, 200])
    means = (errors[draws].astype(int) - other[draws].astype(int)).mean(axis=1)
    low, high = statistics.paired_interval(errors, other)
    assert (low, high) == (pytest.approx(np.quantile(means, 0.025), abs=0.01),
                           pytest.approx(np.quantile(means, 0.975), abs=0.01))  # fmt: skip
    assert high < 0
    assert statistics.paired_interval(errors, errors) == (0, 0)


def test_bins_hold_all_examples_and_the_calibration_error_is_the_mean_gap():
    confidence = np.array([0.05, 0.62, 0.68, 1.0], np.float32)
    correct = np.array([True, True, False, True])
    bins = statistics.reliability(confidence, correct)
    assert [each.count for each in bins] == [1, 0, 0, 0, 0, 0, 2, 0, 0, 1]
    assert bins[6].confidence == pytest.approx(0.65) and bins[6].accuracy == 0.5 and bins[1].accuracy is None
    assert statistics.calibration_error(bins) == pytest.approx((0.95 + 2 * 0.15 + 0) / 4)


def test_the_suggested_threshold_is_the_lowest_that_reaches_the_target():
    confidence = np.linspace(0, 1, 1001, dtype=np.float32)[:-1]
    correct = confidence >= 0.5
    found = statistics.suggest_threshold(confidence, correct)
    assert found.value == 0.48 and found.coverage == pytest.approx(0.52) and found.accuracy == pytest.approx(500 / 520)
    assert statistics.apply_threshold(confidence, correct, 0.47).accuracy < 0.95
    assert statistics.suggest_threshold(confidence, np.ones(1000, bool)).value == 0


def test_no_threshold_is_suggested_by_a_few_examples():
    confidence = np.linspace(0, 0.999, 1000, dtype=np.float32)
    correct = confidence > 0.985  # the 14 surest
    assert statistics.suggest_threshold(confidence, correct) is None
