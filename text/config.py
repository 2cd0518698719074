"""Everything that determines the records and the result of a text run; one flag for each field.

DataConfig is what text.preprocess writes and text.main reads; PreprocessConfig adds where the texts come from, and
Config the network and the training. text.pretrain takes its texts from a SourceConfig, too.
"""

import re

from augmentation import text_ops
from text.datasets import TASK_NAMES
from text.models import MODELS
from text.models.bert import POOLINGS
from utils import features
from utils.features import AdamConfig
from utils.settings import (
    AugmentationConfig,
    ReadingConfig,
    RecordsConfig,
    Settings,
    WorkConfig,
    config_class,
    setting,
)

# A frozen encoder and a linear classifier: minutes on a CPU.
FROZEN = features.RECIPE | {"trainable_layers": 0, "aug_ops": "tf_idf-0.3"}
# The same, and then the top layers.
LAYERS = {"aug_ops": "tf_idf-0.3", "head_steps": 600, "trainable_layers": 2, "layer_decay": 0.8}
LAYERS |= {"train_batch_size": 8, "unsup_ratio": 3, "unsup_coeff": 20.0, "uda_softmax_temp": 0.4, "ema_decay": 0.98}
LAYERS |= {"learning_rate": 3e-4, "train_steps": 200, "warmup_steps": 20, "bias_correction": True}
LAYERS |= {"fixed_target": True, "model_dropout": 0.0, "save_steps": 50, "log_steps": 10, "keep_states": True}
# The whole encoder, in fewer steps than the paper's, with an augmentation that needs nothing but the texts.
FINETUNE = {"aug_ops": "tf_idf-0.3", "aug_copy": 2, "tsa": "linear", "train_steps": 1000, "warmup_steps": 100}
FINETUNE |= {"save_steps": 200, "log_steps": 20}
RECIPES = {"paper": {}, "frozen": FROZEN, "layers": LAYERS, "finetune": FINETUNE}


@config_class()
class SourceConfig(Settings):
    """Where texts come from, and their word pieces."""

    task_name: str = setting("imdb", "Data set; csv for your own files.", TASK_NAMES)
    raw_data_dir: str = setting("", "Folder with the official files; default data/raw/<task_name>.", resumable=True)
    train_file: str = setting("", "csv: labelled texts, .csv, .tsv or .jsonl, also with .gz.", resumable=True)
    unlabeled_file: str = setting("", "Unlabelled texts; default the texts of the training set.", resumable=True)
    text_column: str = setting("text", "csv: column of the text; a number in files without a header.")
    title_column: str = setting("", "csv: column of a title, where there is one.")
    label_column: str = setting("label", "csv: column of the class.")
    allow_partial: bool = setting(False, "Take what there is when the official files hold fewer examples.")
    vocab_file: str = setting("", "Vocabulary; default the vocab.txt that lies beside init_checkpoint.", resumable=True)
    do_lower_case: bool = setting(True, "Lower-case all texts: True for an uncased vocabulary.")


@config_class(sup_size=20, aug_copy=1)
class DataConfig(RecordsConfig):
    recipes = RECIPES

    task_name: str = setting(
        "imdb", "Data set; csv for your own files, features for a features_file.", (*TASK_NAMES, "features")
    )
    init_checkpoint: str = setting("", "Pre-trained model: a name (docs/texts.md) or the path of a BERT; '' for none.")
    sup_ids_file: str = setting("", "File with the ids of the labelled examples, one a line.")
    aug_ops: str = setting(
        "bt-0.9", "Augmentations of the unlabelled texts: tf_idf-P, tf_idf_paper-P, unif-P, bt-T; join with +."
    )
    max_seq_length: int = setting(128, "Most word pieces of an example.", minimum=4, maximum=512)


@config_class()
class PreprocessConfig(DataConfig, SourceConfig, AugmentationConfig):
    test_file: str = setting("", "csv: texts to test on; may be left out.")
    trunc_keep_right: bool = setting(True, "Keep the end of a text that is too long, not its beginning.")
    text_prefix: str = setting("auto", "What every text begins with, '' for nothing; auto: what the encoder wants.")
    back_translation_dir: str = setting("", "For bt-T: folder with the paraphrases.")

    def __post_init__(self):
        super().__post_init__()
        if self.task_name == "features":
            raise ValueError("task_name=features: features need no preprocessing; give their file to text.main.")
        if self.data_type != "sup":
            text_ops.split_ops(self.aug_ops)


@config_class()
class EncoderConfig(Settings):
    """Which features of an encoder the classifier sees."""

    bert_config_file: str = setting("", "Size of the BERT; default the file that lies beside init_checkpoint.")
    pooling: str = setting(
        "auto",
        "What the classifier sees: BERT's pooler (cls), or the mean of the tokens; auto: what the encoder wants.",
        ("auto", *POOLINGS),
        synonym="cls",
    )
    feature_layer: str = setting(
        "", "Layers of the encoder, from 1, whose outputs the classifier sees, such as 9,10,11; '': what it wants."
    )

    def __post_init__(self):
        super().__post_init__()
        layers = self.feature_layers
        if layers != sorted({*layers}) or 0 in layers:
            raise ValueError(
                f"feature_layer={self.feature_layer!r}: expected numbers of layers, from 1, in ascending order, such "
                "as 12 or 9,10,11."
            )

    @property
    def feature_layers(self):
        """As numbers; none for those that the encoder wants."""
        names = self.feature_layer.split(",") if self.feature_layer else []
        return [int(name) if re.fullmatch("[0-9]{1,4}", name.strip()) else 0 for name in names]


