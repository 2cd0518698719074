"""Hidden states of texts: what frozen layers make of each is computed once, and the layers above are trained on it."""

import dataclasses
import glob
import json
import pathlib
import shutil

import numpy as np
import pytest
import tensorflow as tf

from tests.text.small_run import MAX_LENGTH, tiny_config, write_bert, write_user_records
from text import bert_weights, export, features, input_pipeline, record_format, states, train
from text.models import create_network
from text.models.bert import take_ids
from text.tokenization import read_vocab
from utils.distribution import create_strategy

LAYERS = {"trainable_layers": 1, "head_steps": 0, "keep_states": True, "model_dropout": 0.0, "pooling": "mean"}
LAYERS |= {"train_steps": 4, "save_steps": 2, "log_steps": 2, "iterations": 1}


@pytest.fixture(scope="module")
def bert_dir(tmp_path_factory):
    return write_bert(tmp_path_factory.mktemp("bert"), num_hidden_layers=2)


@pytest.fixture(scope="module")
def data_dir(bert_dir, tmp_path_factory):
    return write_user_records(tmp_path_factory.mktemp("data"), bert_dir)


@pytest.fixture
def config(data_dir, bert_dir):
    return tiny_config(data_dir, bert_dir, **LAYERS)


def open_both(config):
    """The data of a run, as pieces and as states."""
    data = input_pipeline.open_data(config)
    return data, states.open_states(config, data)


def run(config, model_dir, **options):
    return train.train_and_evaluate(config, str(model_dir), create_strategy("one_device"), **options)


def final_weights(model_dir, step=4):
    checkpoint = tf.train.load_checkpoint(f"{model_dir}/checkpoints/ckpt-{step}")
    names = sorted(name for name in checkpoint.get_variable_to_shape_map() if name.startswith("network/"))
    return {name: checkpoint.get_tensor(name) for name in names if name != "network/.ATTRIBUTES"}


def test_batches_hold_the_same_texts_as_states(config):
    pieces, kept = (next(iter(input_pipeline.create_train_dataset(config, data))) for data in open_both(config))
    lower = states.load_network(*states.network_settings(config))
    np.testing.assert_array_equal(kept["label"], pieces["label"])
    for view in ("sup", "original", "augmented"):
        mask = pieces[view]["ids"].numpy() != 0
        np.testing.assert_array_equal(kept[view]["mask"], mask)
        expected = lower(pieces[view])["states"].numpy() * mask[:, :, np.newaxis]
        np.testing.assert_allclose(kept[view]["states"], expected, atol=5e-3)  # 16 bits
        assert kept[view]["states"].dtype == tf.float32


@pytest.mark.parametrize("pooling, layers, width", [("mean", "", 16), ("cls", "", 16), ("mean", "1,2", 32)])
def test_network_gives_the_same_of_states_and_of_pieces(config, pooling, layers, width):
    config = dataclasses.replace(config, pooling=pooling, feature_layer=layers)
    data, kept = open_both(config)
    network = create_network(config, data.facts, data.tokenization.vocab_size)
    bert_weights.load_weights(network, config.init_checkpoint)
    rng = np.random.default_rng(0)
    network.get_layer("logits").set_weights([rng.normal(size=shape) for shape in ([width, 2], [2])])
    pieces, states_of_them = (
        next(iter(input_pipeline.create_eval_dataset(part.test, MAX_LENGTH, 12, layout=part.layout)))["sup"]
        for part in (data, kept)
    )
    np.testing.assert_allclose(network(states_of_them), take_ids(network)(pieces), atol=5e-3)


def test_run_on_states_ends_like_one_on_pieces(config, tmp_path):
    plain = dataclasses.replace(config, keep_states=False)
    for changed, name in ((config, "states"), (plain, "plain")):
        run(changed, tmp_path / name, do_eval=False)
    kept, expected = final_weights(tmp_path / "states"), final_weights(tmp_path / "plain")
    assert kept.keys() == expected.keys()
    for name, weight in expected.items():
        np.testing.assert_allclose(kept[name], weight, atol=2e-3, err_msg=name)


