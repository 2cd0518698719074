"""text/filter_domain.py: from a pool of texts to a file that text.preprocess takes as unlabelled data."""

import dataclasses
import functools
import gzip
import json

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from tests.programs import run_main
from tests.text.small_data import (
    random_text,
    write_external,
    write_official,
    write_records,
    write_user_file,
    write_vocab,
)
from text import datasets, export, filter_domain, preprocess
from text.config import Config, PreprocessConfig
from text.datasets import tables
from text.datasets.source import Facts, clean
from text.models import BertConfig
from text.train import train_and_evaluate
from utils import domain_filter, locks

pytestmark = pytest.mark.slow

CLASS_NAMES = ("bad", "good")


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A short run on a user's file, with its data: dict of paths."""
    folder = tmp_path_factory.mktemp("run")
    write_user_file(folder / "train.csv", 12, CLASS_NAMES)
    num_pieces = len(write_vocab(folder / "vocab.txt"))
    config = BertConfig(num_pieces, 12, 1, 3, 16, max_position_embeddings=32)
    (folder / "bert_config.json").write_text(json.dumps(dataclasses.asdict(config)))
    data_dir, model_dir = str(folder / "data"), str(folder / "model")
    files = {"train_file": str(folder / "train.csv"), "vocab_file": str(folder / "vocab.txt")}
    write_csv_records(**files, data_dir=data_dir, data_type="sup", sup_size=8)
    config = Config(
        task_name="csv",
        data_dir=data_dir,
        sup_size=8,
        max_seq_length=24,
        unsup_ratio=0,
        bert_config_file=str(folder / "bert_config.json"),
        train_batch_size=4,
        train_steps=40,
        warmup_steps=0,
        learning_rate=0.01,
    )
    train_and_evaluate(config, model_dir, tf.distribute.OneDeviceStrategy("/cpu:0"), do_eval=False)
    return {"train_file": folder / "train.csv", "vocab": folder / "vocab.txt", "model_dir": model_dir}


def write_csv_records(**settings):
    """Writes records with text.preprocess; returns the source."""
    config = PreprocessConfig(task_name="csv", max_seq_length=24, workers=1, **settings)
    source = datasets.open_source(config)
    preprocess.write_records(config, source)
    return source


def count_good(texts, titles=None, batch_size=32):
    """A stand-in for a model: the probability of the second class grows with the number of the word "good"."""
    counts = [f"{text} {title}".lower().count("good") for text, title in zip(texts, titles or [""] * len(texts))]
    probabilities = 1 / (1 + np.exp(2 - np.array(counts)))
    return np.stack([1 - probabilities, probabilities], axis=1).astype(np.float32)


@pytest.fixture
def stand_in(monkeypatch):
    """Puts count_good in the place of the exported model; called with other facts or another fingerprint."""

    def use(facts=Facts("csv", CLASS_NAMES), fingerprint="1", predict_proba=count_good):
        monkeypatch.setattr(domain_filter, "load_model", lambda *_: (facts, predict_proba, fingerprint))

    use()
    return use


def filter_pool(pool, output, num_per_class, **options):
    config = filter_domain.Config("model", str(pool), num_per_class, output=str(output), **options)
    return filter_domain.filter_pool(config)


def good_texts(counts):
    return [f"The {number}th text is {'good ' * count}indeed" for number, count in enumerate(counts)]


def read_output(path):
    content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    return [json.loads(line) for line in content.decode().splitlines()]


# ---- from a trained model to unlabelled data ------------------------------------------------------------------------


def test_the_most_confident_texts_of_each_class_become_unlabelled_data(run, tmp_path, capsys):
    rng = np.random.default_rng(0)
    texts = [random_text(rng, -1) for _ in range(70)] + ["  ", 'He said: "good".\nYes, <br /> it\'s café.']
    write_records(tmp_path / "pool.csv", [{"stars": 5, "text": text} for text in texts])
    output = tmp_path / "new" / "filtered.jsonl.gz"
    arguments = [f"--model_dir={run['model_dir']}", f"--pool={tmp_path / 'pool.csv'}", f"--output={output}"]
    run_main(
        filter_domain, *arguments, "--num_per_class=72", "--batch_size=2"
    )  # more than one block of 64, and all usable texts
    probabilities = export.load(f"{run['model_dir']}/export").predict_proba([*texts[:70], texts[71]])
    labels = np.argmax(probabilities, axis=1)
    assert np.bincount(labels).min() > 5
    rows = read_output(output)
    assert [row["text"] for row in rows] == [*texts[:70], texts[71]]
    assert [row["label"] for row in rows] == [CLASS_NAMES[label] for label in labels]
    np.testing.assert_allclose([row["probability"] for row in rows], probabilities.max(axis=1), atol=1e-4)
    printed = capsys.readouterr().out
    assert printed.startswith("kept 71 of 72 examples (98.61%); 1 could not be used\n2 of 2 classes have fewer than")
    assert printed.endswith(f"the kept texts are in {output}\n")

    data_dir, files = tmp_path / "data", {"train_file": str(run["train_file"]), "vocab_file": str(run["vocab"])}
    files |= {"unlabeled_file": str(output), "data_dir": str(data_dir)}
    source = write_csv_records(**files, data_type="unsup", aug_ops="unif-0.1")
    assert [example.text for example in source.read("unlabeled")] == [clean(row["text"]) for row in rows]
    info = json.loads((data_dir / "unsup" / "unif-0.1" / "copy-000" / "info.json").read_text())
    assert info["complete"] and info["num_examples"] == 71


