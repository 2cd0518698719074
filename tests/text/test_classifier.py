"""TextClassifier on a user's CSV: train, evaluate, export, load in a new process, predict raw strings."""

import csv
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.text import small_data, small_run
from text import record_format
from text.classifier import TextClassifier

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
SETTINGS = {"recipe": "finetune"}
SETTINGS |= {"train_batch_size": 4, "unsup_ratio": 2, "max_seq_length": 24, "learning_rate": 3e-3, "warmup_steps": 0}
SETTINGS |= {
    "train_steps": 60,
    "save_steps": 30,
    "log_steps": 30,
    "aug_ops": "unif-0.2",
    "aug_copy": 1,
    "ema_decay": 0.9,
}


@pytest.fixture(scope="module")
def bert_dir(tmp_path_factory):
    return small_run.write_bert(tmp_path_factory.mktemp("bert"), hidden_size=32)


def create_texts(num_texts, seed):
    rng = np.random.default_rng(seed)
    labels = [("bad", "good")[number % 2] for number in range(num_texts)]
    return [small_data.random_text(rng, number % 2, rng.integers(4, 20)) for number in range(num_texts)], labels


@pytest.fixture(scope="module")
def trained(tmp_path_factory, bert_dir):
    """A classifier trained on a CSV file, its folder, and texts that it has not seen."""
    folder = tmp_path_factory.mktemp("classifier")
    small_data.write_records(
        folder / "train.csv", [dict(zip(("text", "label"), row)) for row in zip(*create_texts(24, 0))]
    )
    with open(folder / "train.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    classifier = TextClassifier(bert_dir, str(folder / "run"), **SETTINGS)
    unlabeled_texts = create_texts(40, 1)[0] + ["", " "]  # empty ones are left out
    classifier.fit([row["text"] for row in rows], [row["label"] for row in rows], unlabeled_texts)
    return classifier, folder, create_texts(16, 2)


def test_classifier_learns_and_predicts_labels_as_they_were_spelt(trained):
    classifier, _, (texts, labels) = trained
    assert classifier.classes.tolist() == ["bad", "good"]
    result = classifier.evaluate(texts, labels)
    assert result["accuracy"] > 0.8 and result["error_rate"] == 1 - result["accuracy"]
    assert np.mean(classifier.predict(texts) == np.array(labels)) == result["accuracy"]


def test_exported_classifier_predicts_raw_strings_in_a_new_process(trained):
    classifier, folder, (texts, _) = trained
    classifier.export(folder / "exported")
    (folder / "texts.json").write_text(json.dumps(texts))
    code = (
        "import json, sys; from text.classifier import TextClassifier; "
        "texts = json.load(open(sys.argv[2])); "
        "print(json.dumps(TextClassifier.load(sys.argv[1]).predict_proba(texts).tolist()))"
    )
    command = [sys.executable, "-c", code, folder / "exported", folder / "texts.json"]
    output = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=True).stdout
    np.testing.assert_allclose(json.loads(output.splitlines()[-1]), classifier.predict_proba(texts), atol=1e-5)


def test_second_fit_with_other_texts_in_the_same_folder_is_refused(trained, bert_dir):
    _, folder, (texts, labels) = trained
    with pytest.raises(ValueError, match="holds records of other settings"):
        TextClassifier(bert_dir, str(folder / "run"), **SETTINGS).fit(texts, labels, texts)


def test_numbers_as_labels_come_back_as_numbers(bert_dir, tmp_path):
    texts, _ = create_texts(9, 3)
    classifier = TextClassifier(bert_dir, str(tmp_path), **SETTINGS | {"train_steps": 1, "dev_size": 4})
    classifier.fit(texts, [10, 2] * 4 + [10])  # unequal classes: all but the development split are trained on
    assert classifier.classes.tolist() == [2, 10]
    assert set(classifier.predict(texts).tolist()) <= {2, 10}


def test_an_encoder_by_name_with_a_prefix_of_ones_own(bert_dir, tmp_path, monkeypatch):
    monkeypatch.setenv("UDA_CACHE", str(tmp_path))
    (tmp_path / "encoders").mkdir()
    (tmp_path / "encoders/bert-base").symlink_to(bert_dir)
    texts, labels = create_texts(8, 3)
    settings = SETTINGS | {"train_steps": 1, "save_steps": 1}
    classifier = TextClassifier("bert-base", str(tmp_path / "run"), text_prefix="very: ", **settings)
    classifier.fit(texts, labels, texts)
    for folder in ("records", "export"):
        assert record_format.read_dataset(str(tmp_path / "run" / folder))[1].prefix == "very: "
    assert json.loads((tmp_path / "run/config.json").read_text())["init_checkpoint"] == "bert-base"


