"""The data of pre-training: texts → rows of word pieces in TFRecords → batches with masks and pairs of segments.

The unlabelled texts are cut into rows of up to max_seq_length - 3 pieces. A row begins with a sentence; one that does
not fit is cut off, and begins the next row. A sentence ends with ".", "!" or "?", even if that was an abbreviation, and
a title is a sentence. When a batch is made, each row is cut in two where one of its sentences begins, or one of its
words if it has no two sentences. Half of the rows then get another second segment, of the same length, from a row of
another text in the batch. So segments and masks change from pass to pass, and depend on seed and step alone.
"""

import collections
import functools
import os
import re

import numpy as np
import tensorflow as tf

from text import input_pipeline, record_format
from text.datasets.source import find_texts, read_inputs
from text.tokenization import Tokenizer, assemble_in_graph
from utils import record_stream, records, work
from utils.preprocessing import SetPlan, write_sets
from utils.record_stream import WHOLE
from utils.tracing import as_written

PARTS = ("train", "dev")
DEV_TEXTS, DEV_BATCHES = 2, 3  # begin the seeds of what is the same in all runs
MASKED_RATIO = 0.15
WHOLE_WORD_ROOM = 8  # pieces by which the last masked word may go beyond that ratio


# ---- texts to records -----------------------------------------------------------------------------------------------


class Vocabulary:
    """What pre-training needs to know of each piece, as arrays over their ids."""

    def __init__(self, tokenizer):
        def find(condition):
            return np.array([condition(piece) for piece in tokenizer.vocab])

        self.tokenizer, self.mask_id = tokenizer, tokenizer.mask_id
        self.ends_sentence = find(lambda piece: piece in (".", "!", "?"))
        self.is_inner = find(lambda piece: piece.startswith("##") and len(piece) > 2)  # goes on with a word
        self.is_special = find(lambda piece: piece in ("[PAD]", "[CLS]", "[SEP]", "[MASK]"))
        self.ordinary = np.flatnonzero(~find(re.compile(r"\[.+\]").fullmatch).astype(bool)).astype(np.int32)


@functools.lru_cache(maxsize=1)  # once in each process: a tokenizer remembers the words that it has seen
def load_vocabulary(vocab_path, lower_case, vocab_sha256):
    """The checksum is there to tell files apart that were at the same path one after the other."""
    return Vocabulary(Tokenizer(vocab_path, lower_case))


def write_records(config, source, vocab_path, data_dir, workers=1):
    """Writes the rows of all unlabelled texts, or goes on with them. Returns the RecordSets of PARTS."""
    texts = find_texts(source, "unlabeled")
    tokenizer = Tokenizer(vocab_path, config.do_lower_case)
    common = {"task_name": config.task_name, "num_planned": texts.count, "texts_sha256": texts.sha256}
    common |= {"vocab_sha256": tokenizer.sha256, "lower_case": tokenizer.lower_case}
    common |= {"max_seq_length": config.max_seq_length, "dev_size": config.dev_size}
    advice = "Delete that folder, or choose another --data_dir or --model_dir."
    encode = functools.partial(
        encode_shard,
        vocabulary_key=(vocab_path, tokenizer.lower_case, tokenizer.sha256),
        dev_texts=choose_dev_texts(texts.count, config.dev_size),
        length=config.max_seq_length - 3,
    )
    plans = [SetPlan(os.path.join(data_dir, part), texts, texts.count, settings={}, content=part) for part in PARTS]
    with work.start_processes(workers) as ordered_map:
        write_sets(plans, common, encode, functools.partial(read_inputs, source), ordered_map, advice=advice)
    for part, plan in zip(PARTS, plans):
        if not records.read_info(plan.set_dir)["num_examples"]:
            raise ValueError(f"{plan.set_dir} is empty: no {part} text of {config.task_name} has two words.")
    return [records.read_set(plan.set_dir, common, advice) for plan in plans]


