"""image/filter_domain.py: from a pool of images to records that image.main trains on."""

import functools
import json
import os
import shutil

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from image import export, filter_domain, input_pipeline, train
from image.datasets import digits, image_files
from tests.image.small_data import colored_images, files_below, read_records, run_preprocess, tiny_config
from tests.programs import run_main
from utils import domain_filter

pytestmark = pytest.mark.slow

FACTS = digits.FACTS
STRATEGY = tf.distribute.OneDeviceStrategy("/cpu:0")
DATA = {"task_name": "digits", "sup_size": 1000}


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A model that knows the digits: (model_dir, data_dir of its records, what was exported)."""
    folder = tmp_path_factory.mktemp("digits")
    run_preprocess("", folder / "data", data_type="sup", **DATA)
    training = {"unsup_ratio": 0, "train_batch_size": 32, "train_steps": 120, "wrn_size": 8, "learning_rate": 0.1}
    train.train_and_evaluate(
        tiny_config(folder / "data", **DATA | training), str(folder / "model"), STRATEGY, True, False
    )
    return str(folder / "model"), folder / "data", export.load(str(folder / "model" / "export"))


def read_marks(images, batch_size=256):
    """A stand-in for a model: the first pixel is the class, the second tells how surely."""
    assert images.dtype == np.uint8 and images.shape[1:] == (32, 32, 3)
    labels, sureness = images[:, 0, 0, 0] % 10, images[:, 0, 1, 0] / 300 + 0.11
    probabilities = np.repeat(((1 - sureness) / 9)[:, np.newaxis], 10, axis=1)
    probabilities[np.arange(len(images)), labels] = sureness
    return probabilities.astype(np.float32)


def marked_images(num_images, seed=0):
    """Images for read_marks, of classes in turn."""
    rng = np.random.default_rng(seed)
    images = rng.integers(0, 256, [num_images, 32, 32, 3]).astype(np.uint8)
    images[:, 0, 0, 0] = np.arange(num_images) % 10
    return images


@pytest.fixture(scope="module")
def empty_records(tmp_path_factory):
    """Records of digits without unlabelled images."""
    data_dir = tmp_path_factory.mktemp("records") / "data"
    run_preprocess("", data_dir, data_type="sup", task_name="digits", sup_size=20)
    return data_dir


@pytest.fixture
def stand_in(monkeypatch):
    def use(predict_proba=read_marks, fingerprint="1"):
        monkeypatch.setattr(domain_filter, "load_model", lambda *_: (FACTS, predict_proba, fingerprint))

    use()
    return use


def filter_pool(data_dir, pool, output_dir, num_per_class, **options):
    folders = {"data_dir": str(data_dir), "output_dir": str(output_dir)}
    config = filter_domain.Config("model", str(pool), num_per_class, **folders, **{"workers": 1} | options)
    return filter_domain.filter_pool(config)


def best_of_each_class(images, num_per_class):
    """Ascending positions of the images that read_marks is most sure of."""
    labels, sureness = images[:, 0, 0, 0], images[:, 0, 1, 0].astype(int)
    order = np.argsort(-sureness, kind="stable")
    return np.sort(np.concatenate([order[labels[order] == label][:num_per_class] for label in range(10)]))


# ---- from a trained model to a new training -------------------------------------------------------------------------


def test_digits_are_found_among_other_images_and_can_be_trained_on(trained, tmp_path, monkeypatch, capsys):
    model_dir, data_dir, exported = trained
    monkeypatch.setattr(export, "load", lambda export_dir: exported)  # once is enough
    images, _ = digits.read_split("", "test")
    pool = np.concatenate([colored_images(300), images[:300]])[np.random.default_rng(0).permutation(600)]
    np.save(tmp_path / "pool.npy", pool)
    output_dir = tmp_path / "filtered"
    arguments = {"model_dir": model_dir, "data_dir": data_dir, "pool": tmp_path / "pool.npy", "output_dir": output_dir}
    arguments |= {"num_per_class": 10, "aug_copy": 2, "workers": 1, "batch_size": 50}
    run_main(filter_domain, *(f"--{name}={value}" for name, value in arguments.items()))
    kept = np.load(output_dir / "kept_images.npy")
    of_digits = {image.tobytes() for image in images}
    share = np.mean([image.tobytes() in of_digits for image in kept])
    assert share > 0.7, share
    assert f"kept {len(kept)} of 600 examples" in capsys.readouterr().out
    summary = json.loads((output_dir / "domain_filter.json").read_text())
    predicted = np.bincount(np.argmax(exported.predict_proba(pool), axis=1), minlength=10)
    assert [entry["predicted"] for entry in summary["classes"].values()] == predicted.tolist()

    for copy in ("copy-000", "copy-001"):
        found = read_records(output_dir / "unsup" / "randaugment" / copy, ["original", "augmented", "index"])
        np.testing.assert_array_equal(found["original"][..., :3], kept[found["index"]])
        assert sorted(found["index"]) == list(range(len(kept)))
    config = tiny_config(output_dir, **DATA)
    batch = next(iter(input_pipeline.create_train_dataset(config, input_pipeline.open_data(config))))
    assert batch["sup"].shape[0] == 4 and batch["augmented"].shape == batch["original"].shape == (8, 32, 32, 4)


def test_the_trainer_can_augment_the_kept_images(empty_records, stand_in, tmp_path):
    images = marked_images(40)
    np.save(tmp_path / "pool.npy", images)
    arguments = (empty_records, tmp_path / "pool.npy", tmp_path / "filtered", 3)
    filter_pool(*arguments, aug_mode="online")
    found = read_records(tmp_path / "filtered" / "unsup" / "originals")
    np.testing.assert_array_equal(found["original"][..., :3], images[best_of_each_class(images, 3)])
    assert not (tmp_path / "filtered" / "unsup" / "randaugment").exists()


# ---- pools ----------------------------------------------------------------------------------------------------------


def write_folder(folder, images):
    """Writes images below two folders, in the order of their names."""
    for number, image in enumerate(images):
        path = folder / "ab"[number // (len(images) // 2)] / f"{number:03d}.{'PNG' if number % 2 else 'bmp'}"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(path)
    return folder


POOLS = {
    "npy": lambda path, images: np.save(path / "pool.npy", images),
    "npz": lambda path, images: np.savez(path / "pool.npz", labels=np.arange(9), images=images),
    "compressed.npz": lambda path, images: np.savez_compressed(path / "pool.compressed.npz", images=images),
    "folder": lambda path, images: write_folder(path / "pool.folder", images),
}


@pytest.mark.parametrize("kind", POOLS)
def test_pools_of_every_kind_give_the_same_images(empty_records, stand_in, tmp_path, kind):
    images = marked_images(60)
    POOLS[kind](tmp_path, images)
    arguments = (empty_records, tmp_path / f"pool.{kind}", tmp_path / "filtered", 2)
    summary = filter_pool(*arguments, aug_copy=1, batch_size=4)
    expected = images[best_of_each_class(images, 2)]
    np.testing.assert_array_equal(np.load(tmp_path / "filtered" / "kept_images.npy"), expected)
    assert summary["num_kept"] == 20 and summary["skipped"] == []
    written = json.loads((tmp_path / "filtered" / "domain_filter.json").read_text())
    assert written["classes"]["3"]["kept"] == 2 and written["share_of_pool"] == 20 / 60
    with Image.open(tmp_path / "filtered" / "domain_filter.png") as picture:
        assert picture.size == (1100, 400)


def test_images_that_cannot_be_read_are_passed_over_and_listed(empty_records, stand_in, tmp_path, capsys):
    images = marked_images(20)
    folder = write_folder(tmp_path / "pool", images)
    (folder / "a" / "004.bmp").write_bytes(b"")
    (folder / "a" / "005.PNG").write_bytes((folder / "a" / "005.PNG").read_bytes()[:900])
    (folder / "b" / "015.PNG").unlink()
    (folder / "b" / "015.PNG").symlink_to("missing")
    (folder / "b" / "notes.txt").write_text("no image")
    arguments = [f"--pool={folder}", f"--output_dir={tmp_path / 'filtered'}", f"--data_dir={empty_records}"]
    run_main(filter_domain, *arguments, "--model_dir=m", "--num_per_class=2", "--aug_copy=1", "--workers=1")
    unreadable = ["a/004.bmp", "a/005.PNG", "b/015.PNG"]
    summary = json.loads((tmp_path / "filtered" / "domain_filter.json").read_text())
    assert summary["skipped"] == [str(folder / name) for name in unreadable]
    assert summary["num_skipped"] == 3 and summary["num_examples"] == 20 and summary["num_kept"] == 17
    np.testing.assert_array_equal(
        np.load(tmp_path / "filtered" / "kept_images.npy"), np.delete(images, [4, 5, 15], axis=0)
    )
    printed = capsys.readouterr().out
    assert "; 3 could not be used\n2 of 10 classes have fewer than num_per_class=2: '4' 1, '5' 0\n" in printed
    assert f"images that cannot be read are listed in {tmp_path / 'filtered' / 'domain_filter.json'}\n" in printed


@pytest.mark.parametrize("shape", [(48, 48, 3), (40, 60, 3), (60, 40, 1), (48, 50)])
def test_images_of_another_size_or_kind_are_made_to_fit_like_those_of_a_folder(tmp_path, shape):
    images = np.random.default_rng(0).integers(0, 256, [4, *shape], np.uint8)
    np.save(tmp_path / "pool.npy", images)
    write_folder(tmp_path / "pool", images.reshape(images.shape[:3]) if shape[2:] != (3,) else images)
    from_array = list(filter_domain.open_pool(str(tmp_path / "pool.npy")).read(32, [0, 3]))
    from_folder = list(filter_domain.open_pool(str(tmp_path / "pool")).read(32, [0, 3]))
    np.testing.assert_array_equal(from_array, from_folder)
    assert np.shape(from_array) == (2, 32, 32, 3)


def test_a_pool_that_was_changed_after_the_scoring_is_refused(empty_records, stand_in, tmp_path, monkeypatch):
    folder = write_folder(tmp_path / "pool", marked_images(20))
    read_image, seen = image_files.read_image, set()

    def read_once(path, image_size):
        if path in seen:
            raise ValueError(f"{path} cannot be read as an image")
        seen.add(path)
        return read_image(path, image_size)

    monkeypatch.setattr(image_files, "read_image", read_once)
    with pytest.raises(ValueError, match="The pool was changed; leave it as it is. .* cannot be read as an image"):
        filter_pool(empty_records, folder, tmp_path / "filtered", 2)
    assert not list((tmp_path / "filtered").glob("kept_images*"))


@pytest.mark.parametrize(
    "write, message",
    [
        (lambda path: path.write_bytes(b"\x93NUM"), r"pool.npy' cannot be read \(.*\): write it with np\.save\("),
        (lambda path: np.save(path, np.zeros([2, 32, 32, 3])), "dtype=float64: expected uint8 values"),
        (lambda path: np.save(path, np.zeros([2, 32, 16, 4], np.uint8)), r"shape=\(2, 32, 16, 4\)"),
        (lambda path: np.save(path, np.zeros([0, 32, 32, 3], np.uint8)), r"shape=\(0, 32, 32, 3\)"),
        (lambda path: path.mkdir(), r"pool\.npy' has no image files \(\.png, "),
        (lambda path: None, r"pool='.*pool\.npy': expected a folder of images, or a \.npy or \.npz file"),
    ],
)
def test_pools_that_cannot_be_used_are_described(empty_records, stand_in, tmp_path, write, message):
    write(tmp_path / "pool.npy")
    with pytest.raises(ValueError, match=message):
        filter_pool(empty_records, tmp_path / "pool.npy", tmp_path / "filtered", 2)


@pytest.mark.parametrize("ending", ["npy", "npz"])
def test_a_file_that_breaks_off_is_noticed_before_the_scoring(tmp_path, ending):
    path = tmp_path / f"pool.{ending}"
    np.save(path, marked_images(9)) if ending == "npy" else np.savez(path, images=marked_images(9))
    content = bytearray(path.read_bytes())
    if ending == "npy":
        content, reason = content[:-1], "which are 27648 bytes, but 27647 follow"
    else:
        content[5000] ^= 1  # the archive has a checksum
        reason = "Bad CRC-32"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=rf"pool\.{ending}' cannot be read \(.*{reason}.*\): write it with np\.save"):
        filter_domain.open_pool(str(path))


def test_an_archive_without_images_is_described(tmp_path):
    np.savez(tmp_path / "pool.npz", pictures=marked_images(3))
    with pytest.raises(ValueError, match=r"\(its arrays are pictures, images is missing\): write it with np\.savez"):
        filter_domain.open_pool(str(tmp_path / "pool.npz"))


# ---- records --------------------------------------------------------------------------------------------------------


def test_labelled_and_test_sets_are_taken_over(empty_records, stand_in, tmp_path):
    data_dir = tmp_path / "data"
    shutil.copytree(empty_records, data_dir)
    os.makedirs(data_dir / "unsup" / "randaugment")
    (data_dir / "unsup" / "randaugment" / "other").touch()
    (data_dir / "test" / "records.tfrecord.tmp-1").touch()
    np.save(tmp_path / "pool.npy", marked_images(20))
    arguments = (data_dir, tmp_path / "pool.npy", tmp_path / "filtered", 1)
    before = files_below(data_dir)
    filter_pool(*arguments, aug_copy=1)
    found = files_below(tmp_path / "filtered")
    for name, content in before.items():
        taken_over = not name.startswith("unsup") and ".tmp-" not in name
        assert (name in found) == taken_over, name
        assert not taken_over or found[name] == content
    assert files_below(data_dir) == before


def test_the_records_do_not_depend_on_how_often_it_was_stopped(empty_records, stand_in, tmp_path, monkeypatch):
    np.save(tmp_path / "pool.npy", marked_images(200))
    monkeypatch.setattr(domain_filter, "select", functools.partial(domain_filter.select, save_seconds=0))
    calls = []

    def predict_proba(images, batch_size):
        calls.append(len(images))
        if len(calls) == 3:
            raise KeyboardInterrupt
        return read_marks(images)

    stand_in(predict_proba)
    arguments = {"data_dir": empty_records, "pool": tmp_path / "pool.npy"}
    arguments |= {"num_per_class": 3, "batch_size": 16, "aug_copy": 2}
    with pytest.raises(KeyboardInterrupt):
        filter_pool(output_dir=tmp_path / "a", **arguments)
    filter_pool(output_dir=tmp_path / "a", **arguments)
    assert calls == [64, 64, 64, 64, 8]  # the third block is done again, the first two are not
    filter_pool(output_dir=tmp_path / "b", **arguments)
    for ending in (".tfrecord", ".npy", ".json"):
        assert files_below(tmp_path / "a", ending) == files_below(tmp_path / "b", ending)
    filter_pool(output_dir=tmp_path / "a", **arguments)  # all is there
    assert len(calls) == 9
    stand_in(fingerprint="2")
    with pytest.raises(ValueError, match="is of another selection .model: was '1', now '2'"):
        filter_pool(output_dir=tmp_path / "a", **arguments)


def test_folders_that_do_not_fit_are_refused(empty_records, stand_in, tmp_path):
    np.save(tmp_path / "pool.npy", marked_images(20))
    pool, records = tmp_path / "pool.npy", empty_records
    with pytest.raises(ValueError, match="output_dir=.* is data_dir, whose unlabelled images stay: choose another one"):
        filter_pool(records, pool, records, 1)
    shutil.copytree(empty_records, tmp_path / "old")
    (tmp_path / "old" / "unsup").mkdir(exist_ok=True)
    with pytest.raises(ValueError, match="output_dir=.*old holds records: delete it, or choose another --output_dir"):
        filter_pool(records, pool, tmp_path / "old", 1)
    with pytest.raises(ValueError, match="holds no records: there is no .*dataset.json"):
        filter_pool(tmp_path, pool, tmp_path / "filtered", 1)
    shutil.copytree(empty_records, tmp_path / "other")
    description = json.loads((tmp_path / "other" / "dataset.json").read_text()) | {"name": "svhn"}
    (tmp_path / "other" / "dataset.json").write_text(json.dumps(description))
    with pytest.raises(ValueError, match="holds records of other data than the model was trained on"):
        filter_pool(tmp_path / "other", pool, tmp_path / "filtered", 1)
    assert not (tmp_path / "filtered").exists()


@pytest.mark.parametrize("name", ["data_dir", "pool", "output_dir"])
def test_what_is_required_must_be_given(name):
    paths = {"data_dir": "data", "pool": "pool", "output_dir": "filtered"} | {name: ""}
    with pytest.raises(ValueError, match=f"{name}='' is missing: give --{name}"):
        filter_pool(**paths, num_per_class=1)


def test_a_model_that_is_not_there_ends_with_a_line_of_error(tmp_path):
    arguments = [f"--{name}={tmp_path / name}" for name in ("model_dir", "data_dir", "pool", "output_dir")]
    with pytest.raises(SystemExit, match="^error: .*export holds no exported model: train first, with --do_train"):
        run_main(filter_domain, *arguments, "--num_per_class=1")
