"""Trains a text classifier with UDA and evaluates it: train_and_evaluate tells the whole run."""

import dataclasses
import functools
import os
import re

import tensorflow as tf

from text import bert_weights, input_pipeline, record_format, states
from text import features as text_features
from text.config import FROZEN
from text.export import export
from text.models import MODELS, create_network
from text.models.bert import take_ids
from text.tokenization import read_vocab
from utils import auto_settings, evaluation, features, records, run_dir, training
from utils.optimizers import create_bert_adamw
from utils.uda_model import UDAModel

LAYER = re.compile(r"transformer/layer_(\d+)/")  # in the names of variables


@run_dir.alone
def train_and_evaluate(config, model_dir, strategy, do_train=True, do_eval=True):
    """Runs or continues the training that `config` describes, then evaluates and exports the chosen checkpoint.

    Returns:
      The content of result.json, as a dict.
    """
    if config.task_name == "features":
        data = features.read_file(config.features_file, config)
        return features.train_and_evaluate(config, data, model_dir, strategy, do_train, do_eval)
    if config.trainable_layers == 0:
        return train_frozen(config, model_dir, strategy, do_train, do_eval)
    data = input_pipeline.open_data(config)
    tokenizer = record_format.load_tokenizer(config.data_dir, data.tokenization)
    check_parts(config, strategy)
    stream_config, identity = config, records.identify(data)
    if config.keep_states:
        data = states.open_states(config, data)
        stream_config = dataclasses.replace(config, shuffle_buffer=states.limit_memory(config, data.layout))
    head = train_head(config, model_dir, strategy, do_train) if config.head_steps else None
    # Where each shape is compiled on its own, all texts have one length.
    fixed_length = config.jit_compile or isinstance(strategy, tf.distribute.TPUStrategy)

    def evaluation_set(record_sets):
        if record_sets:
            num_examples = sum(record_set.num_examples for record_set in record_sets)
            settings = config.max_seq_length, config.eval_batch_size, fixed_length, data.layout
            create_batches = functools.partial(input_pipeline.create_eval_dataset, record_sets, *settings)
            return training.EvaluationSet(create_batches, num_examples)

    def export_network(model, export_dir):
        network = model.evaluation_network
        export([take_ids(network) if config.keep_states else network], data, tokenizer, export_dir)

    def create_unlabeled(share):
        return input_pipeline.create_train_dataset(
            evaluation.sampling(stream_config), data, 0, fixed_length, share=share
        )

    job = training.Job(
        create_model=lambda: create_model(config, data.facts, tokenizer, head),
        create_optimizer=functools.partial(create_optimizer, config),
        create_batches=lambda step, share: input_pipeline.create_train_dataset(
            stream_config, data, step, fixed_length, share
        ),
        export=export_network,
        dev=evaluation_set(data.dev),
        test=evaluation_set(data.test),
        record_sets=(*data.sup, *data.unsup, *data.dev, *data.test),
        class_names=data.facts.class_names,
        create_unlabeled=create_unlabeled if data.unsup else None,
        data=identity,
        starts_trained=head is not None,
    )
    return training.run(job, config, model_dir, strategy, do_train, do_eval)


def choose_settings(config, given, model_dir, strategy, minutes=0.0):
    """What --settings=auto makes of `config`: see utils.auto_settings.resolve."""
    choose = functools.partial(
        auto_settings.choose_for_texts, count_examples(config), recipe=dataclasses.asdict(config)
    )
    measure = functools.partial(auto_settings.measure_seconds, train_and_evaluate, strategy=strategy)
    return auto_settings.resolve(config, given, choose, model_dir, minutes, measure)


def count_examples(config):
    accelerator = auto_settings.has_accelerator()
    if config.task_name == "features":
        data = features.read_file(config.features_file, config)
        num_unlabeled = 0 if data.original is None else len(data.original)
        return auto_settings.Facts(len(data.sup.labels), len(data.class_names), num_unlabeled, accelerator)
    data = input_pipeline.open_data(config)
    num_unlabeled = data.unsup[0].num_examples if data.unsup else 0
    return auto_settings.Facts(data.sup[0].num_examples, data.facts.num_classes, num_unlabeled, accelerator)


# ---- frozen features ------------------------------------------------------------------------------------------------


