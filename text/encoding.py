"""From texts to words, to word pieces, to records; and the augmentations, which replace words or texts on the way.

Texts are split into words once, and each different word into pieces once; the rest is arithmetic with their numbers.
An example has one text, or with a title two, which follow each other in all arrays of texts.
"""

import dataclasses
import functools
import itertools
from typing import Any, NamedTuple

import numpy as np

from augmentation import back_translation, text_ops, word_level
from text import record_format
from text.tokenization import assemble
from utils import files

# ---- words ----------------------------------------------------------------------------------------------------------


class Words(NamedTuple):
    """The words of some texts, flat: text i has the words word_ids[row_splits[i]:row_splits[i + 1]]."""

    words: list[str]  # the different words
    word_ids: np.ndarray  # int32 [total], indices into `words`
    row_splits: np.ndarray  # int64 [num_texts + 1]
    lengths: np.ndarray  # int64 [num_texts], of the texts in characters


def split_texts(tokenizer, texts):
    lengths = np.fromiter(map(len, texts), np.int64, len(texts))
    return Words(*word_level.number_words(tokenizer.split(texts)), lengths)


def save_words(path, words):
    joined = np.frombuffer("\n".join(words.words).encode(), np.uint8)  # no word has white space in it
    files.write_arrays(path, **words._asdict() | {"words": joined})


def load_words(path, num_texts):
    try:
        arrays = files.read_arrays(path)
        words = Words(arrays["words"].tobytes().decode().split(), *(arrays[name] for name in Words._fields[1:]))
        _check_words(words)
    except (ValueError, KeyError) as error:
        raise ValueError(f"{path} is damaged ({error}): delete it, so that it is made again.") from error
    if len(words.lengths) != num_texts:
        raise ValueError(f"{path} has the words of {len(words.lengths)} texts, expected {num_texts}: delete it.")
    return words


def _check_words(words):
    """Raises ValueError unless the arrays fit each other."""
    _, word_ids, row_splits, lengths = words
    if [(array.dtype.kind, array.ndim) for array in (word_ids, row_splits, lengths)] != [("i", 1)] * 3:
        raise ValueError("expected rows of whole numbers")
    if len(row_splits) != len(lengths) + 1 or row_splits[0] or row_splits[-1] != len(word_ids):
        raise ValueError(f"its {len(word_ids)} words do not belong to {len(lengths)} texts")
    if (np.diff(row_splits) < 0).any() or not 0 <= word_ids.min(initial=0) <= word_ids.max(initial=0) <= max(
        len(words.words) - 1, 0
    ):
        raise ValueError("it has numbers that belong to no word")


def texts_of(examples, texts_per_example):
    """The texts of the examples: for those with titles, text and title in turn."""
    if texts_per_example == 1:
        return [example.text for example in examples]
    return [text or "" for example in examples for text in (example.text, example.title)]


# ---- pieces ---------------------------------------------------------------------------------------------------------


class RaggedTable(NamedTuple):
    """A list of short arrays, one after the other in memory: row i is values[row_splits[i]:row_splits[i + 1]]."""

    values: np.ndarray  # [total]
    row_splits: np.ndarray  # int64 [num_rows + 1]

    def join(self, rows, groups):
        """Joins the arrays of several rows.

        Args:
          rows: int [m]; groups: int [n + 1], row splits of `rows`.

        Returns:
          RaggedTable of n rows.
        """
        starts = self.row_splits[rows]
        indices, splits = concatenate_ranges(starts, self.row_splits[rows + 1] - starts)
        return RaggedTable(self.values[indices], splits[groups])


def concatenate_ranges(starts, counts):
    """The numbers starts[i], …, starts[i] + counts[i] - 1 for each i, one after the other, and their row splits."""
    splits = np.concatenate([[0], np.cumsum(counts)])
    return np.arange(splits[-1]) + np.repeat(starts - splits[:-1], counts), splits


