"""BERT's forward pass in NumPy, from a dict of arrays with the names and shapes of Google's checkpoints."""

import math

import numpy as np

ERF = np.vectorize(math.erf, otypes=[np.float64])


def gelu(x):
    return 0.5 * x * (1 + ERF(x / np.sqrt(2)))


def layer_norm(x, weights, name):
    variance = x.var(axis=-1, keepdims=True)
    x = (x - x.mean(axis=-1, keepdims=True)) / np.sqrt(variance + 1e-12)
    return x * weights[name + "/gamma"] + weights[name + "/beta"]


def dense(x, weights, name):
    return x @ weights[name + "/kernel"] + weights[name + "/bias"]


def attention(x, mask, weights, name, num_heads):
    """x [batch, length, width]; keys where mask [batch, length] is False are invisible."""
    projected = [dense(x, weights, f"{name}/{part}") for part in ("query", "key", "value")]
    heads = []
    for q, k, v in zip(*(np.split(part, num_heads, axis=-1) for part in projected)):
        scores = q @ k.transpose(0, 2, 1) / np.sqrt(q.shape[-1])
        scores = np.where(mask[:, None, :], scores, -np.inf)
        scores = np.exp(scores - scores.max(axis=-1, keepdims=True))
        heads.append(scores / scores.sum(axis=-1, keepdims=True) @ v)
    return np.concatenate(heads, axis=-1)


def hidden_states(weights, ids, type_ids, num_heads):
    """The last layer's output, float64 [batch, length, width]."""
    weights = {name: np.asarray(array, np.float64) for name, array in weights.items()}
    embeddings = "bert/embeddings/"
    x = weights[embeddings + "word_embeddings"][ids]
    x = x + weights[embeddings + "token_type_embeddings"][type_ids]
    x = x + weights[embeddings + "position_embeddings"][: ids.shape[1]]
    x = layer_norm(x, weights, embeddings + "LayerNorm")
    layer, name = 0, "bert/encoder/layer_0"
    while name + "/output/dense/kernel" in weights:
        attended = attention(x, ids != 0, weights, name + "/attention/self", num_heads)
        attended = dense(attended, weights, name + "/attention/output/dense")
        x = layer_norm(x + attended, weights, name + "/attention/output/LayerNorm")
        inner = gelu(dense(x, weights, name + "/intermediate/dense"))
        x = layer_norm(x + dense(inner, weights, name + "/output/dense"), weights, name + "/output/LayerNorm")
        layer, name = layer + 1, f"bert/encoder/layer_{layer + 1}"
    return x


def pooled(weights, ids, type_ids, num_heads):
    """The pooler's output on the first token: [batch, width]."""
    return np.tanh(dense(hidden_states(weights, ids, type_ids, num_heads)[:, 0], weights, "bert/pooler/dense"))


def mean(weights, ids, type_ids, num_heads):
    """The mean over real tokens: [batch, width]."""
    hidden = hidden_states(weights, ids, type_ids, num_heads)
    return np.stack([states[row != 0].mean(axis=0) for states, row in zip(hidden, ids)])
