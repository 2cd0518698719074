"""text/preprocess.py from raw files to records: the flags alone determine them, whatever the workers and kills."""

import json
import operator
import os
import signal
import string
import subprocess
import sys
import time

import numpy as np
import pytest
import tensorflow as tf

from augmentation import word_level
from tests.programs import run_main
from text import datasets, encoding, preprocess, record_format, survey
from text.config import PreprocessConfig
from text.datasets import lists
from text.datasets.labelled import draw_labelled
from text.datasets.source import Texts
from text.tokenization import Tokenizer, assemble
from utils import preprocessing, work

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
WORDS = [f"{first}{second}a" for first in "bdfgklmnprst" for second in "aeiou"]
NUM_TRAIN, NUM_TEST, NUM_UNLABELLED = 30, 12, 40


# ---- small data -----------------------------------------------------------------------------------------------------


def create_text(rng):
    """A text of 4 to 40 words, some rare, with capitals and punctuation."""
    frequencies = 1 / np.arange(1, len(WORDS) + 1)
    words = rng.choice(WORDS, rng.integers(4, 41), p=frequencies / frequencies.sum())
    return " ".join(words).capitalize() + rng.choice([".", "!", ", wow…", " é"])


def write_vocab(path):
    """Every second word is in the vocabulary; the others are spelt."""
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *string.punctuation, *string.ascii_lowercase]
    path.write_text("\n".join([*pieces, *(f"##{letter}" for letter in string.ascii_lowercase), *WORDS[::2]]) + "\n")


def write_raw(folder, has_title=False, num_unlabelled=NUM_UNLABELLED, seed=0):
    """Writes vocab.txt and train, test and unlabeled.jsonl; returns dict from split to list of dicts."""
    rng = np.random.default_rng(seed)
    folder.mkdir(exist_ok=True)
    write_vocab(folder / "vocab.txt")
    lines = {}
    for name, size in (("train", NUM_TRAIN), ("test", NUM_TEST), ("unlabeled", num_unlabelled)):
        lines[name] = []
        for number in range(size):
            line = {"text": create_text(rng), "label": ["no", "yes"][number % 2]}
            lines[name].append(line | ({"title": " ".join(rng.choice(WORDS, number % 4))} if has_title else {}))
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines[name]))
    return lines


@pytest.fixture(scope="module")
def raw(tmp_path_factory):
    folder = tmp_path_factory.mktemp("raw")
    return folder, write_raw(folder)


@pytest.fixture(scope="module")
def raw_pairs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("raw_pairs")
    return folder, write_raw(folder, has_title=True)


@pytest.fixture
def small_shards(monkeypatch):
    """Shards of 16 records, so that 40 texts need three of them."""
    monkeypatch.setattr(preprocessing, "SHARD_SIZE", 16)


def create_arguments(raw_dir, output_dir, **settings):
    files = {f"{name}_file": f"{raw_dir}/{name}.jsonl" for name in ("train", "test", "unlabeled")}
    defaults = {"task_name": "csv", "output_dir": output_dir, "vocab_file": f"{raw_dir}/vocab.txt", **files}
    defaults |= {"sup_size": 10, "aug_ops": "tf_idf-0.7", "max_seq_length": 32, "workers": 1}
    return [f"--{name}={value}" for name, value in (defaults | settings).items()]


def run(raw_dir, output_dir, **settings):
    """Does what `python -m text.preprocess` does, without a new process."""
    run_main(preprocess, *create_arguments(raw_dir, output_dir, **settings))


def create_config(raw_dir, data_dir, **settings):
    """The configuration of `run`, of which the paths are strings."""
    files = {f"{name}_file": f"{raw_dir}/{name}.jsonl" for name in ("train", "test", "unlabeled")}
    defaults = {"task_name": "csv", "data_dir": str(data_dir), "vocab_file": f"{raw_dir}/vocab.txt", **files}
    return PreprocessConfig(
        **defaults | {"sup_size": 10, "aug_ops": "tf_idf-0.7", "max_seq_length": 32, "workers": 1} | settings
    )


def read_info(set_dir):
    return json.loads((set_dir / "info.json").read_text())


