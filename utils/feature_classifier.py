"""UDA on features that the user brings, from whatever network made them.

classifier = FeatureClassifier("runs/mine")
classifier.fit(features, labels, unlabeled, augmented)     # [n, width], [n], [N, width], [N, width]
classifier.predict(new_features)
classifier.export("exported"); FeatureClassifier.load("exported")
"""

import collections
import os

import numpy as np
import tensorflow as tf

from utils import cluster, distribution, features, files, run_dir, saved_models
from utils.classifier import Classifier

Exported = collections.namedtuple("Exported", "facts predict_proba")
Facts = collections.namedtuple("Facts", "class_names width")


def load(export_dir):
    """Loads what features.export_head wrote.

    Returns:
      Exported: facts, and predict_proba from features [number, width] to a float32 array of class probabilities.
    """
    path = os.path.join(export_dir, "features.json")
    if not tf.io.gfile.exists(path):
        raise ValueError(f"{export_dir} holds no exported classifier of features: there is no {path}.")
    facts = _read_facts(path)
    serve = saved_models.load(export_dir, {"features": [facts.width]}, len(facts.class_names))

    def predict_proba(examples):
        examples = features.check_features("features", examples, facts.width).astype(np.float32, copy=False)
        return serve(features=tf.constant(examples))["probabilities"].numpy()

    return Exported(facts, predict_proba)


def _read_facts(path):
    values, advice = files.read_json(path), saved_models.EXPORT_AGAIN
    files.check_fields(path, values, {"class_names": list, "width": range(1, 1 << 31)}, advice=advice)
    files.check_labels(path, values["class_names"], advice)
    return Facts(values["class_names"], values["width"])


class FeatureClassifier(Classifier):
    """A linear classifier that learns from the features of few labelled and many unlabelled examples."""

    config_class, defaults = features.HeadConfig, {}
    derived = {"task_name", "data_dir", "sup_size", "label_seed", "aug_copy", "verify_records"}
    load_model = staticmethod(load)

    def __init__(self, model_dir=None, strategy="auto", **settings):
        """Args:
        model_dir: where checkpoints and the exported model go; None makes a temporary folder.
        strategy: see utils.distribution.create_strategy.
        settings: fields of utils.features.HeadConfig, such as train_steps, learning_rate, unsup_coeff or dev_size.
        """
        super().__init__(model_dir, strategy, settings)

    def fit(self, examples, labels, unlabeled=None, augmented=None):
        """Trains, or continues a training of the same settings in model_dir.

        Args:
          examples: features of the labelled examples, [n, width]; labels: a number or string for each.
          unlabeled: features of the unlabelled examples, [N, width]; None trains without consistency.
          augmented: features of augmented copies of them, in the same order, [N, width] or [copies, N, width].
        """
        self.check_trainable()
        data = features.create_data(examples, labels, unlabeled, augmented)
        derived = {"task_name": "features", "data_dir": self.model_dir}
        derived |= {"unsup_ratio": 0} if unlabeled is None else {}
        config = self.create_config(len(data.sup.labels), **derived)
        strategy = distribution.create_strategy(self.strategy)
        data = features.split_labelled(data, config)
        with cluster.explain_loss(), run_dir.hold(self.model_dir) as own_dir:
            features.train_and_evaluate(config, data, own_dir, strategy, do_eval=False)
        self._exported = load(self.export_dir)
        return self

    @staticmethod
    def check_labelled(examples, labels):
        examples, labels = features.check_features("features", examples), np.asarray(labels)
        if labels.shape != (len(examples),):
            raise ValueError(f"labels have shape={labels.shape}: expected one for each of {len(examples)} examples.")
        return examples, labels
