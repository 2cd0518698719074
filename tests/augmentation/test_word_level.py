"""augmentation/word_level.py against the formulas written out word by word in plain Python."""

import collections
import dataclasses
import math
import os
import pickle
import subprocess
import sys

import numpy as np
import pytest

from augmentation import word_level
from augmentation.word_level import (
    Statistics,
    StatisticsBuilder,
    number_words,
    replace_by_tf_idf,
    replace_uniformly,
    replacement_probabilities,
)

TINY = [text.split() for text in ("the film was good good", "the film was bad", "le café était bon 電影 😀", "the end")]


def create_texts(num_texts, vocab_size=200, seed=0):
    """Texts of 0 to 29 words that are as frequent as Zipf's law says."""
    rng = np.random.default_rng(seed)
    weights = 1 / np.arange(1, vocab_size + 1)
    lengths = rng.integers(0, 30, num_texts)
    draws = (rng.choice(vocab_size, length, p=weights / weights.sum()) for length in lengths)
    return [[f"wörd{index}" for index in drawn] for drawn in draws]


def build(texts, score="code", block_size=1000):
    builder = StatisticsBuilder()
    for start in range(0, len(texts), block_size):
        builder.add(texts[start : start + block_size])
    return builder.finish(score)


def assert_same(statistics, other):
    assert statistics.words == other.words and statistics.num_texts == other.num_texts
    for name in ("text_counts", "word_counts", "term_frequencies", "idf", "scores"):
        np.testing.assert_array_equal(getattr(statistics, name), getattr(other, name))
    assert statistics.sha256 == other.sha256


# ---- the formulas in plain Python -----------------------------------------------------------------------------------


def plain_idf(texts):
    text_counts = collections.Counter(word for text in texts for word in set(text))
    return {word: math.log(len(texts) / count) for word, count in text_counts.items()}


def plain_scores(texts, score):
    idf, scores = plain_idf(texts), collections.defaultdict(float)
    for text in texts:
        for word in text:
            scores[word] += idf[word] * (1 / len(text) if score == "code" else 1)
    return scores


def plain_probabilities(text, idf, token_prob):
    scores = {word: text.count(word) / len(text) * idf[word] for word in text}
    gaps = [max(scores.values()) - scores[word] for word in text]
    if max(gaps, default=0) < 1e-9:
        return [0.0] * len(text)
    return [token_prob * len(text) * gap / sum(gaps) for gap in gaps]


# ---- statistics -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("score", ["code", "paper"])
@pytest.mark.parametrize("texts", [TINY, create_texts(300)], ids=["tiny", "zipf"])
def test_statistics_are_those_of_the_formulas(texts, score):
    statistics = build(texts, score)
    idf, scores = plain_idf(texts), plain_scores(texts, score)
    assert statistics.num_texts == len(texts)
    assert statistics.words == tuple(sorted(idf))
    np.testing.assert_allclose(statistics.idf, [idf[word] for word in statistics.words], rtol=1e-14)
    np.testing.assert_allclose(statistics.scores, [scores[word] for word in statistics.words], rtol=1e-9)


def test_the_two_scores_differ():
    texts = [["long", "x", "x", "x"], ["long"], ["y"]]
    code, paper = build(texts), build(texts, "paper")
    np.testing.assert_allclose(code.scores, np.log([1.5, 3, 3]) * [1.25, 0.75, 1])
    np.testing.assert_allclose(paper.scores, np.log([1.5, 3, 3]) * [2, 3, 1])
    with pytest.raises(ValueError, match="unknown score='tf': choose from code, paper"):
        build(texts, "tf")


@pytest.mark.parametrize("block_size", [1, 7, 300])
def test_the_size_of_blocks_changes_nothing(block_size):
    texts = create_texts(300)
    assert_same(build(texts, block_size=block_size), build(texts, block_size=64))


def test_the_order_of_texts_changes_nothing():
    texts = create_texts(300)
    assert_same(build(texts), build(texts[::-1]))


