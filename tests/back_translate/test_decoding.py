import numpy as np
import pytest
import tensorflow as tf

from back_translate import decoding
from back_translate.decoding import CHUNK, ROWS, Decoder, padded_length
from back_translate.engines import MAX_SOURCE_LENGTH, TensorFlowEngine, uniforms_of
from back_translate.subwords import EOS_ID, SubwordVocabulary
from back_translate.transformer import Transformer, TransformerConfig, initial_weights

CONFIG = TransformerConfig(29, hidden_size=16, num_encoder_layers=1, num_decoder_layers=2, num_heads=2, filter_size=24)
RNG = np.random.default_rng(0)
SOURCES = [[*RNG.integers(2, 29, RNG.integers(1, 7)).tolist(), EOS_ID] for _ in range(8)]
NUM_TOKENS = 20  # more than the longest of these and 12 more


@pytest.fixture(scope="module")
def model():
    """Random weights, far enough from 0 that the next token depends on those before it."""
    weights = {name: 2.5 * np.asarray(array) for name, array in initial_weights(CONFIG, seed=3).items()}
    tokens = from_scratch(Transformer(CONFIG, weights))
    # Of a token that comes early in some translations and not in others, make the end token.
    early = [(tokens[:, :CHUNK] == token).any(axis=1).mean() for token in range(29)]
    chosen = int(np.argmin(np.abs(np.array(early) - 0.5)))
    weights["embedding"][[EOS_ID, chosen]] = weights["embedding"][[chosen, EOS_ID]]
    return Transformer(CONFIG, weights)


def from_scratch(model):
    """Greedy decoding as it is defined, the whole target again for each token: int [sentences, NUM_TOKENS]."""
    sources = tf.ragged.constant(SOURCES, dtype=tf.int32).to_tensor()
    decode = tf.function(lambda targets: model.decode(model.encode(sources), sources, targets))
    tokens = np.zeros([len(SOURCES), NUM_TOKENS], np.int32)
    for position in range(NUM_TOKENS):
        tokens[:, position] = decode(tf.constant(tokens)).numpy()[:, position].argmax(axis=-1)
    return tokens


def test_greedy_decoding_with_a_cache_equals_decoding_from_scratch(model):
    outputs = Decoder(model, extra_length=12).decode(SOURCES)
    for source, output, row in zip(SOURCES, outputs, from_scratch(model).tolist()):
        row = row[: len(source) + 12]
        assert output == (row[: row.index(EOS_ID)] if EOS_ID in row else row)
    lengths = [len(output) for output in outputs]
    assert min(lengths) < CHUNK < max(lengths)  # some end early, some go on for several chunks


def test_batches_of_other_sizes_have_the_same_last_bits(model):
    source_ids = np.random.default_rng(4).integers(2, 29, [3 * ROWS, 8]).astype(np.int32)
    decoder, states = Decoder(model, temperature=1.0), []
    for count in (3 * ROWS, ROWS, 2 * ROWS):  # TensorFlow may make another graph for the second size
        state = decoder.begin(source_ids[:count])
        state, _ = decoder.advance(state, tf.fill([count, CHUNK], 0.5), tf.constant(0))
        states.append(tf.nest.map_structure(lambda part: part[:ROWS].numpy(), state))
    for state in states[1:]:
        tf.nest.map_structure(np.testing.assert_array_equal, state, states[0])


