"""Speed of the whole preprocessing of texts, against merely tokenising them in plain Python; both in one process.

python -m tests.benchmarks.text_preprocess [--num_texts=40000] [--vocab_file=vocab.txt --texts_file=reviews.jsonl.gz]

Times are of the processor, all threads together, so that other work on the machine counts little.
"""

import argparse
import glob
import gzip
import json
import os
import string
import tempfile
import time

import numpy as np

from tests.text import bert_tokenizer_reference
from text import encoding, preprocess
from text.config import PreprocessConfig
from text.datasets import lists
from text.tokenization import read_vocab

NUM_WORDS, WORDS_PER_TEXT = 60_000, 230


def create_reviews(count, rng):
    """About 230 words a text, as in IMDb, in sentences; the frequency of words follows Zipf's law.

    Returns:
      (texts, words): lists of str, the words from frequent to rare.
    """
    letters = np.array(list(string.ascii_lowercase))
    sizes = 2 + rng.poisson(np.linspace(1, 7, NUM_WORDS))  # frequent words are short
    words = np.array(list({"".join(rng.choice(letters, size)): None for size in sizes}))
    frequencies = 1 / np.arange(1, len(words) + 1)
    texts = []
    for length in rng.gamma(2.5, WORDS_PER_TEXT / 2.5, count).astype(int) + 20:
        text = rng.choice(words, length, p=frequencies / frequencies.sum())
        sentences = [" ".join(text[start : start + 15]) for start in range(0, length, 15)]
        texts.append(", and ".join(sentences[:1]) + ". " + " ".join(f"{s.capitalize()}." for s in sentences[1:]))
    return texts, words.tolist()


def write_vocab(path, words):
    characters = string.punctuation + string.digits + string.ascii_lowercase
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *characters, *(f"##{c}" for c in characters), *words]
    with open(path, "w") as file:
        file.write("\n".join(dict.fromkeys(pieces)) + "\n")


def cpu_seconds(function):
    start = time.process_time()
    function()
    return time.process_time() - start


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--num_texts", type=int, default=40_000)
    parser.add_argument("--num_plain", type=int, default=1000, help="texts that the plain tokenizer has to do")
    parser.add_argument("--num_rounds", type=int, default=3)
    parser.add_argument(
        "--texts_file", default="", help="a .jsonl.gz file with a field text; default generated reviews"
    )
    parser.add_argument("--vocab_file", default="", help="default the most frequent words of the generated reviews")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        texts, words = create_reviews(arguments.num_texts, np.random.default_rng(0))
        vocab_path = arguments.vocab_file or os.path.join(folder, "vocab.txt")
        if not arguments.vocab_file:
            write_vocab(vocab_path, words[: NUM_WORDS // 3])
        if arguments.texts_file:
            with gzip.open(arguments.texts_file) as file:
                texts = [json.loads(line)["text"] for line in file]
        ids = {piece: number for number, piece in enumerate(read_vocab(vocab_path))}
        source = lists.create_source("csv", ("bad", "good"), (texts, [0] * len(texts)))
        speeds = {"plain": [], "whole": []}
        for number in range(arguments.num_rounds):
            plain_texts = texts[: arguments.num_plain]
            duration = cpu_seconds(lambda: tokenize_plainly(plain_texts, ids))
            speeds["plain"].append(len(plain_texts) / duration)
            encoding.load_tokenizer.cache_clear()
            output_dir = os.path.join(folder, str(number))
            config = PreprocessConfig(
                task_name="csv", data_dir=output_dir, vocab_file=vocab_path, data_type="unsup", workers=1
            )
            duration = cpu_seconds(lambda: preprocess.write_records(config, source))
            speeds["whole"].append(len(texts) / duration)
        num_bytes = sum(map(os.path.getsize, glob.glob(f"{output_dir}/**/*.tfrecord", recursive=True)))
    plain, whole = np.median(speeds["plain"]), np.median(speeds["whole"])
    print(f"plain Python, tokenising only:               {plain:8,.0f} texts/s")
    print(f"counted, tokenised, augmented and written:   {whole:8,.0f} texts/s, {whole / plain:.1f} times plain Python")
    print(f"bytes per (original, augmented) pair: {num_bytes / len(texts):,.0f}")


def tokenize_plainly(texts, ids):
    for text in texts:
        bert_tokenizer_reference.piece_ids(bert_tokenizer_reference.split(text, lower_case=True), ids)


if __name__ == "__main__":
    main()
