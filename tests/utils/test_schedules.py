"""Learning-rate schedules at the points that the formulas fix."""

import numpy as np
import pytest

from utils.schedules import WarmupCosine, WarmupInverseSqrt, WarmupLinear, WarmupSteps, WarmupWholeCosine


@pytest.mark.parametrize("step, share", [(0, 1.0), (500, np.cos(7 / 32 * np.pi)), (1000, 0.19509032)])
def test_cosine_ends_at_a_fifth_of_the_peak(step, share):
    np.testing.assert_allclose(WarmupCosine(0.03, 1000)(step), 0.03 * share, rtol=1e-5)


def test_warm_up_is_linear_and_joins_the_cosine():
    schedule = WarmupCosine(0.03, 1000, warmup_steps=100)
    np.testing.assert_allclose(schedule(0), 0.0)
    np.testing.assert_allclose(schedule(50), 0.015, rtol=1e-6)
    np.testing.assert_allclose(schedule(100), 0.03, rtol=1e-6)
    np.testing.assert_allclose(schedule(1000), 0.03 * 0.19509032, rtol=1e-5)


@pytest.mark.parametrize("step, share", [(0, 0), (50, 0.5), (100, 1), (325, 0.85355339), (550, 0.5), (1000, 0)])
def test_the_whole_cosine_falls_to_0_after_the_warm_up(step, share):
    schedule = WarmupWholeCosine(0.03, 1000, warmup_steps=100)
    np.testing.assert_allclose(schedule(step), 0.03 * share, rtol=1e-5, atol=1e-9)


@pytest.mark.parametrize(
    "step, share",
    [(0, 0.0), (1, 0.01), (50, 0.5), (99, 0.99), (100, 0.9), (550, 0.45), (999, 0.001), (1000, 0), (1001, 0)],
)
def test_linear_decay_counts_from_step_0_so_that_the_rate_falls_after_the_warm_up(step, share):
    np.testing.assert_allclose(WarmupLinear(2e-5, 1000, warmup_steps=100)(step), 2e-5 * share, rtol=1e-4, atol=1e-12)


def test_linear_decay_without_warm_up_starts_at_the_peak():
    np.testing.assert_allclose(WarmupLinear(2e-5, 1000)([0, 500, 1000]), [2e-5, 1e-5, 0], rtol=1e-6)


@pytest.mark.parametrize(
    "epoch, share",
    [(0, 0), (2.5, 0.5), (5, 1), (29.9, 1), (30, 0.1), (59.9, 0.1), (60, 0.01), (79.9, 0.01), (80, 1e-3), (90, 1e-3)],
)
def test_steps_of_the_imagenet_schedule_come_after_30_60_and_80_of_90_epochs(epoch, share):
    schedule = WarmupSteps(0.3, train_steps=90_000, warmup_steps=5_000)
    np.testing.assert_allclose(schedule(int(epoch * 1000)), 0.3 * share, rtol=1e-5)


def test_steps_fall_at_the_first_update_past_a_boundary_that_is_no_whole_number():
    schedule = WarmupSteps(1.0, train_steps=40_000)  # 13,333.3, 26,666.7 and 35,555.6
    rates = [float(schedule(step)) for step in (0, 13_333, 13_334, 26_666, 26_667, 35_555, 35_556)]
    np.testing.assert_allclose(rates, [1, 1, 0.1, 0.1, 0.01, 0.01, 0.001], rtol=1e-5)


@pytest.mark.parametrize("step, share", [(0, 0), (50, 0.5), (100, 1), (400, 0.5), (10_000, 0.1)])
def test_the_transformers_rate_falls_as_one_over_the_root_of_the_step(step, share):
    schedule = WarmupInverseSqrt(1e-3, train_steps=10_000, warmup_steps=100)
    np.testing.assert_allclose(schedule(step), 1e-3 * share, rtol=1e-5)


@pytest.mark.parametrize(
    "schedule_class", [WarmupCosine, WarmupInverseSqrt, WarmupLinear, WarmupSteps, WarmupWholeCosine]
)
def test_schedule_is_restored_from_its_configuration(schedule_class):
    schedule = schedule_class(0.03, 1000, 10)
    assert schedule_class.from_config(schedule.get_config()).get_config() == schedule.get_config()
