"""Engines that translate: a list of sentences in, a list of sentences out, in the same order.

engine = TensorFlowEngine.load("back_translate/models/en_fr", temperature=0.8, seed=1)
engine.translate(["It was a good film.", "I liked it."])
"""

import concurrent.futures
import hashlib
import os

import numpy as np

from back_translate import model_files
from back_translate.decoding import ROWS, Decoder, padded_length
from back_translate.subwords import EOS_ID, SubwordVocabulary
from back_translate.transformer import Transformer
from utils import files

MAX_SOURCE_LENGTH = 512  # in subwords; a longer sentence is not one, and stays as it is
NUM_THREADS = 2  # batches of the native engine side by side


class TensorFlowEngine:
    """The native Transformer."""

    def __init__(self, config, vocabulary, weights, seed=0, batch_tokens=8192, **sampling):
        """Args:
        seed: of sampling; the same sentence, seed and temperature always give the same translation.
        batch_tokens: about how many source subwords are translated together.
        sampling: temperature, top_k, top_p and extra_length of decoding.Decoder.
        """
        self.vocabulary, self.seed, self.batch_tokens = vocabulary, seed, batch_tokens
        self.decoder = Decoder(Transformer(config, weights), **sampling)

    @classmethod
    def load(cls, folder, **options):
        """Loads a folder of back_translate.train."""
        return cls(*model_files.load_model(folder), **options)

    def translate(self, sentences):
        encoded = [self.vocabulary.encode(sentence) + [EOS_ID] for sentence in sentences]
        translations = list(sentences)  # empty sentences and those too long for the model stay as they are

        def translate_batch(numbers):
            uniforms = self._uniforms([sentences[number] for number in numbers], len(encoded[numbers[0]]))
            outputs = self.decoder.decode([encoded[number] for number in numbers], uniforms)
            for number, ids in zip(numbers, outputs):
                translations[number] = self.vocabulary.decode(ids)

        # Batches side by side: the many small operations of a decoder do not keep several cores busy.
        with concurrent.futures.ThreadPoolExecutor(NUM_THREADS) as executor:
            list(executor.map(translate_batch, self._batches(encoded)))
        return translations

    def _batches(self, encoded):
        """Lists of numbers of sentences that are padded to the same length, long ones first."""
        buckets = {}
        for number, ids in enumerate(encoded):
            if 1 < len(ids) <= MAX_SOURCE_LENGTH:
                buckets.setdefault(padded_length(len(ids)), []).append(number)
        for length, numbers in sorted(buckets.items(), reverse=True):
            size = max(self.batch_tokens // (length * ROWS), 1) * ROWS
            yield from (numbers[start : start + size] for start in range(0, len(numbers), size))

    def _uniforms(self, sentences, source_length):
        if not self.decoder.temperature:
            return None
        count = self.decoder.num_uniforms(source_length)
        return np.stack([uniforms_of(sentence, self.seed, count) for sentence in sentences])


def uniforms_of(sentence, seed, count):
    """The random numbers that belong to a sentence and a seed: `count` floats in [0, 1)."""
    digest = hashlib.blake2b(f"{seed}\n{sentence}".encode("utf-8", "surrogatepass"), digest_size=16).digest()
    return np.random.Generator(np.random.Philox(key=int.from_bytes(digest, "little"))).random(count)


# ---- CTranslate2 ----------------------------------------------------------------------------------------------------

SUBWORD_FILE = "vocab.subwords"
WHY_LOCAL = "CTranslate2 knows no others"


class CTranslate2Engine:
    """A CTranslate2 model: one of back_translate.convert, or any with SentencePiece files, as OPUS-MT's have.

    CTranslate2 draws from one random generator per thread: a seed does not fix what a sentence becomes, and a process
    that is continued draws anew. At temperature 0 translations are always the same.
    """

    def __init__(self, folder, temperature=0.0, seed=0, top_k=0, top_p=1.0, batch_tokens=8192, extra_length=100):
        files.require_local("model", folder, WHY_LOCAL)
        ctranslate2 = import_ctranslate2()
        self.pieces = load_pieces(folder)
        ctranslate2.set_random_seed(seed)
        # On a CPU, batches side by side: threads that share a batch wait for each other, long on a busy machine.
        on_gpu = ctranslate2.get_cuda_device_count() > 0
        threads = {"inter_threads": 1 if on_gpu else os.cpu_count() or 1, "intra_threads": 1}
        with files.explain_damage(folder, "convert the model again, with back_translate.convert."):
            self.translator = ctranslate2.Translator(folder, device="cuda" if on_gpu else "cpu", **threads)
        # Here 1 is the most probable token, and 0 draws from all.
        self.sampling = {"sampling_temperature": temperature, "sampling_topk": top_k, "sampling_topp": top_p}
        if not temperature:
            self.sampling = {"sampling_topk": 1}
        self.batch_tokens, self.extra_length = batch_tokens, extra_length

    def translate(self, sentences):
        tokens = [self.pieces.encode(sentence) for sentence in sentences]
        translations = list(sentences)  # empty sentences and those too long for the model stay as they are
        numbers = [n for n, row in enumerate(tokens) if sentences[n].strip() and len(row) <= MAX_SOURCE_LENGTH]
        if not numbers:
            return translations
        longest = max(len(tokens[number]) for number in numbers)
        results = self.translator.translate_batch(
            [tokens[number] for number in numbers],
            beam_size=1,
            max_batch_size=self.batch_tokens,
            batch_type="tokens",
            max_decoding_length=min(longest + self.extra_length, self.pieces.num_positions),
            **self.sampling,
        )
        for number, result in zip(numbers, results):
            limit = len(tokens[number]) + self.extra_length
            translations[number] = self.pieces.decode(result.hypotheses[0][:limit])
        return translations


class SubwordPieces:
    """Tokens of a converted model: the numbers of our subwords, as text."""

    num_positions = 1024  # as back_translate.convert writes them

    def __init__(self, path):
        self.vocabulary = SubwordVocabulary.read(path)

    def encode(self, sentence):
        return [str(number) for number in (*self.vocabulary.encode(sentence), EOS_ID)]

    def decode(self, tokens):
        return self.vocabulary.decode(map(int, tokens))


class SentencePieces:
    """Tokens of two SentencePiece models."""

    num_positions = 512  # as OPUS-MT models have them

    def __init__(self, source_path, target_path, end):
        import sentencepiece

        with files.explain_damage(f"{source_path} or {target_path}", "download the model again."):
            self.source = sentencepiece.SentencePieceProcessor(model_file=source_path)
            self.target = sentencepiece.SentencePieceProcessor(model_file=target_path)
        self.end = end

    def encode(self, sentence):
        return self.source.encode(sentence, out_type=str) + self.end

    def decode(self, tokens):
        return self.target.decode(tokens)


def load_pieces(folder):
    """What turns sentences into the tokens of the model in a folder, and back."""
    subwords, source, target, config = (
        os.path.join(folder, name) for name in (SUBWORD_FILE, "source.spm", "target.spm", "config.json")
    )
    if not files.exists(os.path.join(folder, "model.bin")):
        raise ValueError(f"{folder} is not a CTranslate2 model: there is no model.bin. Use back_translate.convert.")
    if files.exists(subwords):
        return SubwordPieces(subwords)
    if files.exists(source) and files.exists(target):
        settings = files.read_json(config) if files.exists(config) else {}
        files.check_fields(config, settings, {}, {"add_source_eos": bool, "eos_token": str})
        with files.explain_damage(config):
            settings.get("eos_token", "").encode()  # JSON can spell half of a surrogate pair, which is no text
        end = [] if settings.get("add_source_eos") else [settings.get("eos_token", "</s>")]  # or CTranslate2 adds it
        return SentencePieces(source, target, end)
    raise ValueError(
        f"{folder} has neither {SUBWORD_FILE} nor source.spm and target.spm: copy those of the model there."
    )


def import_ctranslate2():
    try:
        import ctranslate2
    except ImportError as error:
        raise ValueError(
            f"engine=ctranslate2: it is not installed ({error}). Run: pip install -r requirements-translation.txt"
        ) from error
    return ctranslate2


ENGINES = {"tensorflow": TensorFlowEngine.load, "ctranslate2": CTranslate2Engine}


def create_engine(name, model, **options):
    """Loads the model in a folder with an engine of the table; options as TensorFlowEngine takes them."""
    return ENGINES[name](model, **options)
