"""utils/labelled_subsets.py: which examples keep their labels, and which further ones choose the checkpoint."""

import types

import numpy as np
import pytest

from utils import labelled_subsets

LABELS = np.random.default_rng(7).integers(0, 10, 1000)
CLASS_NAMES = tuple("abcdefghij")
ORDERS = {"file": np.arange(1000), "random": np.random.default_rng(1).permutation(1000)}


def draw(sup_size=100, dev_size=0, order="random", label_seed=-1, balanced=False, labels=LABELS, names=CLASS_NAMES):
    order = ORDERS[order] if isinstance(order, str) else np.asarray(order)
    return labelled_subsets.draw(np.asarray(labels), order, names, sup_size, dev_size, [label_seed + 1], balanced)


# ---- labelled examples ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", ORDERS)
def test_labelled_examples_are_the_first_of_the_order(order):
    labelled, dev = draw(250, order=order)
    assert labelled.dtype == np.int64
    np.testing.assert_array_equal(labelled, ORDERS[order][:250])
    assert dev.shape == (0,)


@pytest.mark.parametrize("order", ORDERS)
def test_a_balanced_draw_has_the_first_of_each_class_in_order(order):
    labelled = draw(50, order=order, balanced=True)[0].tolist()
    candidates = ORDERS[order].tolist()
    for label in range(10):
        of_class = [index for index in candidates if LABELS[index] == label]
        assert [index for index in labelled if LABELS[index] == label] == of_class[:5]
    assert labelled == sorted(labelled, key=candidates.index)


@pytest.mark.parametrize("balanced", [False, True])
def test_a_larger_draw_contains_the_smaller(balanced):
    small, large = (set(draw(size, balanced=balanced)[0]) for size in (20, 40))
    assert small < large


def test_only_candidates_are_drawn():
    labelled, _ = draw(20, order=np.arange(500, 600))
    np.testing.assert_array_equal(labelled, np.arange(500, 520))


@pytest.mark.parametrize("balanced", [False, True])
def test_every_example_may_be_labelled_whatever_the_classes(balanced):
    np.testing.assert_array_equal(draw(1000, balanced=balanced)[0], ORDERS["random"])


@pytest.mark.parametrize("sup_size", [-1, 0, 1001])
def test_sup_size_must_fit_the_candidates(sup_size):
    with pytest.raises(ValueError, match=f"sup_size={sup_size} is out of range: there are 1000 examples to choose"):
        draw(sup_size)


@pytest.mark.parametrize("sup_size, advice", [(25, "use 20 or 30"), (5, "use 10,")])
def test_a_balanced_draw_needs_a_multiple_of_the_classes(sup_size, advice):
    with pytest.raises(ValueError, match=f"sup_size={sup_size} is not divisible by num_classes=10: {advice}"):
        draw(sup_size, balanced=True)


def test_a_balanced_draw_names_the_class_that_is_too_small():
    labels = [0, 0, 0, 1, 1, 2, 0]
    message = "sup_size=6 needs 2 examples of each class, but 'z' has 1 to choose from: use less, or sup_size=7 for all"
    with pytest.raises(ValueError, match=message):
        draw(6, order=np.arange(7), balanced=True, labels=labels, names=("x", "y", "z"))


# ---- the development split ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("balanced", [False, True])
def test_the_development_split_has_further_examples(balanced):
    labelled, dev = draw(100, 30, balanced=balanced)
    np.testing.assert_array_equal(labelled, draw(100, balanced=balanced)[0])  # those without it
    assert len(set(dev)) == 30 and not set(labelled) & set(dev)
    if balanced:
        assert np.bincount(LABELS[dev]).tolist() == [3] * 10


def test_the_development_split_may_have_examples_that_are_no_candidates_for_a_label():
    labelled, dev = draw(100, 30, order=np.arange(100))
    np.testing.assert_array_equal(labelled, np.arange(100))
    assert min(dev) >= 100


def test_the_development_split_changes_with_the_seed_and_repeats():
    draws = [draw(100, 30, label_seed=seed)[1].tolist() for seed in (-1, 0, 1, 1)]
    assert draws[2] == draws[3] and len({tuple(dev) for dev in draws}) == 3


def test_a_larger_development_split_contains_the_smaller():
    assert set(draw(100, 30)[1]) < set(draw(100, 60)[1])


def test_where_both_are_all_examples_the_development_split_is_drawn_first():
    labelled, dev = draw(900, 100)
    np.testing.assert_array_equal(dev, draw(1, 100)[1])  # whatever is labelled
    np.testing.assert_array_equal(labelled, [index for index in ORDERS["random"] if index not in set(dev)])


@pytest.mark.parametrize("dev_size", [901, 2000])
def test_the_development_split_must_fit_what_is_left(dev_size):
    with pytest.raises(ValueError, match=f"dev_size={dev_size} is out of range: there are 900 examples to choose from"):
        draw(100, dev_size)


def test_a_balanced_development_split_needs_a_multiple_of_the_classes():
    with pytest.raises(ValueError, match="dev_size=15 is not divisible by num_classes=10: use 10 or 20"):
        draw(100, 15, balanced=True)


# ---- folders --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "draw, more, name",
    [
        ((4000, -1, 0), {}, "sup-size_4000"),
        ((250, 0, 0), {}, "sup-size_250-seed_0"),
        ((250, 12, 50), {"kind": "equal"}, "sup-size_250-equal-seed_12-dev_50"),
        ((20, -1, 5), {"ids": "ids_1a2b"}, "sup-size_20-dev_5-ids_1a2b"),
    ],
)
def test_the_folder_of_a_draw_tells_how_it_was_drawn(draw, more, name):
    config = types.SimpleNamespace(**dict(zip(("sup_size", "label_seed", "dev_size"), draw)))
    assert labelled_subsets.folder_name(config, **more) == name
