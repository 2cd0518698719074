"""An encoder–decoder Transformer (Vaswani et al., 2017) with tensor2tensor's arithmetic and weight names.

    model = Transformer(TransformerConfig(vocab_size=4000, **SIZES["small"]))
    encoded = model.encode(source_ids)                       # int32 [batch, length] padded with 0
    logits = model.decode(encoded, source_ids, target_ids)   # teacher forcing: [batch, length, vocabulary]

What tensor2tensor does and other implementations may not stands in docs/back_translation.md.
"""

import dataclasses
import math

import tensorflow as tf

from back_translate.subwords import PAD_ID

NORM_EPSILON = 1e-6
MASKED = -1e9


@dataclasses.dataclass(frozen=True)
class TransformerConfig:
    vocab_size: int
    hidden_size: int = 512
    num_encoder_layers: int = 6
    num_decoder_layers: int = 6
    num_heads: int = 8
    filter_size: int = 2048
    target_space_id: int = 0  # the row of the table of target languages; tensor2tensor's translation problems have 0

    def __post_init__(self):
        if self.hidden_size % self.num_heads or self.hidden_size % 2:
            raise ValueError(
                f"hidden_size={self.hidden_size}: expected an even multiple of num_heads={self.num_heads}."
            )


def _size(hidden_size, num_layers, num_heads):
    layers = {"num_encoder_layers": num_layers, "num_decoder_layers": num_layers}
    return {"hidden_size": hidden_size, **layers, "num_heads": num_heads, "filter_size": 4 * hidden_size}


# One for small corpora, then tensor2tensor's transformer_base and transformer_big.
SIZES = {"small": _size(256, 2, 4), "base": _size(512, 6, 8), "big": _size(1024, 6, 16)}


def weight_shapes(config):
    """The weights of a model: dict from name to shape. The names are tensor2tensor's, less their common beginning."""
    size, filters = config.hidden_size, config.filter_size
    shapes = {"embedding": [config.vocab_size, size], "target_space_embedding/kernel": [32, size]}

    def add_layer(name, num_attentions):
        for attention in ("self_attention", "encdec_attention")[:num_attentions]:
            add_norm(f"{name}/{attention}/")
            for part in ("q", "k", "v", "output_transform"):
                shapes[f"{name}/{attention}/multihead_attention/{part}/kernel"] = [size, size]
        add_norm(f"{name}/ffn/")
        shapes[f"{name}/ffn/conv1/kernel"], shapes[f"{name}/ffn/conv1/bias"] = [size, filters], [filters]
        shapes[f"{name}/ffn/conv2/kernel"], shapes[f"{name}/ffn/conv2/bias"] = [filters, size], [size]

    def add_norm(prefix):
        for part in ("scale", "bias"):
            shapes[f"{prefix}layer_prepostprocess/layer_norm/layer_norm_{part}"] = [size]

    for layer in range(config.num_encoder_layers):
        add_layer(f"encoder/layer_{layer}", 1)
    for layer in range(config.num_decoder_layers):
        add_layer(f"decoder/layer_{layer}", 2)
    add_norm("encoder/")
    add_norm("decoder/")
    return shapes


