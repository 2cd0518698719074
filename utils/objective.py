"""The UDA objective as pure functions of logits (paper, sections 2.2 to 2.4 and appendix A.1).

Every function works on one replica's examples and returns one value per example; `utils/uda_model.py` turns them into
means over the global batch. Logits are taken in float32 whatever the network computes in.
"""

import tensorflow as tf

# Training Signal Annealing: how fast the threshold rises, as a function of progress = step / train_steps in [0, 1].
TSA_SCHEDULES = {
    "log": lambda progress: 1.0 - tf.exp(-5.0 * progress),
    "linear": lambda progress: progress,
    "exp": lambda progress: tf.exp(5.0 * (progress - 1.0)),
}


def tsa_threshold(schedule, step, train_steps, num_classes):
    """The probability above which a labelled example is too easy to be trained on (appendix A.1).

    Args:
      schedule: "log", "linear" or "exp"; "" switches TSA off, which is a threshold that no probability exceeds.
      step: the number of updates made so far.
    """
    if not schedule:
        return tf.constant(1.0)
    progress = tf.cast(step, tf.float32) / tf.cast(train_steps, tf.float32)
    alpha = TSA_SCHEDULES[schedule](progress)
    return alpha * (1.0 - 1.0 / num_classes) + 1.0 / num_classes


def supervised_loss(logits, labels, threshold):
    """Cross-entropy of each labelled example, and which of them are kept.

    An example is dropped when the model gives its TRUE class a probability strictly above `threshold`. The mean is over
    the kept examples only.

    Returns:
      (cross_entropy, kept_mask), both float32 [batch]; cross_entropy is 0 for dropped examples.
    """
    log_probs = tf.nn.log_softmax(tf.cast(logits, tf.float32))
    true_log_prob = tf.gather(log_probs, labels, batch_dims=1)
    kept_mask = tf.cast(tf.exp(tf.stop_gradient(true_log_prob)) <= threshold, tf.float32)
    return -true_log_prob * kept_mask, kept_mask


def target_log_probs(original_logits, temperature):
    """Log-probabilities of the fixed target: sharpened by `temperature` (-1 for none), closed to gradients."""
    logits = tf.stop_gradient(tf.cast(original_logits, tf.float32))
    return tf.nn.log_softmax(logits / temperature if temperature > 0 else logits)


def confidence(logits):
    """The largest class probability of each example, without sharpening, closed to gradients."""
    return tf.reduce_max(tf.nn.softmax(tf.stop_gradient(tf.cast(logits, tf.float32))), axis=-1)


def confidence_mask(original_logits, threshold):
    """1 where the model is strictly more confident than `threshold` on the original view; -1 keeps every example."""
    return tf.cast(confidence(original_logits) > threshold, tf.float32)


def consistency_loss(target, augmented_logits):
    """KL(target || prediction on the augmented view) of each unlabelled example.

    The paper writes the cross-entropy, which is larger by the target's entropy: a constant for the gradient, since the
    target is fixed. The original release computes the KL divergence, which is 0 when the views agree, and so do we.
    """
    prediction = tf.nn.log_softmax(tf.cast(augmented_logits, tf.float32))
    return tf.reduce_sum(tf.exp(target) * (target - prediction), axis=-1)


def entropy(log_probs):
    """Entropy of each row of log-probabilities."""
    return -tf.reduce_sum(tf.exp(log_probs) * log_probs, axis=-1)
