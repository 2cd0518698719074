"""16 bits for images: what stays in 32, that training follows that of 32 bits, that a stopped run goes on exactly."""

import functools

import numpy as np
import pytest
import tensorflow as tf

from image import export, train
from image.models import MODELS
from image.models.pyramidnet import create_pyramidnet
from image.models.resnet import create_resnet
from image.models.shake_shake import create_shake_shake
from image.models.wide_resnet import create_wide_resnet
from tests.image.network_helpers import facts_of_size, random_images
from tests.image.small_data import run_preprocess, tiny_config, write_cifar10
from utils import training
from utils.distribution import create_strategy
from utils.settings import ObjectiveConfig
from utils.uda_model import UDAModel

pytestmark = pytest.mark.slow
PRECISIONS = ("float16", "bfloat16")
FACTS = facts_of_size(8)
# Each network of the table, as small as it can be.
NETWORKS = {
    "wrn": functools.partial(create_wide_resnet, FACTS, depth=10, size=4),
    "shake_shake": functools.partial(create_shake_shake, FACTS, width=4, depth=8),
    "pyramid_net": functools.partial(create_pyramidnet, FACTS, depth=11, alpha=6),
    "resnet50": functools.partial(create_resnet, facts_of_size(32), blocks_per_stage=(1,), zero_scale=False),
}
OBJECTIVE = ObjectiveConfig(train_steps=10, uda_confidence_thresh=0.1, uda_softmax_temp=0.8, ema_decay=0.9)


def create_model(create, precision):
    tf.keras.utils.set_random_seed(0)
    with training.precision(precision):
        model = UDAModel(create, 3, OBJECTIVE, weight_decay_rate=1e-3)
    optimizer = tf.keras.optimizers.SGD(0.05, momentum=0.9, nesterov=True, jit_compile=False)
    model.compile(optimizer=train.scale_if_needed(optimizer, precision), run_eagerly=True)
    return model


def create_batch(image_size):
    views = {name: random_images(4, image_size, seed) for seed, name in enumerate(("sup", "original", "augmented"))}
    return {name: tf.constant(view) for name, view in views.items()} | {"label": tf.constant([0, 1, 2, 0])}


def test_all_networks_are_tried():
    assert NETWORKS.keys() == MODELS.keys()


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("name", NETWORKS)
def test_layers_compute_in_16_bits_and_all_that_is_kept_has_32(name, precision):
    model = create_model(NETWORKS[name], precision)
    network = model.network
    convolutions = [layer for layer in network.layers if isinstance(layer, tf.keras.layers.Conv2D)]
    assert {layer.compute_dtype for layer in convolutions} == {precision}
    floating = [weight for weight in [*network.weights, *model.average_network.weights] if weight.dtype.is_floating]
    assert {weight.dtype for weight in floating} == {tf.float32}
    before = [weight.numpy() for weight in network.trainable_weights]
    batch = create_batch(network.input_shape[1])
    model.train_step(batch)
    logits = network(batch["sup"], training=True)
    assert logits.dtype == tf.float32 and np.isfinite(logits).all()
    changed = [not np.array_equal(old, new) for old, new in zip(before, network.trainable_weights)]
    assert all(changed)
    assert all(np.isfinite(weight).all() for weight in network.get_weights())


@pytest.mark.parametrize("synchronized", [False, True])
def test_batch_norm_statistics_are_those_of_32_bits(synchronized):
    """Of values near 1000, whose squares float16 cannot hold."""
    inputs = 1000 + tf.random.stateless_normal([64, 4, 4, 2], [0, 1])
    with training.precision("float16"):
        layer = tf.keras.layers.BatchNormalization(momentum=0.0, synchronized=synchronized)
        layer(inputs, training=True)
    np.testing.assert_allclose(layer.moving_mean, tf.reduce_mean(inputs, [0, 1, 2]), rtol=1e-3)
    assert layer.moving_variance.dtype == tf.float32 and np.isfinite(layer.moving_variance).all()


