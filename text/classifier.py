"""UDA on the user's own lists of texts, through the same records and the same trainer as text.main.

classifier = TextClassifier("uncased_L-12_H-768_A-12", "runs/mine", train_steps=2000)
classifier.fit(texts, labels, unlabeled_texts)
classifier.predict(["A film to remember."])
classifier.export("exported"); TextClassifier.load("exported")
"""

import dataclasses
import os
import shutil
import tempfile

import numpy as np

from text import bert_weights, datasets, export, preprocess
from text.config import Config
from text.train import train_and_evaluate
from utils import distribution

# Fewer steps than the paper's, and an augmentation that needs nothing but the texts.
DEFAULTS = {
    "aug_ops": "tf_idf-0.3",
    "aug_copy": 2,
    "tsa": "linear",
    "train_steps": 1000,
    "warmup_steps": 100,
    "save_steps": 200,
    "log_steps": 20,
}
# What the data determine.
DERIVED = {"task_name", "data_dir", "sup_size", "label_seed", "sup_ids_file", "init_checkpoint"}


class TextClassifier:
    """A classifier that learns from few labelled and many unlabelled texts."""

    def __init__(
        self,
        init_checkpoint,
        model_dir=None,
        vocab_file="",
        lower_case=True,
        keep_tail=True,
        strategy="auto",
        **settings,
    ):
        """Args:
        init_checkpoint: pre-trained weights, as text.bert_weights takes them: a BERT checkpoint or Hugging Face folder.
        model_dir: where records, checkpoints and the exported model go; None makes a temporary folder.
        vocab_file: vocabulary of the word pieces; by default the vocab.txt that lies beside the weights.
        lower_case: False for a cased vocabulary.
        keep_tail: of a text longer than max_seq_length, keep the end; False keeps the beginning.
        strategy: see utils.distribution.create_strategy.
        settings: fields of text.config.Config, such as train_steps, learning_rate, unsup_ratio, aug_ops or dev_size.
        """
        known = {field.name for field in dataclasses.fields(Config)} - DERIVED
        unknown = sorted(set(settings) - known)
        if unknown:
            raise ValueError(f"unknown settings {', '.join(unknown)}: choose from {', '.join(sorted(known))}.")
        self.init_checkpoint, self.model_dir = init_checkpoint, model_dir or tempfile.mkdtemp(prefix="uda_")
        self.vocab_path = vocab_file or bert_weights.find_vocab(init_checkpoint)
        self.lower_case, self.keep_tail, self.strategy = lower_case, keep_tail, strategy
        self.settings = DEFAULTS | settings
        self._exported = None

    def fit(self, texts, labels, unlabeled_texts=None):
        """Trains, or continues a training of the same data and settings in model_dir.

        Args:
          texts: list of strings.
          labels: one number or string for each text.
          unlabeled_texts: list of strings, to which the labelled ones are added; None trains without consistency.
        """
        texts, labels = _check_labelled(texts, labels)
        classes, label_ids = np.unique(labels, return_inverse=True)
        if len(classes) < 2:
            raise ValueError(f"labels are all {classes.tolist()}: expected at least two classes.")
        settings, unlabelled = self.settings, list(texts)
        if unlabeled_texts is None:
            settings = settings | {"unsup_ratio": 0}
        else:
            unlabelled += [text for text in export.check_texts("unlabeled_texts", unlabeled_texts) if text.strip()]
        sup_size = len(texts) - settings.get("dev_size", 0)
        config = Config(
            task_name=datasets.USER_FILES,
            data_dir=os.path.join(self.model_dir, "records"),
            sup_size=sup_size,
            label_seed=settings.get("seed", 0),  # of the draw of the development split
            init_checkpoint=self.init_checkpoint,
            **settings,
        )
        self._write_records(config, classes, (texts, label_ids), unlabelled)
        train_and_evaluate(config, self.model_dir, distribution.create_strategy(self.strategy), do_eval=False)
        self._exported = export.load(os.path.join(self.model_dir, "export"))
        return self

    def _write_records(self, config, classes, train, unlabelled):
        source = preprocess.create_list_source(config.task_name, classes.tolist(), train, unlabelled)
        preprocess.write_records(
            source,
            config.data_dir,
            self.vocab_path,
            draw={name: getattr(config, name) for name in ("sup_size", "label_seed", "dev_size", "sup_ids_file")},
            aug_ops=config.aug_ops if config.unsup_ratio else "",
            aug_copy=config.aug_copy,
            lower_case=self.lower_case,
            max_seq_length=config.max_seq_length,
            keep_tail=self.keep_tail,
            seed=config.seed,
        )

    def predict_proba(self, texts):
        """Probabilities, float32 [number, classes], in the order of `classes`."""
        return self._trained().predict_proba(texts)

    def predict(self, texts):
        """The most probable label of each text, as it was spelt in `fit`."""
        return self.classes[np.argmax(self.predict_proba(texts), axis=-1)]

    def evaluate(self, texts, labels):
        """Returns {"accuracy", "error_rate"}."""
        texts, labels = _check_labelled(texts, labels)
        unknown = set(labels.tolist()) - set(self.classes.tolist())
        if unknown:
            raise ValueError(f"labels {sorted(unknown)} did not occur in training: known are {self.classes.tolist()}.")
        accuracy = float(np.mean(self.predict(texts) == labels))
        return {"accuracy": accuracy, "error_rate": 1.0 - accuracy}

    @property
    def classes(self):
        """The labels, sorted."""
        return np.array(self._trained().facts.class_names)

    def export(self, export_dir):
        """Copies the SavedModel, which takes raw strings, to a folder that does not exist yet."""
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
            raise ValueError("the classifier is not trained yet: call fit, or TextClassifier.load.")
        return self._exported


def _check_labelled(texts, labels):
    texts, labels = export.check_texts("texts", texts), np.asarray(labels)
    if labels.shape != (len(texts),):
        raise ValueError(f"labels have shape={labels.shape}: expected one for each of the {len(texts)} texts.")
    empty = next((position for position, text in enumerate(texts) if not text.strip()), None)
    if empty is not None:
        raise ValueError(f"texts[{empty}] is empty: a labelled text must have words.")
    return texts, labels
