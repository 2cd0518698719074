"""Pre-trains BERT further on the texts of a task, as for the paper's BERT_FINETUNE, or from scratch.

python -m text.pretrain --task_name=imdb --raw_data_dir=data/raw/imdb --model_dir=runs/imdb_pretrained \\
    --init_checkpoint=data/bert/uncased_L-12_H-768_A-12
python -m text.main --init_checkpoint=runs/imdb_pretrained/bert ...        # likewise text.preprocess

The tasks are BERT's (Devlin et al., 2019): to tell 15 % of the pieces, of which 80 % are masked, 10 % replaced by a
random piece and 10 % left as they are; and to tell whether the second segment follows the first in its text. What has
the lowest loss on texts that are held out (paper, appendix F) is written to <model_dir>/bert in Google's format.

The unlabelled texts are cut into rows of up to max_seq_length - 3 pieces. A row begins with a sentence; one that does
not fit is cut off, and begins the next row. A sentence ends with ".", "!" or "?", even if that was an abbreviation, and
a title is a sentence. When a batch is made, each row is cut in two where one of its sentences begins, or one of its
words if it has no two sentences. Half of the rows then get another second segment, of the same length, from a row of
another text in the batch. So segments and masks change from pass to pass, and depend on seed and step alone.
"""

import collections
import dataclasses
import functools
import os
import re

import numpy as np
import tensorflow as tf
from absl import app, flags, logging
from tqdm import tqdm

from text import bert_weights, datasets, input_pipeline, preprocess, record_format
from text.models import create_encoder_config
from text.models.pretrainer import PretrainingModel, create_pretraining_network
from text.tokenization import Tokenizer, assemble_in_graph
from text.train import precision
from utils import distribution, records, run_dir, settings, training, work
from utils.optimizers import BertAdamW
from utils.schedules import WarmupLinear
from utils.settings import setting

FLAGS = flags.FLAGS
PARTS = ("train", "dev")
DEV_TEXTS, DEV_BATCHES = 2, 3  # begin the seeds of what is the same in all runs
MASKED_RATIO = 0.15
WHOLE_WORD_ROOM = 8  # pieces by which the last masked word may go beyond that ratio
NO_DECAY = ("layer_norm", "LayerNorm", "bias")  # the second name is that of the head


