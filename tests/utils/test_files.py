"""utils/files.py: what is written is there whole or not at all, and a refusal is explained."""

import concurrent.futures
import hashlib
import os
import re
import subprocess
import sys
import threading
import zipfile

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


@pytest.mark.parametrize(
    "content, reason",
    [
        (b'{"a": "\xff"}', "not UTF-8"),
        (b"[" * 100_000, "nested too deeply"),
        (b"9" * 5000, "limit"),
        (b"", "Expecting value"),
    ],
)
def test_whatever_is_no_json_is_named_in_one_line(tmp_path, content, reason):
    (tmp_path / "value.json").write_bytes(content)
    with pytest.raises(
        ValueError, match=rf"value\.json is not valid JSON \(.*{reason}.*\): delete it or restore"
    ) as raised:
        files.read_json(tmp_path / "value.json")
    assert "\n" not in str(raised.value)


FIELDS = {"count": int, "rate": float, "name": str, "done": bool, "more": dict, "names": [str], "size": range(1, 10)}
FITTING = {"count": 0, "rate": -1, "name": "", "done": False, "more": {}, "names": ["a"], "size": 9}


def test_fields_that_fit_are_returned():
    assert files.check_fields("x.json", FITTING | {"other": 1}, FIELDS, {"extra": int}) == FITTING | {"other": 1}


