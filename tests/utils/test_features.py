"""utils/features.py and FeatureClassifier: a linear classifier on features that anyone may bring."""

import dataclasses
import shutil

import numpy as np
import pytest
import tensorflow as tf

from tests.shares import assert_shares_are_the_whole
from utils import features, locks, run_dir
from utils.distribution import create_strategy
from utils.feature_classifier import FeatureClassifier
from utils.features import FeatureData, HeadConfig, Labelled

WIDTH, NUM_UNLABELED = 6, 300
TINY = {"task_name": "features", "sup_size": 4, "train_steps": 8, "save_steps": 4, "log_steps": 4, "iterations": 2}
TINY |= {"train_batch_size": 4, "eval_batch_size": 16, "unsup_ratio": 3}


def draw_features(number, seed):
    """Two classes that lie apart in one direction, beside others that tell nothing, and one that never changes."""
    rng = np.random.default_rng(seed)
    labels = rng.permutation(np.arange(number) % 2)
    values = rng.normal(size=[number, WIDTH]) * [1, 5, 5, 1, 1, 0] + [0, 100, 0, 0, 0, 7]
    values[:, 0] += 3 * (2 * labels - 1)
    return values.astype(np.float32), labels


def augment(values, seed=9):
    """Noise in all directions but the one that tells."""
    noise = np.random.default_rng(seed).normal(size=values.shape) * [0, 5, 5, 1, 1, 0]
    return (values + noise).astype(np.float32)


def create_arrays():
    (labelled, labels), (test, test_labels) = draw_features(4, seed=1), draw_features(200, seed=2)
    unlabeled = draw_features(NUM_UNLABELED, seed=3)[0]
    arrays = {"features": labelled, "labels": labels, "test_features": test, "test_labels": test_labels}
    return arrays | {"unlabeled": unlabeled, "augmented": augment(unlabeled)}


@pytest.fixture(scope="module")
def data():
    return features.create_data(**create_arrays())


def run(config, data, model_dir, **options):
    return features.train_and_evaluate(config, data, str(model_dir), create_strategy("one_device"), **options)


def read_weights(model_dir, step):
    reader = tf.train.load_checkpoint(str(model_dir / "checkpoints" / f"ckpt-{step}"))
    names = [name for name in reader.get_variable_to_shape_map() if name != "_CHECKPOINTABLE_OBJECT_GRAPH"]
    return {name: reader.get_tensor(name) for name in names}


# ---- standardisation ------------------------------------------------------------------------------------------------


def test_the_head_sees_features_of_mean_0_and_deviation_1_over_the_unlabelled_examples(data):
    head = features.create_head(WIDTH, 2, features.compute_statistics(data.original))
    standardized = head.get_layer("standardize")(data.original).numpy()
    np.testing.assert_allclose(standardized.mean(axis=0), np.zeros(WIDTH), atol=1e-4)
    np.testing.assert_allclose(standardized.std(axis=0), [1, 1, 1, 1, 1, 0], rtol=1e-4)
    assert not head(data.original).numpy().any()  # it starts at 0
    assert [weight.shape for weight in head.trainable_variables] == [[WIDTH, 2], [2]]


def test_statistics_of_16_bits_and_of_several_blocks_are_those_of_all_examples(data, monkeypatch):
    expected = [data.original.mean(axis=0), np.where(np.arange(WIDTH) == 5, 1, data.original.std(axis=0))]
    monkeypatch.setattr(features, "BLOCK", 128)
    np.testing.assert_allclose(features.compute_statistics(data.original), expected, rtol=1e-5)
    halved = features.compute_statistics(data.original.astype(np.float16))
    np.testing.assert_allclose(halved, expected, rtol=1e-2, atol=1e-2)


def test_statistics_of_a_tensor_are_those_of_the_array(data):
    for found, expected in zip(*map(features.compute_statistics, (tf.constant(data.original), data.original))):
        np.testing.assert_array_equal(found, expected)


def test_features_that_are_all_constant_are_refused():
    with pytest.raises(ValueError, match="all 3 features are the same for all 5 unlabelled examples"):
        features.compute_statistics(np.full([5, 3], 0.1, np.float32))


