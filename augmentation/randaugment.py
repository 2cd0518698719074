"""RandAugment and Cutout as UDA uses them (paper, section 2.3 and appendix A.2), on whole batches of images.

    augmented = randaugment(images, np.random.default_rng(0))     # (N, height, width, 3) → (N, height, width, 4)
    sheared = apply_op(image, "ShearX", level=9, negate=True)     # (height, width, 4) → the same

Images are uint8 arrays, RGB going in and RGBA coming out. Alpha is 255, or 0 where a pixel has no content because a
geometric operation left it uncovered or it was cut out. There the network has to see 0, the mean colour.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from augmentation import image_ops

REFERENCE_SIZE = 32  # the lengths in pixels below were chosen for CIFAR-10 and SVHN
MAX_LEVEL = 10
NUM_LEVELS = MAX_LEVEL + 1
FIRE_PROBABILITY = 0.5
BLOCK_PIXELS = 128 * 32 * 32  # per call of an operation, so that its intermediate arrays stay in the processor's cache


class Op(NamedTuple):
    """One operation; `argument` maps (level, pixel_scale) to what `function` takes besides the images."""

    function: Callable
    argument: Callable[[int, float], float] | None = None
    signed: bool = False


def _enhancement(level, _):
    return level * 1.8 / 10 + 0.1


def _shear(level, _):
    return level * 0.3 / 10


def _translation(level, pixel_scale):
    return int(level * 10 / 10 * pixel_scale)


# The order is that of the original release; int() truncates there as here.
OPS = {
    "Invert": Op(image_ops.invert),
    "Cutout": Op(image_ops.cutout, lambda level, pixel_scale: int(level * 20 / 10 * pixel_scale)),
    "Sharpness": Op(image_ops.sharpness, _enhancement),
    "AutoContrast": Op(image_ops.autocontrast),
    "Posterize": Op(image_ops.posterize, lambda level, _: 4 - int(level * 4 / 10)),
    "ShearX": Op(image_ops.shear_x, _shear, signed=True),
    "TranslateX": Op(image_ops.translate_x, _translation, signed=True),
    "TranslateY": Op(image_ops.translate_y, _translation, signed=True),
    "ShearY": Op(image_ops.shear_y, _shear, signed=True),
    "Rotate": Op(image_ops.rotate, lambda level, _: int(level * 30 / 10), signed=True),
    "Equalize": Op(image_ops.equalize),
    "Contrast": Op(image_ops.contrast, _enhancement),
    "Color": Op(image_ops.color, _enhancement),
    "Solarize": Op(image_ops.solarize, lambda level, _: 256 - int(level * 256 / 10)),
    "Brightness": Op(image_ops.brightness, _enhancement),
}
OP_NAMES = tuple(OPS)
_HAS_LEVEL = np.array([op.argument is not None for op in OPS.values()])
_SIGNED = np.array([op.signed for op in OPS.values()])


class Policies(NamedTuple):
    """What happens to each of N images: its operations in order, then the final Cutout."""

    op_indices: np.ndarray  # (N, ops_per_image), index into OP_NAMES
    levels: np.ndarray  # (N, ops_per_image), 1 to 9
    fires: np.ndarray  # (N, ops_per_image), bool
    negates: np.ndarray  # (N, ops_per_image), bool; only ever true for signed operations
    op_centers: np.ndarray  # (N, ops_per_image, 2), (row, column) for Cutout among the operations
    final_centers: np.ndarray  # (N, 2), (row, column) of the final Cutout


def choose_ops(ops="", num_ops=0, ops_seed=0):
    """The set of operations to draw from, as a tuple of names in the order of OPS.

    Args:
      ops: names, separated by commas; "" for all.
      num_ops: this many operations at random, as in the paper's ablation (appendix B); 0 for all.
      ops_seed: seed of that choice. For one seed, a smaller set is a part of a larger one.
    """
    if ops and num_ops:
        raise ValueError(f"ops={ops!r} and num_ops={num_ops}: give the operations or their number, not both.")
    if ops_seed and not num_ops:
        raise ValueError(f"ops_seed={ops_seed} would be without effect: it draws num_ops operations.")
    if not 0 <= num_ops <= len(OPS):
        raise ValueError(f"num_ops={num_ops}: expected 1 to {len(OPS)}, or 0 for all.")
    if num_ops:
        names = np.random.default_rng(ops_seed).permutation(OP_NAMES)[:num_ops].tolist()
    else:
        names = [name.strip() for name in ops.split(",")] if ops else OP_NAMES
    check_ops(names)
    return tuple(name for name in OP_NAMES if name in names)


def check_ops(names):
    unknown = [name for name in names if name not in OPS]
    if unknown or not names or len(set(names)) < len(names):
        raise ValueError(
            f"ops must be different names among {', '.join(OPS)}; got ops={','.join(names)!r}, unknown={unknown}"
        )


def draw_policies(num_images, height, width, rng, ops_per_image=2, ops=OP_NAMES):
    """Draws `ops_per_image` operations for each image, uniform and independent over `ops` × levels 1 to 9.

    All arrays are drawn whole and in a fixed order: they depend on the generator and the sizes only.
    """
    check_ops(ops)
    shape = (num_images, ops_per_image)
    op_indices = np.array([OP_NAMES.index(name) for name in ops])[rng.integers(len(ops), size=shape)]
    levels = rng.integers(1, MAX_LEVEL, size=shape)
    fires = rng.random(shape) < FIRE_PROBABILITY
    negates = (rng.random(shape) < 0.5) & _SIGNED[op_indices]
    op_centers = rng.integers((height, width), size=(*shape, 2))
    return Policies(op_indices, levels, fires, negates, op_centers, _draw_centers(num_images, height, width, rng))


def _draw_centers(num_images, height, width, rng):
    return rng.integers((height, width), size=(num_images, 2))


def randaugment(images, rng, ops_per_image=2, ops=OP_NAMES):
    """Applies `ops_per_image` random operations and a final Cutout to each image.

    Args:
      images: uint8 array (N, height, width, 3).
      rng: numpy.random.Generator.
      ops_per_image: operations drawn per image; each of them fires with probability 0.5.
      ops: names of the operations to draw from.

    Returns:
      uint8 array (N, height, width, 4); alpha is 0 or 255.
    """
    _check_batch(images)
    return apply_policies(images, draw_policies(*images.shape[:3], rng, ops_per_image, ops))


def cutout(images, rng):
    """Applies the final Cutout alone; same arguments and result as `randaugment`."""
    _check_batch(images)
    return _final_cutout(image_ops.add_alpha(images), _draw_centers(*images.shape[:3], rng))


def crop_flip(images, rng):
    """Adds an opaque alpha channel and nothing else: the trainer crops and flips every image anyway."""
    del rng
    _check_batch(images)
    return image_ops.add_alpha(images)


class Augmentation(NamedTuple):
    """One of the augmentations that a run can choose; `function` takes images, a random generator and options."""

    function: Callable
    has_ops: bool = False  # its option `ops` names the operations to draw from
    is_identity: bool = False  # leaves the images as they are


AUGMENTATIONS = {
    "randaugment": Augmentation(randaugment, has_ops=True),
    "cutout": Augmentation(cutout),
    "crop_flip": Augmentation(crop_flip, is_identity=True),
}


def choose_options(name, ops):
    """The options that make the augmentation `name` draw from `ops` only, as a dict; {} for all or if it has none."""
    return {"ops": tuple(ops)} if AUGMENTATIONS[name].has_ops and tuple(ops) != OP_NAMES else {}


def apply_policies(images, policies):
    """Does to RGB images (N, height, width, 3) what `policies` say, and returns them as RGBA."""
    images = image_ops.add_alpha(images)
    # Nine pixels are far on 32×32 images and nothing on 224×224: lengths grow with the image. At 32×32 the scale is 1.
    pixel_scale = min(images.shape[1:3]) / REFERENCE_SIZE
    for stage in range(policies.levels.shape[1]):
        centers = policies.op_centers[:, stage]
        for name, level, negate, group in _groups_of_one_op(policies, stage):
            for block in _blocks(group, images):
                images[block] = _apply(images[block], name, level, negate, centers[block], pixel_scale)
    return _final_cutout(images, policies.final_centers)


def _groups_of_one_op(policies, stage):
    """Yields (name, level, negate, indices of images) for the operations that fire at one stage."""
    firing = np.flatnonzero(policies.fires[:, stage])
    op_indices, levels = policies.op_indices[firing, stage], policies.levels[firing, stage]
    levels = levels * _HAS_LEVEL[op_indices]  # puts all levels of Invert, AutoContrast and Equalize together
    kinds = (op_indices * NUM_LEVELS + levels) * 2 + policies.negates[firing, stage]
    order = np.argsort(kinds, kind="stable")
    kinds, starts = np.unique(kinds[order], return_index=True)
    for kind, group in zip(kinds.tolist(), np.split(firing[order], starts[1:])):
        op_index, level = divmod(kind // 2, NUM_LEVELS)
        yield OP_NAMES[op_index], level, bool(kind % 2), group


def _blocks(indices, images):
    block_size = max(1, BLOCK_PIXELS // (images.shape[1] * images.shape[2]))
    return (indices[start : start + block_size] for start in range(0, len(indices), block_size))


def _apply(images, name, level, negate, centers, pixel_scale):
    op = OPS[name]
    if op.argument is None:
        return op.function(images)
    argument = op.argument(level, pixel_scale)
    if name == "Cutout":
        return op.function(images, argument, centers)
    return op.function(images, -argument if negate and op.signed else argument)


def _final_cutout(images, centers):
    """Cuts out, in place, half the image's side: 16 of 32 pixels. Colours there are never seen; they become 0."""
    size = min(images.shape[1:3]) // 2
    for block in _blocks(np.arange(len(images)), images):
        images[block] = image_ops.cutout(images[block], size, centers[block], fill=(0, 0, 0, 0))
    return images


