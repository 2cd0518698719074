"""A trained network as a SavedModel that takes raw uint8 images, and its use on images from files.

model = load("runs/cifar10/export")
probabilities = model.predict_proba(images)     # uint8 [n, size, size, 3] → float32 [n, classes]
"""

import collections
import dataclasses
import itertools
import os

import numpy as np
import tensorflow as tf

from image import record_format
from image.datasets import image_files
from utils import files, saved_models

Exported = collections.namedtuple("Exported", "facts predict_proba")
BLOCK = 256  # image files that are predicted at once


def export(model, facts, export_dir):
    """Writes the evaluation network with its normalisation, and dataset.json beside it."""
    network = model.evaluation_network
    shape = [None, facts.image_size, facts.image_size, 3]

    @tf.function(input_signature=[tf.TensorSpec(shape, tf.uint8, name="images")], autograph=False)
    def serve(images):
        opaque = tf.pad(images, [[0, 0], [0, 0], [0, 0], [0, 1]], constant_values=255)
        probabilities = tf.nn.softmax(network(opaque, training=False))
        return {"probabilities": probabilities, "label": tf.argmax(probabilities, axis=-1)}

    module = tf.Module()
    # Without the layers, which take long to write and to load.
    module.weights, module.serve = network.weights, serve
    saved_models.save(export_dir, module, serve)
    with saved_models.explain_refusal(export_dir):
        files.write_json(os.path.join(export_dir, "dataset.json"), dataclasses.asdict(facts))


def load(export_dir):
    """Loads what `export` wrote.

    Returns:
      Exported: facts, and predict_proba from uint8 images to a float32 array of class probabilities.
    """
    saved_models.check_exists(export_dir)
    if not files.exists(os.path.join(export_dir, "dataset.json")):
        raise ValueError(f"{export_dir} lacks dataset.json, which tells its classes: copy the whole export folder.")
    facts = record_format.read_facts(export_dir)
    inputs = {"images": [facts.image_size, facts.image_size, 3]}
    serve = saved_models.load(export_dir, inputs, facts.num_classes)

    def predict_proba(images, batch_size=BLOCK):
        check_images(images, facts.image_size)
        parts = [images[start : start + batch_size] for start in range(0, len(images), batch_size)]
        outputs = [serve(images=tf.constant(part))["probabilities"].numpy() for part in parts]
        return np.concatenate(outputs) if outputs else np.zeros([0, facts.num_classes], np.float32)

    return Exported(facts, predict_proba)


def check_images(images, image_size=None):
    """Raises ValueError unless `images` is uint8 [n, size, size, 3]."""
    shape, dtype = np.shape(images), getattr(images, "dtype", type(images).__name__)
    if dtype != np.uint8 or len(shape) != 4 or shape[1] != shape[2] or shape[3] != 3:
        raise ValueError(
            f"images have shape={shape} and dtype={dtype}: expected a uint8 array [number, size, size, 3] with values "
            "from 0 to 255. Grey images: np.repeat(images[..., None], 3, axis=-1)."
        )
    if image_size and shape[1] != image_size:
        raise ValueError(f"images are {shape[1]} pixels wide: the training images are {image_size}. Resize them.")


def read_images(path, image_size):
    """Reads a .npy file of images, one image file, or all image files below a folder (see image.datasets.image_files).

    Returns:
      (names, images uint8 [n, image_size, image_size, 3]).
    """
    if path.endswith(".npy"):
        images = files.read_array(path, advice="write it with np.save.")
        check_images(images, image_size)
        return [str(number) for number in range(len(images))], images
    paths = _find_files(path)
    return paths, np.stack(list(_read_files(paths, image_size)))


def predict_files(exported, path):
    """What read_images and predict_proba make of a path: (names, probabilities), of image files a block at a time.

    So memory holds the probabilities of all images, but few of the images; a .npy file is an array, and is held whole.
    """
    image_size = exported.facts.image_size
    if path.endswith(".npy"):
        names, images = read_images(path, image_size)
        return names, exported.predict_proba(images)
    paths = _find_files(path)
    images = _read_files(paths, image_size)
    blocks = iter(lambda: list(itertools.islice(images, BLOCK)), [])
    return paths, np.concatenate([exported.predict_proba(np.stack(block)) for block in blocks])


def _find_files(path):
    if path.endswith(".npz"):
        raise ValueError(f"{path}: expected images as a .npy file: np.save the array of images by itself.")
    paths = [path] if files.is_file(path) else image_files.find_images(path)
    if not paths:
        endings = ", ".join(image_files.IMAGE_ENDINGS)
        raise ValueError(f"{path}: found no image files ({endings}) and no .npy file there.")
    return paths


def _read_files(paths, image_size):
    for image in image_files.read_each(paths, image_size):
        if isinstance(image, ValueError):
            raise image
        yield image
