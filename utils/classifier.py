"""What ImageClassifier and TextClassifier share: settings by keyword, prediction, evaluation, export."""

import dataclasses
import os
import tempfile

import numpy as np

from utils import auto_settings, files


class Classifier:
    """A classifier that learns from few labelled and many unlabelled examples, through the records and the trainer.

    A subclass has `config_class`, `defaults`, which differ from that class' own, `derived`, the settings that the data
    determine, and
      load_model(export_dir): returns the exported model, with `facts` and `predict_proba`;
      check_labelled(examples, labels): returns both, with labels as an array, or raises ValueError.
    """

    def __init__(self, model_dir, strategy, settings, mode="", minutes=0.0):
        """Args:
        settings: values by name.
        mode: "auto" chooses settings from the data; others count more. minutes: see utils.auto_settings.
        """
        auto_settings.check_mode(mode, minutes)
        known = {field.name for field in dataclasses.fields(self.config_class)} - self.derived
        unknown = sorted(set(settings) - known)
        if unknown:
            raise ValueError(f"unknown settings {', '.join(unknown)}: choose from {', '.join(sorted(known))}.")
        self.model_dir = model_dir or tempfile.mkdtemp(prefix="uda_")
        self.export_dir = os.path.join(self.model_dir, "export")
        self.strategy, self.settings, self._exported = strategy, self.defaults | settings, None
        self.given, self.mode, self.minutes = settings, mode, minutes

    def create_config(self, num_labels, **derived):
        """The configuration of the run; the development split comes out of the labels that were given."""
        dev_size = self.settings.get("dev_size", 0)
        if dev_size >= num_labels:
            raise ValueError(f"dev_size={dev_size} leaves nothing of {num_labels} labelled examples to train on.")
        # The seed also draws the development split.
        draw = {"sup_size": num_labels - dev_size, "label_seed": self.settings.get("seed", 0)}
        values = self.settings | {"data_dir": self.data_dir} | draw | derived
        return self.config_class(**auto_settings.fit_warmup(values, self.given) if self.mode else values)

    def choose_settings(self, config, choose, strategy):
        """The configuration of the run, by `choose` of the subclass' trainer if settings are to be chosen."""
        return choose(config, self.given, self.model_dir, strategy, self.minutes) if self.mode else config

    @property
    def data_dir(self):
        return os.path.join(self.model_dir, "records")

    def predict_proba(self, examples):
        """Probabilities, float32 [number, classes], in the order of `classes`."""
        return self.trained().predict_proba(examples)

    def predict(self, examples):
        """The most probable label of each example, as it was spelt in `fit`."""
        return self.classes[np.argmax(self.predict_proba(examples), axis=-1)]

    def evaluate(self, examples, labels):
        """Returns {"accuracy", "error_rate"}."""
        examples, labels = self.check_labelled(examples, labels)
        if not len(labels):
            raise ValueError("there are no examples to evaluate on: expected at least one.")
        unknown = set(labels.tolist()) - set(self.classes.tolist())
        if unknown:
            raise ValueError(f"labels {sorted(unknown)} did not occur in training: known are {self.classes.tolist()}.")
        accuracy = float(np.mean(self.predict(examples) == labels))
        return {"accuracy": accuracy, "error_rate": 1.0 - accuracy}

    @property
    def classes(self):
        """The labels, sorted."""
        return np.array(self.trained().facts.class_names)

    def export(self, export_dir):
        """Copies the SavedModel, which takes raw examples, to a folder that does not exist yet."""
        self.trained()
        files.copy_folder(self.export_dir, export_dir)

    @classmethod
    def load(cls, export_dir):
        """A classifier from an exported folder, to predict with."""
        classifier = cls.__new__(cls)
        classifier.export_dir, classifier._exported = export_dir, cls.load_model(export_dir)
        classifier.model_dir = None
        return classifier

    def check_trainable(self):
        if self.model_dir is None:
            raise ValueError(f"a loaded classifier only predicts: train another {type(self).__name__}(model_dir).")

    def trained(self):
        if self._exported is None:
            raise ValueError(f"the classifier is not trained yet: call fit, or {type(self).__name__}.load.")
        return self._exported


def number_classes(labels):
    """Returns the different labels, sorted, and the number of each example's label among them."""
    if labels.dtype.kind == "S":
        raise ValueError("labels are bytes: expected numbers or strings, such as labels.astype(str).")
    classes, numbers = np.unique(labels, return_inverse=True)
    if len(classes) < 2:
        raise ValueError(f"labels are all {classes.tolist()}: expected at least two classes.")
    return classes, numbers
