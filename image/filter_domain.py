"""Keeps the images of a large pool that a trained model is most confident about, and writes records to train on them.

    python -m image.filter_domain --model_dir=runs/digits --data_dir=data/digits --pool=photos/ --num_per_class=1000 \
        --output_dir=data/digits_photos
    python -m image.main --do_train --task_name=digits --data_dir=data/digits_photos ...

The records of output_dir have the labelled and test sets of data_dir and, as unlabelled data, the kept images, equally
many of each predicted class. The pool may be larger than the memory. A stopped run is taken up by the same command.
"""

import concurrent.futures
import contextlib
import functools
import hashlib
import itertools
import math
import os
import shutil
import zipfile
import zlib

import numpy as np
import tensorflow as tf
from absl import app, flags
from PIL import Image

from augmentation.randaugment import AUGMENTATIONS
from image import export, image_files, preprocess, record_format
from utils import domain_filter, run_dir

FLAGS = flags.FLAGS
BATCHES_PER_BLOCK = 4
MEMBER = "images"  # the array to read in a .npz file
RUN = 64  # images of such a file that are read at once


# ---- the pool -------------------------------------------------------------------------------------------------------
# A pool has num_examples, a checksum, names, and read(positions), which yields images of the model's size in the order
# of the ascending positions, and None for each that cannot be read.


def open_pool(path, image_size):
    """Returns the pool in a folder of image files, or in a .npy or .npz file of uint8 [number, size, size, 3]."""
    if os.path.isdir(path):
        return FolderPool(path, image_size)
    if os.path.isfile(path) and path.endswith((".npy", ".npz")):
        return ArrayPool(path, image_size)
    raise ValueError(f"pool={path!r}: expected a folder of images, or a .npy or .npz file of them.")


class FolderPool:
    """The image files below a folder."""

    def __init__(self, folder, image_size):
        self.folder, self.image_size = folder, image_size
        digest, self.num_examples = hashlib.sha256(), 0
        for path in self._paths():
            # Names and sizes: to read all files for a checksum would take as long as to score them.
            size = os.path.getsize(path) if os.path.exists(path) else 0  # a broken link
            digest.update(f"{os.path.relpath(path, folder)}\0{size}\0".encode(errors="surrogateescape"))
            self.num_examples += 1
        self.checksum = digest.hexdigest()
        if not self.num_examples:
            raise ValueError(f"pool={folder!r} has no image files ({', '.join(image_files.IMAGE_ENDINGS)}).")

    def _paths(self):
        for folder, folders, names in os.walk(self.folder):
            folders[:] = sorted(name for name in folders if not name.startswith("."))  # os.walk goes on in this order
            names = sorted(name for name in names if image_files.is_image(name))
            yield from (os.path.join(folder, name) for name in names)

    def names(self, positions):
        return list(domain_filter.take(self._paths(), positions))

    def read(self, positions):
        paths = domain_filter.take(self._paths(), positions)
        with concurrent.futures.ThreadPoolExecutor() as executor:  # Pillow decodes without holding Python's lock
            while part := list(itertools.islice(paths, 256)):
                yield from executor.map(self._read_one, part)

    def _read_one(self, path):
        try:
            return image_files.read_image(path, self.image_size)
        except ValueError:
            return None