# ---- batches --------------------------------------------------------------------------------------------------------


def test_batches_are_a_function_of_seed_and_step(data):
    config = HeadConfig(**TINY)
    whole = list(features.create_train_dataset(config, data).take(6))
    later = list(features.create_train_dataset(config, data, start_step=4).take(2))
    for batch, other in zip(whole[4:], later):
        tf.nest.map_structure(np.testing.assert_array_equal, batch, other)
    other_seed = next(iter(features.create_train_dataset(dataclasses.replace(config, seed=1), data)))
    assert not np.array_equal(other_seed["original"], whole[0]["original"])


def test_hosts_together_make_the_batches_of_one(data):
    config = HeadConfig(**TINY | {"train_batch_size": 8})
    assert_shares_are_the_whole(lambda share: features.create_train_dataset(config, data, 3, share), 2, counts=(2, 4))
    part = features.Labelled(data.original[:9], np.arange(9))
    assert_shares_are_the_whole(lambda share: features.create_eval_dataset(part, 4, share), 3)


def test_both_views_of_a_batch_are_of_the_same_examples_and_all_copies_come_by(data):
    copies = np.concatenate([data.original + 1, data.original + 2])
    config = HeadConfig(**TINY | {"unsup_ratio": NUM_UNLABELED // 2})  # a pass has one step for each copy
    batches = list(features.create_train_dataset(config, data._replace(augmented=copies)).take(1))
    differences = np.unique([np.round(batch["augmented"] - batch["original"]) for batch in batches])
    assert differences.tolist() == [1, 2]
    first = [np.unique(batch["augmented"][:, 0]) for batch in batches]
    assert len(np.unique(np.concatenate(first))) == 2 * NUM_UNLABELED


def test_all_streams_of_a_run_share_one_copy_of_the_features(data):
    tensors = features.as_tensors(data)
    again = features.as_tensors(tensors)
    assert again.original is tensors.original and again.augmented is tensors.augmented
    assert again.test.features is tensors.test.features and again.dev is None
    config = HeadConfig(**TINY)
    of_arrays, of_tensors = (next(iter(features.create_train_dataset(config, part))) for part in (data, tensors))
    tf.nest.map_structure(np.testing.assert_array_equal, of_arrays, of_tensors)


# ---- runs -----------------------------------------------------------------------------------------------------------


def test_uda_on_features_is_better_than_the_labels_alone(data, tmp_path):
    # Four labels leave the direction open; consistency under noise finds it.
    settings = HeadConfig(**TINY | {"train_steps": 200, "save_steps": 200, "log_steps": 100, "learning_rate": 0.01})
    uda = run(settings, data, tmp_path / "uda")
    supervised = run(dataclasses.replace(settings, unsup_ratio=0), data, tmp_path / "supervised")
    assert uda["accuracy"] > 0.95 and uda["accuracy"] > supervised["accuracy"]
    assert uda["task_name"] == "features" and uda["sup_size"] == 4


def test_a_run_on_unlabelled_examples_that_are_not_there_is_refused_before_it_begins(data, tmp_path):
    with pytest.raises(ValueError, match="unsup_ratio=3, but there are no unlabelled examples: give unlabeled and aug"):
        run(HeadConfig(**TINY), data._replace(original=None, augmented=None), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_stopped_run_ends_with_the_weights_of_a_whole_one(data, tmp_path):
    config = HeadConfig(**TINY)
    run(config, data, tmp_path / "whole")
    shutil.copytree(tmp_path / "whole", tmp_path / "stopped")
    for path in (tmp_path / "stopped" / "checkpoints").glob("ckpt-8.*"):
        path.unlink()
    run(config, data, tmp_path / "stopped")
    whole, stopped = (read_weights(tmp_path / name, 8) for name in ("whole", "stopped"))
    assert whole.keys() == stopped.keys()
    for name in whole:
        np.testing.assert_array_equal(whole[name], stopped[name], err_msg=name)
    lines = run_dir.read_metrics(str(tmp_path / "stopped"))
    assert [line["step"] for line in lines] == [4, 8] and "pseudo_label_balance" in lines[0]


# ---- FeatureClassifier ----------------------------------------------------------------------------------------------


def test_feature_classifier_learns_predicts_exports_and_loads(tmp_path):
    arrays = create_arrays()
    names = np.array(["no", "yes"])
    classifier = FeatureClassifier(str(tmp_path / "run"), train_steps=200, learning_rate=0.01, train_batch_size=4)
    classifier.fit(arrays["features"], names[arrays["labels"]], arrays["unlabeled"], arrays["augmented"])
    test, test_labels = arrays["test_features"], names[arrays["test_labels"]]
    assert classifier.evaluate(test, test_labels)["accuracy"] > 0.9
    assert np.mean(classifier.predict(test) == test_labels) > 0.9
    classifier.export(str(tmp_path / "exported"))
    loaded = FeatureClassifier.load(str(tmp_path / "exported"))
    np.testing.assert_array_equal(loaded.predict_proba(test), classifier.predict_proba(test))
    assert loaded.classes.tolist() == ["no", "yes"]
    with pytest.raises(ValueError, match="features are 5 wide, expected 6"):
        loaded.predict(test[:, :5])


def test_feature_classifier_does_not_take_a_training_on_other_examples_for_its_own(tmp_path):
    settings = {"train_steps": 2, "save_steps": 2, "log_steps": 2}
    examples, labels = np.eye(4, dtype=np.float32), ["a", "b", "a", "b"]
    FeatureClassifier(str(tmp_path), **settings).fit(examples, labels, examples, examples)
    FeatureClassifier(str(tmp_path), **settings).fit(examples, labels, examples, examples)
    others = {
        "labelled": (2 * examples, labels, examples, examples),
        "unlabelled": (examples, labels, examples, 2 * examples),
    }
    for name, data in others.items():
        with pytest.raises(ValueError, match=f"holds a run of the same configuration on other {name} examples"):
            FeatureClassifier(str(tmp_path), **settings).fit(*data)
    with pytest.raises(ValueError, match="on other labelled examples"):
        FeatureClassifier(str(tmp_path), **settings).fit(examples, ["c", "d", "c", "d"], examples, examples)


def test_feature_classifier_without_unlabelled_examples_trains_on_the_labels(tmp_path):
    values, labels = draw_features(40, seed=4)
    classifier = FeatureClassifier(str(tmp_path / "run"), train_steps=200, dev_size=10, learning_rate=0.03)
    assert classifier.fit(values, labels).evaluate(values, labels)["accuracy"] > 0.9


def test_a_folder_without_a_classifier_of_features_is_refused(tmp_path):
    with pytest.raises(ValueError, match="holds no exported classifier of features"):
        FeatureClassifier.load(str(tmp_path))


@pytest.mark.parametrize(
    "content, message",
    [
        ("{}", "class_names is missing: expected a list"),
        ('{"class_names": ["a", "b"], "width": -1}', "width=-1: expected a whole number from 1"),
        ('{"class_names": ["a", "a"], "width": 6}', "expected different labels"),
        ('{"class_names": [[], {}], "width": 6}', "expected different labels"),
        ("[" * 100_000, "nested too deeply"),
    ],
)
def test_a_damaged_description_of_a_classifier_is_refused(tmp_path, content, message):
    (tmp_path / "features.json").write_text(content)
    with pytest.raises(ValueError, match=f"features.json.*{message}"):
        FeatureClassifier.load(str(tmp_path))


def test_a_second_process_is_kept_from_the_folder_of_a_classifier(tmp_path):
    values, labels = draw_features(4, seed=4)
    with locks.hold(str(tmp_path), "another training", ""):
        with pytest.raises(ValueError, match=f"{tmp_path} is in use by another training, process"):
            FeatureClassifier(str(tmp_path), **{"train_steps": 1, "save_steps": 1}).fit(values, labels)


# ---- files ----------------------------------------------------------------------------------------------------------


def test_a_file_of_features_is_split_into_labelled_and_development_examples(tmp_path):
    values, labels = draw_features(20, seed=5)
    np.savez(tmp_path / "mine.npz", features=values, labels=labels)
    draws = [
        features.read_file(str(tmp_path / "mine.npz"), HeadConfig(**TINY | {"dev_size": 6, "label_seed": seed}))
        for seed in (0, 0, 1)
    ]
    for data in draws:
        assert np.bincount(data.sup.labels).tolist() == [2, 2] and np.bincount(data.dev.labels).tolist() == [3, 3]
        assert not set(map(tuple, data.sup.features)) & set(map(tuple, data.dev.features))
        assert data.original is None and data.test is None
    np.testing.assert_array_equal(draws[0].sup.features, draws[1].sup.features)
    assert not np.array_equal(draws[0].sup.features, draws[2].sup.features)


def test_copies_are_laid_out_one_after_the_other():
    arrays = create_arrays()
    copies = np.stack([arrays["augmented"], arrays["unlabeled"]])
    data = features.create_data(**arrays | {"augmented": copies})
    np.testing.assert_array_equal(data.augmented[NUM_UNLABELED:], data.original)
    assert isinstance(data, FeatureData) and isinstance(data.sup, Labelled)


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_checked_features_are_not_copied(dtype):
    values = np.ones([3, 2], dtype)
    assert features.check_features("features", values) is values


GOOD = create_arrays()
BAD = {
    "labels have shape=\\(3,\\): expected one for each of 4 examples": {"labels": [0, 1, 0]},
    "labels are of float64: expected whole numbers or strings": {"labels": [0.0, 1.0, 0.5, 1.0]},
    "labels are all \\[1\\]: expected at least two classes": {"labels": [1, 1, 1, 1]},
    "features: found shape=\\(4,\\) of float32": {"features": GOOD["features"][:, 0]},
    "features: found shape=\\(4, 6\\) of <U3": {"features": np.full([4, 6], "abc")},
    "features\\[2\\] holds a number that is not finite": {
        "features": np.where(np.arange(4)[:, None] == 2, np.nan, 1.0)
    },
    "test_features are 5 wide, expected 6": {"test_features": GOOD["test_features"][:, :5]},
    "test_labels have shape=\\(0,\\): expected one for each of 200": {"test_labels": None},
    "test_labels hold \\[7\\], which no labelled example has": {"test_labels": np.full(200, 7)},
    "expected unlabeled and augmented together": {"augmented": None},
    "augmented has shape=\\(299, 6\\), unlabeled has 300 examples": {"augmented": GOOD["augmented"][1:]},
    "augmented are 5 wide, expected 6": {"augmented": GOOD["augmented"][:, 1:]},
}


@pytest.mark.parametrize("message", BAD)
def test_features_that_do_not_fit_are_refused(message):
    with pytest.raises(ValueError, match=message):
        features.create_data(**GOOD | BAD[message])


def test_a_file_that_is_no_file_of_features_is_refused(tmp_path):
    config = HeadConfig(**TINY)
    with pytest.raises(ValueError, match="features_file='': give the .npz file"):
        features.read_file("", config)
    np.savez(tmp_path / "bad.npz", **GOOD)
    content = (tmp_path / "bad.npz").read_bytes()
    damaged = [b"", b"PK\x03\x04 no zip", content[:-100], content.replace(b"(4, 6)", b"(4, 9)", 1)]
    for content in damaged:
        (tmp_path / "bad.npz").write_bytes(content)
        with pytest.raises(ValueError, match=r"features_file=.*bad.npz cannot be read \(.*\): expected an .npz file"):
            features.read_file(str(tmp_path / "bad.npz"), config)
    np.savez(tmp_path / "bad.npz", **GOOD | {"unlabeled": GOOD["unlabeled"].astype(np.float64) * 1e300})
    with pytest.raises(ValueError, match=r"bad.npz: unlabeled\[0\] holds a number that is not finite"):
        features.read_file(str(tmp_path / "bad.npz"), config)
    np.savez(tmp_path / "bad.npz", features=GOOD["features"])
    with pytest.raises(ValueError, match="lacks labels: expected arrays named features, labels, unlabeled"):
        features.read_file(str(tmp_path / "bad.npz"), config)
    np.savez(tmp_path / "bad.npz", features=GOOD["features"], labels=GOOD["labels"], unlabelled=GOOD["unlabeled"])
    with pytest.raises(ValueError, match="has unlabelled: expected arrays named"):
        features.read_file(str(tmp_path / "bad.npz"), config)