def read_records(set_dir, keys=("original", "index"), length=32):
    """All records of one set in their order: texts as lists of pieces without padding, numbers as lists."""
    paths = [str(set_dir / shard["name"]) for shard in read_info(set_dir)["shards"]]
    parsed = record_format.parse(list(tf.data.TFRecordDataset(paths)), list(keys))
    values = {}
    for key, value in parsed.items():
        if key in record_format.VIEWS:
            padded, lengths = record_format.pad(value, length), record_format.num_pieces(value).numpy()
            values[key] = [ids[:size].tolist() for ids, size in zip(padded["ids"].numpy(), lengths)]
            values[f"{key}_types"] = [ids[:size].tolist() for ids, size in zip(padded["type_ids"].numpy(), lengths)]
        else:
            values[key] = value.numpy().tolist()
    return values


def files_below(folder, ending=""):
    """dict from relative path to content."""
    paths = sorted(path for path in folder.rglob(f"*{ending}") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}


def record_files(folder):
    return {name: content for name, content in files_below(folder).items() if not name.startswith("data_stats")}


def encode_plainly(raw_dir, lines, max_seq_length=32, keep_tail=True, lower_case=True, prefix=""):
    """The pieces of each line, one text at a time."""
    tokenizer = Tokenizer(str(raw_dir / "vocab.txt"), lower_case, prefix)

    def pieces(text):
        return tokenizer.piece_ids(tokenizer.split([text]))[0]

    examples = [(pieces(line["text"]), pieces(line["title"]) if "title" in line else None) for line in lines]
    return [assemble(a, b, max_seq_length, keep_tail, tokenizer)[0].tolist() for a, b in examples]


# ---- what the records hold ------------------------------------------------------------------------------------------


def test_the_folders_of_a_run(raw, tmp_path, capsys):
    run(raw[0], tmp_path, dev_size=4, aug_copy=2, aug_ops="tf_idf-0.7+unif-0.1")
    sets = sorted(str(path.parent.relative_to(tmp_path)) for path in tmp_path.rglob("info.json"))
    assert sets == [
        "sup-size_10-dev_4/dev",
        "sup-size_10-dev_4/train",
        "test",
        "unsup/tf_idf-0.7/copy-000",
        "unsup/tf_idf-0.7/copy-001",
        "unsup/unif-0.1/copy-000",
        "unsup/unif-0.1/copy-001",
    ]
    assert set(record_files(tmp_path)) == {"dataset.json", "vocab.txt"} | {
        f"{name}/{end}" for name in sets for end in ("records-00000-of-00001.tfrecord", "info.json")
    }
    assert (tmp_path / "vocab.txt").read_bytes() == (raw[0] / "vocab.txt").read_bytes()
    output = capsys.readouterr().out
    assert f"records of csv are in {tmp_path}: 14 train, 12 test, 160 unlabeled" in output
    assert "tf_idf-0.7: " in output and "% of the words were changed" in output


@pytest.mark.parametrize("settings", [{}, {"max_seq_length": 8, "trunc_keep_right": False}, {"max_seq_length": 512}])
def test_labelled_and_test_records_hold_the_raw_texts_and_labels(raw, tmp_path, settings):
    run(raw[0], tmp_path, data_type="sup", **settings)
    length, keep_tail = settings.get("max_seq_length", 32), settings.get("trunc_keep_right", True)
    for name, set_dir, indices in (("train", "sup-size_10/train", range(10)), ("test", "test", range(NUM_TEST))):
        parsed = read_records(tmp_path / set_dir, ["original", "label", "index"], length)
        lines = [raw[1][name][index] for index in indices]
        assert parsed["original"] == encode_plainly(raw[0], lines, length, keep_tail)
        assert parsed["label"] == [["no", "yes"].index(line["label"]) for line in lines]
        assert parsed["index"] == list(indices)
    assert not (tmp_path / "unsup").exists() and not (tmp_path / "data_stats").exists()


def test_text_and_title_are_two_segments(raw_pairs, tmp_path):
    run(raw_pairs[0], tmp_path, title_column="title", aug_ops="unif-0.1")
    tokenizer = Tokenizer(str(raw_pairs[0] / "vocab.txt"))
    for name, set_dir in (("test", "test"), ("unlabeled", "unsup/unif-0.1/copy-000")):
        parsed = read_records(tmp_path / set_dir)
        assert parsed["original"] == encode_plainly(raw_pairs[0], raw_pairs[1][name])
        for ids, types, line in zip(parsed["original"], parsed["original_types"], raw_pairs[1][name]):
            num_seconds = sum(types)
            assert types == [0] * (len(ids) - num_seconds) + [1] * num_seconds
            assert ids.count(tokenizer.sep_id) == (2 if line["title"] else 1)
            assert bool(num_seconds) == bool(line["title"])