class Transformer(tf.Module):
    """The model as a function of its weights, a dict from name to variable."""

    def __init__(self, config, weights=None, dropout=0.0, seed=0):
        """Args:
        weights: dict from name to array; None draws new ones.
        dropout: rate on embeddings, attention weights, filters and outputs of layers; only while training.
        seed: of new weights.
        """
        super().__init__("transformer")
        self.config, self.dropout = config, dropout
        arrays = initial_weights(config, seed) if weights is None else weights
        self.weights = {name: tf.Variable(arrays[name], name=name, dtype=tf.float32) for name in weight_shapes(config)}
        self.timing = timing_signal(1024, config.hidden_size)

    # ---- the two halves ----

    def encode(self, source_ids, noise=None):
        """Hidden states of a batch of source texts: float32 [batch, length, hidden_size].

        Args:
          noise: Noise while training.
        """
        hidden = self.embed(source_ids)
        hidden += self.weights["target_space_embedding/kernel"][self.config.target_space_id]
        hidden = self.drop(hidden + self.timing[: tf.shape(hidden)[1]], noise)
        mask = padding_mask(source_ids)
        for layer in range(self.config.num_encoder_layers):
            hidden = self.self_attend(f"encoder/layer_{layer}", hidden, mask, noise)
            hidden = self.feed_forward(f"encoder/layer_{layer}", hidden, noise)
        return self.normalise("encoder/", hidden)

    def decode(self, encoded, source_ids, target_ids, noise=None):
        """Logits of every target token given those before it: [batch, length, vocab_size]."""
        hidden = tf.pad(self.embed(target_ids), [[0, 0], [1, 0], [0, 0]])[:, :-1]  # nothing comes before the first
        length = tf.shape(hidden)[1]
        hidden = self.drop(hidden + self.timing[:length], noise)
        mask, source_mask = causal_mask(length), padding_mask(source_ids)
        for layer in range(self.config.num_decoder_layers):
            name = f"decoder/layer_{layer}"
            hidden = self.self_attend(name, hidden, mask, noise)
            keys, values = self.source_keys_values(name, encoded)
            hidden = self.attend_to_source(name, hidden, keys, values, source_mask, noise)
            hidden = self.feed_forward(name, hidden, noise)
        return matmul(self.normalise("decoder/", hidden), self.weights["embedding"], transpose_b=True)

    def decode_next(self, token_ids, position, cache, source, source_mask):
        """Hidden states [batch, hidden_size] whose product with the embedding is the next token's logits.

        Args:
          token_ids: int32 [batch], the token before; 0 at the beginning.
          position: int32 scalar, number of tokens before the wanted one.
          cache: a list with a pair of keys and values for each layer, [batch, heads, room, width], filled up to
            `position`.
          source: source_keys_values of each layer.

        Returns:
          hidden states, and the cache with this token's keys and values.
        """
        hidden = self.embed(token_ids[:, tf.newaxis]) + self.timing[position]
        room = tf.shape(cache[0][0])[2]
        mask = tf.where(tf.range(room) <= position, 0.0, MASKED)
        here = tf.one_hot(position, room)[:, tf.newaxis]
        new_cache = []
        for layer in range(self.config.num_decoder_layers):
            name = f"decoder/layer_{layer}"
            normalised = self.normalise(f"{name}/self_attention/", hidden)
            query, key, value = self.project(f"{name}/self_attention", normalised, "qkv")
            keys, values = cache[layer][0] + here * key, cache[layer][1] + here * value
            new_cache.append((keys, values))
            hidden += self.attention(f"{name}/self_attention", query, keys, values, mask, None)
            hidden = self.attend_to_source(name, hidden, *source[layer], source_mask, None)
            hidden = self.feed_forward(name, hidden, None)
        return self.normalise("decoder/", hidden)[:, 0], new_cache

    # ---- their parts ----

    def embed(self, ids):
        # Padding is zero, whatever its row in the table.
        real = tf.cast(ids != PAD_ID, tf.float32)[..., tf.newaxis]
        return tf.gather(self.weights["embedding"], ids) * real * math.sqrt(self.config.hidden_size)

    def self_attend(self, name, hidden, mask, noise):
        normalised = self.normalise(f"{name}/self_attention/", hidden)
        query, keys, values = self.project(f"{name}/self_attention", normalised, "qkv")
        return hidden + self.drop(self.attention(f"{name}/self_attention", query, keys, values, mask, noise), noise)

    def source_keys_values(self, name, encoded):
        return self.project(f"{name}/encdec_attention", encoded, "kv")

    def attend_to_source(self, name, hidden, keys, values, mask, noise):
        name = f"{name}/encdec_attention"
        (query,) = self.project(name, self.normalise(f"{name}/", hidden), "q")
        return hidden + self.drop(self.attention(name, query, keys, values, mask, noise), noise)

    def project(self, name, hidden, parts):
        """Queries, keys or values, as `parts` says, each [batch, heads, length, width]."""
        kernels = [self.weights[f"{name}/multihead_attention/{part}/kernel"] for part in parts]
        projected = matmul(hidden, tf.concat(kernels, axis=1) if len(kernels) > 1 else kernels[0])
        heads = tf.reshape(projected, [*leading(hidden), len(parts), self.config.num_heads, self.width])
        return tf.unstack(tf.transpose(heads, [2, 0, 3, 1, 4]), num=len(parts))

    @property
    def width(self):
        return self.config.hidden_size // self.config.num_heads

    def attention(self, name, query, keys, values, mask, noise):
        scores = tf.matmul(query * self.width**-0.5, keys, transpose_b=True) + mask
        mixed = tf.matmul(self.drop(tf.nn.softmax(scores), noise), values)
        mixed = tf.transpose(mixed, [0, 2, 1, 3])
        mixed = tf.reshape(mixed, [*leading(mixed)[:-1], self.config.hidden_size])
        return matmul(mixed, self.weights[f"{name}/multihead_attention/output_transform/kernel"])

    def feed_forward(self, name, hidden, noise):
        name = f"{name}/ffn"
        filters = matmul(self.normalise(f"{name}/", hidden), self.weights[f"{name}/conv1/kernel"])
        filters = self.drop(tf.nn.relu(filters + self.weights[f"{name}/conv1/bias"]), noise)
        outputs = matmul(filters, self.weights[f"{name}/conv2/kernel"]) + self.weights[f"{name}/conv2/bias"]
        return hidden + self.drop(outputs, noise)

    def normalise(self, prefix, hidden):
        prefix = f"{prefix}layer_prepostprocess/layer_norm/layer_norm_"
        centred = hidden - tf.reduce_mean(hidden, axis=-1, keepdims=True)
        variance = tf.reduce_mean(tf.square(centred), axis=-1, keepdims=True)
        normalised = centred * tf.math.rsqrt(variance + NORM_EPSILON)
        return normalised * self.weights[f"{prefix}scale"] + self.weights[f"{prefix}bias"]

    def drop(self, hidden, noise):
        return hidden if noise is None or not self.dropout else noise.drop(hidden, self.dropout)


