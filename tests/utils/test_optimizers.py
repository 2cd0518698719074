"""BertAdamW: against a plain NumPy account of BERT's optimizer, on several replicas, from checkpoints."""

import numpy as np
import pytest
import tensorflow as tf

from tests.text.small_bert import CONFIG
from text.models.bert import create_bert
from utils.distribution import create_strategy
from utils.optimizers import BertAdamW
from utils.schedules import WarmupLinear

SHAPES = {"dense/kernel": [3, 2], "dense/bias": [2], "layer_norm/gamma": [2], "embeddings": [5, 2]}
DECAYED = ("dense/kernel", "embeddings")
SCHEDULE = WarmupLinear(0.1, train_steps=10, warmup_steps=2)


def create_arrays(seed, scale=1.0):
    rng = np.random.default_rng(seed)
    return {name: scale * rng.normal(size=shape) for name, shape in SHAPES.items()}


def create_variables():
    return {name: tf.Variable(array, dtype=tf.float32, name=name) for name, array in create_arrays(seed=0).items()}


def create_gradients(step):
    """Of every other step so small that they are not clipped."""
    return create_arrays(seed=100 + step, scale=(1.0, 0.05)[step % 2])


def expected_weights(num_steps, decay=0.01, clip_norm=1.0, schedule=SCHEDULE, gradients_of_step=create_gradients):
    """BERT's optimizer in float64."""
    weights = create_arrays(seed=0)
    means, squares = ({name: np.zeros(shape) for name, shape in SHAPES.items()} for _ in range(2))
    for step in range(num_steps):
        gradients, rate = gradients_of_step(step), float(schedule(step))
        norm = np.sqrt(sum((gradient**2).sum() for gradient in gradients.values()))
        for name, gradient in gradients.items():
            gradient = gradient * min(1.0, clip_norm / norm) if clip_norm else gradient
            means[name] = 0.9 * means[name] + 0.1 * gradient
            squares[name] = 0.999 * squares[name] + 0.001 * gradient**2
            update = means[name] / (np.sqrt(squares[name]) + 1e-6)
            update = update + decay * weights[name] if name in DECAYED else update
            weights[name] = weights[name] - rate * update
    return weights


def make_steps(optimizer, variables, steps):
    for step in steps:
        gradients = create_gradients(step)
        optimizer.apply_gradients(
            [(tf.constant(gradients[name], tf.float32), variable) for name, variable in variables.items()]
        )


def assert_weights(variables, expected):
    for name, variable in variables.items():
        np.testing.assert_allclose(variable, expected[name], rtol=1e-5, atol=1e-6, err_msg=name)


@pytest.mark.parametrize("decay", [0.0, 0.3])
@pytest.mark.parametrize("clip_norm", [0.0, 1.0])
def test_steps_are_those_of_berts_optimizer(decay, clip_norm):
    optimizer, variables = BertAdamW(SCHEDULE, decay, clip_norm), create_variables()
    make_steps(optimizer, variables, range(6))
    assert_weights(variables, expected_weights(6, decay, clip_norm))


def test_the_defaults_are_berts():
    variables = create_variables()
    make_steps(BertAdamW(SCHEDULE), variables, range(3))
    assert_weights(variables, expected_weights(3, decay=0.01, clip_norm=1.0))


def test_the_first_update_is_not_corrected_for_bias():
    variable = tf.Variable([0.0, 0.0], name="kernel")
    BertAdamW(0.1, weight_decay_rate=0, clip_norm=0).apply_gradients([(tf.constant([3.0, -0.5]), variable)])
    # 0.1 / √0.001 times as large as the corrected one, which is the learning rate.
    np.testing.assert_allclose(variable, [-0.1 * np.sqrt(10), 0.1 * np.sqrt(10)], rtol=1e-4)