def test_without_a_gpu_the_encoder_stays_frozen_and_a_head_learns_on_its_features(bert_dir, tmp_path):
    (texts, labels), (unlabeled, _), (test, test_labels) = (create_texts(*draw) for draw in ((40, 3), (80, 4), (60, 5)))
    settings = {"max_seq_length": 24, "pooling": "mean", "train_steps": 200, "learning_rate": 0.01}
    classifier = TextClassifier(bert_dir, str(tmp_path / "run"), **settings).fit(texts, labels, unlabeled)
    config = json.loads((tmp_path / "run/config.json").read_text())
    assert config["trainable_layers"] == 0 and config["unsup_coeff"] == 20 and config["aug_ops"] == "tf_idf-0.3"
    assert (tmp_path / "run/records/features").is_dir()
    assert classifier.evaluate(test, test_labels)["accuracy"] > 0.6  # much, for features of random weights
    alone = TextClassifier(bert_dir, str(tmp_path / "alone"), **settings).fit(texts, labels)
    assert alone.evaluate(texts, labels)["accuracy"] > 0.8
    with pytest.raises(ValueError, match="recipe='fast': expected 'auto' or one of 'paper', 'frozen'"):
        TextClassifier(bert_dir, recipe="fast")


def test_paraphrases_of_ones_own_are_taken_for_all_texts_the_labelled_ones_first(bert_dir, tmp_path):
    (texts, labels), (unlabeled, _), (paraphrases, _) = (create_texts(*draw) for draw in ((4, 3), (6, 4), (10, 5)))
    settings = {"max_seq_length": 24, "pooling": "mean", "train_steps": 2, "save_steps": 2, "recipe": "frozen"}
    settings |= {"aug_ops": "bt-0.9", "back_translation_dir": tmp_path / "bt"}
    classifier = TextClassifier(bert_dir, str(tmp_path / "run"), **settings)
    with pytest.raises(ValueError, match="bt/unsup_in/sample_0.9/para/para_0.txt is missing"):
        classifier.fit(texts, labels, unlabeled)
    folder = tmp_path / "bt/unsup_in/sample_0.9/para"
    folder.mkdir(parents=True)
    (folder / "para_0.txt").write_text("".join(f"{line}\n" for line in paraphrases))
    classifier.fit(texts, labels, unlabeled)
    (info,) = (tmp_path / "run/records").glob("unsup/bt-0.9/*/info.json")
    assert json.loads(info.read_text())["num_examples"] == 10


@pytest.mark.parametrize(
    ("texts", "labels", "message"),
    [
        ("one string", ["a"], "texts is one string: expected a list"),
        (["a", 3], ["x", "y"], r"texts\[1\]=3: expected a string"),
        (["a", " "], ["x", "y"], r"texts\[1\] is empty"),
        (["a", "b"], ["x"], r"labels have shape=\(1,\): expected one for each of the 2 texts"),
        (["a", "b"], ["x", "x"], "labels are all .* expected at least two classes"),
    ],
)
def test_bad_input_is_named(bert_dir, tmp_path, texts, labels, message):
    with pytest.raises(ValueError, match=message):
        TextClassifier(bert_dir, str(tmp_path)).fit(texts, labels)


def test_unknown_setting_and_unknown_label_are_named(bert_dir, trained):
    with pytest.raises(ValueError, match="unknown settings train_step: choose from .*train_steps"):
        TextClassifier(bert_dir, train_step=5)
    classifier, _, (texts, _) = trained
    with pytest.raises(ValueError, match=r"labels \['ugly'\] did not occur in training"):
        classifier.evaluate(texts[:1], ["ugly"])


def test_a_text_of_markup_alone_is_empty(bert_dir, tmp_path):
    classifier = TextClassifier(bert_dir, str(tmp_path), **SETTINGS)
    with pytest.raises(ValueError, match=r"texts\[1\] is empty: a labelled text must have words"):
        classifier.fit(["good", "<br />"], ["good", "bad"])


def test_a_loaded_classifier_only_predicts(trained, tmp_path):
    trained[0].export(str(tmp_path / "exported"))
    with pytest.raises(ValueError, match=r"a loaded classifier only predicts: train another TextClassifier\(model_dir"):
        TextClassifier.load(str(tmp_path / "exported")).fit(["good", "bad"], ["good", "bad"])


def test_there_must_be_examples_to_evaluate_on_and_labels_must_be_no_bytes(trained, bert_dir, tmp_path):
    with pytest.raises(ValueError, match="no examples to evaluate on"):
        trained[0].evaluate([], [])
    with pytest.raises(ValueError, match="labels are bytes: expected numbers or strings"):
        TextClassifier(bert_dir, str(tmp_path)).fit(["good", "bad"], [b"good", b"bad"])


def test_fewer_steps_than_the_recipes_warm_up_can_be_asked_for_where_settings_are_chosen(bert_dir, tmp_path):
    classifier = TextClassifier(bert_dir, str(tmp_path), recipe="finetune", settings="auto", train_steps=50)
    config = classifier.create_config(4, task_name="csv", init_checkpoint=bert_dir)
    assert config.train_steps == 50 and 0 < config.warmup_steps < 50


def test_untrained_classifier_says_so(bert_dir):
    with pytest.raises(ValueError, match="not trained yet: call fit"):
        TextClassifier(bert_dir).predict(["a text"])
