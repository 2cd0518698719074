"""The contract of every network, of images and of texts: a new entry of a table MODELS needs an entry of CASES."""

import dataclasses
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pytest
import tensorflow as tf

from image.models import MODELS as IMAGE_MODELS
from image.models.pyramidnet import create_pyramidnet
from image.models.resnet import create_resnet
from image.models.shake_shake import create_shake_shake
from image.models.wide_resnet import create_wide_resnet
from tests.image.network_helpers import FACTS
from text.models import MODELS as TEXT_MODELS
from text.models.bag_of_words import create_bag_of_words
from text.models.bert import BertConfig, create_bert
from utils.distribution import create_strategy, distribute
from utils.run_dir import Checkpoints
from utils.settings import ObjectiveConfig
from utils.uda_model import UDAModel

pytestmark = pytest.mark.slow
NUM_CLASSES, VOCAB_SIZE, TRAIN_STEPS = 3, 30, 10
SMALL_BERT = BertConfig(VOCAB_SIZE, 8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=12)


class Case(NamedTuple):
    """A small network of each kind."""

    create: Callable  # without arguments
    kind: str  # "image" or "text"
    size: int  # side of the images, or length of the texts
    is_random: bool = False  # draws numbers in training, others on each replica


def image_case(create, size=8, **options):
    facts = dataclasses.replace(FACTS, image_size=size, class_names=tuple("abc"))
    return Case(lambda: create(facts, synchronized=True), "image", size, **options)


CASES = {
    "wrn": image_case(lambda facts, **options: create_wide_resnet(facts, 10, 4, **options)),
    "shake_shake": image_case(lambda facts, **options: create_shake_shake(facts, 4, 8, **options), is_random=True),
    "pyramid_net": image_case(lambda facts, **options: create_pyramidnet(facts, 11, 6, **options), is_random=True),
    "resnet50": image_case(lambda facts, **options: create_resnet(facts, (1, 1), **options), 32),
    "bert": Case(lambda: create_bert(SMALL_BERT, NUM_CLASSES, 12, dropout=0.0), "text", 12, is_random=True),
    "transformer": Case(lambda: create_bert(SMALL_BERT, NUM_CLASSES, 12, "mean"), "text", 12, is_random=True),
    "bag_of_words": Case(lambda: create_bag_of_words(VOCAB_SIZE, NUM_CLASSES, dropout=0.0), "text", 12),
}


@pytest.fixture(params=CASES)
def case(request):
    return CASES[request.param]


def create_features(case, num_examples, seed=0):
    rng = np.random.default_rng(seed)
    if case.kind == "image":
        return rng.integers(0, 256, [num_examples, case.size, case.size, 4]).astype(np.uint8)
    ids = rng.integers(1, VOCAB_SIZE, [num_examples, case.size]).astype(np.int32)
    ids[1, case.size // 2 :] = 0  # one text is shorter
    return {"ids": ids, "type_ids": np.zeros_like(ids)}


def create_batches(case, num_batches, seed=0):
    def create_batch(seed):
        sizes = {"sup": 4, "original": 4, "augmented": 4}
        views = {name: create_features(case, size, 3 * seed + view) for view, (name, size) in enumerate(sizes.items())}
        return views | {"label": np.arange(4) % NUM_CLASSES}

    return [create_batch(seed + number) for number in range(num_batches)]


def create_model(case, jit_compile=False):
    tf.keras.utils.set_random_seed(0)
    objective = ObjectiveConfig(train_steps=TRAIN_STEPS, ema_decay=0.5, unsup_coeff=2.0)
    model = UDAModel(case.create, NUM_CLASSES, objective, joint_pass=case.kind == "image")
    model.compile(tf.keras.optimizers.SGD(0.5, jit_compile=False), jit_compile=jit_compile)
    model.optimizer.build(model.network.trainable_variables)
    return model


def train(model, batches):
    dataset = tf.data.Dataset.from_tensor_slices(tf.nest.map_structure(lambda *values: np.stack(values), *batches))
    batches_of_replicas = distribute(model.distribute_strategy, lambda _: dataset)
    return model.fit(batches_of_replicas, steps_per_epoch=len(batches), verbose=0).history


def all_weights(model):
    return model.network.get_weights() + model.average_network.get_weights()


def test_every_network_of_the_tables_is_under_contract():
    assert set(CASES) == set(IMAGE_MODELS) | set(TEXT_MODELS)


def test_features_become_finite_float32_logits_that_evaluation_repeats(case):
    tf.keras.utils.set_random_seed(0)
    network, features = case.create(), create_features(case, 5)
    for training in (False, True):
        logits = network(features, training=training)
        assert logits.shape == (5, NUM_CLASSES) and logits.dtype == tf.float32
        assert np.isfinite(logits).all()
    np.testing.assert_array_equal(network(features, training=False), network(features, training=False))
    assert network(create_features(case, 5)).shape == (5, NUM_CLASSES)


def test_an_example_is_classified_alike_in_any_company(case):
    network, features = case.create(), create_features(case, 5)
    alone = tf.nest.map_structure(lambda values: values[1:2], features)
    np.testing.assert_allclose(network(features)[1:2], network(alone), atol=1e-5)


def test_a_step_compiled_with_xla_moves_every_weight_and_its_average(case):
    model = create_model(case, jit_compile=True)
    before = [weight.numpy() for weight in model.network.trainable_weights]
    history = train(model, create_batches(case, 2))
    assert np.isfinite(history["loss"]).all()
    averages = {weight.name: weight.numpy() for weight in model.average_network.weights}
    assert len(averages) == len(model.network.weights)
    for value, weight in zip(before, model.network.trainable_weights):
        assert np.isfinite(weight).all() and np.abs(weight - value).max() > 0, weight.name


def test_training_continued_from_a_checkpoint_equals_an_uninterrupted_one(case, tmp_path):
    model, batches = create_model(case), create_batches(case, 4)
    checkpoints = Checkpoints(str(tmp_path), model, 1)
    train(model, batches[:2])
    checkpoints.save(2)
    train(model, batches[2:])
    uninterrupted = all_weights(model)
    train(model, batches[:1])  # has other weights now, and has drawn other numbers
    assert checkpoints.restore_last() == 2
    train(model, batches[2:])
    for one, other in zip(uninterrupted, all_weights(model), strict=True):
        np.testing.assert_array_equal(one, other)


def test_two_replicas_train_as_one(case):
    batches = create_batches(case, 2)
    with create_strategy("mirrored").scope():
        model = create_model(case)
    losses = train(model, batches)["loss"]
    assert np.isfinite(losses).all()
    for weight in model.network.trainable_weights:
        first, second = (replica.numpy() for replica in weight.values)
        np.testing.assert_array_equal(first, second)
    if not case.is_random:  # replicas draw different numbers
        single = create_model(case)
        train(single, batches)
        for one, two in zip(all_weights(single), all_weights(model), strict=True):
            np.testing.assert_allclose(one, two, atol=2e-5)
