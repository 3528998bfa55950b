"""Evaluating graphs in NumPy: what is held meanwhile, and what nodes within nodes read."""

from __future__ import annotations

import itertools
import tracemalloc

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from dlb.errors import UnsupportedError
from dlb_graph.truth.evaluate import Evaluator, evaluate

DEEP, SIZE = 20, 1 << 17


def graph(
    nodes: list[onnx.NodeProto], outputs: list[str], weights: dict[str, np.ndarray] | None = None
) -> onnx.ModelProto:
    """From ``x``, of any shape, with float64 initialisers."""

    def value(name: str) -> onnx.ValueInfoProto:
        return helper.make_tensor_value_info(name, TensorProto.DOUBLE, None)

    held = [onnx.numpy_helper.from_array(array, name) for name, array in (weights or {}).items()]
    made = helper.make_graph(nodes, "made", [value("x")], [value(name) for name in outputs], held)
    return helper.make_model(made, opset_imports=[helper.make_opsetid("", 17)])


def deep() -> list[onnx.NodeProto]:
    names = ["x", *(f"v{place}" for place in range(DEEP))]
    return [helper.make_node("Neg", [given], [made]) for given, made in itertools.pairwise(names)]


def most(run) -> float:
    """The most memory that is held meanwhile, in values of the deep graph."""
    tracemalloc.start()
    try:
        run()
        return tracemalloc.get_traced_memory()[1] / (8 * SIZE)
    finally:
        tracemalloc.stop()


def test_values_that_nothing_reads_any_more_are_let_go():
    runner = Evaluator(graph(deep(), [f"v{DEEP - 1}"]))
    x = np.ones(SIZE)
    assert most(lambda: runner.run({"x": x})) < 4
    # What is asked for stays.
    every = [f"v{place}" for place in range(DEEP)]
    assert most(lambda: runner.run({"x": x}, every)) >= DEEP


def test_values_come_one_after_the_other():
    runner = Evaluator(graph(deep(), [f"v{place}" for place in range(DEEP)]))
    seen = []

    def take() -> None:
        for name, value in runner.stream({"x": np.ones(SIZE)}):
            seen.append((name, float(value[0])))

    assert most(take) < 5
    assert seen == [(f"v{place}", -1.0 if place % 2 == 0 else 1.0) for place in range(DEEP)]


def test_what_no_requested_value_needs_is_not_run():
    nodes = [
        helper.make_node("Neg", ["x"], ["negative"]),
        helper.make_node("GatherElements", ["x", "far"], ["elsewhere"]),
        helper.make_node("Neg", ["negative"], ["y"]),
    ]
    runner = Evaluator(graph(nodes, ["y"], {"far": np.array([SIZE])}))
    x = np.ones(SIZE)
    np.testing.assert_array_equal(runner.run({"x": x})["y"], x)
    with pytest.raises(UnsupportedError, match="an index is not in"):
        runner.run({"x": x}, ["elsewhere"])


def test_an_input_is_converted_where_it_is_read():
    nodes = [helper.make_node("Add", ["x", "w"], ["y"])]
    model = graph(nodes, ["y"], {"w": np.array([1.0, 2.0])})
    found = evaluate(model, {"x": np.ones(2, np.float32), "w": np.array([3, 4], np.float32)})["y"]
    assert found.dtype == np.float64
    np.testing.assert_array_equal(found, [4.0, 5.0])


def test_a_branch_reads_values_around_it():
    """Also one that no node after it does, and one that is an output of the branch as it is."""
    inner = helper.make_tensor_value_info("inner", TensorProto.DOUBLE, None)
    outer = helper.make_tensor_value_info("negated", TensorProto.DOUBLE, None)
    then = helper.make_graph(
        [helper.make_node("Add", ["negated", "x"], ["inner"])], "then", [], [inner]
    )
    otherwise = helper.make_graph(
        [helper.make_node("Identity", ["negated"], ["outer"])], "else", [], [outer]
    )
    nodes = [
        helper.make_node("Neg", ["x"], ["negated"]),
        helper.make_node("Neg", ["x"], ["between"]),
        helper.make_node("If", ["yes"], ["y"], then_branch=then, else_branch=otherwise),
    ]
    for yes, expected in ((True, [0.0, 0.0]), (False, [-1.0, -2.0])):
        model = graph(nodes, ["y"], {"yes": np.array(yes)})
        found = evaluate(model, {"x": np.array([1.0, 2.0], np.float32)})["y"]
        np.testing.assert_array_equal(found, expected)


def test_an_output_left_out_is_no_input_left_out():
    nodes = [
        helper.make_node("Dropout", ["x"], ["kept", ""]),
        helper.make_node("Clip", ["kept", "", "most"], ["y"]),
    ]
    model = graph(nodes, ["y"], {"most": np.array(1.5)})
    np.testing.assert_array_equal(evaluate(model, {"x": np.array([-1.0, 2.0])})["y"], [-1.0, 1.5])


def test_a_value_that_is_not_there_is_named():
    runner = Evaluator(graph(deep(), ["v0"]))
    with pytest.raises(UnsupportedError, match="no value called nowhere"):
        runner.run({"x": np.ones(2)}, ["v1", "nowhere"])
