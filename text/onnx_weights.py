"""The weights of a BERT in ONNX, by their names in PyTorch; and a writer of safetensors files.

    write_safetensors("model.safetensors", read_onnx(graph, data))

An ONNX file is a message of protocol buffers, the graph; exporters put large arrays into a second file beside it. What
is read of the graph is where each array lies in that file, and which kernels belong to which biases. The numbers of
fields below are those of the format's definition, onnx.proto.
"""

import collections
import itertools
import json
import math

import numpy as np

from utils import files
from utils.varint import read_varint

FLOAT, EXTERNAL = 1, 1  # values of TensorProto's data_type and data_location


Place = collections.namedtuple("Place", "name shape start end")


def read_onnx(graph, data):
    """Float32 arrays by name, kernels as [outputs, inputs].

    Exporters keep the names of all weights but kernels: of a linear layer is left a product with an array without a
    name, to which then the layer's bias is added. The bias tells the name.

    Args:
      graph: bytes of the .onnx file; data: bytes of the file beside it.

    Raises:
      ValueError: if one of them is damaged.
    """
    with files.explain_damage("the ONNX graph", "get it again."):
        return _read_graph(graph, data)


def _read_graph(graph, data):
    (graph,) = _fields(graph)[7]
    graph = _fields(graph)
    places = [_read_place(_fields(tensor), len(data)) for tensor in graph[5]]
    tensors = {place.name: _read_array(place, data) for place in _check_places(filter(None, places))}
    weights = {name: array for name, array in tensors.items() if name.endswith((".weight", ".bias"))}
    kernels = {}  # by the name of the product
    for inputs, (output, *_), operation in (_read_node(_fields(node)) for node in graph[1]):
        if operation == "MatMul" and inputs[1] in tensors:
            kernels[output] = tensors[inputs[1]]
        elif operation == "Add" and inputs[0] in kernels and inputs[1] in weights:
            weights[inputs[1].removesuffix(".bias") + ".weight"] = kernels[inputs[0]].T
    return weights


def _read_place(tensor, data_size):
    """Place of a TensorProto whose numbers are in the data file; None for others, which are no weights."""
    if tensor[2] != [FLOAT] or tensor[14] != [EXTERNAL]:
        return None
    entries = (_fields(entry) for entry in tensor[13])
    place = {key.decode(): value.decode() for key, value in ((entry[1][0], entry[2][0]) for entry in entries)}
    name, start, length = tensor[8][0].decode(), int(place["offset"]), int(place["length"])
    if not 0 <= start <= start + length <= data_size or length != 4 * math.prod(tensor[1]):
        shape = files.shorten(tensor[1])
        raise ValueError(f"{name} of shape={shape} is said to be at {start} to {start + length} of {data_size} bytes")
    return Place(name, tensor[1], start, start + length)


def _check_places(places):
    """Returns them in the order of the file; raises ValueError if a name comes twice, or two share some bytes."""
    places = sorted(places, key=lambda place: (place.start, place.end))
    if len({place.name for place in places}) < len(places):
        raise ValueError("it has several arrays of one name")
    for before, place in itertools.pairwise(places):
        if place.start < before.end:
            raise ValueError(f"{before.name} and {place.name} are said to be in the same place")
    return places


def _read_array(place, data):
    array = np.frombuffer(data, "<f4", (place.end - place.start) // 4, place.start).reshape(place.shape)
    if not np.isfinite(array).all():
        raise ValueError(f"{place.name} holds numbers that are not finite")
    return array


def _read_node(node):
    """(inputs, outputs, operation) of a NodeProto, as strings."""
    inputs, outputs, operation = ([value.decode() for value in node[number]] for number in (1, 2, 4))
    return inputs, outputs, operation[0]


def _fields(message):
    """The values of a message of protocol buffers by the numbers of their fields: ints, or bytes to look into."""
    values, position = collections.defaultdict(list), 0
    while position < len(message):
        key, position = read_varint(message, position)
        number, kind = key >> 3, key & 7
        if kind == 0:
            value, position = read_varint(message, position)
        elif kind in (1, 2, 5):
            length, position = read_varint(message, position) if kind == 2 else ({1: 8, 5: 4}[kind], position)
            if length > len(message) - position:
                raise ValueError(f"a field of {length} bytes, of which {len(message) - position} are there")
            value, position = message[position : position + length], position + length
        else:
            raise ValueError(f"a field of kind={kind}: this is no message of protocol buffers, or a damaged one.")
        values[number].append(value)
    return values


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