def choose_dev_texts(num_texts, dev_size):
    """Positions of the texts that are held out: the same whatever the seed of a run, so that runs can be compared."""
    if dev_size >= num_texts:
        raise ValueError(f"dev_size={dev_size}: expected fewer than the {num_texts} texts that there are.")
    return frozenset(np.random.default_rng([DEV_TEXTS]).choice(num_texts, dev_size, replace=False).tolist())


def encode_shard(shard, positions_and_examples, counts, vocabulary_key, dev_texts, length):
    """Returns a function from a part to the records of its rows."""
    (positions, examples), vocabulary = positions_and_examples, load_vocabulary(*vocabulary_key)

    @functools.cache  # finished shards cost nothing
    def cut_texts():
        tokenizer, rows = vocabulary.tokenizer, collections.defaultdict(list)
        texts = [f"{example.title}. {example.text}" if example.title else example.text for example in examples]
        pieces_of_texts = tokenizer.piece_ids(tokenizer.split(texts))
        for position, pieces in zip(positions, pieces_of_texts):
            part = "dev" if position in dev_texts else "train"
            rows[part] += [(position, row) for row in cut(pieces, vocabulary, length)]
        return rows

    def encode(part):
        rows = cut_texts()[part]
        return record_format.encode([(row, 0) for _, row in rows], [position for position, _ in rows])

    return encode


def cut(pieces, vocabulary, length):
    """Yields the rows of a text, as told above; those of one word are left out, since they cannot be cut in two."""
    ends, is_word = vocabulary.ends_sentence[pieces], ~vocabulary.is_inner[pieces]
    sentences = np.flatnonzero(ends[:-1] & ~ends[1:]) + 1  # where they begin, but for the first
    start, end = 0, 0
    while end < len(pieces):
        end = start + length
        if is_word[start + 1 : end].any():
            yield pieces[start:end]
        number = np.searchsorted(sentences, end, side="right")
        start = int(sentences[number - 1]) if number and sentences[number - 1] > start else end


# ---- records to batches ---------------------------------------------------------------------------------------------


@as_written
def create_train_dataset(config, record_set, create_batch, start_step=0, share=WHOLE):
    """A share of the global batches for the steps start_step, start_step + 1, …, without end."""
    examples = input_pipeline.example_batches(
        [record_set], ["original", "index"], config.train_batch_size, config.seed, start_step, config.shuffle_buffer
    )
    steps = tf.data.Dataset.range(start_step, tf.int64.max)
    take = functools.partial(share.take, batch_size=config.train_batch_size)
    return tf.data.Dataset.zip((steps, examples)).map(
        lambda step, batch: create_batch(batch[0], tf.stack([tf.constant(config.seed, tf.int64), step]), take),
        num_parallel_calls=tf.data.AUTOTUNE,
    )


@as_written
def create_dev_dataset(record_set, batch_size, create_batch, share=WHOLE):
    """A share of batches with every row that is held out once, cut and masked the same way each time."""
    take = functools.partial(share.take, batch_size=batch_size)

    def create_full_batch(number, numbered):
        _, serialized = numbered
        rows = record_format.parse(serialized, ["original", "index"])
        batch = create_batch(rows, tf.stack([tf.constant(DEV_BATCHES, tf.int64), number]), take)
        return record_stream.fill_up(batch, share.size(batch_size))

    batches = input_pipeline.sorted_batches([record_set], batch_size).enumerate()
    return batches.map(create_full_batch, num_parallel_calls=tf.data.AUTOTUNE)


