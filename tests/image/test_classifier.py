"""ImageClassifier on arrays: from fit to an exported model that a new process loads."""

import itertools
import json
import subprocess
import sys

import numpy as np
import pytest
from PIL import Image

from image.classifier import ImageClassifier
from image.datasets.arrays import hold_in_memory

pytestmark = pytest.mark.slow

TINY = {
    "train_steps": 60,
    "train_batch_size": 8,
    "unsup_ratio": 2,
    "aug_copy": 2,
    "wrn_depth": 10,
    "wrn_size": 8,
    "ema_decay": 0.9,
    "log_steps": 20,
    "save_steps": 30,
    "uda_confidence_thresh": 0.5,
}


def stripes(num_images, size=12, seed=0):
    """Two classes that a small network tells apart: dark images with bright rows or with bright columns."""
    rng = np.random.default_rng(seed)
    images = rng.integers(0, 60, [num_images, size, size, 3]).astype(np.uint8)
    labels = np.arange(num_images) % 2
    for image, label in zip(images, labels):
        line = image[rng.integers(2) :: 3] if label else image[:, rng.integers(2) :: 3]
        line += 150
    return images, np.where(labels, "rows", "columns")


@pytest.fixture(scope="module")
def classifier(tmp_path_factory):
    images, labels = stripes(16)
    unlabeled, _ = stripes(120, seed=1)
    return ImageClassifier(str(tmp_path_factory.mktemp("run") / "model"), **TINY).fit(images, labels, unlabeled)


def test_fit_learns_and_predict_returns_the_users_labels(classifier):
    images, labels = stripes(40, seed=2)
    assert classifier.evaluate(images, labels)["accuracy"] > 0.9
    assert classifier.evaluate(images, labels)["error_rate"] < 0.1
    assert set(classifier.predict(images)) == {"rows", "columns"}
    assert classifier.classes.tolist() == ["columns", "rows"]


def test_probabilities_sum_to_one_and_agree_with_predict(classifier):
    images, _ = stripes(300, seed=3)
    probabilities = classifier.predict_proba(images)
    assert probabilities.shape == (300, 2) and probabilities.dtype == np.float32
    np.testing.assert_allclose(probabilities.sum(-1), 1, rtol=1e-5)
    np.testing.assert_array_equal(classifier.classes[probabilities.argmax(-1)], classifier.predict(images))
    assert classifier.predict_proba(images[:0]).shape == (0, 2)


def test_exported_model_predicts_raw_images_in_a_new_process(classifier, tmp_path):
    images, _ = stripes(10, seed=4)
    classifier.export(tmp_path / "exported")
    np.save(tmp_path / "images.npy", images)
    code = (
        "import sys, numpy as np; from image.classifier import ImageClassifier; folder = sys.argv[1];"
        "classifier = ImageClassifier.load(folder + '/exported');"
        "images = np.load(folder + '/images.npy');"
        "np.save(folder + '/out.npy', classifier.predict_proba(images)); print(list(classifier.predict(images)))"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True, timeout=120)
    np.testing.assert_allclose(np.load(tmp_path / "out.npy"), classifier.predict_proba(images), atol=1e-6)


def test_integer_labels_stay_integers(tmp_path):
    images, labels = stripes(8)
    settings = TINY | {"train_steps": 2, "log_steps": 1, "save_steps": 1}
    classifier = ImageClassifier(str(tmp_path), **settings).fit(images, np.where(labels == "rows", 7, 3))
    assert classifier.classes.tolist() == [3, 7] and classifier.classes.dtype == np.int64
    assert not (tmp_path / "records" / "unsup").exists()  # without unlabelled images it is a supervised training


def save_images(folder, images, labels):
    for number, (image, label) in enumerate(zip(images, labels)):
        path = folder / label / f"{number:03d}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(path)


def test_folders_with_online_augmentation_learn_as_well(tmp_path):
    save_images(tmp_path / "train", *stripes(16))
    save_images(tmp_path / "more", stripes(120, seed=1)[0], itertools.repeat("unlabelled"))
    save_images(tmp_path / "new", stripes(40, seed=2)[0], itertools.repeat(""))
    classifier = ImageClassifier(str(tmp_path / "run"), aug_mode="online", unsup_size=100, num_ops=10, **TINY)
    classifier.fit_folder(str(tmp_path / "train"), str(tmp_path / "more"))
    names, images = classifier.read_images(str(tmp_path / "new"))
    assert [name[-7:] for name in names] == [f"{number:03d}.png" for number in range(40)]
    assert classifier.classes.tolist() == ["columns", "rows"]
    assert classifier.evaluate(images, stripes(40, seed=2)[1])["accuracy"] > 0.9
    assert [path.name for path in (tmp_path / "run/records/unsup-size_100").iterdir()] == ["originals"]


