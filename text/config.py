"""Everything that determines the records and the result of a text run; one flag for each field.

DataConfig is what text.preprocess writes and text.main reads; PreprocessConfig adds where the texts come from, and
Config the network and the training. text.pretrain takes its texts from a SourceConfig, too.
"""

from augmentation import text_ops
from text.datasets import TASK_NAMES
from text.models import MODELS
from text.models.bert import POOLINGS
from utils.settings import ObjectiveConfig, RecordsConfig, Settings, WorkConfig, config_class, setting


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
    task_name: str = setting("imdb", "Data set; csv for your own files.", TASK_NAMES)
    init_checkpoint: str = setting("", "Pre-trained model: a BERT checkpoint or a Hugging Face folder; '' for none.")
    sup_ids_file: str = setting("", "File with the ids of the labelled examples, one a line.")
    aug_ops: str = setting(
        "bt-0.9", "Augmentations of the unlabelled texts: tf_idf-P, tf_idf_paper-P, unif-P, bt-T; join with +."
    )
    max_seq_length: int = setting(128, "Most word pieces of an example.", minimum=4, maximum=512)


@config_class()
class PreprocessConfig(DataConfig, SourceConfig, WorkConfig):
    test_file: str = setting("", "csv: texts to test on; may be left out.")
    trunc_keep_right: bool = setting(True, "Keep the end of a text that is too long, not its beginning.")
    back_translation_dir: str = setting("", "For bt-T: folder with the paraphrases.")

    def __post_init__(self):
        super().__post_init__()
        if self.data_type != "sup":
            text_ops.split_ops(self.aug_ops)


@config_class(unsup_ratio=3, train_batch_size=8, train_steps=10_000, learning_rate=2e-5, warmup_steps=1000)
class Config(DataConfig, ObjectiveConfig):
    # Network
    model_name: str = setting("bert", "Network: bert, the paper's random transformer, or bag_of_words.", tuple(MODELS))
    bert_config_file: str = setting("", "Size of the BERT; default the file that lies beside init_checkpoint.")
    pooling: str = setting("cls", "What the classifier sees: BERT's pooler, or the mean of the tokens.", POOLINGS)
    model_dropout: float = setting(-1.0, "Dropout in the encoder; -1: as its configuration says.", maximum=0.9)
    trainable_layers: int = setting(
        -1, "Train only so many of the encoder's top layers, and the classifier; -1: everything.", minimum=-1
    )
    mixed_precision: str = setting("", "Compute in 16 bits; '' for 32.", ("", "float16", "bfloat16"))

    # Optimisation
    accumulation_parts: int = setting(
        1, "Parts in which a batch goes through the network, for small memories; the update is the same.", minimum=1
    )
    weight_decay_rate: float = setting(0.01, "AdamW's decay, of all weights but biases and LayerNorm.", minimum=0)
    clip_norm: float = setting(1.0, "Largest norm of the whole gradient; 0 for no clipping.", minimum=0)

    def __post_init__(self):
        super().__post_init__()
        if self.unsup_ratio:
            text_ops.split_ops(self.aug_ops)
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
