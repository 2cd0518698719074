"""ImageNet files → batches of {"sup", "label", "original", "augmented"}, as image/input_pipeline.py makes of records.

Images are read, decoded, cropped and augmented while training, as docs/images.md tells; image/imagenet_index.py checks
them before. Batches are a function of seed and step alone, and a stream can start at any step.
"""

import dataclasses
import json
import math
import os

import numpy as np
import tensorflow as tf
from absl import logging

from augmentation import randaugment_tf
from image import imagenet_index
from image.datasets import Facts
from image.input_pipeline import AUGMENTED, ORIGINAL, SUP, Data
from utils import files, record_stream
from utils.record_stream import WHOLE
from utils.tracing import as_written

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
IMAGE_SIZE, CROP_PADDING = 224, 32
CHUNK = 64  # images that are augmented at once: batches of thousands would need many times their size
NUM_READERS = 16  # shards that are open at once
READ_AHEAD = 16  # records of each


@dataclasses.dataclass(frozen=True)
class Examples:
    """The images of one split, in shards or in files of their own."""

    paths: np.ndarray  # [files]
    file_sizes: np.ndarray  # [files], images in each of them
    labels: np.ndarray  # [images], file after file
    kept_mask: np.ndarray  # [images], which of them are used
    in_shards: bool
    files_sha256: str  # of the names and sizes of the files, and of the names of the classes

    @property
    def sha256(self):
        """Tells these examples from others, as far as the index can."""
        return files.checksum_of((self.files_sha256.encode(), self.labels.tobytes(), self.kept_mask.tobytes()))

    @property
    def num_examples(self):
        return int(self.kept_mask.sum())

    def keep(self, positions):
        """The same files, of which only the examples at `positions` are used, as far as they were before."""
        kept_mask = np.zeros_like(self.kept_mask)
        kept_mask[positions] = self.kept_mask[positions]
        return dataclasses.replace(self, kept_mask=kept_mask)


# ---- which images ---------------------------------------------------------------------------------------------------


def open_data(config):
    """Finds all images that a run needs. Returns input_pipeline.Data with lists of Examples."""
    index = read_index(config.data_dir)
    train, test = (create_examples(config.data_dir, index, split) for split in imagenet_index.SPLITS)
    sup, unsup = choose_labelled(train, config.label_fraction, config.use_equal_split, config.label_seed), []
    if config.unsup_ratio and config.unlabeled_dir:
        unlabeled_index = read_index(config.unlabeled_dir, unlabeled=True)
        unsup = [create_examples(config.unlabeled_dir, unlabeled_index, "unlabeled")]
    elif config.unsup_ratio:
        unsup = [train]  # those with a label too, as on CIFAR-10
    facts = Facts(
        name="imagenet",
        image_size=config.image_size or IMAGE_SIZE,
        class_names=tuple(index["class_names"]),
        mean=MEAN,
        std=STD,
        flip=True,
        train_size=train.num_examples,
        test_size=test.num_examples,
    )
    return Data(facts, [sup], unsup, [], [test])


def read_index(data_dir, unlabeled=False):
    index = imagenet_index.read_index(data_dir, unlabeled)
    if index["skipped"]:
        path, number = imagenet_index.index_path(data_dir), len(index["skipped"])
        logging.warning("%s images in %s cannot be decoded and are left out; %s lists them.", number, data_dir, path)
    return index


def create_examples(data_dir, index, split):
    found = index["splits"][split]
    labels = np.concatenate([np.asarray(labels, np.int64) for labels in found["labels"]])
    described = json.dumps([index["class_names"], found["files"], found["num_bytes"]])
    return Examples(
        paths=np.array([os.path.join(data_dir, name) for name in found["files"]], object),  # a fourth of the memory
        file_sizes=np.array([len(labels) for labels in found["labels"]]),
        labels=labels,
        kept_mask=labels != imagenet_index.SKIPPED,
        in_shards=index["layout"] == "shards",
        files_sha256=files.checksum_of([described.encode()]),
    )


def choose_labelled(examples, label_fraction, use_equal_split=False, label_seed=-1):
    """Keeps a part of the examples.

    Args:
      use_equal_split: keep that part of each class, at random. Otherwise keep whole shards: the first ones, as the
        authors did (102 of 1024 for 10 %), or, with a label_seed, random ones. Without shards: random examples.
      label_seed: of what is random; -1 counts as 0 there.
    """
    rng = np.random.default_rng(max(label_seed, 0))
    if label_fraction == 1:
        return examples
    if use_equal_split:
        order = rng.permutation(np.flatnonzero(examples.kept_mask))
        of_classes = [order[examples.labels[order] == label] for label in np.unique(examples.labels[order])]
        return examples.keep(np.concatenate([_first_part(members, label_fraction) for members in of_classes]))
    if not examples.in_shards:
        return examples.keep(_first_part(rng.permutation(np.flatnonzero(examples.kept_mask)), label_fraction))
    shards = np.arange(len(examples.paths))
    shards = _first_part(shards if label_seed < 0 else rng.permutation(shards), label_fraction)
    return examples.keep(np.isin(np.repeat(np.arange(len(examples.paths)), examples.file_sizes), shards))


