"""The image trainer on two virtual devices and under XLA gives what it gives on one device."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from image import export, input_pipeline
from image.train import create_model, create_optimizer, train_and_evaluate
from tests.image.small_data import run_preprocess, tiny_config, write_cifar10
from utils import training
from utils.distribution import create_strategy, distribute

pytestmark = pytest.mark.slow

SETTINGS = {
    "train_batch_size": 8,
    "train_steps": 4,
    "log_steps": 2,
    "save_steps": 2,
    "dev_size": 4,
    "tsa": "linear",
    "uda_confidence_thresh": 0.1,
    "sync_batch_norm": True,
}


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    folder = tmp_path_factory.mktemp("strategies")
    write_cifar10(folder)
    run_preprocess(folder, folder / "records", dev_size=4)
    return tiny_config(folder / "records", **SETTINGS)


def weights_after_one_step(config, strategy_name):
    strategy, data = create_strategy(strategy_name), input_pipeline.open_data(config)
    tf.keras.utils.set_random_seed(0)
    with strategy.scope():
        model = create_model(config, data.facts)
        model.compile(create_optimizer(config), jit_compile=config.jit_compile)
    before = model.network.get_weights()
    iterator = iter(distribute(strategy, lambda _: input_pipeline.create_train_dataset(config, data)))
    training.create_steps(model, 1)(iterator)
    return before, model.network.get_weights() + model.average_network.get_weights()


def check_equal_steps(first, second):
    changes = [np.abs(after - before).max() for before, after in zip(first[0], first[1])]
    assert min(changes) > 1e-5  # every weight was trained
    for a, b in zip(first[1], second[1]):
        np.testing.assert_allclose(a, b, atol=1e-5)


def test_two_devices_make_the_same_step_as_one(config):
    check_equal_steps(weights_after_one_step(config, "one_device"), weights_after_one_step(config, "mirrored"))


def test_step_compiles_with_xla_and_gives_the_same_update(config):
    config = dataclasses.replace(config, sync_batch_norm=False)
    compiled = dataclasses.replace(config, jit_compile=True)
    check_equal_steps(weights_after_one_step(config, "one_device"), weights_after_one_step(compiled, "one_device"))


def test_whole_run_on_two_devices_exports_and_continues(config, tmp_path):
    result = train_and_evaluate(config, str(tmp_path), create_strategy("mirrored"))
    images = np.random.default_rng(0).integers(0, 256, [3, 32, 32, 3], np.uint8)
    probabilities = export.load(str(tmp_path / "export")).predict_proba(images)
    np.testing.assert_allclose(probabilities.sum(-1), 1, rtol=1e-5)
    # What two devices saved, one device evaluates to the same result.
    again = train_and_evaluate(config, str(tmp_path), create_strategy("one_device"))
    assert (again["accuracy"], again["step"]) == (result["accuracy"], result["step"])
    np.testing.assert_allclose(again["loss"], result["loss"], rtol=1e-5)