def test_merged_builders_equal_one_builder():
    texts = create_texts(300)
    parts = [StatisticsBuilder() for _ in range(3)]
    for part, (start, stop) in zip(parts, [(0, 50), (50, 290), (290, 300)]):
        part.add(texts[start:stop])
    merged = StatisticsBuilder()
    for part in reversed(parts):
        merged.merge(pickle.loads(pickle.dumps(part)))
    assert_same(merged.finish(), build(texts))
    merged.merge(StatisticsBuilder())
    assert_same(merged.finish(), build(texts))
    merged.add(texts)
    assert_same(merged.finish(), build(texts + texts))


def test_a_table_of_words_that_grows_with_every_merge_is_copied_seldom(monkeypatch):
    parts, merged, copies = [StatisticsBuilder() for _ in range(100)], StatisticsBuilder(), []
    texts = [["always", f"once {number}"] for number in range(len(parts))]
    for part, text in zip(parts, texts):
        part.add([text])
    pad = np.pad
    monkeypatch.setattr(np, "pad", lambda *arguments: copies.append(arguments) or pad(*arguments))
    for part in parts:
        merged.merge(part)
    assert len(copies) < 10
    assert_same(merged.finish(), build(texts))
    twice = StatisticsBuilder()
    for _ in range(2):
        twice.merge(merged)  # which has room for more words than it has seen
    assert_same(twice.finish(), build(texts + texts))


def test_texts_may_come_with_their_words_numbered():
    texts = [*TINY, [], *create_texts(300)]
    words, word_ids, row_splits = number_words(texts)
    assert word_ids.dtype == np.int32 and row_splits.dtype == np.int64 and len(words) == len(set(words))
    builder = StatisticsBuilder()
    builder.add([["more", "words"]])
    builder.add_numbered(words, word_ids, row_splits)
    assert_same(builder.finish(), build([["more", "words"], *texts]))


def test_memory_grows_with_the_vocabulary_and_not_with_the_texts():
    builder, texts = StatisticsBuilder(), create_texts(300)
    builder.add(texts)
    size = len(pickle.dumps(builder))
    for _ in range(10):
        builder.add(texts)
    assert len(pickle.dumps(builder)) < size + 100


def test_empty_texts_count_as_texts():
    statistics = build([["a"], [], [], ["b", "a"]])
    assert statistics.num_texts == 4
    np.testing.assert_allclose(statistics.idf, np.log([4 / 2, 4 / 1]))


@pytest.mark.parametrize("texts", [[], [[], []]])
def test_a_corpus_without_words_is_refused(texts):
    builder = StatisticsBuilder()
    builder.add(texts)
    with pytest.raises(ValueError, match=f"got no word in num_texts={len(texts)}"):
        builder.finish()


def test_encoded_texts_decode_to_themselves():
    texts = [*TINY, [], *create_texts(50)]
    statistics = build(texts)
    word_ids, row_splits = statistics.encode(texts)
    assert word_ids.dtype == np.int32 and row_splits.dtype == np.int64
    assert row_splits.tolist() == np.cumsum([0, *map(len, texts)]).tolist()
    assert statistics.decode(word_ids, row_splits) == texts
    assert statistics.decode(*statistics.encode([])) == []
    assert statistics.decode(*statistics.encode([[]])) == [[]]


def test_a_word_from_elsewhere_is_refused():
    with pytest.raises(ValueError, match="expected words of the 4 texts .* got 'elsewhere'"):
        build(TINY).encode([["the", "elsewhere"]])


# ---- statistics as arrays -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("score", ["code", "paper"])
def test_the_same_arrays_serve_both_scores(score):
    arrays = build(TINY).to_arrays()
    for name, value in build(TINY, "paper").to_arrays().items():
        np.testing.assert_array_equal(value, arrays[name])
    assert_same(Statistics.from_arrays(arrays, score), build(TINY, score))


def test_words_of_any_characters_survive_a_file(tmp_path):
    texts = [["a\nb", '"', "\\", "", "\x00", "\ud800"], ["é", "e\u0301"]]
    np.savez(tmp_path / "statistics.npz", **build(texts).to_arrays())
    with np.load(tmp_path / "statistics.npz") as arrays:
        assert_same(Statistics.from_arrays(dict(arrays)), build(texts))


