"""Values of two models that hold the same numbers in another order."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from dlb_graph.comparing.counterparts import same_values
from dlb_graph.truth.trace import Trace, trace


def absolute(places: list[int], kind: int, x: np.ndarray) -> Trace:
    """The sizes of numbers whose places are exchanged."""
    nodes = [
        helper.make_node("Gather", ["x", "places"], ["moved"], axis=1),
        helper.make_node("Abs", ["moved"], ["y"]),
    ]
    ends = [helper.make_tensor_value_info(name, kind, [2, 4]) for name in "xy"]
    held = [numpy_helper.from_array(np.array(places), "places")]
    made = helper.make_graph(nodes, "g", ends[:1], ends[1:], held)
    opsets = [helper.make_opsetid("", 17)]
    return trace(helper.make_model(made, opset_imports=opsets), {"x": x})


@pytest.mark.parametrize("real", [True, False])
@pytest.mark.parametrize("any_order", [True, False])
def test_only_real_numbers_are_the_same_in_any_order(real: bool, any_order: bool) -> None:
    """Integers, such as tokens, are in another order what another model reads."""
    draw = np.random.default_rng(0)
    x = draw.standard_normal((2, 4)) if real else draw.integers(0, 99, (2, 4))
    kind = TensorProto.DOUBLE if real else TensorProto.INT64
    first, second = (absolute(places, kind, x) for places in ([0, 1, 2, 3], [2, 0, 3, 1]))
    found = same_values(first, second, 1e-10, any_order=any_order)
    assert ("y" in found.get("y", [])) == (real and any_order)


def test_other_real_numbers_are_not() -> None:
    x = np.random.default_rng(0).standard_normal((2, 4))
    first, second = (
        absolute(places, TensorProto.DOUBLE, x) for places in ([0, 1, 2, 3], [2, 0, 3, 3])
    )
    assert "y" not in same_values(first, second, 1e-10, any_order=True).get("y", [])
