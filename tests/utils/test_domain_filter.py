"""utils/domain_filter.py: the most confident examples of each class, in one pass that can be killed."""

import json
import os
import re
import signal
import subprocess
import sys

import numpy as np
import pytest
from PIL import Image

from utils import domain_filter, files

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
CLASS_NAMES = ("cat", "dog", "bird")


def random_probabilities(num_examples, num_classes=3, seed=0, decimals=None):
    """Rows of probabilities, of which some are very close to one class; with `decimals` there are many ties."""
    rng = np.random.default_rng(seed)
    logits = rng.normal(size=[num_examples, num_classes]) * rng.uniform(0.1, 8, [num_examples, 1])
    logits[:, 0] += 2  # more examples of one class than of the others
    probabilities = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    if decimals:
        probabilities = np.round(probabilities, decimals)
        probabilities /= probabilities.sum(axis=1, keepdims=True)
    return probabilities.astype(np.float32)


def sort_fully(probabilities, num_per_class, min_probability=0.0):
    """The same choice by sorting each class as a whole: ascending positions."""
    labels, chosen = np.argmax(probabilities, axis=1), []
    for label in range(probabilities.shape[1]):
        positions = np.flatnonzero((labels == label) & (probabilities.max(axis=1) >= min_probability))
        doubts = np.delete(probabilities[positions].astype(np.float64), label, axis=1).sum(axis=1).astype(np.float32)
        chosen.append(positions[np.argsort(doubts, kind="stable")][:num_per_class])
    return np.sort(np.concatenate(chosen))


def select_rows(path, probabilities, num_per_class, min_probability=0.0, block_size=7, unusable=(), **options):
    """Selects from a pool of which each example is its own row of probabilities."""

    def read(start):
        return (
            None if position in unusable else probabilities[position] for position in range(start, len(probabilities))
        )

    options = {"read": read, "settings": {"pool": "a"}, "predict_proba": np.stack} | options
    config = domain_filter.FilterConfig("model", "pool", num_per_class, min_probability, batch_size=block_size)
    num_examples, num_classes = probabilities.shape
    return domain_filter.select(
        num_examples=num_examples, num_classes=num_classes, config=config, state_path=path / "state.npz", **options
    )


# ---- what is kept ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("decimals", [None, 1])
@pytest.mark.parametrize("num_per_class", [1, 6, 1000])
@pytest.mark.parametrize("block_size", [1, 7, 64, 1000])
def test_the_choice_equals_a_full_sort_whatever_the_block_size(tmp_path, block_size, num_per_class, decimals):
    probabilities = random_probabilities(300, seed=block_size, decimals=decimals)
    kept = select_rows(tmp_path, probabilities, num_per_class, block_size=block_size).kept()
    np.testing.assert_array_equal(kept.positions, sort_fully(probabilities, num_per_class))
    np.testing.assert_array_equal(kept.labels, np.argmax(probabilities[kept.positions], axis=1))
    np.testing.assert_allclose(kept.probabilities, probabilities[kept.positions].max(axis=1), atol=1e-6)


def test_each_class_keeps_equally_many(tmp_path):
    probabilities = random_probabilities(1000)
    predicted = np.bincount(np.argmax(probabilities, axis=1))
    assert predicted.max() > 2 * predicted.min()
    selection = select_rows(tmp_path, probabilities, num_per_class=50)
    assert np.bincount(selection.kept().labels).tolist() == [50, 50, 50]
    np.testing.assert_array_equal(selection.num_predicted, predicted)


def test_among_equals_the_first_are_kept(tmp_path):
    probabilities = np.tile(np.float32([[0.9, 0.1], [0.25, 0.75]]), [50, 1])
    kept = select_rows(tmp_path, probabilities, num_per_class=3).kept()
    assert kept.positions.tolist() == [0, 1, 2, 3, 4, 5]


def test_probabilities_that_round_to_one_are_still_ordered(tmp_path):
    doubts = np.float32([1e-9, 1e-12, 1e-10, 1e-11])
    probabilities = np.stack([np.float32(1) - doubts, doubts], axis=1)
    assert set(probabilities[:, 0]) == {1}
    kept = select_rows(tmp_path, probabilities, num_per_class=2).kept()
    assert kept.positions.tolist() == [1, 3]