def test_changed_arrays_are_refused():
    arrays = build(TINY).to_arrays()
    arrays["word_counts"] = arrays["word_counts"] + 1
    with pytest.raises(ValueError, match="expected statistics with sha256=.*, got sha256="):
        Statistics.from_arrays(arrays)


def test_the_checksum_tells_corpora_apart():
    base = [["a", "b"], ["b", "c"]]
    others = [[*base, []], [["a", "b"], ["b", "d"]], [["a", "b", "b"], ["b", "c"]], [["a", "b", "c"], ["b"]]]
    assert len({build(texts).sha256 for texts in [base, *others]}) == 5
    assert build(base).sha256 == build(base, "paper").sha256


# ---- which words are replaced ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("token_prob", [0.1, 0.7, 1.0])
@pytest.mark.parametrize(
    "texts",
    [TINY, create_texts(300), TINY[:2], [[], *TINY[:1], [], [], *TINY[1:], []]],
    ids=["tiny", "zipf", "two", "gaps"],
)
def test_probabilities_are_those_of_the_formula(texts, token_prob):
    statistics = build(texts)
    idf = plain_idf(texts)
    expected = [probability for text in texts for probability in plain_probabilities(text, idf, token_prob)]
    probabilities = replacement_probabilities(*statistics.encode(texts), statistics, token_prob)
    np.testing.assert_allclose(probabilities, expected, rtol=1e-9, atol=1e-12)
    assert np.any(probabilities > 0)


def test_probabilities_of_a_known_example():
    # idf: a 0, b ln 2, c ln 2. Scores in "a b b c": 0, 2/4·ln 2 (twice), 1/4·ln 2; gaps 2 : 0 : 0 : 1.
    statistics = build([["a", "b", "b", "c"], ["a"]])
    probabilities = replacement_probabilities(*statistics.encode([["a", "b", "b", "c"]]), statistics, 0.3)
    np.testing.assert_allclose(probabilities, [0.3 * 4 * 2 / 3, 0, 0, 0.3 * 4 / 3])


def test_probabilities_average_the_requested_one_and_spare_the_top_word():
    texts = create_texts(300)
    statistics = build(texts)
    word_ids, row_splits = statistics.encode(texts)
    probabilities = replacement_probabilities(word_ids, row_splits, statistics, 0.7)
    for part in np.split(probabilities, row_splits[1:-1]):
        assert len(part) == 0 or part.min() == 0
        assert len(part) == 0 or part.max() == 0 or np.mean(part) == pytest.approx(0.7)


@pytest.mark.parametrize(
    "texts",
    [
        [["a"], ["b"], ["c", "c", "c"], ["a"]],  # one word each
        [["a", "b", "c"]] * 5,  # in every text: idf 0
        [["a", "b", "a"]],  # one text: idf 0
        [["a", "b"], ["c", "d"], []],  # equal scores above 0
        [["x", "y", "y", "y"]] + [["y"]] * 24 + [[]] * 100,  # 1/4·ln 125 = 3/4·ln 5, but for rounding
    ],
)
def test_nothing_is_replaced_where_all_words_score_the_same(texts):
    statistics = build(texts)
    word_ids, row_splits = statistics.encode(texts)
    assert not np.any(replacement_probabilities(word_ids, row_splits, statistics, 1.0))
    np.testing.assert_array_equal(
        replace_by_tf_idf(word_ids, row_splits, statistics, 1.0, np.random.default_rng(0)), word_ids
    )


def replacement_rates(texts, statistics, token_prob, rounds):
    """How often each position got another word, with a vocabulary so large that a word is hardly drawn for itself."""
    word_ids, row_splits = statistics.encode(texts)
    rng = np.random.default_rng(1)
    rounds_of_ids = [replace_by_tf_idf(word_ids, row_splits, statistics, token_prob, rng) for _ in range(rounds)]
    return np.mean(np.array(rounds_of_ids) != word_ids, axis=0)


