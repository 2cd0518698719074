"""Tiny text runs: a small BERT on disk, records made by text.preprocess, and a configuration that takes seconds."""

import dataclasses

import numpy as np

from tests.programs import run_main
from tests.text import small_bert, small_data
from text import export, input_pipeline, preprocess, record_format, train
from text.config import Config
from text.models import BertConfig
from text.tokenization import Tokenizer

MAX_LENGTH = 32
TINY_RUN = {
    "task_name": "csv",
    "sup_size": 4,
    "aug_ops": "unif-0.3",
    "max_seq_length": MAX_LENGTH,
    "train_batch_size": 4,
    "unsup_ratio": 2,
    "eval_batch_size": 8,
    "learning_rate": 1e-3,
    "warmup_steps": 0,
}


def write_bert(folder, **changes):
    """A Hugging Face folder with a BERT of random weights for the vocabulary of small_data; returns its path."""
    folder.mkdir(parents=True, exist_ok=True)
    config = BertConfig(
        vocab_size=len(small_data.write_vocab(folder / "vocab.txt")),
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=24,
        max_position_embeddings=40,
    )
    config = dataclasses.replace(config, **changes)
    small_bert.write_hugging_face(str(folder), small_bert.create_weights(config), config)
    small_data.write_vocab(folder / "vocab.txt")
    return str(folder)


def run_preprocess(bert_dir, output_dir, **settings):
    settings = {name: TINY_RUN[name] for name in ("task_name", "sup_size", "aug_ops", "max_seq_length")} | settings
    settings |= {"init_checkpoint": bert_dir, "output_dir": output_dir, "workers": 1, "allow_partial": True}
    run_main(preprocess, *(f"--{name}={value}" for name, value in settings.items()))


def write_user_records(folder, bert_dir, dev_sizes=(0,), **settings):
    """Records of a user's CSV files, two classes and texts of 4 to 30 words; returns the data_dir."""
    for name, num_texts in (("train", 64), ("test", 12)):
        rng = np.random.default_rng(num_texts)
        texts = [small_data.random_text(rng, number % 2, rng.integers(4, 31)) for number in range(num_texts)]
        records = [{"text": text, "label": ("bad", "good")[number % 2]} for number, text in enumerate(texts)]
        small_data.write_records(folder / f"{name}.csv", records)
    for dev_size in dev_sizes:
        files = {f"{name}_file": folder / f"{name}.csv" for name in ("train", "test")}
        run_preprocess(bert_dir, folder / "records", dev_size=dev_size, **files, **settings)
    return str(folder / "records")


def tiny_config(data_dir, bert_dir, **settings):
    return Config(**{"data_dir": str(data_dir), "init_checkpoint": str(bert_dir)} | TINY_RUN | settings)


def export_random_model(config, export_dir):
    """Exports a network whose average, which counts, has other weights; returns the model and the data."""
    data = input_pipeline.open_data(config)
    tokenization, vocab_path = data.tokenization, record_format.vocab_path(config.data_dir)
    tokenizer = Tokenizer(vocab_path, tokenization.lower_case, tokenization.prefix)
    model = train.create_model(config, data.facts, tokenizer)
    rng = np.random.default_rng(0)
    weights = model.average_network.get_weights()
    model.average_network.set_weights([rng.normal(weight, 0.5 * (weight.ndim > 1)) for weight in weights])
    export.export([model.evaluation_network], data, tokenizer, str(export_dir))
    return model, data