class ArrayPool:
    """An array in a file, of which only what is asked for is read."""

    def __init__(self, path, image_size):
        self.path, self.image_size = path, image_size
        with self._opened() as (file, start, shape):
            digest, self.num_examples = hashlib.sha256(str(shape).encode()), shape[0]
            for run in self._runs(range(self.num_examples)):  # all of it, so that a broken file is noticed now
                digest.update(self._read_run(file, start, shape, *run))
        self.checksum = digest.hexdigest()

    def names(self, positions):
        return [str(position) for position in positions]

    def read(self, positions):
        with self._opened() as opened:
            for run in self._runs(positions):
                yield from map(self._resize, self._read_run(*opened, *run))

    def _runs(self, positions):
        """Yields (first, number) of images to read at once."""
        if not isinstance(positions, range):
            return ((int(position), 1) for position in positions)
        return ((first, min(RUN, positions.stop - first)) for first in range(positions.start, positions.stop, RUN))

    def _read_run(self, file, start, shape, first, number):
        num_bytes = math.prod(shape[1:])
        try:
            file.seek(start + first * num_bytes)
            return np.frombuffer(file.read(number * num_bytes), np.uint8).reshape(number, *shape[1:])
        except (OSError, EOFError, ValueError, zipfile.BadZipFile, zlib.error) as error:
            where = f"after image {first} of {shape[0]} ({error})"
            raise ValueError(f"pool={self.path!r} breaks off {where}: write it again.") from error

    def _resize(self, image):
        if len(image) == self.image_size:
            return image
        return np.asarray(Image.fromarray(image).resize([self.image_size] * 2, Image.Resampling.BICUBIC))

    @contextlib.contextmanager
    def _opened(self):
        """Opens the file where the pixels begin. Yields the file, that place and the array's shape."""
        with contextlib.ExitStack() as stack:
            try:
                file = stack.enter_context(open(self.path, "rb"))
                if self.path.endswith(".npz"):
                    archive = stack.enter_context(zipfile.ZipFile(file))
                    file = stack.enter_context(archive.open(f"{MEMBER}.npy"))
                shape, dtype = read_header(file)
            except (OSError, ValueError, KeyError, zipfile.BadZipFile) as error:
                how = f"np.savez(path, {MEMBER}=images)" if self.path.endswith(".npz") else "np.save(path, images)"
                raise ValueError(f"pool={self.path!r} cannot be read ({error}): write it with {how}.") from error
            export.check_images(np.broadcast_to(np.zeros([], dtype), shape))  # an array of this shape without content
            yield file, file.tell(), shape


def read_header(file):
    """Shape and dtype of an array in NumPy's format; the file is then where its content begins."""
    readers = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
    shape, fortran_order, dtype = readers[np.lib.format.read_magic(file)](file)
    if fortran_order:
        raise ValueError("it is in Fortran order: use np.ascontiguousarray(images)")
    return shape, dtype


# ---- the output -----------------------------------------------------------------------------------------------------


def write_kept(path, images, image_size, num_images):
    """Writes images to a .npy file, one by one. Returns the checksum of their pixels."""
    digest, temporary = hashlib.sha256(), f"{path}.tmp"
    header = {"descr": "|u1", "fortran_order": False, "shape": (num_images, image_size, image_size, 3)}
    with open(temporary, "wb") as file:
        np.lib.format.write_array_header_1_0(file, header)
        for image in images:
            if image is None:
                raise ValueError("An image of the pool cannot be read any more: leave the pool as it is.")
            content = image.tobytes()
            file.write(content)
            digest.update(content)
    os.replace(temporary, path)
    return digest.hexdigest()


def read_kept(path):
    """The arrays for preprocess.write_sets: pixels are read from the file when they are used."""
    return {"unlabelled": (np.asarray(np.load(path, mmap_mode="r")), None)}


def copy_labelled(data_dir, output_dir):
    """Takes over all sets of data_dir but the unlabelled ones. Records never change, so a hard link is enough."""
    for name in sorted(os.listdir(data_dir)):
        source = os.path.join(data_dir, name)
        if os.path.isdir(source) and (name == "test" or name.startswith("sup-")):
            target = os.path.join(output_dir, name)
            ignore = shutil.ignore_patterns("*.tmp-*")
            shutil.copytree(source, target, ignore=ignore, copy_function=_link_or_copy, dirs_exist_ok=True)


def _link_or_copy(source, target):
    if os.path.exists(target):
        return
    try:
        os.link(source, target)
    except OSError:  # on another disk
        shutil.copy2(source, target)


def write_unlabelled(output_dir, facts, kept_path, num_images, checksum, aug, aug_mode, aug_copy, seed, workers):
    if aug_mode == "online":
        plans = preprocess.plan_originals(output_dir, num_images)
    else:
        plans = preprocess.plan_unlabelled(output_dir, num_images, aug, aug_copy, seed)
    plans = [plan._replace(settings=plan.settings | {"data_sha256": checksum}) for plan in plans]
    preprocess.write_sets(plans, functools.partial(read_kept, kept_path), facts, workers=workers)


# ---- from the command line ------------------------------------------------------------------------------------------


def load_model(model_dir):
    """Returns facts, predict_proba and what tells this exported model from others."""
    export_dir = os.path.join(model_dir, "export")
    return *export.load(export_dir), tf.saved_model.experimental.read_fingerprint(export_dir).singleprint()