class Noise:
    """Dropout masks of one training step: each has a seed of its own, and the same step always the same masks."""

    def __init__(self, seed, step):
        self.seed, self.step, self.count = seed, tf.cast(step, tf.int32), 0

    def drop(self, hidden, rate):
        self.count += 1
        return tf.nn.experimental.stateless_dropout(
            hidden, rate, seed=[self.seed, self.step * 1000 + self.count], rng_alg="philox"
        )


def initial_weights(config, seed):
    """New weights, drawn as tensor2tensor does: Glorot's uniform distribution, for embeddings a normal one."""
    arrays = {}
    for number, (name, shape) in enumerate(weight_shapes(config).items()):
        if "embedding" in name:
            arrays[name] = tf.random.stateless_normal(shape, [seed, number], stddev=config.hidden_size**-0.5)
        elif name.endswith("kernel"):
            limit = math.sqrt(6 / sum(shape))
            arrays[name] = tf.random.stateless_uniform(shape, [seed, number], -limit, limit)
        else:
            arrays[name] = tf.ones(shape) if name.endswith("scale") else tf.zeros(shape)
    return arrays


def timing_signal(length, size):
    """Sines, then cosines, of wave lengths from 2π to 20,000π: float32 [length, size]."""
    num_scales = size // 2
    rates = tf.exp(tf.range(num_scales, dtype=tf.float64) * (-math.log(10_000.0) / max(num_scales - 1, 1)))
    angles = tf.range(length, dtype=tf.float64)[:, tf.newaxis] * rates
    return tf.cast(tf.concat([tf.sin(angles), tf.cos(angles)], axis=1), tf.float32)


def padding_mask(ids):
    """To be added to attention scores: [batch, 1, 1, length]."""
    return MASKED * tf.cast(ids == PAD_ID, tf.float32)[:, tf.newaxis, tf.newaxis]


def causal_mask(length):
    return MASKED * (1.0 - tf.linalg.band_part(tf.ones([length, length]), -1, 0))


def matmul(hidden, kernel, transpose_b=False):
    """[..., n] times [n, m], as one product of two matrices."""
    flat = tf.matmul(tf.reshape(hidden, [-1, hidden.shape[-1]]), kernel, transpose_b=transpose_b)
    return tf.reshape(flat, [*leading(hidden), flat.shape[-1]])


def leading(tensor):
    """All dimensions but the last, static where they are known."""
    dynamic = tf.shape(tensor)
    return [dynamic[axis] if size is None else size for axis, size in enumerate(tensor.shape[:-1])]
