"""text/survey.py: the unlabelled texts are read once, and all copies are made from what is kept of them."""

import itertools
import multiprocessing
import os

import numpy as np
import pytest
import tensorflow as tf

from tests.text import small_data
from text import datasets, encoding, preprocess
from text import survey as surveys
from text.config import PreprocessConfig
from text.datasets.source import find_texts
from text.tokenization import Tokenizer
from utils import files, preprocessing

NUM_TEXTS = 40


@pytest.fixture(autouse=True)
def small_shards(monkeypatch):
    """Shards of 16 texts, so that 40 texts need three of them."""
    monkeypatch.setattr(preprocessing, "SHARD_SIZE", 16)


@pytest.fixture
def raw(tmp_path):
    """A folder with train.csv and, with two empty texts among them, more.jsonl."""
    folder = tmp_path / "raw"
    folder.mkdir()
    small_data.write_vocab(folder / "vocab.txt")
    small_data.write_user_file(folder / "train.csv", 12)
    rng = np.random.default_rng(0)
    texts = [small_data.random_text(rng, -1, rng.integers(3, 20)) for _ in range(NUM_TEXTS)]
    small_data.write_records(folder / "more.jsonl", [{"text": text} for text in [*texts[:9], "", *texts[9:], " "]])
    return folder


def create_config(raw, data_dir, **settings):
    paths = {"train_file": f"{raw}/train.csv", "unlabeled_file": f"{raw}/more.jsonl", "vocab_file": f"{raw}/vocab.txt"}
    defaults = {"task_name": "csv", "data_dir": str(data_dir), "sup_size": 4, "max_seq_length": 24, "workers": 1}
    defaults["aug_ops"] = "tf_idf-0.7"
    return PreprocessConfig(**defaults | paths | settings)


def run(config, reads=None):
    """Writes the records; each reading of the unlabelled texts adds to the list `reads`."""
    source = datasets.open_source(config)
    reader = source.readers["unlabeled"]

    def count_reading():
        (reads if reads is not None else []).append("unlabeled")
        return reader()

    source.readers["unlabeled"] = count_reading
    preprocess.write_records(config, source)


def records_of(data_dir):
    return {str(path.relative_to(data_dir)): path.read_bytes() for path in sorted(data_dir.rglob("*.tfrecord"))}


def kept_files(data_dir):
    """All files of the only survey, dict from name to content."""
    (folder,) = (data_dir / "data_stats").iterdir()
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


# ---- once -----------------------------------------------------------------------------------------------------------


def test_the_unlabelled_texts_are_read_once(raw, tmp_path):
    reads = []
    run(create_config(raw, tmp_path / "out", aug_ops="tf_idf-0.3+unif-0.1", aug_copy=2), reads)
    assert reads == ["unlabeled"]
    assert sum("unsup" in name for name in records_of(tmp_path / "out")) == 3 * 4


def test_later_runs_read_no_unlabelled_text(raw, tmp_path, monkeypatch):
    data_dir, reads = tmp_path / "out", []
    run(create_config(raw, data_dir))
    before = {path: path.stat().st_mtime_ns for path in (data_dir / "data_stats").rglob("*")}
    monkeypatch.setattr(surveys, "count_words", None)
    run(create_config(raw, data_dir, data_type="unsup", aug_ops="tf_idf-0.7+unif-0.1", aug_copy=3), reads)
    assert reads == []
    assert {path: path.stat().st_mtime_ns for path in (data_dir / "data_stats").rglob("*")} == before
    monkeypatch.undo()
    monkeypatch.setattr(preprocessing, "SHARD_SIZE", 16)
    run(create_config(raw, tmp_path / "new", aug_ops="tf_idf-0.7+unif-0.1", aug_copy=3))
    assert records_of(data_dir) == records_of(tmp_path / "new")


