"""Every operation equals Pillow, pixel by pixel."""

import numpy as np
import pytest
from PIL import Image

from augmentation import image_ops
from augmentation.randaugment import OPS, apply_op
from tests import pillow_reference

SIZES = [(32, 32), (24, 40), (8, 8), (7, 5), (2, 9), (1, 1)]
RESETS_ALPHA = {"Invert", "AutoContrast", "Posterize", "Equalize", "Solarize"}


def create_images(height, width):
    """Opaque noise, gradients, constants and few-valued images, and images with holes that earlier operations left."""
    rng = np.random.default_rng(height * 100 + width)
    rows, columns = np.mgrid[:height, :width]
    gradient = np.stack([rows * 7 + 3, columns * 6 + 40, 255 - rows * 2 - columns * 3], axis=-1).astype(np.uint8)
    dark = np.minimum(gradient, 90)
    constant = np.full((height, width, 3), (17, 200, 99), np.uint8)
    two_valued = rng.choice(np.array([40, 213], np.uint8), (height, width, 3))
    mostly_white = np.where(rng.random((height, width, 3)) < 0.1, 250, 255).astype(np.uint8)
    noise = rng.integers(0, 256, (2, height, width, 3), dtype=np.uint8)
    black_and_white = np.stack([np.zeros_like(constant), np.full_like(constant, 255)])
    images = np.stack([gradient, dark, constant, two_valued, mostly_white, *noise, *black_and_white])
    images = image_ops.add_alpha(images)
    center = (height // 3, width // 2)
    holes = [pillow_reference.apply_op(image, "Rotate", 9) for image in images[:2]]
    holes += [pillow_reference.apply_op(image, "Cutout", 4, center=center) for image in images[4:7]]
    return np.concatenate([images, holes])


def differences(name, images, level, negate=False, center=None):
    """The images on which apply_op and Pillow disagree."""
    return [
        index
        for index, image in enumerate(images)
        if not np.array_equal(
            apply_op(image, name, level, negate, center),
            pillow_reference.apply_op(image, name, level, negate, center),
        )
    ]


@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("name", OPS)
def test_every_op_equals_pillow_at_every_level_and_sign(name, size):
    images = create_images(*size)
    for level in range(10 if name == "Posterize" else 11):  # Pillow refuses to keep no bits
        for negate in [False, True] if OPS[name].signed else [False]:
            center = (level * 5 % size[0], level * 7 % size[1]) if name == "Cutout" else None
            assert differences(name, images, level, negate, center) == [], f"level={level}, negate={negate}"


@pytest.mark.parametrize("first", OPS)
def test_every_pair_of_ops_equals_pillow(first):
    image = create_images(32, 32)[0]
    once = pillow_reference.apply_op(image, first, 8, center=(3, 20))
    for second in OPS:
        center = (18, 9) if second == "Cutout" else None
        assert differences(second, [once], 6, OPS[second].signed, center) == [], second


@pytest.mark.parametrize("level", range(11))
def test_blend_equals_pillow_for_every_pair_of_colours(level):
    colors = np.arange(256, dtype=np.uint8)
    degenerate, image = (np.repeat(plane[..., np.newaxis], 4, axis=-1) for plane in np.meshgrid(colors, colors))
    degenerate[..., 3] = image[..., 3]
    factor = OPS["Color"].argument(level, 1.0)
    expected = Image.blend(Image.fromarray(degenerate), Image.fromarray(image), factor)
    np.testing.assert_array_equal(image_ops._blend(degenerate[np.newaxis], image[np.newaxis], factor)[0], expected)


def test_a_batch_is_the_stack_of_its_images():
    images = create_images(24, 40)
    for name, op in OPS.items():
        arguments = [op.argument(7, 1.0)] if op.argument else []
        centers = [np.tile([4, 30], (len(images), 1))] if name == "Cutout" else []
        batch = op.function(images, *arguments, *centers)
        center = (4, 30) if name == "Cutout" else None
        singles = np.stack([apply_op(image, name, 7, center=center) for image in images])
        np.testing.assert_array_equal(batch, singles, err_msg=name)


@pytest.mark.parametrize("name", OPS)
def test_inputs_are_neither_modified_nor_shared(name):
    image = create_images(8, 8)[0]
    before = image.copy()
    for level in [0, 5, 9]:
        result = apply_op(image, name, level, center=(0, 0) if name == "Cutout" else None)
        assert not np.shares_memory(result, image)
        np.testing.assert_array_equal(image, before)


@pytest.mark.parametrize("name", OPS)
def test_memory_layout_and_write_protection_do_not_matter(name):
    image = create_images(24, 40)[5]
    center = (5, 5) if name == "Cutout" else None
    expected = apply_op(image, name, 8, center=center)
    transposed = np.ascontiguousarray(image.transpose(1, 0, 2)).transpose(1, 0, 2)
    transposed.flags.writeable = False
    np.testing.assert_array_equal(apply_op(transposed, name, 8, center=center), expected)


@pytest.mark.parametrize("name", sorted(RESETS_ALPHA))
def test_rgb_only_ops_make_every_pixel_opaque(name):
    for image in create_images(32, 32):
        assert (apply_op(image, name, 6)[..., 3] == 255).all()


@pytest.mark.parametrize("name", ["Sharpness", "Contrast", "Color", "Brightness"])
def test_enhancers_keep_alpha(name):
    for image in create_images(32, 32):
        np.testing.assert_array_equal(apply_op(image, name, 9)[..., 3], image[..., 3])


@pytest.mark.parametrize("name", [name for name, op in OPS.items() if op.signed])
def test_geometric_ops_leave_uncovered_pixels_transparent_black(name):
    image = create_images(32, 32)[8]
    assert (image == 255).all()
    uncovered = apply_op(image, name, 9)[..., 3] == 0
    assert uncovered.any()
    assert (apply_op(image, name, 9)[uncovered] == 0).all()


def test_inverting_a_sheared_image_turns_its_empty_corner_white():
    image = apply_op(create_images(32, 32)[0], "ShearX", 9)
    corner = apply_op(image, "Invert", 1)[-1, -1]
    assert image[-1, -1].tolist() == [0, 0, 0, 0] and corner.tolist() == [255, 255, 255, 255]


def test_positive_translation_moves_content_left_and_up():
    image = create_images(32, 32)[5]
    np.testing.assert_array_equal(apply_op(image, "TranslateX", 4)[:, :-4], image[:, 4:])
    np.testing.assert_array_equal(apply_op(image, "TranslateY", 4)[:-4], image[4:])
    np.testing.assert_array_equal(apply_op(image, "TranslateY", 4, negate=True)[4:], image[:-4])


@pytest.mark.parametrize("name", ["Sharpness", "Contrast", "Color", "Brightness"])
def test_enhancers_change_nothing_at_level_five(name):
    for image in create_images(24, 40):
        np.testing.assert_array_equal(apply_op(image, name, 5), image)


def test_cutout_fills_a_box_that_the_borders_cut():
    image = create_images(32, 32)[5]
    for center, area in [((16, 16), 16 * 16), ((0, 0), 8 * 8), ((31, 31), 9 * 9), ((0, 20), 8 * 16)]:
        result = apply_op(image, "Cutout", 8, center=center)
        filled = (result == (125, 122, 113, 0)).all(axis=-1)
        rows, columns = np.nonzero(filled)
        assert filled.sum() == area
        assert (rows.min(), columns.min()) == (max(0, center[0] - 8), max(0, center[1] - 8))
        assert (rows.max(), columns.max()) == (min(31, center[0] + 7), min(31, center[1] + 7))
        np.testing.assert_array_equal(result[~filled], image[~filled])


@pytest.mark.parametrize("shape", [(0, 8, 8), (1, 1, 1), (3, 7, 5), (2, 32, 32)])
def test_add_alpha_appends_an_opaque_channel(shape):
    images = np.random.default_rng(0).integers(0, 256, (*shape, 3), dtype=np.uint8)
    expected = np.concatenate([images, np.full((*shape, 1), 255, np.uint8)], axis=-1)
    np.testing.assert_array_equal(image_ops.add_alpha(images), expected)
