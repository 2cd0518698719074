"""Word replacement by TF-IDF and uniform word replacement (paper, section 2.3 and appendix), on many texts at once.

    builder = StatisticsBuilder()
    for words_of_texts in blocks:                                 # lists of lists of words, e.g. 4096 texts at a time
        builder.add(words_of_texts)
    statistics = builder.finish()
    word_ids, row_splits = statistics.encode(words_of_texts)
    rng = np.random.default_rng(0)
    augmented = replace_by_tf_idf(word_ids, row_splits, statistics, token_prob=0.7, rng=rng)
    augmented = replace_uniformly(word_ids, row_splits, len(statistics.words), token_prob=0.1, rng=rng)
    words_of_augmented_texts = statistics.decode(augmented, row_splits)

Texts are flat: `word_ids` int32 [total] are indices into `statistics.words`, and row i, one text, is
word_ids[row_splits[i] : row_splits[i + 1]]. As in the original release, an example of two texts is one row for the
statistics and for TF-IDF replacement (all its words in a row), and two rows for uniform replacement.
"""

import dataclasses
import functools
import hashlib
import itertools
import json

import numpy as np

MIN_WORDS_FOR_UNIFORM = 3  # shorter texts stay as they are
ROUNDING = 1e-8  # scores that differ by a smaller share are equal: what is left of them is not worth dividing by
# Term frequencies are summed as integers in this unit: integer sums are the same however the texts are cut into blocks
# and shared between processes. 2**27 texts fit into 63 bits; a term frequency is rounded by 7e-12.
TF_UNIT = 2**36

# The global score S(w), which words are drawn by. The original release sums TF·IDF over texts, the paper says freq·IDF.
SCORES = {
    "code": lambda statistics: statistics.term_frequencies / TF_UNIT * statistics.idf,
    "paper": lambda statistics: statistics.word_counts * statistics.idf,
}


# ---- statistics of a corpus -----------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, eq=False)
class Statistics:
    """What is known of a corpus of `num_texts` texts; made by StatisticsBuilder.finish or from_arrays."""

    words: tuple[str, ...]  # the vocabulary, sorted
    num_texts: int
    text_counts: np.ndarray  # int64 [V], texts with the word
    word_counts: np.ndarray  # int64 [V], occurrences of the word
    term_frequencies: np.ndarray  # int64 [V], sum over texts of occurrences / length, in units of 1 / TF_UNIT
    score: str = "code"

    def __post_init__(self):
        if self.score not in SCORES:
            raise ValueError(f"unknown score={self.score!r}: choose from {', '.join(SCORES)}.")

    @functools.cached_property
    def idf(self):
        """float64 [V]: ln(texts / texts with the word)."""
        return np.log(self.num_texts / self.text_counts)

    @functools.cached_property
    def scores(self):
        """float64 [V]: the global score S(w)."""
        return SCORES[self.score](self)

    @functools.cached_property
    def sha256(self):
        """Hex digest of the vocabulary and the counts; it tells corpora apart, whatever the score."""
        digest = hashlib.sha256(json.dumps([self.num_texts, self.words]).encode())
        for counts in (self.text_counts, self.word_counts, self.term_frequencies):
            digest.update(counts.astype("<i8").tobytes())
        return digest.hexdigest()

    def encode(self, words_of_texts):
        """Returns word_ids int32 [total] and row_splits int64 [n + 1] of a list of lists of words."""
        row_splits = np.cumsum([0, *map(len, words_of_texts)], dtype=np.int64)
        words = itertools.chain.from_iterable(words_of_texts)
        try:
            return np.fromiter(map(self._ids.__getitem__, words), np.int32, row_splits[-1]), row_splits
        except KeyError as error:
            raise ValueError(
                f"expected words of the {self.num_texts} texts that the statistics were made from, got {error}: make "
                "the statistics from the texts that are augmented."
            ) from error

    def decode(self, word_ids, row_splits):
        """Returns the list of lists of words."""
        words = list(map(self.words.__getitem__, word_ids.tolist()))
        return [words[start:stop] for start, stop in itertools.pairwise(row_splits.tolist())]

    def draw_words(self, count, rng):
        """Draws ids int64 [count], independent, with probability ∝ max S − S(w); uniform if all words score the same.

        A uniform draw w is taken with probability a(w) ∝ max S − S(w), which is close to 1 for all but a few words. The
        others are drawn again, this time by searching the cumulative distribution, which takes twenty times as long.
        Both ways give w in proportion to a(w), so their mixture does too.
        """
        acceptance, cumulative = self._distribution
        drawn = rng.integers(len(self.words), size=count)
        rejected = np.flatnonzero(rng.random(count) >= acceptance[drawn])
        targets = rng.random(len(rejected)) * cumulative[-1]
        drawn[rejected] = np.searchsorted(cumulative, targets, side="right")  # passes over words of probability 0
        return drawn

    @functools.cached_property
    def _ids(self):
        return {word: index for index, word in enumerate(self.words)}

    @functools.cached_property
    def _distribution(self):
        gaps = self.scores.max() - self.scores
        if gaps.max() <= ROUNDING * self.scores.max():
            gaps = np.ones_like(gaps)
        acceptance = gaps / gaps.max()
        return acceptance, np.cumsum(acceptance)

    def to_arrays(self):
        """Arrays to be kept in an .npz file; they serve every score."""
        words = np.frombuffer(json.dumps(self.words).encode(), np.uint8)
        counts = {name: getattr(self, name) for name in COUNTS}
        return {"words": words, "num_texts": self.num_texts, "sha256": self.sha256, **counts}

    @classmethod
    def from_arrays(cls, arrays, score="code"):
        """Statistics from what to_arrays gave; raises ValueError, KeyError or the like if it is not that any more.

        Args:
          score: "code" for the original release's S(w), "paper" for the paper's.
        """
        words = tuple(json.loads(arrays["words"].tobytes()))
        statistics = cls(words, int(arrays["num_texts"]), *(arrays[name] for name in COUNTS), score)
        if statistics.sha256 != str(arrays["sha256"]):
            raise ValueError(f"expected statistics with sha256={arrays['sha256']}, got sha256={statistics.sha256}.")
        return statistics


