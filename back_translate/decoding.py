"""Translates batches of sentences with a Transformer: greedy or sampled, with a cache of keys and values.

    decoder = Decoder(model, temperature=0.8)
    outputs = decoder.decode(source_ids, uniforms)   # lists of ids without the end token

Each sentence brings its own random numbers, is padded to a length that depends on it alone, and leaves the batch when
it ends. So its translation does not depend on the sentences that are translated with it: not even in the last bit,
which matrix products compute otherwise for the rows at the edge of a matrix (see ROWS), and other graphs otherwise too.
"""

import functools

import numpy as np
import tensorflow as tf

from back_translate import transformer
from back_translate.subwords import EOS_ID, PAD_ID

LENGTH_STEP = 8  # source texts are padded to a multiple of this, so that there are few shapes
CHUNK = 8  # tokens that are decoded before finished sentences leave the batch
BLOCK = 64  # probabilities that are added up together for a draw
# Batches are filled up to a multiple of this. Matrix products work on tiles of 4, 6, 8, 12, 16 or 24 rows, and add up
# the rows of a last tile that is not full in another order: the last bit of a sum then decides a draw at times.
ROWS = 48


class Decoder:
    """A model and the way of choosing the next token."""

    def __init__(self, model, temperature=0.0, top_k=0, top_p=1.0, extra_length=100):
        """Args:
        temperature: 0 takes the most probable token, 1 draws from the model's distribution.
        top_k: draw only from so many most probable tokens; 0: all.
        top_p: draw only from the fewest tokens that together are at least so probable; 1: all.
        extra_length: a translation is cut off when it has so many tokens more than its source.
        """
        if temperature < 0:
            raise ValueError(f"temperature={temperature}: expected 0 for greedy decoding, or more.")
        if top_k < 0 or not 0 < top_p <= 1:
            raise ValueError(f"top_k={top_k}, top_p={top_p}: expected at least 0, and more than 0 up to 1.")
        self.model, self.temperature, self.top_k, self.top_p = model, temperature, top_k, top_p
        self.extra_length = extra_length
        # One graph for all shapes: where TensorFlow knows a shape, it changes the order of sums, and with it last bits.
        # AutoGraph would take seconds to translate the model's code, none of which needs it.
        ids = tf.TensorSpec([None, None], tf.int32)
        self.begin = tf.function(self._begin, input_signature=[ids], autograph=False)

    @functools.cached_property
    def advance(self):
        """The graph of _advance."""
        config, any_length = self.model.config, [None, self.model.config.num_heads, None, self.model.width]
        keys_values = [(tf.TensorSpec(any_length), tf.TensorSpec(any_length))] * config.num_decoder_layers
        state = {
            "token_ids": tf.TensorSpec([None], tf.int32),
            "cache": keys_values,
            "source": keys_values,
            "source_mask": tf.TensorSpec([None, 1, 1, None]),
        }
        uniforms, position = tf.TensorSpec([None, None]), tf.TensorSpec([], tf.int32)
        return tf.function(self._advance, input_signature=[state, uniforms, position], autograph=False)

    def decode(self, source_ids, uniforms=None):
        """Translates sentences of one length bucket.

        Args:
          source_ids: lists of ids, each with its end token; padded to padded_length, all have one length.
          uniforms: random numbers of each sentence in [0, 1), at least num_uniforms of them; None at temperature 0.

        Returns:
          A list of lists of ids, without end tokens.
        """
        length = padded_length(max(map(len, source_ids)))
        padded = np.array([ids + [PAD_ID] * (length - len(ids)) for ids in source_ids], np.int32)
        limits = np.array([len(ids) + self.extra_length for ids in source_ids])
        if uniforms is None:
            uniforms = np.zeros([len(source_ids), self.num_uniforms(length)])
        outputs, alive, position = [[] for _ in source_ids], np.arange(len(source_ids)), 0
        state = self.begin(padded[_fill_up(alive)])
        while len(alive):
            numbers = tf.constant(uniforms[_fill_up(alive), position : position + CHUNK], tf.float32)
            state, tokens = self.advance(state, numbers, tf.constant(position))
            tokens = tokens.numpy()[: len(alive)]
            position += CHUNK
            for sentence, row in zip(alive, tokens.tolist()):
                outputs[sentence] += row
            rows = np.flatnonzero((tokens != EOS_ID).all(axis=1) & (position < limits[alive]))
            if 0 < len(rows) < len(alive):
                kept = _fill_up(rows)
                state = tf.nest.map_structure(lambda part: tf.gather(part, kept), state)
            alive = alive[rows]
        return [_until_end(ids[:limit]) for ids, limit in zip(outputs, limits)]

    @functools.cached_property
    def output_kernel(self):
        """The embedding as [hidden_size, vocab_size]: the product with a matrix that lies so takes half the time."""
        with tf.init_scope():  # once, and not in each graph
            return tf.transpose(self.model.weights["embedding"])

    def num_uniforms(self, source_length):
        """How many random numbers a sentence of `source_length` tokens may need."""
        return padded_length(source_length) + self.extra_length + CHUNK

    def _begin(self, source_ids):
        """Encodes the sentences. Returns the state before the first token, in which all tensors begin with them."""
        encoded = self.model.encode(source_ids)
        heads = [tf.shape(source_ids)[0], self.model.config.num_heads, 0, self.model.width]
        layers = range(self.model.config.num_decoder_layers)
        return {
            "token_ids": tf.zeros_like(source_ids[:, 0]),
            "cache": [(tf.zeros(heads), tf.zeros(heads)) for _ in layers],
            "source": [tuple(self.model.source_keys_values(f"decoder/layer_{layer}", encoded)) for layer in layers],
            "source_mask": transformer.padding_mask(source_ids),
        }

    def _advance(self, state, uniforms, position):
        """Decodes the next CHUNK tokens of each sentence. Returns the new state and the tokens [batch, CHUNK]."""
        room = [[0, 0], [0, 0], [0, CHUNK], [0, 0]]
        cache = tf.nest.map_structure(lambda part: tf.pad(part, room), state["cache"])

        def step(number, token_ids, cache, tokens):
            hidden, cache = self.model.decode_next(
                token_ids, position + number, cache, state["source"], state["source_mask"]
            )
            token_ids = self.choose(tf.matmul(hidden, self.output_kernel), uniforms[:, number])
            return number + 1, token_ids, cache, tokens.write(number, token_ids)

        tokens = tf.TensorArray(tf.int32, CHUNK)
        _, token_ids, cache, tokens = tf.while_loop(
            lambda number, *_: number < CHUNK, step, (0, state["token_ids"], cache, tokens)
        )
        return state | {"token_ids": token_ids, "cache": cache}, tf.transpose(tokens.stack())

    def choose(self, logits, uniforms):
        """The next token of each sentence, int32 [batch]."""
        if not self.temperature:
            return tf.argmax(logits, axis=-1, output_type=tf.int32)
        probs = self.keep_probable(tf.nn.softmax(logits / self.temperature))
        drawn = draw(probs, uniforms)
        # Rounding may lead to the end of a block, where a token need not be possible.
        possible = tf.gather(probs, drawn, batch_dims=1) > 0
        return tf.where(possible, drawn, tf.argmax(probs, axis=-1, output_type=tf.int32))

    def keep_probable(self, probs):
        """Sets to 0 what top_k and top_p leave out."""
        if self.top_k:
            smallest = tf.math.top_k(probs, min(self.top_k, probs.shape[-1])).values[:, -1:]
            probs = tf.where(probs >= smallest, probs, 0.0)
        if self.top_p < 1:
            ordered = tf.sort(probs, axis=-1, direction="DESCENDING")
            before = tf.cumsum(ordered, axis=-1, exclusive=True) < self.top_p * tf.reduce_sum(probs, -1, keepdims=True)
            smallest = tf.reduce_min(tf.where(before, ordered, 1.0), axis=-1, keepdims=True)
            probs = tf.where(probs >= smallest, probs, 0.0)
        return probs


