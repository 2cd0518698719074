"""text/main.py: the command line in front of training and prediction."""

import csv
import dataclasses
import os
import subprocess
import sys

import numpy as np
import pytest
from absl import app, flags

from tests.programs import parsed_flags, run_main
from tests.text import small_data
from tests.text.small_run import export_random_model, tiny_config, write_bert, write_user_records
from text import export, main
from text.config import Config

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    bert_dir = write_bert(folder / "bert")
    return tiny_config(write_user_records(folder, bert_dir), bert_dir, ema_decay=0.9)


@pytest.fixture(scope="module")
def model_dir(config, tmp_path_factory):
    """A run of which only the exported model is there."""
    folder = tmp_path_factory.mktemp("run")
    export_random_model(config, folder / "export")
    return folder


@pytest.fixture(scope="module")
def exported(model_dir):
    return export.load(str(model_dir / "export"))


def assert_ends_with_error(message, *arguments):
    """The command ends by SystemExit with a line, which Python prints to stderr before it exits with 1."""
    with pytest.raises(SystemExit, match=f"^error: .*{message}"):
        run_main(main, *arguments)


# ---- flags ----------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_help_tells_every_flag_with_its_meaning():
    command = [sys.executable, "-m", "text.main", "--help"]
    process = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    text = " ".join(process.stdout.split())
    assert text.startswith("Trains, evaluates and applies text classifiers.")
    meanings = {field.name: field.metadata["help"] for field in dataclasses.fields(Config)}
    own = ("do_train", "do_eval", "do_predict", "model_dir", "strategy", "tpu", "predict_input", "predict_output")
    with parsed_flags(main, "--model_dir=run"):
        meanings |= {name: flags.FLAGS[name].help for name in (*own, "text_column", "title_column")}
    booleans = {field.name for field in dataclasses.fields(Config) if field.type is bool}
    booleans |= {"do_train", "do_eval", "do_predict"}
    for name, meaning in meanings.items():
        flag = f"--[no]{name}:" if name in booleans else f"--{name}:"
        assert f"{flag} " in text, name
        description = text[text.index(f"{flag} ") :]
        assert " ".join(meaning.split()) in description[: len(meaning) + 100], name


def test_without_anything_to_do_the_usage_is_shown():
    with pytest.raises(app.UsageError, match="Nothing to do: give --do_train, --do_eval or --do_predict"):
        run_main(main, "--model_dir=run")


def test_the_model_dir_must_be_given():
    with pytest.raises(flags.IllegalFlagValueError, match="--model_dir must have a value other than None"):
        run_main(main, "--do_train")


def test_settings_that_are_not_allowed_end_with_a_line_of_error(config, tmp_path):
    run = ["--do_train", f"--model_dir={tmp_path / 'run'}"]
    bert = f"--init_checkpoint={config.init_checkpoint}"
    assert_ends_with_error("model_name=bert needs bert_config_file", *run)
    assert_ends_with_error(r"train_steps=0: expected at least 1\.", *run, bert, "--train_steps=0")
    assert_ends_with_error(r"data_dir=.* holds no records: there is no", *run, bert, f"--data_dir={tmp_path}")
    assert_ends_with_error(r"strategy=tpu, tpu='': no TPU was found", *run, bert, "--strategy=tpu")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"init_checkpoint": "missing"}, "init_checkpoint=missing is neither the name of an encoder .e5-small, "),
        ({"init_checkpoint": "missing/bert"}, "No bert_config.json or config.json lies in missing: say with"),
        ({"init_checkpoint": "", "bert_config_file": "missing.json"}, "No such file or directory: 'missing.json'"),
        ({"sup_size": 6}, "sup-size_6/train.* Run `python -m text.preprocess --task_name=csv --data_type=sup"),
        ({"aug_copy": 2}, "aug_copy=2, but .*unif-0.3 has 1 copies"),
        ({"aug_ops": "unif-0.5"}, "aug_copy=1, but .*unif-0.5 has 0 copies"),
        ({"sup_ids_file": "ids.txt"}, "sup_ids_file=ids.txt does not exist"),
    ],
    ids=lambda value: ", ".join(value) if isinstance(value, dict) else "",
)
def test_files_that_are_missing_end_with_a_line_of_error(config, changes, message, tmp_path):
    values = dataclasses.asdict(config) | changes
    arguments = [f"--{name}={value}" for name, value in values.items()]
    assert_ends_with_error(message, "--do_train", f"--model_dir={tmp_path}", *arguments)
    assert not (tmp_path / "checkpoints").exists()


# ---- prediction -----------------------------------------------------------------------------------------------------

TEXTS = ["The film was good.", "A very bad <br /> place, they said", "", "It is <a href=x>warm</a>\\n and not slow"]


def assert_rows_agree(path, texts, exported):
    with open(path, newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    probabilities = exported.predict_proba(texts)
    assert [row["input"] for row in rows] == texts
    for row, expected in zip(rows, probabilities, strict=True):
        found = [float(row[name]) for name in exported.facts.class_names]
        np.testing.assert_allclose(found, expected, atol=1e-5)
        assert row["label"] == exported.facts.class_names[np.argmax(expected)]
        assert float(row["probability"]) == max(found)


def test_the_lines_of_a_text_file_are_classified(model_dir, exported, tmp_path, capsys):
    (tmp_path / "texts.txt").write_text("".join(f"{text}\n" for text in TEXTS))
    output = tmp_path / "table.csv"
    arguments = [f"--model_dir={model_dir}", f"--predict_input={tmp_path / 'texts.txt'}", f"--predict_output={output}"]
    run_main(main, "--do_predict", *arguments)
    assert capsys.readouterr().out == f"predictions for 4 texts are in {output}\n"
    assert_rows_agree(output, TEXTS, exported)


def test_a_column_of_a_table_is_classified_into_the_model_dir(model_dir, exported, tmp_path, monkeypatch):
    monkeypatch.setattr(export, "load", lambda export_dir: exported)  # once is enough
    texts = [*TEXTS, 'two\nlines, "quoted"'] * 8  # more than one batch
    small_data.write_records(tmp_path / "texts.csv", [{"number": 1, "review": text} for text in texts])
    run_main(
        main,
        "--do_predict",
        f"--model_dir={model_dir}",
        f"--predict_input={tmp_path / 'texts.csv'}",
        "--text_column=review",
    )
    assert_rows_agree(model_dir / "predictions.csv", texts, exported)


def test_inputs_that_cannot_be_classified_end_with_a_line_of_error(model_dir, exported, tmp_path, monkeypatch):
    monkeypatch.setattr(export, "load", lambda export_dir: exported)  # once is enough
    predict = ["--do_predict", f"--model_dir={model_dir}"]
    assert_ends_with_error("--do_predict needs --predict_input: a .txt, .csv, .tsv or .jsonl file", *predict)
    assert_ends_with_error("missing.txt' does not exist: expected", *predict, "--predict_input=missing.txt")
    small_data.write_records(tmp_path / "texts.csv", [{"text": "a", "title": "b"}])
    table = f"--predict_input={tmp_path / 'texts.csv'}"
    assert_ends_with_error("has no text_column='review': its columns are", *predict, table, "--text_column=review")
    assert_ends_with_error("trained without titles: leave them out", *predict, table, "--title_column=title")


def test_prediction_needs_a_trained_model(tmp_path):
    arguments = ["--do_predict", f"--model_dir={tmp_path}", "--predict_input=texts.txt"]
    assert_ends_with_error("export holds no exported model: train first, with --do_train", *arguments)
