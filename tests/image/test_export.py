"""image/export.py: the exported model takes raw images and predicts what the evaluation network predicts."""

import json
import struct
import zlib

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from image import export
from image.datasets import cifar10
from tests.image.small_data import colored_images, export_random_model


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """A model with an average, and what was exported of it."""
    export_dir = tmp_path_factory.mktemp("run") / "export"
    return export_random_model(export_dir), export_dir, export.load(str(export_dir))


# ---- the model ------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_exported_model_takes_raw_images_and_equals_the_evaluation_network(exported):
    model, _, loaded = exported
    images = colored_images(20)
    opaque = np.concatenate([images, np.full_like(images[..., :1], 255)], axis=-1)
    probabilities = loaded.predict_proba(images)
    assert probabilities.shape == (20, 10) and probabilities.dtype == np.float32
    expected = tf.nn.softmax(model.evaluation_network(opaque, training=False))
    np.testing.assert_allclose(probabilities, expected, rtol=1e-5, atol=1e-7)
    assert np.ptp(probabilities, axis=0).max() > 0.01  # it depends on the images
    trained = tf.nn.softmax(model.network(opaque, training=False))
    assert np.abs(probabilities - trained).max() > 0.01  # and is the average, not the network that is trained


def test_the_signature_names_input_and_outputs(exported):
    serve = tf.saved_model.load(str(exported[1])).signatures["serving_default"]
    assert serve.structured_input_signature[1] == {"images": tf.TensorSpec([None, 32, 32, 3], tf.uint8, name="images")}
    outputs = serve(images=tf.constant(colored_images(5)))
    assert set(outputs) == {"probabilities", "label"}
    np.testing.assert_array_equal(outputs["label"], np.argmax(outputs["probabilities"], axis=-1))


def test_batches_do_not_change_predictions(exported):
    predict_proba, images = exported[2].predict_proba, colored_images(7)
    np.testing.assert_allclose(predict_proba(images, batch_size=3), predict_proba(images), rtol=1e-5, atol=1e-7)
    assert predict_proba(images[:0]).shape == (0, 10)


def test_the_facts_go_with_the_model(exported):
    assert exported[2].facts == cifar10.FACTS


def test_a_folder_without_model_is_named(tmp_path):
    with pytest.raises(ValueError, match=rf"{tmp_path} holds no exported model: train first, with --do_train\."):
        export.load(str(tmp_path))


@pytest.mark.parametrize(
    "images, message",
    [
        (
            np.zeros([2, 32, 32, 3]),
            r"shape=\(2, 32, 32, 3\) and dtype=float64: expected a uint8 array \[number, size, si",
        ),
        (np.zeros([2, 32, 32], np.uint8), r"shape=\(2, 32, 32\) and dtype=uint8: .* Grey images: np\.repeat\(images"),
        (np.zeros([32, 32, 3], np.uint8), r"shape=\(32, 32, 3\) and dtype=uint8: expected a uint8 array"),
        (np.zeros([2, 32, 16, 3], np.uint8), r"shape=\(2, 32, 16, 3\)"),
        (np.zeros([2, 32, 32, 4], np.uint8), r"shape=\(2, 32, 32, 4\)"),
        (np.zeros([2, 16, 16, 3], np.uint8), r"images are 16 pixels wide: the training images are 32\. Resize them\."),
        ([[1, 2], [3, 4]], r"images have shape=\(2, 2\) and dtype=list: expected a uint8 array"),
    ],
)
def test_images_that_do_not_fit_are_described(exported, images, message):
    with pytest.raises(ValueError, match=message):
        exported[2].predict_proba(images)


# ---- images from files ----------------------------------------------------------------------------------------------


def test_all_image_files_below_a_folder_are_read_in_order(tmp_path):
    images = colored_images(3)
    (tmp_path / "sub").mkdir()
    for image, name in zip(images, ("b.png", "sub/c.PNG", "a.bmp")):
        Image.fromarray(image).save(tmp_path / name)
    (tmp_path / "notes.txt").write_text("not an image")
    names, found = export.read_images(str(tmp_path), 32)
    assert names == [str(tmp_path / name) for name in ("a.bmp", "b.png", "sub/c.PNG")]
    assert found.dtype == np.uint8
    np.testing.assert_array_equal(found, images[[2, 0, 1]])


def test_one_image_file_is_read_and_resized(tmp_path):
    image = Image.fromarray(colored_images(1, size=50)[0])
    image.save(tmp_path / "image.png")
    names, found = export.read_images(str(tmp_path / "image.png"), 32)
    assert names == [str(tmp_path / "image.png")]
    np.testing.assert_array_equal(found[0], np.asarray(image.resize([32, 32], Image.Resampling.BICUBIC)))


@pytest.mark.parametrize("mode", ["L", "RGBA", "P", "LA", "1", "CMYK"])
def test_images_of_other_modes_become_rgb(tmp_path, mode):
    image = Image.fromarray(colored_images(1)[0]).convert(mode)
    name = "image.jpg" if mode == "CMYK" else "image.png"
    image.save(tmp_path / name)
    _, found = export.read_images(str(tmp_path / name), 32)
    with Image.open(tmp_path / name) as saved:
        np.testing.assert_array_equal(found[0], np.asarray(saved.convert("RGB")))


