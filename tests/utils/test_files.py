"""utils/files.py: what is written is there whole or not at all, and a refusal is explained."""

import hashlib
import os
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

from utils import files

# ---- JSON -----------------------------------------------------------------------------------------------------------


def test_json_comes_back_and_no_temporary_file_stays(tmp_path):
    value = {"name": "größe", "numbers": [1, 2.5, None], "nested": {"yes": True}}
    files.write_json(str(tmp_path / "value.json"), value)
    files.write_json(str(tmp_path / "value.json"), value | {"more": 1})
    assert files.read_json(str(tmp_path / "value.json")) == value | {"more": 1}
    assert os.listdir(tmp_path) == ["value.json"]


def test_a_value_that_cannot_be_written_leaves_the_old_file(tmp_path):
    path = str(tmp_path / "value.json")
    files.write_json(path, {"old": 1})
    with pytest.raises(TypeError, match="not JSON serializable"):
        files.write_json(path, {"new": object()})
    assert files.read_json(path) == {"old": 1}


def test_damaged_json_is_named(tmp_path):
    (tmp_path / "value.json").write_text('{"half": ')
    with pytest.raises(
        ValueError, match=r"value\.json is not valid JSON \(Expecting value.*\): delete it or restore it"
    ):
        files.read_json(str(tmp_path / "value.json"))


# ---- any file -------------------------------------------------------------------------------------------------------


def test_a_file_that_could_not_be_finished_leaves_the_old_one_and_nothing_else(tmp_path):
    path = tmp_path / "table.csv"
    path.write_text("old")
    with pytest.raises(RuntimeError, match="in the middle"):
        with files.replacing(path) as file:
            file.write("new")
            raise RuntimeError("in the middle")
    assert path.read_text() == "old" and os.listdir(tmp_path) == ["table.csv"]


def test_until_it_is_finished_a_reader_sees_the_old_file(tmp_path):
    path = tmp_path / "table.csv"
    path.write_text("old")
    with files.replacing(path, "wb") as file:
        file.write(b"new")
        file.flush()
        assert path.read_text() == "old"
    assert path.read_text() == "new"


def test_line_ends_and_letters_are_written_as_they_are(tmp_path):
    with files.replacing(tmp_path / "text") as file:
        file.write("größe\r\nb\n")
    assert (tmp_path / "text").read_bytes() == "größe\r\nb\n".encode()


def test_arrays_come_back(tmp_path):
    files.write_arrays(str(tmp_path / "arrays.npz"), numbers=np.arange(3), name="x")
    with np.load(tmp_path / "arrays.npz") as arrays:
        assert arrays["numbers"].tolist() == [0, 1, 2] and str(arrays["name"]) == "x"
    assert os.listdir(tmp_path) == ["arrays.npz"]


def test_checksums_are_those_of_the_whole_content(tmp_path):
    content = np.random.default_rng(0).bytes(3 << 20)
    (tmp_path / "file").write_bytes(content)
    assert files.checksum(tmp_path / "file") == hashlib.sha256(content).hexdigest()
    assert files.checksum(tmp_path / "file", "md5") == hashlib.md5(content).hexdigest()


def test_other_file_systems_that_tensorflow_knows_serve_as_well():
    files.write_json("ram://folder/value.json", {"a": 1})
    files.write_arrays("ram://folder/arrays.npz", numbers=np.arange(3))
    assert files.read_json("ram://folder/value.json") == {"a": 1}
    assert len(files.checksum("ram://folder/arrays.npz")) == 64
    assert sorted(tf.io.gfile.listdir("ram://folder")) == ["arrays.npz", "value.json"]


# ---- refusals -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [PermissionError("no"), tf.errors.ResourceExhaustedError(None, None, "no")])
def test_a_refusal_names_the_file_and_says_what_to_do(error):
    with pytest.raises(ValueError, match=r"^predictions\.csv cannot be written \(.*no.*\): choose another one\.$"):
        with files.explain_refusal("predictions.csv", "choose another one."):
            raise error


def test_other_errors_stay_as_they_are():
    with pytest.raises(KeyError), files.explain_refusal("x", "y"):
        raise KeyError("z")


def test_small_programs_start_without_tensorflow():
    code = (
        "import sys; from back_translate import split_paragraphs, join_paragraphs; print('tensorflow' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "False\n"
