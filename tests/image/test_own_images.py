"""Class folders and .npz files to records, trainer and predictions."""

import concurrent.futures
import csv
import json
import os
import pickle
import shutil

import numpy as np
import pytest
from PIL import Image

from augmentation.randaugment import AUGMENTATIONS
from image import main, preprocess, record_format
from image.datasets import arrays, decoded, folder, image_files
from tests.image.small_data import TINY_RUN, colored_images, files_below, read_records
from tests.programs import run_main
from utils import records


def save_images(folder, images, first=0):
    folder.mkdir(parents=True, exist_ok=True)
    for number, image in enumerate(images, first):
        Image.fromarray(image).save(folder / f"{number:02d}.png")


@pytest.fixture
def photos(tmp_path):
    """Folders train and test of two classes, and more; 32 pixels, 8 + 6 + 4 images."""
    images = colored_images(18)
    for number, name in enumerate(("cat", "dog")):
        save_images(tmp_path / "photos/train" / name, images[4 * number : 4 * number + 4])
        save_images(tmp_path / "photos/test" / name, images[14 + 2 * number : 16 + 2 * number])
    save_images(tmp_path / "photos/more", images[8:11])
    save_images(tmp_path / "photos/more/deep/er", images[11:14])
    return tmp_path / "photos", images


def folder_arguments(photos, output_dir, **settings):
    folders = {"train_dir": photos / "train", "unlabeled_dir": photos / "more", "test_dir": photos / "test"}
    settings = folders | {"sup_size": 4, "workers": 1, "aug_copy": 1, "output_dir": output_dir} | settings
    return ["--task_name=folder", "--use_equal_split"] + [f"--{name}={value}" for name, value in settings.items()]


def run_folder(photos, output_dir, **settings):
    run_main(preprocess, *folder_arguments(photos, output_dir, **settings))


def assert_refused(message, *arguments):
    with pytest.raises(SystemExit, match=f"^error: .*{message}") as raised:
        run_main(preprocess, *arguments)
    assert "\n" not in raised.value.code


# ---- folders --------------------------------------------------------------------------------------------------------