def test_an_array_file_is_read_as_it_is(tmp_path):
    images = colored_images(4)
    np.save(tmp_path / "images.npy", images)
    names, found = export.read_images(str(tmp_path / "images.npy"), 32)
    assert names == ["0", "1", "2", "3"]
    np.testing.assert_array_equal(found, images)


def test_image_files_are_predicted_in_blocks(exported, tmp_path, monkeypatch):
    images, sizes = colored_images(5), []
    for number, image in enumerate(images):
        Image.fromarray(image).save(tmp_path / f"{number}.png")

    def predict_proba(images):
        sizes.append(len(images))
        return exported[2].predict_proba(images)

    monkeypatch.setattr(export, "BLOCK", 2)
    names, found = export.predict_files(exported[2]._replace(predict_proba=predict_proba), str(tmp_path))
    assert names == [str(tmp_path / f"{number}.png") for number in range(5)] and sizes == [2, 2, 1]
    np.testing.assert_allclose(found, exported[2].predict_proba(images), rtol=1e-5, atol=1e-7)
    (tmp_path / "3.png").write_bytes(b"")
    with pytest.raises(ValueError, match=r"3\.png cannot be read as an image \(.*\): remove it or replace it\."):
        export.predict_files(exported[2], str(tmp_path))


def test_a_folder_without_images_is_named(tmp_path):
    (tmp_path / "notes.txt").write_text("not an image")
    for path in (tmp_path, tmp_path / "missing"):
        with pytest.raises(
            ValueError, match=rf"{path}: found no image files \(\.png, \.jpg.*\) and no \.npy file there\."
        ):
            export.read_images(str(path), 32)


def damaged_images(folder):
    """Yields files that begin like images and cannot be read."""
    Image.fromarray(colored_images(1)[0]).save(folder / "whole.png")
    content = (folder / "whole.png").read_bytes()
    (folder / "whole.png").unlink()
    middle = len(content) // 2
    damaged = {"cut": content[:middle], "empty": b"", "text": b"not an image"}
    damaged["changed"] = content[:middle] + b"changed bytes" + content[middle + 13 :]
    damaged["header"] = content[:20] + b"\xff" * 8 + content[28:]
    header = b"IHDR" + struct.pack(">IIBBBBB", 30_000, 30_000, 8, 2, 0, 0, 0)  # 900 million pixels
    damaged["huge"] = content[:12] + header + struct.pack(">I", zlib.crc32(header)) + content[33:]
    for name, content in damaged.items():
        yield folder / f"{name}.png", content


@pytest.mark.parametrize("case", range(6))
def test_a_damaged_image_is_named(tmp_path, case):
    path, content = list(damaged_images(tmp_path))[case]
    path.write_bytes(content)
    with pytest.raises(ValueError, match=rf"{path} cannot be read as an image \(.*\): remove it or replace it\."):
        export.read_images(str(tmp_path), 32)


@pytest.mark.parametrize("content", [None, b"", b"not an array", b"\x93NUMPY\x01\x00"])
def test_a_damaged_or_missing_array_file_is_named(tmp_path, content):
    path = tmp_path / "images.npy"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ValueError, match=rf"{path} cannot be read \((?s:.*)\): write it with np\.save\."):
        export.read_images(str(path), 32)


def test_an_array_file_of_objects_or_without_rows_is_refused(tmp_path):
    np.save(tmp_path / "objects.npy", np.array([{"a": 1}], dtype=object))
    with pytest.raises(
        ValueError, match=r"objects\.npy cannot be read \(shape=\(1,\), dtype=object: expected an array of"
    ):
        export.read_images(str(tmp_path / "objects.npy"), 32)
    np.save(tmp_path / "number.npy", np.uint8(3))
    with pytest.raises(ValueError, match=r"images have shape=\(\) and dtype=uint8: expected a uint8 array"):
        export.read_images(str(tmp_path / "number.npy"), 32)


def test_a_file_of_several_arrays_is_no_file_of_images(tmp_path):
    np.savez(tmp_path / "images.npz", images=colored_images(2))
    with pytest.raises(ValueError, match=r"images\.npz: expected images as a \.npy file"):
        export.read_images(str(tmp_path / "images.npz"), 32)


# ---- damage ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def copied_export(tmp_path):
    export_random_model(tmp_path / "export")
    return tmp_path / "export"


def test_half_of_a_copied_export_is_named(copied_export):
    (copied_export / "dataset.json").unlink()
    with pytest.raises(ValueError, match="export lacks dataset.json, .* copy the whole export folder"):
        export.load(str(copied_export))


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"image_size": 64}, r"takes {'images': \[32, 32, 3\]} and gives .*shape=\[10\], but .* \[64, 64, 3\]"),
        ({"class_names": ["a", "b"]}, "and of 2 classes: export it again"),
        ({"mean": []}, r"dataset\.json: mean=\(\): expected three numbers"),
    ],
)
def test_facts_that_do_not_fit_the_model_are_refused(copied_export, changes, message):
    facts = json.loads((copied_export / "dataset.json").read_text())
    (copied_export / "dataset.json").write_text(json.dumps(facts | changes))
    with pytest.raises(ValueError, match=message):
        export.load(str(copied_export))


def test_a_damaged_model_is_named(copied_export):
    (copied_export / "saved_model.pb").write_bytes(b"garbage")
    with pytest.raises(ValueError, match=rf"{copied_export}/saved_model.pb cannot be read .*: export it again"):
        export.load(str(copied_export))
