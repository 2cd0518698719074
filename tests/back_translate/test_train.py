import dataclasses
import itertools
import json
import re
import shutil

import numpy as np
import pytest
import tensorflow as tf

from back_translate import model_files, train
from back_translate.engines import TensorFlowEngine
from back_translate.subwords import SubwordVocabulary, build_vocabulary, count_words
from back_translate.train import Corpus, Pair, TrainConfig, hold_out, read_pairs, smoothed_loss
from back_translate.transformer import Transformer, TransformerConfig

pytestmark = pytest.mark.slow

WORDS = {"the": "le", "small": "petit", "red": "rouge", "cat": "chat", "dog": "chien", "sees": "voit", "likes": "aime"}
NOUNS, ADJECTIVES, VERBS = ["cat", "dog"], ["small", "red"], ["sees", "likes"]


def sentences():
    """A toy language in which every word has one translation."""
    for adjective, noun, verb, other, object_ in itertools.product(ADJECTIVES, NOUNS, VERBS, ADJECTIVES, NOUNS):
        english = ["the", adjective, noun, verb, "the", other, object_]
        yield Pair(" ".join(english) + ".", " ".join(WORDS[word] for word in english) + ".")


@pytest.fixture
def corpus(tmp_path):
    path = tmp_path / "corpus.tsv"
    path.write_text("".join(f"{source}\t{target}\tsome attribution\n" for source, target in sentences()))
    return str(path)


@pytest.fixture(autouse=True)
def small_model(monkeypatch):
    size = {"hidden_size": 32, "num_encoder_layers": 1, "num_decoder_layers": 1, "num_heads": 2, "filter_size": 32}
    monkeypatch.setitem(train.SIZES, "small", size)


@pytest.fixture
def no_translation(monkeypatch):
    """For tests of other things: what is held out is not translated, which takes some seconds to compile."""
    monkeypatch.setattr(TensorFlowEngine, "translate", lambda self, sentences: sentences)


def create_config(corpus, **changes):
    settings = {"held_out": 4, "vocab_size": 50, "train_steps": 6, "save_steps": 2, "log_steps": 2, "average": 2}
    return TrainConfig(corpus=corpus, **settings | {"batch_tokens": 64, "warmup_steps": 10} | changes)


# ---- corpus ---------------------------------------------------------------------------------------------------------


def test_pairs_are_read_cleaned_and_without_repetitions(tmp_path):
    path = tmp_path / "corpus.tsv"
    path.write_bytes("Go!\tVa\u202f!\tCC-BY\r\n\nGo!\tVa !\nHi.\t \ne\u0301\tx\n\x0bA\x0b\tb\u2028c\n".encode())
    pairs = read_pairs(create_config(str(path), held_out=1))
    assert pairs == [Pair("Go!", "Va !"), Pair("é", "x"), Pair("A", "b c")]
    assert read_pairs(create_config(str(path), held_out=1, reverse=True))[0] == Pair("Va !", "Go!")


def test_two_files_give_the_same_pairs(corpus, tmp_path):
    pairs = list(sentences())
    for name, side in (("en", 0), ("fr", 1)):
        (tmp_path / name).write_text("".join(f"{pair[side]}\n" for pair in pairs))
    config = create_config("", source_file=str(tmp_path / "en"), target_file=str(tmp_path / "fr"))
    assert read_pairs(config) == read_pairs(create_config(corpus)) == pairs


def test_no_text_of_a_held_out_pair_is_trained_on_in_either_direction():
    rng = np.random.default_rng(0)
    pairs = [Pair(f"s{rng.integers(60)}", f"t{rng.integers(60)}") for _ in range(200)]
    pairs = list(dict.fromkeys(pairs))
    train_pairs, held_out = hold_out(pairs, 20, seed=1)
    assert len(held_out) == 20 and train_pairs
    for side in (0, 1):
        chosen = {pair[side] for pair in held_out}
        assert len(chosen) == 20 and chosen.isdisjoint(pair[side] for pair in train_pairs)
    reverse_train, reverse_held_out = hold_out([Pair(*pair[::-1]) for pair in pairs], 20, seed=1)
    assert [Pair(*pair[::-1]) for pair in reverse_held_out] == held_out
    assert [Pair(*pair[::-1]) for pair in reverse_train] == train_pairs
    assert hold_out(pairs, 20, seed=2)[1] != held_out


