"""text/train.py from raw files to prediction: what a run leaves, and that a stopped run ends like a whole one."""

import collections
import dataclasses
import os
import shutil
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import tensorflow as tf

from tests.programs import run_main
from tests.runs import assert_equal_runs, checkpoint_steps, read_checkpoint, read_lines, without_timing
from tests.text import small_bert, small_data
from tests.text.small_run import MAX_LENGTH, run_preprocess, tiny_config, write_bert, write_user_records
from text import datasets, export, input_pipeline, main, models, record_format, train
from text.config import PreprocessConfig
from text.tokenization import Tokenizer
from utils import files, run_dir, training
from utils.distribution import create_strategy
from utils.optimizers import create_bert_adamw
from utils.uda_model import METRIC_NAMES

pytestmark = pytest.mark.slow

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
RUN = {
    "dev_size": 8,
    "train_steps": 12,
    "save_steps": 4,
    "log_steps": 2,
    "eval_steps": 6,
    "iterations": 1,
    "max_save": 2,
    "train_batch_size": 2,
    "tsa": "linear",
    "uda_softmax_temp": 0.85,
    "uda_confidence_thresh": 0.51,
    "ent_min_coeff": 0.1,
    "ema_decay": 0.9,
    "warmup_steps": 3,
}


@pytest.fixture(scope="module")
def bert_dir(tmp_path_factory):
    return write_bert(tmp_path_factory.mktemp("bert"))


@pytest.fixture(scope="module")
def data_dir(bert_dir, tmp_path_factory):
    return write_user_records(tmp_path_factory.mktemp("data"), bert_dir, dev_sizes=(0, 8))


@pytest.fixture(scope="module")
def config(data_dir, bert_dir):
    return tiny_config(data_dir, bert_dir, **RUN)


WholeRun = collections.namedtuple("WholeRun", "model_dir result")


@pytest.fixture(scope="module")
def whole_run(config, tmp_path_factory):
    model_dir = tmp_path_factory.mktemp("whole") / "run"
    return WholeRun(model_dir, run_training(config, model_dir))


@pytest.fixture
def no_export(monkeypatch):
    """Exporting takes seconds, and is another test's matter."""
    monkeypatch.setattr(train, "export", lambda *arguments: None)


@pytest.fixture
def no_tracing(monkeypatch):
    """For runs of a few steps: to trace the step would take longer than to make it."""

    def compile_model(model, optimizer, config):
        model.compile(optimizer, run_eagerly=True)
        model.optimizer.build(model.network.trainable_variables)

    monkeypatch.setattr(training, "compile_model", compile_model)


def run_training(config, model_dir, **options):
    return train.train_and_evaluate(config, str(model_dir), create_strategy("one_device"), **options)


# ---- what a run leaves ----------------------------------------------------------------------------------------------


def test_a_run_leaves_the_same_files_as_one_on_images(whole_run, config):
    assert {path.name for path in whole_run.model_dir.iterdir()} == {
        "best",
        "best.json",
        "checkpoints",
        "config.json",
        "data.json",
        "evaluation.npz",
        "export",
        "metrics.jsonl",
        "result.json",
        "run.json",
        "tensorboard",
    }
    assert files.read_json(str(whole_run.model_dir / "config.json")) == dataclasses.asdict(config)
    assert checkpoint_steps(whole_run.model_dir) == [8, 12]
    for step in (8, 12):
        values = read_checkpoint(whole_run.model_dir / f"checkpoints/ckpt-{step}")
        assert values["optimizer/_iterations/.ATTRIBUTES/VARIABLE_VALUE"] == step
        assert {name.split("/")[0] for name in values} == {"network", "average_network", "optimizer", "save_counter"}


def test_the_result_is_that_of_the_exported_model_on_the_raw_texts(whole_run, config):
    model_dir, result = whole_run
    assert files.read_json(str(model_dir / "result.json")) == result
    assert (result["task_name"], result["sup_size"], result["train_steps"]) == ("csv", 4, 12)
    assert result["step"] == files.read_json(str(model_dir / "best.json"))["step"]
    assert result["error_rate"] == 1 - result["accuracy"] and result["examples_per_second"] > 0
    test_file = os.path.join(os.path.dirname(config.data_dir), "test.csv")
    source = datasets.open_source(PreprocessConfig(task_name="csv", train_file=test_file, test_file=test_file))
    assert_result_of_raw_texts(result, model_dir, source)


