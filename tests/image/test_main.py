"""image/main.py: the command line in front of training and prediction."""

import csv
import dataclasses
import os
import subprocess
import sys

import numpy as np
import pytest
from absl import app, flags
from PIL import Image

from image import export, main
from image.config import Config
from tests.image.small_data import colored_images, export_random_model
from tests.programs import parsed_flags, run_main

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


@pytest.fixture(scope="module")
def model_dir(tmp_path_factory):
    """A run of which only the exported model is there."""
    folder = tmp_path_factory.mktemp("run")
    export_random_model(folder / "export")
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
    command = [sys.executable, "-m", "image.main", "--help"]
    process = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    text = " ".join(process.stdout.split())
    assert text.startswith("Trains, evaluates and applies image classifiers.")
    meanings = {field.name: field.metadata["help"] for field in dataclasses.fields(Config)}
    with parsed_flags(main, "--model_dir=run"):
        for name in (
            "do_train",
            "do_eval",
            "do_predict",
            "model_dir",
            "strategy",
            "tpu",
            "predict_input",
            "predict_output",
        ):
            meanings[name] = flags.FLAGS[name].help
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


def test_an_unknown_strategy_is_refused():
    with pytest.raises(flags.IllegalFlagValueError, match="--strategy=fast: value should be one of <auto|one_device|"):
        run_main(main, "--do_train", "--model_dir=run", "--strategy=fast")


def test_settings_that_are_not_allowed_end_with_a_line_of_error(tmp_path):
    run = ["--do_train", f"--model_dir={tmp_path / 'run'}"]
    assert_ends_with_error(r"train_steps=0: expected at least 1\.", *run, "--train_steps=0")
    assert_ends_with_error(r"data_dir=.* holds no records: there is no", *run, f"--data_dir={tmp_path}")
    assert_ends_with_error(r"strategy=tpu, tpu='': no TPU was found", *run, "--strategy=tpu")
    assert not (tmp_path / "run").exists()


# ---- prediction -----------------------------------------------------------------------------------------------------


def read_rows(path):
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def assert_rows_agree(rows, names, images, exported):
    probabilities = exported.predict_proba(images)
    assert [row["input"] for row in rows] == names
    for row, expected in zip(rows, probabilities, strict=True):
        found = [float(row[name]) for name in exported.facts.class_names]
        np.testing.assert_allclose(found, expected, atol=1e-6)
        assert row["label"] == exported.facts.class_names[np.argmax(expected)]
        assert float(row["probability"]) == max(found)


@pytest.mark.slow
def test_a_folder_of_images_is_classified(model_dir, exported, tmp_path, capsys):
    images = colored_images(5)
    for number, image in enumerate(images):
        Image.fromarray(image).save(tmp_path / f"{number}.png")
    output = tmp_path / "table.csv"
    arguments = [f"--model_dir={model_dir}", f"--predict_input={tmp_path}", f"--predict_output={output}"]
    run_main(main, "--do_predict", *arguments)
    assert capsys.readouterr().out == f"predictions for 5 images are in {output}\n"
    assert_rows_agree(read_rows(output), [str(tmp_path / f"{number}.png") for number in range(5)], images, exported)


def test_an_array_is_classified_into_the_model_dir(model_dir, exported, tmp_path):
    images = colored_images(300)  # more than one batch
    np.save(tmp_path / "images.npy", images)
    run_main(main, "--do_predict", f"--model_dir={model_dir}", f"--predict_input={tmp_path / 'images.npy'}")
    rows = read_rows(model_dir / "predictions.csv")
    assert len({row["label"] for row in rows}) > 1
    assert_rows_agree(rows, [str(number) for number in range(300)], images, exported)


def test_images_are_not_all_held_in_memory_and_their_names_may_be_any_bytes(model_dir, exported, tmp_path, monkeypatch):
    monkeypatch.setattr(export, "load", lambda export_dir: exported)  # once is enough
    monkeypatch.setattr(export, "read_images", None)
    monkeypatch.setattr(export, "BLOCK", 2)
    images, names = colored_images(5), [b"0.png", b"1.png", b"2.png", b"3.png", b"caf\xe9.png"]
    for name, image in zip(names, images):
        Image.fromarray(image).save(tmp_path / os.fsdecode(name))
    run_main(main, "--do_predict", f"--model_dir={model_dir}", f"--predict_input={tmp_path}")
    with open(model_dir / "predictions.csv", newline="", errors="surrogateescape") as file:
        rows = list(csv.DictReader(file))
    assert_rows_agree(rows, [str(tmp_path / os.fsdecode(name)) for name in names], images, exported)


def test_inputs_that_cannot_be_classified_end_with_a_line_of_error(model_dir, exported, tmp_path, monkeypatch):
    monkeypatch.setattr(export, "load", lambda export_dir: exported)  # once is enough
    predict = ["--do_predict", f"--model_dir={model_dir}"]
    assert_ends_with_error(
        r"--do_predict needs --predict_input: a folder of images, an image file or a \.npy", *predict
    )
    assert_ends_with_error("found no image files", *predict, f"--predict_input={tmp_path}")
    for name, images, message in (
        ("float.npy", np.zeros([2, 32, 32, 3]), "dtype=float64: expected a uint8 array"),
        ("small.npy", np.zeros([2, 16, 16, 3], np.uint8), "images are 16 pixels wide: the training images are 32"),
    ):
        np.save(tmp_path / name, images)
        assert_ends_with_error(message, *predict, f"--predict_input={tmp_path / name}")
    (tmp_path / "image.png").write_bytes(b"not an image")
    assert_ends_with_error(r"image\.png cannot be read as an image", *predict, f"--predict_input={tmp_path}")


def test_prediction_needs_a_trained_model(tmp_path):
    arguments = ["--do_predict", f"--model_dir={tmp_path}", "--predict_input=images.npy"]
    assert_ends_with_error("export holds no exported model: train first, with --do_train", *arguments)