def train_frozen(config, model_dir, strategy, do_train=True, do_eval=True):
    """A linear classifier on features that are computed once. What is exported has the encoder in it."""
    data, feature_data = text_features.open_features(config)
    tokenizer = record_format.load_tokenizer(config.data_dir, data.tokenization)
    check_vocabulary(config, tokenizer)

    def export_whole(model, export_dir):
        encoder = text_features.load_network(*text_features.network_settings(config, config.max_seq_length))
        export([encoder, model.evaluation_network], data, tokenizer, export_dir)

    run = config, feature_data, model_dir, strategy, do_train, do_eval
    return features.train_and_evaluate(*run, export_whole, records.identify(data))


def train_head(config, model_dir, strategy, do_train):
    """Makes the `head_steps` as a run of its own, in the folder head of model_dir.

    Returns:
      Its weights, as features.set_head_weights takes them.
    """
    changes = FROZEN | {"train_steps": config.head_steps, "save_steps": config.head_steps}
    changes |= {"learning_rate": config.head_learning_rate, "aug_ops": config.aug_ops, "tsa": "", "ema_decay": 0.0}
    changes |= {"head_steps": 0, "layer_decay": 1.0, "accumulation_parts": 1, "model_dropout": -1.0}
    changes |= {"keep_states": False, "fixed_target": False}
    changes |= {} if config.unsup_ratio else {"unsup_ratio": 0}
    for name in ("train_batch_size", "eval_batch_size"):  # which the replicas share
        changes[name] = -(-changes[name] // strategy.num_replicas_in_sync) * strategy.num_replicas_in_sync
    head_config, weights = dataclasses.replace(config, **changes), []

    def keep_weights(model, _export_dir):
        weights.extend(features.get_head_weights(model.evaluation_network))

    data, feature_data = text_features.open_features(head_config)
    run = (os.path.join(model_dir, "head"), strategy, do_train, False, keep_weights, records.identify(data))
    features.train_and_evaluate(head_config, feature_data, *run)
    return weights


# ---- layers ---------------------------------------------------------------------------------------------------------


def check_parts(config, strategy):
    num_replicas, num_parts = strategy.num_replicas_in_sync, config.accumulation_parts
    if config.train_batch_size % (num_replicas * num_parts):
        raise ValueError(
            f"train_batch_size={config.train_batch_size} cannot be divided among {num_replicas} replicas in "
            f"accumulation_parts={num_parts}: use a multiple of {num_replicas * num_parts}."
        )


def create_model(config, facts, tokenizer, head=None):
    """The network with its objective, filled from `init_checkpoint` if there is one.

    Args:
      head: weights of a head to start from, as train_head returns them.
    """
    if config.init_checkpoint:
        check_vocabulary(config, tokenizer)
    create = functools.partial(create_network, config, facts, tokenizer.vocab_size)
    with training.precision(config.mixed_precision):
        options = {"num_parts": config.accumulation_parts, "fixed_target": config.fixed_target}
        model = UDAModel(create, facts.num_classes, config, joint_pass=False, **options)
    if config.init_checkpoint:  # which the configuration allows for networks that can be filled only
        MODELS[config.model_name].load_weights(model.network, config.init_checkpoint)
    if head is not None:
        features.set_head_weights(model.network, head)
    model.start_copies()
    return model


def create_optimizer(config, model):
    rate_of = functools.partial(layer_rate, config.layer_decay, count_layers(model.network))
    options = {"rate_of": rate_of} if config.layer_decay < 1 else {}
    return create_bert_adamw(config, bias_correction=config.bias_correction, **options)


def layer_rate(decay, num_layers, name):
    """What the learning rate of a variable is multiplied by: less from layer to layer, downwards from the head."""
    layer = LAYER.search(name)
    if layer:
        return decay ** (num_layers - 1 - int(layer[1]))
    return decay**num_layers if "embedding" in name else 1.0


def count_layers(network):
    return len({match[1] for match in map(LAYER.search, (weight.name for weight in network.weights)) if match})


def check_vocabulary(config, tokenizer):
    """Raises ValueError if the pre-trained weights came with another vocabulary than that of the records."""
    path = os.path.join(bert_weights.folder_of(config.init_checkpoint), "vocab.txt")
    if tf.io.gfile.exists(path) and read_vocab(path) != tokenizer.vocab:
        raise ValueError(
            f"data_dir={config.data_dir}: the records were made with another vocabulary than {path}. Preprocess with "
            f"--vocab_file={path}, into another folder."
        )
