"""Chooses the tf.distribute strategy and hands each replica its part of the global batch."""

import functools

import tensorflow as tf

from utils import cluster
from utils.record_stream import Share
from utils.tracing import as_written

STRATEGIES = ("auto", "one_device", "mirrored", "multi_worker", "tpu")


def create_strategy(name="auto", tpu=""):
    """Returns the strategy.

    Args:
      name: "auto" takes a TPU if `tpu` is given, all workers if TF_CONFIG names several, all GPUs if there are several,
        else one device.
      tpu: name or address of the TPU, or "local" on a TPU VM.
    """
    if name == "auto" and (tpu or cluster.is_named()):
        name = "tpu" if tpu else "multi_worker"
    if name == "tpu":
        return _create_tpu_strategy(tpu)
    if tpu:
        raise ValueError(f"strategy={name} does not use tpu={tpu!r}: leave --tpu out, or use --strategy=tpu.")
    if name == "multi_worker":
        return _create_multi_worker_strategy()
    gpus = tf.config.list_logical_devices("GPU")  # not before: with this, TensorFlow can no longer become a worker
    if name == "auto":
        name = "mirrored" if len(gpus) > 1 else "one_device"
    if name == "mirrored":
        return _create_mirrored_strategy(tuple(device.name for device in gpus or tf.config.list_logical_devices("CPU")))
    if name == "one_device":
        return tf.distribute.OneDeviceStrategy("/gpu:0" if gpus else "/cpu:0")
    raise ValueError(f"strategy={name!r}: expected one of {', '.join(STRATEGIES)}.")


# One for the process: the collective operations of two strategies over the same devices mix up their keys.
@functools.lru_cache
def _create_mirrored_strategy(devices):
    return tf.distribute.MirroredStrategy(devices)


@functools.lru_cache
def _create_multi_worker_strategy():
    return cluster.create_strategy()


def _create_tpu_strategy(tpu):
    try:
        resolver = tf.distribute.cluster_resolver.TPUClusterResolver(tpu=tpu)
        tf.config.experimental_connect_to_cluster(resolver)
        tf.tpu.experimental.initialize_tpu_system(resolver)
    except (ValueError, OSError, tf.errors.OpError) as error:
        raise ValueError(
            f"strategy=tpu, tpu={tpu!r}: no TPU was found ({error}). Give its name or address as --tpu, or --tpu=local "
            "on a TPU VM; without a TPU use --strategy=auto --tpu= (nothing)."
        ) from error
    return tf.distribute.TPUStrategy(resolver)


def distribute(strategy, create_dataset):
    """Distributes a dataset of global batches: replica i of n gets the i-th of n equal parts of each batch.

    Keras' own splitting asks for one batch size, but labelled and unlabelled examples come in different numbers.

    Args:
      create_dataset: a function from the Share of a host to a dataset of its part of each batch: dicts, which may be
        nested, of tensors. Their first dimension must be static; others, such as the length of texts, may differ from
        batch to batch.
    """

    @as_written
    def dataset_of_host(context):
        num_hosts = context.num_input_pipelines
        num_replicas = context.num_replicas_in_sync // num_hosts  # of this host

        def split(value):
            rest = [size or tf.shape(value)[axis] for axis, size in enumerate(value.shape[1:], start=1)]
            return tf.reshape(value, [num_replicas, value.shape[0] // num_replicas, *rest])

        dataset = create_dataset(Share(context.input_pipeline_id, num_hosts))
        if num_replicas > 1:
            split_batch = functools.partial(tf.nest.map_structure, split)
            dataset = dataset.map(split_batch, num_parallel_calls=tf.data.AUTOTUNE).unbatch()
        return dataset.prefetch(tf.data.AUTOTUNE)

    return strategy.distribute_datasets_from_function(dataset_of_host)


def check_batch_size(name, batch_size, strategy):
    """Raises ValueError unless `batch_size` can be divided among the replicas."""
    num_replicas = strategy.num_replicas_in_sync
    if batch_size % num_replicas:
        raise ValueError(
            f"{name}={batch_size} cannot be divided among {num_replicas} replicas: use a multiple of {num_replicas}."
        )
