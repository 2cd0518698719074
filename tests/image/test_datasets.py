"""The table of data sets, and those of official files on small files written in their formats."""

import dataclasses
import functools
import hashlib
import io
import json
import os
import pickle
import pickletools
import re
import struct
import tarfile
import zlib

import numpy as np
import pytest
import scipy.io

from image import datasets
from image.config import PreprocessConfig
from image.datasets import cifar10, digits, svhn
from image.datasets.source import LABEL_ORDERS, parse_facts

PER_BATCH = 4
BATCHES = ("data_batch_1", "data_batch_2", "data_batch_3", "data_batch_4", "data_batch_5", "test_batch")
FORMS = {form.folder: form for form in cifar10.FORMS}
PYTHON, BINARY = "cifar-10-batches-py", "cifar-10-batches-bin"


class Python2Pickler(pickle._Pickler):
    """Writes strings as Python 2 did, which wrote the official files: as byte strings without an encoding."""

    dispatch = pickle._Pickler.dispatch.copy()

    def save_python2_string(self, value):
        content = value.encode("latin1") if isinstance(value, str) else value
        self.write(pickle.BINSTRING + struct.pack("<i", len(content)) + content)
        self.memoize(value)

    dispatch[bytes] = save_python2_string
    dispatch[str] = save_python2_string


def python2_pickle(value):
    file = io.BytesIO()
    Python2Pickler(file, protocol=2).dump(value)
    return with_module_names_of("numpy.core", file.getvalue())


def with_module_names_of(core, pickled):
    """What NumPy 1, where `core` is numpy.core, or NumPy 2, numpy._core, has pickled with protocol 2."""
    return re.sub(rb"cnumpy\._?core\.", f"c{core}.".encode(), pickled)


def write_batch(folder, name, images, labels, dump=python2_pickle):
    """One CIFAR-10 batch in the form that the folder's name tells, built pixel plane by pixel plane."""
    planes = [np.concatenate([image[:, :, channel].ravel() for channel in range(3)]) for image in images]
    folder.mkdir(exist_ok=True)
    if folder.name == BINARY:
        content = b"".join(bytes([label]) + plane.tobytes() for label, plane in zip(labels, planes))
        (folder / f"{name}.bin").write_bytes(content)
    else:
        batch = {
            b"batch_label": f"{name} of 6".encode(),
            b"labels": [int(label) for label in labels],
            b"data": np.stack(planes),
            b"filenames": [f"image_{number}.png".encode() for number in range(len(labels))],
        }
        (folder / name).write_bytes(dump(batch))


def random_examples(count, seed=0):
    generator = np.random.default_rng(seed)
    return generator.integers(0, 256, (count, 32, 32, 3), np.uint8), generator.integers(0, 10, count)


@pytest.fixture
def examples(monkeypatch):
    """Examples of six batches, four images each, while the official sizes are set to match."""
    facts = dataclasses.replace(cifar10.FACTS, train_size=5 * PER_BATCH, test_size=PER_BATCH)
    monkeypatch.setattr(cifar10, "FACTS", facts)
    return {name: random_examples(PER_BATCH, seed) for seed, name in enumerate(BATCHES)}


def write_cifar10(folder, examples, names=BATCHES, **options):
    for name in names:
        write_batch(folder, name, *examples[name], **options)
    return folder


def write_archive(raw_data_dir, form, examples, monkeypatch):
    """Packs the folder as the official archive does and takes its md5 as the official one."""
    folder = write_cifar10(raw_data_dir / form.folder, examples)
    archive = raw_data_dir / form.archive
    with tarfile.open(archive, "w:gz") as file:
        file.add(folder, arcname=form.folder)
    for path in folder.iterdir():
        path.unlink()
    folder.rmdir()
    form = form._replace(md5=hashlib.md5(archive.read_bytes()).hexdigest())
    forms = [form if form.folder == other.folder else other for other in cifar10.FORMS]
    monkeypatch.setattr(cifar10, "FORMS", forms)
    return archive