def apply_op(image, name, level, negate=False, center=None):
    """Applies one operation to one image, with nothing left to chance.

    Args:
      image: uint8 array (height, width, 4).
      name: a key of OPS.
      level: 0 to 10; the policies draw 1 to 9. Translations and Cutout are in absolute pixels, tuned for 32×32.
      negate: whether to turn the argument's sign; the operations without a sign do not look at it.
      center: (row, column) of Cutout.

    Returns:
      uint8 array (height, width, 4).
    """
    if name not in OPS:
        raise ValueError(f"unknown operation name={name!r}; choose from {', '.join(OPS)}")
    if image.dtype != np.uint8 or image.ndim != 3 or image.shape[-1] != 4:
        raise ValueError(f"image must be uint8 (height, width, 4), got dtype={image.dtype}, shape={image.shape}")
    if level not in range(NUM_LEVELS):
        raise ValueError(f"level must be an integer from 0 to {MAX_LEVEL} (policies draw 1 to 9), got level={level}")
    if name == "Cutout" and center is None:
        raise ValueError("Cutout needs center=(row, column)")
    centers = None if center is None else np.array([center])
    return _apply(image[np.newaxis], name, level, negate, centers, pixel_scale=1.0)[0]


def _check_batch(images):
    if images.dtype != np.uint8 or images.ndim != 4 or images.shape[-1] != 3:
        raise ValueError(f"images must be uint8 (N, height, width, 3), got dtype={images.dtype}, shape={images.shape}")
