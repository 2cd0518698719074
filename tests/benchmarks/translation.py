"""Speed of the native translation engine, beside the same model without cache and length buckets, and CTranslate2.

All decode greedily, so that they make the same translations. CTranslate2 is measured where it is installed
(requirements-translation.txt), on the same weights in float32.

python -m tests.benchmarks.translation --model=back_translate/models/en_fr [--input_file=sentences.txt]
"""

import argparse
import os
import tempfile

import numpy as np
import tensorflow as tf

from back_translate import convert, engines, model_files
from back_translate.subwords import EOS_ID, PAD_ID
from tests.benchmarks.randaugment import seconds

EXAMPLE = os.path.join(os.path.dirname(engines.__file__), "example.txt")


class PlainEngine:
    """Sentences in the order of the file, and for each token the whole decoder again on all tokens before it."""

    def __init__(self, engine, batch_size):
        self.vocabulary, self.extra_length, self.batch_size = engine.vocabulary, engine.decoder.extra_length, batch_size
        model = engine.decoder.model
        options = {"reduce_retracing": True, "autograph": False}
        self.encode = tf.function(model.encode, **options)
        self.decode = tf.function(lambda *arguments: model.decode(*arguments)[:, -1], **options)

    def translate(self, sentences):
        encoded = [self.vocabulary.encode(sentence) + [EOS_ID] for sentence in sentences]
        batches = [encoded[start : start + self.batch_size] for start in range(0, len(encoded), self.batch_size)]
        return [translation for batch in batches for translation in self.translate_batch(batch)]

    def translate_batch(self, batch):
        length = max(map(len, batch))
        source_ids = np.array([ids + [PAD_ID] * (length - len(ids)) for ids in batch], np.int32)
        encoded, tokens = self.encode(source_ids), np.zeros([len(batch), 1], np.int32)
        while tokens.shape[1] <= length + self.extra_length and not (tokens == EOS_ID).any(axis=1).all():
            tokens[:, -1] = self.decode(encoded, source_ids, tokens).numpy().argmax(axis=-1)
            tokens = np.pad(tokens, [[0, 0], [0, 1]])
        return [self.vocabulary.decode(row[: len(ids) + self.extra_length]) for row, ids in zip(tokens.tolist(), batch)]


def read_sentences(path, num_sentences):
    """The lines of a file, again and again."""
    with open(path, encoding="utf-8") as file:
        lines = [line.strip() for line in file if line.strip()]
    return [lines[number % len(lines)] for number in range(num_sentences)]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", required=True, help="folder of back_translate.train")
    parser.add_argument("--input_file", default=EXAMPLE, help="one sentence per line")
    parser.add_argument("--num_sentences", type=int, default=1024)
    parser.add_argument("--batch_size", type=int, default=32, help="of the plain reference")
    parser.add_argument("--num_rounds", type=int, default=2)
    flags = parser.parse_args()
    sentences = read_sentences(flags.input_file, flags.num_sentences)
    native = engines.TensorFlowEngine.load(flags.model)
    compared = {"native": native, "without cache and buckets": PlainEngine(native, flags.batch_size)}
    with tempfile.TemporaryDirectory() as folder:
        try:
            convert.write_ctranslate2(f"{folder}/ct2", *model_files.load_model(flags.model), "float32")
            compared["CTranslate2 float32"] = engines.CTranslate2Engine(f"{folder}/ct2")
        except ValueError as error:
            print(error)
        translations = native.translate(sentences)  # which also compiles
        num_tokens = sum(len(native.vocabulary.encode(translation)) + 1 for translation in translations)
        times = {}
        for name, engine in compared.items():
            same = np.mean([a == b for a, b in zip(engine.translate(sentences), translations)])
            times[name] = min(seconds(lambda: engine.translate(sentences))[0] for _ in range(flags.num_rounds))
            print(
                f"{name}: {len(sentences) / times[name]:.1f} sentences/s, {num_tokens / times[name]:.0f} tokens/s, "
                f"native is {times[name] / times['native']:.2f} times as fast, {same:.1%} of the translations equal"
            )


if __name__ == "__main__":
    main()