COUNTS = ("text_counts", "word_counts", "term_frequencies")


class StatisticsBuilder:
    """Collects Statistics block by block in memory that grows with the vocabulary only.

    The result does not depend on the order or the size of the blocks. Several processes can each fill a builder (it can
    be pickled); `merge` puts them together, with the same result as one builder.
    """

    def __init__(self):
        self.num_texts = 0
        self._ids = _GrowingNumbers()
        self._sums = np.zeros((3, 0), np.int64)  # text_counts, word_counts, term_frequencies; may have room for more

    def add(self, words_of_texts):
        """Adds a list of texts, each a list of words."""
        self.add_numbered(*number_words(words_of_texts))

    def add_numbered(self, words, word_ids, row_splits):
        """Adds texts as number_words gives them."""
        lengths = np.diff(row_splits)
        rows = np.repeat(np.arange(len(lengths)), lengths)
        counts, firsts = _count_within_rows(word_ids, rows, len(words))
        counts, lengths_of_counts = counts[firsts], lengths[rows[firsts]]  # one for each different word of each text
        term_frequencies = np.rint(counts / lengths_of_counts * TF_UNIT).astype(np.int64)
        numbers = self._number(words, len(words))[word_ids[firsts]]
        for sums, values in zip(self._sums, (1, counts, term_frequencies)):
            np.add.at(sums, numbers, values)
        self.num_texts += len(lengths)

    def merge(self, other):
        """Adds all that another builder has seen."""
        word_ids = self._number(other._ids, len(other._ids))
        self._sums[:, word_ids] += other._sums[:, : len(word_ids)]
        self.num_texts += other.num_texts

    def finish(self, score="code"):
        """Returns the Statistics of all texts added so far; `score` as in from_arrays."""
        if not self._ids:
            raise ValueError(f"expected texts with words, got no word in num_texts={self.num_texts}: check the corpus.")
        words = tuple(sorted(self._ids))
        return Statistics(words, self.num_texts, *self._sums[:, self._number(words, len(words))], score)

    def _number(self, words, count):
        word_ids = np.fromiter(map(self._ids.__getitem__, words), np.int64, count)
        size = self._sums.shape[1]
        if len(self._ids) > size:  # to twice the size: each block has some new words, for which not all is copied
            self._sums = np.pad(self._sums, ((0, 0), (0, max(len(self._ids), 2 * size) - size)))
        return word_ids


class _GrowingNumbers(dict):
    """Numbers words in the order of their first look-up."""

    def __missing__(self, word):
        self[word] = number = len(self)
        return number


def number_words(words_of_texts):
    """Lays out a list of lists of words flat.

    Returns:
      words: list of the different words, as they come; word_ids: int32 [total], indices into it; row_splits: int64
      [n + 1], where the texts begin and end.
    """
    numbers, row_splits = _GrowingNumbers(), np.cumsum([0, *map(len, words_of_texts)], dtype=np.int64)
    all_words = itertools.chain.from_iterable(words_of_texts)
    word_ids = np.fromiter(map(numbers.__getitem__, all_words), np.int32, row_splits[-1])
    return list(numbers), word_ids, row_splits


