"""Roundings to float16 and bfloat16, which vanish in float64: where a file has them, and what they do."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import onnx
from onnx import TensorProto

from dlb_graph.comparing.causes import LISTED
from dlb_graph.comparing.distance import relative_l2
from dlb_graph.comparing.read_facts import NarrowValues
from dlb_graph.layers.numbers import Array
from dlb_graph.truth.evaluate import Evaluator
from dlb_graph.truth.precision import in_precision, with_roundings

__all__ = ["narrow_values"]


def narrow_values(
    model: onnx.ModelProto, inputs: Mapping[str, Array], label: str = ""
) -> NarrowValues | None:
    """The values that a model rounds to a type narrower than float32; None if there are none.

    A cast that changes no number is no rounding: of weights that are kept in float16, of truths.

    Args:
        inputs: every input by name, in the types of the model or rounded to them.
        label: the file's, if it is one of two.

    Raises:
        UnsupportedError: the model cannot be run.
    """
    found = with_roundings(model)
    if found is None:
        return None
    rounded, before = found
    unrounded, values, changed = dict[str, Array](), dict[str, Array](), list[str]()
    outputs = [value.name for value in model.graph.output]
    for name, value in Evaluator(rounded).stream(inputs, [*outputs, *before, *before.values()]):
        if name in outputs:
            values[name] = value.astype(np.float64)
        if name not in before:
            unrounded[name] = value
        elif not np.array_equal(unrounded.pop(before[name]), value, equal_nan=True):
            changed.append(name)
    expected = Evaluator(in_precision(model, TensorProto.DOUBLE)).run(inputs)
    distance = max(relative_l2(values[name], expected[name].astype(np.float64)) for name in outputs)
    if not changed and distance == 0:
        return None
    return NarrowValues(
        values=tuple(changed[:LISTED]),
        more=max(0, len(changed) - LISTED),
        distance=distance if math.isfinite(distance) else None,
        file=label,
    )