def test_folders_become_records_like_those_of_any_data_set(photos, tmp_path):
    images = photos[1]
    run_folder(photos[0], tmp_path / "data", dev_size=2)
    run_folder(photos[0], tmp_path / "data", dev_size=2, aug_mode="online")
    facts = record_format.read_facts(str(tmp_path / "data"))
    assert (facts.name, facts.image_size, facts.class_names, facts.flip) == ("folder", 32, ("cat", "dog"), False)
    assert (facts.train_size, facts.extra_size, facts.test_size) == (8, 6, 4)
    np.testing.assert_allclose(facts.mean, images[:14].mean(axis=(0, 1, 2)) / 255, rtol=1e-6)
    np.testing.assert_allclose(facts.std, images[:14].std(axis=(0, 1, 2)) / 255, rtol=1e-6)
    test = read_records(tmp_path / "data/test", ["original", "label"])
    np.testing.assert_array_equal(test["original"][..., :3], images[14:])
    assert test["label"].tolist() == [0, 0, 1, 1]
    originals = read_records(tmp_path / "data/unsup/originals")
    np.testing.assert_array_equal(originals["original"][..., :3], images[:14])
    for part, labels in {"train": [0, 0, 1, 1], "dev": [0, 1]}.items():
        labelled = read_records(tmp_path / f"data/sup-size_4-equal-dev_2/{part}", ["original", "label", "index"])
        assert sorted(labelled["label"]) == labels
        np.testing.assert_array_equal(labelled["label"], labelled["index"] // 4)
        np.testing.assert_array_equal(labelled["original"][..., :3], images[labelled["index"]])
    copy = read_records(tmp_path / "data/unsup/randaugment/copy-000", ["augmented", "index"])
    assert sorted(copy["index"]) == list(range(14))


def test_the_labelled_draw_changes_with_its_seed_and_is_not_the_first_files(photos, tmp_path):
    draws = set()
    for seed in (-1, 0, 2):
        run_folder(photos[0], tmp_path / "data", data_type="sup", label_seed=seed)
        info = next((tmp_path / "data").glob(f"sup-size_4-equal{f'-seed_{seed}' * (seed >= 0)}/train/info.json"))
        draws.add(tuple(sorted(json.loads(info.read_text())["settings"]["indices"])))
    assert len(draws) == 3 and (0, 1, 4, 5) not in draws


def test_a_draw_without_some_class_is_told(tmp_path, photos, capsys):
    arguments = folder_arguments(photos[0], tmp_path / "data", sup_size=1, data_type="sup")
    run_main(preprocess, *arguments, "--nouse_equal_split")
    assert "note: no labelled example is of " in capsys.readouterr().out


def test_training_images_alone_are_enough(photos, tmp_path):
    run_folder(photos[0], tmp_path / "data", unlabeled_dir="", test_dir="")
    facts = record_format.read_facts(str(tmp_path / "data"))
    assert (facts.train_size, facts.extra_size, facts.test_size) == (8, 0, 0)
    assert not (tmp_path / "data/test").exists()
    assert len(read_records(tmp_path / "data/unsup/randaugment/copy-000")["index"]) == 8


def test_linked_folders_are_read_like_others(photos, tmp_path):
    root, images = photos
    for name in ("train/dog", "more/deep/er"):
        away = shutil.move(root / name, tmp_path / name.replace("/", "_"))
        (root / name).symlink_to(away)
    (root / "more/deep/circle").symlink_to(root / "more")
    source = decoded.open_decoded(
        "folder", folder.open_folders(str(root / "train"), str(root / "more")), str(tmp_path / "data")
    )
    assert source.facts.class_names == ("cat", "dog")
    np.testing.assert_array_equal(source.read()["train"][0], images[:8])
    np.testing.assert_array_equal(source.read()["unlabeled"][0], images[:14])


def test_images_are_decoded_once_and_again_when_they_change(photos, tmp_path, monkeypatch):
    run_folder(photos[0], tmp_path / "data")
    before = files_below(tmp_path / "data")
    with monkeypatch.context() as context:
        context.setattr(image_files, "read_image", None)
        run_folder(photos[0], tmp_path / "data")
    assert files_below(tmp_path / "data") == before
    Image.fromarray(colored_images(1)[0]).save(photos[0] / "more/00.png", compress_level=0)
    message = r"holds records of other settings|holds records of another data set"
    assert_refused(message, *folder_arguments(photos[0], tmp_path / "data"))


def test_a_failed_attempt_with_other_images_leaves_nothing_behind_that_is_taken_for_these(photos, tmp_path):
    splits = folder.open_folders(str(photos[0] / "train"))
    decoded.open_decoded("folder", splits, str(tmp_path / "data"))
    shutil.move(photos[0] / "train/cat", tmp_path / "away")
    (photos[0] / "train/cat").mkdir()
    with pytest.raises(ValueError, match="the class 'cat' has no image"):
        decoded.open_decoded("folder", folder.open_folders(str(photos[0] / "train")), str(tmp_path / "data"))
    (photos[0] / "train/cat").rmdir()
    shutil.move(tmp_path / "away", photos[0] / "train/cat")
    source = decoded.open_decoded("folder", splits, str(tmp_path / "data"))
    np.testing.assert_array_equal(source.read()["train"][0], photos[1][:8])


def test_other_processes_read_the_decoded_images_from_disk(photos, tmp_path):
    source = decoded.open_decoded("folder", folder.open_folders(str(photos[0] / "train")), str(tmp_path))
    sent = pickle.dumps(source.read)
    assert pickle.loads(sent) == source.read
    images, labels = pickle.loads(sent)()["train"]
    np.testing.assert_array_equal(images, photos[1][:8])
    assert labels.tolist() == [0] * 4 + [1] * 4
    assert len(sent) < 1000 and not images.flags.owndata


def test_an_image_of_many_pixels_is_augmented_in_small_blocks(photos, tmp_path, monkeypatch):
    sizes = []
    randaugment = AUGMENTATIONS["randaugment"]

    def augment(images, *others):
        sizes.append(len(images))
        return randaugment.function(images, *others)

    monkeypatch.setattr(preprocess, "PIXELS_AT_ONCE", 6 * 64 * 64)
    monkeypatch.setitem(AUGMENTATIONS, "randaugment", randaugment._replace(function=augment))
    run_folder(photos[0], tmp_path / "data", image_size=64)
    assert sizes == [6, 6, 2]
    assert json.loads((tmp_path / "data/unsup/randaugment/copy-000/info.json").read_text())["num_examples"] == 14


# ---- the size -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "sizes, expected",
    [
        ([(28, 28), (28, 28)], 28),
        ([(300, 300), (300, 300)], 300),
        ([(30, 99), (50, 70), (90, 57)], 48),
        ([(1000, 800)], 224),
        ([(600, 600)], 224),
        ([(1, 1), (3, 200)], 8),
        ([(32, 32), (32, 33)], 32),
    ],
)
def test_the_image_size_is_found_from_the_data(sizes, expected):
    split = type("Split", (), {"sizes": lambda self: sizes})()
    assert decoded.choose_image_size({"train": split}) == expected