def test_memory_is_bounded_by_what_is_kept():
    selection = domain_filter.Selection(num_classes=3, num_per_class=10)
    probabilities = random_probabilities(5000)
    most = 0
    for start in range(0, 5000, 20):
        positions = np.arange(start, start + 20)
        block = domain_filter.Block(positions, None, np.zeros(0, np.int64), start + 20)
        selection.add(block, probabilities[positions])
        most = max(most, sum(len(column[0]) for column in selection._candidates))
    assert most <= 2 * 3 * 10 + 20
    np.testing.assert_array_equal(selection.kept().positions, sort_fully(probabilities, 10))


def test_less_confident_examples_are_left_out(tmp_path):
    probabilities = random_probabilities(300)
    kept = select_rows(tmp_path, probabilities, num_per_class=1000, min_probability=0.9).kept()
    np.testing.assert_array_equal(kept.positions, np.flatnonzero(probabilities.max(axis=1) >= 0.9))
    assert 0 < len(kept.positions) < 300


def test_examples_that_cannot_be_used_are_passed_over(tmp_path):
    probabilities, unusable = random_probabilities(40), {0, 5, *range(14, 28), 39}  # two whole blocks of 7 among them
    selection = select_rows(tmp_path, probabilities, num_per_class=40, unusable=unusable)
    assert selection.skipped.tolist() == sorted(unusable)
    assert selection.kept().positions.tolist() == sorted(set(range(40)) - unusable)
    assert selection.num_predicted.sum() == 40 - len(unusable)


# ---- errors ---------------------------------------------------------------------------------------------------------


def test_a_pool_without_any_confident_example_is_an_error_and_can_be_tried_again(tmp_path):
    probabilities = np.tile(np.float32([0.5, 0.3, 0.2]), [20, 1])
    with pytest.raises(
        ValueError,
        match=r"None of the 20 examples of the pool reaches min_probability=0\.9: the highest probability is "
        r"0\.500000\. Use a lower --min_probability",
    ):
        select_rows(tmp_path, probabilities, 5, min_probability=0.9, save_seconds=0)
    assert len(select_rows(tmp_path, probabilities, 5, min_probability=0.4).kept().positions) == 5


def test_a_pool_without_any_usable_example_is_an_error(tmp_path):
    with pytest.raises(ValueError, match="None of the 9 examples of the pool can be used: all are empty or unreadable"):
        select_rows(tmp_path, random_probabilities(9), 5, unusable=range(9))


def test_a_pool_that_changes_meanwhile_is_an_error(tmp_path):
    with pytest.raises(ValueError, match="The pool had 9 examples, now 8: it was changed"):
        select_rows(tmp_path, random_probabilities(9), 5, read=lambda start: iter(random_probabilities(8)))


@pytest.mark.parametrize(
    "predict_proba, message",
    [
        (lambda rows: np.stack(rows)[:, :2], r"shape=\(7, 2\): expected \(7, 3\)"),
        (
            lambda rows: np.stack(rows) * np.nan,
            "no probabilities for the examples 0 to 6: .* Has the training",
        ),
        (lambda rows: np.log(np.stack(rows)), "no probabilities for the examples 0 to 6"),
        (lambda rows: np.stack(rows) * [-1, 2, 1], "no probabilities for the examples 0 to 6"),
    ],
)
def test_what_is_not_probabilities_is_refused(tmp_path, predict_proba, message):
    with pytest.raises(ValueError, match=f"predict_proba gave {message}"):
        select_rows(tmp_path, random_probabilities(20), 5, predict_proba=predict_proba)


def test_an_error_of_the_reader_arrives(tmp_path):
    def read(start):
        yield from random_probabilities(10)
        raise ValueError("line 11: not JSON")

    with pytest.raises(ValueError, match="line 11: not JSON"):
        select_rows(tmp_path, random_probabilities(20), 5, read=read)


# ---- kills ----------------------------------------------------------------------------------------------------------

# Ends itself by SIGKILL when it comes to the block that begins with position 140 of 300.
KILLED_SCRIPT = """
import os, pathlib, signal, sys
import numpy as np
from tests.utils import test_domain_filter as test
def predict_proba(rows):
    if np.array_equal(rows[0], probabilities[140]):
        os.kill(os.getpid(), signal.SIGKILL)
    return np.stack(rows)
probabilities = test.random_probabilities(300)
test.select_rows(pathlib.Path(sys.argv[1]), probabilities, 20, 0.3, predict_proba=predict_proba,
                 unusable={3, 8, 200}, save_seconds=0)
"""


