"""The course of a run, which images and text share: steps, log lines, evaluations, checkpoints, result."""

import contextlib
import dataclasses
import functools
import math
import os
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from utils import cli, cluster, diagnosis, distribution, evaluation, files, records, run_dir, speed


class EvaluationSet(NamedTuple):
    create_batches: Callable  # from a record_stream.Share to a dataset of that part of batches of `eval_batch_size`
    num_examples: int


class Job(NamedTuple):
    """What a run trains, beside its settings."""

    create_model: Callable  # without arguments: a utils.uda_model.UDAModel
    create_optimizer: Callable  # from the model
    create_batches: Callable  # from a step and a record_stream.Share to a dataset of that part of batches from it on
    export: Callable  # (model, export_dir): writes the SavedModel
    dev: EvaluationSet | None = None
    test: EvaluationSet | None = None
    record_sets: tuple = ()  # what is read, to name a shard that turns out to be damaged
    class_names: tuple = ()
    create_unlabeled: Callable | None = None  # from a Share: training batches, to look at unlabelled examples
    sup_size: int | None = None  # labelled examples, where the setting of this name does not tell
    data: dict | None = None  # {"labelled": checksum, …} of what is trained on, for run_dir.prepare
    starts_trained: bool = False  # by an earlier stage: then the network may be best as it comes


def run(job, config, model_dir, strategy, do_train=True, do_eval=True):
    """Runs or continues a training, then evaluates and exports the chosen checkpoint.

    Returns:
      The content of result.json, as a dict.
    """
    cluster.check_settings(strategy, config)
    check_batch_sizes(config, strategy)
    run_dir.prepare(model_dir, config, job.data if do_train else None)
    tf.keras.utils.set_random_seed(config.seed)
    with strategy.scope():
        model = job.create_model()
        compile_model(model, job.create_optimizer(model), config)
        checkpoints = run_dir.Checkpoints(model_dir, model, config.max_save)
    step = checkpoints.restore_last()
    cluster.check_step(strategy, step, model_dir)

    def create_batches(first_step):
        return distribution.distribute(strategy, functools.partial(job.create_batches, first_step))

    def evaluation_of(part):
        return functools.partial(evaluate, model, strategy, *part, config.eval_batch_size) if part else None

    evaluate_dev, evaluate_test = evaluation_of(job.dev), evaluation_of(job.test)
    if do_train and step < config.train_steps:
        with records.explain_damage(job.record_sets):
            if job.starts_trained and step == 0:
                evaluate_start(config, model_dir, checkpoints, evaluate_dev, evaluate_test)
            train(model, config, model_dir, checkpoints, step, create_batches, evaluate_dev, evaluate_test)

    cluster.wait_for_all(strategy)  # the chief has written what all restore now
    step = checkpoints.restore_chosen(by_dev=bool(job.dev))
    job.export(model, os.path.join(model_dir, "export"))
    cluster.wait_for_all(strategy)  # a worker that ends early would be missed by the others
    if not (do_eval and job.test):
        if do_eval and cluster.current_task().is_chief:
            print("there are no test examples: no result.json and no report.html are written.")
        return {}
    with records.explain_damage(job.record_sets):
        metrics = evaluate_finally(model, strategy, config, model_dir, job.test, job.class_names, job.create_unlabeled)
    return write_result(model_dir, create_result(metrics, config, model_dir, step, job.sup_size))


def compile_model(model, optimizer, config):
    model.compile(optimizer=optimizer, jit_compile=config.jit_compile)
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


def evaluate_start(config, model_dir, checkpoints, evaluate_dev, evaluate_test):
    """Evaluates a network that is already trained, before the first step; the arguments are those of train."""
    metrics = {}
    if evaluate_dev:
        metrics["dev_accuracy"] = evaluate_dev()["accuracy"]
        checkpoints.save_if_best(0, metrics["dev_accuracy"])
    if evaluate_test and config.eval_steps:
        values = evaluate_test()
        metrics |= {f"test_{name}": values[name] for name in accuracies(values)}
    if metrics:
        write_initial_metrics(config, model_dir, metrics)