def _first_part(values, fraction):
    # 102.4 of 1024 shards are 102, but 0.29 · 100 = 28.999… is 29.
    return values[: max(int(round(fraction * len(values), 6)), 1)]


# ---- encoded images -------------------------------------------------------------------------------------------------


def _shard_reader(examples):
    """A function from the number of a shard to a dataset of its records that are kept."""
    paths, kept_mask = tf.constant(examples.paths), tf.constant(examples.kept_mask)
    ends = tf.constant(np.cumsum(examples.file_sizes))
    starts = ends - examples.file_sizes

    def read_shard(shard):
        kept = tf.data.Dataset.from_tensor_slices(kept_mask[starts[shard] : ends[shard]])
        pairs = tf.data.Dataset.zip((tf.data.TFRecordDataset(paths[shard]), kept))
        return pairs.filter(lambda _, is_kept: is_kept).map(lambda record, _: record).prefetch(READ_AHEAD)

    return read_shard


def _parse(record):
    features = {
        "image/encoded": tf.io.FixedLenFeature([], tf.string),
        "image/class/label": tf.io.FixedLenFeature([], tf.int64, default_value=0),  # an unlabelled image has none
    }
    parsed = tf.io.parse_single_example(record, features)
    return parsed["image/encoded"], parsed["image/class/label"] - 1


def _file_reader(examples):
    """A function from the number of a kept image file to its content and label."""
    paths, labels = tf.constant(examples.paths[examples.kept_mask]), tf.constant(examples.labels[examples.kept_mask])
    return lambda number: (tf.io.read_file(paths[number]), labels[number])


def _shards_with_examples(examples):
    shard_of_image = np.repeat(np.arange(len(examples.paths)), examples.file_sizes)
    return np.unique(shard_of_image[examples.kept_mask])


def encoded_stream(examples, batch_size, seed, start_step, shuffle_buffer, share=WHOLE):
    """(encoded image, label) of a share of each batch, without end, from the first one of `start_step` on."""
    if examples.in_shards:
        shards, read_shard = _shards_with_examples(examples), _shard_reader(examples)
        order = batch_size, seed, start_step, shuffle_buffer
        batches = record_stream.batches_from_files(shards, examples.num_examples, *order, read_shard, NUM_READERS)
        batches = batches.map(lambda batch: share.take(batch, batch_size))
        return batches.unbatch().map(_parse, num_parallel_calls=tf.data.AUTOTUNE)
    steps = tf.data.Dataset.range(start_step, tf.int64.max)
    orders = steps.map(lambda step: record_stream.order_of_step(step, examples.num_examples, batch_size, seed, share))
    return orders.unbatch().map(_file_reader(examples), num_parallel_calls=tf.data.AUTOTUNE)


# ---- training -------------------------------------------------------------------------------------------------------


