"""RandAugment with Pillow, one image at a time: what the batched operations have to equal."""

import numpy as np
from PIL import Image, ImageEnhance, ImageOps


def enhance(enhancer, image, level):
    return enhancer(image).enhance(level * 1.8 / 10 + 0.1)


def on_rgb(operation, image, *arguments):
    """ImageOps work on RGB; the way back to RGBA makes every pixel opaque."""
    return operation(image.convert("RGB"), *arguments).convert("RGBA")


def affine(image, *matrix):
    return image.transform(image.size, Image.Transform.AFFINE, matrix)


def cut_out(image, size, center):
    (row, column), (width, height), half = center, image.size, size // 2
    box = max(0, column - half), max(0, row - half), min(width, column + half), min(height, row + half)
    image = image.copy()
    if box[0] < box[2] and box[1] < box[3]:
        image.paste((125, 122, 113, 0), box)
    return image


# Each takes an RGBA image, a level, a sign, the centre of Cutout and the scale of lengths in pixels.
OPERATIONS = {
    "Invert": lambda image, level, sign, center, scale: on_rgb(ImageOps.invert, image),
    "Cutout": lambda image, level, sign, center, scale: cut_out(image, int(2 * level * scale), center),
    "Sharpness": lambda image, level, sign, center, scale: enhance(ImageEnhance.Sharpness, image, level),
    "AutoContrast": lambda image, level, sign, center, scale: on_rgb(ImageOps.autocontrast, image),
    "Posterize": lambda image, level, sign, center, scale: on_rgb(ImageOps.posterize, image, 4 - int(level * 4 / 10)),
    "ShearX": lambda image, level, sign, center, scale: affine(image, 1, sign * level * 0.3 / 10, 0, 0, 1, 0),
    "TranslateX": lambda image, level, sign, center, scale: affine(image, 1, 0, sign * int(level * scale), 0, 1, 0),
    "TranslateY": lambda image, level, sign, center, scale: affine(image, 1, 0, 0, 0, 1, sign * int(level * scale)),
    "ShearY": lambda image, level, sign, center, scale: affine(image, 1, 0, 0, sign * level * 0.3 / 10, 1, 0),
    "Rotate": lambda image, level, sign, center, scale: image.rotate(sign * int(level * 30 / 10)),
    "Equalize": lambda image, level, sign, center, scale: on_rgb(ImageOps.equalize, image),
    "Contrast": lambda image, level, sign, center, scale: enhance(ImageEnhance.Contrast, image, level),
    "Color": lambda image, level, sign, center, scale: enhance(ImageEnhance.Color, image, level),
    "Solarize": lambda image, level, sign, center, scale: on_rgb(ImageOps.solarize, image, 256 - int(level * 256 / 10)),
    "Brightness": lambda image, level, sign, center, scale: enhance(ImageEnhance.Brightness, image, level),
}


def apply_op(image, name, level, negate=False, center=None, scale=1):
    """One operation on one uint8 array (height, width, 4)."""
    return np.asarray(OPERATIONS[name](Image.fromarray(image), level, -1 if negate else 1, center, scale))


def apply_policies(images, policies):
    """The operations that fire and the final Cutout, from RGB (N, height, width, 3) to RGBA."""
    operations, size = list(OPERATIONS.values()), min(images.shape[1:3])
    steps = [array.tolist() for array in policies]  # plain integers: NumPy's would slow the loop down
    results = []
    for image, indices, levels, fires, negates, op_centers, (row, column) in zip(images, *steps):
        image = Image.fromarray(image).convert("RGBA")
        for index, level, fire, negate, center in zip(indices, levels, fires, negates, op_centers):
            if fire:
                image = operations[index](image, level, -1 if negate else 1, center, size / 32)
        result, half = np.array(image), size // 2 // 2
        result[max(0, row - half) : row + half, max(0, column - half) : column + half] = 0
        results.append(result)
    return np.stack(results)
