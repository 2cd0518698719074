"""Trains a text classifier with UDA and evaluates it: train_and_evaluate tells the whole run."""

import functools
import os

import tensorflow as tf

from text import input_pipeline, record_format
from text.export import export
from text.models import MODELS, create_network
from text.tokenization import Tokenizer, read_vocab
from utils import distribution, files, run_dir, training
from utils.optimizers import create_bert_adamw
from utils.uda_model import UDAModel


def train_and_evaluate(config, model_dir, strategy, do_train=True, do_eval=True):
    """Runs or continues the training that `config` describes, then evaluates and exports the chosen checkpoint.

    Returns:
      The content of result.json, as a dict.
    """
    data = input_pipeline.open_data(config)
    tokenizer = Tokenizer(record_format.vocab_path(config.data_dir), data.tokenization.lower_case)
    check_batch_sizes(config, strategy)
    run_dir.prepare(model_dir, config)
    tf.keras.utils.set_random_seed(config.seed)
    with strategy.scope():
        model = create_model(config, data.facts, tokenizer)
        training.compile_model(model, create_bert_adamw(config), config)
        checkpoints = run_dir.Checkpoints(model_dir, model, config.max_save)
    step = checkpoints.restore_last()
    # Where each shape is compiled on its own, all texts have one length.
    fixed_length = config.jit_compile or isinstance(strategy, tf.distribute.TPUStrategy)

    def create_batches(first_step):
        return distribution.distribute(
            strategy, lambda: input_pipeline.create_train_dataset(config, data, first_step, fixed_length)
        )

    def evaluation_of(record_sets):
        if record_sets:
            return functools.partial(evaluate, model, record_sets, config, strategy, fixed_length)

    evaluate_dev, evaluate_test = evaluation_of(data.dev), evaluation_of(data.test)
    if do_train and step < config.train_steps:
        training.train(model, config, model_dir, checkpoints, step, create_batches, evaluate_dev, evaluate_test)

    step = checkpoints.restore_chosen(by_dev=bool(data.dev))
    export(model, data, tokenizer, os.path.join(model_dir, "export"))
    if not (do_eval and evaluate_test):
        return {}
    result = training.create_result(evaluate_test(), config, model_dir, step)
    files.write_json(os.path.join(model_dir, "result.json"), result)
    return result


def check_batch_sizes(config, strategy):
    training.check_batch_sizes(config, strategy)
    num_replicas, num_parts = strategy.num_replicas_in_sync, config.accumulation_parts
    if config.train_batch_size % (num_replicas * num_parts):
        raise ValueError(
            f"train_batch_size={config.train_batch_size} cannot be divided among {num_replicas} replicas in "
            f"accumulation_parts={num_parts}: use a multiple of {num_replicas * num_parts}."
        )


def create_model(config, facts, tokenizer):
    """The network with its objective, filled from `init_checkpoint` if there is one."""
    if config.init_checkpoint:
        check_vocabulary(config, tokenizer)
    create = functools.partial(create_network, config, facts, tokenizer.vocab_size)
    with training.precision(config.mixed_precision):
        model = UDAModel(create, facts.num_classes, config, joint_pass=False, num_parts=config.accumulation_parts)
    if config.init_checkpoint:  # which the configuration allows for networks that can be filled only
        MODELS[config.model_name].load_weights(model.network, config.init_checkpoint)
        model.start_average()
    return model


def check_vocabulary(config, tokenizer):
    """Raises ValueError if the pre-trained weights came with another vocabulary than that of the records."""
    is_folder = tf.io.gfile.isdir(config.init_checkpoint)
    folder = config.init_checkpoint if is_folder else os.path.dirname(config.init_checkpoint)
    path = os.path.join(folder, "vocab.txt")
    if tf.io.gfile.exists(path) and read_vocab(path) != tokenizer.vocab:
        raise ValueError(
            f"data_dir={config.data_dir}: the records were made with another vocabulary than {path}. Preprocess with "
            f"--vocab_file={path}, into another folder."
        )


def evaluate(model, record_sets, config, strategy, fixed_length=False):
    """Accuracy and loss of the averaged weights on all examples of `record_sets`."""
    num_examples = sum(record_set.num_examples for record_set in record_sets)
    create_batches = functools.partial(
        input_pipeline.create_eval_dataset, record_sets, config.max_seq_length, config.eval_batch_size, fixed_length
    )
    return training.evaluate(model, strategy, create_batches, num_examples, config.eval_batch_size)