# ---- what is kept ---------------------------------------------------------------------------------------------------


def test_the_output_is_in_the_order_of_the_pool_with_summary_and_picture(tmp_path, stand_in):
    texts = good_texts([0, 5, 1, 4, 0, 3, 6])
    (tmp_path / "pool.txt").write_text("\n".join([*texts[:3], "", *texts[3:]]), encoding="utf-8")
    output = tmp_path / "filtered.jsonl"
    summary = filter_pool(tmp_path / "pool.txt", output, num_per_class=2)
    rows = read_output(output)
    assert [row["text"] for row in rows] == [texts[0], texts[1], texts[4], texts[6]]
    assert [row["label"] for row in rows] == ["bad", "good", "bad", "good"]
    assert [row["probability"] for row in rows] == [0.880797, 0.952574, 0.880797, 0.982014]
    written = json.loads((tmp_path / "filtered.jsonl.json").read_text())
    assert written == {"pool": str(tmp_path / "pool.txt"), "model_dir": "model"} | summary
    assert written["num_kept"] == 4 and written["num_examples"] == 8 and written["share_of_pool"] == 0.5
    assert written["classes"]["good"]["lowest_probability"] == pytest.approx(0.952574, abs=1e-6)
    with Image.open(tmp_path / "filtered.jsonl.png") as picture:
        assert picture.size == (1100, 400)


@pytest.mark.parametrize("name", ["pool.csv", "pool.tsv.gz", "pool.jsonl", "pool.jsonl.gz"])
def test_pools_of_every_kind_give_the_same_texts(tmp_path, stand_in, name):
    texts = good_texts([0, 5, 1, 4])
    write_records(tmp_path / name, [{"number": "3", "review": text} for text in texts])
    output = tmp_path / "filtered.jsonl"
    filter_pool(tmp_path / name, output, 1, text_column="review")
    assert [row["review"] for row in read_output(output)] == [texts[0], texts[1]]


def test_the_same_pool_gives_the_same_bytes(tmp_path, stand_in):
    write_records(tmp_path / "pool.csv", [{"text": text} for text in good_texts(range(9))])
    for name in ("a.jsonl.gz", "b.jsonl.gz"):
        filter_pool(tmp_path / "pool.csv", tmp_path / name, 2)
    assert (tmp_path / "a.jsonl.gz").read_bytes() == (tmp_path / "b.jsonl.gz").read_bytes()


def test_a_stopped_run_goes_on_and_gives_the_same(tmp_path, stand_in, monkeypatch):
    write_records(tmp_path / "pool.csv", [{"text": text} for text in good_texts(np.arange(200) % 7)])
    always_save = functools.partial(domain_filter.select, save_seconds=0)
    monkeypatch.setattr(domain_filter, "select", always_save)
    calls = []

    def predict_proba(texts, titles=None, batch_size=32):
        calls.append(len(texts))
        if len(calls) == 3:
            raise KeyboardInterrupt
        return count_good(texts)

    arguments = {"pool": tmp_path / "pool.csv", "num_per_class": 20, "batch_size": 2}
    stand_in(predict_proba=predict_proba)
    with pytest.raises(KeyboardInterrupt):
        filter_pool(output=tmp_path / "a.jsonl", **arguments)
    filter_pool(output=tmp_path / "a.jsonl", **arguments)
    assert calls == [64, 64, 64, 64, 8]  # the third block is done again, the first two are not
    filter_pool(output=tmp_path / "b.jsonl", **arguments)
    assert (tmp_path / "a.jsonl").read_bytes() == (tmp_path / "b.jsonl").read_bytes()
    stand_in(fingerprint="2")
    with pytest.raises(ValueError, match="is of another selection .model: was '1', now '2'"):
        filter_pool(output=tmp_path / "a.jsonl", **arguments)
    stand_in()
    write_records(tmp_path / "pool.csv", [{"text": text} for text in good_texts(np.arange(200) % 6)])
    with pytest.raises(ValueError, match="is of another selection .pool: was "):
        filter_pool(output=tmp_path / "a.jsonl", **arguments)