def filter_pool(
    model_dir,
    data_dir,
    pool,
    output_dir,
    num_per_class,
    *,
    min_probability=0.0,
    batch_size=256,
    aug="randaugment",
    aug_mode="offline",
    aug_copy=10,
    seed=0,
    workers=1,
):
    """Writes records, the kept images as kept_images.npy, and domain_filter.json and .png, which tell what was kept.

    Returns:
      the summary, see utils.domain_filter.summarize.
    """
    facts, predict_proba, fingerprint = load_model(model_dir)
    check_folders(data_dir, output_dir, facts)
    pool_path, pool = pool, open_pool(pool, facts.image_size)
    record_format.write_facts(output_dir, facts)
    path = functools.partial(os.path.join, output_dir)
    selection = domain_filter.select(
        lambda start: pool.read(range(start, pool.num_examples)),
        pool.num_examples,
        lambda images: predict_proba(np.stack(images), batch_size=batch_size),
        facts.num_classes,
        num_per_class,
        min_probability,
        block_size=BATCHES_PER_BLOCK * batch_size,
        state_path=path("domain_filter.npz"),
        settings={"pool": pool.checksum, "model": fingerprint},
    )
    kept, kept_path = selection.kept(), path("kept_images.npy")
    checksum = write_kept(kept_path, pool.read(kept.positions), facts.image_size, len(kept.positions))
    summary = domain_filter.summarize(selection, facts.class_names) | {"skipped": pool.names(selection.skipped)}
    run_dir.write_json(path("domain_filter.json"), {"pool": pool_path, "model_dir": model_dir, **summary})
    domain_filter.draw_histogram(path("domain_filter.png"), selection, facts.class_names)
    copy_labelled(data_dir, output_dir)
    write_unlabelled(
        output_dir, facts, kept_path, len(kept.positions), checksum, aug, aug_mode, aug_copy, seed, workers
    )
    return summary


def check_folders(data_dir, output_dir, facts):
    if record_format.read_facts(data_dir) != facts:
        raise ValueError(f"data_dir={data_dir} holds records of other data than the model was trained on.")
    if os.path.realpath(output_dir) == os.path.realpath(data_dir):
        raise ValueError(f"output_dir={output_dir} is data_dir, whose unlabelled images stay: choose another one.")


def define_flags():
    flags.DEFINE_string("model_dir", None, "Folder of the run whose exported model scores the pool.", required=True)
    flags.DEFINE_string("data_dir", None, "Records that the model was trained on.", required=True)
    flags.DEFINE_string(
        "pool", None, "A folder of images, or a .npy or .npz file of uint8 [number, size, size, 3].", required=True
    )
    flags.DEFINE_integer("num_per_class", None, "Most images to keep of each class.", lower_bound=1, required=True)
    flags.DEFINE_float("min_probability", 0.0, "Keep no image that is less probable.", lower_bound=0.0, upper_bound=1.0)
    flags.DEFINE_string("output_dir", None, "Where the records go.", required=True)
    flags.DEFINE_integer("batch_size", 256, "Images that go through the network at once.", lower_bound=1)
    flags.DEFINE_enum("aug", "randaugment", sorted(AUGMENTATIONS), "Augmentation of the kept images.")
    flags.DEFINE_enum("aug_mode", "offline", ["offline", "online"], "online: write no copies, the trainer augments.")
    flags.DEFINE_integer("aug_copy", 10, "Number of augmented copies; more can be added later.", lower_bound=1)
    flags.DEFINE_integer("seed", 0, "Seed of the augmentation.", lower_bound=0)
    flags.DEFINE_integer("workers", os.cpu_count() or 1, "Processes that augment.", lower_bound=1)


def main(_):
    names = ("model_dir", "data_dir", "pool", "output_dir", "num_per_class", "min_probability", "batch_size")
    names += ("aug", "aug_mode", "aug_copy", "seed", "workers")
    try:
        summary = filter_pool(**{name: FLAGS[name].value for name in names})
    except (ValueError, OSError, tf.errors.ResourceExhaustedError) as error:  # the last: a full device
        raise SystemExit(f"error: {error}") from error
    print(domain_filter.describe(summary))
    if summary["skipped"]:
        print(f"images that cannot be read are listed in {os.path.join(FLAGS.output_dir, 'domain_filter.json')}")
    print(f"records with the kept images as unlabelled data are in {FLAGS.output_dir}")


if __name__ == "__main__":
    define_flags()
    app.run(main)