def test_a_draw_by_blocks_is_that_of_a_running_sum():
    rng = np.random.default_rng(5)
    probs, uniforms = rng.dirichlet(np.full(300, 0.1), 500), rng.random(500)
    expected = (np.cumsum(probs, axis=1) > uniforms[:, np.newaxis]).argmax(axis=1)
    drawn = decoding.draw(tf.constant(probs, tf.float32), tf.constant(uniforms, tf.float32))
    np.testing.assert_array_equal(drawn, expected)
    assert set(expected // decoding.BLOCK) == set(range(5))


def test_a_translation_is_cut_off_at_its_own_limit(model):
    outputs = Decoder(model, extra_length=3).decode(SOURCES)
    assert all(len(output) <= len(source) + 3 for source, output in zip(SOURCES, outputs))
    assert any(len(output) == len(source) + 3 for source, output in zip(SOURCES, outputs))


LOGITS = 1.5 * np.random.default_rng(2).normal(size=29).astype(np.float32)


def draw(**options):
    """How often each token is drawn out of LOGITS, and its probability at the temperature."""
    decoder, num_draws = Decoder(None, **options), 20_000
    uniforms = np.random.default_rng(1).random(num_draws).astype(np.float32)
    tokens = decoder.choose(tf.tile(LOGITS[np.newaxis], [num_draws, 1]), uniforms)
    return np.bincount(tokens, minlength=29), tf.nn.softmax(LOGITS / options["temperature"]).numpy()


def chi_squared(counts, probs):
    expected = counts.sum() * probs
    return ((counts - expected) ** 2 / expected).sum()


@pytest.mark.parametrize("temperature", [0.8, 1.0])
def test_tokens_are_drawn_from_the_distribution_at_the_temperature(temperature):
    counts, probs = draw(temperature=temperature)
    assert chi_squared(counts, probs) < 28 + 4 * np.sqrt(2 * 28)
    other = probs**0.9 / (probs**0.9).sum()
    assert chi_squared(counts, other) > 28 + 20 * np.sqrt(2 * 28)  # the test can tell temperatures apart


def test_the_first_tokens_of_sampled_translations_follow_the_models_distribution(model):
    source, num_draws = SOURCES[0], 2000
    uniforms = np.random.default_rng(1).random([num_draws, 64])
    outputs = Decoder(model, temperature=4.0, extra_length=0).decode([source] * num_draws, uniforms)
    counts = np.bincount([output[0] if output else EOS_ID for output in outputs], minlength=29)
    logits = model.decode(model.encode(tf.constant([source])), tf.constant([source]), tf.constant([[0]]))[0, 0]
    probs = tf.nn.softmax(logits / 4.0).numpy()
    enough = num_draws * probs >= 5
    assert enough.sum() >= 10
    expected = num_draws * probs[enough]
    assert ((counts[enough] - expected) ** 2 / expected).sum() < enough.sum() + 4 * np.sqrt(2 * enough.sum())


def test_top_k_draws_from_the_most_probable_only():
    counts, probs = draw(temperature=1.0, top_k=3)
    kept = np.argsort(-probs)[:3]
    assert set(np.flatnonzero(counts)) == set(kept)
    np.testing.assert_allclose(counts[kept] / counts.sum(), probs[kept] / probs[kept].sum(), atol=0.02)


def test_top_p_draws_from_the_fewest_that_reach_it():
    counts, probs = draw(temperature=1.0, top_p=0.7)
    order = np.argsort(-probs)
    kept = order[: np.searchsorted(np.cumsum(probs[order]), 0.7) + 1]
    assert 1 < len(kept) < 29
    assert set(np.flatnonzero(counts)) == set(kept)
    np.testing.assert_allclose(counts[kept] / counts.sum(), probs[kept] / probs[kept].sum(), atol=0.02)


def test_a_random_number_next_to_one_draws_a_possible_token():
    almost_one = np.nextafter(np.float32(1), np.float32(0))
    logits = tf.where(tf.range(29) < 20, LOGITS, -1e9)  # the last ones are impossible
    (token,) = Decoder(None, temperature=1.0).choose(logits[tf.newaxis], tf.constant([almost_one])).numpy()
    assert token < 20


@pytest.mark.parametrize(
    "options, message",
    [
        ({"temperature": -1}, "temperature=-1: expected 0 for greedy"),
        ({"top_p": 0.0}, "top_p=0.0"),
        ({"top_k": -1}, "top_k=-1"),
    ],
)
def test_impossible_settings_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        Decoder(None, **options)


# ---- the engine -----------------------------------------------------------------------------------------------------


VOCABULARY = SubwordVocabulary(["<pad>", "<EOS>", *"_u;\\0123456789", *"abcdefghijklm"])
SENTENCES = ["abc de", "", "k", "hij abc lm a b c d e f", "abc de", "m" * 40, "abc 12"]


def create_engine(model, **options):
    weights = {name: variable.numpy() for name, variable in model.weights.items()}
    return TensorFlowEngine(CONFIG, VOCABULARY, weights, extra_length=10, **options)


def test_a_sentence_is_translated_the_same_in_any_company(model):
    engine = create_engine(model, temperature=1.0, seed=5)
    together = engine.translate(SENTENCES * 20)
    assert together == [engine.translate([sentence])[0] for sentence in SENTENCES] * 20
    assert together[1] == "" and together[0] == together[4]


def test_another_seed_gives_other_translations(model):
    engine, outputs = create_engine(model, temperature=1.0), []
    for engine.seed in (0, 1, 2, 0):
        outputs.append(engine.translate(SENTENCES))
    assert outputs[0] == outputs[3]
    assert outputs[0] != outputs[1] != outputs[2] != outputs[0]


def test_what_is_too_long_stays_as_it_is(model):
    endless = "a" * (MAX_SOURCE_LENGTH + 1)
    assert create_engine(model).translate([endless]) == [endless]


def test_random_numbers_are_even_and_belong_to_sentence_and_seed():
    numbers = uniforms_of("A sentence.", 7, 20_000)
    assert 0 <= numbers.min() and numbers.max() < 1
    np.testing.assert_allclose(np.histogram(numbers, 10, [0, 1])[0] / 20_000, 0.1, atol=0.01)
    np.testing.assert_array_equal(uniforms_of("A sentence.", 7, 10), numbers[:10])
    for other in (uniforms_of("A sentence.", 8, 10), uniforms_of("A sentence", 7, 10)):
        assert np.abs(other - numbers[:10]).max() > 0.01


def test_lengths_are_rounded_up():
    assert [padded_length(length) for length in (1, 8, 9)] == [8, 8, 16]
