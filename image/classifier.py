"""UDA on the user's own images, through the same records and the same trainer as image.main.

classifier = ImageClassifier("runs/mine", train_steps=20_000)
classifier.fit(images, labels, unlabeled_images)     # uint8 arrays [number, size, size, 3]
classifier.predict(new_images)
classifier.fit_folder("photos/train", "photos/more")     # instead of fit: a folder for each class; any images
names, new_images = classifier.read_images("photos/new")
classifier.export("exported"); ImageClassifier.load("exported")
"""

import hashlib

import numpy as np

from image import export, preprocess
from image.config import Config
from image.datasets import arrays, decoded, folder
from image.train import choose_settings, train_and_evaluate
from utils import distribution
from utils.classifier import Classifier, number_classes


class ImageClassifier(Classifier):
    """A classifier that learns from few labelled and many unlabelled images."""

    config_class = Config
    # Far fewer steps than the paper's 500,000; the averaged weights then need a faster decay.
    defaults = {"train_steps": 20_000, "ema_decay": 0.999, "save_steps": 2000, "log_steps": 200}
    derived = {"task_name", "data_dir", "image_size", "sup_size", "label_seed", "use_equal_split"}
    load_model = staticmethod(export.load)

    def __init__(self, model_dir=None, flip=False, strategy="auto", settings="", minutes=0.0, **given):
        """Args:
        model_dir: where records, checkpoints and the exported model go; None makes a temporary folder.
        flip: whether a mirrored image belongs to the same class, so that training may flip images.
        strategy: see utils.distribution.create_strategy.
        settings: "auto" chooses batch sizes, thresholds and steps from the data; see docs/settings.md.
        minutes: with settings="auto", train about so long.
        given: fields of image.config.Config, such as train_steps, train_batch_size, unsup_ratio or dev_size.
        """
        super().__init__(model_dir, strategy, given, settings, minutes)
        self.flip = flip

    def fit(self, images, labels, unlabeled_images=None):
        """Trains, or continues a training of the same data and settings in model_dir.

        Args:
          images: uint8 [number, size, size, 3], size from 8 to 512.
          labels: one number or string for each image.
          unlabeled_images: like `images`; None trains on the labelled images alone.
        """
        self.check_trainable()
        images, labels = self.check_labelled(images, labels)
        classes, label_ids = number_classes(labels)
        if unlabeled_images is not None:
            export.check_images(unlabeled_images, images.shape[1])
        source = arrays.hold_in_memory(images, label_ids, classes.tolist(), unlabeled_images, self.flip)
        return self._fit(source, unlabeled_images is not None)

    def fit_folder(self, train_dir, unlabeled_dir="", image_size=0):
        """Like fit, on image files; image/datasets/decoded.py tells how they are read, and which are left out.

        Args:
          train_dir: labelled images, those of each class in a folder of its name.
          unlabeled_dir: more images, anywhere below; "" trains on the labelled images alone.
          image_size: side of the images in pixels; 0 finds it from the data.
        """
        self.check_trainable()
        splits = folder.open_folders(train_dir, unlabeled_dir)
        source = decoded.open_decoded("folder", splits, self.data_dir, image_size, self.flip)
        return self._fit(source, bool(unlabeled_dir))

    def _fit(self, source, has_unlabeled):
        images, labels = source.read()["unlabeled"][0], source.read()["train"][1]
        config = self.create_config(
            len(labels), task_name=source.facts.name, **{} if has_unlabeled else {"unsup_ratio": 0}
        )
        checksum = hashlib.sha256(np.ascontiguousarray(images))
        checksum.update(labels)
        source = source._replace(checksums=dict.fromkeys(decoded.SPLITS, checksum.hexdigest()))
        preprocess.write_records(config, source, config.seed, "all" if config.unsup_ratio else "sup")
        strategy = distribution.create_strategy(self.strategy)
        config = self.choose_settings(config, choose_settings, strategy)
        train_and_evaluate(config, self.model_dir, strategy, do_eval=False)
        self._exported = export.load(self.export_dir)
        return self

    def read_images(self, path):
        """Names and images of an image file or of all below a folder, in the form in which `predict` takes them."""
        return export.read_images(path, self.trained().facts.image_size)

    @staticmethod
    def check_labelled(images, labels):
        export.check_images(images)
        if not decoded.MIN_SIZE <= images.shape[1] <= decoded.MAX_SIZE:
            raise ValueError(
                f"images are {images.shape[1]} pixels wide: sizes from {decoded.MIN_SIZE} to {decoded.MAX_SIZE} can be "
                "used."
            )
        labels = np.asarray(labels)
        if labels.shape != images.shape[:1]:
            raise ValueError(f"labels have shape={labels.shape}: expected one for each of the {len(images)} images.")
        return images, labels
