"""Interpolation: taps, the evaluator next to ONNX Runtime and torch's formulas, and its gradient."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from dlb_graph import workload as W
from dlb_graph.layers import Pass
from dlb_graph.layers.resize import COORDINATES, resized, taps_of
from dlb_graph.structure.normal_form import operations
from dlb_graph.truth.evaluate import evaluate

SIZES = st.integers(1, 7)
SCALES = st.floats(0.25, 3.0, width=32)


def resize(given_by: str, numbers: tuple[float, ...], shape: tuple[int, ...], **attributes: Any):
    """A model of one Resize, by sizes or by scales of the last two axes."""
    whole = {"sizes": (*shape[:2], *numbers), "scales": (1, 1, *numbers)}[given_by]
    held = np.array(whole, np.int64 if given_by == "sizes" else np.float32)
    names = ["x", "", "", "by"] if given_by == "sizes" else ["x", "", "by"]
    return helper.make_model(
        helper.make_graph(
            [helper.make_node("Resize", names, ["y"], **attributes)],
            "g",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
            [numpy_helper.from_array(held, "by")],
        ),
        opset_imports=[helper.make_opsetid("", 19)],
        ir_version=9,
    )


def by_onnx_runtime(model: onnx.ModelProto, x: np.ndarray) -> np.ndarray:
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    (found,) = session.run(None, {"x": x})
    return found


@settings(max_examples=150, suppress_health_check=list(HealthCheck))
@given(
    mode=st.sampled_from(["linear", "cubic"]),
    coordinates=st.sampled_from(sorted(COORDINATES.keys() - {"tf_half_pixel_for_nn"})),
    asked=st.one_of(
        st.tuples(st.just("sizes"), st.tuples(SIZES, SIZES)),
        st.tuples(st.just("scales"), st.tuples(SCALES, SCALES)),
    ),
    a=st.sampled_from([-0.75, -0.5]),
    exclude=st.booleans(),
)
def test_resizes_are_those_of_onnx_runtime(mode, coordinates, asked, a, exclude) -> None:
    attributes: dict[str, Any] = {"mode": mode, "coordinate_transformation_mode": coordinates}
    if mode == "cubic":
        attributes |= {"cubic_coeff_a": a, "exclude_outside": int(exclude)}
    given_by, numbers = asked
    if given_by == "scales":
        sizes = tuple(map(resized, (5, 4), numbers))
        # Without an element nothing is left. A value whose sizes stay ONNX Runtime copies, whatever the scales.
        assume(min(sizes) > 0 and sizes != (5, 4))
    model = resize(given_by, numbers, (2, 3, 5, 4), **attributes)
    x = np.random.default_rng(0).normal(size=(2, 3, 5, 4)).astype(np.float32)
    found, expected = evaluate(model, {"x": x})["y"], by_onnx_runtime(model, x)
    assert found.shape == expected.shape
    assert np.abs(found - expected).max() < 2e-5


def test_taps_of_twice_the_size() -> None:
    taps = taps_of(3, 6)
    assert taps.indices.tolist() == [[0, 0], [0, 1], [0, 1], [1, 2], [1, 2], [2, 2]]
    assert taps.weights[1:5].tolist() == [[0.75, 0.25], [0.25, 0.75], [0.75, 0.25], [0.25, 0.75]]
    assert taps.matrix.sum(axis=1).tolist() == [1] * 6


@pytest.mark.parametrize("coordinates", sorted(COORDINATES.keys() - {"tf_half_pixel_for_nn"}))
@pytest.mark.parametrize("mode", ["linear", "cubic"])
def test_weights_add_up_to_1_and_read_what_is_there(mode: str, coordinates: str) -> None:
    for size, output, scale in (
        (5, 8, None),
        (5, 2, None),
        (4, 5, 1.3),
        (1, 3, None),
        (3, 1, None),
    ):
        for exclude in (False, True):
            taps = taps_of(
                *(size, output, scale), mode=mode, coordinates=coordinates, exclude_outside=exclude
            )
            assert np.allclose(taps.weights.sum(axis=1), 1, rtol=0, atol=1e-14)
            assert taps.indices.min() >= 0 and taps.indices.max() < size


LAYERS: list[W.Layer] = [
    W.Resize(sizes=(2, 7, 3)),
    W.Resize(sizes=(3, 4, 9), mode="cubic", coordinates="align_corners"),
    W.Resize(sizes=(2, 6, 4), scales=(1.0, 1.2, 0.8)),
    W.Mask(sizes=(2, 1, 6), kept="d5a0", value=-1e4),
]


@pytest.mark.parametrize("layer", LAYERS, ids=repr)
def test_the_gradient_is_that_of_a_linear_function(layer: W.Layer) -> None:
    """y(x) . c - y(0) . c is x . gradient: neither layer multiplies numbers of the value."""
    from dlb_graph.truth.canonical import canonical_graph

    model = W.Model(input=W.Input(shape=(2, 5, 6)), nodes=(W.Node(name="one", layer=layer),))
    random = np.random.default_rng(0)
    x = random.normal(size=(3, 2, 5, 6))
    graph = canonical_graph(model, {}, dtype="float64")
    y, at_zero = (evaluate(graph, {"input": each})["one"] for each in (x, np.zeros_like(x)))
    cotangent = random.normal(size=y.shape)
    ((gradient,), parameters) = layer.gradients(Pass((x,), {}), cotangent)
    assert not parameters and gradient is not None and gradient.shape == x.shape
    assert (x * gradient).sum() == pytest.approx(((y - at_zero) * cotangent).sum(), rel=1e-12)


def test_a_resize_is_a_product_along_each_axis() -> None:
    """The axis that shrinks most comes first, whatever the order of the axes."""
    for shape, sizes in (((2, 3, 5, 8), (10, 4)), ((2, 3, 8, 5), (4, 10))):
        found = operations(resize("sizes", sizes, shape, mode="linear"))
        assert [each.kind for each in found] == ["Linear", "Linear"]
        assert [each.attributes["weight"] for each in found] == [(4, 8), (10, 5)]


def test_places_of_a_mask_are_counted_in_any_layout() -> None:
    """A choice of either side, and minus infinity that is added, are one operation."""
    kept = np.arange(12).reshape(3, 4) % 5 > 0
    held = {
        "kept": kept,
        "left": ~kept,
        "low": np.float32(-np.inf),
        "mask": np.where(kept, 0, -1e38).astype(np.float32),
    }
    found = []
    for text in ("Where kept x low", "Where left low x", "Add x mask", "Add mask x"):
        operator, *names = text.split()
        model = helper.make_model(
            helper.make_graph(
                [helper.make_node(operator, names, ["y"])],
                "g",
                [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 3, 4])],
                [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
                [numpy_helper.from_array(np.asarray(array), name) for name, array in held.items()],
            ),
            opset_imports=[helper.make_opsetid("", 17)],
            ir_version=8,
        )
        found.append([(each.kind, each.attributes) for each in operations(model)])
    assert found == [[("Where", {"kept": 9, "value": -3.40282e38, "elements": 12})]] * 4
