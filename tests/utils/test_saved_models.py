"""utils/saved_models.py: a damaged export is named before TensorFlow runs what is left of it."""

import hashlib
import json
import shutil

import numpy as np
import pytest
import tensorflow as tf

from tests.full_disk import full_disk
from utils import saved_models

INPUTS = {"features": [3]}


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    folder = tmp_path_factory.mktemp("exported") / "export"
    write(folder)
    return folder


def write(folder, scale=1.0):
    module = tf.Module()
    module.kernel = tf.Variable(np.float32(scale) * np.eye(3, 2, dtype=np.float32))

    @tf.function(input_signature=[tf.TensorSpec([None, 3], tf.float32, name="features")])
    def serve(features):
        return {"probabilities": tf.nn.softmax(features @ module.kernel)}

    module.serve = serve
    saved_models.save(str(folder), module, serve)


def load(folder):
    return saved_models.load(str(folder), INPUTS, 2)


@pytest.fixture
def copied(exported, tmp_path):
    return shutil.copytree(exported, tmp_path / "export")


def test_what_was_saved_is_loaded(exported):
    probabilities = load(exported)(features=tf.constant([[9.0, -9.0, 0.0]]))["probabilities"]
    np.testing.assert_allclose(probabilities, [[1, 0]], atol=1e-6)


@pytest.mark.parametrize(
    "name", ["saved_model.pb", "fingerprint.pb", "variables/variables.data-00000-of-00001", "variables/variables.index"]
)
def test_one_changed_byte_is_enough_to_refuse_it(copied, name):
    content = bytearray((copied / name).read_bytes())
    content[len(content) // 2] ^= 1
    (copied / name).write_bytes(content)
    with pytest.raises(ValueError, match=f"{copied}.*: export it again: the training command does, at its end"):
        load(copied)


@pytest.mark.parametrize("name", ["saved_model.pb", "saved_model.json", "variables/variables.index"])
@pytest.mark.parametrize("content", [b"", b"garbage", b"{}"])
def test_a_file_with_another_content_is_refused(copied, name, content):
    (copied / name).write_bytes(content)
    with pytest.raises(ValueError, match=f"{copied}"):
        load(copied)


def test_an_export_without_a_checksum_is_loaded(copied):
    (copied / "saved_model.json").unlink()
    load(copied)


@pytest.mark.parametrize("inputs, num_classes", [({"features": [4]}, 2), ({"images": [3]}, 2), (INPUTS, 3)])
def test_a_model_of_other_inputs_or_classes_is_refused(exported, inputs, num_classes):
    with pytest.raises(ValueError, match=r"its model takes {'features': \[3\]} and gives .*shape=\[2\], but"):
        saved_models.load(str(exported), inputs, num_classes)


def test_a_full_disk_is_told_with_advice(tmp_path):
    with full_disk(), pytest.raises(ValueError, match="export_dir=.* cannot be written .*: make room there; the same"):
        write(tmp_path / "export")


def test_the_checksum_is_that_of_the_graph(exported):
    found = hashlib.sha256((exported / "saved_model.pb").read_bytes()).hexdigest()
    assert json.loads((exported / "saved_model.json").read_text())["saved_model.pb"] == found


def test_an_export_takes_the_place_of_an_earlier_one_anywhere():
    for scale in (1.0, 5.0):
        write("ram://saved_models/export", scale)
        expected = tf.nn.softmax(scale * np.eye(1, 2))
        found = load("ram://saved_models/export")(features=tf.constant([[1.0, 0, 0]]))["probabilities"]
        np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_what_a_process_left_of_an_export_that_it_was_at_is_removed_by_the_next(tmp_path):
    with full_disk(50), pytest.raises(ValueError, match="cannot be written"):
        write(tmp_path / "export")
    assert (tmp_path / "export/variables/variables_temp").is_dir()
    (tmp_path / "export/saved_model.pb.tmp0123").touch()
    write(tmp_path / "export")
    assert not [path for path in (tmp_path / "export").rglob("*") if "temp" in path.name or ".tmp" in path.name]
    load(tmp_path / "export")
