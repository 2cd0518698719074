"""utils/label_budget.py: the formula of the theorem is what chance does, and its bound holds."""

import numpy as np
import pytest

from tests.programs import run_main
from utils import label_budget

SHARES = [0.5, 0.3, 0.15, 0.05]


@pytest.mark.parametrize("num_labels", [0, 1, 5, 20])
def test_the_expected_error_is_what_monte_carlo_finds(num_labels):
    rng, trials = np.random.default_rng(num_labels), 100_000
    labelled = rng.choice(len(SHARES), [trials, num_labels], p=SHARES)
    examples = rng.choice(len(SHARES), trials, p=SHARES)
    unknown = ~(labelled == examples[:, np.newaxis]).any(axis=1)
    expected = label_budget.expected_error(SHARES, num_labels)
    assert abs(unknown.mean() - expected) < 5 * np.sqrt(0.25 / trials)


@pytest.mark.parametrize("num_components", [1, 2, 10])
@pytest.mark.parametrize("num_labels", [0, 1, 10, 1000])
def test_no_shares_exceed_the_bound(num_components, num_labels):
    bound = label_budget.error_bound(num_components, num_labels)
    rng = np.random.default_rng(0)
    drawn = rng.dirichlet(np.full(num_components, 0.3), 500)
    assert max(label_budget.expected_error(shares, num_labels) for shares in drawn) <= bound + 1e-12
    assert bound <= min(num_components / (num_labels + 1), 1) + 1e-12


def test_the_bound_of_a_term_is_reached_and_that_of_the_paper_does_not_hold():
    m = 10
    term = label_budget.expected_error([1 / (m + 1)], m)
    np.testing.assert_allclose(label_budget.error_bound(1, m), term)
    np.testing.assert_allclose(label_budget.expected_error([1 / 11, 10 / 11], m), 0.0350, atol=5e-5)
    assert label_budget.expected_error([1 / 11, 10 / 11], m) > np.exp(-m / 2)


@pytest.mark.parametrize("error", [0.3, 0.05, 1e-4])
def test_one_label_less_than_needed_is_too_few(error):
    def error_of(number):
        return label_budget.expected_error(SHARES, number)

    needed = label_budget.labels_needed(error_of, error)
    assert error_of(needed) < error <= error_of(needed - 1)
    assert label_budget.labels_needed(lambda number: label_budget.error_bound(4, number), error) >= needed


def test_one_component_needs_one_label():
    assert label_budget.labels_needed(lambda number: label_budget.expected_error([1.0], number), 0.05) == 1


def test_sizes_become_shares(tmp_path, capsys):
    (tmp_path / "sizes.txt").write_text("50, 30\n15 5\n")
    output = tmp_path / "budget.png"
    run_main(label_budget, f"--shares_file={tmp_path}/sizes.txt", "--error=0.05,0.01", f"--output={output}")
    from_file = capsys.readouterr().out
    run_main(label_budget, "--shares=0.5,0.3,0.15,0.05", "--error=0.05,0.01", f"--output={output}")
    assert capsys.readouterr().out == from_file
    needed = label_budget.labels_needed(lambda number: label_budget.expected_error(SHARES, number), 0.01)
    assert "4 components, from 5.00% to 50.00%" in from_file and f"| 0.01 | {needed:,} | " in from_file
    assert output.stat().st_size > 1000


def test_clusters_of_features_are_found_with_their_shares(tmp_path, capsys):
    rng = np.random.default_rng(0)
    rows = np.repeat([0, 1, 2], [60, 30, 10])
    unlabeled = (100 * np.eye(3)[rows] + rng.normal(size=[100, 3])).astype(np.float32)
    np.savez(tmp_path / "features.npz", unlabeled=unlabeled, features=unlabeled[:2])
    np.testing.assert_allclose(sorted(label_budget.cluster(unlabeled, 3)), [0.1, 0.3, 0.6])
    run_main(label_budget, f"--features={tmp_path}/features.npz", "--clusters=3", f"--output={tmp_path}/budget.png")
    assert "3 components, from 10.00% to 60.00%" in capsys.readouterr().out


@pytest.mark.parametrize(
    "flags, message",
    [
        ([], "expected one of --shares, --shares_file and --features, found none"),
        (["--shares=0.5", "--features=a.npy"], "found shares and features"),
        (["--shares=0.5,-1"], "shares='0.5,-1': expected positive numbers"),
        (["--shares=half"], "shares='half': expected positive numbers"),
        (["--shares=1", "--error=2"], "error=2: expected numbers between 0 and 1"),
    ],
)
def test_wrong_flags_end_in_one_line(flags, message, tmp_path):
    with pytest.raises(SystemExit, match=message):
        run_main(label_budget, *flags, f"--output={tmp_path}/budget.png")
