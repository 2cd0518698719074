"""Trains an image classifier with UDA and evaluates it: train_and_evaluate tells the whole run."""

import functools

import tensorflow as tf

from image import imagenet, input_pipeline
from image.export import export
from image.models import create_network
from utils import auto_settings, evaluation, records, run_dir, training
from utils.optimizers import scale_if_needed
from utils.schedules import LR_SCHEDULES
from utils.uda_model import UDAModel


@run_dir.alone
def train_and_evaluate(config, model_dir, strategy, do_train=True, do_eval=True):
    """Runs or continues the training that `config` describes, then evaluates and exports the chosen checkpoint.

    Returns:
      The content of result.json, as a dict.
    """
    pipeline = choose_pipeline(config)
    data = pipeline.open_data(config)

    def evaluation_set(record_sets):
        if record_sets:
            settings = data.facts.image_size, config.eval_batch_size
            num_examples = sum(record_set.num_examples for record_set in record_sets)
            return training.EvaluationSet(
                functools.partial(pipeline.create_eval_dataset, record_sets, *settings), num_examples
            )

    def create_unlabeled(share):
        return pipeline.create_train_dataset(evaluation.sampling(config), data, share=share)

    job = training.Job(
        create_model=lambda: create_model(config, data.facts),
        create_optimizer=lambda model: create_optimizer(config),
        create_batches=functools.partial(pipeline.create_train_dataset, config, data),
        export=lambda model, export_dir: export(model, data.facts, export_dir),
        dev=evaluation_set(data.dev),
        test=evaluation_set(data.test),
        record_sets=(*data.sup, *data.unsup, *data.dev, *data.test),
        class_names=data.facts.class_names,
        create_unlabeled=create_unlabeled if data.unsup else None,
        data=records.identify(data),
        # On ImageNet label_fraction says how many labels are used, not sup_size.
        sup_size=sum(record_set.num_examples for record_set in data.sup) if config.task_name == "imagenet" else None,
    )
    return training.run(job, config, model_dir, strategy, do_train, do_eval)


def choose_settings(config, given, model_dir, strategy, minutes=0.0):
    """What --settings=auto makes of `config`: see utils.auto_settings.resolve."""
    data = choose_pipeline(config).open_data(config)
    num_unlabeled = data.unsup[0].num_examples if data.unsup else 0
    sizes = data.sup[0].num_examples, data.facts.num_classes, num_unlabeled
    facts = auto_settings.Facts(*sizes, auto_settings.has_accelerator())
    choose = functools.partial(auto_settings.choose_for_images, facts)
    measure = functools.partial(auto_settings.measure_seconds, train_and_evaluate, strategy=strategy)
    return auto_settings.resolve(config, given, choose, model_dir, minutes, measure)


def choose_pipeline(config):
    """ImageNet is read as it is; other data as image.preprocess wrote them."""
    return imagenet if config.task_name == "imagenet" else input_pipeline


def create_model(config, facts):
    create = functools.partial(create_network, config, facts)
    with training.precision(config.mixed_precision):
        return UDAModel(create, facts.num_classes, config, weight_decay_rate=config.weight_decay_rate)


def create_optimizer(config):
    schedule = LR_SCHEDULES[config.lr_schedule](config.learning_rate, config.train_steps, config.warmup_steps)
    optimizer = tf.keras.optimizers.SGD(schedule, momentum=0.9, nesterov=True, jit_compile=False)
    return scale_if_needed(optimizer, config.mixed_precision)
