"""image/datasets/image_files.py: whatever Pillow reads becomes a square RGB array, and what it cannot read is named."""

import io

import numpy as np
import pytest
from PIL import Image

from image.datasets import image_files
from tests.image.small_data import colored_images


def save(image, path, **options):
    Image.fromarray(image).save(path, **options)
    return str(path)


def test_images_are_found_below_a_folder_in_sorted_order_without_hidden_ones(tmp_path):
    names = ("b.PNG", "a/z.jpeg", "a/deep/x.webp", ".hidden.png", "a/._z.jpeg", ".cache/y.png", "notes.txt", "png")
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"")
    found = [path.removeprefix(f"{tmp_path}/") for path in image_files.find_images(str(tmp_path))]
    assert found == ["a/deep/x.webp", "a/z.jpeg", "b.PNG"]


@pytest.mark.parametrize("ending", image_files.IMAGE_ENDINGS)
def test_every_ending_is_read(tmp_path, ending):
    image = np.full([16, 16, 3], (200, 200, 200), np.uint8)
    path = save(image[..., 0] if ending == ".pgm" else image, tmp_path / f"image{ending}")
    found = image_files.read_image(path, 16)
    assert found.dtype == np.uint8 and found.shape == (16, 16, 3)
    assert np.abs(found.astype(int) - 200).max() <= 2
    assert image_files.read_size(path) == (16, 16)


def test_an_image_of_the_right_size_is_not_changed(tmp_path):
    image = colored_images(1)[0]
    np.testing.assert_array_equal(image_files.read_image(save(image, tmp_path / "a.png"), 32), image)


def test_the_centre_of_an_image_is_cropped_before_it_is_resized(tmp_path):
    wide = np.zeros([20, 61, 3], np.uint8)
    wide[:, 20:40] = colored_images(1, 20)[0]  # (61 - 20) // 2 = 20
    np.testing.assert_array_equal(image_files.read_image(save(wide, tmp_path / "wide.png"), 20), wide[:, 20:40])
    tall = np.ascontiguousarray(wide.swapaxes(0, 1))
    expected = Image.fromarray(tall[20:40]).resize((32, 32), Image.Resampling.BICUBIC)
    np.testing.assert_array_equal(image_files.read_image(save(tall, tmp_path / "tall.png"), 32), np.asarray(expected))


@pytest.mark.parametrize("width, height", [(1, 1), (3, 200), (200, 3), (1, 500)])
def test_tiny_and_narrow_images_are_enlarged(tmp_path, width, height):
    image = np.full([height, width, 3], (10, 20, 30), np.uint8)
    found = image_files.read_image(save(image, tmp_path / "image.png"), 32)
    np.testing.assert_array_equal(found, np.full([32, 32, 3], (10, 20, 30)))


def test_the_exif_orientation_is_applied(tmp_path):
    image, exif = colored_images(1)[0], Image.Exif()
    exif[0x0112] = 6  # the camera was turned: show the picture after a quarter turn clockwise
    found = image_files.read_image(save(image, tmp_path / "image.png", exif=exif), 32)
    np.testing.assert_array_equal(found, np.rot90(image, -1))


def test_grey_images_become_grey_rgb(tmp_path):
    grey = colored_images(1)[0][..., 0]
    found = image_files.read_image(save(grey, tmp_path / "image.png"), 32)
    np.testing.assert_array_equal(found, np.repeat(grey[..., np.newaxis], 3, axis=-1))


def test_16_bit_grey_is_scaled_and_not_cut_off(tmp_path):
    values = np.linspace(0, 65535, 1024).reshape(32, 32).astype(np.uint16)
    for name in ("image.png", "image.tif"):
        found = image_files.read_image(save(values, tmp_path / name), 32)
        np.testing.assert_array_equal(found[..., 0], np.rint(values / 257))
        np.testing.assert_array_equal(found, np.repeat(found[..., :1], 3, axis=-1))
    assert found.min() == 0 and found.max() == 255


def test_values_without_a_known_range_are_not_guessed(tmp_path):
    for values, message in (
        (np.float32([[0.0, 1.0]]), "float32 values from 0.0 to 1.0"),
        (np.int32([[-5, 70000]]), "int32 values from -5 to 70000"),
    ):
        path = save(values, tmp_path / "image.tif")
        with pytest.raises(ValueError, match=rf"image\.tif cannot be read as an image \({message}: expected integers"):
            image_files.read_image(path, 32)


def test_what_is_transparent_shows_a_white_background(tmp_path):
    rgba = np.zeros([32, 32, 4], np.uint8)
    rgba[:16] = (200, 100, 0, 255)
    rgba[16:24] = (200, 100, 0, 51)  # a fifth
    expected = np.full([32, 32, 3], 255)
    expected[:16], expected[16:24] = (200, 100, 0), (244, 224, 204)
    found = image_files.read_image(save(rgba, tmp_path / "image.png"), 32).astype(int)
    assert np.abs(found - expected).max() <= 1
    grey = np.dstack([np.full([32, 32], 7, np.uint8), np.zeros([32, 32], np.uint8)])
    Image.fromarray(grey, "LA").save(tmp_path / "grey.png")
    assert np.all(image_files.read_image(str(tmp_path / "grey.png"), 32) == 255)


def test_palettes_are_read_with_their_transparent_colour(tmp_path):
    image = Image.new("P", (32, 32))
    image.putpalette([10, 20, 30, 90, 80, 70])
    image.paste(1, (0, 16, 32, 32))
    image.save(tmp_path / "image.gif", transparency=1)
    found = image_files.read_image(str(tmp_path / "image.gif"), 32)
    assert np.all(found[:16] == (10, 20, 30)) and np.all(found[16:] == 255)


def test_the_first_frame_of_an_animation_counts(tmp_path):
    frames = [Image.new("RGB", (16, 16), color) for color in ("red", "lime")]
    frames[0].save(tmp_path / "image.gif", save_all=True, append_images=frames[1:])
    assert np.all(image_files.read_image(str(tmp_path / "image.gif"), 16) == (255, 0, 0))


def test_cmyk_jpegs_become_rgb(tmp_path):
    Image.new("CMYK", (32, 32), (0, 255, 255, 0)).save(tmp_path / "image.jpg", quality=95)  # no cyan, so red
    found = image_files.read_image(str(tmp_path / "image.jpg"), 32).astype(int)
    assert np.abs(found - (255, 0, 0)).max() <= 3


def jpeg_content():
    file = io.BytesIO()
    Image.fromarray(colored_images(1)[0]).save(file, "JPEG")
    return file.getvalue()


@pytest.mark.parametrize(
    "content, reason",
    [
        (b"", "cannot identify image file"),
        (b"not an image", "cannot identify image file"),
        (jpeg_content()[:300], ""),
        (jpeg_content()[:-200], "truncated"),
        (jpeg_content()[:2] + b"\xff\xd9", ""),
    ],
    ids=["zero bytes", "text", "header cut", "end cut", "no picture"],
)
def test_a_file_that_cannot_be_read_is_named_with_the_reason(tmp_path, content, reason):
    path = tmp_path / "image.jpg"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=rf"{path} cannot be read as an image \(.*{reason}.+\): remove it or replace"):
        image_files.read_image(str(path), 32)


def test_no_size_is_read_from_a_file_that_is_no_image(tmp_path):
    (tmp_path / "image.jpg").write_bytes(b"")
    assert image_files.read_size(str(tmp_path / "image.jpg")) is None
    assert image_files.read_size(str(tmp_path / "missing.jpg")) is None