def assert_read(raw_data_dir, split, examples, names, **options):
    images, labels = cifar10.read_split(raw_data_dir, split, **options)
    assert images.dtype == np.uint8 and labels.dtype == np.int64
    assert images.flags.c_contiguous and images.flags.writeable
    np.testing.assert_array_equal(images, np.concatenate([examples[name][0] for name in names]))
    np.testing.assert_array_equal(labels, np.concatenate([examples[name][1] for name in names]))


# The table of data sets.


def open_source(task_name, **settings):
    return datasets.open_source(PreprocessConfig(task_name=task_name, **settings))


def test_facts_of_the_published_data_sets():
    assert cifar10.FACTS.num_classes == svhn.FACTS.num_classes == 10
    assert cifar10.FACTS.class_names[3] == "cat" and svhn.FACTS.class_names[0] == "0"
    assert cifar10.FACTS.flip and not svhn.FACTS.flip
    assert cifar10.FACTS.split_sizes == {"train": 50_000, "test": 10_000}
    assert svhn.FACTS.split_sizes == {"train": 73_257, "test": 26_032, "extra": 531_131}
    assert (cifar10.FACTS.label_order, svhn.FACTS.label_order) == ("file", "numpy_seed_0")


@pytest.mark.parametrize("module", [cifar10, svhn, digits])
def test_a_data_set_is_opened_by_its_name_without_reading_it(module):
    source = open_source(module.FACTS.name)
    assert source.facts == module.FACTS and source.checksums == {}
    assert datasets.SOURCES[source.facts.name] is module.open_source
    assert source.read.raw_data_dir == f"data/raw/{source.facts.name}"


def test_a_source_reads_the_same_splits_in_another_process():
    read = open_source("digits").read
    sent = pickle.loads(pickle.dumps(read))
    assert sent == read and hash(sent) == hash(read)  # so that a process reads once
    arrays = sent()
    assert {split: images.shape[0] for split, (images, _) in arrays.items()} == {
        "train": 1297,
        "unlabeled": 1297,
        "test": 500,
    }


def test_the_extra_split_of_svhn_goes_to_the_unlabelled_images(tmp_path, small_svhn):
    parts = {split: random_examples(count, count) for split, count in (("train", 6), ("test", 5), ("extra", 7))}
    for split, (images, labels) in parts.items():
        write_svhn(tmp_path, split, images, labels + 1)
    arrays = open_source("svhn", raw_data_dir=str(tmp_path), use_extra=True).read()
    np.testing.assert_array_equal(arrays["train"][0], parts["train"][0])
    np.testing.assert_array_equal(arrays["unlabeled"][0], np.concatenate([parts["train"][0], parts["extra"][0]]))


def test_an_unknown_data_set_is_refused():
    with pytest.raises(ValueError, match="task_name='mnist': expected one of 'cifar10', 'svhn', 'digits'"):
        open_source("mnist")


@pytest.mark.parametrize(
    "task_name, advice", [("imagenet", "with `python -m image.imagenet_index`"), ("arrays", "Save them to files")]
)
def test_data_that_are_not_preprocessed_are_refused_with_advice(task_name, advice):
    for settings in ({}, {"unlabeled_dir": "more"}):
        with pytest.raises(ValueError, match=f"task_name={task_name}: .*{advice}"):
            open_source(task_name, **settings)


@pytest.mark.parametrize("task_name", ["cifar10", "digits"])
def test_only_svhn_has_an_extra_split(task_name):
    with pytest.raises(ValueError, match=f"use_extra=True is for task_name=svhn only.*task_name={task_name} reads"):
        open_source(task_name, use_extra=True)


@pytest.mark.parametrize("task_name", ["cifar10", "svhn", "digits"])
def test_published_images_keep_their_size(task_name):
    assert open_source(task_name, image_size=32).facts.image_size == 32
    with pytest.raises(ValueError, match=f"image_size=64: the images of task_name={task_name} have 32 pixels"):
        open_source(task_name, image_size=64)


def test_an_unknown_label_order_is_refused():
    with pytest.raises(ValueError, match="label_order='random' is unknown: use one of file, numpy_seed_0"):
        dataclasses.replace(cifar10.FACTS, label_order="random")