@pytest.mark.parametrize("keep_tail", [True, False])
@pytest.mark.parametrize("aug_op", ["tf_idf-0.7", "unif-0.7"])
def test_a_prefix_begins_originals_and_augmented_texts_and_is_never_cut_or_replaced(raw, tmp_path, aug_op, keep_tail):
    settings = {"aug_ops": aug_op, "max_seq_length": 12, "trunc_keep_right": keep_tail}
    for prefix in ("Bi: ", ""):
        run(raw[0], tmp_path / f"out{prefix}", text_prefix=prefix, **settings)
    tokenizer = Tokenizer(str(raw[0] / "vocab.txt"), prefix="Bi: ")
    begin = [tokenizer.cls_id, *tokenizer.prefix_ids]
    assert len(begin) == 4
    for name, set_dir in (("test", "test"), ("unlabeled", f"unsup/{aug_op}/copy-000")):
        parsed = read_records(tmp_path / "outBi: " / set_dir)
        assert parsed["original"] == encode_plainly(raw[0], raw[1][name], 12, keep_tail, prefix="Bi: ")
    with_prefix, without = (
        read_records(tmp_path / f"out{prefix}/unsup/{aug_op}/copy-000", ["augmented"])["augmented"]
        for prefix in ("Bi: ", "")
    )
    assert max(map(len, with_prefix)) == 12 and all(ids[:4] == begin for ids in with_prefix)
    for one, other in zip(with_prefix, without):  # the same words are replaced; three pieces fewer are left of them
        room = 12 - len(begin) - 1
        assert one[4:-1] == (other[1:-1][-room:] if keep_tail else other[1:-1][:room])


def test_the_prefix_is_the_named_encoders_unless_another_is_given(raw, tmp_path, monkeypatch):
    monkeypatch.setenv("UDA_CACHE", str(tmp_path))
    (tmp_path / "encoders").mkdir()
    (tmp_path / "encoders/e5-small").symlink_to(raw[0])
    cases = {"e5-small": "query: ", "bert-base": None, str(raw[0]): None}
    for number, (init_checkpoint, prefix) in enumerate(cases.items()):
        vocab = {} if prefix else {"vocab_file": raw[0] / "vocab.txt"}
        settings = {"vocab_file": "", "data_type": "sup", "init_checkpoint": init_checkpoint} | vocab
        run(raw[0], tmp_path / f"auto_{number}", **settings)
        run(raw[0], tmp_path / f"given_{number}", text_prefix="passage: ", **settings)
        assert record_format.read_dataset(str(tmp_path / f"auto_{number}"))[1].prefix == (prefix or "")
        assert record_format.read_dataset(str(tmp_path / f"given_{number}"))[1].prefix == "passage: "
        assert read_info(tmp_path / f"auto_{number}/test")["settings"].get("prefix") == prefix


def test_a_prefix_must_leave_room_for_a_piece(raw, tmp_path):
    message = (
        r"max_seq_length=6: expected at least 7, for \[CLS\], the 3 pieces of text_prefix='bi:', a piece of a text"
    )
    with pytest.raises(SystemExit, match=message):
        run(raw[0], tmp_path, text_prefix="bi:", max_seq_length=6)
    run(raw[0], tmp_path, text_prefix="bi:", max_seq_length=7, data_type="sup")
    assert {len(ids) for ids in read_records(tmp_path / "test")["original"]} == {7}


def test_the_case_of_a_named_encoder_is_not_contradicted(raw, tmp_path):
    with pytest.raises(
        SystemExit, match="do_lower_case=False, but the vocabulary of init_checkpoint=minilm is uncased"
    ):
        run(raw[0], tmp_path, init_checkpoint="minilm", do_lower_case=False)
    assert not list(tmp_path.iterdir())


def test_every_copy_holds_every_unlabelled_text_once_and_no_label(raw, tmp_path, small_shards):
    run(raw[0], tmp_path, data_type="unsup", aug_copy=2, aug_ops="tf_idf-0.7+unif-0.1")
    originals = encode_plainly(raw[0], raw[1]["unlabeled"])
    for aug_op in ("tf_idf-0.7", "unif-0.1"):
        for copy in range(2):
            parsed = read_records(tmp_path / f"unsup/{aug_op}/copy-{copy:03d}")
            assert parsed["index"] == list(range(NUM_UNLABELLED)) and parsed["original"] == originals
    content = b"".join(files_below(tmp_path / "unsup", ".tfrecord").values())
    assert b"augmented" in content and b"label" not in content
    assert not (tmp_path / "test").exists()


