"""Trains a text classifier with UDA and evaluates it: train_and_evaluate tells the whole run."""

import dataclasses
import functools
import os
import re

import tensorflow as tf

from text import bert_weights, input_pipeline, record_format
from text import features as text_features
from text.config import FROZEN
from text.export import export
from text.models import MODELS, create_network
from text.tokenization import Tokenizer, read_vocab
from utils import features, training
from utils.optimizers import create_bert_adamw
from utils.uda_model import UDAModel

LAYER = re.compile(r"transformer/layer_(\d+)/")  # in the names of variables


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
    tokenizer = open_tokenizer(config, data)
    check_parts(config, strategy)
    head = train_head(config, model_dir, strategy, do_train) if config.head_steps else None
    # Where each shape is compiled on its own, all texts have one length.
    fixed_length = config.jit_compile or isinstance(strategy, tf.distribute.TPUStrategy)

    def evaluation_set(record_sets):
        if record_sets:
            num_examples = sum(record_set.num_examples for record_set in record_sets)
            settings = config.max_seq_length, config.eval_batch_size, fixed_length
            create_batches = functools.partial(input_pipeline.create_eval_dataset, record_sets, *settings)
            return training.EvaluationSet(create_batches, num_examples)

    job = training.Job(
        create_model=lambda: create_model(config, data.facts, tokenizer, head),
        create_optimizer=functools.partial(create_optimizer, config),
        create_batches=lambda step: input_pipeline.create_train_dataset(config, data, step, fixed_length),
        export=lambda model, export_dir: export([model.evaluation_network], data, tokenizer, export_dir),
        dev=evaluation_set(data.dev),
        test=evaluation_set(data.test),
    )
    return training.run(job, config, model_dir, strategy, do_train, do_eval)


# ---- frozen features ------------------------------------------------------------------------------------------------


def train_frozen(config, model_dir, strategy, do_train=True, do_eval=True):
    """A linear classifier on features that are computed once. What is exported has the encoder in it."""
    data, feature_data = text_features.open_features(config)
    tokenizer = open_tokenizer(config, data)
    check_vocabulary(config, tokenizer)

    def export_whole(model, export_dir):
        encoder = text_features.load_network(*text_features.network_settings(config, config.max_seq_length))
        export([encoder, model.evaluation_network], data, tokenizer, export_dir)

    return features.train_and_evaluate(config, feature_data, model_dir, strategy, do_train, do_eval, export_whole)


def train_head(config, model_dir, strategy, do_train):
    """Makes the `head_steps` as a run of its own, in the folder head of model_dir.

    Returns:
      Its weights, as features.set_head_weights takes them.
    """
    changes = FROZEN | {"train_steps": config.head_steps, "save_steps": config.head_steps}
    changes |= {"learning_rate": config.head_learning_rate, "aug_ops": config.aug_ops, "tsa": "", "ema_decay": 0.0}
    changes |= {"head_steps": 0, "layer_decay": 1.0, "accumulation_parts": 1}
    changes |= {} if config.unsup_ratio else {"unsup_ratio": 0}
    head_config, weights = dataclasses.replace(config, **changes), []

    def keep_weights(model, _export_dir):
        weights.extend(features.get_head_weights(model.evaluation_network))

    run = (os.path.join(model_dir, "head"), strategy, do_train, False, keep_weights)
    _, data = text_features.open_features(head_config)
    features.train_and_evaluate(head_config, data, *run)
    return weights


def open_tokenizer(config, data):
    tokenization, vocab_path = data.tokenization, record_format.vocab_path(config.data_dir)
    return Tokenizer(vocab_path, tokenization.lower_case, tokenization.prefix)


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
        model = UDAModel(create, facts.num_classes, config, joint_pass=False, num_parts=config.accumulation_parts)
    if config.init_checkpoint:  # which the configuration allows for networks that can be filled only
        MODELS[config.model_name].load_weights(model.network, config.init_checkpoint)
    if head is not None:
        features.set_head_weights(model.network, head)
    model.start_average()
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