def assert_result_of_raw_texts(result, model_dir, source):
    exported, examples = export.load(str(model_dir / "export")), list(source.read("test"))
    assert exported.facts.class_names == source.facts.class_names
    titles = [example.title for example in examples] if source.facts.has_title else None
    probabilities = exported.predict_proba([example.text for example in examples], titles)
    labels = np.array([example.label for example in examples])
    assert np.mean(np.argmax(probabilities, axis=-1) == labels) == pytest.approx(result["accuracy"])
    true_probabilities = probabilities[np.arange(len(labels)), labels]
    assert -np.log(true_probabilities).mean() == pytest.approx(result["loss"], rel=1e-4)


def test_every_line_has_the_promised_metrics(whole_run, config):
    lines = run_dir.read_metrics(str(whole_run.model_dir))
    assert [line["step"] for line in lines] == list(range(2, 13, 2))
    schedule = create_bert_adamw(config)._learning_rate
    for line in lines:
        extra = {"dev_accuracy"} if line["step"] % 4 == 0 else set()
        extra |= {"test_accuracy"} if line["step"] % 6 == 0 else set()
        assert set(line) == {"step", "examples_per_second", "input_wait_ratio", *METRIC_NAMES, *extra} - {"l2_loss"}
        assert all(np.isfinite(value) for value in line.values())
        parts = line["sup_loss"] + line["unsup_loss"] + line["entropy_loss"]
        assert line["loss"] == pytest.approx(parts, rel=1e-5)
        # A line is the mean over its two steps, which had made these numbers of updates when they began.
        updates = np.array([line["step"] - 2, line["step"] - 1])
        assert line["tsa_threshold"] == pytest.approx(np.mean(updates / 12 * 0.5 + 0.5), rel=1e-5)
        assert line["learning_rate"] == pytest.approx(np.mean(schedule(updates)), rel=1e-5)
        assert 0 <= line["pseudo_label_balance"] <= 1


DEV_ACCURACIES, TEST_ACCURACIES = [0.2, 0.6, 0.1, 0.6], [0.9, 0.1, 0.8, 0.3]


def test_the_checkpoint_is_chosen_by_the_development_split_and_never_by_the_test_set(
    data_dir, bert_dir, tmp_path, no_export, no_tracing, monkeypatch
):
    """A run without unlabelled examples, whose accuracies are given so that the best on dev is the worst on test."""
    settings = {"train_steps": 4, "log_steps": 1, "save_steps": 1, "eval_steps": 1}
    config = tiny_config(data_dir, bert_dir, dev_size=8, unsup_ratio=0, **settings)
    given = {"dev": iter(DEV_ACCURACIES), "test": iter(TEST_ACCURACIES)}

    def evaluate(model, strategy, create_batches, num_examples, batch_size):
        split = "dev" if num_examples == config.dev_size else "test"
        return {"accuracy": next(given[split]), "loss": 1.0}

    monkeypatch.setattr(training, "evaluate", evaluate)
    monkeypatch.setattr(training, "evaluate_finally", lambda *arguments: {"accuracy": 0.123, "loss": 1.0})
    result = run_training(config, tmp_path)
    assert (result["step"], result["accuracy"]) == (2, 0.123)
    assert files.read_json(str(tmp_path / "best.json")) == {"step": 2, "dev_accuracy": 0.6}
    lines = run_dir.read_metrics(str(tmp_path))
    assert [line["dev_accuracy"] for line in lines] == DEV_ACCURACIES
    assert [line["test_accuracy"] for line in lines] == TEST_ACCURACIES
    assert not {"unsup_loss", "pseudo_label_balance", "original_confidence"} & set(lines[0])


# ---- interrupted runs -----------------------------------------------------------------------------------------------


class Killed(BaseException):
    """Stands for a kill in the test process: no handler of the trainer catches it."""


