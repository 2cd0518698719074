"""Pre-training: rows of texts, segments, masks, and whole runs of a tiny BERT."""

import dataclasses
import shutil
import types

import numpy as np
import pytest
import tensorflow as tf

from tests.programs import run_main
from tests.shares import assert_shares_are_the_whole
from tests.text import bert_numpy, small_bert, small_data
from text import bert_weights, datasets, pretrain, pretrain_data, record_format
from text.models.bert import BertConfig, create_bert
from text.models.pretrainer import PretrainingModel, create_pretraining_network
from text.pretrain import PretrainConfig
from text.tokenization import Tokenizer
from utils import distribution, files, run_dir, training
from utils.optimizers import create_bert_adamw

pytestmark = pytest.mark.slow

NUM_TEXTS, DEV_SIZE = 60, 10


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A tiny BERT with its vocabulary, and texts of several sentences."""
    folder = tmp_path_factory.mktemp("pretrain")
    weights = small_bert.create_weights(encoder_config(folder))
    small_bert.write_google(folder / "init", weights, encoder_config(folder))
    (folder / "vocab.txt").replace(folder / "init/vocab.txt")
    rng = np.random.default_rng(0)
    sentences = [[small_data.random_text(rng, number % 2, 6) for _ in range(1 + number % 7)] for number in range(60)]
    records = [{"text": " ".join(text), "title": "so it is", "label": "ab"[i % 2]} for i, text in enumerate(sentences)]
    small_data.write_records(folder / "train.csv", records)
    return folder


def encoder_config(folder):
    num_pieces = len(small_data.write_vocab(folder / "vocab.txt"))
    return BertConfig(num_pieces, 12, 1, 3, 20, max_position_embeddings=40)


@pytest.fixture(scope="module")
def config(folder):
    return PretrainConfig(
        task_name="csv",
        train_file=str(folder / "train.csv"),
        init_checkpoint=str(folder / "init/bert_model.ckpt"),
        dev_size=DEV_SIZE,
        max_seq_length=32,
        train_batch_size=8,
        eval_batch_size=8,
        train_steps=40,
        warmup_steps=4,
        learning_rate=5e-3,
        save_steps=20,
        log_steps=10,
        max_save=5,
    )


@pytest.fixture(scope="module")
def vocabulary(folder):
    return pretrain_data.Vocabulary(Tokenizer(str(folder / "init/vocab.txt")))


@pytest.fixture(scope="module")
def record_sets(config, folder):
    return write_records(config, folder / "records")


def write_records(config, data_dir):
    vocab_path = bert_weights.find_vocab(config.init_checkpoint)
    return pretrain_data.write_records(config, datasets.open_source(config), vocab_path, str(data_dir))


def run(config, model_dir):
    return pretrain.pretrain(config, str(model_dir), distribution.create_strategy("one_device"))


# ---- settings -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"init_checkpoint": ""}, "init_checkpoint='': give a checkpoint, or bert_config_file and vocab_file"),
        ({"init_checkpoint": "", "vocab_file": "vocab.txt"}, "init_checkpoint='': give a checkpoint"),
        ({"warmup_steps": 40}, "warmup_steps=40: expected fewer than train_steps=40"),
        ({"train_batch_size": 1}, "train_batch_size=1: expected 2 or more, since next_sentence takes segments"),
        ({"eval_batch_size": 1}, "eval_batch_size=1: expected 2 or more"),
        ({"dev_size": 0}, "dev_size=0: expected at least 1"),
    ],
)
def test_settings_that_do_not_fit_are_refused(config, changes, message):
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(config, **changes)


def test_a_batch_of_one_is_allowed_without_the_next_sentence(config):
    dataclasses.replace(config, train_batch_size=1, next_sentence=False)


# ---- texts to records -----------------------------------------------------------------------------------------------


def cut(vocabulary, text, length):
    pieces = vocabulary.tokenizer.piece_ids(vocabulary.tokenizer.split([text]))[0]
    return [
        " ".join(vocabulary.tokenizer.vocab[piece] for piece in row)
        for row in pretrain_data.cut(pieces, vocabulary, length)
    ]


@pytest.mark.parametrize(
    "text, rows",
    [
        ("the film was good. it was!", ["the film was good . it", "it was !"]),
        ("the film. was it? not very", ["the film . was it ?", "not very"]),
        ("the film was not very ... good ! !", ["the film was not very .", ". . good ! !"]),
        ("a. the film was of the book and place", ["a . the film was of", "the film was of the book", "and place"]),
        ("a. the film... good", ["a . the film . .", "the film . . . good"]),
        ("the film was good", ["the film was good"]),
        ("the film was good it was", ["the film was good it was"]),
        ("good ux", ["good u ##x"]),
        ("good", []),
        ("xxxxxxxxx", []),
        ("", []),
    ],
)
def test_a_row_begins_with_a_sentence_and_is_filled_up(vocabulary, text, rows):
    assert cut(vocabulary, text, 6) == rows


def test_rows_hold_all_pieces_of_a_text_in_order(vocabulary):
    rng = np.random.default_rng(0)
    words = vocabulary.tokenizer.vocab.index("the") + np.arange(20)
    stop = vocabulary.tokenizer.vocab.index(".")
    for _ in range(50):
        pieces = rng.choice([*words, stop, stop, stop], rng.integers(2, 80)).astype(np.int32)
        rows, end = list(pretrain_data.cut(pieces, vocabulary, 10)), 0
        for row in rows:
            start = (row.ctypes.data - pieces.ctypes.data) // 4
            begins_sentence = start == 0 or (pieces[start - 1] == stop and pieces[start] != stop)
            assert start == end or (begins_sentence and 0 < end - start < 10)
            assert len(row) == 10 or start + len(row) == len(pieces)
            end = start + len(row)
        assert end >= len(pieces) - 1  # a last piece that would be a row of its own is left out


def read_rows(record_set):
    serialized = list(tf.data.TFRecordDataset(record_set.paths))
    parsed = record_format.parse(tf.stack(serialized), ["original", "index"])
    return parsed["index"].numpy(), [np.frombuffer(row, "<i4") for row in parsed["original"]["pieces"].numpy()]


def test_the_texts_held_out_are_in_no_batch_and_the_same_for_every_seed(config, record_sets, tmp_path):
    (train_texts, _), (dev_texts, dev_rows) = map(read_rows, record_sets)
    assert len(set(dev_texts)) == DEV_SIZE and not set(dev_texts) & set(train_texts)
    assert set(dev_texts) | set(train_texts) == set(range(NUM_TEXTS))
    assert [record_set.num_examples for record_set in record_sets] == [len(train_texts), len(dev_texts)]
    other = write_records(dataclasses.replace(config, seed=5), tmp_path)
    np.testing.assert_array_equal(np.concatenate(read_rows(other[1])[1]), np.concatenate(dev_rows))


def test_a_title_is_a_sentence(config, vocabulary, tmp_path):
    record_set, _ = write_records(dataclasses.replace(config, title_column="title"), tmp_path)
    expected = vocabulary.tokenizer.piece_ids([["so", "it", "is", "."]])[0]
    texts, rows = read_rows(record_set)
    for number in np.unique(texts, return_index=True)[1]:
        np.testing.assert_array_equal(rows[number][: len(expected)], expected)


def test_records_are_written_once_and_refused_for_other_settings(config, record_sets, folder, monkeypatch):
    with monkeypatch.context() as context:
        context.setattr(pretrain_data, "load_vocabulary", None)
        assert write_records(config, folder / "records") == record_sets
    message = (
        r"max_seq_length: found 32, expected 20\)\. Delete that folder, or choose another --data_dir or --model_dir"
    )
    with pytest.raises(ValueError, match=message):
        write_records(dataclasses.replace(config, max_seq_length=20), folder / "records")


def test_too_few_texts_to_hold_some_out_are_refused(config, tmp_path):
    with pytest.raises(ValueError, match="dev_size=60: expected fewer than the 60 texts that there are"):
        write_records(dataclasses.replace(config, dev_size=60), tmp_path)


def test_texts_of_one_word_are_refused(config, tmp_path):
    small_data.write_records(tmp_path / "train.csv", [{"text": "good", "label": label} for label in "abab"])
    config = dataclasses.replace(config, train_file=str(tmp_path / "train.csv"), dev_size=1)
    with pytest.raises(ValueError, match="train is empty: no train text of csv has two words"):
        write_records(config, tmp_path)


# ---- segments -------------------------------------------------------------------------------------------------------
# Piece 1 ends a sentence, 2 goes on with a word, and every other piece is unlike all others.

PIECES = types.SimpleNamespace(ends_sentence=np.arange(20_000) == 1, is_inner=np.arange(20_000) == 2)


def create_rows(num_rows, width=24, seed=0):
    """Rows of different lengths in which each third piece, about, ends a sentence."""
    rng = np.random.default_rng(seed)
    ids = 10 + np.arange(num_rows * width, dtype=np.int32).reshape([num_rows, width])
    ids[(rng.random(ids.shape) < 0.3) & (np.arange(width) % 6 > 0)] = 1
    ids[:, 5] = 1  # at least two sentences, of which the first begins the row
    lengths = rng.integers(width // 2, width + 1, num_rows).astype(np.int32)
    ids[np.arange(width) >= lengths[:, np.newaxis]] = 0
    return ids, lengths


def choose_segments(ids, lengths, texts, seed=(0, 0)):
    segments = pretrain_data.choose_segments(tf.constant(ids), tf.constant(lengths), tf.constant(texts), seed, PIECES)
    first, second, is_random = (segment.numpy() for segment in segments)
    return list(first), list(second), is_random


def begins_sentence(row, position):
    return row[position - 1] == 1 and row[position] != 1


def test_true_segments_are_a_row_cut_where_a_sentence_begins():
    ids, lengths = create_rows(200)
    first, second, is_random = choose_segments(ids, lengths, np.zeros(200))
    assert not is_random.any()
    for row, length, a, b in zip(ids, lengths, first, second):
        np.testing.assert_array_equal(np.concatenate([a, b]), row[:length])
        assert len(a) and len(b) and begins_sentence(row, len(a))


def test_random_segments_are_of_another_text_begin_with_a_sentence_and_are_as_long_as_the_true_one():
    ids, lengths = create_rows(400)
    texts = np.arange(400) // 2
    first, second, is_random = choose_segments(ids, lengths, texts)
    assert 0.4 < is_random.mean() < 0.6
    as_long = 0
    for row in np.flatnonzero(is_random):
        np.testing.assert_array_equal(first[row], ids[row, : len(first[row])])
        known = second[row][second[row] > 2]
        (source,) = np.unique((known - 10) // 24)
        assert texts[source] != texts[row]
        start = known[0] - 10 - 24 * source
        assert second[row][0] == known[0] and (start == 0 or begins_sentence(ids[source], start))
        assert len(second[row]) <= lengths[row] - len(first[row])
        as_long += len(second[row]) == lengths[row] - len(first[row])
    assert as_long > 0.8 * is_random.sum()


def test_every_beginning_of_a_sentence_is_as_likely():
    row = np.array([[10, 1, 11, 12, 1, 1, 13, 1, 14, 0]] * 3000, np.int32)
    first, _, _ = choose_segments(row, np.full(3000, 9, np.int32), np.zeros(3000))
    places, counts = np.unique([len(a) for a in first], return_counts=True)
    assert places.tolist() == [2, 6, 8]
    assert abs(counts - 1000).max() < 120


def test_a_row_of_one_sentence_is_cut_between_words():
    row = np.array([[10, 2, 11, 12, 2, 1, 0]] * 300, np.int32)
    first, _, _ = choose_segments(row, np.full(300, 6, np.int32), np.zeros(300))
    assert {len(a) for a in first} == {2, 3, 5}


def test_a_batch_of_one_row_keeps_it():
    ids, lengths = create_rows(1)
    first, second, is_random = choose_segments(ids, lengths, [0])
    np.testing.assert_array_equal(np.concatenate([first[0], second[0]]), ids[0, : lengths[0]])
    assert is_random.tolist() == [0]


# ---- masks ----------------------------------------------------------------------------------------------------------


def create_sequences(vocabulary, num_rows=400, length=42, num_pieces=range(8, 40)):
    """[CLS] pieces [SEP] and padding; a third of the pieces go on with a word."""
    rng, tokenizer = np.random.default_rng(0), vocabulary.tokenizer
    ids = np.zeros([num_rows, length], np.int32)
    for row, count in zip(ids, np.resize(num_pieces, num_rows)):
        words = rng.choice(np.flatnonzero(~vocabulary.is_inner)[5:], count)
        row[1 : count + 1] = np.where(rng.random(count) < 0.33, rng.choice(np.flatnonzero(vocabulary.is_inner)), words)
        row[0], row[1], row[count + 1] = tokenizer.cls_id, words[0], tokenizer.sep_id
    return ids


def mask(vocabulary, ids, whole_words=False, seed=(0, 0)):
    """The masked ids, and which positions are chosen."""
    masked, predictions = pretrain_data.mask_pieces(tf.constant(ids), seed, vocabulary, whole_words)
    positions, labels, weights = (predictions[name].numpy() for name in ("positions", "mlm_labels", "mlm_weights"))
    rows, columns = np.nonzero(weights)
    counts = np.zeros(ids.shape, int)
    np.add.at(counts, (rows, positions[rows, columns]), 1)
    assert counts.max() == 1 and not positions[weights == 0].any()
    np.testing.assert_array_equal(labels, np.take_along_axis(ids, positions, axis=1))
    return masked.numpy(), counts > 0


@pytest.mark.parametrize("whole_words", [False, True])
def test_special_pieces_and_padding_are_never_masked_and_the_rest_stays(vocabulary, whole_words):
    ids = create_sequences(vocabulary)
    masked, chosen = mask(vocabulary, ids, whole_words)
    assert not chosen[vocabulary.is_special[ids]].any()
    np.testing.assert_array_equal(masked[~chosen], ids[~chosen])


def test_fifteen_percent_of_each_sequence_are_chosen(vocabulary):
    ids = create_sequences(vocabulary)
    _, chosen = mask(vocabulary, ids)
    num_pieces = (~vocabulary.is_special[ids]).sum(axis=1)
    np.testing.assert_array_equal(chosen.sum(axis=1), np.maximum(np.round(0.15 * num_pieces), 1))


@pytest.mark.parametrize("whole_words", [False, True])
def test_every_position_is_as_likely(vocabulary, whole_words):
    ids = create_sequences(vocabulary, num_rows=3000, num_pieces=[40])
    ids[:, 2:41] = np.where(vocabulary.is_inner[ids[:, 2:41]], ids[:, 1:2], ids[:, 2:41])  # words of one piece
    _, chosen = mask(vocabulary, ids, whole_words)
    assert abs(chosen[:, 1:41].mean(axis=0) - 0.15).max() < 0.03


@pytest.mark.parametrize("whole_words", [False, True])
def test_of_the_chosen_pieces_most_are_masked_some_replaced_and_some_left(vocabulary, whole_words):
    ids = create_sequences(vocabulary, num_rows=2000)
    masked, chosen = mask(vocabulary, ids, whole_words)
    new, old = masked[chosen], ids[chosen]
    is_mask, is_left = new == vocabulary.tokenizer.mask_id, new == old
    assert abs(is_mask.mean() - 0.8) < 0.02
    assert abs(is_left.mean() - 0.1) < 0.02
    replaced = new[~is_mask & ~is_left]
    assert abs(len(replaced) / len(new) - 0.1) < 0.02
    # Any piece but those in brackets, with which the small vocabulary begins.
    ordinary = set(range(len(small_data.SPECIAL_PIECES), vocabulary.tokenizer.vocab_size))
    assert set(replaced) <= ordinary and len(set(replaced)) > 0.95 * len(ordinary)


def partly_chosen_words(vocabulary, ids, chosen):
    """In how many places a word goes on with a piece that is chosen though the one before it is not, or otherwise."""
    return np.count_nonzero(vocabulary.is_inner[ids[:, 1:]] & (chosen[:, 1:] != chosen[:, :-1]))


def test_whole_words_are_masked_together(vocabulary):
    ids = create_sequences(vocabulary)
    _, chosen = mask(vocabulary, ids, whole_words=True)
    assert partly_chosen_words(vocabulary, ids, chosen) == 0
    num_pieces = (~vocabulary.is_special[ids]).sum(axis=1)
    more = chosen.sum(axis=1) - np.maximum(np.round(0.15 * num_pieces), 1)
    assert (more >= 0).all() and 0 < more.mean() < 1
    _, chosen = mask(vocabulary, ids)
    assert partly_chosen_words(vocabulary, ids, chosen) > 100


def test_a_word_without_room_is_not_masked_in_part(vocabulary):
    inner = np.flatnonzero(vocabulary.is_inner)[0]
    ids = create_sequences(vocabulary, num_pieces=[40])
    ids[:, 11:36] = inner
    _, chosen = mask(vocabulary, ids, whole_words=True)
    assert partly_chosen_words(vocabulary, ids, chosen) == 0
    assert chosen.any(axis=1).mean() > 0.8


def test_a_row_that_begins_within_a_word_is_masked_like_others(vocabulary):
    ids = create_sequences(vocabulary, num_rows=2000, num_pieces=[40])
    ids[:, 1] = np.flatnonzero(vocabulary.is_inner)[0]
    ids[:, 2] = vocabulary.tokenizer.vocab.index("the")
    masked, chosen = mask(vocabulary, ids, whole_words=True)
    assert abs(chosen[:, 1].mean() - 0.15) < 0.04 and not chosen[:, 0].any()
    assert abs(np.corrcoef(chosen[:, 1], chosen[:, 20])[0, 1]) < 0.1


# ---- batches --------------------------------------------------------------------------------------------------------


def batch_maker(config, vocabulary, fixed_length=False):
    def create_batch(rows, seed, take=tf.identity):
        return pretrain_data.create_pretraining_batch(rows, seed, take, config, vocabulary, fixed_length)

    return create_batch


def train_batches(config, vocabulary, record_set, start_step, count):
    create_batch = batch_maker(config, vocabulary)
    dataset = pretrain_data.create_train_dataset(config, record_set, create_batch, start_step)
    return list(dataset.take(count).as_numpy_iterator())


@pytest.fixture(scope="module")
def batches(config, vocabulary, record_sets):
    return train_batches(config, vocabulary, record_sets[0], 0, 5)


@pytest.mark.parametrize("next_sentence", [True, False])
def test_hosts_together_make_the_batches_of_one(config, vocabulary, record_sets, next_sentence):
    config = dataclasses.replace(config, next_sentence=next_sentence, whole_word_masking=True)
    create_batch = batch_maker(config, vocabulary)

    def create_train(share):
        return pretrain_data.create_train_dataset(config, record_sets[0], create_batch, 3, share)

    def create_dev(share):
        return pretrain_data.create_dev_dataset(record_sets[1], 8, create_batch, share)

    assert_shares_are_the_whole(create_train, 3)
    assert_shares_are_the_whole(create_dev, -(-record_sets[1].num_examples // 8))


def unmask(batch):
    ids = batch["ids"].copy()
    for row, positions, labels, weights in zip(ids, batch["positions"], batch["mlm_labels"], batch["mlm_weights"]):
        row[positions[weights > 0]] = labels[weights > 0]
    return ids


def test_batches_depend_on_seed_and_step_alone(config, vocabulary, record_sets, batches):
    for one, other in zip(batches[3:], train_batches(config, vocabulary, record_sets[0], 3, 2), strict=True):
        for name in one:
            np.testing.assert_array_equal(one[name], other[name])
    other = train_batches(dataclasses.replace(config, seed=1), vocabulary, record_sets[0], 0, 1)[0]
    assert unmask(other).shape != unmask(batches[0]).shape or (unmask(other) != unmask(batches[0])).any()


def test_masks_and_segments_change_from_pass_to_pass(config, vocabulary, record_sets):
    rows = record_format.parse(
        tf.stack(list(tf.data.TFRecordDataset(record_sets[0].paths).take(8))), ["original", "index"]
    )
    create_batch = batch_maker(config, vocabulary, fixed_length=True)
    one, same, other = (create_batch(rows, tf.constant([0, step], tf.int64)) for step in (1, 1, 2))
    for name in one:
        np.testing.assert_array_equal(one[name], same[name])
    for name in ("ids", "type_ids", "positions", "nsp_labels"):
        assert (one[name].numpy() != other[name].numpy()).any(), name


def test_a_sequence_has_two_segments_between_special_pieces(vocabulary, batches):
    tokenizer = vocabulary.tokenizer
    for batch in batches:
        assert batch["ids"].shape[1] in (16, 32)
        assert 0.05 < np.mean(batch["ids"][batch["ids"] > 0] == tokenizer.mask_id) < 0.2
        for ids, type_ids in zip(unmask(batch), batch["type_ids"]):
            length = np.count_nonzero(ids)
            first, second = np.flatnonzero(ids == tokenizer.sep_id)
            assert ids[0] == tokenizer.cls_id and second == length - 1 and not ids[length:].any()
            np.testing.assert_array_equal(np.flatnonzero(type_ids), np.arange(first + 1, length))


def test_without_the_next_sentence_a_sequence_is_one_row(config, vocabulary, record_sets):
    config = dataclasses.replace(config, next_sentence=False)
    rows = {tuple(row) for row in read_rows(record_sets[0])[1]}
    (batch,) = train_batches(config, vocabulary, record_sets[0], 0, 1)
    assert not batch["type_ids"].any() and "nsp_labels" not in batch
    for ids in unmask(batch):
        assert tuple(ids[1 : np.count_nonzero(ids) - 1]) in rows


def test_evaluation_has_every_row_once_and_always_the_same_masks(config, vocabulary, record_sets):
    config = dataclasses.replace(config, next_sentence=False)
    create_batch = batch_maker(config, vocabulary, fixed_length=True)
    dataset = pretrain_data.create_dev_dataset(record_sets[1], config.eval_batch_size, create_batch)
    batches, again = list(dataset.as_numpy_iterator()), list(dataset.as_numpy_iterator())
    for one, other in zip(batches, again, strict=True):
        assert one["ids"].shape == (8, 32)
        for name in one:
            np.testing.assert_array_equal(one[name], other[name])
    sequences = [ids[1 : np.count_nonzero(ids) - 1] for batch in batches for ids in unmask(batch) if ids.any()]
    assert max(map(len, sequences)) == config.max_seq_length - 3
    assert sorted(map(tuple, sequences)) == sorted(map(tuple, read_rows(record_sets[1])[1]))
    assert len(sequences) % 8 and not batches[-1]["mlm_weights"][len(sequences) % 8 :].any()


# ---- network --------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def network(config, folder):
    return pretrain.create_model(config, encoder_config(folder)).network


def test_the_network_starts_from_all_that_the_checkpoint_holds(config, network):
    variables, weights = bert_weights.named_variables(network), bert_weights.read_weights(config.init_checkpoint)
    assert set(variables) == set(weights) and "cls/seq_relationship/output_weights" in variables
    assert len(variables) == len(network.trainable_variables)
    for name, variable in variables.items():
        np.testing.assert_array_equal(np.ravel(variable), np.ravel(weights[name]))


def test_the_logits_are_those_that_numpy_computes_from_the_checkpoint(config, network, batches):
    weights = bert_weights.read_weights(config.init_checkpoint)
    texts = weights, batches[0]["ids"], batches[0]["type_ids"], 3
    hidden = np.take_along_axis(bert_numpy.hidden_states(*texts), batches[0]["positions"][:, :, np.newaxis], axis=1)
    hidden = bert_numpy.gelu(bert_numpy.dense(hidden, weights, "cls/predictions/transform/dense"))
    hidden = bert_numpy.layer_norm(hidden, weights, "cls/predictions/transform/LayerNorm")
    expected = hidden @ weights["bert/embeddings/word_embeddings"].T + weights["cls/predictions/output_bias"]
    logits = network({name: batches[0][name] for name in ("ids", "type_ids", "positions")})
    np.testing.assert_allclose(logits["mlm"], expected, atol=1e-5)
    kernel, bias = (weights[f"cls/seq_relationship/output_{name}"] for name in ("weights", "bias"))
    np.testing.assert_allclose(logits["nsp"], bert_numpy.pooled(*texts) @ kernel.T + bias, atol=1e-5)


def test_heads_that_a_checkpoint_lacks_start_anew_and_share_the_embeddings(config, folder, tmp_path, caplog):
    weights = small_bert.without(bert_weights.read_weights(config.init_checkpoint), "cls/")
    checkpoint = small_bert.write_hugging_face(tmp_path, weights, encoder_config(folder))
    network = pretrain.create_model(
        dataclasses.replace(config, init_checkpoint=checkpoint), encoder_config(folder)
    ).network
    assert "has no head of a language model, as sentence encoders have none" in caplog.text
    features = {name: np.ones([1, 2], np.int32) for name in ("ids", "type_ids", "positions")}
    embeddings = bert_weights.named_variables(network)["bert/embeddings/word_embeddings"]
    before = network(features)["mlm"].numpy()
    embeddings.assign(tf.concat([embeddings[:-1], 2 * embeddings[-1:]], axis=0))
    np.testing.assert_allclose(network(features)["mlm"][..., -1], 2 * before[..., -1], rtol=1e-5)


def test_biases_and_layer_norms_do_not_decay(config, network):
    optimizer = create_bert_adamw(config, pretrain.NO_DECAY)
    decaying = {variable.name for variable in network.trainable_variables if optimizer._use_weight_decay(variable)}
    kept = {v.name for v in network.trainable_variables} - decaying
    assert all("norm" in name.lower() or "bias" in name for name in kept) and len(kept) == 18
    assert not any("norm" in name.lower() or "bias" in name for name in decaying)


def make_step_and_evaluate(strategy, small_config, batch, create_dev_batches):
    with strategy.scope():
        tf.keras.utils.set_random_seed(0)
        model = PretrainingModel(create_pretraining_network(small_config))
        model.compile(optimizer=tf.keras.optimizers.SGD(0.5, jit_compile=False))
    batches = distribution.distribute(strategy, lambda _: tf.data.Dataset.from_tensors(batch).repeat())
    training.create_steps(model, 1)(iter(batches))
    metrics = {name: metric.result().numpy() for name, metric in model.train_metrics.items()}
    test_metrics = training.evaluate(model, strategy, create_dev_batches, 16, 8)  # two batches
    return model.network.trainable_variables, metrics, test_metrics


def test_two_replicas_match_one(config, folder, vocabulary, record_sets, batches):
    """Although the pieces to be predicted lie unevenly on them."""
    small_config = dataclasses.replace(
        encoder_config(folder), hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, initializer_range=0.3
    )

    def create_dev_batches(share):
        return pretrain_data.create_dev_dataset(record_sets[1], 8, batch_maker(config, vocabulary), share)

    uneven = (np.arange(8) >= 3)[:, np.newaxis].astype(np.float32)
    batch = batches[0] | {"mlm_weights": uneven * batches[0]["mlm_weights"]}
    one, two = (
        make_step_and_evaluate(distribution.create_strategy(name), small_config, batch, create_dev_batches)
        for name in ("one_device", "mirrored")
    )
    for weight, other in zip(one[0], two[0], strict=True):
        np.testing.assert_allclose(weight, other, atol=1e-5, err_msg=weight.name)
    assert one[1] == pytest.approx(two[1], rel=1e-5)
    assert one[2] == pytest.approx(two[2], rel=1e-5) and len(one[2]) == 4


# ---- runs -----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def whole_run(config, folder):
    """A run, and what it would leave if it died just before its last checkpoint."""
    save, model_dir, killed_dir = run_dir.Checkpoints.save, folder / "run", folder / "killed"

    def copy_and_save(self, step):
        if step == 40:
            shutil.copytree(model_dir, killed_dir)
        save(self, step)

    with pytest.MonkeyPatch.context() as context:
        context.setattr(run_dir.Checkpoints, "save", copy_and_save)
        arguments = [f"--{name}={value}" for name, value in dataclasses.asdict(config).items()]
        run_main(pretrain, f"--model_dir={model_dir}", "--strategy=one_device", "--workers=1", *arguments)
    result = files.read_json(str(model_dir / "result.json"))
    return types.SimpleNamespace(result=result, model_dir=model_dir, killed_dir=killed_dir)


def read_lines(model_dir):
    lines = run_dir.read_metrics(str(model_dir))
    measured = ("examples_per_second", "input_wait_ratio")
    return [{name: value for name, value in line.items() if name not in measured} for line in lines]


def read_checkpoint(path):
    reader = tf.train.load_checkpoint(str(path))
    others = ("_CHECKPOINTABLE_OBJECT_GRAPH", "save_counter/.ATTRIBUTES/VARIABLE_VALUE")
    keys = [key for key in reader.get_variable_to_shape_map() if key not in others]
    return {key: reader.get_tensor(key) for key in keys}


def test_the_loss_falls(whole_run):
    lines = read_lines(whole_run.model_dir)
    assert lines[-1]["mlm_loss"] < lines[1]["mlm_loss"] - 1
    assert whole_run.result["best"]["dev_mlm_loss"] < whole_run.result["initial"]["dev_mlm_loss"] - 1
    assert lines[-1]["mlm_accuracy"] > lines[0]["dev_mlm_accuracy"]


def test_a_run_leaves_its_files_and_the_losses_before_and_after(whole_run):
    lines = {line["step"]: line for line in read_lines(whole_run.model_dir)}
    result = whole_run.result
    assert list(lines) == [0, 10, 20, 30, 40]
    train_names = {"loss", "mlm_loss", "mlm_accuracy", "nsp_loss", "nsp_accuracy"}
    dev_names = {f"dev_{name}" for name in train_names}
    assert set(lines[0]) == dev_names | {"step"}
    for step in (10, 20, 30, 40):
        expected = train_names | {"step", "learning_rate"} | (set() if step % 20 else dev_names)
        assert set(lines[step]) == expected
    best = min((20, 40), key=lambda step: lines[step]["dev_loss"])
    assert files.read_json(str(whole_run.model_dir / "best.json")) == {
        "step": best,
        "dev_loss": lines[best]["dev_loss"],
    }
    for name, step in (("initial", 0), ("best", best)):
        assert result[name] == {name: lines[step][name] for name in dev_names}
        assert result[name]["dev_loss"] == pytest.approx(result[name]["dev_mlm_loss"] + result[name]["dev_nsp_loss"])
    assert result["step"] == best and result["examples_per_second"] > 0


def test_the_result_is_a_checkpoint_for_a_classifier(whole_run, folder, config):
    init_checkpoint = str(whole_run.model_dir / "bert")
    assert BertConfig.read(bert_weights.find_config(init_checkpoint)) == encoder_config(folder)
    vocab = Tokenizer(bert_weights.find_vocab(init_checkpoint)).vocab
    assert vocab == Tokenizer(bert_weights.find_vocab(config.init_checkpoint)).vocab
    network = create_bert(encoder_config(folder), num_classes=2, max_seq_length=32)
    report = bert_weights.load_weights(network, init_checkpoint)
    assert report.initial == () and all(name.startswith("cls/") for name in report.unused)
    best = read_checkpoint(whole_run.model_dir / f"best/ckpt-{whole_run.result['step']}")
    trained = {array.tobytes() for array in best.values()}
    before = bert_weights.read_weights(config.init_checkpoint)
    for name, variable in bert_weights.named_variables(network).items():
        assert variable.numpy().tobytes() in trained, name
        # Adding the same to all keys changes no attention, so their bias has no gradient.
        assert (np.ravel(variable) != np.ravel(before[name])).any() or name.endswith("key/bias"), name


def test_resumed_run_equals_uninterrupted_run(config, whole_run):
    assert read_lines(whole_run.killed_dir)[-1]["step"] == 40
    assert tf.train.latest_checkpoint(whole_run.killed_dir / "checkpoints").endswith("ckpt-20")
    result = run(config, whole_run.killed_dir)
    assert result["best"] == whole_run.result["best"] and result["initial"] == whole_run.result["initial"]
    assert read_lines(whole_run.killed_dir) == read_lines(whole_run.model_dir)
    for name in ("checkpoints/ckpt-40", f"best/ckpt-{result['step']}"):
        arrays, expected = (read_checkpoint(path / name) for path in (whole_run.killed_dir, whole_run.model_dir))
        assert arrays.keys() == expected.keys() and len(arrays) > 60
        for key in arrays:
            np.testing.assert_array_equal(arrays[key], expected[key], err_msg=key)


def test_the_weights_with_the_lowest_loss_on_the_texts_held_out_are_kept(config, folder, tmp_path, monkeypatch):
    """The run also does without the next sentence, and so leaves the pooler alone."""
    losses = iter([1.0, 5.0, 3.0, 4.0])  # before the first step, and after each of three
    monkeypatch.setattr(training, "evaluate", lambda *arguments: {"mlm_loss": next(losses), "mlm_accuracy": 0.5})
    config = dataclasses.replace(
        config,
        train_steps=3,
        warmup_steps=1,
        save_steps=1,
        next_sentence=False,
        whole_word_masking=True,
    )
    result = run(dataclasses.replace(config, data_dir=str(folder / "records")), tmp_path)
    assert result["step"] == 2 and result["best"]["dev_loss"] == 3.0 and result["initial"]["dev_loss"] == 1.0
    assert not (tmp_path / "records").exists()
    assert not any("nsp" in name for line in read_lines(tmp_path) for name in line)
    weights = bert_weights.read_weights(str(tmp_path / "bert"))
    best, last = (read_checkpoint(tmp_path / f"{name}").values() for name in ("best/ckpt-2", "checkpoints/ckpt-3"))
    embeddings = weights["bert/embeddings/word_embeddings"].tobytes()
    assert embeddings in {array.tobytes() for array in best} - {array.tobytes() for array in last}
    before = bert_weights.read_weights(config.init_checkpoint)
    np.testing.assert_array_equal(weights["bert/pooler/dense/kernel"], before["bert/pooler/dense/kernel"])


def test_a_vocabulary_without_a_mask_is_refused(config, tmp_path):
    small_data.write_vocab(tmp_path / "vocab.txt")
    text = (tmp_path / "vocab.txt").read_text()
    (tmp_path / "vocab.txt").write_text(text.replace("[MASK]", "[unused1]"))
    config = dataclasses.replace(config, vocab_file=str(tmp_path / "vocab.txt"))
    with pytest.raises(ValueError, match=r"vocab\.txt lacks \[MASK\], which pre-training needs"):
        run(config, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_sequences_longer_than_the_encoder_are_refused(config, tmp_path):
    with pytest.raises(
        ValueError, match="max_seq_length=41: the encoder of .*bert_config.json has 40 positions at most"
    ):
        run(dataclasses.replace(config, max_seq_length=41), tmp_path)
