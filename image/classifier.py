"""UDA on the user's own images, through the same records and the same trainer as image.main.

classifier = ImageClassifier("runs/mine", train_steps=20_000)
classifier.fit(images, labels, unlabeled_images)     # uint8 arrays [number, size, size, 3]
classifier.predict(new_images)
classifier.fit_folder("photos/train", "photos/more")     # instead of fit: a folder for each class; any images
names, new_images = classifier.read_images("photos/new")
classifier.export("exported"); ImageClassifier.load("exported")
"""

import dataclasses
import hashlib
import os
import shutil
import tempfile

import numpy as np

from image import export, own_images, preprocess, record_format
from image.config import Config
from image.datasets import Facts, channel_statistics
from image.train import train_and_evaluate
from utils import distribution

MIN_SIZE, MAX_SIZE = 8, 512

# Far fewer steps than the paper's 500,000; the averaged weights then need a faster decay.
DEFAULTS = {"train_steps": 20_000, "ema_decay": 0.999, "save_steps": 2000, "log_steps": 200}
# What the data determine.
DERIVED = {"task_name", "data_dir", "sup_size", "label_seed", "use_equal_split"}


class ImageClassifier:
    """A classifier that learns from few labelled and many unlabelled images."""

    def __init__(self, model_dir=None, flip=False, strategy="auto", **settings):
        """Args:
        model_dir: where records, checkpoints and the exported model go; None makes a temporary folder.
        flip: whether a mirrored image belongs to the same class, so that training may flip images.
        strategy: see utils.distribution.create_strategy.
        settings: fields of image.config.Config, such as train_steps, train_batch_size, unsup_ratio or dev_size.
        """
        known = {field.name for field in dataclasses.fields(Config)} - DERIVED
        unknown = sorted(set(settings) - known)
        if unknown:
            raise ValueError(f"unknown settings {', '.join(unknown)}: choose from {', '.join(sorted(known))}.")
        self.model_dir = model_dir or tempfile.mkdtemp(prefix="uda_")
        self.flip, self.strategy, self.settings = flip, strategy, DEFAULTS | settings
        self._exported = None

    def fit(self, images, labels, unlabeled_images=None):
        """Trains, or continues a training of the same data and settings in model_dir.

        Args:
          images: uint8 [number, size, size, 3], size from 8 to 512.
          labels: one number or string for each image.
          unlabeled_images: like `images`; None trains on the labelled images alone.
        """
        labels = _check_labelled(images, labels)
        classes, label_ids = np.unique(labels, return_inverse=True)
        if len(classes) < 2:
            raise ValueError(f"labels are all {classes.tolist()}: expected at least two classes.")
        settings, all_images = self.settings, images
        if unlabeled_images is None:
            settings = settings | {"unsup_ratio": 0}
        else:
            export.check_images(unlabeled_images, images.shape[1])
            all_images = np.concatenate([images, unlabeled_images])
        facts = describe(all_images, classes, self.flip)
        return self._fit(facts, {"train": (images, label_ids), "unlabelled": (all_images, None)}, settings)

    def fit_folder(self, train_dir, unlabeled_dir="", image_size=0):
        """Like fit, on image files; image.own_images tells how they are read, and which images are left out.

        Args:
          train_dir: labelled images, those of each class in a folder of its name.
          unlabeled_dir: more images, anywhere below; "" trains on the labelled images alone.
          image_size: side of the images in pixels; 0 finds it from the data.
        """
        splits = own_images.open_folders(train_dir, unlabeled_dir)
        facts, read_arrays, _ = own_images.prepare("folder", splits, self._data_dir, image_size, self.flip)
        return self._fit(facts, read_arrays(), self.settings | ({} if unlabeled_dir else {"unsup_ratio": 0}))

    def _fit(self, facts, arrays, settings):
        config = Config(
            task_name=facts.name,
            data_dir=self._data_dir,
            sup_size=len(arrays["train"][0]),
            label_seed=settings.get("seed", 0),  # puts the labelled images in random order, for the dev split
            **settings,
        )
        write_records(config, facts, arrays)
        strategy = distribution.create_strategy(self.strategy)
        train_and_evaluate(config, self.model_dir, strategy, do_eval=False)
        self._exported = export.load(os.path.join(self.model_dir, "export"))
        return self

    @property
    def _data_dir(self):
        return os.path.join(self.model_dir, "records")

    def read_images(self, path):
        """Names and images of an image file or of all below a folder, in the form in which `predict` takes them."""
        return export.read_images(path, self._trained().facts.image_size)

    def predict_proba(self, images):
        """Probabilities, float32 [number, classes], in the order of `classes`."""
        return self._trained().predict_proba(images)

    def predict(self, images):
        """The most probable label of each image, as it was spelt in `fit`."""
        return self.classes[np.argmax(self.predict_proba(images), axis=-1)]

    def evaluate(self, images, labels):
        """Returns {"accuracy", "error_rate"}."""
        labels = _check_labelled(images, labels)
        unknown = set(labels.tolist()) - set(self.classes.tolist())
        if unknown:
            raise ValueError(f"labels {sorted(unknown)} did not occur in training: known are {self.classes.tolist()}.")
        accuracy = float(np.mean(self.predict(images) == labels))
        return {"accuracy": accuracy, "error_rate": 1.0 - accuracy}

    @property
    def classes(self):
        """The labels, sorted."""
        return np.array(self._trained().facts.class_names)

    def export(self, export_dir):
        """Copies the SavedModel, which takes raw uint8 images, to a folder that does not exist yet."""
        self._trained()
        shutil.copytree(os.path.join(self.model_dir, "export"), export_dir)

    @classmethod
    def load(cls, export_dir):
        """A classifier from an exported folder, to predict with."""
        exported = export.load(export_dir)
        classifier = cls.__new__(cls)
        classifier.model_dir, classifier._exported = os.path.dirname(os.path.abspath(export_dir)), exported
        return classifier

    def _trained(self):
        if self._exported is None:
            raise ValueError("the classifier is not trained yet: call fit, or ImageClassifier.load.")
        return self._exported