def test_the_input_of_the_run_is_of_several_lengths(config):
    """So that the resumed runs below show that the batches of similar length are resumed too."""
    batches = input_pipeline.create_train_dataset(config, input_pipeline.open_data(config)).take(12)
    assert {batch["original"]["ids"].shape[1] for batch in batches} == {16, MAX_LENGTH}


def test_resumed_run_equals_uninterrupted_run(config, whole_run, tmp_path, no_export, monkeypatch):
    """The run dies when the metrics of step 8 are written and its checkpoint is not, and goes on from step 4."""
    save = run_dir.Checkpoints.save

    def save_or_die(self, step):
        if step == 8:
            raise Killed
        save(self, step)

    with monkeypatch.context() as context, pytest.raises(Killed):
        context.setattr(run_dir.Checkpoints, "save", save_or_die)
        run_training(config, tmp_path)
    assert checkpoint_steps(tmp_path) == [4]
    assert read_lines(tmp_path)[-1]["step"] == 8
    assert run_training(config, tmp_path, do_eval=False) == {}
    assert not (tmp_path / "result.json").exists()
    assert_equal_runs(tmp_path, whole_run.model_dir)


def test_a_process_killed_in_mid_run_ends_like_an_uninterrupted_run(config, whole_run, tmp_path, capsys):
    arguments = ["--do_train", "--do_eval", f"--model_dir={tmp_path}"]
    arguments += [f"--{name}={value}" for name, value in dataclasses.asdict(config).items()]
    num_lines, metrics_path = 3, tmp_path / "metrics.jsonl"
    command = [sys.executable, "-m", "text.main", *arguments]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    deadline = time.monotonic() + 240

    def is_time_to_kill():
        has_checkpoint = (tmp_path / "checkpoints/checkpoint").exists()
        return has_checkpoint and metrics_path.read_text().count("\n") >= num_lines

    while process.poll() is None and time.monotonic() < deadline and not is_time_to_kill():
        time.sleep(0.001)
    process.send_signal(signal.SIGKILL)
    output = process.communicate()[0].decode()
    assert process.returncode == -signal.SIGKILL, output
    assert 0 < max(checkpoint_steps(tmp_path)) < config.train_steps, f"killed after {num_lines} lines"
    capsys.readouterr()
    run_main(main, *arguments)
    accuracy = whole_run.result["accuracy"]
    expected = f"csv: accuracy {accuracy:.4f}, error rate {1 - accuracy:.4f}\n"
    assert capsys.readouterr().out == expected + f"report: {tmp_path / 'report.html'}\n"
    assert_equal_runs(tmp_path, whole_run.model_dir)
    assert without_timing(files.read_json(str(tmp_path / "result.json"))) == without_timing(whole_run.result)


@pytest.mark.parametrize("mixed_precision", ["float16", "bfloat16"])
def test_a_run_in_16_bits_trains_weights_of_32_and_resumes(data_dir, bert_dir, mixed_precision, tmp_path, no_export):
    settings = {"train_steps": 4, "save_steps": 2, "log_steps": 2, "ema_decay": 0.9, "iterations": 1}
    config = tiny_config(data_dir, bert_dir, mixed_precision=mixed_precision, **settings)
    whole, resumed = tmp_path / "whole", tmp_path / "resumed"
    result = run_training(config, whole)
    assert np.isfinite(result["loss"])
    assert all(np.isfinite(value) for line in read_lines(whole) for value in line.values())
    half, full = (read_checkpoint(whole / f"checkpoints/ckpt-{step}") for step in (2, 4))
    trained = [name for name in full if name.startswith("network/") and full[name].dtype.kind == "f"]
    assert all(full[name].dtype == np.float32 and np.any(full[name] != half[name]) for name in trained)
    assert any("loss_scale" in name for name in full) == (mixed_precision == "float16")
    assert tf.keras.mixed_precision.global_policy().name == "float32"
    shutil.copytree(whole, resumed)
    for path in resumed.glob("checkpoints/ckpt-4.*"):
        path.unlink()
    assert run_training(config, resumed)["loss"] == result["loss"]
    assert_equal_runs(resumed, whole)


# ---- every data set from raw files to prediction --------------------------------------------------------------------