@dataclasses.dataclass(frozen=True)
class PretrainConfig:
    # Texts
    task_name: str = setting("imdb", "Data set; csv for your own files.", datasets.TASK_NAMES)
    raw_data_dir: str = setting("", "Folder with the official files; default data/raw/<task_name>.", resumable=True)
    train_file: str = setting("", "csv: labelled texts, .csv, .tsv or .jsonl, also with .gz.", resumable=True)
    unlabeled_file: str = setting("", "Texts to train on; default those of the training set.", resumable=True)
    text_column: str = setting("text", "csv: column of the text; a number in files without a header.")
    title_column: str = setting("", "csv: column of a title, where there is one.")
    label_column: str = setting("label", "csv: column of the class.")
    allow_partial: bool = setting(False, "Take what there is when the official files hold fewer examples.")
    data_dir: str = setting("", "Where the records go, for several runs; default <model_dir>/records.", resumable=True)
    dev_size: int = setting(1000, "Texts held out; the loss on them decides which checkpoint is kept.", minimum=1)
    vocab_file: str = setting("", "Vocabulary; default the vocab.txt that lies beside init_checkpoint.", resumable=True)
    do_lower_case: bool = setting(True, "Lower-case all texts: True for an uncased vocabulary.")
    max_seq_length: int = setting(128, "Most word pieces of a sequence.", minimum=8)
    shuffle_buffer: int = setting(100_000, "Records held in memory for shuffling.", minimum=1)

    # Objective
    whole_word_masking: bool = setting(False, "Mask all pieces of a word together.")
    next_sentence: bool = setting(True, "Also tell whether the second segment follows the first, as BERT does.")

    # Network
    bert_config_file: str = setting("", "Size of the BERT; default the file that lies beside init_checkpoint.")
    init_checkpoint: str = setting("", "Weights to start from: a BERT checkpoint or Hugging Face folder; '' for none.")
    mixed_precision: str = setting("", "Compute in 16 bits; '' for 32.", ("", "float16", "bfloat16"))

    # Optimisation
    train_batch_size: int = setting(32, "Sequences per step, over all replicas.", minimum=1)
    train_steps: int = setting(100_000, "Number of updates.", minimum=1)
    learning_rate: float = setting(5e-5, "Peak learning rate.", minimum=0)
    warmup_steps: int = setting(10_000, "Steps of linear warm-up.", minimum=0)
    weight_decay_rate: float = setting(0.01, "AdamW's decay, of all weights but biases and LayerNorm.", minimum=0)
    clip_norm: float = setting(1.0, "Largest norm of the whole gradient; 0 for no clipping.", minimum=0)
    seed: int = setting(0, "Seed of initial weights, data order, masks and dropout.", minimum=0, maximum=2**29)
    jit_compile: bool = setting(False, "Compile the step with XLA (one device; a TPU always does).")

    # Course of the run
    eval_batch_size: int = setting(32, "Sequences per evaluation step.", minimum=1)
    save_steps: int = setting(5000, "Steps between checkpoints and evaluations on the texts held out.", minimum=1)
    max_save: int = setting(2, "Number of checkpoints kept, beside the best.", minimum=1, resumable=True)
    log_steps: int = setting(100, "Steps between lines of metrics.", minimum=1, resumable=True)
    iterations: int = setting(
        10, "Most steps in one call of the device; lowered to divide the other step counts.", minimum=1, resumable=True
    )

    # What utils.training asks for and pre-training does not have.
    unsup_ratio = 0
    eval_steps = 0

    def __post_init__(self):
        settings.check(self)
        if not self.init_checkpoint and not (self.bert_config_file and self.vocab_file):
            raise ValueError(
                "init_checkpoint='': give a checkpoint, or bert_config_file and vocab_file to start without one."
            )
        if self.warmup_steps >= self.train_steps:
            raise ValueError(f"warmup_steps={self.warmup_steps}: expected fewer than train_steps={self.train_steps}.")
        for name in ("train_batch_size", "eval_batch_size"):
            if self.next_sentence and getattr(self, name) < 2:
                raise ValueError(f"{name}=1: expected 2 or more, since next_sentence takes segments of other texts.")


def pretrain(config, model_dir, strategy, workers=1):
    """Runs or continues the pre-training that `config` describes, and writes its best weights to model_dir/bert.

    Returns:
      The content of result.json, as a dict.
    """
    source = open_texts(config)
    vocab_path = config.vocab_file or bert_weights.find_vocab(config.init_checkpoint)
    vocabulary = Vocabulary(Tokenizer(vocab_path, config.do_lower_case))
    encoder_config = read_encoder_config(config, vocabulary.tokenizer)
    training.check_batch_sizes(config, strategy)
    run_dir.prepare(model_dir, config)
    train_set, dev_set = write_records(
        config, source, vocab_path, config.data_dir or os.path.join(model_dir, "records"), workers
    )
    tf.keras.utils.set_random_seed(config.seed)
    with strategy.scope():
        model = create_model(config, encoder_config)
        training.compile_model(model, create_optimizer(config), config)
        checkpoints = run_dir.Checkpoints(model_dir, model, config.max_save, "dev_loss", lowest_is_best=True)
    step = checkpoints.restore_last()
    fixed_length = config.jit_compile or isinstance(strategy, tf.distribute.TPUStrategy)
    create_batch = functools.partial(
        create_pretraining_batch, config=config, vocabulary=vocabulary, fixed_length=fixed_length
    )

    def create_batches(first_step):
        return distribution.distribute(
            strategy, lambda: create_train_dataset(config, train_set, create_batch, first_step)
        )

    def evaluate_dev():
        def create_dev_batches():
            return create_dev_dataset(dev_set, config.eval_batch_size, create_batch)

        metrics = training.evaluate(model, strategy, create_dev_batches, dev_set.num_examples, config.eval_batch_size)
        return {"loss": sum(value for name, value in metrics.items() if name.endswith("_loss"))} | metrics

    if step == 0:
        write_initial_metrics(model_dir, config, evaluate_dev())
    if step < config.train_steps:
        dev_metrics = ("loss", *model.test_metrics)
        training.train(
            model, config, model_dir, checkpoints, step, create_batches, evaluate_dev, dev_metrics=dev_metrics
        )

    step = checkpoints.restore_chosen(by_dev=True)
    bert_weights.save_weights(model.network, encoder_config, vocab_path, os.path.join(model_dir, "bert"))
    result = create_result(config, model_dir, step)
    run_dir.write_json(os.path.join(model_dir, "result.json"), result)
    return result


