"""The objective against plain NumPy, and the properties that other implementations get wrong."""

import numpy as np
import pytest
import tensorflow as tf

from utils import objective

LOGITS = np.array([[2.0, 0.5, -1.0], [0.1, 0.0, 0.2], [-3.0, 4.0, 1.0], [0.0, 0.0, 5.0]], np.float32)


def softmax(logits):
    exponentials = np.exp(logits - logits.max(-1, keepdims=True))
    return exponentials / exponentials.sum(-1, keepdims=True)


@pytest.mark.parametrize(
    "schedule, at_start, half_way, at_end",
    [("log", 0.0, 0.917915, 0.993262), ("linear", 0.0, 0.5, 1.0), ("exp", 0.006738, 0.082085, 1.0)],
)
def test_tsa_threshold_follows_its_schedule(schedule, at_start, half_way, at_end):
    for step, alpha in [(0, at_start), (500, half_way), (1000, at_end)]:
        threshold = objective.tsa_threshold(schedule, step, 1000, num_classes=5)
        np.testing.assert_allclose(threshold, alpha * (1 - 1 / 5) + 1 / 5, rtol=1e-5)


def test_without_tsa_every_labelled_example_is_kept():
    certain = np.array([[1000.0, 0.0]], np.float32)
    _, kept_mask = objective.supervised_loss(certain, [0], objective.tsa_threshold("", 0, 10, 2))
    assert kept_mask.numpy().tolist() == [1.0]


def test_supervised_loss_is_the_cross_entropy():
    labels = [0, 2, 1, 1]
    losses, _ = objective.supervised_loss(LOGITS, labels, 1.0)
    np.testing.assert_allclose(losses, -np.log(softmax(LOGITS)[range(4), labels]), rtol=1e-5)


def test_tsa_looks_at_the_true_class_and_not_at_the_largest_probability():
    # Both predictions are sure of class 1; only for the second is that the true class.
    logits = np.array([[0.0, 5.0], [0.0, 5.0]], np.float32)
    losses, kept_mask = objective.supervised_loss(logits, [0, 1], 0.9)
    assert kept_mask.numpy().tolist() == [1.0, 0.0]
    assert losses[0] > 5.0 and losses[1] == 0.0


def test_tsa_drops_only_strictly_above_the_threshold():
    uniform = np.zeros([1, 4], np.float32)
    assert objective.supervised_loss(uniform, [3], 0.25)[1].numpy().tolist() == [1.0]
    assert objective.supervised_loss(uniform, [3], np.nextafter(np.float32(0.25), np.float32(0)))[1].numpy() == 0.0


def test_identical_views_cost_nothing():
    target = objective.target_log_probs(LOGITS, temperature=-1)
    np.testing.assert_allclose(objective.consistency_loss(target, LOGITS), np.zeros(4), atol=1e-6)


def test_consistency_is_the_kl_divergence_from_the_sharpened_target():
    augmented = LOGITS[::-1].copy()
    target = objective.target_log_probs(LOGITS, temperature=0.4)
    p, q = softmax(LOGITS / 0.4), softmax(augmented)
    np.testing.assert_allclose(objective.consistency_loss(target, augmented), (p * np.log(p / q)).sum(-1), rtol=1e-4)


def test_kl_and_the_papers_cross_entropy_differ_by_the_entropy_of_the_target():
    augmented = LOGITS[::-1].copy()
    target = objective.target_log_probs(LOGITS, temperature=0.4)
    cross_entropy = -(softmax(LOGITS / 0.4) * np.log(softmax(augmented))).sum(-1)
    divergence = objective.consistency_loss(target, augmented)
    np.testing.assert_allclose(divergence + objective.entropy(target), cross_entropy, rtol=1e-4)


def test_sharpening_touches_the_target_only():
    target = objective.target_log_probs(LOGITS, temperature=0.5)
    np.testing.assert_allclose(np.exp(target), softmax(LOGITS * 2), rtol=1e-5)
    np.testing.assert_allclose(np.exp(objective.target_log_probs(LOGITS, -1)), softmax(LOGITS), rtol=1e-5)


def test_confidence_mask_uses_the_unsharpened_prediction():
    logits = np.log(np.array([[0.7, 0.2, 0.1], [0.9, 0.05, 0.05]], np.float32))
    assert softmax(logits / 0.4).max(-1)[0] > 0.8  # sharpened it would pass
    assert objective.confidence_mask(logits, 0.8).numpy().tolist() == [0.0, 1.0]


def test_confidence_mask_is_strict_and_can_be_switched_off():
    uniform = np.zeros([1, 2], np.float32)
    assert objective.confidence_mask(uniform, 0.5).numpy().tolist() == [0.0]
    assert objective.confidence_mask(uniform, -1).numpy().tolist() == [1.0]


def test_no_gradient_reaches_the_target():
    original, augmented = tf.Variable(LOGITS), tf.Variable(LOGITS[::-1].copy())
    with tf.GradientTape() as tape:
        target = objective.target_log_probs(original, 0.4)
        loss = tf.reduce_sum(objective.confidence_mask(original, 0.5) * objective.consistency_loss(target, augmented))
    gradients = tape.gradient(loss, [original, augmented])
    assert gradients[0] is None
    assert np.abs(gradients[1]).max() > 0


def test_entropy_of_a_uniform_prediction_is_log_k():
    np.testing.assert_allclose(objective.entropy(tf.nn.log_softmax(tf.zeros([2, 7]))), np.log([7, 7]), rtol=1e-6)


def test_extreme_logits_give_finite_losses_and_gradients():
    logits = tf.Variable([[1e4, -1e4, 0.0]])
    with tf.GradientTape() as tape:
        target = objective.target_log_probs(-logits, 0.4)
        loss = objective.consistency_loss(target, logits) + objective.entropy(tf.nn.log_softmax(logits))
        loss += objective.supervised_loss(logits, [1], 1.0)[0]
    assert np.isfinite(loss.numpy()).all() and np.isfinite(tape.gradient(loss, logits).numpy()).all()


def test_half_precision_logits_are_computed_in_float32():
    losses, _ = objective.supervised_loss(tf.cast(LOGITS, tf.float16), [0, 1, 2, 0], 1.0)
    target = objective.target_log_probs(tf.cast(LOGITS, tf.float16), 0.4)
    assert losses.dtype == target.dtype == tf.float32
