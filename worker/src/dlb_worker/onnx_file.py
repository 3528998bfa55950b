"""Writing an exported model without holding its weights twice.

An exporter that is handed hundreds of megabytes of weights copies them in each of its steps. One
that takes them for inputs of the graph copies nothing: they are put in afterwards, one at a time.
"""

from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, Callable, Dict, Mapping

import numpy as np
import onnx
from onnx import checker, helper
from onnx.reference import ReferenceEvaluator

from dlb_worker.errors import UnsupportedError

__all__ = ["LAYOUT", "write_model"]

Array = np.ndarray

#: Operators that neither compute nor leave out a number.
LAYOUT = {"Identity", "Transpose", "Reshape", "Flatten", "Squeeze", "Unsqueeze"}

#: What one message of protobuf, and so one .onnx file, may hold.
_LARGEST = (1 << 31) - 1
#: Tags of fields: ModelProto.graph, GraphProto.initializer, TensorProto.raw_data.
_GRAPH, _INITIALIZER, _RAW_DATA = (bytes([number << 3 | 2]) for number in (7, 5, 9))
#: Bytes of the graph's own length, which is written when it is known.
_LENGTH = 5


def write_model(
    path: Path, model: onnx.ModelProto, weights: Mapping[str, Callable[[], Array]]
) -> None:
    """Write a model whose weights are inputs of its graph as one whose weights are inside.

    The model is checked before (``onnx.checker``, shapes included). What only transposes, reshapes
    or squeezes a weight is done to the weight. Weights that nothing reads are left out.

    Args:
        model: typed and shaped inputs for what it is given and for every weight that it reads.
        weights: by name, what gives the array; called once for each weight that is read, or once
            for each arrangement of it, and let go before the next.

    Raises:
        onnx.checker.ValidationError, onnx.shape_inference.InferenceError: the model is not
            consistent.
        UnsupportedError: it would be larger than the 2 GB that a file can hold.
    """
    checker.check_model(model, full_check=True)
    shell = onnx.ModelProto()
    shell.CopyFrom(model)
    inside = _fold(shell.graph, weights)
    _keep(shell.graph.input, lambda value: value.name not in weights)
    try:
        with path.open("wb") as file:
            _write(file, shell, inside)
    except BaseException:
        if path.exists():
            path.unlink()
        raise


def _write(
    file: BinaryIO, model: onnx.ModelProto, inside: Mapping[str, Callable[[], Array]]
) -> None:
    """The model, its graph last, and the initialisers last in the graph."""
    graph = model.graph.SerializeToString()
    model.ClearField("graph")
    file.write(model.SerializeToString() + _GRAPH)
    start = file.tell() + _LENGTH
    file.write(b"\0" * _LENGTH + graph)
    for name, made in inside.items():
        _write_initializer(file, name, made())
    length = file.tell() - start
    file.seek(start - _LENGTH)
    file.write(_varint(length, _LENGTH))


def _fold(
    graph: onnx.GraphProto, weights: Mapping[str, Callable[[], Array]]
) -> Dict[str, Callable[[], Array]]:
    """Take the nodes that only arrange a weight out of the graph; the weights that are then read.

    A weight that others read as well is still arranged in the graph. Initialisers that no node
    reads any more go with the nodes.
    """
    constants = {each.name: onnx.numpy_helper.to_array(each) for each in graph.initializer}
    made = dict(weights)
    readers = _readers(graph)
    outputs = {value.name for value in graph.output}
    names: Dict[str, str] = {}
    kept = []
    for node in graph.node:
        value, *others = list(node.input) or [""]
        weight = names.get(value, value)
        if (
            node.op_type in LAYOUT
            and weight in made
            and readers[value] == 1
            and all(name in constants for name in others if name)
            and node.output[0] not in outputs
        ):
            given = {name: constants[name] for name in others if name}
            made[weight] = partial(_arranged, node, made[weight], given)
            names[node.output[0]] = weight
        else:
            kept.append(node)
    del graph.node[:]
    graph.node.extend(kept)
    _rename(graph, names)
    read = _readers(graph)
    _keep(graph.initializer, lambda tensor: tensor.name in read)
    return {name: each for name, each in made.items() if name in read}


def _arranged(node: onnx.NodeProto, made: Callable[[], Array], given: Mapping[str, Array]) -> Array:
    (found,) = ReferenceEvaluator(node).run(None, {node.input[0]: made(), **given})
    return np.asarray(found)


def _readers(graph: onnx.GraphProto) -> "Counter[str]":
    """How many read a value: nodes, those of graphs within nodes, and whoever gets an output."""
    names = Counter(value.name for value in graph.output)
    for node in graph.node:
        names.update(node.input)
        for attribute in node.attribute:
            for inner in (attribute.g, *attribute.graphs):
                names.update(_readers(inner))
    return names


def _rename(graph: onnx.GraphProto, names: Mapping[str, str]) -> None:
    """Let what reads a value, within nodes as well, read another."""
    for node in graph.node:
        for place, name in enumerate(node.input):
            node.input[place] = names.get(name, name)
        for attribute in node.attribute:
            for inner in (attribute.g, *attribute.graphs):
                _rename(inner, names)


def _keep(held: Any, wanted: Callable[[Any], bool]) -> None:
    """Leave in a repeated field what is wanted."""
    kept = [each for each in held if wanted(each)]
    del held[:]
    held.extend(kept)


def _write_initializer(file: BinaryIO, name: str, array: Array) -> None:
    """A TensorProto, its numbers written from where they are."""
    if file.tell() + array.nbytes > _LARGEST:
        raise UnsupportedError(
            f"the weights up to {name} take more than 2 GB, which no .onnx file holds"
        )
    data = np.ascontiguousarray(array, array.dtype.newbyteorder("<"))
    tensor = onnx.TensorProto(
        name=name,
        dims=array.shape,
        data_type=helper.np_dtype_to_tensor_dtype(array.dtype.newbyteorder("=")),
    ).SerializeToString()
    tensor += _RAW_DATA + _varint(data.nbytes)
    file.write(_INITIALIZER + _varint(len(tensor) + data.nbytes) + tensor)
    file.write(data.data.cast("B"))


def _varint(number: int, width: int = 1) -> bytes:
    """A number as protobuf writes it, in at least so many bytes.

    Source: https://protobuf.dev/programming-guides/encoding/#varints
    """
    found = bytearray()
    while number > 0x7F or len(found) < width - 1:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*found, number])
