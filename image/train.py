"""Trains an image classifier with UDA and evaluates it: train_and_evaluate tells the whole run."""

import functools
import os

import tensorflow as tf

from image import imagenet, input_pipeline
from image.export import export
from image.models import create_network
from utils import distribution, files, run_dir, training
from utils.schedules import LR_SCHEDULES
from utils.uda_model import UDAModel


def train_and_evaluate(config, model_dir, strategy, do_train=True, do_eval=True):
    """Runs or continues the training that `config` describes, then evaluates and exports the chosen checkpoint.

    Returns:
      The content of result.json, as a dict.
    """
    pipeline = choose_pipeline(config)
    data = pipeline.open_data(config)
    training.check_batch_sizes(config, strategy)
    run_dir.prepare(model_dir, config)
    tf.keras.utils.set_random_seed(config.seed)
    with strategy.scope():
        model = create_model(config, data.facts)
        training.compile_model(model, create_optimizer(config), config)
        checkpoints = run_dir.Checkpoints(model_dir, model, config.max_save)
    step = checkpoints.restore_last()

    def create_batches(first_step):
        return distribution.distribute(strategy, lambda: pipeline.create_train_dataset(config, data, first_step))

    evaluate_dev = functools.partial(evaluate, model, data.dev, config, data.facts, strategy) if data.dev else None
    evaluate_test = functools.partial(evaluate, model, data.test, config, data.facts, strategy) if data.test else None
    if do_train and step < config.train_steps:
        training.train(model, config, model_dir, checkpoints, step, create_batches, evaluate_dev, evaluate_test)

    step = checkpoints.restore_chosen(by_dev=bool(data.dev))
    export(model, data.facts, os.path.join(model_dir, "export"))
    if not (do_eval and evaluate_test):
        return {}
    result = training.create_result(evaluate_test(), config, model_dir, step)
    if config.task_name == "imagenet":  # its label_fraction says how many
        result["sup_size"] = data.sup[0].num_examples
    files.write_json(os.path.join(model_dir, "result.json"), result)
    return result


def choose_pipeline(config):
    """ImageNet is read as it is; other data as image.preprocess wrote them."""
    return imagenet if config.task_name == "imagenet" else input_pipeline


def create_model(config, facts):
    create = functools.partial(create_network, config, facts)
    return UDAModel(create, facts.num_classes, config, weight_decay_rate=config.weight_decay_rate)


def create_optimizer(config):
    schedule = LR_SCHEDULES[config.lr_schedule](config.learning_rate, config.train_steps, config.warmup_steps)
    return tf.keras.optimizers.SGD(schedule, momentum=0.9, nesterov=True, jit_compile=False)


def evaluate(model, record_sets, config, facts, strategy):
    """Accuracy and loss of the averaged weights on all examples of `record_sets`."""
    num_examples = sum(record_set.num_examples for record_set in record_sets)
    return training.evaluate(
        model,
        strategy,
        lambda: choose_pipeline(config).create_eval_dataset(record_sets, facts.image_size, config.eval_batch_size),
        num_examples,
        config.eval_batch_size,
    )
