"""image/datasets.py on small files written in the official formats."""

import dataclasses
import hashlib
import io
import os
import pickle
import pickletools
import struct
import tarfile

import numpy as np
import pytest
import scipy.io

from image import datasets

PER_BATCH = 4
BATCHES = ("data_batch_1", "data_batch_2", "data_batch_3", "data_batch_4", "data_batch_5", "test_batch")
FORMS = {form.folder: form for form in datasets.CIFAR10_FORMS}
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
    return file.getvalue()


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
def cifar10(monkeypatch):
    """Examples of six batches, four images each, while the official sizes are set to match."""
    facts = dataclasses.replace(datasets.DATASETS["cifar10"], train_size=5 * PER_BATCH, test_size=PER_BATCH)
    monkeypatch.setitem(datasets.DATASETS, "cifar10", facts)
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
    form = dataclasses.replace(form, md5=hashlib.md5(archive.read_bytes()).hexdigest())
    forms = [form if form.folder == other.folder else other for other in datasets.CIFAR10_FORMS]
    monkeypatch.setattr(datasets, "CIFAR10_FORMS", forms)
    return archive


def assert_read(raw_data_dir, split, examples, names, **options):
    images, labels = datasets.read_split("cifar10", raw_data_dir, split, **options)
    assert images.dtype == np.uint8 and labels.dtype == np.int64
    assert images.flags.c_contiguous and images.flags.writeable
    np.testing.assert_array_equal(images, np.concatenate([examples[name][0] for name in names]))
    np.testing.assert_array_equal(labels, np.concatenate([examples[name][1] for name in names]))


# The table of facts.


def test_facts_of_the_published_data_sets():
    cifar10, svhn = datasets.DATASETS["cifar10"], datasets.DATASETS["svhn"]
    assert cifar10.num_classes == svhn.num_classes == 10
    assert cifar10.class_names[3] == "cat" and svhn.class_names[0] == "0"
    assert cifar10.flip and not svhn.flip
    assert cifar10.split_sizes == {"train": 50_000, "test": 10_000}
    assert svhn.split_sizes == {"train": 73_257, "test": 26_032, "extra": 531_131}
    assert (cifar10.label_order, svhn.label_order) == ("file", "numpy_seed_0")


def test_every_data_set_has_a_reader_and_a_known_label_order():
    assert set(datasets.READERS) == set(datasets.DATASETS)
    for name, facts in datasets.DATASETS.items():
        assert facts.name == name
        assert facts.label_order in datasets.LABEL_ORDERS


def test_an_unknown_data_set_is_refused(tmp_path):
    with pytest.raises(ValueError, match="task_name='mnist' is unknown: use one of cifar10, svhn, digits"):
        datasets.read_split("mnist", tmp_path, "train")


def test_only_svhn_has_an_extra_split(tmp_path):
    with pytest.raises(ValueError, match="split='extra' does not exist for cifar10: use one of train, test"):
        datasets.read_split("cifar10", tmp_path, "extra")


# CIFAR-10.


@pytest.mark.parametrize("folder", [PYTHON, BINARY])
def test_cifar10_folders_are_read_in_file_order(tmp_path, cifar10, folder):
    write_cifar10(tmp_path / folder, cifar10)
    assert_read(tmp_path, "train", cifar10, BATCHES[:5])
    assert_read(str(tmp_path), "test", cifar10, BATCHES[5:])


@pytest.mark.parametrize("folder", [PYTHON, BINARY])
def test_the_extracted_folder_itself_may_be_named(tmp_path, cifar10, folder):
    write_cifar10(tmp_path / folder, cifar10)
    assert_read(tmp_path / folder, "train", cifar10, BATCHES[:5])


@pytest.mark.parametrize("folder", [PYTHON, BINARY])
def test_archives_are_read_without_extracting(tmp_path, cifar10, folder, monkeypatch):
    archive = write_archive(tmp_path, FORMS[folder], cifar10, monkeypatch)
    assert_read(tmp_path, "train", cifar10, BATCHES[:5])
    assert_read(tmp_path, "test", cifar10, BATCHES[5:])
    assert list(tmp_path.iterdir()) == [archive]


