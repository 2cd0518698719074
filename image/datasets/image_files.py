"""Image files of any kind to square RGB arrays, in the same way for training and for prediction.

paths = find_images("photos")                          # all image files below a folder, in sorted order
image = read_image(paths[0], image_size=64)            # uint8 [64, 64, 3]

What is done to an image, and in which order, stands in docs/images.md.
"""

import concurrent.futures
import contextlib
import itertools
import os
import threading

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

from utils import files

IMAGE_ENDINGS = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm")
BACKGROUND = (255, 255, 255, 255)
MAX_PIXELS = 89_478_485  # of one image: where Pillow begins to warn. Each takes up to 12 bytes of memory
PIXELS_IN_FLIGHT = 1 << 26  # of all images that are decoded at the same time, unless a single one has more
PIXELS_PER_BAND = 1 << 22  # that are converted at once
READ_AHEAD = 256  # images that are decoded at once


def find_images(folder):
    """Paths of all files below `folder` that end like images, in sorted order, without hidden files and folders."""
    return sorted(path for path in list_files(folder) if is_image(os.path.basename(path)))


def is_image(name):
    return name.lower().endswith(IMAGE_ENDINGS) and not name.startswith(".")


def list_files(folder):
    """Yields the paths of all files below `folder`, but those whose name, or folder's name, begins with a dot."""
    for parent, folders, names in files.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".")]  # the walk goes into these only
        yield from (os.path.join(parent, name) for name in names if not name.startswith("."))


def read_size(path):
    """Width and height, from the beginning of the file alone; None if that cannot be read."""
    try:
        with files.open_file(path, "rb") as file, Image.open(file) as image:
            return image.size
    except Exception:  # damaged files make Pillow raise almost anything
        return None


def read_image(path, image_size):
    """Returns uint8 [image_size, image_size, 3]; raises ValueError with the reason if the file cannot be read."""
    try:
        with files.open_file(path, "rb") as file, Image.open(file) as image:
            check_pixels("it", *image.size)
            with IN_FLIGHT.holding(image.width * image.height):
                ImageOps.exif_transpose(image, in_place=True)  # else it would be copied
                return fit_square(to_rgb(image), image_size)
    except Exception as error:  # damaged files make Pillow raise almost anything
        # Pillow names its file object, where it knows no image.
        known = "it is no image that Pillow knows" if isinstance(error, UnidentifiedImageError) else str(error)
        reason = " ".join(known.split()) or type(error).__name__
        raise ValueError(f"{path} cannot be read as an image ({reason}): remove it or replace it.") from error


def read_each(paths, image_size):
    """Yields the image of each path, or the ValueError that tells why it cannot be read; reads ahead in threads."""

    def read_one(path):
        try:
            return read_image(path, image_size)
        except ValueError as error:
            return error

    paths = iter(paths)
    with concurrent.futures.ThreadPoolExecutor() as executor:  # Pillow decodes without holding Python's lock
        while part := list(itertools.islice(paths, READ_AHEAD)):
            yield from executor.map(read_one, part)


def check_pixels(what, width, height):
    if width * height > MAX_PIXELS:
        raise ValueError(f"{what} has {width}×{height} pixels: expected at most {MAX_PIXELS:,}")


class Budget:
    """What threads may hold together; who asks for more than there is gets it when nobody holds anything."""

    def __init__(self, total):
        self.total, self.left, self.changed = total, total, threading.Condition()

    @contextlib.contextmanager
    def holding(self, amount):
        amount = min(amount, self.total)
        with self.changed:
            self.changed.wait_for(lambda: self.left >= amount)
            self.left -= amount
        try:
            yield
        finally:
            with self.changed:
                self.left += amount
                self.changed.notify_all()


IN_FLIGHT = Budget(PIXELS_IN_FLIGHT)
# Blocks of this size go back to the system when they are freed; of smaller ones each thread would keep its own.
Image.core.set_block_size(1 << 26)


def to_rgb(image):
    rows = max(PIXELS_PER_BAND // image.width, 1)
    if rows >= image.height:
        return _to_rgb(image)
    whole = Image.new("RGB", image.size)
    for top in range(0, image.height, rows):  # so that what is needed on the way stays small
        whole.paste(_to_rgb(image.crop((0, top, image.width, min(top + rows, image.height)))), (0, top))
    return whole


def _to_rgb(image):
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
    square = image.crop((left, top, left + side, top + side)) if image.width != image.height else image
    if side != image_size:
        square = square.resize((image_size, image_size), Image.Resampling.BICUBIC)
    return np.asarray(square)