def test_the_published_orders_of_labels():
    np.testing.assert_array_equal(LABEL_ORDERS["file"](250), np.arange(250))
    np.testing.assert_array_equal(LABEL_ORDERS["numpy_seed_0"](250), np.random.RandomState(0).permutation(250))


# CIFAR-10.


@pytest.mark.parametrize("folder", [PYTHON, BINARY])
def test_cifar10_folders_are_read_in_file_order(tmp_path, examples, folder):
    write_cifar10(tmp_path / folder, examples)
    assert_read(tmp_path, "train", examples, BATCHES[:5])
    assert_read(str(tmp_path), "test", examples, BATCHES[5:])


@pytest.mark.parametrize("folder", [PYTHON, BINARY])
def test_the_extracted_folder_itself_may_be_named(tmp_path, examples, folder):
    write_cifar10(tmp_path / folder, examples)
    assert_read(tmp_path / folder, "train", examples, BATCHES[:5])


@pytest.mark.parametrize("folder", [PYTHON, BINARY])
def test_archives_are_read_without_extracting(tmp_path, examples, folder, monkeypatch):
    archive = write_archive(tmp_path, FORMS[folder], examples, monkeypatch)
    assert_read(tmp_path, "train", examples, BATCHES[:5])
    assert_read(tmp_path, "test", examples, BATCHES[5:])
    assert list(tmp_path.iterdir()) == [archive]


def test_an_extracted_folder_goes_before_an_archive(tmp_path, examples):
    write_cifar10(tmp_path / BINARY, examples)
    (tmp_path / FORMS[PYTHON].archive).write_bytes(b"not read")
    assert_read(tmp_path, "test", examples, BATCHES[5:])


@pytest.mark.parametrize("protocol", [2, 4])
def test_batches_pickled_by_python_3_are_read(tmp_path, examples, protocol):
    write_cifar10(tmp_path / PYTHON, examples, dump=lambda batch: pickle.dumps(batch, protocol=protocol))
    assert_read(tmp_path, "test", examples, BATCHES[5:])


@pytest.mark.parametrize("core", ["numpy.core", "numpy._core"])
def test_batches_pickled_by_numpy_1_and_by_numpy_2_are_read(tmp_path, examples, core):
    dump = functools.partial(pickle.dumps, protocol=2)
    write_cifar10(tmp_path / PYTHON, examples, dump=lambda batch: with_module_names_of(core, dump(batch)))
    assert f"c{core}.multiarray\n".encode() in (tmp_path / PYTHON / "test_batch").read_bytes()
    assert_read(tmp_path, "test", examples, BATCHES[5:])


def test_these_tests_pickle_as_the_official_files_do():
    batch = {b"data": np.zeros((2, 3072), np.uint8), b"labels": [1, 2]}
    operations = [(operation.name, argument) for operation, argument, _ in pickletools.genops(python2_pickle(batch))]
    used_globals = {argument for name, argument in operations if name == "GLOBAL"}
    assert used_globals == {"numpy.core.multiarray _reconstruct", "numpy ndarray", "numpy dtype"}
    assert not any("UNICODE" in name for name, _ in operations)


class RunsACommand:
    def __init__(self, command):
        self.command = command

    def __reduce__(self):
        return os.system, (self.command,)


def test_a_pickle_that_runs_code_is_refused_and_does_not_run(tmp_path, examples):
    write_cifar10(tmp_path / PYTHON, examples)
    payload = pickle.dumps({b"data": RunsACommand(f"touch {tmp_path}/ran"), b"labels": []}, protocol=2)
    (tmp_path / PYTHON / "test_batch").write_bytes(payload)
    with pytest.raises(ValueError, match=rf"refused the global {os.system.__module__}\.system"):
        cifar10.read_split(tmp_path, "test")
    assert not (tmp_path / "ran").exists()
    pickle.loads(payload)
    assert (tmp_path / "ran").exists()  # so the file was a real attack