def test_an_extracted_folder_goes_before_an_archive(tmp_path, cifar10):
    write_cifar10(tmp_path / BINARY, cifar10)
    (tmp_path / FORMS[PYTHON].archive).write_bytes(b"not read")
    assert_read(tmp_path, "test", cifar10, BATCHES[5:])


@pytest.mark.parametrize("protocol", [2, 4])
def test_batches_pickled_by_python_3_are_read(tmp_path, cifar10, protocol):
    write_cifar10(tmp_path / PYTHON, cifar10, dump=lambda batch: pickle.dumps(batch, protocol=protocol))
    assert_read(tmp_path, "test", cifar10, BATCHES[5:])


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


def test_a_pickle_that_runs_code_is_refused_and_does_not_run(tmp_path, cifar10):
    write_cifar10(tmp_path / PYTHON, cifar10)
    payload = pickle.dumps({b"data": RunsACommand(f"touch {tmp_path}/ran"), b"labels": []}, protocol=2)
    (tmp_path / PYTHON / "test_batch").write_bytes(payload)
    with pytest.raises(ValueError, match=rf"refused the global {os.system.__module__}\.system"):
        datasets.read_split("cifar10", tmp_path, "test")
    assert not (tmp_path / "ran").exists()
    pickle.loads(payload)
    assert (tmp_path / "ran").exists()  # so the file was a real attack


def test_missing_cifar10_names_the_places_and_the_script(tmp_path):
    with pytest.raises(ValueError, match="No CIFAR-10 in raw_data_dir=") as error:
        datasets.read_split("cifar10", tmp_path, "train")
    for part in [str(tmp_path), *FORMS, *(form.archive for form in FORMS.values()), "scripts/download_cifar10.sh"]:
        assert part in str(error.value)


def test_missing_batches_are_listed(tmp_path, cifar10):
    write_cifar10(tmp_path / BINARY, cifar10, ["data_batch_1", "data_batch_4", "test_batch"])
    missing = "lacks data_batch_2.bin, data_batch_3.bin, data_batch_5.bin of the train split.*download_cifar10.sh"
    with pytest.raises(ValueError, match=missing):
        datasets.read_split("cifar10", tmp_path, "train")


@pytest.mark.parametrize("folder", [PYTHON, BINARY])
def test_a_part_of_cifar10_is_read_on_request(tmp_path, cifar10, folder):
    cifar10["data_batch_4"] = random_examples(3)
    cifar10["test_batch"] = random_examples(2)
    write_cifar10(tmp_path / folder, cifar10, ["data_batch_4", "data_batch_1", "test_batch"])
    assert_read(tmp_path, "train", cifar10, ["data_batch_1", "data_batch_4"], allow_partial=True)
    assert_read(tmp_path, "test", cifar10, ["test_batch"], allow_partial=True)


def test_a_split_without_any_file_is_an_error_even_for_a_part(tmp_path, cifar10):
    write_cifar10(tmp_path / BINARY, cifar10, ["data_batch_1"])
    with pytest.raises(ValueError, match="lacks test_batch.bin of the test split"):
        datasets.read_split("cifar10", tmp_path, "test", allow_partial=True)


@pytest.mark.parametrize("allow_partial", [False, True])
def test_a_broken_binary_record_is_an_error(tmp_path, cifar10, allow_partial):
    write_cifar10(tmp_path / BINARY, cifar10)
    path = tmp_path / BINARY / "data_batch_3.bin"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(ValueError, match=r"data_batch_3\.bin .*multiple of 3073 bytes, found 12291 bytes.*download"):
        datasets.read_split("cifar10", tmp_path, "train", allow_partial)


def test_an_empty_binary_file_is_an_error(tmp_path, cifar10):
    write_cifar10(tmp_path / BINARY, cifar10)
    (tmp_path / BINARY / "test_batch.bin").write_bytes(b"")
    with pytest.raises(ValueError, match="found 0 bytes"):
        datasets.read_split("cifar10", tmp_path, "test", allow_partial=True)


def test_a_short_binary_file_is_an_error(tmp_path, cifar10):
    cifar10["test_batch"] = random_examples(3)
    write_cifar10(tmp_path / BINARY, cifar10)
    with pytest.raises(ValueError, match=r"expected 12292 bytes \(4 images\), found 9219 bytes \(3 images\)"):
        datasets.read_split("cifar10", tmp_path, "test")