def test_words_are_replaced_as_often_as_the_formula_says():
    texts = [*create_texts(40), [f"rare{index}" for index in range(20_000)]]
    statistics = build(texts)
    probabilities = replacement_probabilities(*statistics.encode(texts[:40]), statistics, 0.7)
    rates = replacement_rates(texts[:40], statistics, 0.7, rounds=2000)
    np.testing.assert_allclose(rates, np.minimum(probabilities, 1), atol=6 * 0.5 / 2000**0.5 + 1e-3)
    assert np.all(rates[probabilities == 0] == 0)
    assert np.any(probabilities > 1) and np.all(rates[probabilities > 1] > 0.99)


def test_more_is_replaced_with_a_higher_probability():
    texts = create_texts(300)
    statistics = build(texts)
    rates = [np.mean(replacement_rates(texts, statistics, token_prob, 10)) for token_prob in (0.1, 0.4, 0.7)]
    assert 0.05 < rates[0] < 0.12 and 0.25 < rates[1] < 0.45 and 0.45 < rates[2] < 0.75


# ---- which words they are replaced by -------------------------------------------------------------------------------


@pytest.mark.parametrize("score", ["code", "paper"])
def test_words_are_drawn_in_proportion_to_what_their_score_lacks(score):
    texts = create_texts(300, vocab_size=30)
    statistics = build(texts, score)
    scores = plain_scores(texts, score)
    gaps = np.array([max(scores.values()) - scores[word] for word in statistics.words])
    expected = 200_000 * gaps / gaps.sum()
    counts = np.bincount(statistics.draw_words(200_000, np.random.default_rng(0)), minlength=30)
    assert np.all(np.abs(counts - expected) <= 6 * np.sqrt(expected))
    assert counts[np.argmax(statistics.scores)] == 0
    assert expected.max() > 2 * np.sort(expected)[2]  # far from uniform


def test_the_top_word_is_not_drawn_even_by_the_smallest_random_numbers():
    class Zeros:
        def integers(self, high, size):
            return np.zeros(size, np.int64)

        def random(self, size):
            return np.zeros(size)

    statistics = build([["a"], ["b", "b", "b", "b", "c"], ["c"], ["c"]])
    assert np.argmax(statistics.scores) == 0
    assert statistics.draw_words(2, Zeros()).tolist() == [1, 1]


def test_draws_are_quick_and_right_where_all_words_but_one_have_the_top_score():
    texts = [[f"rare{index}", "common"] for index in range(100)] + [["common"]]
    drawn = build(texts).draw_words(100_000, np.random.default_rng(0))
    assert set(drawn) == {0}  # "common", which says nothing


def test_words_are_drawn_uniformly_where_all_score_the_same():
    texts = [text.split() for text in ("a a b", "b b a", "c c d", "d d c")]
    statistics = build(texts)
    counts = np.bincount(statistics.draw_words(40_000, np.random.default_rng(0)), minlength=4)
    np.testing.assert_allclose(counts, 10_000, atol=600)
    word_ids, row_splits = statistics.encode(texts)
    assert np.any(replace_by_tf_idf(word_ids, row_splits, statistics, 1.0, np.random.default_rng(0)) != word_ids)


def test_scores_equal_but_for_rounding_are_equal():
    """Three thirds in units of 2**-36 are less than one."""
    texts = [["a", "b", "c"]] * 3 + [["d"]] + [["e"]]
    equal = dataclasses.replace(build(texts), text_counts=np.ones(5, np.int64))
    assert len(set(equal.scores)) == 2
    counts = np.bincount(equal.draw_words(50_000, np.random.default_rng(0)), minlength=5)
    np.testing.assert_allclose(counts, 10_000, atol=600)


# ---- uniform replacement --------------------------------------------------------------------------------------------


def test_uniform_replacement_spares_texts_of_less_than_three_words():
    word_ids = np.zeros(0 + 1 + 2 + 3 + 4, np.int32)
    row_splits = np.array([0, 0, 1, 3, 6, 10])
    augmented = replace_uniformly(word_ids, row_splits, 10**5, 1.0, np.random.default_rng(0))
    np.testing.assert_array_equal(augmented != 0, [False] * 3 + [True] * 7)
    assert augmented.dtype == np.int32


