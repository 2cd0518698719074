"""UDA on the user's own lists of texts, through the same records and the same trainer as text.main.

classifier = TextClassifier("e5-small", "runs/mine")
classifier.fit(texts, labels, unlabeled_texts)
classifier.predict(["A film to remember."])
classifier.export("exported"); TextClassifier.load("exported")
"""

import dataclasses

import numpy as np
import tensorflow as tf

from text import bert_weights, export, preprocess
from text.config import RECIPES, Config, DataConfig, PreprocessConfig
from text.datasets import lists
from text.datasets.source import clean
from text.train import choose_settings, train_and_evaluate
from utils import distribution
from utils.classifier import Classifier, number_classes


def choose_recipe(name):
    if name == "auto":
        name = "finetune" if tf.config.list_physical_devices("GPU") else "frozen"
    if name not in RECIPES:
        raise ValueError(f"recipe={name!r}: expected 'auto' or one of {', '.join(map(repr, RECIPES))}.")
    return RECIPES[name]


class TextClassifier(Classifier):
    """A classifier that learns from few labelled and many unlabelled texts."""

    config_class, defaults = Config, {}
    derived = {"task_name", "data_dir", "sup_size", "label_seed", "sup_ids_file", "init_checkpoint"}
    load_model = staticmethod(export.load)

    def __init__(
        self,
        init_checkpoint="e5-small",
        model_dir=None,
        recipe="auto",
        vocab_file="",
        lower_case=True,
        keep_tail=True,
        text_prefix="auto",
        back_translation_dir="",
        strategy="auto",
        settings="",
        minutes=0.0,
        **given,
    ):
        """Args:
        init_checkpoint: pre-trained weights, as text.bert_weights takes them: a name of text.encoders, or a path.
        model_dir: where records, checkpoints and the exported model go; None makes a temporary folder.
        recipe: a name of text.config.RECIPES, which `given` may change; "auto": "frozen" on a machine without a GPU,
          else "finetune".
        vocab_file: vocabulary of the word pieces; by default the vocab.txt that lies beside the weights.
        lower_case: False for a cased vocabulary.
        keep_tail: of a text longer than max_seq_length, keep the end; False keeps the beginning.
        text_prefix: what every text begins with; "auto": as the encoder wants it.
        back_translation_dir: for aug_ops="bt-T": folder with the paraphrases, a line for each of the labelled texts and
          then for each of the unlabelled ones.
        strategy: see utils.distribution.create_strategy.
        settings: "auto" chooses batch sizes and steps from the data; see docs/settings.md.
        minutes: with settings="auto", train about so long.
        given: fields of text.config.Config, such as train_steps, learning_rate, unsup_ratio, aug_ops or dev_size.
        """
        super().__init__(model_dir, strategy, choose_recipe(recipe) | given, settings, minutes)
        self.given = given
        self.init_checkpoint = init_checkpoint
        self.vocab_path = str(vocab_file) or bert_weights.find_vocab(init_checkpoint)
        self.lower_case, self.keep_tail, self.text_prefix = lower_case, keep_tail, text_prefix
        self.back_translation_dir = str(back_translation_dir)

    def fit(self, texts, labels, unlabeled_texts=None):
        """Trains, or continues a training of the same data and settings in model_dir.

        Args:
          texts: list of strings.
          labels: one number or string for each text.
          unlabeled_texts: list of strings, to which the labelled ones are added; None trains without consistency.
        """
        self.check_trainable()
        texts, labels = self.check_labelled(texts, labels)
        classes, numbers = number_classes(labels)
        derived, unlabeled = {"task_name": "csv", "init_checkpoint": self.init_checkpoint}, list(texts)
        if unlabeled_texts is None:
            derived["unsup_ratio"] = 0
        else:
            unlabeled += [text for text in export.check_texts("unlabeled_texts", unlabeled_texts) if clean(text)]
        config = self.create_config(len(texts), **derived)
        source = lists.create_source(config.task_name, classes.tolist(), (texts, numbers), unlabeled)
        preprocess.write_records(self._create_preprocess_config(config), source)
        strategy = distribution.create_strategy(self.strategy)
        config = self.choose_settings(config, choose_settings, strategy)
        train_and_evaluate(config, self.model_dir, strategy, do_eval=False)
        self._exported = self.load_model(self.export_dir)
        return self

    def _create_preprocess_config(self, config):
        """The seed of the run is that of the augmentation, too."""
        return PreprocessConfig(
            **{field.name: getattr(config, field.name) for field in dataclasses.fields(DataConfig)},
            vocab_file=self.vocab_path,
            do_lower_case=self.lower_case,
            trunc_keep_right=self.keep_tail,
            text_prefix=self.text_prefix,
            back_translation_dir=self.back_translation_dir,
            # Frozen features are standardised over the unlabelled texts, whether or not these are trained on.
            data_type="all" if config.unsup_ratio or config.is_frozen else "sup",
            seed=config.seed,
            workers=1,
        )

    @staticmethod
    def check_labelled(texts, labels):
        texts, labels = export.check_texts("texts", texts), np.asarray(labels)
        if labels.shape != (len(texts),):
            raise ValueError(f"labels have shape={labels.shape}: expected one for each of the {len(texts)} texts.")
        empty = next((position for position, text in enumerate(texts) if not clean(text)), None)
        if empty is not None:
            raise ValueError(f"texts[{empty}] is empty: a labelled text must have words.")
        return texts, labels