def draw(probs, uniforms):
    """The first token of each row whose probability, added to all before it, exceeds the row's number: int32 [batch].

    Sums of blocks find the block, sums within it the token: much faster than sums over the whole row.
    """
    vocab_size = probs.shape[-1]
    blocks = tf.reshape(tf.pad(probs, [[0, 0], [0, -vocab_size % BLOCK]]), [-1, -(-vocab_size // BLOCK), BLOCK])
    ends = tf.cumsum(tf.reduce_sum(blocks, axis=-1), axis=-1)
    targets = uniforms[:, tf.newaxis] * ends[:, -1:]

    def first_above(sums, targets):
        return tf.minimum(tf.searchsorted(sums, targets, side="right"), sums.shape[-1] - 1)

    block = first_above(ends, targets)
    begins = tf.gather(tf.pad(ends, [[0, 0], [1, 0]]), block, batch_dims=1)
    inside = first_above(tf.cumsum(tf.gather(blocks, block[:, 0], batch_dims=1), axis=-1), targets - begins)
    return tf.minimum((block * BLOCK + inside)[:, 0], vocab_size - 1)


def padded_length(length):
    return -(-length // LENGTH_STEP) * LENGTH_STEP


def _fill_up(numbers):
    """The same numbers, and the first ones again, until their count is a multiple of ROWS."""
    return np.resize(numbers, -(-len(numbers) // ROWS) * ROWS)


def _until_end(ids):
    return ids[: ids.index(EOS_ID)] if EOS_ID in ids else ids