@config_class()
class FeaturesConfig(DataConfig, EncoderConfig, WorkConfig, ReadingConfig):
    """What text.features computes, and what text.main reads of it."""


@config_class(unsup_ratio=3, train_batch_size=8, train_steps=10_000, learning_rate=2e-5, warmup_steps=1000)
class Config(DataConfig, EncoderConfig, AdamConfig):
    features_file: str = setting("", "features: .npz file of features of whatever kind.")

    # Network
    model_name: str = setting("bert", "Network: bert, the paper's random transformer, or bag_of_words.", tuple(MODELS))
    model_dropout: float = setting(-1.0, "Dropout in the encoder; -1: as its configuration says.", maximum=0.9)
    trainable_layers: int = setting(
        -1,
        "Train only so many of the encoder's top layers, and the classifier; 0: a linear classifier on frozen "
        "features; -1: everything.",
        minimum=-1,
    )
    head_steps: int = setting(0, "First train the classifier alone, so many steps, on frozen features.", minimum=0)
    head_learning_rate: float = setting(3e-4, "Peak learning rate of these head_steps.", minimum=0)
    keep_states: bool = setting(
        False, "With trainable_layers: compute once what the layers below those make of each text, and keep it."
    )

    fixed_target: bool = setting(
        False, "With head_steps: the target, also of the originals, is what they have reached, not the network's own."
    )

    # Optimisation
    accumulation_parts: int = setting(
        1, "Parts in which a batch goes through the network, for small memories; the update is the same.", minimum=1
    )
    layer_decay: float = setting(
        1.0, "Each layer learns at so much of the rate of the one above it.", minimum=0.01, maximum=1
    )

    def __post_init__(self):
        super().__post_init__()
        if self.task_name == "features":
            self._check_features()
            return
        self._check_encoder()
        if self.features_file:
            raise ValueError(f"features_file={self.features_file} is for task_name=features, not {self.task_name}.")
        if self.unsup_ratio:
            text_ops.split_ops(self.aug_ops)
        if (self.is_frozen or self.keep_states) and not (self.model_name == "bert" and self.init_checkpoint):
            raise ValueError(
                f"trainable_layers={self.trainable_layers}, head_steps={self.head_steps}, keep_states="
                f"{self.keep_states}: frozen features need model_name=bert and an init_checkpoint."
            )
        if self.keep_states and self.trainable_layers < 1:
            raise ValueError(f"keep_states with trainable_layers={self.trainable_layers}: expected at least 1.")
        if self.head_steps and not self.trainable_layers:
            raise ValueError(f"head_steps={self.head_steps}: expected 0 with trainable_layers=0, the head alone.")
        if self.fixed_target and not self.head_steps:
            raise ValueError("fixed_target with head_steps=0: expected head_steps, which the target comes from.")
        takes_weights = MODELS[self.model_name].load_weights is not None
        if takes_weights and not (self.bert_config_file or self.init_checkpoint):
            raise ValueError(
                f"model_name={self.model_name} needs bert_config_file, or init_checkpoint with such a file beside it."
            )
        if not takes_weights and (self.bert_config_file or self.init_checkpoint):
            raise ValueError(f"model_name={self.model_name} has its own size and no pre-trained weights: use bert.")
        if self.model_dropout < 0 and self.model_dropout != -1:
            raise ValueError(
                f"model_dropout={self.model_dropout}: expected at least 0, or -1 for the encoder's own rates."
            )
        if self.train_batch_size % self.accumulation_parts:
            raise ValueError(
                f"train_batch_size={self.train_batch_size}: expected a multiple of "
                f"accumulation_parts={self.accumulation_parts}."
            )

    def _check_encoder(self):
        """Refuses settings of an encoder that there is none of, or of which nothing is trained."""
        if self.model_name == "bag_of_words":
            self._refuse("model_name=bag_of_words has one layer", feature_layer="", pooling="auto", layer_decay=1.0)
        if self.trainable_layers == 0:
            idle = {"layer_decay": 1.0, "accumulation_parts": 1, "model_dropout": -1.0}
            self._refuse("trainable_layers=0 trains the head alone", **idle)

    def _refuse(self, why, **defaults):
        for name, default in defaults.items():
            if getattr(self, name) != default:
                raise ValueError(f"{name}={getattr(self, name)} would be without effect: {why}.")

    def _check_features(self):
        if self.init_checkpoint or self.head_steps or self.trainable_layers > 0:
            raise ValueError("task_name=features takes no init_checkpoint, head_steps or trainable_layers.")

    @property
    def is_frozen(self):
        """Whether features of the encoder are computed once, to train the head on them."""
        return self.trainable_layers == 0 or self.head_steps > 0
