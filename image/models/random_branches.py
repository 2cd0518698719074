"""Residual branches that are scaled by random factors: one for the forward pass, another for the backward pass."""

import tensorflow as tf
from tensorflow.keras import layers

from utils import random_state


def scale(inputs, forward_factor, backward_factor):
    """inputs · forward_factor, whose gradient is taken as if it had been inputs · backward_factor."""

    @tf.custom_gradient
    def scale_inputs(inputs):
        return inputs * forward_factor, lambda upstream: upstream * backward_factor

    return scale_inputs(inputs)


class RandomBranches(layers.Layer):
    """Draws numbers that depend on nothing but `seed`, the replica and how often the layer was called in training."""

    def __init__(self, seed, **kwargs):
        super().__init__(**kwargs)
        self.seed = seed

    def build(self, input_shape):
        self.counter = random_state.create_counter(self, "counter")
        super().build(input_shape)

    def draw_uniform(self, num_draws, images):
        """New numbers from [0, 1) for each image: [num_draws, num_images, 1, 1, 1]."""
        seed = random_state.draw_seed(self.seed, self.counter)
        return tf.random.stateless_uniform([num_draws, tf.shape(images)[0], 1, 1, 1], seed)

    def get_config(self):
        return super().get_config() | {"seed": self.seed}


@tf.keras.utils.register_keras_serializable("uda")
class ShakeShake(RandomBranches):
    """Random convex combination of two branches (Gastaldi, 2017); their mean in evaluation."""

    def call(self, branches, training=False):
        if not training:
            return 0.5 * (branches[0] + branches[1])
        forward, backward = self.draw_weights(branches[0])
        return scale(branches[0], forward[0], backward[0]) + scale(branches[1], forward[1], backward[1])

    def draw_weights(self, images):
        """Two tensors [2 branches, num_images, 1, 1, 1] that sum to 1 over the branches."""
        # In (0, 1], so that no sum is 0.
        uniform = 1.0 - self.draw_uniform(4, images)
        pairs = uniform[:2], uniform[2:]
        return [tf.cast(pair / tf.reduce_sum(pair, axis=0), images.dtype) for pair in pairs]


@tf.keras.utils.register_keras_serializable("uda")
class ShakeDrop(RandomBranches):
    """Keeps a branch with probability `survival_prob`, else shakes it (Yamada et al., 2018).

    With b ~ Bernoulli(survival_prob), α ~ U[-1, 1] and β ~ U[0, 1] for each image, the forward factor is b + α - bα and
    the backward factor b + β - bβ.
    """

    def __init__(self, survival_prob, seed, **kwargs):
        super().__init__(seed, **kwargs)
        self.survival_prob = survival_prob

    def call(self, inputs, training=False):
        if not training:
            # b and α are independent: E[b + α - bα] = E[b] + E[α] (1 - E[b]), and E[α] = 0 leaves E[b].
            return inputs * self.survival_prob
        return scale(inputs, *self.draw_factors(inputs))

    def draw_factors(self, images):
        """The forward and the backward factor of each image, [num_images, 1, 1, 1], which share b."""
        uniform_b, uniform_alpha, beta = tf.unstack(self.draw_uniform(3, images))
        kept, alpha = uniform_b < self.survival_prob, 2.0 * uniform_alpha - 1.0
        return [tf.cast(tf.where(kept, 1.0, shaken), images.dtype) for shaken in (alpha, beta)]

    def get_config(self):
        return super().get_config() | {"survival_prob": self.survival_prob}


def layer_seed(seed, block):
    """The seed of a block's layer in a run with `seed`; no network has so many blocks that two runs share one."""
    return 10_000 * seed + block
