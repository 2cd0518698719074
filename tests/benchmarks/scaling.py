"""The figures that docs/scaling.md plans with: what one core does in a second, and what a record takes.

python -m tests.benchmarks.scaling

All in processor time, which other programs on the machine hardly change.
"""

import io
import os
import time

import numpy as np
import tensorflow as tf
from PIL import Image

from augmentation import randaugment, randaugment_tf
from back_translate import engines
from image import imagenet, imagenet_index
from tests.benchmarks.randaugment import create_smooth_images
from tests.benchmarks.translation import EXAMPLE, read_sentences

MODEL = os.path.join(os.path.dirname(EXAMPLE), "models/en_fr")
JPEG_SIZE = 500, 375  # of a usual image of ImageNet


def per_second(count, work):
    """How many of `count` are done in a second of processor time, at best of three; the first call compiles."""
    work()
    times = []
    for _ in range(3):
        started = time.process_time()
        work()
        times.append(time.process_time() - started)
    return count / min(times)


def measure_copies():
    images, rng = create_smooth_images(1024, np.random.default_rng(0)), np.random.default_rng(0)
    return per_second(1024, lambda: randaugment.randaugment(images, rng))


def measure_imagenet(count=64):
    """Decoding one JPEG, two random crops of it, and RandAugment of one of them."""
    pixels = np.asarray(Image.fromarray(create_smooth_images(1, np.random.default_rng(0))[0]).resize(JPEG_SIZE))
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "JPEG", quality=90)

    def create_views(number):
        image = imagenet_index.decode(tf.constant(file.getvalue()))
        return [imagenet.random_crop_flip(image, 224, tf.stack([view, number])) for view in (1, 2)]

    @tf.function
    def create_batch():
        original, augmented = tf.map_fn(create_views, tf.range(count), fn_output_signature=[tf.uint8, tf.uint8])
        shape = [count, 224, 224, 3]
        return original, randaugment_tf.randaugment(tf.reshape(augmented, shape), tf.constant([0, 1]))

    return per_second(count, create_batch)


def measure_translation(count=256):
    engine, sentences = engines.TensorFlowEngine.load(MODEL, temperature=0.8), read_sentences(EXAMPLE, count)
    words = np.mean([len(sentence.split()) for sentence in sentences])
    return per_second(count, lambda: engine.translate(sentences)), words


def main():
    print(f"RandAugment of 32 × 32, to be written:   {measure_copies():8,.0f} images per second of a core", flush=True)
    print(f"an unlabelled image of ImageNet, 224:    {measure_imagenet():8,.0f} per second of a core", flush=True)
    speed, words = measure_translation()
    print(
        f"translation, {os.path.basename(MODEL)}:{'':20} {speed:,.1f} lines of {words:.1f} words per second of a core"
    )


if __name__ == "__main__":
    main()
