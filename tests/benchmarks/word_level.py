"""Speed of TF-IDF word replacement on many texts at once, beside a plain loop over words with one draw at a time.

Both get word ids and return word ids; what it takes to number words is shown apart.

python -m tests.benchmarks.word_level [--num_texts=4096] [--vocab_size=50000]
"""

import argparse
import bisect
import collections

import numpy as np

from augmentation.word_level import StatisticsBuilder, replace_by_tf_idf, replace_uniformly
from tests.benchmarks.randaugment import seconds

WORDS_PER_TEXT = 230  # IMDb
TF_IDF_PROBABILITY, UNIFORM_PROBABILITY = 0.7, 0.1


def create_texts(num_texts, vocab_size, rng):
    """Lists of words that are as frequent as Zipf's law says, and lengths as uneven as those of reviews."""
    weights = 1 / np.arange(1, vocab_size + 1)
    lengths = np.maximum(1, rng.gamma(2, WORDS_PER_TEXT / 2, num_texts)).astype(int)
    words = [f"word{index}" for index in range(vocab_size)]
    drawn = [words[index] for index in rng.choice(vocab_size, lengths.sum(), p=weights / weights.sum())]
    splits = np.cumsum([0, *lengths]).tolist()
    return [drawn[start:stop] for start, stop in zip(splits, splits[1:])]


class PlainLoop:
    """TF-IDF replacement word by word; what depends on the corpus only is computed beforehand."""

    def __init__(self, statistics):
        self.idf = statistics.idf.tolist()
        self.cumulative = np.cumsum(statistics.scores.max() - statistics.scores).tolist()

    def replace(self, words, token_prob, rng):
        scores = collections.defaultdict(float)
        for word in words:
            scores[word] += self.idf[word] / len(words)
        highest = max(scores.values())
        total = sum(highest - scores[word] for word in words)
        if not total:
            return words
        factor = token_prob * len(words) / total
        return [self.draw(rng) if rng.random() < factor * (highest - scores[word]) else word for word in words]

    def draw(self, rng):
        return bisect.bisect_right(self.cumulative, rng.random() * self.cumulative[-1])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--num_texts", type=int, default=4096, help="texts per call")
    parser.add_argument("--vocab_size", type=int, default=50_000)
    parser.add_argument("--num_rounds", type=int, default=7)
    flags = parser.parse_args()
    texts = create_texts(flags.num_texts, flags.vocab_size, np.random.default_rng(0))
    builder = StatisticsBuilder()
    statistics_seconds, _ = seconds(lambda: builder.add(texts))
    statistics = builder.finish()
    encode_seconds, (word_ids, row_splits) = seconds(lambda: statistics.encode(texts))
    ids_of_texts = [part.tolist() for part in np.split(word_ids, row_splits[1:-1])]
    loop, rng = PlainLoop(statistics), np.random.default_rng(1)
    ways = {
        "plain loop": lambda: [loop.replace(words, TF_IDF_PROBABILITY, rng) for words in ids_of_texts],
        "tf_idf": lambda: replace_by_tf_idf(word_ids, row_splits, statistics, TF_IDF_PROBABILITY, rng),
        "unif": lambda: replace_uniformly(word_ids, row_splits, len(statistics.words), UNIFORM_PROBABILITY, rng),
    }
    results = {name: way() for name, way in ways.items()}  # the first call sets up the distribution to draw from
    durations = {name: [] for name in ways}
    for _ in range(flags.num_rounds):
        for name, way in ways.items():
            durations[name].append(seconds(way)[0])
    medians = {name: np.median(values) for name, values in durations.items()}
    print(f"{len(texts)} texts, {len(word_ids)} words, vocabulary of {len(statistics.words)}")
    print(f"statistics: {len(word_ids) / statistics_seconds:12,.0f} words/s")
    print(f"encode:     {len(word_ids) / encode_seconds:12,.0f} words/s")
    for name, duration in medians.items():
        ratio = medians["plain loop"] / duration
        print(f"{name:12}{len(word_ids) / duration:12,.0f} words/s{ratio:8.1f} times the plain loop")
    shares = [np.mean(new_ids != word_ids) for new_ids in (np.concatenate(results["plain loop"]), results["tf_idf"])]
    print(f"words changed: {shares[0]:.3f} by the plain loop, {shares[1]:.3f} by tf_idf")


if __name__ == "__main__":
    main()