def test_after_the_survey_the_sets_need_no_unlabelled_texts(raw, tmp_path):
    """What is written later is made from the words, whatever has become of the reader."""
    config = create_config(raw, tmp_path / "out", data_type="unsup", aug_copy=2)
    source = datasets.open_source(config)
    preprocess.write_records(create_config(raw, tmp_path / "out", data_type="unsup"), source)
    source.readers["unlabeled"] = None
    preprocess.write_records(config, source)
    run(create_config(raw, tmp_path / "new", data_type="unsup", aug_copy=2))
    assert records_of(tmp_path / "out") == records_of(tmp_path / "new")


def test_export_reads_the_texts_once_and_tells_what_is_left_out(raw, tmp_path, capsys):
    source = datasets.open_source(create_config(raw, tmp_path))
    reader, reads = source.readers["unlabeled"], []
    source.readers["unlabeled"] = lambda: reads.append("unlabeled") or reader()
    preprocess.export_texts(source, tmp_path / "texts.txt")
    assert reads == ["unlabeled"] and len((tmp_path / "texts.txt").read_text().splitlines()) == NUM_TEXTS
    assert capsys.readouterr().out == (
        "csv: left out 2 of 42 unlabelled texts, empty or too short\n"
        f"40 texts of csv are in {tmp_path / 'texts.txt'}, 1 lines each\n"
    )


# ---- what is kept ---------------------------------------------------------------------------------------------------


def test_the_survey_tells_number_checksum_and_what_is_left_out(raw, tmp_path, capsys):
    config, data_dir = create_config(raw, tmp_path / "out"), tmp_path / "out"
    message = "csv: left out 2 of 42 unlabelled texts, empty or too short\n"
    for _ in range(2):  # the first run, and one that reads no text
        run(config)
        assert message in capsys.readouterr().out
    (folder,) = (data_dir / "data_stats").iterdir()
    texts = find_texts(datasets.open_source(config), "unlabeled")
    assert files.read_json(folder / "survey.json") == {"count": 40, "sha256": texts.sha256, "left_out": 2}
    names = [f"words-{shard:05d}.npz" for shard in range(3)]
    assert sorted(path.name for path in folder.iterdir()) == ["statistics.npz", "survey.json", *names]
    words = encoding.load_words(str(folder / names[2]), 8)
    everything = list(datasets.open_source(config).read("unlabeled"))
    assert words.lengths.tolist() == [len(example.text) for example in everything[32:]]
    tokenizer = Tokenizer(f"{raw}/vocab.txt")
    rows = [words.word_ids[start:stop] for start, stop in itertools.pairwise(words.row_splits)]
    split = tokenizer.split([example.text for example in everything[32:]])
    assert [[words.words[number] for number in row] for row in rows] == split


def test_two_processes_keep_the_same(raw, tmp_path):
    for workers in (1, 2):
        run(create_config(raw, tmp_path / str(workers), workers=workers))
    assert kept_files(tmp_path / "1") == kept_files(tmp_path / "2")
    assert records_of(tmp_path / "1") == records_of(tmp_path / "2")


def test_processes_are_started_once_and_only_for_several_shards(raw, tmp_path, monkeypatch):
    started, start = [], multiprocessing.context.SpawnProcess.start
    monkeypatch.setattr(multiprocessing.context.SpawnProcess, "start", lambda self: started.append(self) or start(self))
    run(create_config(raw, tmp_path / "several", data_type="unsup", workers=2))
    assert len(started) == 2
    monkeypatch.setattr(preprocessing, "SHARD_SIZE", 4096)
    run(create_config(raw, tmp_path / "one", data_type="unsup", workers=2))
    assert len(started) == 2


@pytest.mark.parametrize("change", ["text", "column", "lower_case"])
def test_other_texts_or_words_have_a_survey_of_their_own(raw, tmp_path, change):
    data_dir, settings = tmp_path / "out", {}
    source, tokenization = prepare(create_config(raw, data_dir))
    before = surveys.find_survey(source, str(data_dir), tokenization, ordered_map=map)
    if change == "text":
        (raw / "more.jsonl").write_text((raw / "more.jsonl").read_text().replace("the", "one", 1))
    elif change == "column":
        settings = {"text_column": "label", "unlabeled_file": "", "label_column": "text"}
    else:
        settings = {"do_lower_case": False}
    source, tokenization = prepare(create_config(raw, data_dir, **settings))
    after = surveys.find_survey(source, str(data_dir), tokenization, ordered_map=map)
    assert before.folder != after.folder
    assert (before.texts.sha256 == after.texts.sha256) == (change == "lower_case")