def test_missing_cifar10_names_the_places_and_the_script(tmp_path):
    with pytest.raises(ValueError, match="No CIFAR-10 in raw_data_dir=") as error:
        cifar10.read_split(tmp_path, "train")
    for part in [str(tmp_path), *FORMS, *(form.archive for form in FORMS.values()), "scripts/download_cifar10.sh"]:
        assert part in str(error.value)


def test_missing_batches_are_listed(tmp_path, examples):
    write_cifar10(tmp_path / BINARY, examples, ["data_batch_1", "data_batch_4", "test_batch"])
    missing = "lacks data_batch_2.bin, data_batch_3.bin, data_batch_5.bin of the train split.*download_cifar10.sh"
    with pytest.raises(ValueError, match=missing):
        cifar10.read_split(tmp_path, "train")


@pytest.mark.parametrize("folder", [PYTHON, BINARY])
def test_a_part_of_cifar10_is_read_on_request(tmp_path, examples, folder):
    examples["data_batch_4"] = random_examples(3)
    examples["test_batch"] = random_examples(2)
    write_cifar10(tmp_path / folder, examples, ["data_batch_4", "data_batch_1", "test_batch"])
    assert_read(tmp_path, "train", examples, ["data_batch_1", "data_batch_4"], allow_partial=True)
    assert_read(tmp_path, "test", examples, ["test_batch"], allow_partial=True)


def test_a_split_without_any_file_is_an_error_even_for_a_part(tmp_path, examples):
    write_cifar10(tmp_path / BINARY, examples, ["data_batch_1"])
    with pytest.raises(ValueError, match="lacks test_batch.bin of the test split"):
        cifar10.read_split(tmp_path, "test", allow_partial=True)


@pytest.mark.parametrize("allow_partial", [False, True])
def test_a_broken_binary_record_is_an_error(tmp_path, examples, allow_partial):
    write_cifar10(tmp_path / BINARY, examples)
    path = tmp_path / BINARY / "data_batch_3.bin"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(ValueError, match=r"data_batch_3\.bin .*multiple of 3073 bytes, found 12291 bytes.*download"):
        cifar10.read_split(tmp_path, "train", allow_partial)


def test_an_empty_binary_file_is_an_error(tmp_path, examples):
    write_cifar10(tmp_path / BINARY, examples)
    (tmp_path / BINARY / "test_batch.bin").write_bytes(b"")
    with pytest.raises(ValueError, match="found 0 bytes"):
        cifar10.read_split(tmp_path, "test", allow_partial=True)


def test_a_short_binary_file_is_an_error(tmp_path, examples):
    examples["test_batch"] = random_examples(3)
    write_cifar10(tmp_path / BINARY, examples)
    with pytest.raises(ValueError, match=r"expected 12292 bytes \(4 images\), found 9219 bytes \(3 images\)"):
        cifar10.read_split(tmp_path, "test")


def test_a_short_pickle_is_an_error(tmp_path, examples):
    examples["test_batch"] = random_examples(3)
    write_cifar10(tmp_path / PYTHON, examples)
    expected = r"expected uint8 images of shape \(4, 32, 32, 3\) and 4 labels, found .*\(3, 32, 32, 3\) and 3 labels"
    with pytest.raises(ValueError, match=expected):
        cifar10.read_split(tmp_path, "test")


@pytest.mark.parametrize("kept", [0, 1, 50, 5000, -1])
def test_a_truncated_pickle_is_an_error(tmp_path, examples, kept):
    write_cifar10(tmp_path / PYTHON, examples)
    path = tmp_path / PYTHON / "test_batch"
    content = path.read_bytes()[:kept]
    path.write_bytes(content)
    expected = f"test_batch is not a whole cifar10 file: expected a pickle of 4 images, found {len(content)} bytes"
    with pytest.raises(ValueError, match=expected + ".*download_cifar10.sh"):
        cifar10.read_split(tmp_path, "test")


def test_labels_beyond_the_classes_are_an_error(tmp_path, examples):
    examples["test_batch"][1][:] = [0, 7, 10, 2]
    write_cifar10(tmp_path / BINARY, examples)
    with pytest.raises(ValueError, match="expected labels from 0 to 9, found labels from 0 to 10"):
        cifar10.read_split(tmp_path, "test")


