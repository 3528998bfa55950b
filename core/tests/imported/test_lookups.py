"""ONNX files that look up rows of tables by selected, computed and real numbers, and by several inputs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from onnxruntime import InferenceSession
from test_imported import graph, node, real, saved

from dlb_graph.comparing.distance import relative_l2
from dlb_graph.comparing.read_facts import ReadAs
from dlb_graph.errors import UnsupportedError
from dlb_graph.files.read import import_file
from dlb_graph.truth.canonical import canonical_graph
from dlb_graph.truth.evaluate import evaluate

WIDE, NARROW = 30, 12
TABLES = {"E": real(WIDE, 6), "F": real(NARROW, 4)}
INTEGERS, REALS = TensorProto.INT64, TensorProto.FLOAT


def looking_up(*nodes: onnx.NodeProto, inputs: dict[str, tuple[int, tuple]], size: int, **held):
    """A model from inputs, by name their element type and shape of a sample, to three numbers."""
    head = [node("Flatten", ["h"], ["flat"]), node("MatMul", ["flat", "w"], ["y"])]
    model = graph([*nodes, *head], {**TABLES, "w": real(size, 3), **held}, ("N", 1))
    del model.graph.input[:]
    for name, (kind, shape) in inputs.items():
        model.graph.input.append(helper.make_tensor_value_info(name, kind, ("N", *shape)))
    return model


def row(table: str, indices: str, output: str) -> onnx.NodeProto:
    return node("Gather", [table, indices], [output])


def both(axis: int, *before: onnx.NodeProto) -> list[onnx.NodeProto]:
    return [
        *before,
        row("E", "a", "e"),
        row("F", "b", "f"),
        node("Concat", ["e", "f"], ["h"], axis=axis),
    ]


def integers(*names: str) -> list[onnx.NodeProto]:
    return [node("Cast", [name], [short], to=TensorProto.INT32) for name, short in zip(names, "ab")]


def selected(first: int, second: int) -> list[onnx.NodeProto]:
    return [
        node("Gather", ["x", "first"], ["a"], axis=1),
        node("Gather", ["x", "second"], ["b"], axis=1),
    ]


PLACES = {"first": np.int64(0), "second": np.int64(1)}
FILES = {
    "two inputs of real numbers": looking_up(
        *both(2, *integers("x", "z")), inputs={"x": (REALS, (5,)), "z": (REALS, (5,))}, size=50
    ),
    "two inputs of other numbers of integers": looking_up(
        row("E", "x", "e"),
        row("F", "z", "f"),
        node("Flatten", ["e"], ["g"]),
        node("Flatten", ["f"], ["k"]),
        node("Concat", ["g", "k"], ["h"], axis=1),
        inputs={"x": (INTEGERS, (5,)), "z": (TensorProto.INT32, (3,))},
        size=42,
    ),
    "an integer a sample": looking_up(
        row("E", "x", "e"),
        row("F", "z", "f"),
        node("Concat", ["e", "f"], ["h"], axis=1),
        inputs={"x": (INTEGERS, ()), "z": (INTEGERS, ())},
        size=10,
    ),
    "rows of one input": looking_up(
        *both(2, *selected(0, 1)), inputs={"x": (INTEGERS, (2, 5))}, size=50, **PLACES
    ),
    "columns of one input": looking_up(
        *both(1, *selected(0, 1)), inputs={"x": (INTEGERS, (2,))}, size=10, **PLACES
    ),
    "columns of real numbers": looking_up(
        node("Split", ["x", "sizes"], ["c", "d"], axis=1),
        *both(2, *integers("c", "d")),
        inputs={"x": (REALS, (4,))},
        size=20,
        sizes=np.int64([2, 2]),
    ),
    "each field has its rows of a table": looking_up(
        node("Add", ["x", "starts"], ["a"]),
        row("E", "a", "h"),
        inputs={"x": (INTEGERS, (3,))},
        size=18,
        starts=np.int64([0, 12, 20]),
    ),
    "counted from 1": looking_up(
        node("Sub", ["x", "one"], ["a"]),
        row("F", "a", "h"),
        inputs={"x": (INTEGERS, (3,))},
        size=12,
        one=np.int64(1),
    ),
    "one integer for another": looking_up(
        node("Equal", ["x", "seven"], ["is"]),
        node("Where", ["is", "three", "x"], ["a"]),
        row("E", "a", "h"),
        inputs={"x": (INTEGERS, (4,))},
        size=24,
        seven=np.int64(7),
        three=np.int64(3),
    ),
    "ranges of a real number": looking_up(
        node("Mul", ["x", "four"], ["large"]),
        node("Clip", ["large", "low", "high"], ["within"]),
        node("Cast", ["within"], ["a"], to=TensorProto.INT64),
        row("E", "a", "h"),
        inputs={"x": (REALS, (2,))},
        size=12,
        four=np.float32(4),
        low=np.float32(-8),
        high=np.float32(8),
    ),
    "integers and real numbers": looking_up(
        row("E", "x", "e"),
        node("Flatten", ["e"], ["g"]),
        node("Concat", ["z", "g"], ["h"], axis=1),
        inputs={"z": (REALS, (4,)), "x": (INTEGERS, (2,))},
        size=16,
    ),
}


def values(model: onnx.ModelProto, folder: Path, other: onnx.ModelProto) -> tuple[np.ndarray, ...]:
    """The layers of a file, and ONNX Runtime's output of another, of the same inputs."""
    found = import_file(saved(folder, model))
    random = np.random.default_rng(3)
    feed, numbers = {}, []
    for value in model.graph.input:
        element = value.type.tensor_type.elem_type
        shape = (6, *(dim.dim_value for dim in value.type.tensor_type.shape.dim[1:]))
        array = random.integers(0, 8, shape)
        feed[value.name] = array.astype(helper.tensor_dtype_to_np_dtype(element))
        numbers.append(array.reshape(6, -1))
    session = InferenceSession(other.SerializeToString(), providers=["CPUExecutionProvider"])
    (expected,) = session.run(None, feed)
    weights = {key: array.astype(np.float64) for key, array in found.weights.items()}
    canonical = canonical_graph(found.workload.model, weights, dtype="float64")
    (only,) = canonical.graph.input
    read = np.concatenate(numbers, axis=1)
    kind = helper.tensor_dtype_to_np_dtype(only.type.tensor_type.elem_type)
    (value,) = evaluate(canonical, {only.name: read.astype(kind)}).values()
    return value, expected