def create_piece_table(tokenizer, words):
    """The pieces of each word: RaggedTable of int32."""
    pieces = tokenizer.pieces_of_words(words)
    row_splits = np.cumsum([0, *map(len, pieces)])
    return RaggedTable(np.fromiter(itertools.chain.from_iterable(pieces), np.int32, row_splits[-1]), row_splits)


@functools.lru_cache(maxsize=1)  # once in each process: a tokenizer remembers the words that it has seen
def load_tokenizer(data_dir, tokenization):
    """The tokenization tells files apart that were in the same folder one after the other."""
    return record_format.load_tokenizer(data_dir, tokenization)


class Encoder:
    """What a process needs to turn words into records. What is large is loaded when first asked for."""

    def __init__(self, data_dir, tokenization, has_title, statistics_path="", num_texts=0):
        self.tokenizer = load_tokenizer(data_dir, tokenization)
        self.tokenization, self.texts_per_example = tokenization, 1 + has_title
        self.statistics_path, self.num_texts = statistics_path, num_texts

    @functools.cached_property
    def statistics(self):
        return load_statistics(self.statistics_path, self.num_texts)

    @functools.lru_cache  # with each score goes a table of what its words are drawn by
    def statistics_of(self, score):
        return dataclasses.replace(self.statistics, score=score)

    @functools.cached_property
    def word_numbers(self):
        return {word: number for number, word in enumerate(self.statistics.words)}

    @functools.cached_property
    def piece_table(self):
        return create_piece_table(self.tokenizer, self.statistics.words)

    def encode(self, word_ids, row_splits, piece_table):
        """Turns words into pieces and joins the texts of each example.

        Args:
          word_ids: int [total], rows of piece_table; row_splits: int [num_texts + 1].

        Returns:
          list of (ids int32 [pieces], num_second), one for each example.
        """
        word_ids, row_splits = self.trim(word_ids, row_splits)
        pieces, row_splits = piece_table.join(word_ids, row_splits)
        texts = [pieces[start:end] for start, end in itertools.pairwise(row_splits.tolist())]
        step, settings = self.texts_per_example, self.tokenization
        seconds = texts[1::2] if step == 2 else itertools.repeat(None)
        return [
            assemble(a, b, settings.max_seq_length, settings.keep_tail, self.tokenizer)
            for a, b in zip(texts[::step], seconds)
        ]

    def trim(self, word_ids, row_splits):
        """Cuts off words that would be cut off in any case, since each has at least one piece."""
        counts = np.minimum(np.diff(row_splits), self.tokenization.max_seq_length)
        starts = row_splits[1:] - counts if self.tokenization.keep_tail else row_splits[:-1]
        indices, row_splits = concatenate_ranges(starts, counts)
        return word_ids[indices], row_splits


def load_statistics(path, num_texts):
    """Reads the statistics that text.survey wrote."""
    try:
        statistics = word_level.Statistics.from_arrays(files.read_arrays(path))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"{path} is damaged or no file of statistics: delete it, so that it is made again.") from error
    if statistics.num_texts != num_texts:
        raise ValueError(
            f"{path} was made from num_texts={statistics.num_texts}, expected the statistics of num_texts={num_texts}: "
            "delete it, so that it is made again."
        )
    return statistics


load_encoder = functools.lru_cache(maxsize=1)(Encoder)  # once in each process


# ---- records --------------------------------------------------------------------------------------------------------


class Content(NamedTuple):
    """What a set of records holds beside the originals."""

    labelled: bool = False
    aug_op: str = ""  # "" for plain records
    random_key: tuple = ()  # with the number of the shard, the seed of its augmentation
    paraphrases: Any = None  # those of bt


