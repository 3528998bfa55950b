"""The operators that are a layer by themselves, and where each keeps its weights.

A reader of layers asks for the numbers; who loads weights into a file asks for the constants that hold them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx

from dlb_graph.truth.trace import attributes_of

__all__ = ["KINDS", "WeightPlace", "directions", "weight_places"]

Array = npt.NDArray[Any]

_AFFINE = {"weight": 1, "bias": 2}
_NORM = {"scale": 1, "bias": 2}
_RECURRENT = {"input_weight": 1, "recurrent_weight": 2, "bias": 3}
#: The input that is each weight of an operator.
_INPUTS: Mapping[str, Mapping[str, int]] = {
    **dict.fromkeys(("Conv", "ConvTranspose", "Gemm", "MatMul"), _AFFINE),
    **dict.fromkeys(("GRU", "LSTM", "RNN"), _RECURRENT),
    **dict.fromkeys(("GroupNormalization", "InstanceNormalization", "LayerNormalization"), _NORM),
    "BatchNormalization": {**_NORM, "mean": 3, "variance": 4},
    "Gather": {"weight": 0},
    "PRelu": {"slope": 1},
    "RMSNormalization": {"scale": 1},
}
#: The kinds of the layers that frameworks have for these operators.
KINDS = {
    "BatchNormalization": "batch_norm", "Conv": "conv", "ConvTranspose": "conv_transpose", "GRU": "gru",
    "Gather": "embedding", "Gemm": "linear", "GroupNormalization": "group_norm", "LSTM": "lstm",
    "LayerNormalization": "layer_norm", "MatMul": "linear", "PRelu": "prelu", "RMSNormalization": "rms_norm",
    "RNN": "rnn",
}  # fmt: skip


def _whole(constant: Array) -> Array:
    return constant


@dataclass(frozen=True)
class WeightPlace:
    """Where a graph keeps a weight.

    Attributes:
        constant: name of the constant.
        view: of the constant, the numbers of the weight in canonical layout.
        summed: whether the weight is the sum of two rows of the view.
        part: which part of the constant it is; "" for all of it.
    """

    constant: str
    view: Callable[[Array], Array] = _whole
    summed: bool = False
    part: str = ""

    def read(self, constant: Array) -> Array:
        """The weight, from the constant."""
        numbers = self.view(constant)
        return np.asarray(numbers.sum(axis=0)) if self.summed else numbers

    def write(self, constant: Array, weight: Array) -> Array:
        """A copy of the constant that holds a weight; of two rows, the second becomes zeros."""
        changed = np.array(constant, order="C")
        numbers = self.view(changed)
        if self.summed:
            numbers[0], numbers[1] = weight, 0
        else:
            numbers[...] = np.reshape(weight, numbers.shape)
        return changed


def directions(attributes: Mapping[str, Any]) -> tuple[bool, ...]:
    """For each direction of a recurrent operator whether it runs backwards."""
    known = {"reverse": (True,), "bidirectional": (False, True)}
    return known.get(attributes.get("direction", ""), (False,))


def weight_places(
    node: onnx.NodeProto, is_constant: Callable[[str], bool]
) -> dict[str, WeightPlace] | None:
    """The places of an operator's weights by role, without those that it leaves out.

    Those of a direction that runs backwards begin with "backward". A bias and a slope lie as they are written.

    Args:
        is_constant: whether a value is one, by its name.

    Returns:
        None if a weight is no constant, or the operator is no layer.
    """
    if node.op_type not in _INPUTS:
        return None
    inputs = _INPUTS[node.op_type].items()
    names = {role: node.input[k] for role, k in inputs if k < len(node.input) and node.input[k]}
    if not all(map(is_constant, names.values())):
        return None
    places = {role: WeightPlace(name) for role, name in names.items()}
    attributes = attributes_of(node)
    if KINDS.get(node.op_type) == "linear" and not attributes.get("transB", 0):
        places["weight"] = replace(places["weight"], view=np.transpose)
    if _INPUTS[node.op_type] is not _RECURRENT:
        return places
    summed = not (node.op_type == "GRU" and attributes.get("linear_before_reset", 0))
    return {
        f"{'backward ' * backwards}{role}": _of_direction(place, number, role == "bias", summed)
        for number, backwards in enumerate(directions(attributes))
        for role, place in places.items()
    }


def _of_direction(place: WeightPlace, number: int, bias: bool, summed: bool) -> WeightPlace:
    """The part of one direction: a matrix, or the biases of both products, [2, gates * hidden]."""

    def view(constant: Array) -> Array:
        numbers: Array = constant[number]
        return numbers.reshape(2, -1) if bias else numbers

    return replace(place, view=view, summed=bias and summed, part=str(number))
