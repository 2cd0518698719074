"""The comparison of text runs: table and picture from real records and metrics."""

import json

import numpy as np
import pytest
from PIL import Image

from tests.programs import run_main
from tests.text import small_run
from text import report


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory):
    folder = tmp_path_factory.mktemp("report")
    bert_dir = small_run.write_bert(folder / "bert")
    return str(small_run.write_user_records(folder, bert_dir))


def test_pairs_are_readable_texts_and_their_own_augmentations(data_dir):
    pairs = report.read_pairs(data_dir, "unif-0.3", 5)
    assert len(pairs) == 5
    for original, augmented in pairs:
        words, new_words = original.split(), augmented.split()
        assert "[CLS]" not in original and "##" not in original
        assert len(words) == len(new_words)
        assert np.mean(np.array(words) == np.array(new_words)) > 0.3


def test_pieces_of_a_word_are_joined():
    vocab = ["[PAD]", "[CLS]", "[SEP]", "un", "##like", "##ly", "fun"]
    assert report.join_pieces(vocab, [1, 3, 4, 5, 6, 2]) == "unlikely fun"


def test_table_and_picture_are_written(data_dir, tmp_path, capsys):
    for name, error_rate in (("a", 0.3), ("b", 0.1)):
        (tmp_path / name).mkdir()
        lines = [{"step": step, "loss": 1 / step, "test_accuracy": step / 4} for step in (1, 2, 3)]
        (tmp_path / name / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        (tmp_path / name / "result.json").write_text(json.dumps({"error_rate": error_rate}))
    runs = [f"--run={name}={tmp_path / directory}" for name, directory in (("supervised", "a"), ("UDA", "b"))]
    flags = [f"--data_dir={data_dir}", "--aug_ops=unif-0.3", f"--output={tmp_path}/report.png"]
    run_main(report, *runs, *flags)
    assert "| UDA        | 10.0%      | 1    |" in capsys.readouterr().out
    assert (tmp_path / "report.md").read_text().count("\n") == 4
    assert (tmp_path / "report.csv").read_text().splitlines()[1:] == ["supervised,0.3,,1", "UDA,0.1,,1"]
    with Image.open(tmp_path / "report.png") as picture:
        assert picture.size == (1500, 450)
        assert len(np.unique(np.asarray(picture.convert("RGB")).reshape(-1, 3), axis=0)) > 100