@pytest.mark.parametrize("folder", [PYTHON, BINARY])
def test_a_truncated_archive_is_an_error(tmp_path, examples, folder, monkeypatch):
    archive = write_archive(tmp_path, FORMS[folder], examples, monkeypatch)
    content = archive.read_bytes()[:-100]
    archive.write_bytes(content)
    found = f"found md5={hashlib.md5(content).hexdigest()} .{len(content)} bytes"
    with pytest.raises(ValueError, match=f"{archive.name} .*expected md5=.*{found}.*download_cifar10.sh"):
        cifar10.read_split(tmp_path, "train")


def test_an_archive_must_have_the_official_md5(tmp_path):
    (tmp_path / "cifar-10-python.tar.gz").write_bytes(b"some error page")
    with pytest.raises(ValueError, match="expected md5=c58f30108f718f92721af3b95e74349a, found md5="):
        cifar10.read_split(tmp_path, "train", allow_partial=True)


@pytest.mark.parametrize("labels", [[1.7, 2.0, 3.0, 4.0], ["1", "2", "3", "4"], [None] * 4])
def test_labels_that_are_no_whole_numbers_are_an_error(tmp_path, examples, labels):
    write_cifar10(tmp_path / PYTHON, examples)
    batch = {b"data": np.zeros((4, 3072), np.uint8), b"labels": labels}
    (tmp_path / PYTHON / "test_batch").write_bytes(pickle.dumps(batch, protocol=2))
    with pytest.raises(
        ValueError, match="test_batch is not a whole cifar10 file: expected labels that are whole numbers"
    ):
        cifar10.read_split(tmp_path, "test")


# SVHN.


def write_svhn(raw_data_dir, split, images, labels):
    arrays = {"X": np.transpose(images, (1, 2, 3, 0)), "y": np.asarray(labels, np.uint8)[:, np.newaxis]}
    path = raw_data_dir / f"{split}_32x32.mat"
    scipy.io.savemat(path, arrays, do_compression=True)
    return path


@pytest.fixture
def small_svhn(monkeypatch):
    facts = dataclasses.replace(svhn.FACTS, train_size=6, test_size=5, extra_size=7)
    monkeypatch.setattr(svhn, "FACTS", facts)


@pytest.mark.parametrize("split, count", [("train", 6), ("test", 5), ("extra", 7)])
def test_svhn_is_read_and_its_label_10_is_the_digit_0(tmp_path, small_svhn, split, count):
    images, _ = random_examples(count)
    stored = np.array([10, 1, 9, 10, 5, 2, 3])[:count]
    write_svhn(tmp_path, split, images, stored)
    read_images, labels = svhn.read_split(tmp_path, split)
    assert read_images.dtype == np.uint8 and labels.dtype == np.int64 and read_images.flags.c_contiguous
    np.testing.assert_array_equal(read_images, images)
    np.testing.assert_array_equal(labels, np.array([0, 1, 9, 0, 5, 2, 3])[:count])


@pytest.mark.parametrize("split, command", [("train", "download_svhn.sh"), ("extra", "download_svhn.sh --extra")])
def test_missing_svhn_names_the_file_and_the_script(tmp_path, split, command):
    with pytest.raises(ValueError, match=f"{split}_32x32.mat does not exist.*{command} {tmp_path}"):
        svhn.read_split(tmp_path, split)


def test_a_part_of_svhn_is_read_on_request_only(tmp_path, small_svhn):
    images, labels = random_examples(3)
    write_svhn(tmp_path, "train", images, labels)
    with pytest.raises(ValueError, match=r"expected uint8 images of shape \(6, 32, 32, 3\).*found .*\(3, 32, 32, 3\)"):
        svhn.read_split(tmp_path, "train")
    np.testing.assert_array_equal(svhn.read_split(tmp_path, "train", allow_partial=True)[0], images)


