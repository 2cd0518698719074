"""AdamW as BERT was trained with it: decay apart from the gradient, clipping by the global norm, no bias correction."""

import tensorflow as tf

from utils.schedules import WarmupLinear


def create_bert_adamw(config, no_decay=("layer_norm", "bias"), **options):
    """The optimizer of a text run, with its schedule; with loss scaling where it computes in float16.

    Args:
      options: further arguments of BertAdamW.
    """
    schedule = WarmupLinear(config.learning_rate, config.train_steps, config.warmup_steps)
    optimizer = BertAdamW(schedule, config.weight_decay_rate, config.clip_norm, no_decay, **options)
    return scale_if_needed(optimizer, config.mixed_precision)


def scale_if_needed(optimizer, mixed_precision):
    """Adds loss scaling for float16, in which small gradients vanish unless the loss is scaled up."""
    return tf.keras.mixed_precision.LossScaleOptimizer(optimizer) if mixed_precision == "float16" else optimizer


class BertAdamW(tf.keras.optimizers.Optimizer):
    """θ ← θ − rate · (m / (√v + ε) + decay · θ), where m and v are the plain moving averages of Adam.

    Without Adam's bias correction the first updates are larger, by 0.1 / √0.001 ≈ 3 at the very first; the warm-up of
    BERT's schedule takes care of them. Runs of few steps do better with the correction (Mosbach et al., 2021).
    """

    def __init__(
        self,
        learning_rate,
        weight_decay_rate=0.01,
        clip_norm=1.0,
        no_decay=("layer_norm", "bias"),
        bias_correction=False,
        rate_of=None,
    ):
        """Args:
        weight_decay_rate: `decay` above; 0 for none.
        clip_norm: the largest global norm of the gradient, over all replicas; 0 for no clipping.
        no_decay: parts of the names of variables that do not decay.
        bias_correction: divide m and v by 1 − β₁ᵗ and 1 − β₂ᵗ, as Adam does.
        rate_of: a function from the name of a variable to what its rate is multiplied by (its decay is not); None: 1.
        """
        super().__init__(
            "bert_adamw",
            weight_decay=weight_decay_rate or None,
            global_clipnorm=clip_norm or None,
            jit_compile=False,
        )
        self._learning_rate = self._build_learning_rate(learning_rate)
        self.exclude_from_weight_decay(var_names=no_decay)
        self.beta_1, self.beta_2, self.epsilon = 0.9, 0.999, 1e-6
        self.bias_correction, self.rate_of = bias_correction, rate_of

    def build(self, var_list):
        super().build(var_list)
        if not getattr(self, "means", None):
            self.means = [self.add_variable_from_reference(variable, "m") for variable in var_list]
            self.squares = [self.add_variable_from_reference(variable, "v") for variable in var_list]

    def update_step(self, gradient, variable):
        index = self._index_dict[self._var_key(variable)]
        mean, square = self.means[index], self.squares[index]
        # Words that do not occur have a gradient of 0: their means go on, and they decay too.
        mean.assign_add((1.0 - self.beta_1) * (gradient - mean))
        square.assign_add((1.0 - self.beta_2) * (tf.square(gradient) - square))
        rate = tf.cast(self.learning_rate, variable.dtype)
        if self.rate_of:
            rate = rate * self.rate_of(variable.name)
        if self.bias_correction:
            step = tf.cast(self.iterations + 1, variable.dtype)
            mean, square = mean / (1.0 - self.beta_1**step), square / (1.0 - self.beta_2**step)
        variable.assign_sub(rate * mean / (tf.sqrt(square) + self.epsilon))

    def _clip_gradients(self, gradients):
        """Dense, because the norm of a sparse gradient takes a row that comes twice for two rows."""
        return super()._clip_gradients([tf.convert_to_tensor(gradient) for gradient in gradients])

    def get_config(self):
        raise NotImplementedError("BertAdamW is rebuilt from the run's config.json.")
