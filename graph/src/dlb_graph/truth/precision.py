"""ONNX graphs in another precision: the same operators on wider or narrower real numbers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from dlb_graph.errors import UnsupportedError
from dlb_graph.layers.numbers import Array
from dlb_graph.truth.held import is_held

__all__ = ["REAL_TYPES", "in_precision", "inlined", "set_nominal_values", "with_roundings"]


#: Element types that are converted to the requested precision.
REAL_TYPES = frozenset(
    (TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16, TensorProto.DOUBLE)
)
#: Those of them that keep fewer digits than float32.
_NARROW_TYPES = frozenset((TensorProto.FLOAT16, TensorProto.BFLOAT16))
#: Attributes that name the element type of a result.
_NAMES_A_TYPE = {"Cast": "to", "EyeLike": "dtype"}


def inlined(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with its own functions written out; itself if it has none.

    Raises:
        UnsupportedError: one stays: it is written for another operator set than the model.
    """
    if not model.functions:
        return model
    from onnx import inliner

    written: onnx.ModelProto = inliner.inline_local_functions(model)
    for function in written.functions:
        raise UnsupportedError(
            f"its function '{function.name}' has another operator set than the model"
        )
    return written


def in_precision(model: onnx.ModelProto, element: int) -> onnx.ModelProto:
    """A copy in which every real number has one element type.

    Initialisers, constants, inputs and outputs are converted. So are the targets of casts between
    real types, which only round. The model's own functions are inlined. Declared types and shapes
    of intermediate values are removed.

    Args:
        element: ``TensorProto.FLOAT`` or ``TensorProto.DOUBLE``.

    Raises:
        ValueError: a tensor's data does not match its shape.
    """
    copy = onnx.ModelProto()
    copy.CopyFrom(inlined(model))
    _convert_graph(copy.graph, element)
    return copy


def with_roundings(model: onnx.ModelProto) -> tuple[onnx.ModelProto, dict[str, str]] | None:
    """The model in float64, in which values that the file keeps in float16 or bfloat16 are rounded to these.

    Returns:
        the model, and the name of each such value before it is rounded, by its own; those of graphs inside
        nodes are rounded, too, but not named. None if no node computes one.
    """
    model = inlined(model)
    inferred = onnx.shape_inference.infer_shapes(model).graph
    types = {
        value.name: value.type.tensor_type.elem_type
        for value in (*inferred.value_info, *inferred.output)
    }
    copy = in_precision(model, TensorProto.DOUBLE)
    rounded = _round_values(model.graph, copy.graph, types)
    return None if rounded is None else (copy, rounded)


def _round_values(
    source: onnx.GraphProto, graph: onnx.GraphProto, types: Mapping[str, int]
) -> dict[str, str] | None:
    """Round the values of a graph in float64 as the one that it was made of does; None if it rounds none."""
    names, inner_rounds, nodes = dict[str, str](), False, list[onnx.NodeProto]()
    for original, node in zip(source.node, graph.node):
        nodes.append(node)
        for before, after in zip(original.attribute, node.attribute):
            graphs = (before.g, *before.graphs), (after.g, *after.graphs)
            for pair in zip(*graphs):
                inner_rounds |= _round_values(*pair, {}) is not None
        for place, name in enumerate(node.output):
            kind = types.get(name, 0)
            if original.op_type == "Cast":  # the types inside a node's graph are not inferred
                kind = next(each.i for each in original.attribute if each.name == "to")
            if not name or kind not in _NARROW_TYPES:
                continue
            names[name], narrow = f"{name}/unrounded", f"{name}/narrow"
            node.output[place] = names[name]
            nodes += [
                helper.make_node("Cast", [names[name]], [narrow], to=kind),
                helper.make_node("Cast", [narrow], [name], to=TensorProto.DOUBLE),
            ]
    if not names and not inner_rounds:
        return None
    del graph.node[:]
    graph.node.extend(nodes)
    return names


def _convert_graph(graph: onnx.GraphProto, element: int) -> None:
    _convert_tensors(graph.initializer, element)
    _convert_tensors((sparse.values for sparse in graph.sparse_initializer), element)
    del graph.value_info[:]
    for value in (*graph.input, *graph.output):
        if value.type.tensor_type.elem_type in REAL_TYPES:
            value.type.tensor_type.elem_type = element
    for node in graph.node:
        _convert_node(node, element)


def set_nominal_values(
    model: onnx.ModelProto, values: Mapping[str, Array], nominal_values: Mapping[str, float | Array]
) -> None:
    """Replace rounded constants of a model by their nominal values, in place.

    Args:
        values: of the model's values, by name.
        nominal_values: the new value of some constants, by name.
    """
    nodes, initializers = model.graph.node, model.graph.initializer
    for index in reversed(range(len(nodes))):
        if not nominal_values.keys().isdisjoint(nodes[index].output):
            del nodes[index]
    for index in reversed(range(len(initializers))):
        if initializers[index].name in nominal_values:
            del initializers[index]
    initializers.extend(
        numpy_helper.from_array(np.full_like(values[name], nominal_value), name)
        for name, nominal_value in nominal_values.items()
    )


def _convert_node(node: onnx.NodeProto, element: int) -> None:
    kind = helper.tensor_dtype_to_np_dtype(element)
    for attribute in node.attribute:
        if attribute.name == _NAMES_A_TYPE.get(node.op_type) and attribute.i in REAL_TYPES:
            attribute.i = element
        if node.op_type == "Constant" and attribute.name in ("value_float", "value_floats"):
            number = np.asarray(helper.get_attribute_value(attribute), kind)
            attribute.CopyFrom(helper.make_attribute("value", numpy_helper.from_array(number)))
        elif attribute.type == onnx.AttributeProto.TENSOR:
            _convert_tensors([attribute.t], element)
        for inner in (attribute.g, *attribute.graphs):
            _convert_graph(inner, element)
    if node.op_type == "ConstantOfShape" and not node.attribute:
        zero = numpy_helper.from_array(np.zeros(1, kind))
        node.attribute.append(helper.make_attribute("value", zero))


def _convert_tensors(tensors: Iterable[onnx.TensorProto], element: int) -> None:
    kind = helper.tensor_dtype_to_np_dtype(element)
    for tensor in tensors:
        if tensor.data_type not in REAL_TYPES or tensor.data_type == element:
            continue
        if is_held(tensor):
            tensor.data_type = element
        else:
            array = numpy_helper.to_array(tensor).astype(kind)
            tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))