@pytest.mark.parametrize("kept", [0, 50, 1000, -100])
def test_a_truncated_svhn_file_is_an_error(tmp_path, small_svhn, kept):
    path = write_svhn(tmp_path, "train", *random_examples(6))
    content = path.read_bytes()[:kept]
    path.write_bytes(content)
    expected = f"expected a MATLAB file of 6 images, found {len(content)} bytes that fail with .*download_svhn.sh"
    with pytest.raises(ValueError, match=expected):
        svhn.read_split(tmp_path, "train")


def test_svhn_labels_beyond_the_classes_are_an_error(tmp_path, small_svhn):
    write_svhn(tmp_path, "test", random_examples(5)[0], [1, 2, 3, 4, 11])
    with pytest.raises(ValueError, match="expected labels from 0 to 9, found labels from 1 to 11"):
        svhn.read_split(tmp_path, "test")


# Digits.


def test_digits_need_no_files_and_match_their_facts():
    facts = digits.FACTS
    images, labels = digits.read_split("does/not/exist", "train")
    assert images.shape == (1297, 32, 32, 3) and images.dtype == np.uint8
    assert labels.shape == (1297,) and labels.dtype == np.int64
    assert set(labels) == set(range(10))
    assert images.max() == 255 and images.min() == 0
    np.testing.assert_allclose((images / 255).mean(axis=(0, 1, 2)), facts.mean, atol=1e-6)
    np.testing.assert_allclose((images / 255).std(axis=(0, 1, 2)), facts.std, atol=1e-6)


def test_digits_are_split_without_overlap_and_always_alike():
    train, _ = digits.read_split("", "train")
    test, test_labels = digits.read_split("", "test")
    assert test.shape == (500, 32, 32, 3) and test_labels.shape == (500,)
    assert not {image.tobytes() for image in train} & {image.tobytes() for image in test}
    np.testing.assert_array_equal(test, digits.read_split("", "test")[0])


def savemat(path, compressed, labels_type=np.uint8):
    images, labels = random_examples(6)
    arrays = {"X": np.transpose(images, (1, 2, 3, 0)), "y": (labels + 1).astype(labels_type)[:, np.newaxis]}
    scipy.io.savemat(path, {"note": "x", "more": np.arange(5.0)} | arrays, do_compression=compressed)
    return images, (labels + 1) % 10


@pytest.mark.parametrize("compressed", [False, True])
@pytest.mark.parametrize("labels_type", [np.uint8, np.int32, np.float64])
def test_matlab_files_of_all_kinds_are_read(tmp_path, small_svhn, compressed, labels_type):
    expected = savemat(tmp_path / "train_32x32.mat", compressed, labels_type)
    for found, array in zip(svhn.read_split(tmp_path, "train"), expected):
        np.testing.assert_array_equal(found, array)


def test_a_changed_type_in_a_matlab_file_is_an_error_and_no_crash(tmp_path, small_svhn):
    path = tmp_path / "train_32x32.mat"
    savemat(path, compressed=False)
    content = bytearray(path.read_bytes())
    position = content.index(b"\x02\x00\x00\x00\x00\x48\x00\x00")  # the tag of 18432 bytes, uint8
    content[position] = 15
    path.write_bytes(content)
    with pytest.raises(ValueError, match="X has values of type 15: expected numbers"):
        svhn.read_split(tmp_path, "train")


@pytest.mark.parametrize("compressed", [False, True])
def test_mutations_of_a_matlab_file_are_read_or_end_in_one_line(tmp_path, small_svhn, compressed):
    path, rng = tmp_path / "train_32x32.mat", np.random.default_rng(0)
    savemat(path, compressed)
    whole = path.read_bytes()
    for _ in range(300):
        content = bytearray(whole)
        for position in rng.integers(0, 400 if rng.random() < 0.8 else len(content), 3):
            content[position] = rng.choice([0, 1, 15, 127, 255, rng.integers(256)])
        path.write_bytes(content[: rng.integers(len(content))] if rng.random() < 0.1 else content)
        try:
            images, labels = svhn.read_split(tmp_path, "train")
            assert images.shape == (6, 32, 32, 3) and labels.min() >= 0 and labels.max() < 10
        except ValueError as error:
            assert "train_32x32.mat is not a whole svhn file" in str(error) and "\n" not in str(error)