AUG_OPS = {"imdb": "tf_idf-0.7", "amazon-2": "bt-0.9", "csv": "tf_idf-0.7+unif-0.3"}


def write_raw_data(folder, task_name):
    """Returns the flags that tell text.preprocess where the files are."""
    if task_name == "imdb":
        small_data.write_imdb(folder)
    elif task_name == "csv":
        for name in ("train", "test"):
            small_data.write_user_file(folder / f"{name}.csv", title=True, class_names=("bad", "good", "odd"))
        return {"train_file": folder / "train.csv", "test_file": folder / "test.csv", "title_column": "title"}
    else:
        examples = small_data.write_official(folder, task_name)
        lines = [f"{part} truly" for _, *parts in examples["train"] for part in reversed(parts) if part]
        path = folder / "paraphrases/unsup_in/sample_0.9/para/para_0.txt"
        path.parent.mkdir(parents=True)
        path.write_text("".join(f"{line}\n" for line in lines))
    return {"raw_data_dir": folder, "back_translation_dir": folder / "paraphrases"}


@pytest.mark.parametrize("task_name", datasets.TASK_NAMES)
def test_a_run_goes_from_the_official_files_to_predictions(task_name, bert_dir, tmp_path, no_tracing):
    raw_data = {name: str(value) for name, value in write_raw_data(tmp_path, task_name).items()}
    source = datasets.open_source(PreprocessConfig(task_name=task_name, allow_partial=True, **raw_data))
    settings = {"task_name": task_name, "aug_ops": AUG_OPS.get(task_name, "unif-0.3")}
    settings["sup_size"] = 20 if task_name == "imdb" else source.facts.num_classes
    run_preprocess(bert_dir, tmp_path / "records", **raw_data, **settings)
    config = tiny_config(tmp_path / "records", bert_dir, train_steps=2, iterations=1, **settings)
    result = run_training(config, tmp_path / "run")
    assert (result["task_name"], result["step"]) == (task_name, 2)
    assert_result_of_raw_texts(result, tmp_path / "run", source)


def test_even_a_tiny_network_of_random_weights_learns(bert_dir, tmp_path, no_export):
    data_dir = write_user_records(tmp_path, bert_dir, sup_size=32)
    settings = {"sup_size": 32, "train_steps": 40, "warmup_steps": 10, "learning_rate": 0.01, "pooling": "mean"}
    settings |= {"bert_config_file": os.path.join(bert_dir, "config.json"), "model_dropout": 0.0, "iterations": 1}
    assert run_training(tiny_config(data_dir, "", **settings), tmp_path / "run")["accuracy"] > 0.8


def test_the_random_transformer_is_trained_without_files(data_dir, tmp_path, no_export, no_tracing, monkeypatch):
    small = dataclasses.replace(small_bert.CONFIG, max_position_embeddings=MAX_LENGTH)
    monkeypatch.setattr(
        models, "BertConfig", lambda vocab_size, **size: dataclasses.replace(small, vocab_size=vocab_size)
    )
    config = tiny_config(data_dir, "", model_name="transformer", train_steps=2, iterations=1)
    assert run_training(config, tmp_path)["step"] == 2


BAG_OF_WORDS = {"model_name": "bag_of_words", "sup_size": 32, "learning_rate": 0.01, "iterations": 1}


def test_a_bag_of_words_learns_from_raw_files_to_predictions_and_resumes(bert_dir, tmp_path):
    """Only the vocabulary of the BERT is used; chance would be 0.5."""
    data_dir, whole, resumed = write_user_records(tmp_path, bert_dir, sup_size=32), tmp_path / "a", tmp_path / "b"
    steps = {"train_steps": 60, "save_steps": 30, "log_steps": 30, "warmup_steps": 6, "ema_decay": 0.9}
    config = tiny_config(data_dir, "", **BAG_OF_WORDS, **steps)
    result = run_training(config, whole)
    assert result["accuracy"] > 0.9
    test_file = str(tmp_path / "test.csv")
    source = datasets.open_source(PreprocessConfig(task_name="csv", train_file=test_file, test_file=test_file))
    assert_result_of_raw_texts(result, whole, source)
    shutil.copytree(whole, resumed)
    for path in resumed.glob("checkpoints/ckpt-60.*"):
        path.unlink()
    assert run_training(config, resumed)["loss"] == result["loss"]
    assert_equal_runs(resumed, whole)