def test_a_sparse_gradient_gives_the_update_of_the_dense_one():
    """Rows that occur several times count as their sum, in the norm too; the others move on by their means."""
    sparse, dense = create_variables(), create_variables()
    optimizers = BertAdamW(SCHEDULE), BertAdamW(SCHEDULE)
    for step in range(4):
        rows = tf.constant([[0, 1, 1], [4, 4, 4], [2, 0, 2], [3, 3, 1]][step])
        for variables, optimizer, as_dense in zip((sparse, dense), optimizers, (False, True)):
            with tf.GradientTape() as tape:
                loss = tf.reduce_sum((5 * tf.gather(variables["embeddings"], rows)) ** 2)
            gradient = tape.gradient(loss, variables["embeddings"])
            assert isinstance(gradient, tf.IndexedSlices)
            gradient = tf.convert_to_tensor(gradient) if as_dense else gradient
            optimizer.apply_gradients([(gradient, variables["embeddings"])])
    np.testing.assert_allclose(sparse["embeddings"], dense["embeddings"], rtol=1e-6)


def test_the_sum_of_the_replicas_gradients_is_clipped():
    """Each replica's gradient is shorter than the limit; their sum is longer."""
    strategy = create_strategy("mirrored")
    with strategy.scope():
        variables, optimizer = create_variables(), BertAdamW(SCHEDULE)
        optimizer.build(list(variables.values()))
    shares = (0.3, 0.7)

    def gradients_of_step(step):
        gradients = create_arrays(seed=step)
        norm = np.sqrt(sum((gradient**2).sum() for gradient in gradients.values()))
        return {name: 1.3 / norm * gradient for name, gradient in gradients.items()}

    @tf.function
    def make_step(gradients):
        def of_replica(share):
            pairs = [(tf.cast(share * gradients[name], tf.float32), variables[name]) for name in variables]
            optimizer.apply_gradients(pairs)

        values = strategy.experimental_distribute_values_from_function(
            lambda context: tf.constant(shares[context.replica_id_in_sync_group], tf.float64)
        )
        strategy.run(of_replica, args=(values,))

    for step in range(3):
        make_step({name: tf.constant(array) for name, array in gradients_of_step(step).items()})
    assert_weights(variables, expected_weights(3, gradients_of_step=gradients_of_step))


def norm_and_bias_names(network):
    layers = list(network.submodules)
    norms = [layer for layer in layers if isinstance(layer, tf.keras.layers.LayerNormalization)]
    names = {weight.name for layer in norms for weight in layer.weights}
    return names | {layer.bias.name for layer in layers if getattr(layer, "bias", None) is not None}


def test_all_weights_of_the_text_network_decay_but_layer_norms_and_biases():
    network = create_bert(CONFIG, num_classes=2, max_seq_length=16)
    variables = network.trainable_variables
    for variable in variables:
        variable.assign(tf.ones_like(variable))
    optimizer = BertAdamW(0.1, weight_decay_rate=0.5)
    optimizer.apply_gradients([(tf.zeros_like(variable), variable) for variable in variables])
    decayed = {
        variable.name for variable in variables if np.ptp(variable.numpy()) == 0 and variable.numpy().flat[0] < 1
    }
    same = {variable.name for variable in variables if np.all(variable.numpy() == 1)}
    exceptions = norm_and_bias_names(network)
    assert same == exceptions and decayed == {variable.name for variable in variables} - exceptions
    # Embeddings and their norm; 6 kernels, 6 biases and 2 norms a layer; pooler and head.
    assert (len(decayed), len(same)) == (3 + 2 * 6 + 2, 2 + 2 * (6 + 4) + 2)


def test_a_continued_optimizer_makes_the_same_steps(tmp_path):
    optimizer, variables = BertAdamW(SCHEDULE), create_variables()
    make_steps(optimizer, variables, range(3))
    path = tf.train.Checkpoint(optimizer=optimizer, variables=list(variables.values())).write(str(tmp_path / "state"))
    other, others = BertAdamW(SCHEDULE), create_variables()
    other.build(list(others.values()))
    checkpoint = tf.train.Checkpoint(optimizer=other, variables=list(others.values()))
    checkpoint.read(path).assert_consumed().assert_existing_objects_matched()
    for values, steps in ((variables, optimizer), (others, other)):
        make_steps(steps, values, range(3, 5))
    for name in variables:
        np.testing.assert_array_equal(variables[name], others[name], err_msg=name)
    assert_weights(others, expected_weights(5))


def test_it_cannot_be_rebuilt_from_a_keras_configuration():
    with pytest.raises(NotImplementedError, match="BertAdamW is rebuilt from the run's config.json"):
        BertAdamW(0.1).get_config()