def test_an_element_that_claims_to_be_huge_is_not_unpacked(tmp_path, small_svhn):
    path = tmp_path / "train_32x32.mat"
    savemat(path, compressed=True)
    packed = zlib.compress(struct.pack("<II", 14, 2**32 - 1) + bytes(100))
    path.write_bytes(path.read_bytes()[:128] + struct.pack("<II", 15, len(packed)) + packed)
    with pytest.raises(ValueError, match=rf"an element is said to be {2**32 + 7} bytes, packed into {len(packed)}"):
        svhn.read_split(tmp_path, "train")


def test_a_file_of_the_official_size_must_have_the_official_md5(tmp_path, small_svhn, monkeypatch):
    path = tmp_path / "train_32x32.mat"
    savemat(path, compressed=True)
    md5 = hashlib.md5(path.read_bytes()).hexdigest()
    monkeypatch.setitem(svhn.OFFICIAL, "train", (path.stat().st_size, md5))
    svhn.read_split(tmp_path, "train")
    monkeypatch.setitem(svhn.OFFICIAL, "train", (path.stat().st_size, "0" * 32))
    with pytest.raises(ValueError, match=f"expected md5={'0' * 32}, found md5={md5}.*download_svhn.sh"):
        svhn.read_split(tmp_path, "train", allow_partial=True)


@pytest.mark.parametrize("labels", [[1.5, 2, 3, 4, 5, 6], [np.nan, 2, 3, 4, 5, 6], [np.inf, 2, 3, 4, 5, 6]])
def test_svhn_labels_that_are_no_whole_numbers_are_an_error(tmp_path, small_svhn, labels):
    images = np.transpose(random_examples(6)[0], (1, 2, 3, 0))
    scipy.io.savemat(tmp_path / "train_32x32.mat", {"X": images, "y": np.array(labels)[:, np.newaxis]})
    with pytest.raises(ValueError, match="expected labels that are whole"):
        svhn.read_split(tmp_path, "train")


def facts_as_json(**changes):
    return {**dataclasses.asdict(cifar10.FACTS), **changes}


@pytest.mark.parametrize(
    "values, message",
    [
        ([], r"x.json holds \[\]: expected an object with name, image_size"),
        ({}, "x.json: name is missing"),
        (facts_as_json(mean=[1]), r"x.json: mean=\(1,\): expected three numbers from 0 to 1"),
        (facts_as_json(mean=["a", 0, 0]), r"x.json: mean=\['a', 0, 0\]: expected a list, each a finite number"),
        (facts_as_json(std=[0, 0.1, 0.1]), "x.json: std=.*: expected three numbers from 1e-06 to 1"),
        (facts_as_json(image_size=0), "x.json: image_size=0: expected a whole number from 1 to 10000"),
        (facts_as_json(image_size="32"), "x.json: image_size='32'"),
        (facts_as_json(class_names=["a"]), r"x.json: class_names=\('a',\): expected at least two"),
        (facts_as_json(class_names=[["a"], "b"]), "x.json: class_names: expected texts or numbers"),
        (facts_as_json(flip="yes"), "x.json: flip='yes': expected true or false"),
        (facts_as_json(label_order="random"), "x.json: label_order='random' is unknown"),
        (facts_as_json(other=1), "x.json: other is unknown"),
    ],
)
def test_facts_of_another_shape_are_described(values, message):
    values = json.loads(json.dumps(values))
    with pytest.raises(ValueError, match=message) as raised:
        parse_facts("x.json", values)
    assert str(raised.value).lower().endswith("delete it or restore it.")


def test_facts_come_back_from_json():
    for facts in (cifar10.FACTS, svhn.FACTS, dataclasses.replace(digits.FACTS, class_names=(1, 2.5))):
        assert parse_facts("x.json", json.loads(json.dumps(dataclasses.asdict(facts)))) == facts