def create_corpus(config):
    pairs = list(sentences())
    return Corpus(pairs, build_vocabulary(count_words(text for pair in pairs for text in pair), 50), config)


def test_every_pair_comes_once_in_an_epoch_in_batches_within_the_budget(corpus):
    encoded = create_corpus(create_config(corpus))
    epochs = [encoded.batches_of_epoch(epoch) for epoch in (0, 0, 1)]
    for batches in epochs:
        assert sorted(np.concatenate(batches).tolist()) == list(range(32))
        assert len(batches) > 3
        assert all(len(numbers) * encoded.lengths[numbers].max() <= 64 for numbers in batches)
    flat = [np.concatenate(batches).tolist() for batches in epochs]
    assert flat[0] == flat[1] != flat[2]


def test_batches_can_begin_at_any_step(corpus):
    encoded = create_corpus(create_config(corpus))
    count = len(encoded.batches_of_epoch(0))
    whole = list(itertools.islice(encoded.batches(0), 3 * count))
    for start in (1, count, count + 2):
        for expected, batch in zip(whole[start:], encoded.batches(start)):
            np.testing.assert_array_equal(expected.source, batch.source)
            np.testing.assert_array_equal(expected.target, batch.target)


def test_texts_that_are_too_long_are_left_out_and_counted(corpus):
    encoded = create_corpus(create_config(corpus, max_length=9))
    assert encoded.num_too_long + len(encoded.pairs) == 32
    assert all(len(text) <= 9 for pair in encoded.pairs for text in pair)


# ---- training -------------------------------------------------------------------------------------------------------


def test_the_loss_is_the_cross_entropy_against_a_smoothed_target():
    logits = np.random.default_rng(0).normal(size=[1, 3, 5]).astype(np.float32)
    log_probs = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    target = np.full([2, 5], 0.1 / 4)
    target[[0, 1], [3, 2]] = 0.9
    loss, cross_entropy, accuracy = smoothed_loss(tf.constant(logits), tf.constant([[3, 2, 0]]), 0.1)
    np.testing.assert_allclose(loss, -(target * log_probs[0, :2]).sum() / 2, rtol=1e-5)
    np.testing.assert_allclose(cross_entropy, -(log_probs[0, 0, 3] + log_probs[0, 1, 2]) / 2, rtol=1e-5)
    np.testing.assert_allclose(accuracy, (logits[0, [0, 1]].argmax(-1) == [3, 2]).mean())


def test_a_toy_language_is_learnt(corpus, tmp_path):
    config = create_config(corpus, train_steps=150, save_steps=50, log_steps=50, average=1, learning_rate=1e-2)
    result = train.train(config, str(tmp_path / "run"))
    assert result["bleu"] > 60
    assert json.loads((tmp_path / "run" / "result.json").read_text())["bleu"] == result["bleu"]
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == [50, 100, 150]
    assert lines[-1]["loss"] < lines[0]["loss"] / 2
    # The saved model, quantised or not, is the one that was measured.
    sources = [pair.source for pair in sentences()]
    expected = TensorFlowEngine.load(str(tmp_path / "run" / "model")).translate(sources)
    parts = model_files.load_model(str(tmp_path / "run" / "model"))
    model_files.save_model(str(tmp_path / "int8"), *parts, storage="int8")
    again = TensorFlowEngine.load(str(tmp_path / "int8")).translate(sources)
    assert np.mean([a == b for a, b in zip(expected, again)]) > 0.9


def test_an_interrupted_run_ends_with_the_weights_of_an_uninterrupted_one(
    corpus, tmp_path, monkeypatch, no_translation
):
    config = create_config(corpus)
    train.train(config, str(tmp_path / "whole"))
    batches = Corpus.batches

    def stop_after_three(self, start_step):
        yield from itertools.islice(batches(self, start_step), 3)
        raise KeyboardInterrupt

    with monkeypatch.context() as context, pytest.raises(KeyboardInterrupt):
        context.setattr(Corpus, "batches", stop_after_three)
        train.train(config, str(tmp_path / "stopped"))
    train.train(config, str(tmp_path / "stopped"))
    whole, stopped = (model_files.load_model(str(tmp_path / name / "model"))[2] for name in ("whole", "stopped"))
    for name, array in whole.items():
        np.testing.assert_array_equal(array, stopped[name])


