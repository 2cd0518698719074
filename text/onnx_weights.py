"""The weights of a BERT in ONNX, by their names in PyTorch; and a writer of safetensors files.

    write_safetensors("model.safetensors", read_onnx(graph, data))

An ONNX file is a message of protocol buffers, the graph; exporters put large arrays into a second file beside it. What
is read of the graph is where each array lies in that file, and which kernels belong to which biases. The numbers of
fields below are those of the format's definition, onnx.proto.
"""

import collections
import json

import numpy as np

FLOAT, EXTERNAL = 1, 1  # values of TensorProto's data_type and data_location


def read_onnx(graph, data):
    """Float32 arrays by name, kernels as [outputs, inputs].

    Exporters keep the names of all weights but kernels: of a linear layer is left a product with an array without a
    name, to which then the layer's bias is added. The bias tells the name.

    Args:
      graph: bytes of the .onnx file; data: bytes of the file beside it.
    """
    (graph,) = _fields(graph)[7]
    graph = _fields(graph)
    tensors = dict(filter(None, (_read_tensor(_fields(tensor), data) for tensor in graph[5])))
    weights = {name: array for name, array in tensors.items() if name.endswith((".weight", ".bias"))}
    kernels = {}  # by the name of the product
    for inputs, (output, *_), operation in (_read_node(_fields(node)) for node in graph[1]):
        if operation == "MatMul" and inputs[1] in tensors:
            kernels[output] = tensors[inputs[1]]
        elif operation == "Add" and inputs[0] in kernels and inputs[1] in weights:
            weights[inputs[1].removesuffix(".bias") + ".weight"] = kernels[inputs[0]].T
    return weights


def _read_tensor(tensor, data):
    """(name, array) of a TensorProto whose numbers are in the data file; None for others, which are no weights."""
    if tensor[2] != [FLOAT] or tensor[14] != [EXTERNAL]:
        return None
    entries = (_fields(entry) for entry in tensor[13])
    place = {key.decode(): value.decode() for key, value in ((entry[1][0], entry[2][0]) for entry in entries)}
    array = np.frombuffer(data, "<f4", int(place["length"]) // 4, int(place["offset"]))
    return tensor[8][0].decode(), array.reshape(tensor[1])


def _read_node(node):
    """(inputs, outputs, operation) of a NodeProto, as strings."""
    inputs, outputs, operation = ([value.decode() for value in node[number]] for number in (1, 2, 4))
    return inputs, outputs, operation[0]


def _fields(message):
    """The values of a message of protocol buffers by the numbers of their fields: ints, or bytes to look into."""
    values, position = collections.defaultdict(list), 0
    while position < len(message):
        key, position = _varint(message, position)
        number, kind = key >> 3, key & 7
        if kind == 0:
            value, position = _varint(message, position)
        elif kind in (1, 2, 5):
            length, position = _varint(message, position) if kind == 2 else ({1: 8, 5: 4}[kind], position)
            value, position = message[position : position + length], position + length
        else:
            raise ValueError(f"a field of kind={kind}: this is no message of protocol buffers, or a damaged one.")
        values[number].append(value)
    return values


def _varint(message, position):
    value = shift = 0
    while True:
        byte = message[position]
        value, shift, position = value | (byte & 127) << shift, shift + 7, position + 1
        if byte < 128:
            return value, position


def write_safetensors(path, arrays):
    """Writes arrays by name, as float32; text.bert_weights.read_safetensors reads them."""
    arrays = {name: np.ascontiguousarray(array, "<f4") for name, array in arrays.items()}
    header, end = {"__metadata__": {"format": "pt"}}, 0
    for name, array in arrays.items():
        header[name] = {"dtype": "F32", "shape": list(array.shape), "data_offsets": [end, end + array.nbytes]}
        end += array.nbytes
    header = json.dumps(header).encode()
    header += b" " * (-len(header) % 8)  # the arrays begin at a multiple of 8 bytes
    with open(path, "wb") as file:
        file.write(len(header).to_bytes(8, "little") + header)
        for array in arrays.values():
            file.write(array)