@as_written
def create_train_dataset(config, data, start_step=0, share=WHOLE):
    """A share of the global batches for the steps start_step, start_step + 1, …, without end.

    What is drawn for an image depends on its position in the global stream and, in RandAugment, on its chunk there.
    """

    def seed_of(number, view):
        return tf.stack([tf.constant(3 * config.seed + view, tf.int64), number])

    def crop(image, position, view):
        return random_crop_flip(image, data.facts.image_size, seed_of(position, view))

    def create_sup(position, example):
        encoded, label = example
        return {"sup": crop(imagenet_index.decode(encoded), position, SUP), "label": label}

    def create_unsup(position, example):
        image = imagenet_index.decode(example[0])
        return {"original": crop(image, position, ORIGINAL), "augmented": crop(image, position, AUGMENTED)}

    augmentations = {
        "sup": (SUP, randaugment_tf.AUGMENTATIONS[config.sup_aug_ops]),
        "original": (ORIGINAL, randaugment_tf.crop_flip),
        "augmented": (AUGMENTED, randaugment_tf.AUGMENTATIONS[config.aug_ops]),
    }

    def augment(number, images, part):
        for name in [name for name in augmentations if name in images]:
            view, function = augmentations[name]
            seed = tf.random.experimental.stateless_fold_in(seed_of(number, view), 1)
            images[name] = function(images[name], seed, part)
        return images

    def create_batches(examples, batch_size, seed, create_views):
        chunk_size = max(divisor for divisor in range(1, CHUNK + 1) if batch_size % divisor == 0)
        own_size = share.size(batch_size)
        piece_size = math.gcd(chunk_size, own_size)  # a piece of a chunk, all of which is in this share
        num_pieces = own_size // piece_size

        def position_of(number):
            """Where in the global stream the image of this number in the stream of the share is."""
            return number // own_size * batch_size + share.index * own_size + number % own_size

        def augment_piece(number, images):
            position = position_of(number * piece_size)
            part = position % chunk_size // piece_size, chunk_size // piece_size
            return augment(position // chunk_size, images, part)

        encoded = encoded_stream(examples, batch_size, seed, start_step, config.shuffle_buffer, share)
        numbered = _enumerate(encoded, start_step * own_size)
        images = numbered.map(lambda number, example: create_views(position_of(number), example), tf.data.AUTOTUNE)
        pieces = _enumerate(images.batch(piece_size, True), start_step * num_pieces)
        pieces = pieces.map(augment_piece, tf.data.AUTOTUNE)
        return pieces.batch(num_pieces, True).map(lambda batch: {key: _merge(value) for key, value in batch.items()})

    batches = create_batches(data.sup[0], config.train_batch_size, 2 * config.seed, create_sup)
    if not data.unsup:
        return batches
    unsup_size = config.train_batch_size * config.unsup_ratio
    unsup = create_batches(data.unsup[0], unsup_size, 2 * config.seed + 1, create_unsup)
    return tf.data.Dataset.zip((batches, unsup)).map(lambda sup, unsup: sup | unsup)


def _enumerate(dataset, start):
    return tf.data.Dataset.zip((tf.data.Dataset.range(start, tf.int64.max), dataset))


def _merge(pieces):
    """[pieces, images in each, …] → [images, …]."""
    return tf.reshape(pieces, [pieces.shape[0] * pieces.shape[1], *pieces.shape[2:]])


def random_crop_flip(image, image_size, seed):
    """A random part of an image, uint8 [height, width, 3] → [image_size, image_size, 3], flipped or not."""
    seeds = tf.random.split(seed, 2)
    shape = tf.shape(image)
    offset, size, _ = tf.image.stateless_sample_distorted_bounding_box(
        shape,
        tf.zeros([1, 0, 4]),
        seeds[0],
        min_object_covered=0.1,  # of the image: the range of areas, with the recipe's numbers, begins here
        aspect_ratio_range=(3 / 4, 4 / 3),
        area_range=(0.08, 1.0),
        max_attempts=10,
        use_image_if_no_bounding_boxes=True,
    )
    # No draw fitted: then the whole image comes back, which would be distorted.
    center_offset, center_size = _central_square(shape, image_size)
    failed = tf.reduce_all(size[:2] == shape[:2])
    offset, size = tf.where(failed, center_offset, offset), tf.where(failed, center_size, size)
    return tf.image.stateless_random_flip_left_right(_resize(tf.slice(image, offset, size), image_size), seeds[1])


def center_crop(image, image_size):
    return _resize(tf.slice(image, *_central_square(tf.shape(image), image_size)), image_size)


def _central_square(shape, image_size):
    """Offset and size of the square that evaluation sees."""
    height, width = shape[0], shape[1]
    shorter = tf.cast(tf.minimum(height, width), tf.float32)
    side = tf.maximum(tf.cast(image_size / (image_size + CROP_PADDING) * shorter, tf.int32), 1)
    return tf.stack([(height - side + 1) // 2, (width - side + 1) // 2, 0]), tf.stack([side, side, 3])


def _resize(image, image_size):
    resized = tf.image.resize(image, [image_size, image_size], tf.image.ResizeMethod.BICUBIC)
    return tf.ensure_shape(tf.saturate_cast(tf.round(resized), tf.uint8), [image_size, image_size, 3])


# ---- evaluation -----------------------------------------------------------------------------------------------------


@as_written
def create_eval_dataset(examples_list, image_size, batch_size, share=WHOLE):
    """A share of batches of fixed size in the order of the files; the last is filled up with examples of weight 0."""
    (examples,) = examples_list

    def create_example(encoded, label):
        image = center_crop(imagenet_index.decode(encoded), image_size)
        opaque = tf.pad(image, [[0, 0], [0, 0], [0, 1]], constant_values=255)
        return {"sup": opaque, "label": label, "weight": 1.0}

    if examples.in_shards:
        shards = tf.data.Dataset.from_tensor_slices(_shards_with_examples(examples))
        encoded = shards.flat_map(_shard_reader(examples)).map(_parse, tf.data.AUTOTUNE)
    else:
        encoded = tf.data.Dataset.range(examples.num_examples).map(_file_reader(examples), tf.data.AUTOTUNE)
    own_size = share.size(batch_size)
    if share != WHOLE:
        own = encoded.enumerate().filter(lambda number, _: number % batch_size // own_size == share.index)
        encoded = own.map(lambda _, example: example)
    batches = encoded.map(create_example, tf.data.AUTOTUNE).batch(own_size)
    filled = batches.map(lambda batch: record_stream.fill_up(batch, own_size))
    # Of the last batch, which may be small, a share can be empty.
    zeros = tf.nest.map_structure(lambda spec: tf.zeros(spec.shape, spec.dtype), filled.element_spec)
    return filled.concatenate(tf.data.Dataset.from_tensors(zeros)).take(-(-examples.num_examples // batch_size))
