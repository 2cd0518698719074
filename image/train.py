"""Trains an image classifier with UDA and evaluates it: train_and_evaluate tells the whole run."""

import functools
import math
import os
import time

import numpy as np
import tensorflow as tf

from image import input_pipeline
from image.export import export
from image.models import create_network
from utils import distribution, run_dir
from utils.schedules import WarmupCosine
from utils.uda_model import UDAModel


def train_and_evaluate(config, model_dir, strategy, do_train=True, do_eval=True):
    """Runs or continues the training that `config` describes, then evaluates and exports the chosen checkpoint.

    Returns:
      The content of result.json, as a dict.
    """
    data = input_pipeline.open_data(config)
    distribution.check_batch_size("train_batch_size", config.train_batch_size, strategy)
    distribution.check_batch_size("eval_batch_size", config.eval_batch_size, strategy)
    run_dir.prepare(model_dir, config)
    tf.keras.utils.set_random_seed(config.seed)
    with strategy.scope():
        model = create_model(config, data.facts)
        model.compile(
            optimizer=create_optimizer(config),
            jit_compile=config.jit_compile,
            steps_per_execution=steps_per_call(config),
        )
        model.optimizer.build(model.network.trainable_variables)
        checkpoints = run_dir.Checkpoints(model_dir, model, config.max_save)
    step = checkpoints.restore_last()

    if do_train and step < config.train_steps:
        batches = distribution.distribute(strategy, lambda: input_pipeline.create_train_dataset(config, data, step))
        iterator, train_steps_on_device = iter(batches), model.make_train_function()
        writer = run_dir.MetricsWriter(model_dir, step, config.train_steps)
        while step < config.train_steps:
            next_stop = min((step // interval + 1) * interval for interval in intervals(config))
            started, num_steps = time.time(), next_stop - step
            while step < next_stop:
                train_steps_on_device(iterator)
                step += steps_per_call(config)
                writer.advance(step)
            metrics = run_dir.take_metrics(model, step)
            metrics["examples_per_second"] = num_steps * examples_per_step(config) / (time.time() - started)
            at_checkpoint = step % config.save_steps == 0 or step == config.train_steps
            if data.dev and at_checkpoint:
                metrics["dev_accuracy"] = evaluate(model, data.dev, config, data.facts, strategy)["accuracy"]
                checkpoints.save_if_best(step, metrics["dev_accuracy"])
            if data.test and config.eval_steps and step % config.eval_steps == 0:
                metrics["test_accuracy"] = evaluate(model, data.test, config, data.facts, strategy)["accuracy"]
            writer.write(step, metrics)
            if at_checkpoint:  # comes last: a run that is killed before it repeats all of the above
                checkpoints.save(step)
        writer.close()

    step = checkpoints.restore_chosen(by_dev=bool(data.dev))
    export(model, data.facts, os.path.join(model_dir, "export"))
    if not (do_eval and data.test):
        return {}
    result = create_result(evaluate(model, data.test, config, data.facts, strategy), config, model_dir, step)
    run_dir.write_json(os.path.join(model_dir, "result.json"), result)
    return result


def create_model(config, facts):
    return UDAModel(
        functools.partial(create_network, config, facts),
        num_classes=facts.num_classes,
        train_steps=config.train_steps,
        tsa=config.tsa,
        softmax_temp=config.uda_softmax_temp,
        confidence_thresh=config.uda_confidence_thresh,
        unsup_coeff=config.unsup_coeff,
        ent_min_coeff=config.ent_min_coeff,
        weight_decay_rate=config.weight_decay_rate,
        ema_decay=config.ema_decay,
    )


def create_optimizer(config):
    schedule = WarmupCosine(config.learning_rate, config.train_steps, config.warmup_steps)
    return tf.keras.optimizers.SGD(schedule, momentum=0.9, nesterov=True, jit_compile=False)


def intervals(config):
    """The training stops at multiples of these: for a log line, a checkpoint, an evaluation, the end."""
    return [config.log_steps, config.save_steps, config.train_steps] + [config.eval_steps] * (config.eval_steps > 0)


def steps_per_call(config):
    """The most steps up to `iterations` that the device can make in one call without missing a stop."""
    common = math.gcd(*intervals(config))
    return max(divisor for divisor in range(1, min(config.iterations, common) + 1) if common % divisor == 0)


def examples_per_step(config):
    return config.train_batch_size * (1 + 2 * config.unsup_ratio)


def evaluate(model, record_sets, config, facts, strategy):
    """Accuracy and loss of the averaged weights on all examples of `record_sets`."""
    batches = distribution.distribute(
        strategy, lambda: input_pipeline.create_eval_dataset(record_sets, facts.image_size, config.eval_batch_size)
    )
    num_examples = sum(record_set.num_examples for record_set in record_sets)
    return model.evaluate(batches, steps=-(-num_examples // config.eval_batch_size), verbose=0, return_dict=True)


def create_result(metrics, config, model_dir, step):
    speeds = [line["examples_per_second"] for line in run_dir.read_metrics(model_dir)]
    return {
        "task_name": config.task_name,
        "accuracy": metrics["accuracy"],
        "error_rate": 1.0 - metrics["accuracy"],
        "loss": metrics["loss"],
        "sup_size": config.sup_size,
        "seed": config.seed,
        "label_seed": config.label_seed,
        "step": step,
        "train_steps": config.train_steps,
        "examples_per_second": float(np.median(speeds)),
        "versions": run_dir.versions(),
    }
