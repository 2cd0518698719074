"""Features of texts: what a frozen encoder makes of each, computed once and kept with the records.

    python -m text.features --task_name=imdb --data_dir=data/imdb --init_checkpoint=e5-small --aug_ops=tf_idf-0.3

`text.main --trainable_layers=0` does the same for whatever is missing before it trains. Features are kept in 16 bits:

    data_dir/features/<encoder>/test/, sup-size_20/train/, unsup/original/, unsup/tf_idf-0.3/copy-000/
"""

import contextlib
import dataclasses
import functools
import itertools
import os
from typing import NamedTuple

import numpy as np
import tensorflow as tf
from absl import flags

from augmentation import text_ops
from text import bert_weights, encoders, input_pipeline, record_format
from text.config import FeaturesConfig
from text.datasets.source import clean
from text.models import choose_features
from text.models.bert import BertConfig, create_encoder
from text.tokenization import Tokenizer, assemble
from utils import cli, files, locks, records, settings, work
from utils.features import FeatureData, Labelled
from utils.preprocessing import SHARD_SIZE, SetPlan, write_sets

FLAGS = flags.FLAGS
TEXTS_PER_SHARD = 512  # what a kill can lose; divides SHARD_SIZE
PIECES_PER_BATCH = 4096
LENGTH_STEP = 8
# What changes the features, but none of the weights, by which an encoder is known. Sets of before lack these settings.
CONFIG_SETTINGS = ("num_hidden_layers", "num_attention_heads", "hidden_act")


# ---- the encoder ----------------------------------------------------------------------------------------------------


def load_network(init_checkpoint, config_path, *options):
    """The frozen encoder, from {"ids", "type_ids"} to features [batch, width].

    Args:
      options: max_seq_length, pooling and feature_layers.
    """
    return _load_network(init_checkpoint, bert_weights.stamp(init_checkpoint), BertConfig.read(config_path), *options)


@functools.lru_cache(maxsize=1)  # once in each process
def _load_network(init_checkpoint, _stamp, encoder_config, max_seq_length, pooling, feature_layers):
    sizes = encoder_config, max_seq_length
    network = create_encoder(*sizes, pooling, dropout=0.0, trainable_layers=0, feature_layers=feature_layers)
    bert_weights.load_weights(network, init_checkpoint)
    return network


def network_settings(config, max_seq_length):
    """The arguments of load_network that config, a text.config.EncoderConfig with an init_checkpoint, asks for."""
    path = config.bert_config_file or bert_weights.find_config(config.init_checkpoint)
    return config.init_checkpoint, path, max_seq_length, *choose_features(config)


@functools.lru_cache(maxsize=1)
def compile_network(network):
    signature = {name: tf.TensorSpec([None, None], tf.int32) for name in ("ids", "type_ids")}
    return tf.function(functools.partial(network, training=False), input_signature=[signature], autograph=False)


def compute_features(network, texts):
    """Features of texts, those of similar length together, so that little of a batch is padding.

    Args:
      network: as load_network gives it.
      texts: list of (ids int32 array, number of its last pieces that belong to the second segment).

    Returns:
      float32 [number, width].
    """
    compute, features = compile_network(network), None
    for rows, batch in create_batches(texts):
        values = compute(batch).numpy()
        features = np.empty([len(texts), values.shape[1]], np.float32) if features is None else features
        features[rows] = values
    check_finite(features)
    return features


def check_finite(*arrays):
    if not all(np.isfinite(array).all() for array in arrays):
        raise ValueError("the encoder gives numbers that are not finite: its weights are damaged.")