def open_texts(config):
    names = ("train_file", "unlabeled_file", "text_column", "title_column", "label_column", "allow_partial")
    return datasets.open_source(
        config.task_name,
        config.raw_data_dir or os.path.join("data", "raw", config.task_name),
        **{name: getattr(config, name) for name in names},
    )


def read_encoder_config(config, tokenizer):
    path = config.bert_config_file or bert_weights.find_config(config.init_checkpoint)
    encoder_config = create_encoder_config("bert", tokenizer.vocab_size, path)
    if config.max_seq_length > encoder_config.max_position_embeddings:
        raise ValueError(
            f"max_seq_length={config.max_seq_length}: the encoder of {path} has "
            f"{encoder_config.max_position_embeddings} positions at most."
        )
    return encoder_config


def create_model(config, encoder_config):
    with precision(config.mixed_precision):
        network = create_pretraining_network(encoder_config, config.next_sentence, config.seed)
    if config.init_checkpoint:
        bert_weights.load_weights(network, config.init_checkpoint)
    return PretrainingModel(network)


def create_optimizer(config):
    schedule = WarmupLinear(config.learning_rate, config.train_steps, config.warmup_steps)
    optimizer = BertAdamW(schedule, config.weight_decay_rate, config.clip_norm, NO_DECAY)
    if config.mixed_precision == "float16":  # in which small gradients vanish unless the loss is scaled up
        return tf.keras.mixed_precision.LossScaleOptimizer(optimizer)
    return optimizer


def write_initial_metrics(model_dir, config, metrics):
    """The first line of metrics.jsonl: what the texts held out cost before the first step."""
    writer = run_dir.MetricsWriter(model_dir, -1, config.train_steps)
    writer.write(0, {f"dev_{name}": value for name, value in metrics.items()})
    writer.close()


