"""Frozen features of texts: computed once, kept with the records, trained on; then the layers above them."""

import contextlib
import dataclasses
import json
import os
import pathlib
import shutil
import time
import types

import numpy as np
import pytest
import tensorflow as tf

from tests.programs import run_main
from tests.text import small_bert
from tests.text.small_run import MAX_LENGTH, run_preprocess, tiny_config, write_bert, write_user_records
from text import export, features, input_pipeline, main, record_format, report, states, train
from text.models.bert import BertConfig, create_encoder
from text.tokenization import read_vocab
from utils import features as any_features
from utils import files, locks, records, run_dir, training
from utils.distribution import create_strategy

FROZEN = {"trainable_layers": 0, "pooling": "mean", "dev_size": 8, "train_steps": 6, "save_steps": 3, "log_steps": 3}
LAYERS = FROZEN | {"trainable_layers": 1, "head_steps": 4, "model_dropout": 0.0, "layer_decay": 0.5, "iterations": 1}


@pytest.fixture(scope="module")
def bert_dir(tmp_path_factory):
    return write_bert(tmp_path_factory.mktemp("bert"), num_hidden_layers=2)


@pytest.fixture(scope="module")
def data_dir(bert_dir, tmp_path_factory):
    return write_user_records(tmp_path_factory.mktemp("data"), bert_dir, dev_sizes=(0, 8))


@pytest.fixture
def config(data_dir, bert_dir):
    return tiny_config(data_dir, bert_dir, **FROZEN)


def run(config, model_dir, **options):
    return train.train_and_evaluate(config, str(model_dir), create_strategy("one_device"), **options)


def count_encoded(monkeypatch):
    """A list to which the number of texts of each call of the encoder is added."""
    counts, compute = [], features.compute_features

    def count(network, texts):
        counts.append(len(texts))
        return compute(network, texts)

    monkeypatch.setattr(features, "compute_features", count)
    return counts


# ---- the features ---------------------------------------------------------------------------------------------------