class Block:
    """The examples of one shard; everything is computed when first asked for, and then kept for the next set."""

    def __init__(self, encoder, positions, examples=(), words_path=""):
        """Args:
        examples: list of text.datasets.source.Example; or instead
        words_path: file with the words of unlabelled texts.
        """
        self.encoder, self.positions, self.words_path = encoder, positions, words_path
        self.labels = [example.label for example in examples]
        self.texts = texts_of(examples, encoder.texts_per_example)

    @functools.cached_property
    def words(self):
        if self.words_path:
            return load_words(self.words_path, len(self.positions) * self.encoder.texts_per_example)
        return split_texts(self.encoder.tokenizer, self.texts)

    @functools.cached_property
    def originals(self):
        piece_table = create_piece_table(self.encoder.tokenizer, self.words.words)
        return self.encoder.encode(self.words.word_ids, self.words.row_splits, piece_table)

    @functools.cached_property
    def word_ids(self):
        """The words by their numbers in the statistics: int32 [total]."""
        numbers = np.fromiter(map(self.encoder.word_numbers.__getitem__, self.words.words), np.int32)
        return numbers[self.words.word_ids]


def encode_shard(encoder_settings, shard, inputs, counts):
    """Returns a function from a set's Content to the serialised examples of this shard.

    Args:
      encoder_settings: arguments of Encoder; inputs: arguments of Block.
      counts: Counter, to which (aug_op, "changed") and (aug_op, "all") are added: numbers of words, of bt: of texts.
    """
    block = Block(load_encoder(*encoder_settings), *inputs)

    def encode(content):
        augmented, labels = None, block.labels if content.labelled else None
        if content.aug_op:
            kind, value = text_ops.parse_op(content.aug_op)
            rng = np.random.default_rng((*content.random_key, shard))
            augmented, num_changed, num_all = AUGMENTATIONS[kind](block, value, rng, content.paraphrases)
            counts.update({(content.aug_op, "changed"): num_changed, (content.aug_op, "all"): num_all})
        return record_format.encode(block.originals, block.positions, labels, augmented)

    return encode


# ---- augmentations --------------------------------------------------------------------------------------------------
# Each returns the augmented examples, how many words (of bt: texts) were changed, and of how many.


def replace_by_tf_idf(block, token_prob, rng, _paraphrases, score="code"):
    # An example is one text here, its title included: the scores compare all of its words.
    rows = block.words.row_splits[:: block.encoder.texts_per_example]
    statistics = block.encoder.statistics_of(score)
    replaced = word_level.replace_by_tf_idf(block.word_ids, rows, statistics, token_prob, rng)
    return _encode_replaced(block, replaced)


def replace_uniformly(block, token_prob, rng, _paraphrases):
    vocab_size = len(block.encoder.statistics.words)
    replaced = word_level.replace_uniformly(block.word_ids, block.words.row_splits, vocab_size, token_prob, rng)
    return _encode_replaced(block, replaced)


def _encode_replaced(block, replaced):
    encoded = block.encoder.encode(replaced, block.words.row_splits, block.encoder.piece_table)
    return encoded, np.count_nonzero(replaced != block.word_ids), len(replaced)


def take_paraphrases(block, _temperature, _rng, paraphrases):
    step, tokenizer, originals = block.encoder.texts_per_example, block.encoder.tokenizer, block.words
    candidates = paraphrases.read(step * block.positions[0], step * (block.positions[-1] + 1))
    accepted = np.array(back_translation.accept(originals.lengths, candidates))
    taken = split_texts(tokenizer, list(itertools.compress(candidates, accepted)))
    # A table of all originals and, after them, the paraphrases that are taken: from it come the augmented texts.
    words = originals.words + taken.words
    word_ids = np.concatenate([originals.word_ids, taken.word_ids + len(originals.words)])
    row_splits = np.concatenate([originals.row_splits, originals.row_splits[-1] + taken.row_splits[1:]])
    rows = np.where(accepted, len(accepted) + np.cumsum(accepted) - 1, np.arange(len(accepted)))
    chosen = RaggedTable(word_ids, row_splits).join(rows, np.arange(len(rows) + 1))
    encoded = block.encoder.encode(chosen.values, chosen.row_splits, create_piece_table(tokenizer, words))
    return encoded, np.count_nonzero(accepted), len(accepted)


AUGMENTATIONS = {
    "tf_idf": replace_by_tf_idf,
    "tf_idf_paper": functools.partial(replace_by_tf_idf, score="paper"),
    "unif": replace_uniformly,
    "bt": take_paraphrases,
}
