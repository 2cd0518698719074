"""Texts per second from text to word pieces, beside BERT's tokenizer in plain Python and tensorflow_text's own.

python -m tests.benchmarks.tokenization [--num_texts=4000] [--num_rounds=5]

The texts are made up, but like film reviews where it matters: 230 chunks with capitals and punctuation, words by Zipf's
law, with at least as many distinct ones as in so many reviews (41,000 in 4000), one text in ten not in plain ASCII.
Each round begins with a new Tokenizer, which remembers nothing yet.
"""

import argparse
import functools
import os
import tempfile
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import tensorflow as tf
import tensorflow_text

from tests.text import bert_tokenizer_reference as reference
from text.tokenization import Tokenizer

NUM_WORDS, CHUNKS_PER_TEXT, BATCH_SIZE = 60_000, 230, 500
SPECIALS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
ENDS = [""] * 80 + [","] * 8 + ["."] * 6 + ["!", "?", "...", "'s", "'s", ").<br", '"', ";"]


def create_words(rng):
    """Distinct words of one to five syllables, the shortest first, as frequent words are short."""
    syllables = [first + vowel + last for first in "bcdfghlmnprstvw" for vowel in "aeiou" for last in ["", *"lnrst"]]
    words = {}
    while len(words) < NUM_WORDS:
        length = 1 + min(4, int(np.log10(1 + len(words)) * rng.uniform(0.4, 1.1)))
        words["".join(rng.choice(syllables, length))] = None
    return np.array(list(words)), syllables


def create_texts(words, num_texts, rng):
    probability = 1 / (np.arange(NUM_WORDS) + 2.7) ** 1.2
    probability /= probability.sum()
    texts = []
    for number in range(num_texts):
        chunks = rng.choice(words, CHUNKS_PER_TEXT, p=probability).tolist()
        for position in np.flatnonzero(rng.random(CHUNKS_PER_TEXT) < 0.12):
            chunks[position] = chunks[position].capitalize()
        ends = rng.choice(ENDS, CHUNKS_PER_TEXT).tolist()
        text = " ".join(chunk + end for chunk, end in zip(chunks, ends))
        texts.append(text.replace("e", "é", 2) if number % 10 == 0 else text)
    return texts


def write_vocab(path, words, syllables):
    letters = list("abcdefghijklmnopqrstuvwxyz.,!?'\"();<>/")
    pieces = [*SPECIALS, *letters, *words[:25_000], *syllables]
    pieces += ["##" + piece for piece in [*letters, *syllables, *(words[20:5000:2])]]
    with open(path, "w", encoding="utf-8") as file:
        file.write("\n".join(dict.fromkeys(pieces)))


def run_ours(vocab_path, texts):
    tokenizer = Tokenizer(vocab_path)
    ids = []
    for start in range(0, len(texts), BATCH_SIZE):
        ids += tokenizer.piece_ids(tokenizer.split(texts[start : start + BATCH_SIZE]))
    return ids


def run_python(vocab, texts):
    ids = {piece: number for number, piece in enumerate(vocab)}
    return [reference.piece_ids(reference.split(text, lower_case=True), ids) for text in texts]


def run_in_batches(tokenize, texts):
    starts = range(0, len(texts), BATCH_SIZE)
    return [tokenize(tf.constant(texts[start : start + BATCH_SIZE])).flat_values.numpy() for start in starts]


def measure(functions, num_rounds):
    """Alternates the functions. Returns their results, and texts per second of processor time in each round.

    Not of elapsed time, because other work on the machine would fall upon one of them by chance.
    """
    speeds, results = {name: [] for name in functions}, {}
    for _ in range(num_rounds):
        for name, (function, texts) in functions.items():
            start = time.process_time()
            results[name] = function(texts)
            speeds[name].append(len(texts) / (time.process_time() - start))
    return results, speeds


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--num_texts", type=int, default=4000)
    parser.add_argument("--num_rounds", type=int, default=5)
    arguments = parser.parse_args()
    rng = np.random.default_rng(0)
    words, syllables = create_words(rng)
    texts = create_texts(words, arguments.num_texts, rng)
    with tempfile.TemporaryDirectory() as folder:
        vocab_path = os.path.join(folder, "vocab.txt")
        write_vocab(vocab_path, words, syllables)
        tokenizer = Tokenizer(vocab_path)
        fast = tensorflow_text.FastBertTokenizer(tokenizer.vocab, lower_case_nfd_strip_accents=True)
        functions = {
            "plain Python": (functools.partial(run_python, tokenizer.vocab), texts[: len(texts) // 10]),
            "Tokenizer": (functools.partial(run_ours, vocab_path), texts),
            "Tokenizer in the graph": (functools.partial(run_in_batches, tokenizer.tokenize), texts),
            "FastBertTokenizer": (functools.partial(run_in_batches, fast.tokenize), texts),
        }
        results, speeds = measure(functions, arguments.num_rounds)
    equal = all(ours.tolist() == ids for ours, ids in zip(results["Tokenizer"], results["plain Python"]))
    num_words, num_pieces = len(set().union(*tokenizer.split(texts))), np.mean([*map(len, results["Tokenizer"])])
    print(f"{len(texts)} texts of {num_pieces:.0f} pieces, {num_words:,} distinct words")
    print(f"Tokenizer and plain Python are {'equal' if equal else 'DIFFERENT'}")
    for name, values in speeds.items():
        ratio = np.median(np.array(values) / speeds["plain Python"])
        print(f"{name:24}{np.median(values):10,.0f} texts/s{ratio:8.1f} times plain Python")


if __name__ == "__main__":
    main()
