"""tensor2tensor's Transformer in NumPy, from a dict of arrays with the names of its checkpoints."""

import numpy as np

BODY = "transformer/body/"


def random_variables(rng, vocab_size=29, size=16, filters=24, layers=2, num_shards=3):
    """Variables of a small model as a checkpoint of tensor2tensor has them: names, shapes, embedding in shards."""
    variables = {BODY + "target_space_embedding/kernel": rng.normal(size=[32, size])}
    for number, rows in enumerate(np.array_split(rng.normal(0, size**-0.5, [vocab_size, size]), num_shards)):
        variables[f"transformer/symbol_modality_{vocab_size}_{size}/shared/weights_{number}"] = rows

    def add_norm(prefix):
        norm = f"{BODY}{prefix}layer_prepostprocess/layer_norm/layer_norm_"
        variables[norm + "scale"], variables[norm + "bias"] = rng.normal(1, 0.1, size), rng.normal(0, 0.1, size)

    for half, attentions in (("encoder", ["self"]), ("decoder", ["self", "encdec"])):
        for layer in range(layers):
            prefix = f"{half}/layer_{layer}/"
            for attention in attentions:
                add_norm(f"{prefix}{attention}_attention/")
                for part in ("q", "k", "v", "output_transform"):
                    name = f"{BODY}{prefix}{attention}_attention/multihead_attention/{part}/kernel"
                    variables[name] = rng.normal(0, size**-0.5, [size, size])
            add_norm(f"{prefix}ffn/")
            for part, shape in (("conv1", [size, filters]), ("conv2", [filters, size])):
                variables[f"{BODY}{prefix}ffn/{part}/kernel"] = rng.normal(0, 0.3, shape)
                variables[f"{BODY}{prefix}ffn/{part}/bias"] = rng.normal(0, 0.3, shape[1])
        add_norm(f"{half}/")
    return {name: array.astype(np.float32) for name, array in variables.items()}


def norm(x, variables, prefix):
    name = f"{BODY}{prefix}layer_prepostprocess/layer_norm/layer_norm_"
    x = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-6)
    return x * variables[name + "scale"] + variables[name + "bias"]


def attention(queries, memory, visible, variables, prefix, num_heads):
    """queries [n, width] attend to memory [m, width] where visible [n, m]."""
    kernels = {part: variables[f"{BODY}{prefix}multihead_attention/{part}/kernel"] for part in ("q", "k", "v")}
    parts = queries @ kernels["q"], memory @ kernels["k"], memory @ kernels["v"]
    heads = []
    for q, k, v in zip(*(np.split(part, num_heads, axis=-1) for part in parts)):
        scores = np.where(visible, q @ k.T / np.sqrt(q.shape[-1]), -np.inf)
        scores = np.exp(scores - scores.max(-1, keepdims=True))
        heads.append(scores / scores.sum(-1, keepdims=True) @ v)
    return np.concatenate(heads, -1) @ variables[f"{BODY}{prefix}multihead_attention/output_transform/kernel"]


def feed_forward(x, variables, prefix):
    x = norm(x, variables, prefix + "ffn/")
    for part in ("conv1", "conv2"):
        x = x @ variables[f"{BODY}{prefix}ffn/{part}/kernel"] + variables[f"{BODY}{prefix}ffn/{part}/bias"]
        x = np.maximum(x, 0) if part == "conv1" else x
    return x


def timing(length, size):
    rates = 10_000.0 ** (-np.arange(size // 2) / (size // 2 - 1))
    angles = np.outer(np.arange(length), rates)
    return np.concatenate([np.sin(angles), np.cos(angles)], axis=1)


def logits(variables, source, target, num_heads, target_space_id=0):
    """Logits [len(target), vocabulary] of one sentence without padding: lists of ids."""
    variables = {name: array.astype(np.float64) for name, array in variables.items()}
    shards = [name for name in variables if "/shared/weights_" in name]
    table = np.concatenate([variables[name] for name in sorted(shards, key=lambda name: int(name.rpartition("_")[2]))])
    size = table.shape[1]
    layers = len([name for name in variables if name.startswith(BODY + "encoder/") and name.endswith("conv1/kernel")])
    x = table[source] * np.sqrt(size) + timing(len(source), size)
    x += variables[BODY + "target_space_embedding/kernel"][target_space_id]
    everything = np.ones([1, 1], bool)
    for layer in range(layers):
        prefix = f"encoder/layer_{layer}/"
        inner = norm(x, variables, prefix + "self_attention/")
        x = x + attention(inner, inner, everything, variables, prefix + "self_attention/", num_heads)
        x = x + feed_forward(x, variables, prefix)
    memory = norm(x, variables, "encoder/")
    x = np.zeros([len(target), size])
    x[1:] = table[target[:-1]] * np.sqrt(size)
    x += timing(len(target), size)
    past = np.tril(np.ones([len(target), len(target)], bool))
    for layer in range(layers):
        prefix = f"decoder/layer_{layer}/"
        inner = norm(x, variables, prefix + "self_attention/")
        x = x + attention(inner, inner, past, variables, prefix + "self_attention/", num_heads)
        inner = norm(x, variables, prefix + "encdec_attention/")
        x = x + attention(inner, memory, everything, variables, prefix + "encdec_attention/", num_heads)
        x = x + feed_forward(x, variables, prefix)
    return norm(x, variables, "decoder/") @ table.T
