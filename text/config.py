"""Everything that determines the result of a text run; one flag of text.main for each field."""

import dataclasses

from augmentation import text_ops
from text.datasets import TASK_NAMES
from text.models import MODELS
from text.models.bert import POOLINGS
from utils import settings
from utils.objective import TSA_SCHEDULES
from utils.settings import setting


@dataclasses.dataclass(frozen=True)
class Config:
    # Data, as text.preprocess wrote it
    task_name: str = setting("imdb", "Data set, as preprocessed; csv for your own files.", TASK_NAMES)
    data_dir: str = setting("data/imdb", "Folder with the records of text.preprocess.", resumable=True)
    sup_size: int = setting(20, "Number of labelled examples.", minimum=1)
    label_seed: int = setting(-1, "Seed of the draw of labelled examples; -1 is the original release's.", minimum=-1)
    sup_ids_file: str = setting("", "File with the ids of the labelled examples, as given to text.preprocess.")
    dev_size: int = setting(0, "How many further labelled examples choose the best checkpoint.", minimum=0)
    aug_ops: str = setting("bt-0.9", "Augmentations of the unlabelled texts, joined by +, such as tf_idf-0.7+bt-0.9.")
    aug_copy: int = setting(1, "Number of augmented copies to read of each.", minimum=1)
    max_seq_length: int = setting(128, "Most word pieces of an example; as the records were made.", minimum=4)
    shuffle_buffer: int = setting(100_000, "Records held in memory for shuffling.", minimum=1)

    # Objective
    unsup_ratio: int = setting(3, "Unlabelled examples per labelled one in a batch; 0 trains without them.", minimum=0)
    tsa: str = setting("", "Training signal annealing: schedule of the threshold, '' for none.", ("", *TSA_SCHEDULES))
    uda_softmax_temp: float = setting(-1.0, "Temperature τ that sharpens the target; -1 for none.")
    uda_confidence_thresh: float = setting(-1.0, "Confidence β an unlabelled example must exceed; -1 for none.")
    uda_coeff: float = setting(1.0, "Weight λ of the consistency loss.", minimum=0)
    ent_min_coeff: float = setting(0.0, "Weight of the entropy of predictions on unlabelled examples.", minimum=0)

    # Network
    model_name: str = setting("bert", "Network: bert, or the paper's random transformer.", tuple(MODELS))
    bert_config_file: str = setting("", "Size of the BERT; default the file that lies beside init_checkpoint.")
    init_checkpoint: str = setting("", "Pre-trained weights: a BERT checkpoint or a Hugging Face folder; '' for none.")
    pooling: str = setting("cls", "What the classifier sees: BERT's pooler, or the mean of the tokens.", POOLINGS)
    model_dropout: float = setting(-1.0, "Dropout in the encoder; -1: as its configuration says.", maximum=0.9)
    trainable_layers: int = setting(
        -1, "Train only so many of the encoder's top layers, and the classifier; -1: everything.", minimum=-1
    )
    mixed_precision: str = setting("", "Compute in 16 bits; '' for 32.", ("", "float16", "bfloat16"))

    # Optimisation
    train_batch_size: int = setting(8, "Labelled examples per step, over all replicas.", minimum=1)
    accumulation_parts: int = setting(
        1, "Parts in which a batch goes through the network, for small memories; the update is the same.", minimum=1
    )
    train_steps: int = setting(10_000, "Number of updates.", minimum=1)
    learning_rate: float = setting(2e-5, "Peak learning rate.", minimum=0)
    warmup_steps: int = setting(1000, "Steps of linear warm-up.", minimum=0)
    weight_decay_rate: float = setting(0.01, "AdamW's decay, of all weights but biases and LayerNorm.", minimum=0)
    clip_norm: float = setting(1.0, "Largest norm of the whole gradient; 0 for no clipping.", minimum=0)
    ema_decay: float = setting(0.0, "Decay of the averaged weights used in evaluation; 0 for none.", minimum=0)
    # The input pipeline makes several 32-bit seeds out of this one.
    seed: int = setting(0, "Seed of initial weights, data order and dropout.", minimum=0, maximum=2**29)
    jit_compile: bool = setting(False, "Compile the step with XLA (one device; a TPU always does).")

    # Course of the run
    eval_batch_size: int = setting(32, "Examples per evaluation step.", minimum=1, resumable=True)
    save_steps: int = setting(1000, "Steps between checkpoints, and evaluations on the development split.", minimum=1)
    max_save: int = setting(5, "Number of checkpoints kept.", minimum=1, resumable=True)
    log_steps: int = setting(100, "Steps between lines of metrics.", minimum=1, resumable=True)
    eval_steps: int = setting(
        0, "Steps between evaluations on the test set, for the curve only; 0 for none.", minimum=0, resumable=True
    )
    iterations: int = setting(
        10, "Most steps in one call of the device; lowered to divide the other step counts.", minimum=1, resumable=True
    )

    def __post_init__(self):
        settings.check(self)
        settings.check_objective(self)
        if self.unsup_ratio:
            text_ops.split_ops(self.aug_ops)
        if self.model_name == "bert" and not (self.bert_config_file or self.init_checkpoint):
            raise ValueError("model_name=bert needs bert_config_file, or init_checkpoint with such a file beside it.")
        if self.model_name != "bert" and (self.bert_config_file or self.init_checkpoint):
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