def test_the_model_is_the_mean_of_the_last_checkpoints(corpus, tmp_path, no_translation):
    train.train(create_config(corpus, storage="float32"), str(tmp_path / "run"))
    name = "decoder/layer_0/ffn/conv1/kernel"
    stored = []
    for step in (4, 6):
        reader = tf.train.load_checkpoint(str(tmp_path / "run" / "checkpoints" / f"ckpt-{step}"))
        (key,) = [key for key in reader.get_variable_to_shape_map() if "network" in key and _plain(key).endswith(name)]
        stored.append(reader.get_tensor(key))
    assert np.abs(stored[0] - stored[1]).max() > 0
    weights = model_files.load_model(str(tmp_path / "run" / "model"))[2]
    np.testing.assert_allclose(weights[name], np.mean(stored, axis=0), rtol=1e-5, atol=1e-7)


def _plain(key):
    """A checkpoint writes the slashes of a name as .S, and attributes at the end."""
    return key.replace(".S", "/").partition("/.ATTRIBUTES")[0]


def count_saved_steps(folder):
    return sorted(int(path.stem.rpartition("-")[2]) for path in (folder / "checkpoints").glob("*.index"))


def test_a_run_goes_on_for_longer_with_more_steps_and_gives_what_one_run_gives(corpus, tmp_path, no_translation):
    train.train(create_config(corpus, train_steps=8), str(tmp_path / "whole"))
    train.train(create_config(corpus, train_steps=3), str(tmp_path / "longer"))
    result = train.train(create_config(corpus, train_steps=8), str(tmp_path / "longer"))
    assert result["train_steps"] == 8
    whole, longer = (model_files.load_model(str(tmp_path / name / "model"))[2] for name in ("whole", "longer"))
    for name, array in whole.items():
        np.testing.assert_array_equal(array, longer[name])
    # After the step 3, the line of step 4 is the mean of one step.
    whole, longer = ((tmp_path / name / "metrics.jsonl").read_text().splitlines() for name in ("whole", "longer"))
    losses = {json.loads(line)["step"]: json.loads(line)["loss"] for line in longer}
    assert list(losses) == [2, 3, 4, 6, 8]
    (mean,) = [json.loads(line)["loss"] for line in whole if json.loads(line)["step"] == 4]
    assert (losses[3] + losses[4]) / 2 == pytest.approx(mean, rel=1e-5)


def test_a_stopped_run_ends_with_the_checkpoints_it_has_if_no_more_steps_are_asked_for(
    corpus, tmp_path, no_translation
):
    train.train(create_config(corpus, train_steps=6), str(tmp_path / "run"))
    expected = model_files.load_model(str(tmp_path / "run" / "model"))[2]
    shutil.rmtree(tmp_path / "run" / "model")
    (tmp_path / "run" / "result.json").unlink()
    result = train.train(create_config(corpus, train_steps=1), str(tmp_path / "run"))
    assert result["train_steps"] == 6  # as many as were made
    assert count_saved_steps(tmp_path / "run") == [4, 6]
    for name, array in model_files.load_model(str(tmp_path / "run" / "model"))[2].items():
        np.testing.assert_array_equal(array, expected[name])


def test_a_run_starts_from_the_weights_and_subwords_of_another_model(corpus, tmp_path, no_translation):
    settings = {"learning_rate": 0.0, "storage": "float32"}
    train.train(create_config(corpus, seed=1, **settings), str(tmp_path / "first"))
    first = str(tmp_path / "first" / "model")
    (tmp_path / "other.tsv").write_text("".join(f"new {number}\tneuf {number}\n" for number in range(20)))
    config = create_config(str(tmp_path / "other.tsv"), init_model=first, **settings)
    train.train(config, str(tmp_path / "second"))
    _, vocabulary, weights = model_files.load_model(first)
    _, found_vocabulary, found = model_files.load_model(str(tmp_path / "second" / "model"))
    assert found_vocabulary.subwords == vocabulary.subwords
    for name, array in weights.items():
        np.testing.assert_allclose(found[name], array, rtol=1e-6)