def test_features_are_the_mean_of_the_tokens_of_the_layer_that_was_asked_for(bert_dir):
    rng = np.random.default_rng(0)
    texts = [(rng.integers(1, 30, length).astype(np.int32), length // 3) for length in (3, 30, 17, 8, 9)]
    for layers in ((1,), (2,), (), (1, 2)):
        arguments = (bert_dir, f"{bert_dir}/config.json", MAX_LENGTH, "mean", layers)
        network = features.load_network(*arguments)
        encoder, found = network.get_layer("encoder"), features.compute_features(network, texts)
        assert len(encoder.transformer_layers) == max(layers, default=2)
        for (ids, num_second), feature in zip(texts, found):
            type_ids = np.arange(len(ids)) >= len(ids) - num_second
            words = {"input_word_ids": ids[np.newaxis], "input_mask": np.ones([1, len(ids)], np.int32)}
            outputs = encoder(words | {"input_type_ids": type_ids[np.newaxis].astype(np.int32)})["encoder_outputs"]
            means = [outputs[layer - 1][0].numpy().mean(axis=0) for layer in layers or (2,)]
            np.testing.assert_allclose(feature, np.concatenate(means), rtol=1e-4, atol=1e-5)


def test_a_layer_that_the_encoder_does_not_have_is_refused(config, tmp_path):
    with pytest.raises(ValueError, match="feature_layer=1,3: expected 1 to 2, the number of the encoder's layers"):
        run(dataclasses.replace(config, feature_layer="1,3"), tmp_path)
    with pytest.raises(ValueError, match="feature_layer=1,2: pooling=cls sees one layer; use pooling=mean"):
        run(dataclasses.replace(config, feature_layer="1,2", pooling="cls"), tmp_path)
    sizes = BertConfig.read(f"{config.init_checkpoint}/config.json"), MAX_LENGTH
    with pytest.raises(ValueError, match="trainable_layers=2: expected -1 .everything. or 0 to 1"):
        create_encoder(*sizes, trainable_layers=2, feature_layers=(1,))


@pytest.mark.parametrize("layers", ["2,1", "1,1", "0", "x", "1,,2", "-1", "9" * 5])
def test_layers_that_are_no_ascending_numbers_are_refused(config, layers):
    with pytest.raises(ValueError, match=f"feature_layer='{layers}': expected numbers of layers, from 1, in ascending"):
        dataclasses.replace(config, feature_layer=layers)


def test_kept_states_have_to_hold_the_layers_that_the_classifier_sees(config):
    sizes = BertConfig(100, num_hidden_layers=4, hidden_size=16, num_attention_heads=2), MAX_LENGTH
    with pytest.raises(ValueError, match="trainable_layers=1: expected at least 2, so that all of the layers 2,4"):
        create_encoder(*sizes, "mean", trainable_layers=1, feature_layers=(2, 4), from_states=True)
    network = create_encoder(*sizes, "mean", trainable_layers=2, feature_layers=(2, 4), from_states=True)
    assert network.output_shape == (None, 32)


def test_weights_that_were_replaced_are_loaded_anew(bert_dir, tmp_path):
    arguments = (str(tmp_path), f"{bert_dir}/config.json", MAX_LENGTH, "mean", ())
    shutil.copytree(bert_dir, tmp_path, dirs_exist_ok=True)
    text = [(np.arange(1, 9, dtype=np.int32), 0)]
    network = features.load_network(*arguments)
    assert features.load_network(*arguments) is network
    lower = states.load_network(*arguments, 1, False)
    before = features.compute_features(network, text), lower.get_weights()[0]
    sizes = BertConfig.read(arguments[1])
    small_bert.write_hugging_face(str(tmp_path), small_bert.create_weights(sizes, seed=1), sizes)
    after = features.compute_features(features.load_network(*arguments), text)
    assert not np.allclose(after, before[0])
    assert not np.allclose(states.load_network(*arguments, 1, False).get_weights()[0], before[1])


def test_stored_features_are_those_of_the_texts_in_their_order(config):
    data, stored = features.open_features(config)
    network = features.load_network(*features.network_settings(config, MAX_LENGTH))
    for record_set, view, found in (
        (data.test[0], "original", stored.test.features),
        (data.unsup[0], "original", stored.original),
        (data.unsup[0], "augmented", stored.augmented),
    ):
        texts, _ = features.read_texts(record_set.paths[0], 0, view, labelled=False)
        expected = features.compute_features(network, texts)
        assert found.dtype == np.float16
        np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-4)
    assert len(stored.sup.labels) == 4 and len(stored.dev.labels) == 8 and len(stored.test.labels) == 12


def test_every_text_goes_through_the_encoder_once(bert_dir, tmp_path, monkeypatch):
    data_dir, counts = write_user_records(tmp_path, bert_dir), count_encoded(monkeypatch)
    config = tiny_config(data_dir, bert_dir, **FROZEN | {"dev_size": 0})
    _, first = features.open_features(config)
    assert sum(counts) == 4 + 12 + 2 * 64
    counts.clear()
    _, again = features.open_features(config)
    assert not counts
    np.testing.assert_array_equal(first.augmented, again.augmented)
    files = {f"{name}_file": tmp_path / f"{name}.csv" for name in ("train", "test")}
    run_preprocess(bert_dir, data_dir, aug_copy=2, **files)
    _, more = features.open_features(dataclasses.replace(config, aug_copy=2))
    assert sum(counts) == 64  # the second copy
    np.testing.assert_array_equal(more.augmented[:64], first.augmented)
    counts.clear()
    run_preprocess(bert_dir, data_dir, aug_ops="tf_idf-0.5", **files)
    features.open_features(dataclasses.replace(config, aug_ops="tf_idf-0.5"))
    assert sum(counts) == 64  # what another augmentation has made of the same texts


def test_what_a_stop_left_unfinished_is_taken_up(bert_dir, tmp_path, monkeypatch):
    monkeypatch.setattr(features, "TEXTS_PER_SHARD", 16)
    data_dir, compute, calls = write_user_records(tmp_path, bert_dir), features.compute_features, []
    config = tiny_config(data_dir, bert_dir, **FROZEN | {"dev_size": 0})

    def stop(network, texts):
        calls.append(len(texts))
        if len(calls) > 3:
            raise KeyboardInterrupt
        return compute(network, texts)

    monkeypatch.setattr(features, "compute_features", stop)
    with pytest.raises(KeyboardInterrupt):
        features.open_features(config)
    monkeypatch.setattr(features, "compute_features", compute)
    counts = count_encoded(monkeypatch)
    _, stored = features.open_features(config)
    assert sum(counts) == 4 + 12 + 2 * 64 - sum(calls[:3])
    shutil.rmtree(features.features_dir(config))
    _, whole = features.open_features(config)
    np.testing.assert_array_equal(stored.original, whole.original)
    np.testing.assert_array_equal(stored.augmented, whole.augmented)


def run_program(config, **more):
    names = ("task_name", "data_dir", "init_checkpoint", "max_seq_length", "sup_size", "aug_ops", "pooling")
    flags = {name: getattr(config, name) for name in names} | {"workers": 1} | more
    run_main(features, *(f"--{name}={value}" for name, value in flags.items()))


def test_replicas_share_the_work_and_the_last_one_completes_it(bert_dir, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(features, "TEXTS_PER_SHARD", 16)
    config = tiny_config(write_user_records(tmp_path, bert_dir), bert_dir, **FROZEN | {"dev_size": 0})
    exported = tmp_path / "features.npz"
    for worker_id in (2, 0, 1):
        assert not exported.exists()
        run_program(config, replicas=3, worker_id=worker_id, export_features=exported)
        output = capsys.readouterr().out
        assert ("sets wait for shards of other workers (replicas=3)" in output) == (worker_id != 1)
        assert ("features.npz is left to the last of replicas=3" in output) == (worker_id != 1)
    counts = count_encoded(monkeypatch)
    _, stored = features.open_features(config)
    assert not counts
    np.testing.assert_array_equal(np.load(exported)["unlabeled"], stored.original)
    shutil.rmtree(features.features_dir(config))
    _, alone = features.open_features(config)
    np.testing.assert_array_equal(stored.augmented, alone.augmented)


def test_features_of_unlabelled_texts_need_no_labelled_ones(bert_dir, tmp_path):
    config = tiny_config(write_user_records(tmp_path, bert_dir, data_type="unsup"), bert_dir, **FROZEN)
    run_program(config, data_type="unsup", export_features=tmp_path / "features.npz")
    assert os.listdir(features.features_dir(config)) == ["unsup"]
    assert np.load(tmp_path / "features.npz")["unlabeled"].shape == (64, 16)
    with pytest.raises(SystemExit, match="sup-size_4/train holds no records. Run `python -m text.preprocess"):
        run_program(config, data_type="all")
    with pytest.raises(SystemExit, match="export_features with data_type=sup: expected all, or unsup"):
        run_program(config, data_type="sup", export_features=tmp_path / "more.npz")


@pytest.mark.slow
def test_processes_write_the_same_features_and_the_trainer_takes_them(bert_dir, tmp_path, monkeypatch):
    data_dir = write_user_records(tmp_path, bert_dir)
    config = tiny_config(data_dir, bert_dir, **FROZEN | {"dev_size": 0})
    run_program(config, workers=2, export_features=tmp_path / "features.npz")
    counts = count_encoded(monkeypatch)
    _, stored = features.open_features(config)
    assert not counts
    np.testing.assert_array_equal(np.load(tmp_path / "features.npz")["unlabeled"], stored.original)
    shutil.rmtree(features.features_dir(config))
    _, alone = features.open_features(config)
    np.testing.assert_allclose(stored.original, alone.original, rtol=2e-3, atol=1e-4)


def write_set(folder, examples):
    records.begin_set(str(folder), {})
    records.write_shard(str(folder), 0, 1, lambda: map(records.encode_example, examples))
    records.finish_set(str(folder), 1)
    return records.read_set(str(folder), {}, "")


@pytest.mark.parametrize(
    "changes, reason",
    [
        ({"features": b"\0" * 6}, "several widths"),
        ({"features": b"\0" * 7}, "several widths"),
        ({"features": b"\0\x7e" * 4}, "not finite"),
        ({"label": 2}, "labels of none of 2 classes"),
        ({"label": b"a"}, "label"),
    ],
)
def test_stored_features_that_do_not_fit_are_refused(tmp_path, changes, reason):
    good = {"features": b"\0" * 8, "label": 1}
    assert features.read_features(write_set(tmp_path / "good", [good, good]), num_classes=2).features.shape == (2, 4)
    record_set = write_set(tmp_path / "bad", [good, good | changes])
    with pytest.raises(ValueError, match=f"bad cannot be read .*{reason}.*: delete it, so that it is computed again"):
        features.read_features(record_set, num_classes=2)


def test_sets_are_read_one_after_the_other_and_in_their_order(tmp_path, monkeypatch):
    monkeypatch.setattr(features, "SHARD_SIZE", 2)  # records that are read at once
    values = np.random.default_rng(0).normal(size=[2, 5, 3]).astype("<f2")
    sets = [
        write_set(tmp_path / str(number), [{"features": row.tobytes(), "label": number} for row in part])
        for number, part in enumerate(values)
    ]
    found, labels = features.read_features(*sets, num_classes=2)
    np.testing.assert_array_equal(found, values.reshape(10, 3))
    assert labels.tolist() == 5 * [0] + 5 * [1] and features.read_features(sets[0]).labels is None


def test_a_second_process_waits_for_the_features_of_the_first(bert_dir, tmp_path, capsys, monkeypatch):
    config = tiny_config(write_user_records(tmp_path, bert_dir, dev_sizes=(8,)), bert_dir, **FROZEN)
    folder, first = features.features_dir(config), contextlib.ExitStack()
    os.makedirs(folder)
    first.enter_context(locks.hold(folder, "another process", ""))
    # The first process ends while the second waits.
    monkeypatch.setattr(locks, "time", types.SimpleNamespace(sleep=lambda _: first.close(), time=time.time))
    features.open_features(config)
    assert "is in use by another process that computes these features, process" in capsys.readouterr().err


def test_features_of_other_weights_and_of_another_layer_lie_apart(config, tmp_path):
    other = write_bert(tmp_path / "other", num_hidden_layers=2, initializer_range=0.03)
    shutil.copy(f"{config.init_checkpoint}/model.safetensors", tmp_path / "other" / "model.safetensors")
    same = dataclasses.replace(config, init_checkpoint=other)
    assert features.features_dir(same) == features.features_dir(config)
    content = bytearray((tmp_path / "other" / "model.safetensors").read_bytes())
    content[-1] ^= 1
    (tmp_path / "other" / "model.safetensors").write_bytes(content)
    folders = {features.features_dir(changed) for changed in (config, same)}
    folders |= {
        features.features_dir(dataclasses.replace(config, feature_layer=layers)) for layers in ("1", "2", "1,2")
    }
    assert len(folders) == 5


def test_features_of_another_configuration_are_refused_and_those_of_before_stay_in_use(
    bert_dir, data_dir, tmp_path, monkeypatch
):
    config = tiny_config(data_dir, bert_dir, **FROZEN | {"feature_layer": "2"})
    changed = json.loads(pathlib.Path(bert_dir, "config.json").read_text()) | {"num_attention_heads": 4}
    (tmp_path / "config.json").write_text(json.dumps(changed))
    other = dataclasses.replace(config, bert_config_file=str(tmp_path / "config.json"))
    _, stored = features.open_features(config)
    with pytest.raises(ValueError, match="other settings .num_attention_heads: found 2, expected 4.. Delete that fold"):
        features.open_features(other)
    for path in pathlib.Path(features.features_dir(config)).rglob("info.json"):
        info = json.loads(path.read_text())
        for name in ("num_hidden_layers", "num_attention_heads", "hidden_act"):
            del info["settings"][name]
        path.write_text(json.dumps(info))
    counts = count_encoded(monkeypatch)
    _, again = features.open_features(config)
    assert not counts
    np.testing.assert_array_equal(stored.original, again.original)


def test_plain_texts_can_be_embedded(bert_dir):
    found = features.embed(["a good film", "a film", "a film"], bert_dir, max_seq_length=MAX_LENGTH)
    assert found.shape == (3, 16)
    np.testing.assert_allclose(found[1], found[2], rtol=1e-5)


# ---- training on them -----------------------------------------------------------------------------------------------


def test_frozen_run_leaves_a_model_of_raw_texts_that_predicts_as_the_trainer_does(config, tmp_path):
    result = run(config, tmp_path)
    assert result["sup_size"] == 4 and 0 <= result["accuracy"] <= 1
    exported = export.load(str(tmp_path / "export"))
    data, stored = features.open_features(config)
    head = any_features.create_head(16, 2, any_features.compute_statistics(stored.original))
    tf.train.Checkpoint(network=head).restore(tf.train.latest_checkpoint(tmp_path / "best")).expect_partial()
    expected = tf.nn.softmax(head(stored.test.features)).numpy()
    vocab = read_vocab(record_format.vocab_path(config.data_dir))
    texts, _ = features.read_texts(data.test[0].paths[0], 0, "original", labelled=False)
    # The pieces of these texts are whole words.
    found = exported.predict_proba([" ".join(vocab[piece] for piece in ids[1:-1]) for ids, _ in texts])
    np.testing.assert_allclose(found, expected, atol=5e-3)  # features are kept in 16 bits
    assert np.mean(np.argmax(found, axis=1) == stored.test.labels) == pytest.approx(result["accuracy"])


def test_supervised_run_takes_the_same_standardisation_and_no_copies(bert_dir, tmp_path, monkeypatch):
    data_dir, counts = write_user_records(tmp_path, bert_dir), count_encoded(monkeypatch)
    settings = FROZEN | {"dev_size": 0, "unsup_ratio": 0}
    run(tiny_config(data_dir, bert_dir, **settings), tmp_path / "run", do_eval=False)
    assert sum(counts) == 4 + 12 + 64
    (line, *_) = run_dir.read_metrics(str(tmp_path / "run"))
    assert "unsup_loss" not in line


def test_frozen_features_need_a_pretrained_bert():
    with pytest.raises(ValueError, match="frozen features need model_name=bert and an init_checkpoint"):
        tiny_config("data", "", trainable_layers=0, bert_config_file="bert_config.json")
    with pytest.raises(ValueError, match="head_steps=5: expected 0 with trainable_layers=0"):
        tiny_config("data", "bert", trainable_layers=0, head_steps=5)
    with pytest.raises(ValueError, match="fixed_target with head_steps=0: expected head_steps"):
        tiny_config("data", "bert", trainable_layers=1, fixed_target=True)


def test_main_trains_on_a_file_of_features_of_any_kind(tmp_path, capsys):
    rng = np.random.default_rng(0)
    labels = np.arange(40) % 2
    values = (rng.normal(size=[40, 3]) + 3 * labels[:, np.newaxis]).astype(np.float32)
    arrays = {"features": values, "labels": labels, "test_features": values, "test_labels": labels}
    np.savez(tmp_path / "mine.npz", **arrays, unlabeled=values, augmented=values + 0.1)
    flags = ["--recipe=frozen", "--task_name=features", f"--features_file={tmp_path / 'mine.npz'}", "--sup_size=10"]
    run_main(main, *flags, "--do_train", "--do_eval", f"--model_dir={tmp_path / 'run'}", "--train_steps=100")
    assert "features: accuracy" in capsys.readouterr().out
    with pytest.raises(ValueError, match="features_file=x is for task_name=features, not csv"):
        tiny_config("data", "bert", features_file="x")
    with pytest.raises(ValueError, match="task_name=features takes no init_checkpoint"):
        tiny_config("data", "bert", task_name="features")


# ---- layers afterwards ----------------------------------------------------------------------------------------------


def test_first_stage_takes_batches_that_the_replicas_can_share(config, tmp_path, monkeypatch):
    monkeypatch.setattr(train, "FROZEN", train.FROZEN | {"train_batch_size": 5, "eval_batch_size": 7})
    layers = dataclasses.replace(config, **LAYERS)
    train.train_head(layers, str(tmp_path), create_strategy("mirrored"), do_train=True)
    stored = files.read_json(str(tmp_path / "head/config.json"))
    assert (stored["train_batch_size"], stored["eval_batch_size"]) == (6, 8)


def test_second_stage_starts_with_the_predictions_of_the_first(config, tmp_path):
    layers = dataclasses.replace(config, **LAYERS, fixed_target=True)
    head = train.train_head(layers, str(tmp_path), create_strategy("one_device"), do_train=True)
    assert np.abs(head[2]).max() > 0  # it has learnt
    data, stored = features.open_features(config)
    model = train.create_model(
        layers, data.facts, record_format.load_tokenizer(layers.data_dir, data.tokenization), head
    )
    alone = any_features.create_head(16, 2, head[:2])
    any_features.set_head_weights(alone, head)
    (batch,) = input_pipeline.create_eval_dataset(data.test, MAX_LENGTH, 12)
    labels = stored.test.labels
    expected = np.sort(alone(stored.test.features).numpy()[:, 0])
    for network in (model, model.target_network):
        np.testing.assert_allclose(np.sort(network(batch["sup"]).numpy()[:, 0]), expected, atol=5e-3)
    assert sorted(batch["label"].numpy()) == sorted(labels)


@pytest.mark.slow
def test_a_second_stage_that_spoils_the_first_ends_with_the_first(config, tmp_path, monkeypatch):
    def evaluate(model, *_arguments):
        return {"accuracy": 0.5 if int(model.optimizer.iterations) else 0.9}  # each step of the second stage spoils it

    monkeypatch.setattr(training, "evaluate", evaluate)
    run(dataclasses.replace(config, **LAYERS | {"eval_steps": 3}), tmp_path)
    lines = run_dir.read_metrics(str(tmp_path))
    assert [(line["step"], line["dev_accuracy"], line["test_accuracy"]) for line in lines] == [
        (0, 0.9, 0.9),
        (3, 0.5, 0.5),
        (6, 0.5, 0.5),
    ]
    assert files.read_json(str(tmp_path / "best.json")) == {"step": 0, "dev_accuracy": 0.9}
    assert files.read_json(str(tmp_path / "result.json"))["step"] == 0
    report.write_run_page(str(tmp_path))
    assert "steps, the best of" in (tmp_path / "report.html").read_text()


@pytest.mark.slow
def test_a_run_of_two_stages_that_was_stopped_ends_like_a_whole_one(config, tmp_path):
    settings = {"model_dropout": 0.1, "ema_decay": 0.9, "keep_states": True, "fixed_target": True}
    layers = dataclasses.replace(config, **LAYERS | settings)
    run(layers, tmp_path / "whole", do_eval=False)
    for stopped_in in ("head/checkpoints", "checkpoints"):
        shutil.copytree(tmp_path / "whole", tmp_path / "stopped", dirs_exist_ok=True)
        folder = tmp_path / "stopped"
        if stopped_in == "head/checkpoints":  # before the second stage began
            names = ("checkpoints", "best", "best.json", "head/checkpoints", "head/best", "head/best.json")
            for name in names:
                shutil.rmtree(folder / name) if (folder / name).is_dir() else (folder / name).unlink()
        else:
            for path in (folder / "checkpoints").glob("ckpt-6.*"):
                path.unlink()
        run(layers, folder, do_eval=False)
        assert [line["step"] for line in run_dir.read_metrics(str(folder))] == [0, 3, 6]
        readers = [
            tf.train.load_checkpoint(str(tmp_path / name / "checkpoints/ckpt-6")) for name in ("whole", "stopped")
        ]
        for name in readers[0].get_variable_to_shape_map():
            if not name.startswith(("_CHECKPOINTABLE_OBJECT_GRAPH", "save_counter")):
                np.testing.assert_array_equal(*(reader.get_tensor(name) for reader in readers), err_msg=name)


def test_rates_fall_from_layer_to_layer(config, tmp_path):
    rates = {
        name: train.layer_rate(0.5, 3, name)
        for name in ("transformer/layer_2/output/kernel:0", "transformer/layer_0/output/bias:0", "logits/kernel:0")
    }
    assert list(rates.values()) == [1.0, 0.25, 1.0]
    assert train.layer_rate(0.5, 3, "word_embeddings/embeddings:0") == 0.125
    layers = dataclasses.replace(config, **LAYERS)
    data = input_pipeline.open_data(layers)
    model = train.create_model(layers, data.facts, record_format.load_tokenizer(layers.data_dir, data.tokenization))
    assert train.count_layers(model.network) == 2
    assert train.create_optimizer(layers, model).rate_of("transformer/layer_0/output/bias:0") == 0.5
