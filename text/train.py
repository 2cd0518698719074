"""Trains a text classifier with UDA and evaluates it: train_and_evaluate tells the whole run."""

import contextlib
import functools
import os

import tensorflow as tf

from text import bert_weights, input_pipeline, record_format
from text.export import export
from text.models import create_encoder_config, create_network
from text.tokenization import Tokenizer, read_vocab
from utils import distribution, run_dir, training
from utils.optimizers import BertAdamW
from utils.schedules import WarmupLinear
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
        training.compile_model(model, create_optimizer(config), config)
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
    run_dir.write_json(os.path.join(model_dir, "result.json"), result)
    return result


def check_batch_sizes(config, strategy):
    training.check_batch_sizes(config, strategy)
    num_replicas, num_parts = strategy.num_replicas_in_sync, config.accumulation_parts
    if config.train_batch_size % (num_replicas * num_parts):
        raise ValueError(
            f"train_batch_size={config.train_batch_size} cannot be divided among {num_replicas} replicas in "
            f"accumulation_parts={num_parts}: use a multiple of {num_replicas * num_parts}."
        )


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


def create_model(config, facts, tokenizer):
    config_file = config.bert_config_file
    if config.init_checkpoint:
        check_vocabulary(config, tokenizer)
        config_file = config_file or bert_weights.find_config(config.init_checkpoint)
    with precision(config.mixed_precision):
        model = UDAModel(
            functools.partial(
                create_network,
                create_encoder_config(config.model_name, tokenizer.vocab_size, config_file),
                facts.num_classes,
                config.max_seq_length,
                pooling=config.pooling,
                dropout=config.model_dropout,
                trainable_layers=config.trainable_layers,
                seed=config.seed,
            ),
            num_classes=facts.num_classes,
            train_steps=config.train_steps,
            tsa=config.tsa,
            softmax_temp=config.uda_softmax_temp,
            confidence_thresh=config.uda_confidence_thresh,
            unsup_coeff=config.uda_coeff,
            ent_min_coeff=config.ent_min_coeff,
            ema_decay=config.ema_decay,
            joint_pass=False,
            num_parts=config.accumulation_parts,
        )
    if config.init_checkpoint:
        bert_weights.load_weights(model.network, config.init_checkpoint)
        model.start_average()
    return model


@contextlib.contextmanager
def precision(name):
    """Layers created inside compute in "float16" or "bfloat16"; "" leaves them as they are."""
    before = tf.keras.mixed_precision.global_policy()
    tf.keras.mixed_precision.set_global_policy(f"mixed_{name}" if name else before)
    try:
        yield
    finally:
        tf.keras.mixed_precision.set_global_policy(before)


def create_optimizer(config):
    schedule = WarmupLinear(config.learning_rate, config.train_steps, config.warmup_steps)
    optimizer = BertAdamW(schedule, config.weight_decay_rate, config.clip_norm)
    if config.mixed_precision == "float16":  # in which small gradients vanish unless the loss is scaled up
        return tf.keras.mixed_precision.LossScaleOptimizer(optimizer)
    return optimizer


def evaluate(model, record_sets, config, strategy, fixed_length=False):
    """Accuracy and loss of the averaged weights on all examples of `record_sets`."""
    num_examples = sum(record_set.num_examples for record_set in record_sets)
    return training.evaluate(
        model,
        strategy,
        lambda: input_pipeline.create_eval_dataset(
            record_sets, config.max_seq_length, config.eval_batch_size, fixed_length
        ),
        num_examples,
        config.eval_batch_size,
    )
