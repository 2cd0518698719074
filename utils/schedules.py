"""Learning-rate schedules as functions of the number of updates made so far."""

import math

import tensorflow as tf


class WarmupCosine(tf.keras.optimizers.schedules.LearningRateSchedule):
    """Linear warm-up, then 7/8 of a quarter cosine: the rate ends at cos(7π/16) = 0.195 of its peak."""

    def __init__(self, learning_rate, train_steps, warmup_steps=0):
        self.learning_rate, self.train_steps, self.warmup_steps = learning_rate, train_steps, warmup_steps

    def __call__(self, step):
        step = tf.cast(step, tf.float32)
        progress = (step - self.warmup_steps) / max(self.train_steps - self.warmup_steps, 1)
        decayed = self.learning_rate * tf.cos(7 / 8 * math.pi / 2 * tf.clip_by_value(progress, 0.0, 1.0))
        warming_up = self.learning_rate * step / max(self.warmup_steps, 1)
        return tf.where(step < self.warmup_steps, warming_up, decayed)

    def get_config(self):
        return {
            "learning_rate": self.learning_rate,
            "train_steps": self.train_steps,
            "warmup_steps": self.warmup_steps,
        }