def test_uniform_replacement_goes_through_the_whole_vocabulary_before_it_repeats_a_word():
    word_ids, row_splits = np.zeros(25, np.int32), np.array([0, 20, 25])
    augmented = replace_uniformly(word_ids, row_splits, 10, 1.0, np.random.default_rng(0))
    first, second = augmented[:10], augmented[10:20]
    assert sorted(first) == sorted(second) == list(range(10))
    assert list(first) != list(second) and len(set(augmented[20:])) == 5
    again = replace_uniformly(word_ids, row_splits, 10, 1.0, np.random.default_rng(1))
    assert list(again) != list(augmented)


def test_uniform_replacement_has_the_requested_rate_everywhere():
    word_ids, row_splits = np.zeros(60_000, np.int32), np.arange(0, 60_001, 3)
    changed = replace_uniformly(word_ids, row_splits, 10**6, 0.1, np.random.default_rng(0)) != 0
    assert abs(np.mean(changed) - 0.1) < 0.01
    np.testing.assert_allclose(changed.reshape(-1, 3).mean(axis=0), 0.1, atol=0.015)


# ---- both -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["tf_idf", "unif"])
def test_replacement_is_a_function_of_the_generator_and_leaves_its_input(kind):
    texts = create_texts(50)
    statistics = build(texts)
    word_ids, row_splits = statistics.encode(texts)
    given = word_ids.copy()

    def augment(seed):
        rng = np.random.default_rng(seed)
        if kind == "tf_idf":
            return replace_by_tf_idf(word_ids, row_splits, statistics, 0.7, rng)
        return replace_uniformly(word_ids, row_splits, len(statistics.words), 0.7, rng)

    np.testing.assert_array_equal(augment(0), augment(0))
    assert not np.array_equal(augment(0), augment(1))
    np.testing.assert_array_equal(word_ids, given)
    assert augment(0).dtype == np.int32 and augment(0).shape == word_ids.shape


@pytest.mark.parametrize("row_splits", [[0], [0, 0, 0]])
def test_no_words_give_no_words(row_splits):
    word_ids, row_splits, rng = np.zeros(0, np.int32), np.array(row_splits), np.random.default_rng(0)
    assert replace_by_tf_idf(word_ids, row_splits, build(TINY), 0.7, rng).shape == (0,)
    assert replace_uniformly(word_ids, row_splits, 10, 0.7, rng).shape == (0,)


@pytest.mark.parametrize("token_prob", [0, -0.1, 1.1, 70, math.nan])
def test_a_probability_out_of_range_is_refused(token_prob):
    statistics, rng = build(TINY), np.random.default_rng(0)
    with pytest.raises(ValueError, match="token_prob must be above 0 and at most 1"):
        replace_by_tf_idf(*statistics.encode(TINY), statistics, token_prob, rng)
    with pytest.raises(ValueError, match="token_prob must be above 0 and at most 1"):
        replace_uniformly(*statistics.encode(TINY), len(statistics.words), token_prob, rng)


@pytest.mark.parametrize(
    "word_ids, row_splits, message",
    [
        ([0, 1, 2], [0, 2], "row_splits must rise from 0 to the number of words, 3"),
        ([0, 1, 2], [1, 3], "row_splits must rise"),
        ([0, 1, 2], [0, 3, 2, 3], "row_splits must rise"),
        ([0, 1, 5], [0, 3], "word_ids must be from 0 to vocab_size - 1 = 4, got 0 to 5"),
        ([0, -1, 2], [0, 3], "word_ids must be from 0 to vocab_size - 1 = 4, got -1 to 2"),
    ],
)
def test_ids_and_splits_that_do_not_fit_are_refused(word_ids, row_splits, message):
    statistics, rng = build([list("abcde")]), np.random.default_rng(0)
    arguments = np.array(word_ids, np.int32), np.array(row_splits)
    with pytest.raises(ValueError, match=message):
        replace_by_tf_idf(*arguments, statistics, 0.7, rng)
    with pytest.raises(ValueError, match=message):
        replace_uniformly(*arguments, 5, 0.7, rng)


def test_tensorflow_is_not_needed():
    code = "import sys, augmentation.word_level; sys.exit('tensorflow' in sys.modules)"
    root = os.path.dirname(os.path.dirname(word_level.__file__))
    subprocess.run([sys.executable, "-c", code], check=True, cwd=root)