@pytest.mark.parametrize("changes", [{"jit_compile": True}, {"mixed_precision": "float16"}, {"accumulation_parts": 2}])
def test_a_bag_of_words_is_trained_in_every_way(data_dir, changes, tmp_path, no_export):
    config = tiny_config(data_dir, "", **BAG_OF_WORDS | {"sup_size": 4, "train_steps": 4, "ema_decay": 0.9}, **changes)
    assert np.isfinite(run_training(config, tmp_path)["loss"])


def test_the_average_starts_at_the_pre_trained_weights(data_dir, bert_dir):
    config = tiny_config(data_dir, bert_dir, ema_decay=0.9)
    data, tokenizer = input_pipeline.open_data(config), Tokenizer(record_format.vocab_path(data_dir))
    model = train.create_model(config, data.facts, tokenizer)
    for average, weight in zip(model.average_network.get_weights(), model.network.get_weights(), strict=True):
        np.testing.assert_array_equal(average, weight)
    expected = small_bert.create_weights(models.BertConfig.read(os.path.join(bert_dir, "config.json")))
    found = [weight for weight in model.average_network.weights if "word_embeddings" in weight.name]
    np.testing.assert_array_equal(found[0], expected["bert/embeddings/word_embeddings"])


# ---- errors ---------------------------------------------------------------------------------------------------------


def assert_refused(message, config, model_dir):
    with pytest.raises(ValueError, match=message):
        run_training(config, model_dir)
    assert not (model_dir / "checkpoints").exists()


def test_a_run_of_another_configuration_is_refused_by_the_name_of_the_setting(config, whole_run):
    other = dataclasses.replace(config, learning_rate=0.01, tsa="exp")
    message = r"another configuration \(learning_rate: was 0\.001, now 0\.01; tsa: was 'linear', now 'exp'\)"
    with pytest.raises(ValueError, match=message):
        run_training(other, whole_run.model_dir)


def test_records_of_another_length_are_refused(config, tmp_path):
    message = "holds texts tokenised otherwise .max_seq_length: found 32, expected 24.* --max_seq_length=32"
    assert_refused(message, dataclasses.replace(config, max_seq_length=24), tmp_path)


def test_records_of_another_data_set_are_refused(config, tmp_path):
    message = "holds records of csv, not task_name=imdb"
    assert_refused(message, dataclasses.replace(config, task_name="imdb"), tmp_path)


def test_texts_longer_than_the_encoder_has_positions_for_are_refused(config, tmp_path):
    short = write_bert(tmp_path / "bert", max_position_embeddings=16)
    message = "max_seq_length=32: the encoder has 16 positions at most"
    assert_refused(message, dataclasses.replace(config, init_checkpoint=short), tmp_path / "run")


def test_a_checkpoint_of_another_vocabulary_is_refused(config, tmp_path):
    larger = small_data.WORDS + ("unheard", "of")
    pieces = len(small_data.write_vocab(tmp_path / "vocab.txt", larger))
    other = write_bert(tmp_path / "larger", vocab_size=pieces)
    small_data.write_vocab(tmp_path / "larger/vocab.txt", larger)
    message = "the records were made with another vocabulary than .*larger/vocab.txt"
    assert_refused(message, dataclasses.replace(config, init_checkpoint=other), tmp_path / "run")
    smaller = write_bert(tmp_path / "smaller", vocab_size=50)
    (tmp_path / "smaller/vocab.txt").unlink()
    message = "The vocabulary has .* word pieces, but .* says vocab_size=50"
    assert_refused(message, dataclasses.replace(config, init_checkpoint=smaller), tmp_path / "run")


def test_weights_that_do_not_fit_their_configuration_are_refused(config, tmp_path):
    other = write_bert(tmp_path / "other", hidden_size=8)
    config = dataclasses.replace(
        config, init_checkpoint=other, bert_config_file=os.path.join(config.init_checkpoint, "config.json")
    )
    assert_refused("other does not fit the encoder's configuration: .*word_embeddings", config, tmp_path / "run")