def _count_within_rows(word_ids, rows, vocab_size):
    """Counts each word within its row.

    Returns:
      counts: int64 [total], for each position how often its word is in its row.
      firsts: int64, for each word of each row the position where it comes first.
    """
    keys = rows * vocab_size + word_ids
    order = np.argsort(keys, kind="stable")  # rows are in order already, which makes the stable sort the fastest
    starts = np.flatnonzero(np.diff(keys[order], prepend=-1))
    group_sizes = np.diff(starts, append=len(keys))
    counts = np.empty(len(keys), np.int64)
    counts[order] = np.repeat(group_sizes, group_sizes)
    return counts, order[starts]


# ---- replacement ----------------------------------------------------------------------------------------------------


def replace_by_tf_idf(word_ids, row_splits, statistics, token_prob, rng):
    """Replaces words that say little in their text by words that say little in the corpus.

    Args:
      word_ids: int32 [total], index into statistics.words.
      row_splits: int64 [n + 1], where the texts begin and end.
      token_prob: the paper's p, about the share of words that are replaced.
      rng: numpy.random.Generator.

    Returns:
      int32 [total], new word ids for the same row_splits.
    """
    _check(word_ids, row_splits, len(statistics.words), token_prob)
    probabilities = replacement_probabilities(word_ids, row_splits, statistics, token_prob)
    replaced = np.flatnonzero(rng.random(len(word_ids)) < probabilities)
    augmented = word_ids.copy()
    augmented[replaced] = statistics.draw_words(len(replaced), rng)
    return augmented


def replacement_probabilities(word_ids, row_splits, statistics, token_prob):
    """The probability p · length · (C − s) / Σ (C − s) of each word, with s = TF·IDF and C = max s in its text.

    The mean over a text is p. Values above 1 mean always: they are not clipped, and what they exceed 1 by is lost.
    Where all words score the same, as in a text of one word, the formula says 0/0; there nothing is replaced.

    Returns:
      float64 [total].
    """
    row_splits = np.unique(row_splits)  # leaves out empty texts, which have no maximum
    starts, lengths = row_splits[:-1], np.diff(row_splits)
    rows = np.repeat(np.arange(len(lengths)), lengths)
    counts, _ = _count_within_rows(word_ids, rows, len(statistics.words))
    scores = counts / lengths[rows] * statistics.idf[word_ids]
    highest = np.maximum.reduceat(scores, starts)
    gaps = highest[rows] - scores
    totals = np.add.reduceat(gaps, starts)
    equal = totals <= ROUNDING * highest * lengths
    factors = np.where(equal, 0, token_prob * lengths / np.where(equal, 1, totals))
    return factors[rows] * gaps


def replace_uniformly(word_ids, row_splits, vocab_size, token_prob, rng):
    """Replaces each word with probability `token_prob` by any word of the corpus (Switchout).

    The new words are read off a shuffled vocabulary, which is shuffled again when used up. Texts of less than three
    words stay as they are. Arguments and result as for `replace_by_tf_idf`; `vocab_size` is len(statistics.words).
    """
    _check(word_ids, row_splits, vocab_size, token_prob)
    lengths = np.diff(row_splits)
    long_enough = np.repeat(lengths >= MIN_WORDS_FOR_UNIFORM, lengths)
    replaced = np.flatnonzero((rng.random(len(word_ids)) < token_prob) & long_enough)
    augmented = word_ids.copy()
    augmented[replaced] = _draw_shuffled(vocab_size, len(replaced), rng)
    return augmented


def _draw_shuffled(vocab_size, count, rng):
    num_rounds = -(-count // vocab_size)
    return rng.permuted(np.tile(np.arange(vocab_size), (num_rounds, 1)), axis=1).ravel()[:count]


def _check(word_ids, row_splits, vocab_size, token_prob):
    if not 0 < token_prob <= 1:
        raise ValueError(f"token_prob must be above 0 and at most 1, got token_prob={token_prob}; the paper uses 0.7.")
    if row_splits[0] != 0 or row_splits[-1] != len(word_ids) or np.any(np.diff(row_splits) < 0):
        raise ValueError(
            f"row_splits must rise from 0 to the number of words, {len(word_ids)}, got row_splits={row_splits}: take "
            "both from Statistics.encode."
        )
    if len(word_ids) and not (0 <= word_ids.min() and word_ids.max() < vocab_size):
        raise ValueError(
            f"word_ids must be from 0 to vocab_size - 1 = {vocab_size - 1}, got {word_ids.min()} to {word_ids.max()}: "
            "take them from Statistics.encode."
        )