def test_a_model_of_another_size_is_no_start(corpus, tmp_path):
    save_random_model(tmp_path / "model")
    config = create_config(corpus, init_model=str(tmp_path / "model"))
    with pytest.raises(ValueError, match="init_model=.*hidden_size=16.* but size=small is .*hidden_size=32.*--size"):
        train.train(config, str(tmp_path / "run"))
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("sampling", [{}, {"top_p": 0.9}, {"top_k": 10}])
def test_the_model_has_the_sampling_that_is_to_be_used_with_it(corpus, tmp_path, no_translation, sampling):
    train.train(create_config(corpus, train_steps=1, **sampling), str(tmp_path / "run"))
    folder = str(tmp_path / "run" / "model")
    assert model_files.read_sampling(folder) == {"top_k": 0, "top_p": 1.0} | sampling
    assert json.loads((tmp_path / "run/model/config.json").read_text()).get("sampling", {}) == sampling


# ---- bad input ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "content, message",
    [
        (b"a\tb\nno tab here\n", "corpus.tsv, line 2: expected a tab between two texts"),
        (b"a\t\xff\n", "corpus.tsv, line 1 is not UTF-8"),
        (b"a\tb\n", "held_out=4: the corpus has only 1 pairs"),
        (b"a\tb\na\tc\na\td\na\te\na\tf\n", "held_out=4 leaves no pair to train on"),
    ],
)
def test_a_bad_corpus_is_refused(content, message, tmp_path):
    path = tmp_path / "corpus.tsv"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=message):
        train.train(create_config(str(path)), str(tmp_path / "run"))


def test_files_of_different_length_are_refused(tmp_path):
    (tmp_path / "en").write_text("a\nb\n")
    (tmp_path / "fr").write_text("a\n")
    config = create_config("", source_file=str(tmp_path / "en"), target_file=str(tmp_path / "fr"))
    with pytest.raises(ValueError, match=r"en has 2 lines, .*fr has 1: expected as many"):
        read_pairs(config)


def test_one_kind_of_corpus_must_be_given(corpus):
    with pytest.raises(ValueError, match="expected either corpus, or source_file and target_file"):
        create_config("")
    with pytest.raises(ValueError, match="expected either corpus, or source_file and target_file"):
        create_config(corpus, source_file="a", target_file="b")


# ---- saved models ---------------------------------------------------------------------------------------------------


def save_random_model(folder, storage="float32", num_subwords=29):
    config = TransformerConfig(29, 16, 1, 1, 2, 24)
    vocabulary = SubwordVocabulary(["<pad>", "<EOS>", *map(str, range(num_subwords - 2))])
    weights = {name: weight.numpy() for name, weight in Transformer(config, seed=1).weights.items()}
    model_files.save_model(str(folder), config, vocabulary, weights, storage)
    return config, vocabulary, weights


@pytest.mark.parametrize("storage, error", [("float32", 0), ("float16", 1e-3), ("int8", 1e-2)])
def test_a_saved_model_reads_back_as_exactly_as_its_numbers_allow(storage, error, tmp_path):
    config, vocabulary, weights = save_random_model(tmp_path, storage)
    found_config, found_vocabulary, found = model_files.load_model(str(tmp_path))
    assert found_config == config and found_vocabulary.subwords == vocabulary.subwords
    for name, array in weights.items():
        assert found[name].dtype == np.float32
        np.testing.assert_allclose(found[name], array, atol=error * np.abs(array).max())


def test_fewer_bits_take_less_room(tmp_path):
    sizes = []
    for storage in model_files.STORAGES:
        save_random_model(tmp_path / storage, storage)
        sizes.append(sum(array.nbytes for array in np.load(tmp_path / storage / "weights.npz").values()))
    assert sizes[0] == 2 * sizes[1] and sizes[2] < 0.65 * sizes[1]


def test_a_vocabulary_that_does_not_fit_is_refused(tmp_path):
    save_random_model(tmp_path, num_subwords=28)
    with pytest.raises(ValueError, match="the vocabulary has 28 subwords, the weights are for 29"):
        model_files.load_model(str(tmp_path))


def test_a_missing_or_misshapen_weight_is_named(tmp_path):
    config, vocabulary, weights = save_random_model(tmp_path)
    name = "encoder/layer_0/ffn/conv1/bias"
    changed = {key: array for key, array in weights.items() if key != name}
    model_files.save_model(str(tmp_path), config, vocabulary, changed)
    with pytest.raises(ValueError, match=f"weights.npz lacks the weight {name}"):
        model_files.load_model(str(tmp_path))
    model_files.save_model(str(tmp_path), config, vocabulary, weights | {name: np.zeros(3)})
    with pytest.raises(ValueError, match=re.escape(f"{name} has shape [3], expected [24]")):
        model_files.load_model(str(tmp_path))