def describe(images, classes, flip):
    """Facts about the user's images: size, and mean and deviation of each channel."""
    mean, std = channel_statistics(images)
    return Facts(
        name="arrays",
        image_size=images.shape[1],
        class_names=tuple(classes.tolist()),
        mean=mean,
        std=std,
        flip=flip,
        train_size=len(images),
        test_size=0,
    )


def write_records(config, facts, arrays):
    """Writes the records that `config` needs, or checks that those in place are of the same data."""
    draw = {name: getattr(config, name) for name in ("sup_size", "use_equal_split", "label_seed", "dev_size")}
    online, num_images = config.aug_mode == "online", len(arrays["unlabelled"][0])
    num_copies = config.aug_copy if config.sup_aug != "crop_flip" and not online else 0
    labels, data_dir = arrays["train"][1], config.data_dir
    copies = config.sup_aug, num_copies, config.seed, config.chosen_ops
    plans = list(preprocess.plan_labelled(data_dir, facts, labels, draw, *copies))
    if config.unsup_ratio and online:
        plans += preprocess.plan_originals(data_dir, num_images, config.unsup_size)
    elif config.unsup_ratio:
        copies = config.aug, config.aug_copy, config.seed, config.chosen_ops
        plans += preprocess.plan_unlabelled(data_dir, num_images, *copies, config.unsup_size)
    fingerprint = hashlib.sha256(np.ascontiguousarray(arrays["unlabelled"][0]))
    fingerprint.update(labels)
    plans = [plan._replace(settings=plan.settings | {"data_sha256": fingerprint.hexdigest()}) for plan in plans]
    record_format.write_facts(config.data_dir, facts)
    preprocess.write_sets(plans, lambda: arrays, facts)


def _check_labelled(images, labels):
    export.check_images(images)
    if not MIN_SIZE <= images.shape[1] <= MAX_SIZE:
        raise ValueError(f"images are {images.shape[1]} pixels wide: sizes from {MIN_SIZE} to {MAX_SIZE} can be used.")
    labels = np.asarray(labels)
    if labels.shape != images.shape[:1]:
        raise ValueError(f"labels have shape={labels.shape}: expected one for each of the {len(images)} images.")
    return labels