def create_pretraining_batch(rows, seed, take, config, vocabulary, fixed_length=False):
    """Makes a share of a batch for text.models.pretrainer.PretrainingModel.

    Args:
      rows: as record_format.parse gives them: "original" and the "index" of the text; those of the whole batch, in
        which segments of other texts are found.
      seed: int64 [2]; the same rows and seed give the same batch.
      take: a function that takes the rows of the share from a tensor.
      fixed_length: fill up to max_seq_length, not just to the length of the longest sequence.
    """
    pair_seed, mask_seed = tf.unstack(tf.random.experimental.stateless_split(seed, 2))
    ids = record_format.pad(rows["original"], config.max_seq_length - 3)["ids"]
    lengths, batch = record_format.num_pieces(rows["original"]), {}
    if config.next_sentence:
        first, second, is_random = choose_segments(ids, lengths, rows["index"], pair_seed, vocabulary, take)
        batch |= {"nsp_labels": is_random, "nsp_weights": tf.ones_like(is_random, tf.float32)}
    else:
        first, second = tf.RaggedTensor.from_tensor(take(ids), lengths=take(lengths)), None
    ids, type_ids = assemble_in_graph(first, second, config.max_seq_length, False, vocabulary.tokenizer)
    num_rows = tf.shape(rows["index"])[0]
    masked_ids, predictions = mask_pieces(ids, mask_seed, vocabulary, config.whole_word_masking, num_rows, take)
    lengths = tf.math.count_nonzero(ids, axis=1, dtype=tf.int32)
    length = input_pipeline.batch_length(lengths, config.max_seq_length, fixed_length)
    batch |= {"ids": masked_ids[:, :length], "type_ids": type_ids[:, :length], **predictions}
    num_taken = take(rows["index"]).shape[0]
    return {name: tf.ensure_shape(value, [num_taken, *value.shape[1:]]) for name, value in batch.items()}


def choose_segments(ids, lengths, texts, seed, vocabulary, take=tf.identity):
    """Cuts each row in two, and gives half of them a second segment from another text.

    Args:
      ids: int32 [n, width], filled up with 0; lengths: int32 [n].
      texts: [n], which text a row is of. A row that is drawn for another one of its own text is not taken.
      take: a function that takes those of the n rows whose segments are wanted.

    Returns:
      (first, second, is_random): int32 RaggedTensors [n, (pieces)], and int32 [n], 1 where the second is not the next.
    """
    border_seed, partner_seed, coin_seed = tf.unstack(tf.random.experimental.stateless_split(seed, 3))
    num_rows, width = tf.unstack(tf.shape(ids))
    borders = find_borders(ids, lengths, vocabulary)
    scores = tf.random.stateless_uniform([num_rows, width], border_seed)
    border = tf.argmax(tf.where(borders, scores, -1.0), axis=1, output_type=tf.int32)
    rows = tf.range(num_rows)
    distance = tf.random.stateless_uniform([num_rows], partner_seed, 1, tf.maximum(num_rows, 2), tf.int32)
    partner = (rows + distance) % num_rows
    is_random = (tf.random.stateless_uniform([num_rows], coin_seed) < 0.5) & (tf.gather(texts, partner) != texts)
    # Of the other row, what begins at its last border from which it has as many pieces as the true next segment. So
    # the length does not tell which of them it is, unless the other row is the shorter one.
    count, other_length = lengths - border, tf.gather(lengths, partner)
    is_early = tf.range(width) <= (other_length - count)[:, tf.newaxis]
    other_border = tf.reduce_max(tf.where(tf.gather(borders, partner) & is_early, tf.range(width), 0), axis=1)
    start = tf.where(is_random, partner * width + other_border, rows * width + border)
    count = tf.where(is_random, tf.minimum(count, other_length - other_border), count)
    pieces = tf.reshape(ids, [-1])
    rows, border, start, count, is_random = map(take, (rows, border, start, count, is_random))
    first = tf.gather(pieces, tf.ragged.range(rows * width, rows * width + border))
    second = tf.gather(pieces, tf.ragged.range(start, start + count))
    return first, second, tf.cast(is_random, tf.int32)


def find_borders(ids, lengths, vocabulary):
    """Where a row may be cut: where a sentence begins or, if it has only one, a word. Bool, of the shape of ids."""
    position = tf.range(tf.shape(ids)[1])
    is_inside = (position > 0) & (position < lengths[:, tf.newaxis])
    ends = tf.gather(vocabulary.ends_sentence, ids)
    sentences = tf.pad(ends[:, :-1], [[0, 0], [1, 0]]) & ~ends & is_inside
    words = ~tf.gather(vocabulary.is_inner, ids) & is_inside
    return tf.where(tf.reduce_any(sentences, axis=1, keepdims=True), sentences, words)


