"""augmentation/text_ops.py: names of text augmentations."""

import pytest

from augmentation.text_ops import parse_op, split_ops


@pytest.mark.parametrize(
    "name, kind, value",
    [
        ("tf_idf-0.7", "tf_idf", 0.7),
        ("unif-0.1", "unif", 0.1),
        ("bt-0.9", "bt", 0.9),
        ("bt-0.0", "bt", 0),
        ("unif-1", "unif", 1),
    ],
)
def test_a_name_is_a_kind_and_a_number(name, kind, value):
    assert parse_op(name) == (kind, value)


@pytest.mark.parametrize("name", ["", "0.7", "-0.7", "tfidf-0.7", "TF_IDF-0.7", " bt-0.9"])
def test_an_unknown_kind_is_refused_with_those_there_are(name):
    with pytest.raises(ValueError, match="expected one of tf_idf, tf_idf_paper, unif, bt and a number"):
        parse_op(name)


@pytest.mark.parametrize("number", ["", "x", "nan", "-0.1", "1e-1", " 0.7", "0.7 ", ".5", "0,7", "0.7\n", "٠.٧"])
def test_what_is_no_plain_number_is_refused(number):
    with pytest.raises(ValueError, match="not a plain decimal number; write tf_idf-0.7"):
        parse_op(f"tf_idf-{number}")


@pytest.mark.parametrize("name", ["tf_idf-0", "tf_idf-0.0", "unif-1.1", "unif-70"])
def test_probabilities_are_above_0_and_at_most_1(name):
    with pytest.raises(ValueError, match=f"'{name}': expected a probability above 0 and at most 1"):
        parse_op(name)


@pytest.mark.parametrize("name", ["bt-0.85", "bt-1.1", "bt-9"])
def test_temperatures_are_those_that_folders_can_bear(name):
    with pytest.raises(ValueError, match=f"'{name}': expected a temperature from 0 to 1 with one decimal"):
        parse_op(name)


def test_the_temperature_of_greedy_translation_is_0():
    assert parse_op("bt-0.0") == ("bt", 0)


def test_ops_are_joined_by_plus_and_stay_in_order():
    assert split_ops("tf_idf-0.7") == ["tf_idf-0.7"]
    assert split_ops("unif-0.1+bt-0.9+unif-0.2+tf_idf-0.70") == ["unif-0.1", "bt-0.9", "unif-0.2", "tf_idf-0.70"]


@pytest.mark.parametrize("aug_ops", ["bt-0.9+bt-0.9", "tf_idf-0.7+unif-0.7+tf_idf-0.70"])
def test_the_same_op_twice_is_refused(aug_ops):
    with pytest.raises(ValueError, match="twice"):
        split_ops(aug_ops)


@pytest.mark.parametrize("aug_ops", ["", "bt-0.9+", "bt-0.9,unif-0.1"])
def test_every_part_of_aug_ops_must_be_valid(aug_ops):
    with pytest.raises(ValueError, match="augmentation"):
        split_ops(aug_ops)
