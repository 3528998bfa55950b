"""Functions of single numbers: formulas, derivatives, and how graphs that hold them are read."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import get_args

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from dlb.errors import WorkloadError
from dlb.proof.extremes import check_domains, extremes
from dlb.proof.reference import Reference
from dlb_conformance.primitive_cases import BINARY, ELEMENTWISE, REDUCE, SOFTMAX, WHERE
from dlb_graph import workload as W
from dlb_graph.layers import FUNCTION_NUMBERS, Elementwise, ElementwiseFunction
from dlb_graph.layers.functions import FUNCTIONS
from dlb_graph.structure.normal_form import operations
from dlb_graph.structure.structure import compare_structure
from dlb_graph.truth.canonical import canonical_graph
from dlb_graph.truth.evaluate import evaluate
from dlb_graph.workload.initial import initial_weights
from dlb_graph.workload.lower import lower
from dlb_port import compare_files
from dlb_worker.onnx_graph import onnx_model

CASES = {**BINARY, **ELEMENTWISE, **REDUCE, **SOFTMAX, **WHERE}
NUMBERS: dict[str, dict[str, float]] = {
    "affine": {"alpha": -0.7, "beta": 1.5},
    "celu": {"alpha": 0.7},
    "clip": {"min": -0.5, "max": 0.8},
    "elu": {"alpha": 1.3},
    "hard_sigmoid": {"alpha": 0.2, "beta": 0.4},
    "leaky_relu": {"alpha": 0.2},
    "pow": {"alpha": -0.75},
}


def layer(function: str) -> Elementwise:
    return Elementwise(function=function, **NUMBERS.get(function, {}))  # type: ignore[arg-type]


def test_every_function_has_a_formula() -> None:
    assert set(FUNCTIONS) == set(get_args(ElementwiseFunction))
    assert set(NUMBERS) == set(FUNCTION_NUMBERS)


@pytest.mark.parametrize("function", FUNCTIONS)
def test_a_slope_is_the_derivative(function: str) -> None:
    x = np.linspace(-5, 5, 400) + 1e-3
    if function in ("log", "pow", "reciprocal", "sqrt"):
        x = np.abs(x) + 0.1
    if function in ("acos", "asin", "atanh"):
        x = x / 6
    if function == "acosh":
        x = np.abs(x) + 1.1
    if function in ("ceil", "floor", "round", "sign"):
        assert not layer(function).slope(x).any()
    if function == "straight_through_round":  # no difference is its slope
        assert (layer(function).slope(x) == 1).all()
        return
    value, numbers = FUNCTIONS[function].value, layer(function).numbers
    difference = (value(x + 1e-6, **numbers) - value(x - 1e-6, **numbers)) / 2e-6
    assert np.allclose(layer(function).slope(x), difference, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"function": "abs", "alpha": 1.0}, "'abs' has no alpha"),
        ({"function": "elu"}, "'elu' needs alpha"),
        ({"function": "hard_sigmoid", "alpha": 0.2}, "needs beta"),
        ({"function": "clip"}, "needs min, max or both"),
        ({"function": "clip", "min": 2.0, "max": 1.0}, "must be below"),
        ({"function": "clip", "min": float("nan")}, "must be finite"),
        ({"function": "celu", "alpha": 0.0}, "must be above 0"),
        ({"function": "affine", "alpha": 1.0, "beta": 0.0}, "change nothing"),
    ],
)
def test_wrong_numbers_are_refused(fields: dict, message: str) -> None:
    model = W.Model(
        input=W.Input(shape=(4,)), nodes=(W.Node(name="f", layer=Elementwise(**fields)),)
    )
    with pytest.raises(WorkloadError, match=f"layer 'f': .*{message}"):
        W.infer_shapes(model)


# --- graphs --------------------------------------------------------------------------------------

Nodes = list[onnx.NodeProto]


def graph(nodes: Nodes, opset: int = 17, **constants: float) -> onnx.ModelProto:
    def value(name: str) -> onnx.ValueInfoProto:
        return helper.make_tensor_value_info(name, TensorProto.FLOAT, ("N", 6))

    held = [numpy_helper.from_array(np.float32(c), name) for name, c in constants.items()]
    made = helper.make_graph(nodes, "g", [value("x")], [value("y")], held)
    return helper.make_model(made, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def node(operator: str, inputs: str, output: str, **attributes: float) -> onnx.NodeProto:
    return helper.make_node(operator, inputs.split(), [output], **attributes)


def softplus_by_where() -> onnx.ModelProto:
    nodes = [
        node("Greater", "x top", "far"),
        node("Softplus", "x", "near"),
        node("Where", "far x near", "y"),
    ]
    return graph(nodes, top=36.0)


def softplus_by_log() -> onnx.ModelProto:
    nodes = [
        *(node("Max", "x zero", "up"), node("Abs", "x", "a"), node("Neg", "a", "n")),
        *(node("Exp", "n", "e"), node("Add", "e one", "s"), node("Log", "s", "l")),
        node("Add", "up l", "y"),
    ]
    return graph(nodes, zero=0.0, one=1.0)


def softsign() -> onnx.ModelProto:
    nodes = [node("Abs", "x", "a"), node("Add", "a one", "s"), node("Div", "x s", "y")]
    return graph(nodes, one=1.0)


def leaky_relu_by_max() -> onnx.ModelProto:
    return graph([node("Mul", "x a", "s"), node("Max", "x s", "y")], a=0.2)


def leaky_relu_by_relu() -> onnx.ModelProto:
    nodes = [
        *(node("Mul", "x a", "s"), node("Relu", "x", "r"), node("Mul", "r b", "t")),
        node("Add", "s t", "y"),
    ]
    return graph(nodes, a=0.2, b=0.8)


def hard_sigmoid() -> onnx.ModelProto:
    nodes = [
        node("Mul", "x a", "s"),
        node("Add", "s b", "t"),
        node("Clip", "t zero one", "y"),
    ]
    return graph(nodes, a=0.2, b=0.4, zero=0.0, one=1.0)


def mish() -> onnx.ModelProto:
    return graph([node("Mish", "x", "y")], 18)


def elu() -> onnx.ModelProto:
    nodes = [
        *(node("Relu", "x", "r"), node("Elu", "x", "e"), node("Sub", "e r", "d")),
        *(node("Mul", "d a", "m"), node("Add", "r m", "y")),
    ]
    return graph(nodes, a=1.3)


def another_slope() -> onnx.ModelProto:
    return graph([node("LeakyRelu", "x", "y", alpha=0.3)])


def another_bound() -> onnx.ModelProto:
    return graph(
        [node("Mul", "x a", "s"), node("Add", "s b", "t"), node("Clip", "t zero one", "y")],
        **{"a": 0.2, "b": 0.4, "zero": 0.0, "one": 1.5},
    )


def a_bound_far_off() -> onnx.ModelProto:
    """The same function up to a value of 60."""
    nodes = [node("Mul", "x a", "s"), node("Max", "x s", "m"), node("Min", "m top", "y")]
    return graph(nodes, a=0.2, top=60.0)


def canonical(function: str) -> onnx.ModelProto:
    made = W.Model(input=W.Input(shape=(6,)), nodes=(W.Node(name="f", layer=layer(function)),))
    return canonical_graph(made, {})


def selu() -> onnx.ModelProto:
    nodes = [
        *(node("Exp", "x", "e"), node("Mul", "e a", "s"), node("Sub", "s a", "n")),
        *(node("Greater", "x zero", "up"), node("Where", "up x n", "w"), node("Mul", "w g", "y")),
    ]
    return graph(nodes, a=1.6732632423543772848, g=1.0507009873554804934, zero=0.0)


WRITTEN = [
    ("softplus", softplus_by_where),
    ("softplus", softplus_by_log),
    ("softsign", softsign),
    ("leaky_relu", leaky_relu_by_max),
    ("leaky_relu", leaky_relu_by_relu),
    ("hard_sigmoid", hard_sigmoid),
    ("mish", mish),
    ("elu", elu),
    ("selu", selu),
]


@pytest.mark.parametrize(("function", "written"), WRITTEN)
def test_a_function_written_in_parts_is_the_function(
    function: str, written: Callable[[], onnx.ModelProto]
) -> None:
    found = compare_structure(canonical(function), written())
    assert found.equal, found.differences


@pytest.mark.parametrize(("function", "written"), WRITTEN)
def test_files_that_round_the_constants_of_parts_are_the_same(
    function: str, written: Callable[[], onnx.ModelProto], tmp_path: Path
) -> None:
    paths = tmp_path / "canonical.onnx", tmp_path / "written.onnx"
    for path, model in zip(paths, (canonical(function), written())):
        onnx.save(model, path)
    certificate = compare_files(*paths)
    assert certificate.status("written.onnx") == "proven", certificate.checks


@pytest.mark.parametrize(
    ("function", "written"),
    [
        ("leaky_relu", another_slope),
        ("leaky_relu", a_bound_far_off),
        ("hard_sigmoid", another_bound),
        ("elu", leaky_relu_by_max),
    ],
)
def test_another_function_is_another(function: str, written: Callable[[], onnx.ModelProto]) -> None:
    assert not compare_structure(canonical(function), written()).equal


def test_a_function_of_a_function_is_two() -> None:
    made = graph([node("LeakyRelu", "x", "h", alpha=0.2), node("LeakyRelu", "h", "y", alpha=0.2)])
    assert [each.kind for each in operations(made)] == ["LeakyRelu", "LeakyRelu"]


def test_a_logarithm_of_what_is_not_positive_is_refused() -> None:
    layers = {"fc": W.Linear(out_features=6), "log": layer("log")}
    model = W.Model(
        input=W.Input(shape=(4,)),
        nodes=tuple(W.Node(name=name, layer=each) for name, each in layers.items()),
    )
    inputs = np.random.default_rng(0).standard_normal((8, 4)).astype(np.float32)
    reference = Reference(model, initial_weights(model, 0), inputs, np.zeros(8, np.int64))
    with pytest.raises(WorkloadError, match=r"layer 'log' \(elementwise log\) is not finite"):
        check_domains(reference)


# --- the proof at extremes -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("function", "kinds"),
    [("sin", ["ties", "large"]), ("exp", ["ties"]), ("softplus", ["ties", "large"])],
)
def test_a_case_without_finite_values_is_left_out(function: str, kinds: list[str]) -> None:
    model = W.Model(
        input=W.Input(shape=(4,)),
        nodes=(
            W.Node(name="hidden", layer=W.Linear(out_features=6)),
            W.Node(name="f", layer=layer(function)),
        ),
    )
    weights = initial_weights(model, 0)
    inputs = np.random.default_rng(0).standard_normal((8, 4)).astype(np.float32)
    assert [case.kind for case in extremes(model, weights, inputs)] == kinds


# --- frameworks without an exporter ---------------------------------------------------------------


@pytest.mark.parametrize("name", CASES)
def test_a_worker_writes_the_canonical_operators(name: str) -> None:
    model = CASES[name]
    workload = W.Workload(
        name="case",
        batch_size=2,
        data=W.Data(name="synthetic"),
        optimizer=W.SGD(learning_rate=0.1),
        model=model,
    )
    weights = initial_weights(model, 0)
    x = np.random.default_rng(0).standard_normal((3, *model.input.shape)).astype(np.float32)
    written = evaluate(
        onnx_model(lower(workload).model, "float32", "test"), {"input": x, **weights}
    )
    (expected,) = evaluate(canonical_graph(model, weights), {"input": x}).values()
    assert np.array_equal(next(iter(written.values())), expected)


def test_selu_is_computed_with_the_constants_of_its_node() -> None:
    """ONNX's own are rounded to float32 in a file; others count as they are."""
    x = np.linspace(-2, 2, 9)
    for attributes, alpha, gamma in (
        ({}, 1.6732632423543772848, 1.0507009873554804934),
        ({"alpha": 2.0, "gamma": 3.0}, 2.0, 3.0),
    ):
        graph = onnx.helper.make_graph(
            [onnx.helper.make_node("Selu", ["x"], ["y"], **attributes)],
            "g",
            [onnx.helper.make_tensor_value_info("x", onnx.TensorProto.DOUBLE, [9])],
            [onnx.helper.make_tensor_value_info("y", onnx.TensorProto.DOUBLE, [9])],
        )
        model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)])
        expected = gamma * np.where(x > 0, x, alpha * np.expm1(x))
        np.testing.assert_allclose(evaluate(model, {"x": x})["y"], expected, rtol=1e-14)