def test_a_short_pickle_is_an_error(tmp_path, cifar10):
    cifar10["test_batch"] = random_examples(3)
    write_cifar10(tmp_path / PYTHON, cifar10)
    expected = r"expected uint8 images of shape \(4, 32, 32, 3\) and 4 labels, found .*\(3, 32, 32, 3\) and 3 labels"
    with pytest.raises(ValueError, match=expected):
        datasets.read_split("cifar10", tmp_path, "test")


@pytest.mark.parametrize("kept", [0, 1, 50, 5000, -1])
def test_a_truncated_pickle_is_an_error(tmp_path, cifar10, kept):
    write_cifar10(tmp_path / PYTHON, cifar10)
    path = tmp_path / PYTHON / "test_batch"
    content = path.read_bytes()[:kept]
    path.write_bytes(content)
    expected = f"test_batch is not a whole cifar10 file: expected a pickle of 4 images, found {len(content)} bytes"
    with pytest.raises(ValueError, match=expected + ".*download_cifar10.sh"):
        datasets.read_split("cifar10", tmp_path, "test")


def test_labels_beyond_the_classes_are_an_error(tmp_path, cifar10):
    cifar10["test_batch"][1][:] = [0, 7, 10, 2]
    write_cifar10(tmp_path / BINARY, cifar10)
    with pytest.raises(ValueError, match="expected labels from 0 to 9, found labels from 0 to 10"):
        datasets.read_split("cifar10", tmp_path, "test")


@pytest.mark.parametrize("folder", [PYTHON, BINARY])
def test_a_truncated_archive_is_an_error(tmp_path, cifar10, folder, monkeypatch):
    archive = write_archive(tmp_path, FORMS[folder], cifar10, monkeypatch)
    content = archive.read_bytes()[:-100]
    archive.write_bytes(content)
    found = f"found md5={hashlib.md5(content).hexdigest()} .{len(content)} bytes"
    with pytest.raises(ValueError, match=f"{archive.name} .*expected md5=.*{found}.*download_cifar10.sh"):
        datasets.read_split("cifar10", tmp_path, "train")


def test_an_archive_must_have_the_official_md5(tmp_path):
    (tmp_path / "cifar-10-python.tar.gz").write_bytes(b"some error page")
    with pytest.raises(ValueError, match="expected md5=c58f30108f718f92721af3b95e74349a, found md5="):
        datasets.read_split("cifar10", tmp_path, "train", allow_partial=True)


# SVHN.


def write_svhn(raw_data_dir, split, images, labels):
    arrays = {"X": np.transpose(images, (1, 2, 3, 0)), "y": np.asarray(labels, np.uint8)[:, np.newaxis]}
    path = raw_data_dir / f"{split}_32x32.mat"
    scipy.io.savemat(path, arrays, do_compression=True)
    return path


@pytest.fixture
def svhn(monkeypatch):
    facts = dataclasses.replace(datasets.DATASETS["svhn"], train_size=6, test_size=5, extra_size=7)
    monkeypatch.setitem(datasets.DATASETS, "svhn", facts)


@pytest.mark.parametrize("split, count", [("train", 6), ("test", 5), ("extra", 7)])
def test_svhn_is_read_and_its_label_10_is_the_digit_0(tmp_path, svhn, split, count):
    images, _ = random_examples(count)
    stored = np.array([10, 1, 9, 10, 5, 2, 3])[:count]
    write_svhn(tmp_path, split, images, stored)
    read_images, labels = datasets.read_split("svhn", tmp_path, split)
    assert read_images.dtype == np.uint8 and labels.dtype == np.int64 and read_images.flags.c_contiguous
    np.testing.assert_array_equal(read_images, images)
    np.testing.assert_array_equal(labels, np.array([0, 1, 9, 0, 5, 2, 3])[:count])


@pytest.mark.parametrize("split, command", [("train", "download_svhn.sh"), ("extra", "download_svhn.sh --extra")])
def test_missing_svhn_names_the_file_and_the_script(tmp_path, split, command):
    with pytest.raises(ValueError, match=f"{split}_32x32.mat does not exist.*{command} {tmp_path}"):
        datasets.read_split("svhn", tmp_path, split)


