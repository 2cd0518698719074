"""Speed of RandAugment in tf.data on one core, beside tf-models-official and Pillow, image by image.

The single operations stand beside tensorflow-addons, too, where it can be installed, with the pixels that differ from
Pillow's.

python -m tests.benchmarks.randaugment_tf [--num_rounds=15]
"""

import argparse
import math
import os
import time
import warnings

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import tensorflow as tf
from official.vision.ops import augment as official_augment

from augmentation import image_ops
from augmentation.randaugment import FIRE_PROBABILITY, OPS, REFERENCE_SIZE, draw_policies
from augmentation.randaugment_tf import apply_op, randaugment
from tests import pillow_reference

try:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it warns at every import that its development has ended
        import tensorflow_addons.image as addons
except ImportError:
    addons = None

BATCHES = {32: 448, 224: 32}  # images per batch at each size
MAGNITUDE = 5  # of tf-models-official, which has one for all images: about the mean level
LEVEL = 4  # of the single operations; 5 would be a sharpness that leaves the image as it is
PEER_OPS = ("Rotate", "TranslateX", "TranslateY", "ShearX", "ShearY", "Equalize", "Sharpness", "Cutout")
FILL = image_ops.CUTOUT_FILL[:3]


def create_smooth_images(num_images, size, rng):
    """Random colours on a coarse grid, interpolated, with some noise: needs no file."""
    position = np.linspace(0, 4, size)
    weights = np.maximum(0, 1 - np.abs(position[:, np.newaxis] - np.arange(5)))
    grid = rng.uniform(0, 240, (num_images, 5, 5, 3))
    images = np.einsum("yi,xj,nijc->nyxc", weights, weights, grid, optimize=True)
    return (images + rng.uniform(0, 16, images.shape)).astype(np.uint8)


def on_one_core(dataset):
    options = tf.data.Options()
    options.autotune.enabled = False
    options.experimental_optimization.apply_default_optimizations = False  # no work ahead, in the time of another
    options.threading.private_threadpool_size = 1
    options.threading.max_intra_op_parallelism = 1
    return iter(dataset.with_options(options))


def create_batched(images):
    dataset = tf.data.Dataset.from_tensors(images).repeat().enumerate()
    return on_one_core(dataset.map(lambda step, batch: randaugment(batch, [0, step])))


def create_official(images):
    # It always applies its operations unless told otherwise; the same probability makes it the same amount of work.
    distort = official_augment.RandAugment(2, MAGNITUDE, prob_to_apply=FIRE_PROBABILITY).distort
    return on_one_core(tf.data.Dataset.from_tensor_slices(images).repeat().map(distort).batch(len(images)))


def create_pillow(images):
    rng = np.random.default_rng(1)
    while True:
        yield pillow_reference.apply_policies(images, draw_policies(*images.shape[:3], rng))


def create_op_cases(images):
    """Levels, signs and centres for `images`."""
    numbers = np.arange(len(images))
    centers = np.random.default_rng(2).integers(images.shape[1:3], size=(len(images), 2))
    return numbers % 9 + 1, numbers % 2 == 0, centers


def create_batched_op(images, name):
    dataset = tf.data.Dataset.from_tensors((images, *create_op_cases(images))).repeat()
    return on_one_core(dataset.map(lambda images, *cases: apply_op(images, name, *cases)))


def create_pillow_op(images, name):
    cases = list(zip(images, *(array.tolist() for array in create_op_cases(images))))
    scale = min(images.shape[1:3]) / REFERENCE_SIZE
    while True:
        yield np.stack([pillow_reference.apply_op(image, name, *case, scale) for image, *case in cases])


def measure(iterators, num_images, num_rounds):
    """Alternates the iterators; returns the median images per second of processor time of each.

    Not of elapsed time, because other work on the machine would fall upon one of them by chance.
    """
    seconds = [[] for _ in iterators]
    for iterator in iterators:
        next(iterator)  # traces
    for _ in range(num_rounds):
        for iterator, durations in zip(iterators, seconds):
            start = time.process_time()
            next(iterator)
            durations.append(time.process_time() - start)
    return [num_images / np.median(durations) for durations in seconds]


def compare_pipelines(num_rounds):
    print(f"{'RandAugment, images/s':24}{'batched':>10}{'official':>10}{'Pillow':>10}{'/official':>11}{'/Pillow':>9}")
    for size, batch_size in BATCHES.items():
        images = create_smooth_images(batch_size, size, np.random.default_rng(0))
        iterators = [create(images) for create in (create_batched, create_official, create_pillow)]
        speed, official, pillow = measure(iterators, batch_size, num_rounds)
        ratios = f"{speed / official:11.1f}{speed / pillow:9.1f}"
        print(f"{f'{size}×{size}, {batch_size} a batch':24}{speed:10,.0f}{official:10,.0f}{pillow:10,.0f}{ratios}")