def create_result(config, model_dir, step):
    lines = {line["step"]: line for line in run_dir.read_metrics(model_dir)}
    speeds = [line["examples_per_second"] for line in lines.values() if "examples_per_second" in line]
    return {
        "task_name": config.task_name,
        "initial": {name: value for name, value in lines[0].items() if name.startswith("dev_")},
        "best": {name: value for name, value in lines[step].items() if name.startswith("dev_")},
        "step": step,
        "train_steps": config.train_steps,
        "seed": config.seed,
        "examples_per_second": float(np.median(speeds)),
        "versions": run_dir.versions(),
    }


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
    texts = preprocess.find_texts(source, "unlabelled")
    dev_texts = choose_dev_texts(texts.count, config.dev_size)
    tokenizer = Tokenizer(vocab_path, config.do_lower_case)
    common = {"task_name": config.task_name, "num_planned": texts.count, "texts_sha256": texts.sha256}
    common |= {"vocab_sha256": tokenizer.sha256, "lower_case": tokenizer.lower_case}
    common |= {"max_seq_length": config.max_seq_length, "dev_size": config.dev_size}
    advice = "Delete that folder, or choose another --data_dir or --model_dir."
    set_dirs = {part: os.path.join(data_dir, part) for part in PARTS}
    if any([records.begin_set(set_dir, common, advice) for set_dir in set_dirs.values()]):
        num_shards = preprocess.num_shards(texts)
        write = functools.partial(
            write_block,
            vocabulary_key=(vocab_path, tokenizer.lower_case, tokenizer.sha256),
            set_dirs=set_dirs,
            num_shards=num_shards,
            dev_texts=dev_texts,
            length=config.max_seq_length - 3,
        )
        progress = tqdm(total=texts.count, unit="text", desc="cutting texts", disable=None)
        with work.start_processes(min(workers, num_shards)) as ordered_map, progress:
            for num_texts in ordered_map(write, preprocess.read_blocks(source, texts)):
                progress.update(num_texts)
        for set_dir in set_dirs.values():
            records.finish_set(set_dir, num_shards)
    record_sets = [records.read_set(set_dir, common, advice) for set_dir in set_dirs.values()]
    for part, record_set in zip(PARTS, record_sets):
        if not record_set.num_examples:
            raise ValueError(f"{record_set.directory} is empty: no {part} text of {config.task_name} has two words.")
    return record_sets


def choose_dev_texts(num_texts, dev_size):
    """Positions of the texts that are held out: the same whatever the seed of a run, so that runs can be compared."""
    if dev_size >= num_texts:
        raise ValueError(f"dev_size={dev_size}: expected fewer than the {num_texts} texts that there are.")
    return frozenset(np.random.default_rng([DEV_TEXTS]).choice(num_texts, dev_size, replace=False).tolist())


def write_block(shard_and_block, vocabulary_key, set_dirs, num_shards, dev_texts, length):
    """Writes one shard of each set; returns the number of texts."""
    (shard, block), vocabulary = shard_and_block, load_vocabulary(*vocabulary_key)

    @functools.cache  # finished shards cost nothing
    def cut_texts():
        tokenizer, rows = vocabulary.tokenizer, collections.defaultdict(list)
        pieces_of_texts = tokenizer.piece_ids(tokenizer.split([join_title(example) for _, example in block]))
        for (position, _), pieces in zip(block, pieces_of_texts):
            part = "dev" if position in dev_texts else "train"
            rows[part] += [(position, row) for row in cut(pieces, vocabulary, length)]
        return rows

    def encode(part):
        rows = cut_texts()[part]
        return record_format.encode([(row, 0) for _, row in rows], [position for position, _ in rows])

    for part, set_dir in set_dirs.items():
        records.write_shard(set_dir, shard, num_shards, functools.partial(encode, part))
    return len(block)


def join_title(example):
    return f"{example.title}. {example.text}" if example.title else example.text


def cut(pieces, vocabulary, length):
    """Yields the rows of a text, see above; those of one word are left out, since they cannot be cut in two."""
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


def create_train_dataset(config, record_set, create_batch, start_step=0):
    """Global batches for the steps start_step, start_step + 1, …, without end."""
    examples = input_pipeline._example_batches(
        [record_set], ["original", "index"], config.train_batch_size, config.seed, start_step, config.shuffle_buffer
    )
    steps = tf.data.Dataset.range(start_step, tf.int64.max)
    return tf.data.Dataset.zip((steps, examples)).map(
        lambda step, rows: create_batch(rows, tf.stack([tf.constant(config.seed, tf.int64), step])),
        num_parallel_calls=tf.data.AUTOTUNE,
    )