@pytest.mark.parametrize("precision, tolerance", [("float16", 0.01), ("bfloat16", 0.05)])
def test_a_short_run_follows_that_of_32_bits(precision, tolerance):
    """Six steps: no loss is further from that of 32 bits than `tolerance` times it, nor any weight than that much of
    the largest distance that a weight of its kind has moved."""
    losses, weights, start = {}, {}, None
    for name in ("", precision):
        model, batch = create_model(NETWORKS["wrn"], name), create_batch(8)
        start = [weight.numpy() for weight in model.network.trainable_weights]
        losses[name] = []
        for _ in range(6):
            model.reset_metrics()
            losses[name].append(float(model.train_step(batch)["loss"]))
        weights[name] = [weight.numpy() for weight in model.network.trainable_weights]
    assert losses[""][-1] < losses[""][0] - 0.05  # something was learnt
    assert losses[precision] != losses[""]
    np.testing.assert_allclose(losses[precision], losses[""], rtol=tolerance)
    distances = np.sqrt(sum(np.sum((a - b) ** 2) for a, b in zip(weights[precision], weights[""])))
    moved = np.sqrt(sum(np.sum((a - b) ** 2) for a, b in zip(start, weights[""])))
    assert distances < 10 * tolerance * moved


def test_a_gradient_that_is_too_small_for_float16_is_not_lost():
    """Of 2⁻²⁶, below what float16 can hold, as it is when a loss is small."""

    def create():
        inputs = tf.keras.Input([1])
        hidden = tf.keras.layers.Dense(1, use_bias=False, kernel_initializer="ones")(inputs)
        return tf.keras.Model(inputs, tf.keras.layers.Dense(2, dtype="float32", kernel_initializer="ones")(hidden))

    with training.precision("float16"):
        model = UDAModel(create, 2, ObjectiveConfig(train_steps=10, unsup_ratio=0, ema_decay=0.0))
    model.compile(optimizer=train.scale_if_needed(tf.keras.optimizers.SGD(1.0), "float16"), run_eagerly=True)
    model.network.layers[-1].set_weights([np.array([[2.0**-25, -(2.0**-25)]]), np.zeros(2)])
    gradients, _ = model.gradients_of_joint_pass({"sup": tf.ones([1, 1]), "label": tf.constant([0])})
    np.testing.assert_allclose(gradients[0], [[-(2.0**-25)]], rtol=0.01)


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    write_cifar10(folder)
    run_preprocess(folder, folder / "records")
    return folder / "records"


def test_a_stopped_run_in_16_bits_goes_on_exactly_and_exports_32(data_dir, tmp_path):
    settings = {"mixed_precision": "float16", "save_steps": 2, "log_steps": 2, "iterations": 1, "unsup_ratio": 1}
    config = tiny_config(data_dir, train_steps=4, **settings)
    whole, stopped = tmp_path / "whole", tmp_path / "stopped"
    train.train_and_evaluate(config, str(whole), create_strategy("auto"), do_eval=False)
    copy_until(whole, stopped, step=2)
    train.train_and_evaluate(config, str(stopped), create_strategy("auto"), do_eval=False)
    readers = [tf.train.load_checkpoint(str(folder / "checkpoints/ckpt-4")) for folder in (whole, stopped)]
    names = set(readers[0].get_variable_to_shape_map()) - {"_CHECKPOINTABLE_OBJECT_GRAPH", "save_counter/.ATTRIBUTES"}
    scales = [name for name in names if "loss_scale" in name]
    assert scales, "the state of the loss scaling is part of a checkpoint"
    for name in names:
        if "save_counter" not in name:
            np.testing.assert_array_equal(readers[0].get_tensor(name), readers[1].get_tensor(name), name)
    exported = export.load(str(whole / "export"))
    assert exported.predict_proba(random_images(2, 32)[..., :3]).dtype == np.float32
    with pytest.raises(ValueError, match="mixed_precision: was 'float16', now ''"):
        other = tiny_config(data_dir, train_steps=4, **settings | {"mixed_precision": ""})
        train.train_and_evaluate(other, str(whole), create_strategy("auto"))


def copy_until(folder, target, step):
    """The files of a run as they were after this checkpoint."""
    (target / "checkpoints").mkdir(parents=True)
    (target / "config.json").write_bytes((folder / "config.json").read_bytes())
    for path in (folder / "checkpoints").glob(f"ckpt-{step}.*"):
        (target / "checkpoints" / path.name).write_bytes(path.read_bytes())
    state = f'model_checkpoint_path: "ckpt-{step}"\nall_model_checkpoint_paths: "ckpt-{step}"\n'
    (target / "checkpoints/checkpoint").write_text(state + "all_model_checkpoint_timestamps: 1.0\n")