def compare_ops(num_rounds):
    """One operation at a time, on about as many images as draw it in a batch; a jump in ns/pixel would be a cliff."""
    for size, batch_size in BATCHES.items():
        num_images = max(2, batch_size // len(OPS))
        images = image_ops.add_alpha(create_smooth_images(num_images, size, np.random.default_rng(0)))
        title = f"{size}×{size}, {num_images} images"
        print(f"\n{title:24}{'batched/s':>10}{'Pillow/s':>10}{'ratio':>8}{'ns/pixel':>10}")
        for name in OPS:
            iterators = [create_batched_op(images, name), create_pillow_op(images, name)]
            speed, pillow = measure(iterators, num_images, num_rounds)
            print(f"{name:24}{speed:10,.0f}{pillow:10,.0f}{speed / pillow:8.1f}{1e9 / speed / size**2:10.1f}")


# ---- peers: the operations that tensorflow-addons has ---------------------------------------------------------------


def apply_addons(images, name, argument, centers):
    """Whole batches, except shears, which it has for single images only."""
    if name in ("ShearX", "ShearY"):
        shear = addons.transform_ops.shear_x if name == "ShearX" else addons.transform_ops.shear_y
        return shear(images, argument, [0, 0, 0])
    return {
        "Rotate": lambda: addons.rotate(images, math.radians(argument)),
        "TranslateX": lambda: addons.translate(images, [-argument, 0]),
        "TranslateY": lambda: addons.translate(images, [0, -argument]),
        "Equalize": lambda: addons.equalize(images),
        "Sharpness": lambda: addons.sharpness(images, argument),
        "Cutout": lambda: addons.cutout(images, argument // 2 * 2, centers, FILL),
    }[name]()


def apply_official(image, name, argument):
    """Single images only. Its Cutout draws the centre itself."""
    empty = [0, 0, 0]
    return {
        "Rotate": lambda: official_augment.wrapped_rotate(image, argument, empty),
        "TranslateX": lambda: official_augment.translate_x(image, argument, empty),
        "TranslateY": lambda: official_augment.translate_y(image, argument, empty),
        "ShearX": lambda: official_augment.shear_x(image, argument, empty),
        "ShearY": lambda: official_augment.shear_y(image, argument, empty),
        "Equalize": lambda: official_augment.equalize(image),
        "Sharpness": lambda: official_augment.sharpness(image, argument),
        "Cutout": lambda: official_augment.cutout(image, argument // 2, FILL),
    }[name]()


class Peers:
    """One operation at one level on all images, by each of the libraries: iterators over batches."""

    def __init__(self, images, name, level, negate=False):
        self.images, self.name, self.level, self.negate = images, name, level, negate
        self.centers = create_op_cases(images)[2]
        scale = min(images.shape[1:3]) / REFERENCE_SIZE
        argument = OPS[name].argument(level, scale) if OPS[name].argument else 0
        self.argument = -argument if negate and OPS[name].signed else argument

    def ours(self):
        cases = [np.full(len(self.images), value) for value in (self.level, self.negate)]
        dataset = tf.data.Dataset.from_tensors((image_ops.add_alpha(self.images), *cases, self.centers)).repeat()
        return on_one_core(dataset.map(lambda images, *cases: apply_op(images, self.name, *cases)))

    def addons(self):
        if self.name in ("ShearX", "ShearY"):
            return self._one_by_one(lambda image: apply_addons(image, self.name, self.argument, None))
        dataset = tf.data.Dataset.from_tensors((self.images, self.centers.astype(np.int32))).repeat()
        return on_one_core(dataset.map(lambda images, centers: apply_addons(images, self.name, self.argument, centers)))

    def official(self):
        return self._one_by_one(lambda image: apply_official(image, self.name, self.argument))

    def pillow(self):
        images, case = image_ops.add_alpha(self.images), (self.level, self.negate)
        scale, centers = min(images.shape[1:3]) / REFERENCE_SIZE, self.centers.tolist()
        while True:
            yield np.stack(
                [
                    pillow_reference.apply_op(image, self.name, *case, center, scale)
                    for image, center in zip(images, centers)
                ]
            )

    def _one_by_one(self, function):
        dataset = tf.data.Dataset.from_tensor_slices(self.images).repeat().map(function)
        return on_one_core(dataset.batch(len(self.images)))


def count_differences(images, name, libraries):
    """Share of pixels that differ from Pillow's, and the largest difference, of each library over levels and signs."""
    differences = {library: [] for library in libraries}
    for level in (1, 3, 5, 7, 9) if OPS[name].argument else (1,):
        for negate in (False, True) if OPS[name].signed else (False,):
            peers = Peers(images, name, level, negate)
            expected = next(peers.pillow())[..., :3].astype(int)
            for library in libraries:
                result = np.asarray(next(getattr(peers, library)()))[..., :3]
                differences[library].append(np.abs(result - expected).max(axis=-1))
    return {library: (np.mean(np.array(found) > 0), np.max(found)) for library, found in differences.items()}


def compare_peers(num_rounds):
    if addons is None:
        print(f"\ntensorflow-addons is left out: it ended with TensorFlow 2.15, and this is {tf.__version__}")
    libraries = ["addons"] * bool(addons) + ["official", "pillow"]
    for size, batch_size in BATCHES.items():
        num_images = max(2, batch_size // len(OPS))
        images = create_smooth_images(num_images, size, np.random.default_rng(0))
        title = f"{size}×{size}, {num_images} images"
        print(f"\n{title:24}{'ours/s':>10}", *(f"{f'/{library}':>10}" for library in libraries), end="")
        print("   pixels unlike Pillow's (largest difference)")
        for name in PEER_OPS:
            peers = Peers(images, name, LEVEL)
            iterators = [getattr(peers, library)() for library in ["ours", *libraries]]
            speed, *others = measure(iterators, num_images, num_rounds)
            compared = [library for library in ["ours", *libraries[:-1]] if (library, name) != ("official", "Cutout")]
            found = count_differences(images[:8], name, compared)
            shares = (f"{library} {share:.2%} ({largest})" for library, (share, largest) in found.items())
            print(f"{name:24}{speed:10,.0f}", *(f"{speed / other:10.1f}" for other in others), "  ", ", ".join(shares))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--num_rounds", type=int, default=15)
    flags = parser.parse_args()
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    compare_pipelines(flags.num_rounds)
    compare_ops(flags.num_rounds * 3)
    compare_peers(flags.num_rounds * 3)


if __name__ == "__main__":
    main()
