"""Speed of filtering a pool of images, beside Keras' predict on the same images in memory; memory for a larger pool.

python -m tests.benchmarks.domain_filter [--num_images=10000] [--wrn_depth=10]
"""

import argparse
import os
import resource
import tempfile

import numpy as np

from image import export, filter_domain, train
from image.config import Config
from image.datasets import cifar10
from tests.benchmarks.randaugment import create_smooth_images, seconds
from utils import domain_filter

BATCH_SIZE = 256


def filter_file(path, exported, folder):
    """Does what image.filter_domain does up to the choice, from the checksum of the pool on."""
    pool, image_size = filter_domain.open_pool(path), exported.facts.image_size
    state_path = os.path.join(folder, "state.npz")
    selection = domain_filter.select(
        lambda start: filter_domain.read_usable(pool, image_size, range(start, pool.num_images)),
        pool.num_images,
        lambda images: exported.predict_proba(np.stack(images), BATCH_SIZE),
        exported.facts.num_classes,
        filter_domain.Config("model", path, 100, batch_size=BATCH_SIZE, data_dir="data", output_dir=folder),
        state_path,
        settings={"pool": pool.checksum},
    )
    os.remove(state_path)
    return selection.kept()


def most_memory():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024  # MB on Linux


def write_pool(path, num_images, repeats=1):
    """Writes a pool piece by piece, so that its size does not count as memory of this process."""
    rng, shape = np.random.default_rng(0), (num_images * repeats, 32, 32, 3)
    with open(path, "wb") as file:
        np.lib.format.write_array_header_1_0(file, {"descr": "|u1", "fortran_order": False, "shape": shape})
        for start in range(0, num_images * repeats, 1000):
            file.write(create_smooth_images(min(1000, num_images * repeats - start), rng).tobytes())


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--num_images", type=int, default=10_000)
    parser.add_argument("--wrn_depth", type=int, default=10)
    parser.add_argument("--wrn_size", type=int, default=4)
    parser.add_argument("--num_rounds", type=int, default=5)
    arguments = parser.parse_args()
    config = Config(wrn_depth=arguments.wrn_depth, wrn_size=arguments.wrn_size, wrn_stem_stride=2)
    model = train.create_model(config, cifar10.FACTS)
    with tempfile.TemporaryDirectory() as folder:
        export.export(model, cifar10.FACTS, os.path.join(folder, "export"))
        exported = export.load(os.path.join(folder, "export"))
        small, large = os.path.join(folder, "small.npy"), os.path.join(folder, "large.npy")
        write_pool(small, arguments.num_images)
        write_pool(large, arguments.num_images, repeats=5)
        filter_file(small, exported, folder)
        before = most_memory()
        filter_file(large, exported, folder)
        growth = most_memory() - before
        images = np.load(small)
        opaque = np.concatenate([images, np.full_like(images[..., :1], 255)], axis=-1)
        network = model.evaluation_network
        durations = {"predict": [], "filter": []}
        for _ in range(arguments.num_rounds + 1):
            durations["predict"].append(seconds(lambda: network.predict(opaque, BATCH_SIZE, verbose=0))[0])
            durations["filter"].append(seconds(lambda: filter_file(small, exported, folder))[0])
    medians = {name: len(images) / np.median(values[1:]) for name, values in durations.items()}
    ratios = np.array(durations["predict"][1:]) / durations["filter"][1:]
    print(f"Keras' predict, images in memory:  {medians['predict']:8,.0f} images/s")
    print(f"filtered from a file:              {medians['filter']:8,.0f} images/s")
    print(f"filter / predict: {np.median(ratios):.2f} times as fast (median of {len(ratios)} pairs)")
    print(f"memory for a pool five times as large: {growth:+.0f} MB")


if __name__ == "__main__":
    main()