def write_initial_metrics(config, model_dir, metrics):
    """Begins metrics.jsonl with a line of step 0."""
    writer = run_dir.MetricsWriter(model_dir, -1, config.train_steps)
    writer.write(0, metrics)
    writer.close()


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
    """Makes the steps from `step` to the end, or to the signal to terminate, after which the same command goes on.

    Args:
      checkpoints: run_dir.Checkpoints of the model.
      create_batches: a function from a step to the distributed training batches that begin with it.
      evaluate_dev, evaluate_test: functions without arguments that return {"accuracy": …}; None without such a set.
      dev_metrics: what is logged of evaluate_dev's values; the first of them decides which checkpoint is the best.
    """
    run_dir.write_start(model_dir, model.distribute_strategy.num_replicas_in_sync)
    num_steps, strategy = steps_per_call(config, step), model.distribute_strategy
    batches, make_steps = speed.TimedIterator(create_batches(step)), create_steps(model, num_steps)
    interval = speed.Interval(model_dir, model, batches, step)
    writer = run_dir.MetricsWriter(model_dir, step, config.train_steps)
    adviser = diagnosis.Adviser(run_dir.read_metrics(model_dir), dataclasses.asdict(config), writer.tell)
    with cli.deferred_termination() as is_terminated:
        while step < config.train_steps:
            next_stop = min((step // steps + 1) * steps for steps in config.intervals)
            while step < next_stop:
                values = make_steps(batches)
                step += num_steps
                writer.advance(step, functools.partial(tf.nest.map_structure, float, values))
                is_stopping = any(row[0] for row in cluster.gather(strategy, [is_terminated()]))
                if is_stopping and step < next_stop:
                    interval.save(step)
                    checkpoints.save(step)
                    raise cli.Terminated
            metrics = run_dir.take_metrics(model, step) | interval.take(step, config.examples_per_step)
            at_checkpoint = step % config.save_steps == 0 or step == config.train_steps
            if evaluate_dev and at_checkpoint:
                values = evaluate_dev()
                metrics |= {f"dev_{name}": values[name] for name in dev_metrics}
                checkpoints.save_if_best(step, values[dev_metrics[0]])
            if evaluate_test and config.eval_steps and step % config.eval_steps == 0:
                values = evaluate_test()
                metrics |= {f"test_{name}": values[name] for name in accuracies(values)}
            writer.write(step, metrics)
            adviser.look(step, metrics)
            if at_checkpoint or is_stopping:  # comes last: a run that is killed before it repeats all of the above
                checkpoints.save(step)
            if is_stopping:
                raise cli.Terminated
            interval.start(step)
    adviser.conclude()
    writer.close()


def create_steps(model, num_steps):
    """A function from an iterator that makes `num_steps` steps on the device in one call.

    It returns the metrics as they are after the last one: means since they were reset. Keras' make_train_function would
    trace the step twice where there are several, and rewrite it before.
    """
    strategy, train_step = model.distribute_strategy, model.train_step
    if model.jit_compile:
        train_step = tf.function(train_step, autograph=False, jit_compile=True)

    def make_step(iterator):
        values = strategy.run(train_step, args=(next(iterator),))
        # Every replica has the means over all of them: any one tells.
        return {name: strategy.experimental_local_results(value)[0] for name, value in values.items()}

    def make_steps(iterator):
        if num_steps == 1:
            return make_step(iterator)
        nothing = {metric.name: tf.zeros([]) for metric in model.metrics}
        names = []  # of the metrics that this step has, known once it is traced

        def make_one_more(done, _):
            values = make_step(iterator)
            names[:] = values
            return done + 1, nothing | values

        # One after the other: else the next step would ask for its input, and wait for it, while this one computes.
        start = tf.constant(0), nothing
        _, values = tf.while_loop(lambda done, _: done < num_steps, make_one_more, start, parallel_iterations=1)
        return {name: values[name] for name in names}

    return make_steps if model.run_eagerly else tf.function(make_steps, autograph=False)


def steps_per_call(config, first_step=0):
    """The most steps up to `iterations` that the device can make in one call without missing a stop.

    Args:
      first_step: where the run goes on; a signal may have ended it between two stops of other settings.
    """
    common = math.gcd(*config.intervals, first_step)
    return max(divisor for divisor in range(1, min(config.iterations, common) + 1) if common % divisor == 0)


def check_batch_sizes(config, strategy):
    for name in ("train_batch_size", "eval_batch_size"):
        distribution.check_batch_size(name, getattr(config, name), strategy)


def evaluate(model, strategy, create_batches, num_examples, batch_size):
    """Accuracy and loss of the averaged weights on `num_examples` that come in batches of fixed size."""
    batches = distribution.distribute(strategy, create_batches)
    model.evaluate(batches, steps=-(-num_examples // batch_size), verbose=0)
    # Not what Keras returns: it would add up the values of several workers, which are the same on each.
    return {name: float(metric.result()) for name, metric in model.test_metrics.items()}


def evaluate_finally(model, strategy, config, model_dir, test, class_names, create_unlabeled=None):
    """Evaluates on the test set, and keeps the predictions in evaluation.npz for the report.

    Args:
      test: EvaluationSet.
      create_unlabeled: as in Job; None without unlabelled examples.
    """
    metrics, kept = evaluation.predict(model, strategy, test, class_names, config.eval_batch_size)
    if create_unlabeled:
        batch_size = config.train_batch_size * config.unsup_ratio
        kept = kept._replace(**evaluation.look_at_unlabeled(model, strategy, create_unlabeled, batch_size))
    with run_dir.explain_refusal(model_dir):
        evaluation.write(model_dir, kept)
    return metrics


def accuracies(metrics):
    """Which of the values of an evaluation are accuracies: top-1 and, with more than five classes, top-5."""
    return [name for name in ("accuracy", "top5_accuracy") if name in metrics]


def write_result(model_dir, result):
    with run_dir.explain_refusal(model_dir):
        files.write_json(os.path.join(model_dir, "result.json"), result)
    return result


def create_result(metrics, config, model_dir, step, sup_size=None):
    """The content of result.json."""
    lines = [line for line in run_dir.read_metrics(model_dir) if "examples_per_second" in line]
    speeds = [line["examples_per_second"] for line in lines]
    return {
        "task_name": config.task_name,
        **{name: metrics[name] for name in accuracies(metrics)},
        "error_rate": 1.0 - metrics["accuracy"],
        "loss": metrics["loss"],
        "sup_size": config.sup_size if sup_size is None else sup_size,
        "seed": config.seed,
        "label_seed": config.label_seed,
        "step": step,
        "train_steps": config.train_steps,
        "examples_per_second": float(np.median(speeds)) if speeds else None,  # metrics.jsonl may have been deleted
        "train_seconds": train_seconds(lines, config.examples_per_step) if speeds else None,
        "versions": run_dir.versions(),
    }


def train_seconds(lines, examples_per_step):
    """Seconds that the steps took, over all starts of the run and without the evaluations between them.

    Args:
      lines: those of metrics.jsonl that have a speed.
    """
    steps = np.diff([0, *(line["step"] for line in lines)])
    return sum(float(num) * examples_per_step / line["examples_per_second"] for num, line in zip(steps, lines))
