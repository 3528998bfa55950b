"""Poolings in the terms of frameworks: how they round, how far they reach, what their means count."""

from __future__ import annotations

import numpy as np
import onnx
import onnx.parser
import onnxruntime
from hypothesis import assume, given
from hypothesis import strategies as st

from dlb.errors import ShapeError
from dlb_graph import workload as W
from dlb_graph.truth.evaluate import Evaluator
from dlb_worker.poolings import average_factors, reaching_pads, rounds_up

Shape = tuple[int, ...]


def model_of(
    operator: str, given: Shape, element: str = "float", **attributes: object
) -> onnx.ModelProto:
    words = ", ".join(
        f"{name} = {list(value) if isinstance(value, tuple) else value}"
        for name, value in attributes.items()
    )
    sizes = ", ".join(map(str, (1, *given)))
    found = ", ".join("ncdhw"[: 1 + len(given)])
    return onnx.parser.parse_model(
        f'<ir_version: 8, opset_import: ["" : 17]> pooled ({element}[{sizes}] x) => '
        f"({element}[{found}] y) {{ y = {operator} <{words}> (x) }}"
    )


@st.composite
def poolings(draw: st.DrawFn, kind: type) -> tuple[W.MaxPool | W.AveragePool, Shape]:
    """A layer that rounds up, and a map or a film that it takes: each window reads some of it."""
    axes = draw(st.integers(2, 3))
    kernel, stride = (draw(st.tuples(*[st.integers(1, 4)] * axes)) for _ in range(2))
    # Pads smaller than the kernel: no window lies in those before.
    pads = tuple(draw(st.integers(0, size - 1)) for size in kernel * 2)
    more = {"count_include_pad": st.booleans()}
    if kind is W.MaxPool:
        more = {"dilation": st.tuples(*[st.integers(1, 3)] * axes)}
    drawn = {name: draw(values) for name, values in more.items()}
    layer = kind(kernel=kernel, stride=stride, pads=pads, ceil_mode=draw(st.booleans()), **drawn)
    size = (2, *draw(st.tuples(*[st.integers(1, 9)] * axes)))
    try:
        W.infer_shapes(W.Model(input=W.Input(shape=size), nodes=(W.Node(name="one", layer=layer),)))
    except ShapeError:
        assume(False)
    return layer, size


@given(poolings(W.MaxPool))
def test_a_pooling_that_only_rounds_has_as_many_windows_in_onnx(
    drawn: tuple[W.MaxPool, Shape],
) -> None:
    """By its shape inference, and in ONNX Runtime."""
    layer, size = drawn
    up = rounds_up(layer.resolved(size))
    pads = reaching_pads(layer.resolved(size)) if up is None else layer.pads
    model = model_of(
        "MaxPool",
        size,
        kernel_shape=layer.kernel,
        strides=layer.stride,
        pads=pads,
        dilations=layer.dilation,
        ceil_mode=int(bool(up)),
    )
    (inferred,) = onnx.shape_inference.infer_shapes(model, strict_mode=True).graph.output
    found = [each.dim_value for each in inferred.type.tensor_type.shape.dim[2:]]
    assert tuple(found) == layer.output_shape([size])[1:]
    x = np.random.default_rng(0).normal(size=(1, *size)).astype(np.float32)
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    assert session.run(None, {"x": x})[0].shape[2:] == layer.output_shape([size])[1:]


@given(poolings(W.AveragePool))
def test_means_over_whole_kernels_are_set_right_by_factors(
    drawn: tuple[W.AveragePool, Shape],
) -> None:
    layer, size = drawn
    x = np.random.default_rng(0).normal(size=(1, *size))
    windows = {"kernel_shape": layer.kernel, "strides": layer.stride}
    true = model_of(
        "AveragePool",
        size,
        "double",
        **windows,
        pads=layer.pads,
        ceil_mode=int(layer.ceil_mode),
        count_include_pad=int(layer.count_include_pad),
    )
    pads = reaching_pads(layer.resolved(size))
    axes = len(layer.kernel)
    wide = np.pad(x, ((0, 0), (0, 0), *zip(pads[:axes], pads[axes:])))
    whole = Evaluator(model_of("AveragePool", wide.shape[1:], "double", **windows)).run(
        {"x": wide}, ["y"]
    )["y"]
    np.testing.assert_allclose(
        whole * average_factors(layer.resolved(size)),
        Evaluator(true).run({"x": x}, ["y"])["y"],
        atol=1e-14,
    )
