"""The course of a run, which images and text share: steps, log lines, evaluations, checkpoints, result."""

import contextlib
import functools
import math
import os
import time
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from utils import distribution, files, run_dir


class EvaluationSet(NamedTuple):
    create_batches: Callable  # without arguments: a dataset of global batches of `eval_batch_size`
    num_examples: int


class Job(NamedTuple):
    """What a run trains, beside its settings."""

    create_model: Callable  # without arguments: a utils.uda_model.UDAModel
    create_optimizer: Callable  # from the model
    create_batches: Callable  # from a step to a dataset of the global batches from that step on
    export: Callable  # (model, export_dir): writes the SavedModel
    dev: EvaluationSet | None = None
    test: EvaluationSet | None = None


def run(job, config, model_dir, strategy, do_train=True, do_eval=True):
    """Runs or continues a training, then evaluates and exports the chosen checkpoint.

    Returns:
      The content of result.json, as a dict.
    """
    check_batch_sizes(config, strategy)
    run_dir.prepare(model_dir, config)
    tf.keras.utils.set_random_seed(config.seed)
    with strategy.scope():
        model = job.create_model()
        compile_model(model, job.create_optimizer(model), config)
        checkpoints = run_dir.Checkpoints(model_dir, model, config.max_save)
    step = checkpoints.restore_last()

    def create_batches(first_step):
        return distribution.distribute(strategy, functools.partial(job.create_batches, first_step))

    def evaluation_of(part):
        return functools.partial(evaluate, model, strategy, *part, config.eval_batch_size) if part else None

    evaluate_dev, evaluate_test = evaluation_of(job.dev), evaluation_of(job.test)
    if do_train and step < config.train_steps:
        train(model, config, model_dir, checkpoints, step, create_batches, evaluate_dev, evaluate_test)

    step = checkpoints.restore_chosen(by_dev=bool(job.dev))
    job.export(model, os.path.join(model_dir, "export"))
    if not (do_eval and evaluate_test):
        return {}
    result = create_result(evaluate_test(), config, model_dir, step)
    files.write_json(os.path.join(model_dir, "result.json"), result)
    return result


def compile_model(model, optimizer, config):
    model.compile(optimizer=optimizer, jit_compile=config.jit_compile, steps_per_execution=steps_per_call(config))
    model.optimizer.build(model.network.trainable_variables)


@contextlib.contextmanager
def precision(name):
    """Layers created inside compute in "float16" or "bfloat16"; "" leaves them as they are."""
    before = tf.keras.mixed_precision.global_policy()
    tf.keras.mixed_precision.set_global_policy(f"mixed_{name}" if name else before)
    try:
        yield
    finally:
        tf.keras.mixed_precision.set_global_policy(before)


def train(
    model,
    config,
    model_dir,
    checkpoints,
    step,
    create_batches,
    evaluate_dev=None,
    evaluate_test=None,
    dev_metrics=("accuracy",),
):
    """Makes the steps from `step` to the end.

    Args:
      checkpoints: run_dir.Checkpoints of the model.
      create_batches: a function from a step to the distributed training batches that begin with it.
      evaluate_dev, evaluate_test: functions without arguments that return {"accuracy": …}; None without such a set.
      dev_metrics: what is logged of evaluate_dev's values; the first of them decides which checkpoint is the best.
    """
    iterator, train_steps_on_device = iter(create_batches(step)), model.make_train_function()
    writer = run_dir.MetricsWriter(model_dir, step, config.train_steps)
    while step < config.train_steps:
        next_stop = min((step // interval + 1) * interval for interval in config.intervals)
        started, num_steps = time.time(), next_stop - step
        while step < next_stop:
            train_steps_on_device(iterator)
            step += steps_per_call(config)
            writer.advance(step)
        metrics = run_dir.take_metrics(model, step)
        metrics["examples_per_second"] = num_steps * config.examples_per_step / (time.time() - started)
        at_checkpoint = step % config.save_steps == 0 or step == config.train_steps
        if evaluate_dev and at_checkpoint:
            values = evaluate_dev()
            metrics |= {f"dev_{name}": values[name] for name in dev_metrics}
            checkpoints.save_if_best(step, values[dev_metrics[0]])
        if evaluate_test and config.eval_steps and step % config.eval_steps == 0:
            values = evaluate_test()
            metrics |= {f"test_{name}": values[name] for name in accuracies(values)}
        writer.write(step, metrics)
        if at_checkpoint:  # comes last: a run that is killed before it repeats all of the above
            checkpoints.save(step)
    writer.close()


def steps_per_call(config):
    """The most steps up to `iterations` that the device can make in one call without missing a stop."""
    common = math.gcd(*config.intervals)
    return max(divisor for divisor in range(1, min(config.iterations, common) + 1) if common % divisor == 0)


def check_batch_sizes(config, strategy):
    for name in ("train_batch_size", "eval_batch_size"):
        distribution.check_batch_size(name, getattr(config, name), strategy)


def evaluate(model, strategy, create_batches, num_examples, batch_size):
    """Accuracy and loss of the averaged weights on `num_examples` that come in batches of fixed size."""
    batches = distribution.distribute(strategy, create_batches)
    return model.evaluate(batches, steps=-(-num_examples // batch_size), verbose=0, return_dict=True)


def accuracies(metrics):
    """Which of the values of an evaluation are accuracies: top-1 and, with more than five classes, top-5."""
    return [name for name in ("accuracy", "top5_accuracy") if name in metrics]


def create_result(metrics, config, model_dir, step):
    """The content of result.json."""
    speeds = [line["examples_per_second"] for line in run_dir.read_metrics(model_dir)]
    return {
        "task_name": config.task_name,
        **{name: metrics[name] for name in accuracies(metrics)},
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
