"""Everything that determines the result of an image run; one flag of image.main for each field."""

import dataclasses

from augmentation.randaugment import AUGMENTATIONS, OP_NAMES, choose_ops
from image.models import MODELS
from utils import settings
from utils.objective import TSA_SCHEDULES
from utils.schedules import LR_SCHEDULES
from utils.settings import setting


@dataclasses.dataclass(frozen=True)
class Config:
    # Data, as image.preprocess wrote it
    task_name: str = setting("cifar10", "Data set, as in image.preprocess, or imagenet.")
    data_dir: str = setting(
        "data/cifar10", "Folder with the records of image.preprocess, or ImageNet's files.", resumable=True
    )
    sup_size: int = setting(4000, "Number of labelled examples.", minimum=1)
    use_equal_split: bool = setting(False, "Labelled examples were drawn in equal numbers from each class.")
    label_seed: int = setting(-1, "Seed of the draw of labelled examples; -1 is the original release's.", minimum=-1)
    dev_size: int = setting(0, "How many labelled examples are held out to choose the best checkpoint.", minimum=0)
    aug: str = setting("randaugment", "Augmentation of the unlabelled examples.", tuple(AUGMENTATIONS))
    sup_aug: str = setting("crop_flip", "Augmentation of the labelled examples.", tuple(AUGMENTATIONS))
    ops: str = setting("", "randaugment: draw from these operations only, separated by commas; '' for all.")
    num_ops: int = setting(0, "randaugment: draw from so many operations, chosen at random; 0 for all.", minimum=0)
    ops_seed: int = setting(0, "Seed of the choice of num_ops operations.", minimum=0)
    aug_mode: str = setting(
        "offline", "Read augmented copies from disk, or augment while training.", ("offline", "online")
    )
    aug_copy: int = setting(10, "Offline: number of augmented copies to read.", minimum=1)
    unsup_size: int = setting(0, "Use only so many unlabelled examples; 0 for all.", minimum=0)
    shuffle_buffer: int = setting(100_000, "Records held in memory for shuffling.", minimum=1)

    # Data, of ImageNet only, as image.imagenet_index found it
    image_size: int = setting(224, "ImageNet: side of the crops in pixels.", minimum=1)
    label_fraction: float = setting(1.0, "ImageNet: part of the training images whose labels are used.", maximum=1)
    unlabeled_dir: str = setting("", "ImageNet: unlabelled images to use instead of the training images.")

    # Objective
    unsup_ratio: int = setting(7, "Unlabelled examples per labelled one in a batch; 0 trains without them.", minimum=0)
    tsa: str = setting("", "Training signal annealing: schedule of the threshold, '' for none.", ("", *TSA_SCHEDULES))
    uda_softmax_temp: float = setting(0.4, "Temperature τ that sharpens the target; -1 for none.")
    uda_confidence_thresh: float = setting(0.8, "Confidence β an unlabelled example must exceed; -1 for none.")
    unsup_coeff: float = setting(1.0, "Weight λ of the consistency loss.", minimum=0)
    ent_min_coeff: float = setting(0.0, "Weight of the entropy of predictions on unlabelled examples.", minimum=0)

    # Network
    model_name: str = setting("wrn", "Network.", tuple(MODELS))
    wrn_depth: int = setting(28, "Wide ResNet: number of layers, 6n + 4.")
    wrn_size: int = setting(32, "Wide ResNet: filters of the first group, 16 times the widening factor.", minimum=1)
    wrn_stem_stride: int = setting(1, "Wide ResNet: stride of the first convolution; 2 for small machines.", (1, 2))
    shake_shake_width: int = setting(96, "Shake-Shake: filters of the first stage, 32, 96 or 112.", minimum=2)
    sync_batch_norm: bool = setting(False, "Batch-norm statistics over all replicas instead of each one's own.")

    # Optimisation
    train_batch_size: int = setting(64, "Labelled examples per step, over all replicas.", minimum=1)
    train_steps: int = setting(500_000, "Number of updates.", minimum=1)
    learning_rate: float = setting(0.03, "Peak learning rate.", minimum=0)
    lr_schedule: str = setting(
        "cosine", "Decay of the learning rate: 7/8 of a quarter cosine, or ImageNet's steps.", tuple(LR_SCHEDULES)
    )
    warmup_steps: int = setting(0, "Steps of linear warm-up.", minimum=0)
    weight_decay_rate: float = setting(5e-4, "L2 coefficient on all trainable weights.", minimum=0)
    ema_decay: float = setting(
        0.9999, "Decay of the averaged weights used in evaluation; 0 for none. Runs of few steps need 0.99.", minimum=0
    )
    # The input pipeline makes several 32-bit seeds out of this one.
    seed: int = setting(0, "Seed of initial weights, data order and crops.", minimum=0, maximum=2**29)
    jit_compile: bool = setting(False, "Compile the step with XLA (one device; a TPU always does).")

    # Course of the run
    eval_batch_size: int = setting(256, "Examples per evaluation step.", minimum=1, resumable=True)
    save_steps: int = setting(10_000, "Steps between checkpoints, and evaluations on the development split.", minimum=1)
    max_save: int = setting(10, "Number of checkpoints kept.", minimum=1, resumable=True)
    log_steps: int = setting(1000, "Steps between lines of metrics.", minimum=1, resumable=True)
    eval_steps: int = setting(
        0, "Steps between evaluations on the test set, for the curve only; 0 for none.", minimum=0, resumable=True
    )
    iterations: int = setting(
        10, "Most steps in one call of the device; lowered to divide the other step counts.", minimum=1, resumable=True
    )

    def __post_init__(self):
        settings.check(self)
        settings.check_objective(self)
        if self.dev_size >= self.sup_size:
            raise ValueError(f"dev_size={self.dev_size} leaves nothing of sup_size={self.sup_size} to train on.")
        _check_subsets(self)
        if self.task_name == "imagenet":
            _check_imagenet(self)
        else:
            _check_others(self)

    @property
    def chosen_ops(self):
        """Names of the operations that RandAugment draws from."""
        return choose_ops(self.ops, self.num_ops, self.ops_seed)


def _check_subsets(config):
    ops = ",".join(config.chosen_ops)
    if config.chosen_ops != OP_NAMES and "randaugment" not in (config.aug, config.sup_aug):
        raise ValueError(f"ops={ops}, but aug={config.aug}: only randaugment has operations.")
    if config.task_name == "imagenet" and (config.chosen_ops != OP_NAMES or config.unsup_size):
        raise ValueError(f"ops={ops} and unsup_size={config.unsup_size}: ImageNet is used with all of both.")


def _check_imagenet(config):
    if config.aug_mode != "online":
        raise ValueError(
            f"aug_mode={config.aug_mode}: ImageNet is augmented while training; there are no copies on disk. Use "
            "--aug_mode=online."
        )
    if config.dev_size:
        raise ValueError(f"dev_size={config.dev_size}: ImageNet has no development split here; use --dev_size=0.")
    if not config.label_fraction > 0:
        raise ValueError(f"label_fraction={config.label_fraction}: expected more than 0, and at most 1.")


def _check_others(config):
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        if field.name in ("image_size", "label_fraction", "unlabeled_dir") and value != field.default:
            raise ValueError(
                f"{field.name}={value!r} is for task_name=imagenet only; task_name={config.task_name} has what "
                "image.preprocess wrote."
            )
