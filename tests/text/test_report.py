"""The page of a text run: figures of a real run, and its texts with what the augmentation changed."""

import dataclasses

import numpy as np
import pytest

from tests.page_parser import Page
from tests.programs import run_main
from tests.text import small_run
from text import main, report
from utils import examples
from utils import report as engine


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("report")


@pytest.fixture(scope="module")
def config(folder):
    bert_dir = small_run.write_bert(folder / "bert")
    data_dir = small_run.write_user_records(folder, bert_dir)
    steps = {"train_steps": 2, "log_steps": 1, "save_steps": 2}
    return small_run.tiny_config(data_dir, bert_dir, eval_batch_size=5, **steps)


@pytest.fixture(scope="module")
def run(config, folder):
    """A run by the program, from the first step to the page."""
    arguments = [f"--{name}={value}" for name, value in dataclasses.asdict(config).items()]
    run_main(main, "--do_train", "--do_eval", f"--model_dir={folder / 'run'}", *arguments)
    return engine.read_run(str(folder / "run"))


@pytest.fixture(scope="module")
def page(run, folder):
    return Page((folder / "run/report.html").read_text())


@pytest.mark.slow
def test_a_run_ends_with_a_page_of_its_figures(run, page):
    for name in ("accuracy", "error_rate", "sup_size", "step", "examples_per_second", "train_seconds"):
        assert page.values(f"result.{name}") == [run.result[name]], name
    for name in run.lines[0]:
        assert page.values(f"metrics.{name}")[-2:] == [line[name] for line in run.lines], name


@pytest.mark.slow
def test_the_evaluation_is_in_the_order_of_the_test_texts_though_it_was_made_by_length(run):
    np.testing.assert_array_equal(run.evaluation.labels, np.arange(12) % 2)
    assert run.evaluation.class_names.tolist() == ["bad", "good"]
    assert len(run.evaluation.pseudo_labels) == 1000  # batches of 8


@pytest.mark.slow
def test_texts_are_shown_by_their_rows(run, page, config):
    chosen = examples.surest_mistakes(run.evaluation) + examples.least_sure(run.evaluation)
    texts = report.read_rows(config.data_dir, chosen)
    shown = [text for text in page.texts["li"] if "true: " in text or "right" in text]
    assert len(shown) == len(chosen)
    for row, text, item in zip(chosen, texts, shown):
        assert item.startswith(text)
        assert run.evaluation.class_names[run.evaluation.predictions[row]] in item[len(text) :]


def test_pairs_are_readable_texts_and_their_own_augmentations(config):
    pairs = report.read_pairs(config.data_dir, "unif-0.3", 5)
    assert len(pairs) == 5
    for original, augmented in pairs:
        words, new_words = original.split(), augmented.split()
        assert "[CLS]" not in original and "##" not in original
        assert len(words) == len(new_words)
        assert np.mean(np.array(words) == np.array(new_words)) > 0.3


def test_pieces_of_a_word_are_joined():
    vocab = ["[PAD]", "[CLS]", "[SEP]", "un", "##like", "##ly", "fun"]
    assert report.join_pieces(vocab, [1, 3, 4, 5, 6, 2]) == "unlikely fun"


def test_changed_words_are_marked_and_markup_is_text():
    original, augmented = report.mark_changes("a good <b> film", "a bad , very <b> film")
    assert original == "a <mark>good</mark> &lt;b&gt; film"
    assert augmented == "a <mark>bad , very</mark> &lt;b&gt; film"
    assert report.mark_changes("same", "same") == ("same", "same")


def test_long_texts_are_cut():
    assert report.shorten("word " * 100) == " ".join(["word"] * 90) + " …"