def test_exported_network_takes_raw_texts_and_has_the_trained_layers(config, tmp_path):
    result = run(dataclasses.replace(config, ema_decay=0.5, learning_rate=1e-2), tmp_path)
    data, kept = open_both(config)
    texts, labels = features.read_texts(data.test[0].paths[0], 0, "original", labelled=True)
    vocab = read_vocab(record_format.vocab_path(config.data_dir))
    exported = export.load(str(tmp_path / "export"))
    found = exported.predict_proba([" ".join(vocab[piece] for piece in ids[1:-1]) for ids, _ in texts])
    assert np.mean(found.argmax(axis=1) == labels) == pytest.approx(result["accuracy"])
    losses = -np.log(found[np.arange(len(labels)), labels])
    assert losses.mean() == pytest.approx(result["loss"], abs=5e-3)
    assert kept.layout.width == 16


def test_states_are_computed_once_and_shared_by_runs(config, monkeypatch):
    _, kept = open_both(config)
    counts, compute = [], states.compute_states

    def count(network, texts):
        counts.append(len(texts))
        return compute(network, texts)

    monkeypatch.setattr(states, "compute_states", count)
    open_both(dataclasses.replace(config, seed=7, learning_rate=1e-4))
    assert counts == []
    shutil.rmtree(kept.test[0].directory)
    open_both(config)
    assert counts == [12]


@pytest.mark.parametrize("pooling, layers", [("mean", "1,2"), ("cls", "")])
def test_features_for_the_head_come_from_the_pass_that_gives_the_states(config, tmp_path, monkeypatch, pooling, layers):
    """They are those that text.features writes, byte for byte, and the head needs no other pass."""
    shutil.copytree(config.data_dir, tmp_path / "both")
    settings = {"head_steps": 2, "head_learning_rate": 1e-3, "pooling": pooling, "feature_layer": layers}
    config = dataclasses.replace(config, **settings)
    features.write_features(config, input_pipeline.open_data(config, with_unlabeled=True))
    both = dataclasses.replace(config, data_dir=str(tmp_path / "both"))
    shutil.rmtree(tmp_path / "both/features", ignore_errors=True)
    monkeypatch.setattr(features, "compute_features", None)
    run(both, tmp_path / "run", do_eval=False)
    folder = features.features_dir(config)
    paths = glob.glob("**/*.tfrecord", root_dir=folder, recursive=True)
    assert len(paths) == 4
    for path in paths:
        assert pathlib.Path(folder, path).read_bytes() == pathlib.Path(features.features_dir(both), path).read_bytes()


def test_states_of_another_configuration_of_the_encoder_are_refused(config, tmp_path):
    open_both(config)
    changed = json.loads(pathlib.Path(config.init_checkpoint, "config.json").read_text()) | {"hidden_act": "relu"}
    (tmp_path / "config.json").write_text(json.dumps(changed))
    with pytest.raises(ValueError, match="other settings .hidden_act: found 'gelu', expected 'relu'.. Delete that fol"):
        open_both(dataclasses.replace(config, bert_config_file=str(tmp_path / "config.json")))


def test_damaged_states_and_settings_that_leave_no_frozen_layer_are_refused(config, tmp_path):
    for trainable_layers in (2, 0):
        with pytest.raises(ValueError, match=f"trainable_layers={trainable_layers}"):
            open_both(dataclasses.replace(config, trainable_layers=trainable_layers))
    data, kept = open_both(config)
    assert states.limit_memory(config, kept.layout) == min(config.shuffle_buffer, (4 << 30) // (4 * 16 * MAX_LENGTH))
    (path,) = glob.glob(f"{kept.test[0].directory}/*.tfrecord")
    with open(path, "r+b") as file:
        content = file.read()
        file.seek(40)
        file.write(bytes([content[40] ^ 255]))
    with pytest.raises(ValueError, match="delete"):
        states.open_states(config, data)
    with open(path, "wb") as file:
        file.write(content)
