"""The text trainer on two virtual devices and under XLA gives what it gives on one device."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from tests.text.small_run import tiny_config, write_bert, write_user_records
from text import export, input_pipeline, record_format
from text.models.dropout import Dropout
from text.tokenization import Tokenizer
from text.train import create_model, train_and_evaluate
from utils import training
from utils.distribution import create_strategy, distribute
from utils.optimizers import create_bert_adamw

pytestmark = pytest.mark.slow

SETTINGS = {
    "train_steps": 4,
    "log_steps": 2,
    "save_steps": 2,
    "dev_size": 4,
    "tsa": "linear",
    "uda_confidence_thresh": 0.905,
    "iterations": 1,
    "ema_decay": 0.9,
    "model_dropout": 0.0,
}


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    folder = tmp_path_factory.mktemp("strategies")
    bert_dir = write_bert(folder / "bert")
    return tiny_config(write_user_records(folder, bert_dir, dev_sizes=[4]), bert_dir, **SETTINGS)


def weights_after_one_step(config, strategy_name, fixed_length=False):
    strategy, data = create_strategy(strategy_name), input_pipeline.open_data(config)
    tf.keras.utils.set_random_seed(0)
    with strategy.scope():
        model = create_model(config, data.facts, Tokenizer(record_format.vocab_path(config.data_dir)))
        training.compile_model(model, create_bert_adamw(config), config)
    for layer in model.network.submodules:
        if isinstance(layer, Dropout):
            layer.rate = 0.0  # replicas and XLA draw masks of their own
    for weight in model.network.weights:
        if weight.name.startswith(("logits/kernel", "mean_embedding/embeddings")):
            weight.assign(np.random.default_rng(0).normal(size=weight.shape))  # some predictions are certain, some not
    before = model.network.get_weights()
    iterator = iter(
        distribute(strategy, lambda _: input_pipeline.create_train_dataset(config, data, fixed_length=fixed_length))
    )
    training.create_steps(model, 1)(iterator)
    metrics = {name: float(metric.result()) for name, metric in model.train_metrics.items()}
    return before, model.network.get_weights() + model.average_network.get_weights(), metrics


def check_equal_steps(first, second, num_unchanged=2):
    """Every weight is trained, but for the count of masks and the biases of the keys, which change no attention."""
    assert 0 < first[2]["unsup_kept_ratio"] < 1 and 0 < first[2]["sup_kept_ratio"] < 1
    changes = [np.abs(after - before).max() for before, after in zip(first[0], first[1])]
    assert sum(change < 1e-4 for change in changes) == num_unchanged
    for a, b in zip(first[1], second[1]):
        np.testing.assert_allclose(a, b, atol=2e-5)
    for name in first[2]:
        assert first[2][name] == pytest.approx(second[2][name], rel=1e-4, abs=1e-6), name


@pytest.fixture(scope="module")
def one_step(config):
    return weights_after_one_step(config, "one_device")


def test_two_devices_make_the_same_step_as_one(config, one_step):
    check_equal_steps(one_step, weights_after_one_step(config, "mirrored"))


def test_step_compiles_with_xla_and_gives_the_same_update(config, one_step):
    compiled = dataclasses.replace(config, jit_compile=True)
    check_equal_steps(one_step, weights_after_one_step(compiled, "one_device", fixed_length=True))


def test_two_devices_make_the_same_step_of_a_bag_of_words_as_one(config):
    config = dataclasses.replace(config, model_name="bag_of_words", init_checkpoint="")
    steps = [weights_after_one_step(config, strategy_name) for strategy_name in ("one_device", "mirrored")]
    check_equal_steps(*steps, num_unchanged=1)


def test_whole_run_on_two_devices_exports_and_continues(config, tmp_path):
    result = train_and_evaluate(config, str(tmp_path), create_strategy("mirrored"))
    probabilities = export.load(str(tmp_path / "export")).predict_proba(["A film.", "This was very bad!"])
    np.testing.assert_allclose(probabilities.sum(-1), 1, rtol=1e-5)
    # What two devices saved, one device evaluates to the same result.
    again = train_and_evaluate(config, str(tmp_path), create_strategy("one_device"))
    assert (again["accuracy"], again["step"]) == (result["accuracy"], result["step"])
    np.testing.assert_allclose(again["loss"], result["loss"], rtol=1e-5)


def test_parts_that_the_share_of_a_device_cannot_be_cut_into_are_refused(config, tmp_path):
    config = dataclasses.replace(config, accumulation_parts=4)
    message = "train_batch_size=4 cannot be divided among 2 replicas in accumulation_parts=4: use a multiple of 8"
    with pytest.raises(ValueError, match=message):
        train_and_evaluate(config, str(tmp_path / "run"), create_strategy("mirrored"))
    assert not (tmp_path / "run").exists()
