"""utils/distribution.py on two virtual CPU devices: replica i gets the i-th part of each global batch."""

import numpy as np
import pytest
import tensorflow as tf

from utils import distribution

BATCHES = [
    {
        "sup": np.arange(12).reshape(4, 3) + 100 * step,
        "label": np.arange(4) + 10 * step,
        "image": np.full([8, 2, 2], step),
    }
    for step in range(3)
]


def create_dataset(_share):
    return tf.data.Dataset.from_tensor_slices({key: [batch[key] for batch in BATCHES] for key in BATCHES[0]})


def parts_of_replicas(strategy, batch):
    """dict from key to a list of arrays, one for each replica."""
    return {key: [part.numpy() for part in strategy.experimental_local_results(batch[key])] for key in batch}


def test_each_replica_gets_its_part_in_order():
    strategy = distribution.create_strategy("mirrored")
    assert strategy.num_replicas_in_sync == 2
    batches = [parts_of_replicas(strategy, batch) for batch in distribution.distribute(strategy, create_dataset)]
    assert len(batches) == len(BATCHES)
    for parts, batch in zip(batches, BATCHES):
        for key, value in batch.items():
            half = len(value) // 2
            assert len(parts[key]) == 2
            np.testing.assert_array_equal(parts[key][0], value[:half])
            np.testing.assert_array_equal(parts[key][1], value[half:])


def test_the_parts_keep_static_shapes():
    strategy = distribution.create_strategy("mirrored")
    spec = distribution.distribute(strategy, create_dataset).element_spec
    components = spec["sup"]._value_specs if hasattr(spec["sup"], "_value_specs") else [spec["sup"]]
    assert [component.shape.as_list() for component in components] == [[2, 3], [2, 3]]


def test_nested_parts_may_differ_in_length_from_batch_to_batch():
    """Texts: replicas share the length of a global batch, which the next batch does not have."""
    batches = [
        {"sup": {"ids": np.arange(4 * length).reshape(4, length)}, "label": np.arange(4)} for length in (5, 3, 9)
    ]
    signature = {"sup": {"ids": tf.TensorSpec([4, None], tf.int64)}, "label": tf.TensorSpec([4], tf.int64)}
    strategy = distribution.create_strategy("mirrored")
    distributed = distribution.distribute(
        strategy, lambda _: tf.data.Dataset.from_generator(lambda: iter(batches), output_signature=signature)
    )
    for batch, parts in zip(batches, distributed, strict=True):
        ids = strategy.experimental_local_results(parts["sup"]["ids"])
        np.testing.assert_array_equal(ids[0], batch["sup"]["ids"][:2])
        np.testing.assert_array_equal(ids[1], batch["sup"]["ids"][2:])
    spec = distributed.element_spec["sup"]["ids"]
    assert [component.shape.as_list() for component in spec._value_specs] == [[2, None], [2, None]]


def test_one_device_gets_the_whole_batch():
    strategy = distribution.create_strategy("one_device")
    assert strategy.num_replicas_in_sync == 1
    batches = [parts_of_replicas(strategy, batch) for batch in distribution.distribute(strategy, create_dataset)]
    for parts, batch in zip(batches, BATCHES, strict=True):
        for key, value in batch.items():
            np.testing.assert_array_equal(parts[key][0], value)


def test_without_several_gpus_auto_is_one_device():
    assert isinstance(distribution.create_strategy("auto"), tf.distribute.OneDeviceStrategy)


@pytest.mark.parametrize("name, num_replicas, size", [("mirrored", 2, 6), ("one_device", 1, 5)])
def test_a_batch_size_that_the_replicas_divide_is_accepted(name, num_replicas, size):
    strategy = distribution.create_strategy(name)
    assert strategy.num_replicas_in_sync == num_replicas
    distribution.check_batch_size("train_batch_size", size, strategy)


def test_a_batch_size_that_the_replicas_do_not_divide_is_refused():
    message = r"train_batch_size=5 cannot be divided among 2 replicas: use a multiple of 2\."
    with pytest.raises(ValueError, match=message):
        distribution.check_batch_size("train_batch_size", 5, distribution.create_strategy("mirrored"))


def test_an_unknown_strategy_is_refused():
    with pytest.raises(
        ValueError, match=r"strategy='fast': expected one of auto, one_device, mirrored, multi_worker, tpu\."
    ):
        distribution.create_strategy("fast")


def test_a_tpu_for_another_strategy_is_refused():
    message = r"strategy=mirrored does not use tpu='mine': leave --tpu out, or use --strategy=tpu\."
    with pytest.raises(ValueError, match=message):
        distribution.create_strategy("mirrored", tpu="mine")


@pytest.mark.parametrize("name, tpu", [("tpu", ""), ("tpu", "local"), ("auto", "local")])
def test_without_a_tpu_the_tpu_strategy_is_refused(name, tpu):
    message = rf"strategy=tpu, tpu='{tpu}': no TPU was found \(.*\)\. Give its name or address as --tpu, or --tpu=local"
    with pytest.raises(ValueError, match=f"(?s){message}"):
        distribution.create_strategy(name, tpu)


def test_a_tpu_whose_name_cannot_be_resolved_is_refused(monkeypatch):
    def ask_the_network(*args, **kwargs):
        raise OSError("Name or service not known")  # what urllib raises outside of Google's network

    monkeypatch.setattr(tf.distribute.cluster_resolver, "TPUClusterResolver", ask_the_network)
    with pytest.raises(ValueError, match=r"tpu='mine': no TPU was found \(Name or service not known\)\. Give its name"):
        distribution.create_strategy("tpu", tpu="mine")
