"""ONNX graphs of a few small weights."""

import numpy as np


def varint(value):
    return bytes([value]) if value < 128 else bytes([value & 127 | 128]) + varint(value >> 7)


def message(*fields):
    """A message of protocol buffers from pairs of number and value: int, str or bytes."""
    content = b""
    for number, value in fields:
        value = value.encode() if isinstance(value, str) else value
        is_number = isinstance(value, int)
        content += varint(number << 3 | 2 * (not is_number)) + varint(value if is_number else len(value))
        content += b"" if is_number else value
    return content


def create_node(operation, inputs, output):
    return 1, message(*((1, name) for name in inputs), (2, output), (3, "a name"), (4, operation))


def create_onnx(weights):
    """(graph, data) of arrays by PyTorch's names; kernels of layers with a bias lose their names, as in an export."""
    data, tensors, nodes = b"padding!", [], []
    for number, (name, array) in enumerate(weights.items()):
        bias = name.removesuffix(".weight") + ".bias"
        if name.endswith(".weight") and bias in weights and array.ndim == 2:
            nodes.append(create_node("MatMul", ["hidden", f"val_{number}"], f"product_{number}"))
            nodes.append(create_node("Add", [f"product_{number}", bias], f"linear_{number}"))
            name, array = f"val_{number}", array.T
        place = {"location": "the file", "offset": str(len(data)), "length": str(array.nbytes)}
        entries = [(13, message((1, key), (2, value))) for key, value in place.items()]
        dims = [(1, size) for size in array.shape]
        tensors.append((5, message(*dims, (2, 1), (8, name), *entries, (14, 1))))
        data += np.ascontiguousarray(array).tobytes()
    tensors.append((5, message((1, 1), (2, 7), (8, "a constant"), (9, b"8 bytes."))))  # of another type, and inside
    nodes.append(create_node("Add", ["linear_0", "hidden"], "residual"))
    return message((1, 8), (7, message(*nodes, (2, "graph"), *tensors)), (8, message((2, 18)))), data


def create_weights():
    rng = np.random.default_rng(0)
    shapes = {"embeddings.word_embeddings.weight": [200, 4], "embeddings.LayerNorm.weight": [4]}
    shapes |= {"embeddings.LayerNorm.bias": [4], "pooler.dense.weight": [4, 4]}
    for layer in range(2):
        name = f"encoder.layer.{layer}.intermediate.dense"
        shapes |= {f"{name}.bias": [6], f"{name}.weight": [6, 4]}
    return {name: rng.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}
