"""The numbers that a graph means, where the file keeps them rounded to float32."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
from onnx import NodeProto, helper

from dlb_graph.errors import DlbError
from dlb_graph.layers.decimals import six_digits, unrounded
from dlb_graph.layers.numbers import Array
from dlb_graph.rewriting.control_flow import traced as traced_run
from dlb_graph.truth.precision import set_nominal_values
from dlb_graph.truth.recognised import Recognised
from dlb_graph.truth.recognition import recognise

__all__ = ["fix_input_shapes", "nominal_array", "restore_nominal_values"]


_WHOLE = np.arange(1, 4097, dtype=np.float64)
#: Numbers that models compute from sizes, such as 1 / sqrt(d) of attention.
_FORMS = np.unique(
    np.concatenate([1 / _WHOLE, *(_WHOLE**power for power in (0.5, -0.5, 0.25, -0.25))])
)
#: The same numbers as a file keeps them.
_ROUNDED_FORMS = _FORMS.astype(np.float32)
#: Larger constants than this are no settings of an operator.
_MOST = 4096


def restore_nominal_values(model: onnx.ModelProto, batch: Mapping[str, Array]) -> Recognised | None:
    """Replace constants of a float64 model that were rounded to float32 by their nominal values, in place.

    A GELU that is written out holds the square root of two in float32, and another file may hold the operator.
    An exporter may multiply alpha of an LRN by the size: 0.0001 / 3 * 3 in float32 is one rounding off. A
    CastLike names its type then, which is that of float64.

    Args:
        batch: every input by name.

    Returns:
        what was recognised in the model; None if it cannot be run.
    """
    for node in model.graph.node:
        for attribute in node.attribute:
            if (node.op_type, attribute.name) == ("LRN", "alpha"):
                attribute.f = unrounded(attribute.f)
    try:
        traced = traced_run(fix_input_shapes(model, batch), batch)
        known = recognise(traced)
    except DlbError:
        return None
    for node in model.graph.node:
        if node.op_type == "CastLike":
            _name_type(node, traced.values[node.input[1]].dtype)
    graph = model.graph
    own_names = {tensor.name for tensor in graph.initializer}
    own_names.update(name for node in graph.node for name in node.output)
    set_nominal_values(
        model,
        traced.values,
        {name: value for name, value in known.nominal_values.items() if name in own_names},
    )
    return known


def _name_type(node: NodeProto, dtype: np.dtype[Any]) -> None:
    """Turn a CastLike into a Cast, so that its result depends on its first input alone."""
    to = helper.np_dtype_to_tensor_dtype(dtype)
    node.CopyFrom(helper.make_node("Cast", node.input[:1], node.output, name=node.name, to=to))


def fix_input_shapes(model: onnx.ModelProto, batch: Mapping[str, Array]) -> onnx.ModelProto:
    """A copy of the model whose inputs have the shapes of a batch."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    for value in copy.graph.input:
        if value.name in batch:
            kind = value.type.tensor_type
            kind.CopyFrom(
                helper.make_tensor_type_proto(kind.elem_type, batch[value.name].shape).tensor_type
            )
    return copy


def nominal_array(array: Array) -> Array:
    """A constant as it is meant: numbers of six digits, or one computed from a size.

    Every number is replaced only by one that rounds to the same float32, or none is.

    Args:
        array: float64, as a file in float32 keeps it.
    """
    numbers = array.ravel()
    rounded = numbers.astype(np.float32)
    if not 0 < numbers.size <= _MOST or not np.array_equal(rounded, numbers):
        return array
    short = np.array([six_digits(number) for number in numbers.tolist()])
    if np.array_equal(short.astype(np.float32), rounded):
        return short.reshape(array.shape)
    places = np.searchsorted(_ROUNDED_FORMS, np.abs(rounded)).clip(max=len(_FORMS) - 1)
    if numbers.size == 1 and _ROUNDED_FORMS[places[0]] == abs(rounded[0]):
        return np.asarray(np.sign(numbers) * _FORMS[places]).reshape(array.shape)
    return array