def mask_pieces(ids, seed, vocabulary, whole_words, num_drawn=None, take=tf.identity):
    """Chooses the pieces to be predicted, and hides most of them.

    Args:
      ids: int32 [n, length] with special pieces and padding, which are never chosen.
      whole_words: choose all pieces of a word or none.
      num_drawn, take: draw for so many rows, of which `take` takes these n; None: they are all there are.

    Returns:
      (ids, predictions): as given but for the masks; and "positions", "mlm_labels" and "mlm_weights" [n, predictions],
      where a weight of 0 marks that there are fewer.
    """
    choice_seed, kind_seed, piece_seed = tf.unstack(tf.random.experimental.stateless_split(seed, 3))
    num_rows, length = tf.shape(ids)[0], ids.shape[1]

    def draw(width, *seed_and_range):
        shape = [num_rows if num_drawn is None else num_drawn, width]
        return take(tf.random.stateless_uniform(shape, *seed_and_range))

    scores = draw(length, choice_seed)
    positions, chosen = choose_positions(ids, scores, vocabulary, whole_words)
    labels = tf.gather(ids, positions, batch_dims=1)
    kind = draw(positions.shape[1], kind_seed)
    number = draw(positions.shape[1], piece_seed, 0, len(vocabulary.ordinary), tf.int32)
    replaced = tf.where(kind < 0.8, vocabulary.mask_id, tf.gather(vocabulary.ordinary, number))
    shown = tf.where(chosen & (kind < 0.9), replaced, labels)
    flat_positions = positions + tf.range(num_rows)[:, tf.newaxis] * length
    flat_ids = tf.tensor_scatter_nd_update(tf.reshape(ids, [-1]), flat_positions[:, :, tf.newaxis], shown)
    predictions = {"positions": positions, "mlm_labels": labels, "mlm_weights": tf.cast(chosen, tf.float32)}
    return tf.reshape(flat_ids, [-1, length]), predictions


def choose_positions(ids, scores, vocabulary, whole_words):
    """Returns (positions, chosen), int32 and bool [n, predictions]; positions that are not chosen are 0.

    The words get a random order, by `scores` of the shape of ids; the first are taken until they have enough pieces.
    """
    length = ids.shape[1]
    num_predictions = round(MASKED_RATIO * (length - 2)) + WHOLE_WORD_ROOM * whole_words
    num_predictions = min(max(num_predictions, 1), length - 1)
    is_special = tf.gather(vocabulary.is_special, ids)
    begins_word = tf.ones_like(is_special)
    if whole_words:  # a row may begin within a word
        begins_word = ~tf.gather(vocabulary.is_inner, ids) | tf.pad(is_special[:, :-1], [[0, 0], [1, 0]])
    word = tf.cumsum(tf.cast(begins_word, tf.int32), axis=1) - 1
    scores = tf.gather(scores, word, batch_dims=1)
    # Pieces with the same score, which are those of a word, stay in their order.
    order = tf.math.top_k(tf.where(is_special, -1.0, scores), num_predictions + 1).indices
    rank = tf.cumsum(tf.cast(tf.gather(begins_word, order, batch_dims=1), tf.int32), axis=1)  # of the piece's word
    num_pieces = tf.math.count_nonzero(~is_special, axis=1, dtype=tf.float32)
    num_chosen = tf.maximum(tf.cast(tf.round(MASKED_RATIO * num_pieces), tf.int32), 1)
    last_rank = tf.gather(rank, num_chosen[:, tf.newaxis] - 1, batch_dims=1)
    # A word that does not fit as a whole has the rank of the first piece without room.
    chosen = ((rank <= last_rank) & (rank < rank[:, -1:]))[:, :-1]
    return tf.where(chosen, order[:, :-1], 0), chosen