@pytest.mark.parametrize("has_title", [False, True])
@pytest.mark.parametrize("aug_op", ["tf_idf-0.7", "unif-0.3"])
def test_augmented_texts_are_those_of_the_word_level_functions(tmp_path, small_shards, aug_op, has_title):
    """Each shard is augmented with a generator of its own; a pair is one text for TF-IDF and two for unif."""
    lines = write_raw(tmp_path / "raw", has_title)["unlabeled"]
    titles = {"title_column": "title"} if has_title else {}
    run(tmp_path / "raw", tmp_path / "out", data_type="unsup", aug_ops=aug_op, aug_copy=2, seed=7, **titles)
    tokenizer = Tokenizer(str(tmp_path / "raw" / "vocab.txt"))
    texts = tokenizer.split([line["text"] for line in lines])
    seconds = tokenizer.split([line["title"] for line in lines]) if has_title else [[] for _ in lines]
    builder = word_level.StatisticsBuilder()
    builder.add([a + b for a, b in zip(texts, seconds)])
    statistics = builder.finish()
    expected = []
    for shard in range(3):
        rows = range(16 * shard, min(16 * (shard + 1), NUM_UNLABELLED))
        rng = np.random.default_rng((*preprocess_key(aug_op, 7, 1), shard))
        if aug_op.startswith("tf_idf"):
            encoded = statistics.encode([texts[row] + seconds[row] for row in rows])
            new_words = statistics.decode(word_level.replace_by_tf_idf(*encoded, statistics, 0.7, rng), encoded[1])
            pairs = [(new[: len(texts[row])], new[len(texts[row]) :]) for row, new in zip(rows, new_words)]
        else:
            parts = [part for row in rows for part in ((texts[row], seconds[row]) if has_title else (texts[row],))]
            encoded = statistics.encode(parts)
            replaced = word_level.replace_uniformly(*encoded, len(statistics.words), 0.3, rng)
            new_words = statistics.decode(replaced, encoded[1])
            pairs = list(zip(new_words[::2], new_words[1::2])) if has_title else [(new, []) for new in new_words]
        for a, b in pairs:
            expected.append(assemble(*tokenizer.piece_ids([a, b]), 32, True, tokenizer)[0].tolist())
    parsed = read_records(tmp_path / f"out/unsup/{aug_op}/copy-001", ["original", "augmented"])
    assert parsed["augmented"] == expected
    assert sum(a != b for a, b in zip(parsed["original"], parsed["augmented"])) > 30


def preprocess_key(aug_op, seed, copy):
    config = PreprocessConfig(aug_ops=aug_op, aug_copy=copy + 1, seed=seed)
    plans = preprocess.plan_unlabeled(config, Texts("unlabeled", None, 2, ""), has_title=False)
    (plan,) = [plan for plan in plans if plan.settings["copy"] == copy]
    return plan.content.random_key


def test_no_two_draws_share_a_stream_of_random_numbers():
    keys = [
        preprocess_key(aug_op, seed, copy)
        for aug_op in ("tf_idf-0.7", "unif-0.7")
        for seed in (0, 1)
        for copy in (0, 1)
    ]
    assert len({np.random.default_rng((*key, shard)).integers(2**60) for key in keys for shard in range(3)}) == 24


def test_another_seed_and_another_copy_give_other_texts(raw, tmp_path):
    augmented = []
    for seed in (0, 1):
        run(raw[0], tmp_path / str(seed), aug_copy=2, seed=seed)
        for copy in range(2):
            set_dir = tmp_path / str(seed) / f"unsup/tf_idf-0.7/copy-{copy:03d}"
            augmented.append(str(read_records(set_dir, ["augmented"])))
    assert len(set(augmented)) == 4
    assert record_files(tmp_path / "0/sup-size_10") == record_files(tmp_path / "1/sup-size_10")


def test_the_settings_in_info(raw, tmp_path):
    run(raw[0], tmp_path, dev_size=2, seed=4)
    vocab_sha256 = Tokenizer(str(raw[0] / "vocab.txt")).sha256
    common = {"task_name": "csv", "vocab_sha256": vocab_sha256, "vocab_size": 119, "lower_case": True}
    common |= {"max_seq_length": 32, "keep_tail": True}
    train = read_info(tmp_path / "sup-size_10-dev_2/train")["settings"]
    assert len(train.pop("texts_sha256")) == 64
    draw = {"sup_size": 10, "label_seed": -1, "dev_size": 2, "indices": list(range(10))}
    assert train == common | {"num_planned": 10} | draw
    copy = read_info(tmp_path / "unsup/tf_idf-0.7/copy-000")["settings"]
    assert len(copy.pop("texts_sha256")) == 64
    assert copy == common | {"num_planned": 40, "aug_op": "tf_idf-0.7", "copy": 0, "seed": 4}