@pytest.fixture(scope="module")
def killed_state(tmp_path_factory):
    folder = tmp_path_factory.mktemp("killed")
    process = subprocess.run([sys.executable, "-c", KILLED_SCRIPT, folder], cwd=ROOT, capture_output=True)
    assert process.returncode == -signal.SIGKILL, process.stderr.decode()
    return (folder / "state.npz").read_bytes()


@pytest.mark.slow
def test_a_resumed_run_equals_an_uninterrupted_one(killed_state, tmp_path):
    (tmp_path / "state.npz").write_bytes(killed_state)
    probabilities, seen = random_probabilities(300), []

    def predict_proba(rows):
        seen.extend(rows)
        return np.stack(rows)

    options = {"num_per_class": 20, "min_probability": 0.3, "unusable": {3, 8, 200}}
    resumed = select_rows(tmp_path, probabilities, predict_proba=predict_proba, **options)
    np.testing.assert_array_equal(seen, np.delete(probabilities, [3, 8, 200], axis=0)[138:])  # not from the beginning
    (tmp_path / "other").mkdir()
    whole = select_rows(tmp_path / "other", probabilities, **options)
    for name in domain_filter.STATE_FIELDS:
        np.testing.assert_array_equal(getattr(resumed, name), getattr(whole, name), err_msg=name)
    for found, expected in zip(resumed.kept(), whole.kept()):
        np.testing.assert_array_equal(found, expected)
    assert domain_filter.summarize(resumed, CLASS_NAMES) == domain_filter.summarize(whole, CLASS_NAMES)


def test_a_finished_run_is_not_done_again(tmp_path):
    probabilities = random_probabilities(50)
    first = select_rows(tmp_path, probabilities, 5).kept()
    again = select_rows(tmp_path, probabilities, 5, predict_proba=None).kept()
    np.testing.assert_array_equal(again.positions, first.positions)


@pytest.mark.parametrize(
    "change, message",
    [
        ({"num_per_class": 6}, "num_per_class: was 20, now 6"),
        ({"min_probability": 0.5}, r"min_probability: was 0\.3, now 0\.5"),
        ({"settings": {"pool": "b"}}, "pool: was 'a', now 'b'"),
        ({"settings": {"pool": "a", "model": "c"}}, "model: was None, now 'c'"),
    ],
)
def test_the_state_of_another_selection_is_refused(killed_state, tmp_path, change, message):
    (tmp_path / "state.npz").write_bytes(killed_state)
    options = {"num_per_class": 20, "min_probability": 0.3} | change
    with pytest.raises(
        ValueError, match=rf"state\.npz is of another selection \({message}\)\. Delete it to start again"
    ):
        select_rows(tmp_path, random_probabilities(300), **options)


