"""Learning-rate schedules as functions of the number of updates made so far."""

import math

import tensorflow as tf


class _WarmupSchedule(tf.keras.optimizers.schedules.LearningRateSchedule):
    """A linear rise from 0 in the first `warmup_steps`, then what `decayed` of a subclass gives."""

    def __init__(self, learning_rate, train_steps, warmup_steps=0):
        self.learning_rate, self.train_steps, self.warmup_steps = learning_rate, train_steps, warmup_steps

    def __call__(self, step):
        step = tf.cast(step, tf.float32)
        warming_up = self.learning_rate * step / max(self.warmup_steps, 1)
        return tf.where(step < self.warmup_steps, warming_up, self.decayed(step))

    def progress(self, step):
        """From 0 at the end of the warm-up to 1 at the last step."""
        return tf.clip_by_value((step - self.warmup_steps) / max(self.train_steps - self.warmup_steps, 1), 0.0, 1.0)

    def get_config(self):
        return {
            "learning_rate": self.learning_rate,
            "train_steps": self.train_steps,
            "warmup_steps": self.warmup_steps,
        }


class WarmupCosine(_WarmupSchedule):
    """Linear warm-up, then 7/8 of a quarter cosine: the rate ends at cos(7π/16) = 0.195 of its peak."""

    def decayed(self, step):
        return self.learning_rate * tf.cos(7 / 8 * math.pi / 2 * self.progress(step))


class WarmupWholeCosine(_WarmupSchedule):
    """Linear warm-up, then one annealing cycle of the cosine, to 0: the paper's for Shake-Shake and PyramidNet."""

    def decayed(self, step):
        return self.learning_rate * (1.0 + tf.cos(math.pi * self.progress(step))) / 2.0


class WarmupLinear(_WarmupSchedule):
    """BERT's schedule: linear to 0 at the end, computed from step 0, so that it does not start at the peak."""

    def decayed(self, step):
        return self.learning_rate * tf.maximum(1.0 - step / self.train_steps, 0.0)


class WarmupSteps(_WarmupSchedule):
    """The ImageNet schedule of ResNet-50: a tenth of the rate after 1/3, 2/3 and 8/9 of all steps, warm-up included."""

    def decayed(self, step):
        # In ninths, so that a boundary that is a whole number of steps is met exactly.
        num_decays = sum(tf.cast(9.0 * step >= ninths * self.train_steps, tf.float32) for ninths in (3, 6, 8))
        return self.learning_rate * tf.pow(0.1, num_decays)


LR_SCHEDULES = {"cosine": WarmupCosine, "whole_cosine": WarmupWholeCosine, "steps": WarmupSteps}


class WarmupInverseSqrt(_WarmupSchedule):
    """The Transformer's schedule: after the warm-up the rate falls as one over the square root of the step."""

    def decayed(self, step):
        return self.learning_rate * tf.sqrt(self.warmup_steps / tf.maximum(step, 1.0))
