"""utils/evaluation.py: one pass over the test set gives what evaluation.npz keeps and what result.json tells."""

import re

import numpy as np
import pytest
import tensorflow as tf

from utils import distribution, evaluation
from utils.record_stream import fill_up
from utils.settings import ObjectiveConfig
from utils.training import EvaluationSet
from utils.uda_model import UDAModel

NUM_EXAMPLES, NUM_CLASSES, BATCH_SIZE = 19, 7, 4
RNG = np.random.default_rng(0)
FEATURES = RNG.normal(size=[NUM_EXAMPLES, 5]).astype(np.float32)
LABELS = RNG.integers(0, NUM_CLASSES, NUM_EXAMPLES)


def create_model():
    tf.keras.utils.set_random_seed(0)

    def create_network():
        return tf.keras.Sequential([tf.keras.Input([5]), tf.keras.layers.Dense(NUM_CLASSES)])

    model = UDAModel(create_network, NUM_CLASSES, ObjectiveConfig(ema_decay=0.5))
    model.average_network.set_weights([2 * weight for weight in model.network.get_weights()])
    return model


def create_part(order=None):
    """The examples in batches of which the last is filled up; with an order, they come in it and tell their rows."""
    columns = {"sup": FEATURES, "label": LABELS, "weight": np.ones(NUM_EXAMPLES, np.float32)}
    if order is not None:
        columns = {name: values[order] for name, values in columns.items()} | {"row": order}

    def create_batches(_share=None):
        batches = tf.data.Dataset.from_tensor_slices(columns).batch(BATCH_SIZE)
        return batches.map(lambda batch: fill_up(batch, BATCH_SIZE))

    return EvaluationSet(create_batches, NUM_EXAMPLES)


def predict(strategy_name, part):
    strategy = distribution.create_strategy(strategy_name)
    with strategy.scope():
        model = create_model()
        model.compile(steps_per_execution=2)
    names = [f"class {number}" for number in range(NUM_CLASSES)]
    metrics, kept = evaluation.predict(model, strategy, part, names, BATCH_SIZE)
    return model, strategy, metrics, kept


@pytest.fixture(scope="module")
def predicted():
    return predict("one_device", create_part())


def test_the_averaged_weights_predict_every_example_once_and_in_order(predicted):
    model, _, metrics, kept = predicted
    kernel, bias = model.average_network.get_weights()
    logits = FEATURES @ kernel + bias
    expected = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(kept.probabilities, expected, rtol=1e-5)
    np.testing.assert_array_equal(kept.labels, LABELS)
    assert kept.class_names.tolist()[:2] == ["class 0", "class 1"]


def test_the_metrics_are_those_of_an_evaluation(predicted):
    model, strategy, metrics, _ = predicted
    batches = distribution.distribute(strategy, create_part().create_batches)
    found = model.evaluate(batches, steps=5, verbose=0, return_dict=True)
    assert metrics == {name: pytest.approx(value, rel=1e-6) for name, value in found.items()}
    assert set(metrics) == {"accuracy", "loss", "top5_accuracy"}


def test_two_replicas_and_any_order_of_the_records_give_the_same(predicted):
    order = np.random.default_rng(1).permutation(NUM_EXAMPLES)
    *_, metrics, kept = predict("mirrored", create_part(order))
    np.testing.assert_allclose(kept.probabilities, predicted[3].probabilities, rtol=1e-5)
    np.testing.assert_array_equal(kept.labels, LABELS)
    assert metrics == pytest.approx(predicted[2])


def test_unlabelled_examples_are_seen_in_both_views(predicted, monkeypatch):
    monkeypatch.setattr(evaluation, "NUM_UNLABELED", 6)
    views = {"original": FEATURES[:8], "augmented": 2 * FEATURES[:8], "sup": FEATURES[:8], "label": LABELS[:8]}
    found = evaluation.look_at_unlabeled(
        *predicted[:2], lambda _: tf.data.Dataset.from_tensor_slices(views).batch(4).repeat(), 4
    )
    np.testing.assert_allclose(found["original_confidence"], predicted[3].confidence[:8], rtol=1e-5)
    np.testing.assert_array_equal(found["pseudo_labels"], predicted[3].predictions[:8])
    assert (found["augmented_confidence"] != found["original_confidence"]).all()


def test_what_is_written_is_read_again(predicted, tmp_path):
    assert evaluation.read(str(tmp_path)) is None
    kept = predicted[3]._replace(class_names=np.array([*"abcdef", "größer <b>"]))
    evaluation.write(str(tmp_path), kept)
    for name, array in evaluation.read(str(tmp_path))._asdict().items():
        np.testing.assert_array_equal(array, getattr(kept, name))
        assert array.dtype == getattr(kept, name).dtype


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"labels": LABELS[1:]}, "probabilities has shape=(19, 7) and dtype=float32, expected shape=(18, 7)"),
        ({"labels": LABELS + 5}, "labels has values from 5 to"),
        ({"probabilities": np.full([19, 7], np.nan, np.float32)}, "probabilities has values from nan to nan"),
        (
            {"probabilities": np.full([19, 7], 2, np.float32)},
            "probabilities has values from 2.0 to 2.0, expected 0 to 1",
        ),
        ({"class_names": np.arange(7)}, "class_names has shape=(7,) and dtype=int64"),
        ({"pseudo_labels": np.array([1])}, "original_confidence has shape=(0,)"),
        ({"more": LABELS}, "unexpected keyword argument 'more'"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else "",
)
def test_a_file_that_cannot_be_is_refused(predicted, tmp_path, changes, message):
    np.savez(tmp_path / "evaluation.npz", **predicted[3]._asdict() | changes)
    with pytest.raises(ValueError, match=re.escape(message)) as error:
        evaluation.read(str(tmp_path))
    assert str(error.value).endswith("evaluate that run again, with --do_eval.")