def test_a_part_of_svhn_is_read_on_request_only(tmp_path, svhn):
    images, labels = random_examples(3)
    write_svhn(tmp_path, "train", images, labels)
    with pytest.raises(ValueError, match=r"expected uint8 images of shape \(6, 32, 32, 3\).*found .*\(3, 32, 32, 3\)"):
        datasets.read_split("svhn", tmp_path, "train")
    np.testing.assert_array_equal(datasets.read_split("svhn", tmp_path, "train", allow_partial=True)[0], images)


@pytest.mark.parametrize("kept", [0, 50, 1000, -100])
def test_a_truncated_svhn_file_is_an_error(tmp_path, svhn, kept):
    path = write_svhn(tmp_path, "train", *random_examples(6))
    content = path.read_bytes()[:kept]
    path.write_bytes(content)
    expected = f"expected a MATLAB file of 6 images, found {len(content)} bytes that fail with .*download_svhn.sh"
    with pytest.raises(ValueError, match=expected):
        datasets.read_split("svhn", tmp_path, "train")


def test_svhn_labels_beyond_the_classes_are_an_error(tmp_path, svhn):
    write_svhn(tmp_path, "test", random_examples(5)[0], [1, 2, 3, 4, 11])
    with pytest.raises(ValueError, match="expected labels from 0 to 9, found labels from 1 to 11"):
        datasets.read_split("svhn", tmp_path, "test")


# Digits.


def test_digits_need_no_files_and_match_their_facts():
    facts = datasets.DATASETS["digits"]
    images, labels = datasets.read_split("digits", "does/not/exist", "train")
    assert images.shape == (1297, 32, 32, 3) and images.dtype == np.uint8
    assert labels.shape == (1297,) and labels.dtype == np.int64
    assert set(labels) == set(range(10))
    assert images.max() == 255 and images.min() == 0
    np.testing.assert_allclose((images / 255).mean(axis=(0, 1, 2)), facts.mean, atol=1e-6)
    np.testing.assert_allclose((images / 255).std(axis=(0, 1, 2)), facts.std, atol=1e-6)


def test_digits_are_split_without_overlap_and_always_alike():
    train, _ = datasets.read_split("digits", "", "train")
    test, test_labels = datasets.read_split("digits", "", "test")
    assert test.shape == (500, 32, 32, 3) and test_labels.shape == (500,)
    assert not {image.tobytes() for image in train} & {image.tobytes() for image in test}
    np.testing.assert_array_equal(test, datasets.read_split("digits", "", "test")[0])


# Labelled subsets.


LABELS = np.random.default_rng(7).integers(0, 10, 1000)


def test_labelled_examples_are_the_first_in_file_order():
    chosen = datasets.choose_labelled(LABELS, sup_size=250, num_classes=10)
    assert chosen.dtype == np.int64
    np.testing.assert_array_equal(chosen, np.arange(250))


def test_svhn_labelled_examples_are_the_first_of_numpys_seed_0():
    order = datasets.DATASETS["svhn"].label_order
    chosen = datasets.choose_labelled(LABELS, 250, 10, order)
    assert chosen.dtype == np.int64
    np.testing.assert_array_equal(chosen, np.random.RandomState(0).permutation(1000)[:250])


@pytest.mark.parametrize("order", ["file", "numpy_seed_0"])
def test_an_equal_split_has_the_first_of_each_class_in_order(order):
    candidates = datasets.LABEL_ORDERS[order](len(LABELS)).tolist()
    chosen = datasets.choose_labelled(LABELS, 50, 10, order, use_equal_split=True).tolist()
    for label in range(10):
        of_class = [index for index in candidates if LABELS[index] == label]
        assert [index for index in chosen if LABELS[index] == label] == of_class[:5]
    assert chosen == sorted(chosen, key=candidates.index)


def test_label_seed_gives_other_subsets_that_repeat():
    chosen = [datasets.choose_labelled(LABELS, 250, 10, label_seed=seed).tolist() for seed in (0, 1, 1)]
    assert chosen[0] != chosen[1] and chosen[1] == chosen[2]
    assert chosen[0] == np.random.default_rng(0).permutation(1000)[:250].tolist()
    assert len(set(chosen[0])) == 250


