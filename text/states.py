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

import tensorflow as tf

from augmentation import text_ops
from text import bert_weights, record_format
from text import features as text_features
from text.models.bert import BertConfig, add_states, check_states, create_lower_layers
from utils import files

MEMORY = 4 << 30  # bytes of states that may be held for shuffling


# ---- the frozen layers ----------------------------------------------------------------------------------------------


def load_network(init_checkpoint, config_path, max_seq_length, pooling, feature_layers, num_layers, with_features):
    """The encoder, from {"ids", "type_ids"} to {"states"} [batch, length, width] and, unless they are not needed,
    {"features"} as text.features has them."""
    if with_features:
        network = text_features.load_network(init_checkpoint, config_path, max_seq_length, pooling, feature_layers)
        return _add_states(network, num_layers)
    stamp = bert_weights.stamp(init_checkpoint)
    return _load_lower_layers(init_checkpoint, stamp, BertConfig.read(config_path), max_seq_length, num_layers)


_add_states = functools.lru_cache(maxsize=1)(add_states)  # once in each process


@functools.lru_cache(maxsize=1)
def _load_lower_layers(init_checkpoint, _stamp, encoder_config, max_seq_length, num_layers):
    network = create_lower_layers(encoder_config, max_seq_length, num_layers)
    bert_weights.load_weights(network, init_checkpoint)
    return network


def compute_states(network, texts):
    """What load_network's network makes of texts, as text.features.compute_features takes them.

    Returns:
      {"states": a list of float16 [pieces, width], "features": a list of float16 [features' width]}
    """
    compute = text_features.compile_network(network)
    found = {name: [None] * len(texts) for name in network.output}
    for rows, batch in text_features.create_batches(texts):
        for name, values in compute(batch).items():
            for row, value in zip(rows, values.numpy()):
                found[name][row] = (value[: len(texts[row][0])] if name == "states" else value).astype("<f2")
    text_features.check_finite(*found["states"], *found.get("features", []))
    return found


def network_settings(config):
    """The arguments of load_network that a text.config.Config asks for."""
    of_features = text_features.network_settings(config, config.max_seq_length)
    layers = of_features[-1]
    num_layers = max(layers, default=BertConfig.read(of_features[1]).num_hidden_layers)
    check_states(num_layers, config.trainable_layers, layers)
    return *of_features, num_layers - config.trainable_layers, config.head_steps > 0


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

    With head_steps the features of these texts, on which the head is trained first, come from the same pass.

    Args:
      config: text.config.Config with keep_states; data: text.input_pipeline.Data.
    """
    settings = network_settings(config)
    *_, num_layers, with_features = settings
    common = text_features.describe_encoder(config, data) | {"num_layers": num_layers}
    folder = os.path.join(config.data_dir, "features", f"{common['encoder_sha256'][:12]}-states-{num_layers}")
    sources = list_sources(config, data)
    groups = [text_features.Sets("states", folder, sources, common)]
    groups += [text_features.plan_features(config, data, augmented=True)] * with_features
    encode = functools.partial(encode_shard, settings)
    sets = text_features.write(groups, encode, "Give the same command again.", config.verify_records)
    layout = Layout(BertConfig.read(settings[1]).hidden_size)
    places = {id(source.record_set): place for place, source in sources.items()}
    for place in sources:
        layout.check(sets["states", place], config.max_seq_length)

    def replace(record_sets):
        return [sets["states", places[id(record_set)]] for record_set in record_sets]

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

    @functools.cache
    def compute(view, labelled):
        """Labels, and what the network makes of a view: its features are asked for beside its states."""
        texts, labels = text_features.read_texts(*inputs, view, labelled)
        return labels, compute_states(network, texts)

    def encode(content):
        kind, view, labelled = content
        views = record_format.VIEWS if view == "both" else (view,)
        columns = {name if kind == "states" else kind: compute(name, labelled)[1][kind] for name in views}
        return text_features.encode_examples(compute(views[0], labelled)[0], **columns)

    return encode