BAD_CONFIGS = {
    "a list": lambda good: [],
    "nothing": lambda good: {},
    "a text for the model": lambda good: {"model": "small"},
    "a size that is missing": lambda good: {"model": {"vocab_size": 50}},
    "layers without end": lambda good: {"model": good | {"num_encoder_layers": 2**63}},
    "no layers": lambda good: {"model": good | {"num_decoder_layers": 0}},
    "no heads": lambda good: {"model": good | {"num_heads": 0}},
    "a size that is a text": lambda good: {"model": good | {"hidden_size": "8"}},
    "a size that is true": lambda good: {"model": good | {"num_heads": True}},
    "an unknown size": lambda good: {"model": good | {"depth": 2}},
    "a language that does not exist": lambda good: {"model": good | {"target_space_id": 32}},
    "heads that do not divide": lambda good: {"model": good | {"num_heads": 3}},
}


@pytest.mark.parametrize("kind", BAD_CONFIGS)
def test_a_stored_configuration_is_checked_before_anything_is_made_of_it(tmp_path, kind):
    config, _, _ = save_random_model(tmp_path)
    content = BAD_CONFIGS[kind](dataclasses.asdict(config))
    (tmp_path / "config.json").write_text(json.dumps(content))
    with pytest.raises(ValueError, match="config.json"):
        model_files.load_model(str(tmp_path))


def change_weights(folder, **changes):
    with np.load(folder / "weights.npz") as stored:
        arrays = dict(stored) | changes
    np.savez(folder / "weights.npz", **arrays)


@pytest.mark.parametrize(
    "weight", [np.full([24], np.nan), np.full([24], np.inf, np.float16), np.full([24], "x"), np.zeros([24], np.int8)]
)
def test_weights_that_are_no_finite_numbers_are_refused(tmp_path, weight):
    save_random_model(tmp_path)
    change_weights(tmp_path, **{"encoder/layer_0/ffn/conv1/bias": weight})
    with pytest.raises(ValueError, match="weights.npz: encoder/layer_0/ffn/conv1/bias h.*: restore the model"):
        model_files.load_model(str(tmp_path))


@pytest.mark.parametrize("scale", [np.ones([3, 1]), np.ones([24, 1], complex), np.full([24, 1], 3e38)])
def test_scales_that_do_not_fit_are_refused(tmp_path, scale):
    config, vocabulary, weights = save_random_model(tmp_path)
    model_files.save_model(str(tmp_path), config, vocabulary, weights, "int8")
    change_weights(tmp_path, **{"encoder/layer_0/ffn/conv2/kernel::scale": scale})
    with pytest.raises(ValueError, match="weights.npz: encoder/layer_0/ffn/conv2/kernel h.*: restore the model"):
        model_files.load_model(str(tmp_path))


@pytest.mark.parametrize("length", [None, 0, 10, 1000, -100])
def test_weights_that_are_missing_or_cut_are_named(tmp_path, length):
    save_random_model(tmp_path)
    path = tmp_path / "weights.npz"
    content = path.read_bytes()
    path.unlink() if length is None else path.write_bytes(content[:length])
    with pytest.raises(ValueError, match=r"weights.npz cannot be read \(.*\): restore the model, or train it again"):
        model_files.load_model(str(tmp_path))


def test_a_vocabulary_that_is_not_utf8_is_named(tmp_path):
    save_random_model(tmp_path)
    (tmp_path / "vocab.subwords").write_bytes(b"'<pad>'\n'<EOS>'\n'caf\xe9'\n")
    with pytest.raises(ValueError, match="vocab.subwords is not UTF-8"):
        model_files.load_model(str(tmp_path))


def test_another_folder_is_no_model(tmp_path):
    with pytest.raises(ValueError, match=f"{tmp_path} is not a translation model"):
        model_files.load_model(str(tmp_path))


def test_settings_that_change_the_result_cannot_change_within_a_run(corpus, tmp_path, no_translation):
    config = create_config(corpus, train_steps=2)
    train.train(config, str(tmp_path / "run"))
    with pytest.raises(ValueError, match="holds a run of another configuration"):
        train.train(dataclasses.replace(config, dropout=0.3), str(tmp_path / "run"))