def test_label_seed_and_equal_split_go_together():
    chosen = datasets.choose_labelled(LABELS, 40, 10, use_equal_split=True, label_seed=3)
    assert np.bincount(LABELS[chosen]).tolist() == [4] * 10


def test_a_larger_subset_contains_the_smaller():
    small, large = (datasets.choose_labelled(LABELS, size, 10, label_seed=1, use_equal_split=True) for size in (20, 40))
    assert set(small) < set(large)


def test_plain_lists_of_ones_own_labels_will_do():
    assert datasets.choose_labelled([1, 1, 0, 1, 0], 2, 2, use_equal_split=True).tolist() == [0, 2]


@pytest.mark.parametrize("sup_size", [-1, 0, 1001])
def test_sup_size_must_fit_the_training_set(sup_size):
    with pytest.raises(ValueError, match=f"sup_size={sup_size} is out of range: use 1 to 1000"):
        datasets.choose_labelled(LABELS, sup_size, 10)


def test_every_example_may_be_labelled():
    assert datasets.choose_labelled(LABELS, 1000, 10).tolist() == list(range(1000))


@pytest.mark.parametrize("sup_size, advice", [(25, "use 20 or 30"), (5, "use 10,")])
def test_an_equal_split_needs_a_multiple_of_the_classes(sup_size, advice):
    with pytest.raises(ValueError, match=f"sup_size={sup_size} is not divisible by num_classes=10: {advice}"):
        datasets.choose_labelled(LABELS, sup_size, 10, use_equal_split=True)


def test_an_equal_split_names_the_class_that_is_too_small():
    with pytest.raises(ValueError, match="Class 2 has 1 examples, but use_equal_split needs 2 of each class"):
        datasets.choose_labelled([0, 0, 0, 1, 1, 2], 6, 3, use_equal_split=True)


def test_an_unknown_label_order_is_refused():
    with pytest.raises(ValueError, match="label_order='random' is unknown: use one of file, numpy_seed_0"):
        datasets.choose_labelled(LABELS, 10, 10, "random")


# Development splits.


def test_the_development_split_is_the_end_of_the_labelled_examples():
    labelled = datasets.choose_labelled(LABELS, 100, 10, label_seed=2)
    train, dev = datasets.split_dev(labelled, LABELS, 10, dev_size=30)
    np.testing.assert_array_equal(train, labelled[:70])
    np.testing.assert_array_equal(dev, labelled[70:])


def test_an_equal_development_split_is_disjoint_and_balanced():
    labelled = datasets.choose_labelled(LABELS, 100, 10, use_equal_split=True, label_seed=2)
    train, dev = datasets.split_dev(labelled, LABELS, 10, dev_size=30, use_equal_split=True)
    assert np.bincount(LABELS[train]).tolist() == [7] * 10
    assert np.bincount(LABELS[dev]).tolist() == [3] * 10
    assert sorted([*train, *dev]) == sorted(labelled)
    np.testing.assert_array_equal(train, datasets.choose_labelled(LABELS, 70, 10, use_equal_split=True, label_seed=2))


@pytest.mark.parametrize("use_equal_split", [False, True])
def test_no_development_split_leaves_everything_to_training(use_equal_split):
    train, dev = datasets.split_dev(np.arange(20), LABELS, 10, 0, use_equal_split)
    np.testing.assert_array_equal(train, np.arange(20))
    assert dev.shape == (0,) and dev.dtype == np.int64


@pytest.mark.parametrize("dev_size", [-1, 20, 21])
def test_the_development_split_must_leave_labels_to_train_on(dev_size):
    with pytest.raises(ValueError, match=f"dev_size={dev_size} is out of range for 20 labelled.*use 0 to 19"):
        datasets.split_dev(np.arange(20), LABELS, 10, dev_size)


def test_an_equal_development_split_needs_a_multiple_of_the_classes():
    with pytest.raises(ValueError, match="dev_size=15 is not divisible by num_classes=10: use 10 or 20"):
        datasets.split_dev(np.arange(100), LABELS, 10, 15, use_equal_split=True)