def create_batches(texts):
    """Yields (rows, {"ids", "type_ids"} of these texts), the longest texts first."""
    order = np.argsort([len(ids) for ids, _ in texts], kind="stable")[::-1]
    while len(order):
        length = -(-len(texts[order[0]][0]) // LENGTH_STEP) * LENGTH_STEP
        rows, order = np.split(order, [max(PIECES_PER_BATCH // length, 1)])
        yield rows, _pad([texts[row] for row in rows], length)


def _pad(texts, length):
    ids, type_ids = np.zeros([2, len(texts), length], np.int32)
    for row, (pieces, num_second) in enumerate(texts):
        ids[row, : len(pieces)] = pieces
        type_ids[row, len(pieces) - num_second : len(pieces)] = 1
    return {"ids": ids, "type_ids": type_ids}


def embed(texts, init_checkpoint, max_seq_length=128):
    """Features of plain texts, float32 [number, width]: pooling and layers are those that the encoder wants.

    Args:
      texts: list of strings; init_checkpoint: see text.bert_weights.
    """
    wanted = encoders.describe(init_checkpoint)
    config = FeaturesConfig(init_checkpoint=init_checkpoint, max_seq_length=max_seq_length)
    tokenizer = Tokenizer(bert_weights.find_vocab(init_checkpoint), wanted.lower_case is not False, wanted.prefix)
    pieces = tokenizer.tokenize(tf.constant([clean(text) for text in texts]))
    laid_out = [assemble(row.numpy(), None, max_seq_length, False, tokenizer) for row in pieces]
    return compute_features(load_network(*network_settings(config, max_seq_length)), laid_out)


# ---- writing --------------------------------------------------------------------------------------------------------


class Source:
    """A set of text records, and which view of them is encoded: "original", "augmented", or "both"."""

    def __init__(self, record_set, view, labelled=False):
        self.record_set, self.view, self.labelled = record_set, view, labelled


class Sets(NamedTuple):
    """Sets of records to write, of what one encoder makes of texts."""

    kind: str  # what of it: "features", or text.states' "states"
    folder: str
    sources: dict  # from the place of a set below the folder to its Source
    common: dict  # settings of all of them


def list_sources(config, data, augmented):
    """All that a run needs: {place below the encoder's folder: Source}.

    Args:
      data: text.input_pipeline.Data.
      augmented: whether the augmented copies are needed, too.
    """
    sup_dir = os.path.basename(record_format.sup_dir(config))
    parts = {f"{sup_dir}/train": data.sup, f"{sup_dir}/dev": data.dev, "test": data.test}
    sources = {place: Source(part[0], "original", labelled=True) for place, part in parts.items() if part}
    if data.unsup:
        sources["unsup/original"] = Source(data.unsup[0], "original")
        copies = itertools.product(text_ops.split_ops(config.aug_ops), range(config.aug_copy))
        for (aug_op, copy), record_set in zip(copies, data.unsup if augmented else []):
            sources[f"unsup/{aug_op}/copy-{copy:03d}"] = Source(record_set, "augmented")
    return sources


def features_dir(config):
    """The folder of the features of this encoder, by the checksum of its weights, and of these layers of it."""
    names = bert_weights.checksum(config.init_checkpoint)[:12], *describe_features(config).values()
    return os.path.join(config.data_dir, "features", "-".join(names))


def describe_features(config):
    """Settings of all sets: what is taken of the encoder."""
    pooling, layers = choose_features(config)
    return {"pooling": pooling, "feature_layer": "+".join(map(str, layers)) or "last"}


def write_features(config, data, augmented=True, **work_settings):
    """Computes the features of all texts that a run needs, unless they are there.

    Args:
      config: text.config.FeaturesConfig, or a Config; data: text.input_pipeline.Data.
      augmented: whether the augmented copies are needed, too.
      work_settings: workers, runner, beam_args, replicas, worker_id of WorkConfig.

    Returns:
      {place: records.RecordSet} of features, as write returns them.
    """
    groups = [plan_features(config, data, augmented)]
    encode = functools.partial(encode_shard, network_settings(config, config.max_seq_length))
    advice = "Run `python -m text.features` with the same flags as the training."
    sets = write(groups, encode, advice, config.verify_records, **work_settings)
    return {place: record_set for (_, place), record_set in sets.items()}


def plan_features(config, data, augmented):
    common = describe_encoder(config, data) | describe_features(config)
    return Sets("features", features_dir(config), list_sources(config, data, augmented), common)


def describe_encoder(config, data):
    """Settings of all sets: what texts went through what."""
    checksum = bert_weights.checksum(config.init_checkpoint)
    encoder_config = BertConfig.read(network_settings(config, config.max_seq_length)[1])
    described = {"encoder_sha256": checksum} | {name: getattr(encoder_config, name) for name in CONFIG_SETTINGS}
    return described | {"tokenization": dataclasses.asdict(data.tokenization)}


def write(groups, encode, advice, verify=False, replicas=1, worker_id=0, **workers):
    """Writes what is missing of some sets, or this replica's share of it.

    Args:
      groups: list of Sets. Those that are made of the same texts are made at once.
      encode: as write_sets takes it; its inputs are those of find_inputs, its contents (kind, view, labelled).
      verify: compare unlabelled sets with their checksums, too, as it is always done with labelled ones.
      workers: arguments of work.start_workers.

    Returns:
      {(kind, place): records.RecordSet} of those that are whole: all, unless other replicas owe some of their shards.
    """
    plans = {(group.kind, place): create_plan(group, place) for group in groups for place in group.sources}
    in_order = sorted(plans.values(), key=lambda plan: plan.examples.directory)
    with contextlib.ExitStack() as stack:
        for group in groups:
            stack.enter_context(_alone(group.folder, replicas))
        ordered_map = stack.enter_context(work.start_workers(groups[0].folder, **workers))
        with records.explain_damage([plan.examples for plan in in_order]):
            write_sets(in_order, {}, encode, find_inputs, ordered_map, replicas, worker_id)

    def read(plan):
        _, _, labelled = plan.content
        return records.read_set(plan.set_dir, plan.settings, advice, verify or labelled)

    is_whole = {key: replicas == 1 or records.read_info(plan.set_dir)["complete"] for key, plan in plans.items()}
    return {key: read(plan) for key, plan in plans.items() if is_whole[key]}


@contextlib.contextmanager
def _alone(folder, replicas):
    """A second process waits, instead of computing the same features; those of several replicas are different ones."""
    if replicas > 1:
        yield
        return
    with records.explain_refusal(folder):
        tf.io.gfile.makedirs(folder)
    with locks.hold(folder, "another process that computes these features", "wait for its end.", wait=True):
        yield


def create_plan(group, place):
    source, set_dir = group.sources[place], os.path.join(group.folder, place)
    # The originals are the same beside every copy, whatever it was made by.
    left_out = record_format.COPY_SETTINGS if source.view == "original" and not source.labelled else ()
    described = {name: value for name, value in source.record_set.settings.items() if name not in left_out}
    settings = _known_settings(set_dir, group.common) | {"view": source.view, "records": described}
    content = group.kind, source.view, source.labelled
    return SetPlan(set_dir, source.record_set, source.record_set.num_examples, settings, content, TEXTS_PER_SHARD)


def _known_settings(set_dir, common):
    """`common`, but for those of CONFIG_SETTINGS that a set of before does not tell."""
    is_there = tf.io.gfile.exists(os.path.join(set_dir, "info.json"))
    stored = records.read_info(set_dir)["settings"] if is_there else common
    return {name: value for name, value in common.items() if name in stored or name not in CONFIG_SETTINGS}


def find_inputs(record_set, shards):
    """Yields (path of a file of records, how many of them to pass over) for each of these shards."""
    for shard in shards:
        number, skipped = divmod(shard * TEXTS_PER_SHARD, SHARD_SIZE)
        yield record_set.paths[number], skipped


def encode_shard(network_arguments, _shard, inputs, _counts):
    network = load_network(*network_arguments)

    def encode(content):
        _, view, labelled = content
        texts, labels = read_texts(*inputs, view, labelled)
        return encode_examples(labels, features=compute_features(network, texts).astype("<f2"))

    return encode


def encode_examples(labels, **columns):
    """Yields serialised examples.

    Args:
      labels: list of numbers, or None; columns: for each name an array, or a list of arrays, one for each example.
    """
    if labels is not None:
        columns["label"] = labels
    for values in zip(*columns.values()):
        payloads = (value.tobytes() if isinstance(value, np.ndarray) else value for value in values)
        yield records.encode_example(dict(zip(columns, payloads)))


def read_texts(path, skipped, view, labelled):
    """Word pieces, as compute_features takes them, and labels."""
    serialized = tf.data.TFRecordDataset(path).skip(skipped).take(TEXTS_PER_SHARD).batch(TEXTS_PER_SHARD)
    parsed = record_format.parse(serialized.get_single_element(), [view] + ["label"] * labelled)
    pieces, num_second = (parsed[view][name].numpy() for name in ("pieces", "num_second"))
    texts = [(np.frombuffer(ids, "<i4"), int(second)) for ids, second in zip(pieces, num_second)]
    return texts, parsed["label"].numpy().tolist() if labelled else None


# ---- reading --------------------------------------------------------------------------------------------------------


def open_features(config, workers=1):
    """Finds the records that a run needs, computes what is missing of their features, and reads them.

    Returns:
      (text.input_pipeline.Data, utils.features.FeatureData)
    """
    data = input_pipeline.open_data(config, with_unlabeled=True)
    sets = write_features(config, data, config.unsup_ratio > 0, workers=workers)

    def labelled(place):
        return read_features(sets[place], num_classes=data.facts.num_classes) if place in sets else None

    sup_dir = os.path.basename(record_format.sup_dir(config))
    parts = [labelled(place) for place in (f"{sup_dir}/train", f"{sup_dir}/dev", "test")]
    copies = [sets[place] for place in sets if place.startswith("unsup/") and place != "unsup/original"]
    features = FeatureData(
        data.facts.class_names,
        *parts,
        original=read_features(sets["unsup/original"]).features,
        augmented=read_features(*copies).features if copies else None,
    )
    return data, features


def read_features(*record_sets, num_classes=0):
    """All features of some sets, one set after the other.

    They may take most of the memory, so there are never more than two copies of them, and one in the end: the tensor
    that a training takes its batches from.

    Returns:
      Labelled: features, a float16 tensor; labels, an array, or None unless the sets have `num_classes` classes.
    """
    keys = {"features": tf.io.FixedLenFeature([], tf.string)}
    keys |= {"label": tf.io.FixedLenFeature([], tf.int64)} if num_classes else {}
    blocks, labels, widths = [], [], set()
    with tf.device("CPU"):
        for record_set in record_sets:
            with files.explain_damage(record_set.directory, "delete it, so that it is computed again."):
                for serialized in tf.data.TFRecordDataset(record_set.paths).batch(SHARD_SIZE):
                    parsed = tf.io.parse_example(serialized, keys)
                    widths |= set(tf.strings.length(parsed["features"]).numpy())
                    if len(widths) > 1:
                        raise ValueError("its features are of several widths")
                    blocks.append(tf.io.decode_raw(parsed["features"], tf.float16))
                    if not np.size(blocks[-1]) or not np.isfinite(blocks[-1]).all():
                        raise ValueError("it holds features that are not finite")
                    if num_classes:
                        labels.append(parsed["label"].numpy())
                        if not 0 <= labels[-1].min() <= labels[-1].max() < num_classes:
                            raise ValueError(f"it holds labels of none of {num_classes} classes")
        return Labelled(tf.concat(blocks, axis=0), np.concatenate(labels) if num_classes else None)


# ---- from the command line ------------------------------------------------------------------------------------------


def define_flags():
    flags.DEFINE_string("export_features", "", "Also write the unlabelled ones to this .npz file, as `unlabeled`.")
    settings.define_flags(FeaturesConfig)


def main():
    config = settings.from_flags(FeaturesConfig)
    work.check_runner(config.runner, config.beam_args)
    if FLAGS.export_features and config.data_type == "sup":
        raise ValueError("export_features with data_type=sup: expected all, or unsup.")
    wanted = {"with_unlabeled": config.data_type != "sup", "with_labelled": config.data_type != "unsup"}
    data = input_pipeline.open_data(config, **wanted)
    names = ("workers", "runner", "beam_args", "replicas", "worker_id")
    work_settings = {name: getattr(config, name) for name in names}
    sets = write_features(config, data, **work_settings)
    count = sum(record_set.num_examples for record_set in sets.values())
    print(f"features of {count:,} texts are in {features_dir(config)}")
    if FLAGS.export_features and "unsup/original" not in sets:
        print(f"export_features={FLAGS.export_features} is left to the last of replicas={config.replicas}.")
    elif FLAGS.export_features:
        unlabeled = np.asarray(read_features(sets["unsup/original"]).features)
        files.write_arrays(FLAGS.export_features, unlabeled=unlabeled)


if __name__ == "__main__":
    cli.run(main, define_flags)