def test_a_chosen_size_is_printed_and_another_one_can_be_set(photos, tmp_path, capsys):
    save_images(photos[0] / "more", colored_images(1, 50), first=90)
    run_folder(photos[0], tmp_path / "data")
    assert "the images have 32×32 to 50×50 pixels: image_size=32 is used" in capsys.readouterr().out
    run_folder(photos[0], tmp_path / "small", image_size=24)
    assert record_format.read_facts(str(tmp_path / "small")).image_size == 24
    assert_refused(r"image_size=4: expected 8 to 512", *folder_arguments(photos[0], tmp_path / "tiny", image_size=4))


# ---- images that cannot be used as they are -------------------------------------------------------------------------


def test_unreadable_images_are_left_out_counted_and_listed(photos, tmp_path, capsys):
    root = photos[0]
    whole = (root / "train/cat/00.png").read_bytes()
    (root / "train/cat/00.png").write_bytes(whole[: len(whole) // 2])
    (root / "more/zero.jpg").write_bytes(b"")
    (root / "test/dog/text.png").write_text("not an image")
    (root / "more/README.md").write_text("about these images")
    (root / "more/broken.png").symlink_to("nowhere")
    run_folder(root, tmp_path / "data")
    output = capsys.readouterr().out
    assert "4 images cannot be read and are left out; all are listed in" in output
    assert "1 files were left alone: their names do not end like images." in output
    listed = (tmp_path / "data/unreadable_images.txt").read_text().splitlines()
    assert [line.split("\t")[0].removeprefix(f"{root}/") for line in listed] == [
        "train/cat/00.png",
        "more/broken.png",
        "more/zero.jpg",
        "test/dog/text.png",
    ]
    for line in listed:
        assert f"{line.split()[0]} cannot be read as an image (" in line and line.split("\t")[1] in output
    facts = record_format.read_facts(str(tmp_path / "data"))
    assert (facts.train_size, facts.extra_size, facts.test_size) == (7, 6, 4)
    parsed = read_records(tmp_path / "data/test", ["original", "label"])
    np.testing.assert_array_equal(parsed["original"][..., :3], photos[1][14:])  # rows and labels did not shift
    run_folder(root, tmp_path / "data")
    assert "4 images cannot be read" in capsys.readouterr().out  # nor does a second run keep silent


def test_names_of_files_may_be_any_bytes_but_those_of_classes_not(photos, tmp_path, capsys):
    root, names = photos[0], [os.fsdecode(name) for name in (b"caf\xe9.png", b"\xff.png")]
    shutil.copy(root / "more/00.png", root / "more" / names[0])
    (root / "more" / names[1]).write_bytes(b"")
    run_folder(root, tmp_path / "data", aug_mode="online")
    assert f"  {root}/more/\N{REPLACEMENT CHARACTER}.png cannot be read as an image (" in capsys.readouterr().out
    listed = (tmp_path / "data/unreadable_images.txt").read_bytes()
    assert listed.startswith(os.fsencode(root) + b"/more/\xff.png\t") and listed.count(b"\n") == 1
    assert record_format.read_facts(str(tmp_path / "data")).extra_size == 7
    (root / "train/cat").rename(root / "train" / os.fsdecode(b"ch\xe2t"))
    message = r"train_dir=.* has the class b'ch\\xe2t', which is not UTF-8: rename its folder\."
    assert_refused(message, *folder_arguments(root, tmp_path / "data"))


def test_all_kinds_of_images_go_into_one_data_set(tmp_path):
    rng = np.random.default_rng(0)
    noise = rng.integers(0, 256, [40, 60, 3], np.uint8)
    kinds = {
        "rgb.jpg": Image.fromarray(noise),
        "grey.png": Image.fromarray(noise[..., 0]),
        "deep.png": Image.fromarray(noise[..., 0].astype(np.uint16) * 257),
        "alpha.png": Image.fromarray(np.dstack([noise, noise[..., :1]])),
        "palette.gif": Image.fromarray(noise).convert("P"),
        "cmyk.jpg": Image.fromarray(noise).convert("CMYK"),
        "one_bit.bmp": Image.fromarray(noise).convert("1"),
        "dot.png": Image.fromarray(noise[:1, :1]),
        "strip.webp": Image.fromarray(noise[:3]),
    }
    for number, (name, image) in enumerate(kinds.items()):
        (tmp_path / "train" / "ab"[number % 2]).mkdir(parents=True, exist_ok=True)
        image.save(tmp_path / "train" / "ab"[number % 2] / name)
    arguments = folder_arguments(tmp_path, tmp_path / "data", unlabeled_dir="", test_dir="", aug_mode="online")
    run_main(preprocess, *arguments)
    assert record_format.read_facts(str(tmp_path / "data")).image_size == 40
    splits = folder.open_folders(str(tmp_path / "train"))
    source = decoded.open_decoded("folder", splits, str(tmp_path / "data"))
    expected = [image_files.read_image(path, 40) for path in splits["train"].paths]
    np.testing.assert_array_equal(source.read()["train"][0], expected)
    assert len(expected) == len(kinds)


def test_folders_that_cannot_be_used_are_refused(photos, tmp_path):
    root, data = photos[0], tmp_path / "data"

    def assert_folder_refused(message, **settings):
        assert_refused(message, *folder_arguments(root, data, **settings))

    assert_folder_refused("train_dir is not given: expected a folder", train_dir="")
    assert_folder_refused("train_dir='missing' is no folder", train_dir="missing")
    assert_folder_refused("sup_size=10 is out of range: there are 8 examples to choose from", sup_size=10)
    assert_folder_refused(r"unlabeled_dir=.*/train/cat' lies in train_dir=", unlabeled_dir=root / "train/cat")
    assert_folder_refused(r"train_dir=.* lies in unlabeled_dir=.*: use folders apart\.", unlabeled_dir=root)
    assert_folder_refused(r"have the classes \['cat'\]: expected at least two", train_dir=only_cats(tmp_path))
    (root / "empty").mkdir()
    assert_folder_refused(r"unlabeled_dir=.*/empty' has no image files \(\.png, ", unlabeled_dir=root / "empty")
    (root / "test/cow").mkdir()
    message = r"test data have the classes \['cow'\], which the training data \['cat', 'dog'\] lack\."
    assert_folder_refused(message)
    (root / "test/cow").rmdir()
    (root / "train/cow").mkdir()
    assert_folder_refused("the class 'cow' has no image that can be read among the training data: add some, or remove")
    (root / "train/cow/a.png").write_bytes(b"")
    assert_folder_refused("the class 'cow' has no image that can be read")
    save_images(root / "train", colored_images(1))
    assert_folder_refused(r"has 1 images that lie in no class folder, such as 00\.png: move them")


def only_cats(tmp_path):
    save_images(tmp_path / "cats/cat", colored_images(3))
    return tmp_path / "cats"


def test_a_test_set_of_unreadable_images_is_refused(photos, tmp_path):
    for path in (photos[0] / "test").rglob("*.png"):
        path.write_bytes(b"")
    assert_refused("none of the test images can be read", *folder_arguments(photos[0], tmp_path / "data"))


# ---- .npz files -----------------------------------------------------------------------------------------------------


def npz_arguments(folder, **settings):
    settings = {"sup_size": 4, "workers": 1, "aug_copy": 1, "output_dir": folder / "data"} | settings
    settings = {"train_file": folder / "train.npz"} | settings
    return ["--task_name=npz", "--use_equal_split"] + [f"--{name}={value}" for name, value in settings.items()]


@pytest.mark.parametrize("shape", [(32, 32, 3), (32, 32, 1), (32, 32)])
@pytest.mark.parametrize("names", [(3, 10), ("dog", "cat")])
def test_arrays_become_records(tmp_path, shape, names):
    images = np.random.default_rng(0).integers(0, 256, (14, *shape), np.uint8)
    labels = np.array([names[number % 2] for number in range(14)])
    np.savez(tmp_path / "train.npz", images=images[:6], labels=labels[:6])
    np.savez_compressed(tmp_path / "more.npz", images=images[6:10])
    np.savez(tmp_path / "test.npz", images=images[10:], labels=labels[10:])
    files = {"unlabeled_file": tmp_path / "more.npz", "test_file": tmp_path / "test.npz"}
    run_main(preprocess, *npz_arguments(tmp_path, **files, aug_mode="online"), "--flip")
    facts = record_format.read_facts(str(tmp_path / "data"))
    assert (facts.name, facts.image_size, facts.flip) == ("npz", 32, True)
    assert facts.class_names == tuple(str(name) for name in sorted(names))  # 3 before 10
    expected = np.broadcast_to(images.reshape(14, 32, 32, -1), (14, 32, 32, 3))
    unsup = read_records(tmp_path / "data/unsup/originals")
    np.testing.assert_array_equal(unsup["original"][..., :3], expected[:10])
    test = read_records(tmp_path / "data/test", ["original", "label"])
    np.testing.assert_array_equal(test["original"][..., :3], expected[10:])
    assert [facts.class_names[label] for label in test["label"]] == labels[10:].astype(str).tolist()


def test_arrays_of_other_sizes_are_cropped_and_resized_like_files(tmp_path):
    images = np.random.default_rng(0).integers(0, 256, (4, 30, 44, 3), np.uint8)
    np.savez(tmp_path / "train.npz", images=images, labels=[0, 0, 1, 1])
    splits = arrays.open_files(str(tmp_path / "train.npz"))
    source = decoded.open_decoded("npz", splits, str(tmp_path / "data"))
    assert source.facts.image_size == 24
    expected = image_files.fit_square(Image.fromarray(images[3]), 24)
    np.testing.assert_array_equal(source.read()["train"][0][3], expected)


def test_a_file_of_many_images_is_read_in_runs_and_from_any_position(tmp_path):
    images = colored_images(150)
    np.savez_compressed(tmp_path / "train.npz", images=images, labels=np.arange(150) % 2)
    found = arrays.ArrayFile(str(tmp_path / "train.npz"), "train_file", labelled=True)
    assert (found.num_images, found.labels[:3], found.class_names) == (150, ["0", "1", "0"], ("0", "1"))
    np.testing.assert_array_equal(list(found.read(32, range(150))), images)
    np.testing.assert_array_equal(list(found.read(32, range(70, 150))), images[70:])
    np.testing.assert_array_equal(list(found.read(32, np.array([3, 64, 149]))), images[[3, 64, 149]])
    assert found.name(3).endswith("train.npz[3]")


def test_an_array_in_fortran_order_is_read_as_well(tmp_path):
    images = colored_images(6)
    np.savez(tmp_path / "train.npz", images=np.asfortranarray(images), labels=[0, 1] * 3)
    np.testing.assert_array_equal(
        list(arrays.open_files(str(tmp_path / "train.npz"))["train"].read(32, [1, 5])), images[[1, 5]]
    )


def test_another_label_or_pixel_changes_the_checksum_of_a_file(tmp_path):
    images, checksums = colored_images(4), set()
    for labels, pixel in (([0, 1, 0, 1], 0), ([0, 1, 1, 0], 0), ([0, 1, 0, 1], 1), ([0, 1, 0, 1], 0)):
        images[3, 31, 31, 2] = pixel
        np.savez(tmp_path / "train.npz", images=images, labels=labels)
        checksums.add(arrays.ArrayFile(str(tmp_path / "train.npz"), "train_file", labelled=True).checksum)
    assert len(checksums) == 3


def test_unlabelled_images_may_be_in_a_file_of_one_array(tmp_path):
    images = colored_images(10)
    np.savez(tmp_path / "train.npz", images=images[:4], labels=[0, 0, 1, 1])
    np.save(tmp_path / "more.npy", images[4:])
    splits = arrays.open_files(str(tmp_path / "train.npz"), str(tmp_path / "more.npy"))
    source = decoded.open_decoded("npz", splits, str(tmp_path / "data"))
    np.testing.assert_array_equal(source.read()["unlabeled"][0], images)


@pytest.mark.parametrize(
    "arrays, message",
    [
        (
            {"images": np.zeros([4, 8, 8, 3])},
            r"images of shape=\(4, 8, 8, 3\) and dtype=float64: expected uint8 values",
        ),
        ({"images": np.zeros([4, 8, 8, 4], np.uint8)}, r"images of shape=\(4, 8, 8, 4\)"),
        ({"images": np.zeros([8, 8], np.uint8)}, r"images of shape=\(8, 8\)"),
        ({"images": np.zeros([0, 8, 8], np.uint8)}, r"images of shape=\(0, 8, 8\)"),
        ({"labels": [0, 1]}, r"labels of shape=\(2,\) and dtype=int64: expected one integer or string for each of 4"),
        ({"labels": np.eye(4, 2)}, r"labels of shape=\(4, 2\)"),
        ({"labels": [0.0, 1.0, 0.0, 1.0]}, "dtype=float64: expected one integer or string"),
        ({"labels": [0, 1, -1, 1]}, r"labels from -1 to 1: expected numbers from 0\. Images without a label belong"),
        ({"labels": [2, 2, 2, 2]}, r"have the classes \['2'\]: expected at least two"),
        ({"labels": None}, r"cannot be read \(its arrays are images, labels is missing\): write it with np\.savez"),
        (
            {"images": np.array([{}] * 4)},
            r"cannot be read \(shape=\(4,\), dtype=object: expected an array of numbers or texts\)",
        ),
        (
            {"labels": np.array([{}] * 4)},
            r"cannot be read \(shape=\(4,\), dtype=object: expected an array of numbers or texts\)",
        ),
    ],
)
def test_arrays_that_do_not_fit_are_described(tmp_path, arrays, message):
    arrays = {"images": np.zeros([4, 8, 8, 3], np.uint8), "labels": [0, 1, 0, 1]} | arrays
    np.savez(tmp_path / "train.npz", **{name: array for name, array in arrays.items() if array is not None})
    assert_refused(message, *npz_arguments(tmp_path))


def test_labels_of_half_characters_are_refused(tmp_path):
    labels = np.array(["a", "b\ud800", "a", "b\ud800"])
    np.savez(tmp_path / "train.npz", images=np.zeros([4, 8, 8, 3], np.uint8), labels=labels)
    assert_refused(
        r"train\.npz' cannot be read \(it has characters that do not exist, or halves of some\)",
        *npz_arguments(tmp_path),
    )


def test_arrays_of_huge_images_are_refused(tmp_path, monkeypatch):
    np.savez(tmp_path / "train.npz", images=np.zeros([4, 8, 9, 3], np.uint8), labels=[0, 1, 0, 1])
    monkeypatch.setattr(image_files, "MAX_PIXELS", 71)
    assert_refused("each image of train_file=.* has 9×8 pixels: expected at most 71", *npz_arguments(tmp_path))


def test_files_that_cannot_be_used_are_refused(tmp_path):
    assert_refused("train_file is not given", *npz_arguments(tmp_path, train_file=""))
    assert_refused(r"train_file=.*train\.npz' cannot be read \(.*No such file", *npz_arguments(tmp_path))
    images = np.zeros([4, 8, 8, 3], np.uint8)
    np.savez(tmp_path / "train.npz", images=images, labels=[0, 1, 0, 1])
    content = (tmp_path / "train.npz").read_bytes()
    np.savez(tmp_path / "test.npz", images=images, labels=[0, 1, 2, 1])
    message = r"test data have the classes \['2'\], which the training data \['0', '1'\] lack"
    assert_refused(message, *npz_arguments(tmp_path, test_file=tmp_path / "test.npz"))
    for damaged in (b"", b"not an array", content[:100], content[: len(content) // 2]):
        (tmp_path / "train.npz").write_bytes(damaged)
        assert_refused(r"train\.npz' cannot be read \(.*\): write it with np\.savez", *npz_arguments(tmp_path))
    np.save(tmp_path / "train.npy", images)
    assert_refused(
        r"train\.npy' cannot be read \(a \.npy file has no labels\)",
        *npz_arguments(tmp_path, train_file=tmp_path / "train.npy"),
    )


# ---- to predictions -------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_from_folders_to_predictions_with_online_augmentation(photos, tmp_path, capsys):
    run_folder(photos[0], tmp_path / "data", aug_mode="online", image_size=16)
    assert records.read_set(str(tmp_path / "data/unsup/originals"), {}, "").num_examples == 14
    run = [f"--{name}={value}" for name, value in TINY_RUN.items()]
    run += ["--task_name=folder", f"--data_dir={tmp_path / 'data'}", f"--model_dir={tmp_path / 'run'}"]
    run += ["--sup_size=4", "--use_equal_split", "--aug_mode=online", "--train_steps=2", "--strategy=one_device"]
    run_main(main, "--do_train", "--do_eval", "--do_predict", *run, f"--predict_input={photos[0] / 'test'}")
    accuracy = json.loads((tmp_path / "run/result.json").read_text())["accuracy"]
    with open(tmp_path / "run/predictions.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    # The evaluation on records and the prediction from files saw the same pixels.
    correct = [row["label"] == os.path.basename(os.path.dirname(row["input"])) for row in rows]
    assert len(rows) == 4 and np.mean(correct) == pytest.approx(accuracy)


# ---- damage and other processes -------------------------------------------------------------------------------------


@pytest.fixture
def decoded_photos(photos, tmp_path):
    run_folder(photos[0], tmp_path / "data", aug_mode="online")
    return photos[0], tmp_path / "data" / "decoded"


@pytest.mark.parametrize("content", ["[]", "{}", '{"facts": [], "checksums": {}, "num_skipped": 0, "identity": ""}'])
def test_a_damaged_description_of_decoded_images_is_named(decoded_photos, content):
    (decoded_photos[1] / "info.json").write_text(content)
    arguments = folder_arguments(decoded_photos[0], decoded_photos[1].parent)
    assert_refused(r"decoded/info\.json.*: expected .*; delete it or restore it", *arguments)


@pytest.mark.parametrize("name, message", [("images.bin", "has 3 bytes, expected"), ("labels.npy", "cannot be read")])
def test_damaged_decoded_images_are_named(decoded_photos, name, message):
    (decoded_photos[1] / name).write_bytes(b"abc")
    arguments = folder_arguments(decoded_photos[0], decoded_photos[1].parent)
    assert_refused(rf"decoded/{name} {message}", *arguments)


def test_images_that_another_preprocessing_has_decoded_are_not_taken_for_these(photos, tmp_path):
    splits = folder.open_folders(str(photos[0] / "train"))
    source = decoded.open_decoded("folder", splits, str(tmp_path / "data"), 32)
    decoded.open_decoded("folder", splits, str(tmp_path / "data"), 16)
    with pytest.raises(ValueError, match="decoded was changed by another preprocessing: start again"):
        source.read()


def test_of_several_processes_one_decodes(photos, tmp_path, monkeypatch):
    splits, calls, decode = folder.open_folders(str(photos[0] / "train")), [], decoded.decode
    monkeypatch.setattr(decoded, "decode", lambda *arguments: calls.append(1) or decode(*arguments))
    with concurrent.futures.ThreadPoolExecutor(4) as executor:
        jobs = [executor.submit(decoded.open_decoded, "folder", splits, str(tmp_path / "data"), 32) for _ in range(4)]
        sources = [job.result() for job in jobs]
    assert len(calls) == 1 and len(set(source.read for source in sources)) == 1
