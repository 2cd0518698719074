"""Hidden states of texts: what the frozen layers of an encoder make of each, computed once and kept with the records.

    data = open_states(config, input_pipeline.open_data(config))      # the same texts, as states

The trained layers then begin with the states. They are kept in 16 bits, a number for each piece and unit, so that a
text of 128 pieces in a width of 384 takes 0.1 MB, and so does its copy:

    data_dir/features/<encoder>-states-8/test/, sup-size_20/train/, unsup/tf_idf-0.3/copy-000/
"""

import functools
import itertools
import os
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from augmentation import text_ops
from text import bert_weights, record_format
from text import features as text_features
from text.models import choose_features
from text.models.bert import BertConfig, check_states, create_lower_layers
from utils import files, records

MEMORY = 4 << 30  # bytes of states that may be held for shuffling


# ---- the frozen layers ----------------------------------------------------------------------------------------------


@functools.lru_cache(maxsize=1)  # once in each process
def load_network(init_checkpoint, config_path, max_seq_length, num_layers):
    """The frozen layers, from {"ids", "type_ids"} to states [batch, length, width]."""
    network = create_lower_layers(BertConfig.read(config_path), max_seq_length, num_layers)
    bert_weights.load_weights(network, init_checkpoint)
    return network


def compute_states(network, texts):
    """States of texts, as text.features.compute_features takes them: a list of float16 [pieces, width]."""
    compute, states = text_features.compile_network(network), [None] * len(texts)
    for rows, batch in text_features.create_batches(texts):
        for row, values in zip(rows, compute(batch).numpy()):
            states[row] = values[: len(texts[row][0])].astype("<f2")
    if not all(np.isfinite(values).all() for values in states):
        raise ValueError("the encoder gives states that are not finite: its weights are damaged.")
    return states


def network_settings(config):
    """The arguments of load_network that a text.config.Config asks for."""
    path = config.bert_config_file or bert_weights.find_config(config.init_checkpoint)
    layers = choose_features(config)[1]
    num_layers = max(layers, default=BertConfig.read(path).num_hidden_layers)
    check_states(num_layers, config.trainable_layers, layers)
    return config.init_checkpoint, path, config.max_seq_length, num_layers - config.trainable_layers


# ---- records of states ----------------------------------------------------------------------------------------------


class Layout(NamedTuple):
    """How states lie in records: what text.record_format has for pieces."""

    width: int

    def parse(self, serialized, keys):
        """A batch of records: numbers as int64 [batch], a text as a string [batch], for pad()."""
        kinds = {key: tf.string if key in record_format.VIEWS else tf.int64 for key in keys}
        return tf.io.parse_example(serialized, {key: tf.io.FixedLenFeature([], kind) for key, kind in kinds.items()})

    def num_pieces(self, text):
        return tf.strings.length(text) // (2 * self.width)

    def pad(self, text, length):
        """{"states": float32 [batch, length, width], "mask": int32 [batch, length]}, filled up with 0."""
        # TensorFlow decodes no float16 with padding; the bits are the same.
        states = tf.io.decode_raw(text, tf.uint16, fixed_length=2 * self.width * length)
        states = tf.bitcast(tf.reshape(states, [tf.shape(text)[0], length, self.width]), tf.float16)
        mask = tf.sequence_mask(self.num_pieces(text), length, tf.int32)
        static = [text.shape[0], length if isinstance(length, int) else None]
        return {
            "states": tf.ensure_shape(tf.cast(states, tf.float32), [*static, self.width]),
            "mask": tf.ensure_shape(mask, static),
        }

    def check(self, record_set, max_seq_length):
        """Refuses a set whose first record is damaged or of another width."""
        with files.explain_damage(record_set.directory, "delete it, so that it is computed again."):
            first = next(iter(tf.data.TFRecordDataset(record_set.paths[:1]).batch(1)))
            num_bytes = len(self.parse(first, ["original"])["original"].numpy()[0])
            if num_bytes % (2 * self.width) or not 0 < num_bytes <= 2 * self.width * max_seq_length:
                raise ValueError(f"it holds states of {num_bytes} bytes")


def open_states(config, data):
    """Computes what is missing of the states of all texts that a run needs, and gives them in place of the texts.

    Args:
      config: text.config.Config with keep_states; data: text.input_pipeline.Data.
    """
    settings = network_settings(config)
    common = text_features.describe_encoder(config, data) | {"num_layers": settings[-1]}
    folder = f"{common['encoder_sha256'][:12]}-states-{settings[-1]}"
    sources = list_sources(config, data)
    encode = functools.partial(encode_shard, settings)
    advice = "Give the same command again."
    folder = os.path.join(config.data_dir, "features", folder)
    sets = text_features.write(folder, sources, common, encode, advice, config.verify_records)
    layout = Layout(BertConfig.read(settings[1]).hidden_size)
    for record_set in sets.values():
        layout.check(record_set, config.max_seq_length)
    places = {id(source.record_set): place for place, source in sources.items()}

    def replace(record_sets):
        return [sets[places[id(record_set)]] for record_set in record_sets]

    parts = {part: replace(getattr(data, part)) for part in ("sup", "unsup", "dev", "test")}
    return data._replace(**parts, layout=layout)


def limit_memory(config, layout):
    """The shuffle_buffer, or less if so many pairs of states took more than MEMORY."""
    return min(config.shuffle_buffer, max(MEMORY // (2 * 2 * layout.width * config.max_seq_length), 1))


def list_sources(config, data):
    """{place below the folder of the states: text.features.Source}."""
    sup_dir = os.path.basename(record_format.sup_dir(config))
    parts = {f"{sup_dir}/train": data.sup, f"{sup_dir}/dev": data.dev, "test": data.test}
    sources = {place: text_features.Source(part[0], "original", labelled=True) for place, part in parts.items() if part}
    copies = itertools.product(text_ops.split_ops(config.aug_ops), range(config.aug_copy)) if data.unsup else ()
    for (aug_op, copy), record_set in zip(copies, data.unsup):
        sources[f"unsup/{aug_op}/copy-{copy:03d}"] = text_features.Source(record_set, "both")
    return sources


def encode_shard(network_arguments, _shard, inputs, _counts):
    network = load_network(*network_arguments)

    def encode(content):
        view, labelled = content
        columns = {}
        for name in record_format.VIEWS if view == "both" else (view,):
            texts, labels = text_features.read_texts(*inputs, name, labelled)
            columns[name] = [states.tobytes() for states in compute_states(network, texts)]
        if labelled:
            columns["label"] = labels
        for values in zip(*columns.values()):
            yield records.encode_example(dict(zip(columns, values)))

    return encode
