"""Everything that determines the records and the result of an image run; one flag for each field.

DataConfig is what image.preprocess writes and image.main reads; PreprocessConfig adds where the images come from, and
Config the network and the training.
"""

import dataclasses

from augmentation.randaugment import AUGMENTATIONS, OP_NAMES, choose_ops
from image.datasets import READ_BY, SOURCES, TASK_NAMES
from image.models import MODELS
from utils.schedules import LR_SCHEDULES
from utils.settings import AugmentationConfig, ObjectiveConfig, RecordsConfig, config_class, setting


@config_class()
class DataConfig(RecordsConfig):
    task_name: str = setting("cifar10", "Data set; folder and npz are your own images.", TASK_NAMES)
    image_size: int = setting(
        0, "Side of the images in pixels; 0: as the data have it (ImageNet: 224).", minimum=0, synonym=224
    )
    use_equal_split: bool = setting(False, "Draw the labelled examples in equal numbers from each class.")
    aug_ops: str = setting("randaugment", "Augmentation of the unlabelled examples.", tuple(AUGMENTATIONS), alias="aug")
    sup_aug_ops: str = setting(
        "crop_flip", "Augmentation of the labelled examples.", tuple(AUGMENTATIONS), alias="sup_aug"
    )
    ops: str = setting("", "randaugment: draw from these operations only, separated by commas; '' for all.")
    num_ops: int = setting(0, "randaugment: draw from so many operations, chosen at random; 0 for all.", minimum=0)
    ops_seed: int = setting(0, "Seed of the choice of num_ops operations.", minimum=0)
    aug_mode: str = setting(
        "offline", "offline: copies on disk; online: the trainer augments, and none are written.", ("offline", "online")
    )
    unsup_size: int = setting(0, "Use only so many unlabelled examples; 0 for all.", minimum=0)
    unlabeled_dir: str = setting("", "folder, imagenet: more images, without labels; may be left out.")

    def __post_init__(self):
        super().__post_init__()
        names = self.aug_ops, self.sup_aug_ops
        if self.chosen_ops != OP_NAMES and not any(AUGMENTATIONS[name].has_ops for name in names):
            raise ValueError(f"ops={','.join(self.chosen_ops)}, but aug_ops={self.aug_ops}: only randaugment has any.")

    @property
    def chosen_ops(self):
        """Names of the operations that RandAugment draws from."""
        return choose_ops(self.ops, self.num_ops, self.ops_seed)


@config_class()
class PreprocessConfig(DataConfig, AugmentationConfig):
    raw_data_dir: str = setting("", "Folder with the official files; default data/raw/<task_name>.")
    train_dir: str = setting("", "folder: labelled images, those of each class in a folder of its name.")
    test_dir: str = setting("", "folder: test images, in folders as those of train_dir; may be left out.")
    train_file: str = setting("", "npz: file with images, uint8 [n, height, width, 3], and labels.")
    unlabeled_file: str = setting("", "npz: file with more images, without labels; may be left out.")
    test_file: str = setting("", "npz: file with images and labels to test on; may be left out.")
    flip: bool = setting(False, "folder, npz: a mirrored image belongs to the same class.")
    use_extra: bool = setting(False, "SVHN: add its extra split to the unlabelled data.")
    allow_partial: bool = setting(False, "Take what there is when some of the official files are missing.")

    def __post_init__(self):
        super().__post_init__()
        if self.task_name in SOURCES:  # what to do with others is told when they are opened
            _check_read(self)


@config_class(
    train_steps=500_000,
    uda_softmax_temp=0.4,
    uda_confidence_thresh=0.8,
    ema_decay=0.9999,
    eval_batch_size=256,
    save_steps=10_000,
    max_save=10,
    log_steps=1000,
)
class Config(DataConfig, ObjectiveConfig):
    label_fraction: float = setting(1.0, "ImageNet: part of the training images whose labels are used.", maximum=1)

    # Network
    model_name: str = setting("wrn", "Network.", tuple(MODELS))
    wrn_depth: int = setting(28, "Wide ResNet: number of layers, 6n + 4.")
    wrn_size: int = setting(32, "Wide ResNet: filters of the first group, 16 times the widening factor.", minimum=1)
    wrn_stem_stride: int = setting(1, "Wide ResNet: stride of the first convolution; 2 for small machines.", (1, 2))
    shake_shake_width: int = setting(96, "Shake-Shake: filters of the first stage, 32, 96 or 112.", minimum=2)
    sync_batch_norm: bool = setting(False, "Batch-norm statistics over all replicas instead of each one's own.")
    mixed_precision: str = setting("", "Compute in 16 bits; '' for 32.", ("", "float16", "bfloat16"))

    # Optimisation
    lr_schedule: str = setting(
        "cosine",
        "Decay of the learning rate: 7/8 of a quarter cosine, a whole one to 0, or ImageNet's steps.",
        tuple(LR_SCHEDULES),
    )
    weight_decay_rate: float = setting(5e-4, "L2 coefficient on all trainable weights.", minimum=0)

    def __post_init__(self):
        super().__post_init__()
        if self.task_name == "imagenet":
            _check_imagenet(self)
        else:
            _check_others(self)


def _check_read(config):
    """Refuses settings that the data set does not read, which would be without effect."""
    read = [name for name, task_names in READ_BY.items() if config.task_name in task_names]
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        if field.name in READ_BY and field.name not in read and value != field.default:
            raise ValueError(
                f"{field.name}={value!r} is for task_name={' and '.join(READ_BY[field.name])} only. Leave it away: "
                f"task_name={config.task_name} reads {', '.join(read) or 'its own images alone'}."
            )


def _check_imagenet(config):
    if config.aug_mode != "online":
        raise ValueError(
            f"aug_mode={config.aug_mode}: ImageNet is augmented while training; there are no copies on disk. Use "
            "--aug_mode=online."
        )
    if config.sup_size != Config.sup_size:
        raise ValueError(
            f"sup_size={config.sup_size}: on ImageNet label_fraction says how many labels are used. Leave sup_size "
            "away and use --label_fraction, such as 0.1 for a tenth."
        )
    if config.dev_size:
        raise ValueError(f"dev_size={config.dev_size}: ImageNet has no development split here; use --dev_size=0.")
    if config.chosen_ops != OP_NAMES or config.unsup_size:
        ops = ",".join(config.chosen_ops)
        raise ValueError(f"ops={ops} and unsup_size={config.unsup_size}: ImageNet is used with all of both.")
    if not config.label_fraction > 0:
        raise ValueError(f"label_fraction={config.label_fraction}: expected more than 0, and at most 1.")


def _check_others(config):
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        if field.name in ("label_fraction", "unlabeled_dir") and value != field.default:
            raise ValueError(
                f"{field.name}={value!r} is for training on task_name=imagenet only; task_name={config.task_name} has "
                "what image.preprocess wrote."
            )
