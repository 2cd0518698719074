"""image/datasets/image_files.py: whatever Pillow reads becomes a square RGB array, and what it cannot read is named."""

import concurrent.futures
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
        (b"", "it is no image that Pillow"),
        (b"not an image", "it is no image that Pillow"),
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


# ---- limits ---------------------------------------------------------------------------------------------------------


def test_an_image_of_too_many_pixels_is_refused_before_it_is_decoded(tmp_path, monkeypatch):
    path = save(np.zeros([20, 30, 3], np.uint8), tmp_path / "large.png")
    monkeypatch.setattr(image_files, "MAX_PIXELS", 599)
    monkeypatch.setattr(image_files, "to_rgb", lambda image: pytest.fail("decoded"))
    with pytest.raises(ValueError, match=r"cannot be read as an image \(it has 30×20 pixels: expected at most 599\)"):
        image_files.read_image(path, 16)


def test_a_small_file_of_a_huge_image_is_refused(tmp_path):
    Image.new("1", (13_000, 13_000)).save(tmp_path / "bomb.png")
    assert (tmp_path / "bomb.png").stat().st_size < 100_000
    with pytest.raises(ValueError, match="bomb.png cannot be read as an image"):
        image_files.read_image(str(tmp_path / "bomb.png"), 32)


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGB", "RGBA", "I;16", "CMYK", "transparent P"])
def test_large_images_are_converted_in_bands_to_the_same_pixels(tmp_path, monkeypatch, mode):
    rng = np.random.default_rng(0)
    image = Image.fromarray(rng.integers(0, 256, (50, 41, 4), np.uint8))
    path = tmp_path / ("image.tif" if mode == "CMYK" else "image.png")
    if mode == "I;16":
        Image.fromarray(rng.integers(0, 65536, (50, 41)).astype(np.uint16)).save(path)
    elif mode == "transparent P":
        image.convert("RGB").quantize(16).save(path, transparency=3)
    else:
        image.convert("RGB" if mode == "CMYK" else "RGBA").convert(mode).save(path)
    expected = image_files.read_image(str(path), 24)
    monkeypatch.setattr(image_files, "PIXELS_PER_BAND", 41 * 7)
    np.testing.assert_array_equal(image_files.read_image(str(path), 24), expected)


def test_pixels_in_flight_are_bounded(tmp_path, monkeypatch):
    paths = [save(colored_images(1)[0], tmp_path / f"{number}.png") for number in range(24)]
    budget = image_files.Budget(2 * 32 * 32)
    lowest, to_rgb = [budget.left], image_files.to_rgb
    monkeypatch.setattr(image_files, "IN_FLIGHT", budget)
    monkeypatch.setattr(image_files, "to_rgb", lambda image: lowest.append(budget.left) or to_rgb(image))
    with concurrent.futures.ThreadPoolExecutor(8) as executor:
        list(executor.map(lambda path: image_files.read_image(path, 16), paths))
    assert min(lowest) >= 0 and budget.left == budget.total


def test_an_image_above_the_budget_is_decoded_alone():
    budget = image_files.Budget(10)
    with budget.holding(1000):
        assert budget.left == 0
    with pytest.raises(KeyError), budget.holding(3):
        raise KeyError
    assert budget.left == 10
