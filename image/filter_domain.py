"""Keeps the images of a large pool that a trained model is most confident about, and writes records to train on them.

    python -m image.filter_domain --model_dir=runs/digits --data_dir=data/digits --pool=photos/ --num_per_class=1000 \
        --output_dir=data/digits_photos
    python -m image.main --do_train --task_name=digits --data_dir=data/digits_photos ...

The records of output_dir have the labelled and test sets of data_dir and, as unlabelled data, the kept images, equally
many of each predicted class. The pool may be larger than the memory. A stopped run is taken up by the same command.
"""

import functools
import hashlib
import os
from typing import NamedTuple

import numpy as np

from augmentation.randaugment import AUGMENTATIONS
from image import export, preprocess, record_format
from image.config import DataConfig
from image.datasets import Source
from image.datasets.arrays import ArrayFile
from image.datasets.folder import ImageFolder
from utils import cli, domain_filter, files, locks, records, settings
from utils.settings import config_class, setting


@config_class(batch_size=256)
class Config(domain_filter.FilterConfig):
    data_dir: str = setting("", "Records that the model was trained on.")
    output_dir: str = setting("", "Where the records go.")
    aug_ops: str = setting("randaugment", "Augmentation of the kept images.", tuple(AUGMENTATIONS), alias="aug")
    aug_mode: str = setting("offline", "online: write no copies, the trainer augments.", ("offline", "online"))
    aug_copy: int = setting(10, "Number of augmented copies; more can be added later.", minimum=1)
    seed: int = setting(0, "Seed of the augmentation.", minimum=0)
    workers: int = setting(os.cpu_count() or 1, "Processes that augment.", minimum=1)

    batches_per_block = 4
    required = ("model_dir", "data_dir", "pool", "output_dir")


def filter_pool(config):
    """Writes records, the kept images as kept_images.npy, and domain_filter.json and .png, which tell what was kept.

    Returns:
      the summary, see utils.domain_filter.summarize.
    """
    facts, predict_proba, fingerprint = domain_filter.load_model(export.load, config.model_dir)
    if facts.name == "imagenet":
        raise ValueError(f"model_dir={config.model_dir}: ImageNet has no records, to which kept images could be added.")
    check_folders(config.data_dir, config.output_dir, facts)
    augmentation = {name: getattr(config, name) for name in ("aug_ops", "aug_mode", "aug_copy")}
    data_config = DataConfig(task_name=facts.name, data_dir=config.output_dir, **augmentation)
    images, path = open_pool(config.pool), functools.partial(os.path.join, config.output_dir)
    if files.exists(path("unsup")) and not files.exists(path("domain_filter.npz")):
        raise ValueError(f"output_dir={config.output_dir} holds records: delete it, or choose another --output_dir.")
    record_format.write_facts(config.output_dir, facts)
    with locks.hold(config.output_dir, "another filtering", "wait for its end, or choose another --output_dir."):
        files.remove_leftovers(*map(path, ("kept_images.npy", "domain_filter.npz", "domain_filter.json")))
        return _filter_pool(config, data_config, facts, predict_proba, fingerprint, images, path)


def _filter_pool(config, data_config, facts, predict_proba, fingerprint, images, path):
    def read(start):
        return read_usable(images, facts.image_size, range(start, images.num_images))

    def predict(examples):
        return predict_proba(np.stack(examples), batch_size=config.batch_size)

    identity, state_path = {"pool": images.checksum, "model": fingerprint}, path("domain_filter.npz")
    selection = domain_filter.select(read, images.num_images, predict, facts.num_classes, config, state_path, identity)
    kept = KeptImages(path("kept_images.npy"))
    source = Source(facts, kept, {"unlabeled": kept.write(images, facts.image_size, selection.kept().positions)})
    skipped = [images.name(position) for position in selection.skipped]
    summary = domain_filter.write_summary(path("domain_filter"), config, selection, facts.class_names, skipped=skipped)
    copy_labelled(config.data_dir, config.output_dir)
    preprocess.write_records(data_config, source, config.seed, "unsup", workers=config.workers)
    return summary


def check_folders(data_dir, output_dir, facts):
    if record_format.read_facts(data_dir) != facts:
        raise ValueError(f"data_dir={data_dir} holds records of other data than the model was trained on.")
    if files.resolve(output_dir) == files.resolve(data_dir):
        raise ValueError(f"output_dir={output_dir} is data_dir, whose unlabelled images stay: choose another one.")


# ---- the pool -------------------------------------------------------------------------------------------------------


def open_pool(path):
    """Returns the images below a folder, or those of a .npy or .npz file."""
    if files.is_folder(path):
        return ImageFolder(path, "pool", labelled=False)
    if files.is_file(path) and path.endswith((".npy", ".npz")):
        return ArrayFile(path, "pool", labelled=False)
    raise ValueError(f"pool={path!r}: expected a folder of images, or a .npy or .npz file of them.")


def read_usable(images, image_size, positions):
    """Yields the images at these positions, and None for each that cannot be read."""
    return (None if isinstance(image, ValueError) else image for image in images.read(image_size, positions))


# ---- the output -----------------------------------------------------------------------------------------------------


class KeptImages(NamedTuple):
    """A .npy file of images, which are written one by one, and read when they are used."""

    path: str

    def write(self, images, image_size, positions):
        """Returns the checksum of the pixels."""
        digest = hashlib.sha256()
        header = {"descr": "|u1", "fortran_order": False, "shape": (len(positions), image_size, image_size, 3)}
        advice = "make room; the same command goes on from what is finished."
        with files.explain_refusal(self.path, advice), files.replacing(self.path, "wb") as file:
            np.lib.format.write_array_header_1_0(file, header)
            for image in images.read(image_size, positions):
                if isinstance(image, ValueError):
                    raise ValueError(f"The pool was changed; leave it as it is. {image}")
                content = image.tobytes()
                file.write(content)
                digest.update(content)
        return digest.hexdigest()

    def __call__(self):
        with files.open_array(self.path) as (header, file):
            start = file.tell()
        return {"unlabeled": (files.map_array(self.path, header.dtype, header.shape, start), None)}


def copy_labelled(data_dir, output_dir):
    """Takes over all sets of data_dir but the unlabelled ones. Records never change, so a hard link is enough."""
    for parent, _, names in files.walk(data_dir):
        place = os.path.relpath(parent, data_dir)
        if place.split(os.sep)[0] == "test" or place.startswith("sup-"):
            for name in names:
                if ".tmp-" not in name:
                    _link_or_copy(os.path.join(parent, name), os.path.join(output_dir, place, name))


def _link_or_copy(source, target):
    if files.exists(target):
        return
    with records.explain_refusal(os.path.dirname(target)):
        files.make_folder(os.path.dirname(target))
        try:
            os.link(source, target)
        except OSError:  # on another disk, or another machine
            files.copy(source, target)


# ---- from the command line ------------------------------------------------------------------------------------------


def define_flags():
    settings.define_flags(Config)


def main():
    config = settings.from_flags(Config)
    summary = filter_pool(config)
    print(domain_filter.describe(summary))
    if summary["skipped"]:
        print(f"images that cannot be read are listed in {os.path.join(config.output_dir, 'domain_filter.json')}")
    print(f"records with the kept images as unlabelled data are in {config.output_dir}")


if __name__ == "__main__":
    cli.run(main, define_flags)