@pytest.mark.parametrize("name", FILES)
def test_tables_are_looked_up(name: str, tmp_path: Path) -> None:
    value, expected = values(FILES[name], tmp_path, FILES[name])
    np.testing.assert_allclose(value, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["rows of one input", "columns of one input"])
def test_other_places_look_up_other_rows(name: str, tmp_path: Path) -> None:
    exchanged = onnx.ModelProto()
    exchanged.CopyFrom(FILES[name])
    exchanged.graph.node[0].input[1], exchanged.graph.node[1].input[1] = "second", "first"
    value, expected = values(FILES[name], tmp_path, exchanged)
    assert relative_l2(value, expected) > 0.1


def test_inputs_that_are_one_are_named(tmp_path: Path) -> None:
    (fact,) = import_file(saved(tmp_path, FILES["integers and real numbers"])).facts
    assert isinstance(fact, ReadAs)
    assert fact.joined == (("z", (4,)), ("x", (2,))) and not fact.assumed


def test_a_table_of_two_rows_leaves_its_input_a_constant(tmp_path: Path) -> None:
    model = looking_up(
        row("E", "x", "e"),
        row("kinds", "z", "k"),
        node("Add", ["e", "k"], ["h"]),
        inputs={"x": (INTEGERS, (5,)), "z": (INTEGERS, (5,))},
        size=30,
        kinds=real(2, 6),
    )
    found = import_file(saved(tmp_path, model))
    assert [fact.assumed for fact in found.facts] == [(("z", 0.0),)] and found.unread


def test_integers_that_no_table_has_are_refused(tmp_path: Path) -> None:
    model = looking_up(
        node("Add", ["x", "many"], ["a"]),
        row("F", "a", "h"),
        inputs={"x": (INTEGERS, (3,))},
        size=12,
        many=np.int64(NARROW),
    )
    with pytest.raises(UnsupportedError, match=r"node 'h' \(Gather\)"):
        import_file(saved(tmp_path, model))