def create_dev_dataset(record_set, batch_size, create_batch):
    """Batches with every row that is held out once, cut and masked the same way each time."""

    def sort(serialized):  # as in training, rows of similar length come together
        lengths = record_format.num_pieces(record_format.parse(serialized, ["original"])["original"])
        return tf.gather(serialized, tf.argsort(lengths, stable=True))

    def fill_up(number, serialized):
        rows = record_format.parse(serialized, ["original", "index"])
        batch = create_batch(rows, tf.stack([tf.constant(DEV_BATCHES, tf.int64), number]))
        return tf.nest.map_structure(lambda value: input_pipeline._fill_up(value, batch_size), batch)

    windows = tf.data.TFRecordDataset(record_set.paths).batch(input_pipeline.MAX_WINDOW * batch_size)
    batches = windows.map(sort, num_parallel_calls=tf.data.AUTOTUNE).unbatch().batch(batch_size)
    return batches.enumerate().map(fill_up, num_parallel_calls=tf.data.AUTOTUNE)


def create_pretraining_batch(rows, seed, config, vocabulary, fixed_length=False):
    """Makes a batch for text.models.pretrainer.PretrainingModel.

    Args:
      rows: as record_format.parse gives them: "original" and the "index" of the text.
      seed: int64 [2]; the same rows and seed give the same batch.
      fixed_length: fill up to max_seq_length, not just to the length of the longest sequence.
    """
    pair_seed, mask_seed = tf.unstack(tf.random.experimental.stateless_split(seed, 2))
    ids = record_format.pad(rows["original"], config.max_seq_length - 3)["ids"]
    lengths, batch = record_format.num_pieces(rows["original"]), {}
    if config.next_sentence:
        first, second, is_random = choose_segments(ids, lengths, rows["index"], pair_seed, vocabulary)
        batch |= {"nsp_labels": is_random, "nsp_weights": tf.ones_like(is_random, tf.float32)}
    else:
        first, second = tf.RaggedTensor.from_tensor(ids, lengths=lengths), None
    ids, type_ids = assemble_in_graph(first, second, config.max_seq_length, False, vocabulary.tokenizer)
    masked_ids, predictions = mask_pieces(ids, mask_seed, vocabulary, config.whole_word_masking)
    length, step = config.max_seq_length, input_pipeline.LENGTH_STEP
    if not fixed_length:
        longest = tf.reduce_max(tf.math.count_nonzero(ids, axis=1, dtype=tf.int32))
        length = tf.minimum((longest + step - 1) // step * step, length)
    batch |= {"ids": masked_ids[:, :length], "type_ids": type_ids[:, :length], **predictions}
    num_rows = rows["index"].shape[0]
    return {name: tf.ensure_shape(value, [num_rows, *value.shape[1:]]) for name, value in batch.items()}


def choose_segments(ids, lengths, texts, seed, vocabulary):
    """Cuts each row in two, and gives half of them a second segment from another text.

    Args:
      ids: int32 [n, width], filled up with 0; lengths: int32 [n].
      texts: [n], which text a row is of. A row that is drawn for another one of its own text is not taken.

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


def mask_pieces(ids, seed, vocabulary, whole_words):
    """Chooses the pieces to be told, and hides most of them.

    Args:
      ids: int32 [n, length] with special pieces and padding, which are never chosen.
      whole_words: choose all pieces of a word or none.

    Returns:
      (ids, predictions): as given but for the masks; and "positions", "mlm_labels" and "mlm_weights" [n, predictions],
      where a weight of 0 marks that there are fewer.
    """
    choice_seed, kind_seed, piece_seed = tf.unstack(tf.random.experimental.stateless_split(seed, 3))
    num_rows, length = tf.shape(ids)[0], ids.shape[1]
    positions, chosen = choose_positions(ids, choice_seed, vocabulary, whole_words)
    labels = tf.gather(ids, positions, batch_dims=1)
    kind = tf.random.stateless_uniform(tf.shape(positions), kind_seed)
    number = tf.random.stateless_uniform(tf.shape(positions), piece_seed, 0, len(vocabulary.ordinary), tf.int32)
    replaced = tf.where(kind < 0.8, vocabulary.mask_id, tf.gather(vocabulary.ordinary, number))
    shown = tf.where(chosen & (kind < 0.9), replaced, labels)
    flat_positions = positions + tf.range(num_rows)[:, tf.newaxis] * length
    flat_ids = tf.tensor_scatter_nd_update(tf.reshape(ids, [-1]), flat_positions[:, :, tf.newaxis], shown)
    predictions = {"positions": positions, "mlm_labels": labels, "mlm_weights": tf.cast(chosen, tf.float32)}
    return tf.reshape(flat_ids, [-1, length]), predictions


def choose_positions(ids, seed, vocabulary, whole_words):
    """Returns (positions, chosen), int32 and bool [n, predictions]; positions that are not chosen are 0.

    The words get a random order, and the first are taken until they have enough pieces.
    """
    length = ids.shape[1]
    num_predictions = round(MASKED_RATIO * (length - 2)) + WHOLE_WORD_ROOM * whole_words
    num_predictions = min(max(num_predictions, 1), length - 1)
    is_special = tf.gather(vocabulary.is_special, ids)
    begins_word = tf.ones_like(is_special)
    if whole_words:  # a row may begin within a word
        begins_word = ~tf.gather(vocabulary.is_inner, ids) | tf.pad(is_special[:, :-1], [[0, 0], [1, 0]])
    word = tf.cumsum(tf.cast(begins_word, tf.int32), axis=1) - 1
    scores = tf.gather(tf.random.stateless_uniform(tf.shape(ids), seed), word, batch_dims=1)
    # Pieces with the same score, which are those of a word, stay in their order.
    order = tf.math.top_k(tf.where(is_special, -1.0, scores), num_predictions + 1).indices
    rank = tf.cumsum(tf.cast(tf.gather(begins_word, order, batch_dims=1), tf.int32), axis=1)  # of the piece's word
    num_pieces = tf.math.count_nonzero(~is_special, axis=1, dtype=tf.float32)
    num_chosen = tf.maximum(tf.cast(tf.round(MASKED_RATIO * num_pieces), tf.int32), 1)
    last_rank = tf.gather(rank, num_chosen[:, tf.newaxis] - 1, batch_dims=1)
    # A word that does not fit as a whole has the rank of the first piece without room.
    chosen = ((rank <= last_rank) & (rank < rank[:, -1:]))[:, :-1]
    return tf.where(chosen, order[:, :-1], 0), chosen


# ---- from the command line ------------------------------------------------------------------------------------------


def define_flags():
    flags.DEFINE_string("model_dir", None, "Folder of the run; the weights go to its folder bert.", required=True)
    flags.DEFINE_enum("strategy", "auto", distribution.STRATEGIES, "How to use several devices.")
    flags.DEFINE_string("tpu", "", "Name or address of the TPU, or local on a TPU VM.")
    flags.DEFINE_integer("workers", os.cpu_count() or 1, "Processes that cut the texts.", lower_bound=1)
    settings.define_flags(PretrainConfig)


def main(_):
    logging.set_verbosity(logging.WARNING)
    try:
        config = settings.from_flags(PretrainConfig)
        strategy = distribution.create_strategy(FLAGS.strategy, FLAGS.tpu)
        result = pretrain(config, FLAGS.model_dir, strategy, FLAGS.workers)
    except (ValueError, OSError, tf.errors.ResourceExhaustedError) as error:  # the last: a full disk or device
        raise SystemExit(f"error: {error}") from error
    before, after = result["initial"]["dev_loss"], result["best"]["dev_loss"]
    print(f"{config.task_name}: loss on texts held out {before:.4f} at first, {after:.4f} at step {result['step']}")
    print(f"the weights of that step are in {os.path.join(FLAGS.model_dir, 'bert')}")


if __name__ == "__main__":
    define_flags()
    app.run(main)