@pytest.mark.parametrize(
    "change, message",
    [
        ({"count": "x"}, "x.json: count='x': expected a whole number of at least 0; delete it or restore it."),
        ({"count": -1}, "count=-1: expected a whole number of at least 0"),
        ({"count": 2**63}, "count=9223372036854775808: expected"),
        ({"count": 1.5}, "count=1.5: expected"),
        ({"count": True}, "count=True: expected"),
        ({"rate": float("nan")}, "rate=nan: expected a finite number"),
        ({"rate": 10**400}, "expected a finite number"),
        ({"rate": "1"}, "rate='1': expected a finite number"),
        ({"name": None}, "name=None: expected a text"),
        ({"done": 1}, "done=1: expected true or false"),
        ({"more": []}, "more=[]: expected an object"),
        ({"names": ["a", 1]}, "names=['a', 1]: expected a list, each a text"),
        ({"names": "ab"}, "names='ab': expected a list"),
        ({"size": 10}, "size=10: expected a whole number from 1 to 9"),
        ({"extra": "x"}, "extra='x': expected a whole number"),
        ({"name": ["long"] * 100}, "…: expected a text"),
    ],
)
def test_a_field_that_does_not_fit_is_named(change, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        files.check_fields("x.json", FITTING | change, FIELDS, {"extra": int})


@pytest.mark.parametrize("name", FIELDS)
def test_a_missing_field_is_named(name):
    with pytest.raises(ValueError, match=f"x.json: {name} is missing: expected"):
        files.check_fields("x.json", {key: value for key, value in FITTING.items() if key != name}, FIELDS)


@pytest.mark.parametrize("value", [[], None, 3, "text"])
def test_what_is_no_object_is_told(value):
    with pytest.raises(ValueError, match="x.json holds .*: expected an object with count, rate"):
        files.check_fields("x.json", value, FIELDS)


def test_of_several_writers_of_a_new_file_one_succeeds(tmp_path):
    path, barrier = str(tmp_path / "value.json"), threading.Barrier(8)

    def create(number):
        barrier.wait(timeout=60)
        return files.create_json(path, number)

    with concurrent.futures.ThreadPoolExecutor(8) as executor:
        created = list(executor.map(create, range(8)))
    assert created.count(True) == 1 and files.read_json(path) == created.index(True)
    assert os.listdir(tmp_path) == ["value.json"]
    assert files.create_json("ram://create/value.json", 1) and not files.create_json("ram://create/value.json", 2)


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


ARRAYS = {
    "matrix": np.arange(12.0).reshape(3, 4),
    "fortran": np.asfortranarray(np.arange(6).reshape(2, 3)),
    "swapped": np.arange(5, dtype=">i4"),
    "text": np.array("größe"),
    "texts": np.array(["a", "bcd"]),
    "bytes": np.array([b"a", b"bc"]),
    "empty": np.zeros([0, 3]),
    "number": np.array(3, np.float32),
    "large": np.random.default_rng(0).random(400_000),  # is read in several parts
}


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_arrays_of_all_kinds_are_read_as_numpy_reads_them(tmp_path, save):
    save(tmp_path / "arrays.npz", **ARRAYS)
    found = files.read_arrays(tmp_path / "arrays.npz")
    assert list(found) == list(ARRAYS)
    for name, array in ARRAYS.items():
        assert found[name].dtype == array.dtype and found[name].flags.writeable
        np.testing.assert_array_equal(found[name], array)
        np.save(tmp_path / "array.npy", array)
        np.testing.assert_array_equal(files.read_array(tmp_path / "array.npy"), array)


def test_arrays_elsewhere_are_read_as_well():
    files.write_arrays("ram://arrays/arrays.npz", **ARRAYS)
    np.testing.assert_array_equal(files.read_arrays("ram://arrays/arrays.npz")["large"], ARRAYS["large"])


def npy(descr="<f8", shape=(2,), content=bytes(16), version=b"\x01\x00"):
    header = str({"descr": descr, "fortran_order": False, "shape": shape}).encode() + b"\n"
    return b"\x93NUMPY" + version + len(header).to_bytes(2, "little") + header + content


DAMAGED_ARRAYS = {
    "empty": b"",
    "cut": npy()[:-1],
    "longer": npy() + b"x",
    "2.7 TiB": npy(shape=(371_085_174_374,)),
    "negative": npy(shape=(-2,)),
    "two negative": npy(shape=(-2, -1)),
    "objects": npy("|O"),
    "no size": npy("|V0", (10**15,), b""),
    "version": npy(version=b"\x07\x00"),
    "token": b"\x93NUMPY\x01\x00\x03\x00(((",
    "nested": b"\x93NUMPY\x01\x00\x10\x27" + b"(" * 10_000,
    "no dict": b"\x93NUMPY\x01\x00\x02\x003\n",
    "character": npy("<U1", (1,), b"\xff\xff\xff\x7f"),
    "directory": None,
}


@pytest.mark.parametrize("kind", DAMAGED_ARRAYS)
def test_a_damaged_npy_file_is_one_clear_error(tmp_path, kind):
    path, content = tmp_path / "array.npy", DAMAGED_ARRAYS[kind]
    path.mkdir() if content is None else path.write_bytes(content)
    with pytest.raises(ValueError, match=r"array\.npy cannot be read \(.*\): do it again\.$") as raised:
        files.read_array(path, advice="do it again.")
    assert "\n" not in str(raised.value)


def damage(content, kind):
    """Changes an .npz file that has been written uncompressed."""
    local, central = content.index(b"PK\x03\x04"), content.index(b"PK\x01\x02")
    content = bytearray(content)
    if kind == "compression":
        content[local + 8], content[central + 10] = 97, 97
    elif kind == "encryption":
        content[local + 6] |= 1
        content[central + 8] |= 1
    elif kind == "checksum":
        content[local + 250] ^= 1
    elif kind == "cut":
        del content[len(content) // 2 :]
    elif kind == "bomb":  # what the archive says about the sizes of the first array
        content[central + 24 : central + 28] = b"\xff\xff\xff\x7f"
    return bytes(content)


@pytest.mark.parametrize("kind", ["compression", "encryption", "checksum", "cut", "bomb", "member", "missing"])
def test_a_damaged_npz_file_is_one_clear_error(tmp_path, kind):
    path = tmp_path / "arrays.npz"
    np.savez(path, matrix=ARRAYS["matrix"], numbers=np.arange(9))
    path.write_bytes(damage(path.read_bytes(), kind))
    if kind == "member":
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("matrix.npy", DAMAGED_ARRAYS["2.7 TiB"])
    if kind == "missing":
        path.unlink()
    with pytest.raises(ValueError, match=r"arrays\.npz cannot be read \(.*\): delete it or restore it\.$") as raised:
        files.read_arrays(path)
    assert "\n" not in str(raised.value)


def test_an_array_that_is_not_in_the_file_is_named(tmp_path):
    np.savez(tmp_path / "arrays.npz", matrix=ARRAYS["matrix"])
    with pytest.raises(ValueError, match=r"the file cannot be read \(its arrays are matrix, other is missing\)"):
        files.read_array(tmp_path / "arrays.npz", "other", what="the file")


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


# ---- folders --------------------------------------------------------------------------------------------------------


def test_a_walk_goes_into_linked_folders_but_in_no_circle(tmp_path):
    for name in ("photos/a/deep", "photos/b", "elsewhere/c"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "file").touch()
    (tmp_path / "photos/linked").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "photos/a/deep/up").symlink_to("../..")  # leads back to photos
    (tmp_path / "elsewhere/c/self").symlink_to(".")
    (tmp_path / "photos/a/other").symlink_to("../b")  # each leads to the other
    (tmp_path / "photos/b/other").symlink_to("../a")
    found = {
        os.path.relpath(parent, tmp_path / "photos"): names for parent, _, names in files.walk(tmp_path / "photos")
    }
    with_file = {"a/deep", "a/other", "b", "b/other/deep", "linked/c"}
    assert {parent for parent, names in found.items() if names == ["file"]} == with_file
    assert found.keys() - with_file == {".", "a", "b/other", "linked"}


def test_a_walk_goes_only_where_it_is_left_to_go_and_a_missing_folder_has_nothing(tmp_path):
    (tmp_path / "a/b").mkdir(parents=True)
    (tmp_path / "c").mkdir()
    visited = []
    for parent, folders, _ in files.walk(str(tmp_path)):
        visited.append(os.path.relpath(parent, tmp_path))
        folders[:] = [name for name in folders if name != "a"]
    assert visited == [".", "c"]
    assert list(files.walk(str(tmp_path / "missing"))) == []


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