def test_a_survey_of_a_part_is_not_taken_for_the_whole(tmp_path):
    small_data.write_imdb(tmp_path)
    small_data.write_vocab(tmp_path / "vocab.txt")
    paths = {"raw_data_dir": str(tmp_path), "vocab_file": f"{tmp_path}/vocab.txt", "data_dir": str(tmp_path / "out")}
    run(PreprocessConfig(**paths, aug_ops="tf_idf-0.7", data_type="unsup", workers=1, allow_partial=True))
    with pytest.raises(ValueError, match="The unlabeled files of imdb hold 30 examples, but the official ones 75000"):
        run(PreprocessConfig(**paths, aug_ops="tf_idf-0.7", data_type="unsup", workers=1))


def prepare(config):
    os.makedirs(config.data_dir, exist_ok=True)
    tf.io.gfile.copy(config.vocab_file, f"{config.data_dir}/vocab.txt", overwrite=True)
    tokenizer = Tokenizer(config.vocab_file, config.do_lower_case)
    return datasets.open_source(config), preprocess.record_format.tokenization_of(config, tokenizer)


# ---- stopped, deleted, refused --------------------------------------------------------------------------------------


def test_a_stopped_survey_is_taken_up(raw, tmp_path, monkeypatch):
    """What was written before the stop is not made again, and the end is the same."""
    data_dir, save_words, split = tmp_path / "out", encoding.save_words, Tokenizer.split

    def stop_at_the_third(path, words):
        if "words-00002" in path:
            raise KeyboardInterrupt
        save_words(path, words)

    monkeypatch.setattr(encoding, "save_words", stop_at_the_third)
    with pytest.raises(KeyboardInterrupt):
        run(create_config(raw, data_dir))
    assert list(kept_files(data_dir)) == ["words-00000.npz", "words-00001.npz"]
    monkeypatch.setattr(encoding, "save_words", save_words)
    before = {path: path.stat().st_mtime_ns for path in data_dir.rglob("words-*")}
    num_split = []
    monkeypatch.setattr(Tokenizer, "split", lambda self, texts: num_split.append(len(texts)) or split(self, texts))
    run(create_config(raw, data_dir, data_type="unsup"))
    assert num_split == [8]
    assert {path: path.stat().st_mtime_ns for path in before} == before
    run(create_config(raw, tmp_path / "new", data_type="unsup"))
    assert kept_files(data_dir) == kept_files(tmp_path / "new")
    assert records_of(data_dir) == records_of(tmp_path / "new")


@pytest.mark.parametrize("pattern", ["words-00001.npz", "statistics.npz", "*.npz", "*"])
def test_what_is_deleted_is_made_again_when_it_is_needed(raw, tmp_path, pattern):
    data_dir, reads = tmp_path / "out", []
    run(create_config(raw, data_dir))
    everything = kept_files(data_dir)
    (folder,) = (data_dir / "data_stats").iterdir()
    for path in folder.glob(pattern):
        path.unlink()
    if pattern != "*":
        run(create_config(raw, data_dir), reads)
        assert reads == []  # all sets are there
    run(create_config(raw, data_dir, aug_copy=2), reads)
    assert reads == ["unlabeled"] and kept_files(data_dir) == everything
    run(create_config(raw, tmp_path / "new", aug_copy=2))
    assert records_of(data_dir) == records_of(tmp_path / "new")


def test_a_folder_that_cannot_be_written_is_named(raw, tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out/data_stats").write_text("")
    with pytest.raises(ValueError, match=r"data_stats/\w+ cannot be written \(.*\): make room there or choose another"):
        run(create_config(raw, tmp_path / "out"))