# ---- columns --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("task_name", ["yelp-2", "amazon-2"])
def test_official_tasks_read_the_output_as_unlabelled_file(tmp_path, stand_in, task_name):
    stand_in(tables.OFFICIAL[task_name])
    write_official(tmp_path, task_name)
    pairs = write_external(tmp_path / "pool.json", task_name)
    columns = dict(zip(("text_column", "title_column"), tables.OFFICIAL[task_name].unlabeled_columns))
    output = tmp_path / "filtered.jsonl"
    filter_pool(tmp_path / "pool.json", output, 100, **columns)
    paths = {"raw_data_dir": str(tmp_path), "unlabeled_file": str(output)}
    source = datasets.open_source(PreprocessConfig(task_name=task_name, **paths, allow_partial=True))
    assert [(example.title, example.text) for example in source.read("unlabeled")] == pairs


def test_titles_are_scored_and_kept(tmp_path, stand_in):
    stand_in(Facts("csv", CLASS_NAMES, has_title=True))
    titles = ["good good good good", "bad", "good good good", ""]
    write_records(tmp_path / "pool.csv", [{"0": "a text", "1": title} for title in titles], header=False)
    output = tmp_path / "filtered.jsonl"
    columns = {"text_column": "0", "title_column": "1"}
    filter_pool(tmp_path / "pool.csv", output, 1, **columns)
    assert [(row["0"], row["1"]) for row in read_output(output)] == [("a text", titles[0]), ("a text", "bad")]
    other = tmp_path / "other.jsonl"
    filter_pool(tmp_path / "pool.csv", other, 1, output_columns="b,a", **columns)
    assert list(read_output(other)[0]) == ["b", "a", "label", "probability"]


@pytest.mark.parametrize(
    "has_title, options, message",
    [
        (False, {"pool": "missing.csv"}, r"pool='missing\.csv' does not exist: expected a \.txt, \.csv, \.tsv"),
        (False, {"output": "filtered.csv"}, r"output='filtered\.csv': expected a name that ends in \.jsonl"),
        (False, {"title_column": "title"}, "title_column='title': the model was trained without titles, so leave"),
        (True, {}, "title_column='': the model was trained with titles, so give the --title_column of the pool"),
        (True, {"title_column": "title"}, r"pool\.txt' has one text a line and no titles"),
        (False, {"text_column": ""}, "text_column='': expected the name of a column"),
        (False, {"output_columns": "a,b"}, "output_columns=a,b: expected one, as in text"),
        (False, {"min_probability": 0.99}, "None of the 2 examples of the pool reaches min_probability=0.99: the high"),
        (False, {"pool": ""}, "pool='' is missing: give --pool"),
        (False, {"output": ""}, "output='' is missing: give --output"),
        (False, {"num_per_class": 0}, "num_per_class=0: expected at least 1"),
        (False, {"pool": "empty.txt"}, "The pool is empty: expected at least one text"),
    ],
)
def test_what_does_not_fit_is_told(tmp_path, stand_in, monkeypatch, has_title, options, message):
    stand_in(Facts("csv", CLASS_NAMES, has_title))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pool.txt").write_text("\n".join(good_texts([0, 3])))
    (tmp_path / "empty.txt").touch()
    arguments = {"pool": tmp_path / "pool.txt", "output": "a.jsonl", "num_per_class": 1}
    with pytest.raises(ValueError, match=message):
        filter_pool(**arguments | options)


def test_a_second_process_is_kept_from_the_same_output_but_not_from_others(tmp_path, stand_in):
    pool = tmp_path / "pool.csv"
    write_records(pool, [{"text": text} for text in good_texts([1, 2, 3])])
    with locks.hold(str(tmp_path), "another filtering", "", name=".kept.jsonl.lock"):
        with pytest.raises(ValueError, match="is in use by another filtering, process .*choose another --output"):
            filter_pool(pool, tmp_path / "kept.jsonl", 1)
        filter_pool(pool, tmp_path / "other.jsonl", 1)
    assert not list(tmp_path.glob(".*"))


def test_an_error_ends_with_a_line(tmp_path):
    arguments = [f"--model_dir={tmp_path}", "--pool=a.txt", "--output=b.jsonl", "--num_per_class=1"]
    with pytest.raises(SystemExit, match="^error: .*export holds no exported model: train first, with --do_train"):
        run_main(filter_domain, *arguments)
