"""Image files of any kind to square RGB arrays, in the same way for training and for prediction.

paths = find_images("photos")                          # all image files below a folder, in sorted order
image = read_image(paths[0], image_size=64)            # uint8 [64, 64, 3]

What is done to an image, and in which order, stands in docs/images.md.
"""

import os

import numpy as np
from PIL import Image, ImageOps

IMAGE_ENDINGS = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm")
BACKGROUND = (255, 255, 255, 255)


def find_images(folder):
    """Paths of all files below `folder` that end like images, in sorted order, without hidden files and folders."""
    return sorted(path for path in list_files(folder) if is_image(os.path.basename(path)))


def is_image(name):
    return name.lower().endswith(IMAGE_ENDINGS) and not name.startswith(".")


def list_files(folder):
    """Yields the paths of all files below `folder`, but those whose name, or folder's name, begins with a dot."""
    for parent, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".")]  # os.walk goes into these only
        yield from (os.path.join(parent, name) for name in names if not name.startswith("."))


def read_size(path):
    """Width and height, from the beginning of the file alone; None if that cannot be read."""
    try:
        with Image.open(path) as image:
            return image.size
    except Exception:  # damaged files make Pillow raise almost anything
        return None


def read_image(path, image_size):
    """Returns uint8 [image_size, image_size, 3]; raises ValueError with the reason if the file cannot be read."""
    try:
        with Image.open(path) as image:
            return fit_square(to_rgb(ImageOps.exif_transpose(image)), image_size)
    except Exception as error:  # damaged files make Pillow raise almost anything
        reason = " ".join(str(error).split()) or type(error).__name__
        raise ValueError(f"{path} cannot be read as an image ({reason}): remove it or replace it.") from error


def to_rgb(image):
    if image.mode == "F" or image.mode.startswith("I"):  # Pillow would cut all above 255
        return Image.fromarray(_scale_to_bytes(np.asarray(image))).convert("RGB")
    if image.has_transparency_data:
        opaque = Image.new("RGBA", image.size, BACKGROUND)
        return Image.alpha_composite(opaque, image.convert("RGBA")).convert("RGB")
    return image.convert("RGB")


def _scale_to_bytes(values):
    """16-bit grey, whichever type Pillow gives it, to 8 bits."""
    lowest, highest = values.min(), values.max()
    if not (0 <= lowest and highest <= 65535 and np.issubdtype(values.dtype, np.integer)):
        raise ValueError(f"{values.dtype} values from {lowest} to {highest}: expected integers from 0 to 65535")
    return np.rint(values / 257).astype(np.uint8)


def fit_square(image, image_size):
    """Crops the centre of an RGB image and resizes it: uint8 [image_size, image_size, 3]."""
    side = min(image.size)
    left, top = (image.width - side) // 2, (image.height - side) // 2
    square = image.crop((left, top, left + side, top + side))
    if side != image_size:
        square = square.resize((image_size, image_size), Image.Resampling.BICUBIC)
    return np.asarray(square)