def test_the_development_split_comes_out_of_the_labels(tmp_path):
    images, labels = stripes(12)
    settings = TINY | {"train_steps": 2, "log_steps": 1, "save_steps": 1, "dev_size": 4}
    ImageClassifier(str(tmp_path), **settings).fit(images, labels)
    folder = tmp_path / "records/sup-size_8-seed_0-dev_4"
    parts = [json.loads((folder / f"{part}/info.json").read_text())["settings"]["indices"] for part in ("train", "dev")]
    assert [len(indices) for indices in parts] == [8, 4] and sorted(sum(parts, [])) == list(range(12))
    assert (tmp_path / "best.json").exists()
    with pytest.raises(ValueError, match="dev_size=12 leaves nothing of 12 labelled examples to train on"):
        ImageClassifier(str(tmp_path / "other"), **settings | {"dev_size": 12}).fit(images, labels)


def test_other_data_in_the_same_model_dir_are_refused(tmp_path):
    settings = TINY | {"train_steps": 2, "log_steps": 1, "save_steps": 1}
    images, labels = stripes(8)
    ImageClassifier(str(tmp_path), **settings).fit(images, labels)
    other, _ = stripes(8, seed=9)
    with pytest.raises(ValueError, match="another data set|other settings"):
        ImageClassifier(str(tmp_path), **settings).fit(other, labels)


def test_description_has_the_mean_and_deviation_of_each_channel():
    images, _ = stripes(1500)
    facts = hold_in_memory(images[:500], np.arange(500) % 2, [0, 1], images[500:], flip=True).facts
    np.testing.assert_allclose(facts.mean, images.mean((0, 1, 2)) / 255, rtol=1e-9)
    np.testing.assert_allclose(facts.std, images.std((0, 1, 2)) / 255, rtol=1e-9)
    assert (facts.image_size, facts.num_classes, facts.flip) == (12, 2, True)


BAD_INPUT = {
    "float images": (np.zeros([4, 16, 16, 3]), [0, 1, 0, 1], "dtype=float64: expected a uint8 array"),
    "grey images": (np.zeros([4, 16, 16], np.uint8), [0, 1, 0, 1], "Grey images: np.repeat"),
    "not square": (np.zeros([4, 16, 20, 3], np.uint8), [0, 1, 0, 1], r"shape=\(4, 16, 20, 3\)"),
    "too small": (np.zeros([4, 7, 7, 3], np.uint8), [0, 1, 0, 1], "7 pixels wide: sizes from 8 to 512"),
    "label missing": (np.zeros([4, 16, 16, 3], np.uint8), [0, 1, 0], "expected one for each of the 4 images"),
    "one class": (np.zeros([4, 16, 16, 3], np.uint8), [1, 1, 1, 1], "expected at least two classes"),
}


@pytest.mark.parametrize("case", BAD_INPUT)
def test_bad_input_is_explained(case, tmp_path):
    images, labels, message = BAD_INPUT[case]
    with pytest.raises(ValueError, match=message):
        ImageClassifier(str(tmp_path), **TINY).fit(images, labels)


def test_unlabelled_images_of_another_size_are_refused(tmp_path):
    images, labels = stripes(4, size=16)
    with pytest.raises(ValueError, match="images are 12 pixels wide: the training images are 16"):
        ImageClassifier(str(tmp_path), **TINY).fit(images, labels, stripes(4)[0])


def test_unknown_settings_and_labels_and_an_untrained_classifier_are_explained(classifier):
    with pytest.raises(ValueError, match="unknown settings steps: choose from .*train_steps"):
        ImageClassifier(steps=3)
    with pytest.raises(ValueError, match="not trained yet: call fit"):
        ImageClassifier("unused").predict(stripes(2)[0])
    with pytest.raises(ValueError, match=r"labels \['dots'\] did not occur in training"):
        classifier.evaluate(stripes(2)[0], ["dots", "rows"])