def test_the_draw_is_as_asked(raw, tmp_path):
    run(raw[0], tmp_path, data_type="sup", label_seed=3, dev_size=6)
    source = datasets.open_source(create_config(raw[0], tmp_path))
    chosen, dev = draw_labelled(source, 10, 6, label_seed=3)
    for part, indices in (("train", chosen), ("dev", dev)):
        parsed = read_records(tmp_path / "sup-size_10-seed_3-dev_6" / part, ["original", "label", "index"])
        assert parsed["index"] == indices.tolist()
        assert parsed["original"] == encode_plainly(raw[0], [raw[1]["train"][index] for index in indices])
        assert sorted(parsed["label"]) == [0] * (len(indices) // 2) + [1] * (len(indices) // 2)


def test_ids_from_a_file_choose_the_labelled_examples(raw, tmp_path):
    source = datasets.open_source(create_config(raw[0], tmp_path))
    keys = [example.key for example in source.read("train")]
    (tmp_path / "ids.txt").write_text("\n".join(keys[index] for index in (21, 4, 8, 5)))
    run(raw[0], tmp_path / "out", data_type="sup", sup_size=4, sup_ids_file=tmp_path / "ids.txt")
    draw = {"sup_size": 4, "sup_ids_file": str(tmp_path / "ids.txt")}
    sup_dir = record_format.sup_dir(create_config(raw[0], tmp_path / "out", **draw))
    parsed = read_records(tmp_path / "out" / os.path.basename(sup_dir) / "train")
    assert parsed["index"] == [4, 5, 8, 21]


def test_texts_may_come_from_memory(raw, tmp_path):
    """The same texts as in the files give the same records."""
    lines = raw[1]
    columns = {name: [line["text"] for line in lines[name]] for name in lines}
    labels = {name: [["no", "yes"].index(line["label"]) for line in lines[name]] for name in lines}
    source = lists.create_source(
        "csv",
        ("no", "yes"),
        (columns["train"], labels["train"]),
        columns["unlabeled"],
        (columns["test"], labels["test"]),
    )
    preprocess.write_records(create_config(raw[0], tmp_path / "lists"), source)
    run(raw[0], tmp_path / "files")
    assert files_below(tmp_path / "lists", ".tfrecord") == files_below(tmp_path / "files", ".tfrecord")


def test_without_test_texts_there_is_no_test_set(raw, tmp_path):
    run(raw[0], tmp_path, data_type="sup", test_file="")
    assert not (tmp_path / "test").exists() and (tmp_path / "sup-size_10/train").exists()


# ---- back-translation -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("has_title", [False, True])
def test_paraphrases_of_fitting_length_are_taken_text_by_text(tmp_path, small_shards, capsys, has_title):
    lines = write_raw(tmp_path / "raw", has_title)["unlabeled"]
    texts = [text for line in lines for text in ([line["text"], line["title"]] if has_title else [line["text"]])]
    paraphrases = ["" if number % 3 == 0 else text[::-1] for number, text in enumerate(texts)]
    folder = tmp_path / "bt/unsup_in/sample_0.9/para"
    folder.mkdir(parents=True)
    (folder / "para_0.txt").write_text("".join(f"{line}\n" for line in paraphrases))
    titles = {"title_column": "title"} if has_title else {}
    run(tmp_path / "raw", tmp_path / "out", aug_ops="bt-0.9", back_translation_dir=tmp_path / "bt", **titles)
    parsed = read_records(tmp_path / "out/unsup/bt-0.9/copy-000", ["original", "augmented"])
    taken = [bool(new) and len(old) >= 10 for old, new in zip(texts, paraphrases)]
    chosen = [new if take else old for old, new, take in zip(texts, paraphrases, taken)]
    step = 1 + has_title
    names = ("text", "title")[:step]
    expected = [dict(zip(names, chosen[start : start + step])) for start in range(0, len(chosen), step)]
    assert parsed["original"] == encode_plainly(tmp_path / "raw", lines)
    assert parsed["augmented"] == encode_plainly(tmp_path / "raw", expected)
    assert f"bt-0.9: {np.mean(taken):.1%} of the texts got a paraphrase" in capsys.readouterr().out


@pytest.mark.parametrize("has_title", [False, True])
def test_texts_are_exported_in_the_order_in_which_their_paraphrases_are_read(tmp_path, capsys, has_title):
    lines = write_raw(tmp_path / "raw", has_title)["unlabeled"]
    lines[1]["text"] = "Line breaks\r\nand\x85other\u2028ends\n\nof lines"
    (tmp_path / "raw/unlabeled.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    titles = {"title_column": "title"} if has_title else {}
    texts = tmp_path / "bt/unsup_in/sample_0.8/para/para_0.txt"
    texts.parent.mkdir(parents=True)
    run(tmp_path / "raw", tmp_path / "out", export_texts=texts, vocab_file="", **titles)
    assert not (tmp_path / "out").exists()
    assert capsys.readouterr().out == f"40 texts of csv are in {texts}, {1 + has_title} lines each\n"
    exported = texts.read_text(encoding="utf-8").split("\n")
    names = ("text", "title")[: 1 + has_title]
    expected = [line[name].strip() for line in lines for name in names]
    expected[1 + has_title] = "Line breaks and\x85other\u2028ends of lines"
    assert exported == [*expected, ""]
    run(tmp_path / "raw", tmp_path / "out", aug_ops="bt-0.8", back_translation_dir=tmp_path / "bt", **titles)
    parsed = read_records(tmp_path / "out/unsup/bt-0.8/copy-000", ["original", "augmented"])
    assert parsed["augmented"] == parsed["original"]
    with pytest.raises(SystemExit, match="export_texts=.*cannot be written"):
        run(tmp_path / "raw", tmp_path / "out", export_texts=tmp_path / "no/texts.txt")


def test_other_paraphrases_are_not_mixed_with_those_written(raw, tmp_path):
    folder = tmp_path / "bt/unsup_in/sample_0.9/para"
    folder.mkdir(parents=True)
    settings = {"data_type": "unsup", "aug_ops": "bt-0.9", "back_translation_dir": tmp_path / "bt"}
    (folder / "para_0.txt").write_text("ba\n" * NUM_UNLABELLED)
    run(raw[0], tmp_path / "out", **settings)
    (folder / "para_0.txt").write_text("da\n" * NUM_UNLABELLED)
    assert_ends_with_error(r"other settings \(paraphrases_sha256: found", raw[0], tmp_path / "out", **settings)
    (folder / "para_0.txt").write_text("da\n" * 7)
    assert_ends_with_error("it has 7 lines, expected 40", raw[0], tmp_path / "new", **settings)
    assert not (tmp_path / "new/unsup").exists()


# ---- determinism ----------------------------------------------------------------------------------------------------

SETTINGS = {"aug_copy": 5, "dev_size": 4, "seed": 1, "aug_ops": "tf_idf-0.7+unif-0.1"}


@pytest.fixture(scope="module")
def undisturbed(raw, tmp_path_factory):
    """Files of a run by one worker with shards of 16 records."""
    data_dir = tmp_path_factory.mktemp("undisturbed")
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(preprocessing, "SHARD_SIZE", 16)
        run(raw[0], data_dir, **SETTINGS)
    files = record_files(data_dir)
    assert sum(name.endswith("-of-00003.tfrecord") for name in files) == 30
    return files


@pytest.mark.slow
def test_two_processes_write_the_same_files(raw, tmp_path, small_shards, undisturbed):
    run(raw[0], tmp_path, **SETTINGS, workers=2)
    assert record_files(tmp_path) == undisturbed


@pytest.mark.parametrize("shared_statistics", [True, False])
def test_three_replicas_write_the_same_files(raw, tmp_path, small_shards, undisturbed, shared_statistics, capsys):
    for worker_id in (2, 0, 1):
        assert record_files(tmp_path) != undisturbed
        run(raw[0], tmp_path, **SETTINGS, replicas=3, worker_id=worker_id)
        waiting = "sets wait for shards of other workers (replicas=3)" in capsys.readouterr().out
        assert waiting == (worker_id != 1)
        if not shared_statistics:
            tf.io.gfile.rmtree(str(tmp_path / "data_stats"))
    assert record_files(tmp_path) == undisturbed


def test_each_replica_writes_about_its_share(raw, tmp_path, small_shards, undisturbed):
    num_shards = sum(name.endswith(".tfrecord") for name in undisturbed)
    run(raw[0], tmp_path, **SETTINGS, replicas=3, worker_id=1)
    assert num_shards // 5 < len(files_below(tmp_path, ".tfrecord")) < num_shards // 2


def test_copies_added_later_leave_the_old_ones_alone_and_count_no_words_again(
    raw, tmp_path, small_shards, undisturbed, monkeypatch
):
    run(raw[0], tmp_path, **SETTINGS | {"aug_copy": 1})
    written = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*") if path.is_file()}
    monkeypatch.setattr(survey, "count_words", None)
    monkeypatch.setattr(Tokenizer, "split", None)
    run(raw[0], tmp_path, **SETTINGS)
    assert {path: path.stat().st_mtime_ns for path in written} == written
    assert record_files(tmp_path) == undisturbed


def test_kept_words_may_be_deleted(raw, tmp_path, small_shards, undisturbed):
    run(raw[0], tmp_path, **SETTINGS | {"aug_copy": 1})
    words = list(tmp_path.rglob("words-*.npz"))
    assert len(words) == 3
    for path in words:
        path.unlink()
    run(raw[0], tmp_path, **SETTINGS)
    assert record_files(tmp_path) == undisturbed


def test_a_finished_run_is_not_written_again(raw, tmp_path, monkeypatch):
    run(raw[0], tmp_path)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    monkeypatch.setattr(encoding, "Block", None)
    monkeypatch.setattr(Tokenizer, "split", None)
    run(raw[0], tmp_path)
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before


def test_a_killed_run_is_completed_to_the_same_files(tmp_path):
    """A real process, killed by SIGKILL when some of its copies are written; then the same command again."""
    num_copies, raw_dir = 60, tmp_path / "raw"
    write_raw(raw_dir, num_unlabelled=400)
    run(raw_dir, tmp_path / "undisturbed", aug_copy=num_copies)
    kill_after = int(np.random.default_rng(0).integers(1, num_copies // 2))
    killed_dir = tmp_path / "killed"
    arguments = create_arguments(raw_dir, killed_dir, aug_copy=num_copies)
    command = [sys.executable, "-m", "text.preprocess", *arguments]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    deadline = time.monotonic() + 120
    shard = killed_dir / f"unsup/tf_idf-0.7/copy-{kill_after - 1:03d}/records-00000-of-00001.tfrecord"
    while not shard.exists() and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.001)
    process.send_signal(signal.SIGKILL)
    output = process.communicate()[0].decode()
    assert process.returncode == -signal.SIGKILL, output
    assert kill_after <= len(list(killed_dir.rglob("copy-*/*.tfrecord"))) < num_copies, f"killed after {kill_after}"
    run(raw_dir, killed_dir, aug_copy=num_copies)
    files = {name: content for name, content in record_files(killed_dir).items() if ".tmp-" not in name}
    assert files == record_files(tmp_path / "undisturbed"), f"killed after {kill_after}"


# ---- streaming ------------------------------------------------------------------------------------------------------


def test_no_more_than_a_few_shards_are_in_memory(raw, tmp_path, small_shards, monkeypatch):
    """Texts are read when the words of their shard are written, not before."""
    events = []
    config = create_config(raw[0], tmp_path, data_type="unsup", unlabeled_file="", aug_ops="unif-0.1")
    source = datasets.open_source(config)
    reader, save_words = source.readers["unlabeled"], encoding.save_words
    monkeypatch.setitem(source.readers, "unlabeled", lambda: (events.append("read") or line for line in reader()))
    monkeypatch.setattr(encoding, "save_words", lambda *arguments: events.append("written") or save_words(*arguments))
    preprocess.write_records(config, source)
    assert events == 16 * ["read"] + ["written"] + 14 * ["read"] + ["written"]


def read_numbers(limit, seen):
    for number in range(limit):
        seen.append(number)
        yield number


@pytest.mark.parametrize("workers", [1, 2])
def test_work_is_done_in_order_and_little_is_read_ahead(workers):
    seen = []
    with work.start_processes(workers) as ordered_map:
        for done, result in enumerate(ordered_map(operator.neg, read_numbers(12, seen))):
            assert result == -done
            assert len(seen) <= done + 1 + 2 * workers
    assert done == 11


def process_number(_):
    return os.getpid()


@pytest.mark.slow
def test_one_job_alone_is_not_worth_a_process():
    with work.start_processes(2) as ordered_map:
        assert list(ordered_map(process_number, [1])) == [os.getpid()] and list(ordered_map(process_number, [])) == []
        assert os.getpid() not in ordered_map(process_number, [1, 2, 3])


def test_a_process_that_is_ended_from_outside_is_reported():
    message = r"One of workers=2 processes was ended from outside.*Use fewer --workers"
    with pytest.raises(ValueError, match=message), work.start_processes(2) as ordered_map:
        list(ordered_map(os._exit, [1, 2, 3]))


# ---- errors ---------------------------------------------------------------------------------------------------------


def assert_ends_with_error(message, raw_dir, output_dir, **settings):
    """The command ends by SystemExit with one line, which Python prints to stderr before it exits with 1."""
    with pytest.raises(SystemExit, match=message) as raised:
        run(raw_dir, output_dir, **settings)
    assert raised.value.code.startswith("error: ") and "\n" not in raised.value.code


@pytest.mark.parametrize(
    "settings, message",
    [
        ({"sup_size": 31}, "error: sup_size=31 is out of range"),
        ({"sup_size": 11}, "sup_size=11 is not divisible by num_classes=2: use 10 or 12"),
        ({"dev_size": 21}, "dev_size=21 is out of range"),
        ({"aug_ops": "tf_idf-0.7+shuffle-1"}, "unknown augmentation 'shuffle-1'"),
        ({"aug_ops": "bt-0.9"}, "unsup_in/sample_0.9/para/para_0.txt is missing"),
        ({"vocab_file": ""}, "vocab_file='': give --vocab_file, or --init_checkpoint with a vocab.txt beside it"),
        ({"vocab_file": "missing.txt"}, r"missing\.txt"),
        ({"train_file": "missing.csv"}, "train_file='missing.csv' does not exist"),
        ({"replicas": 2, "worker_id": 2}, r"error: worker_id=2: expected less than replicas=2\."),
        ({"sup_ids_file": "missing.txt"}, "sup_ids_file"),
    ],
)
def test_what_cannot_be_made_is_refused_before_anything_is_written(raw, tmp_path, settings, message):
    assert_ends_with_error(message, raw[0], tmp_path / "new", **settings)
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("max_seq_length, expected", [(3, "at least 4"), (513, "at most 512")])
def test_a_length_that_bert_does_not_have_is_refused(raw, tmp_path, max_seq_length, expected):
    message = f"error: max_seq_length={max_seq_length}: expected {expected}"
    assert_ends_with_error(message, raw[0], tmp_path, max_seq_length=max_seq_length)


@pytest.mark.parametrize(
    "settings, message",
    [
        (
            {"max_seq_length": 64},
            r"tokenised otherwise \(max_seq_length: found 32, expected 64\)\. Choose another --data",
        ),
        ({"do_lower_case": False}, r"\(lower_case: found True, expected False\)"),
        ({"trunc_keep_right": False}, r"\(keep_tail: found True, expected False\)"),
        (
            {"seed": 1},
            r"copy-000 holds records of other settings \(seed: found 0, expected 1\)\. Delete that folder, or",
        ),
    ],
)
def test_an_output_dir_of_other_settings_is_refused(raw, tmp_path, settings, message):
    run(raw[0], tmp_path)
    assert_ends_with_error(message, raw[0], tmp_path, **settings)


def test_an_output_dir_of_another_vocabulary_or_other_texts_is_refused(raw, tmp_path):
    write_raw(tmp_path / "raw")
    run(tmp_path / "raw", tmp_path / "out")
    path = tmp_path / "raw/unlabeled.jsonl"
    path.write_text(path.read_text().replace("a", "e", 1))
    assert_ends_with_error(r"other settings \(texts_sha256: found '", tmp_path / "raw", tmp_path / "out")
    with open(tmp_path / "raw/vocab.txt", "a") as file:
        file.write("more\n")
    assert_ends_with_error(r"tokenised otherwise \(vocab_sha256: found", tmp_path / "raw", tmp_path / "out")


def test_the_vocabulary_may_lie_beside_the_checkpoint(raw, tmp_path):
    (tmp_path / "bert_model.ckpt.index").touch()
    write_vocab(tmp_path / "vocab.txt")
    run(raw[0], tmp_path / "out", data_type="sup", vocab_file="", init_checkpoint=tmp_path)
    assert (tmp_path / "out/vocab.txt").read_bytes() == (tmp_path / "vocab.txt").read_bytes()