def test_a_damaged_state_is_refused(killed_state, tmp_path):
    (tmp_path / "state.npz").write_bytes(killed_state[: len(killed_state) // 2])
    with pytest.raises(ValueError, match=r"state\.npz cannot be read \(.*\): delete it to start again"):
        select_rows(tmp_path, random_probabilities(300), 20)


@pytest.mark.parametrize(
    "changes, reason",
    [
        ({"settings": "[]"}, "its settings are no object"),
        ({"settings": "["}, "Expecting value"),
        ({"end": None}, "end"),
        ({"end": np.array([3])}, r"end has shape=\(1,\), dtype=int64: expected shape=\(\)"),
        (
            {"labels": np.array([99], np.int32), "positions": np.array([0]), "doubts": np.zeros(1, np.float32)},
            "labels has",
        ),
        ({"doubts": np.zeros(3, np.float32)}, "doubts has shape"),
        ({"positions": np.array(3)}, "has shape"),
        ({"histogram": np.zeros(40)}, "histogram has .*dtype=float64"),
        ({"skipped": np.array([-5])}, "skipped has numbers that are not from 0"),
        ({"least_doubt": np.float32("nan")}, "least_doubt has numbers"),
    ],
)
def test_a_state_of_another_shape_is_refused(killed_state, tmp_path, changes, reason):
    (tmp_path / "state.npz").write_bytes(killed_state)
    arrays = files.read_arrays(tmp_path / "state.npz") | changes
    files.write_arrays(tmp_path / "state.npz", **{name: value for name, value in arrays.items() if value is not None})
    with pytest.raises(ValueError, match=rf"state\.npz cannot be read \(.*{reason}.*\): delete it to start again"):
        select_rows(tmp_path, random_probabilities(300), 20, min_probability=0.3)


def test_the_state_is_whole_at_any_time(tmp_path, monkeypatch):
    probabilities = random_probabilities(60)
    select_rows(tmp_path, probabilities, 5)
    before = (tmp_path / "state.npz").read_bytes()

    def fail(file, **arrays):
        file.write(b"half of")
        raise OSError("No space left on device")

    monkeypatch.setattr(np, "savez", fail)
    with pytest.raises(ValueError, match=r"state\.npz cannot be written \(No space left on device\): make room"):
        select_rows(tmp_path, probabilities, 5)
    assert (tmp_path / "state.npz").read_bytes() == before


# ---- report ---------------------------------------------------------------------------------------------------------


def test_the_summary_tells_counts_and_thresholds(tmp_path):
    probabilities = random_probabilities(300)
    selection = select_rows(tmp_path, probabilities, 60, 0.9, unusable={1, 2, 3})
    summary = json.loads(json.dumps(domain_filter.summarize(selection, CLASS_NAMES)))
    kept = selection.kept()
    assert summary["num_examples"] == 300 and summary["num_skipped"] == 3
    assert summary["num_kept"] == len(kept.positions) and summary["share_of_pool"] == len(kept.positions) / 300
    assert sum(entry["predicted"] for entry in summary["classes"].values()) == 297
    for label, name in enumerate(CLASS_NAMES):
        chosen, entry = kept.probabilities[kept.labels == label], summary["classes"][name]
        assert entry["kept"] == len(chosen)
        assert entry["lowest_probability"] == pytest.approx(chosen.min(), abs=1e-8) and chosen.min() >= 0.9
        assert entry["highest_probability"] == pytest.approx(chosen.max(), abs=1e-8)


def test_classes_with_too_few_examples_are_reported(tmp_path):
    probabilities = np.float32([[0.8, 0.1, 0.1]] * 6 + [[0.1, 0.8, 0.1]] * 2)
    selection = select_rows(tmp_path, probabilities, 3, unusable={7})
    summary = domain_filter.summarize(selection, CLASS_NAMES)
    assert "lowest_probability" not in summary["classes"]["bird"]
    assert domain_filter.describe(summary) == (
        "kept 4 of 8 examples (50.00%); 1 could not be used\n"
        "2 of 3 classes have fewer than num_per_class=3: 'dog' 1, 'bird' 0"
    )


def test_nothing_is_reported_when_all_classes_are_full(tmp_path):
    summary = domain_filter.summarize(select_rows(tmp_path, random_probabilities(300), 3), CLASS_NAMES)
    assert domain_filter.describe(summary) == "kept 9 of 300 examples (3.00%)"


def test_the_histogram_counts_the_nines():
    doubts = np.float32([1, 0.5, 0.11, 0.09, 0.011, 0.009, 2e-7, 1e-30, 0])
    nines = domain_filter.bins_of(doubts) // domain_filter.BINS_PER_NINE
    assert nines.tolist() == [0, 0, 0, 1, 1, 2, 6, 7, 7]


def test_the_picture_is_drawn(tmp_path):
    selection = select_rows(tmp_path, random_probabilities(300), 20)
    assert selection.histogram.sum() == 300
    domain_filter.draw_histogram(tmp_path / "kept.png", selection, CLASS_NAMES)
    with Image.open(tmp_path / "kept.png") as picture:
        colors = {color for _, color in picture.convert("RGB").getcolors(1 << 20)}
    assert {(211, 211, 211), (31, 119, 180)} <= colors  # the pool and what was kept


def test_many_classes_can_be_drawn_and_few_of_them_are_named(tmp_path):
    names = [str(number) for number in range(100)]
    selection = select_rows(tmp_path, random_probabilities(500, num_classes=100), 100)
    domain_filter.draw_histogram(tmp_path / "kept.png", selection, names)
    lines = domain_filter.describe(domain_filter.summarize(selection, names))
    assert re.fullmatch(r"kept .*\n\d+ of 100 classes have fewer than num_per_class=100: ('\d+' \d+, ){10}…", lines)
