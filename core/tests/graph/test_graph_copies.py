"""What only repeats a value: for every number, not for those of one run."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from dlb_graph.rewriting.control_flow import traced
from dlb_graph.structure.normal_form import operations
from dlb_graph.truth.liveness import live_names

ENTRIES = 40
FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64


def looked_up(*nodes: onnx.NodeProto, size: int = 6, **constants: np.ndarray) -> onnx.ModelProto:
    """A table that is read by indices, which nodes compute as ``ids`` from the input ``x``."""
    held = {"table": np.zeros((ENTRIES, 3), np.float32), **constants}
    graph = helper.make_graph(
        [*nodes, helper.make_node("Gather", ["table", "ids"], ["y"])],
        "graph",
        [helper.make_tensor_value_info("x", INT64, ["N", size])],
        [helper.make_tensor_value_info("y", FLOAT, ["N", size, 3])],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in held.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])


def node(operator: str, inputs: str, output: str = "ids", **attributes: object) -> onnx.NodeProto:
    return helper.make_node(operator, inputs.split(), [output], **attributes)


NEGATIVE = (node("Less", "x zero", "is"), node("Add", "x entries", "up"), node("Where", "is up x"))
UNCHANGED = {
    "negative indices, counted from the end": NEGATIVE,
    "indices that are kept within the table": (node("Clip", "x zero last"),),
    "the same, in two steps": (node("Max", "x zero", "m"), node("Min", "m last")),
    "an index that no table has": (node("Equal", "x entries", "is"), node("Where", "is zero x")),
    "narrower integers": (node("Cast", "x", to=TensorProto.INT32),),
    "a whole slice": (node("Slice", "x start end axis"),),
    "an expansion to its own shape": (node("Shape", "x", "shape"), node("Expand", "x shape")),
}
CHANGED = {
    "one rare index": (node("Equal", "x seven", "is"), node("Where", "is three x")),
    "the last index": (node("Min", "x seven"),),
    "real numbers between": (
        node("Cast", "x", "real", to=FLOAT),
        node("Equal", "real sevens", "is"),
        node("Where", "is threes real", "mapped"),
        node("Cast", "mapped", to=INT64),
    ),
    "indices of a table of indices": (node("Gather", "swapped x"),),
    "an index at one position": (
        node("Equal", "x rare", "is"),
        node("Where", "is three x"),
    ),
    "a part whose end depends on the input": (
        node("ReduceMax", "x", "most", keepdims=0),
        node("Cast", "most", "real", to=FLOAT),
        node("Cast", "real", "whole", to=INT64),
        node("Mul", "whole zero", "none"),
        node("Add", "none six", "size"),
        node("Unsqueeze", "size start", "sizes"),
        node("Slice", "x start sizes axis"),
    ),
}
CONSTANTS = {
    "zero": 0, "three": 3, "seven": 7, "six": 6, "entries": ENTRIES, "last": ENTRIES - 1,
    "start": [0], "end": [1 << 40], "axis": [1], "rare": [7, -1, -1, -1, -1, -1],
    "swapped": [*range(2), *range(3, ENTRIES), 2],
}  # fmt: skip
ARRAYS = {
    **{name: np.array(numbers, np.int64) for name, numbers in CONSTANTS.items()},
    "sevens": np.float32(7),
    "threes": np.float32(3),
}


def kinds(nodes: tuple[onnx.NodeProto, ...]) -> list[str]:
    return [operation.kind for operation in operations(looked_up(*nodes, **ARRAYS))]


@pytest.mark.parametrize("name", UNCHANGED)
def test_arithmetic_that_changes_no_index_of_the_table_is_left_out(name: str) -> None:
    assert kinds(UNCHANGED[name]) == ["Embedding"]


@pytest.mark.parametrize("name", CHANGED)
def test_arithmetic_that_changes_an_index_is_seen_though_the_run_does_not_show_it(
    name: str,
) -> None:
    found = kinds(CHANGED[name])
    assert len(found) > 1 and found[-1] == "Gather as written"


def test_indices_that_differ_in_one_entry_are_two_operations() -> None:
    other = {**ARRAYS, "swapped": ARRAYS["swapped"][::-1].copy()}
    nodes = CHANGED["indices of a table of indices"]
    assert operations(looked_up(*nodes, **ARRAYS)) != operations(looked_up(*nodes, **other))


def test_columns_in_reverse_are_no_copy_though_the_run_is_the_same_in_reverse() -> None:
    backwards = [node("Slice", "x minus least axis minus", "ids")]
    held = {**ARRAYS, "minus": np.array([-1]), "least": np.array([-(1 << 40)])}
    found = operations(looked_up(*backwards, size=5, **held))
    assert [operation.kind for operation in found] == ["Embedding", "Slice"]
    assert found[1].attributes["indices"] == [(5, (4, 3, 2, 1, 0))]


def test_a_shape_that_numbers_decide_depends_on_the_input() -> None:
    nodes = [
        node("Shape", "x", "whole"),
        node("NonZero", "x", "places"),
        node("Shape", "places", "found"),
        node("Gather", "found one", "count"),
        node("ConstantOfShape", "whole", "zeros"),
    ]
    assert live_names(nodes, ["x"]) == {"x", "places", "found", "count"}


def choosing(condition: list[onnx.NodeProto], **constants: np.ndarray) -> onnx.ModelProto:
    """A model whose If takes a branch by a condition that nodes compute from the input ``x``."""
    branches = {}
    for branch, factor in (("then_branch", 2.0), ("else_branch", 3.0)):
        # Both branches give their own constant one name, as exporters do.
        branches[branch] = helper.make_graph(
            [helper.make_node("Mul", ["x", "factor"], ["scaled"])],
            branch,
            [],
            [helper.make_tensor_value_info("scaled", FLOAT, ["N", 4])],
            [numpy_helper.from_array(np.full(4, factor, np.float32), "factor")],
        )
    nodes = [
        *condition,
        helper.make_node("If", ["is"], ["first"], name="choice", **branches),
        helper.make_node("If", ["is"], ["second"], name="again", **branches),
        helper.make_node("Add", ["first", "second"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "graph",
        [helper.make_tensor_value_info("x", FLOAT, ["N", 4])],
        [helper.make_tensor_value_info("y", FLOAT, ["N", 4])],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])


def test_branches_of_a_constant_condition_are_read_each_with_its_constants() -> None:
    found = traced(choosing([], **{"is": np.array(True)}))
    assert "If" not in {each.op_type for each in found.nodes}
    assert np.array_equal(found.values["y"], 4 * found.values["x"])


def test_a_branch_that_the_input_chooses_stays_a_choice() -> None:
    condition = [
        node("ReduceMax", "x", "most", keepdims=0),
        node("Less", "most bound", "is"),
    ]
    found = traced(choosing(condition, bound=np.float32(1e6)))
    assert [each.op_type for each in found.nodes].count("If") == 2
    assert {"first", "second", "y"} <= found.live
