"""ONNX files whose input looks up rows of a table and is computed with as well."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto
from onnxruntime import InferenceSession
from test_imported import before_head, kinds, node, real, saved

from dlb_graph import layers as L
from dlb_graph.files.read import import_file
from dlb_graph.truth.canonical import canonical_graph
from dlb_graph.truth.evaluate import evaluate

ENTRIES = 9
TABLE = {"table": real(ENTRIES, 4), "three": np.int64(3), "last": np.int64([-1])}
ROWS = node("Gather", ["table", "x"], ["rows"])


def of_tokens(*nodes: onnx.NodeProto, size: int = 20, opset: int = 17, **held: np.ndarray):
    kept = {"shape": (None, 5), "kind": TensorProto.INT64, "opset": opset}
    return before_head([ROWS, *nodes], {**TABLE, **held}, size, **kept)


MASK = (
    node("Greater", ["x", "three"], ["there"]),
    node("Cast", ["there"], ["mask"], to=TensorProto.FLOAT),
)
FILES = {
    "rows of some tokens": of_tokens(
        *MASK,
        node("Unsqueeze", ["mask", "last"], ["masks"]),
        node("Mul", ["rows", "masks"], ["h"]),
    ),
    "in an older operator set": of_tokens(
        *MASK,
        node("Unsqueeze", ["mask"], ["masks"], axes=[-1]),
        node("Mul", ["rows", "masks"], ["h"]),
        opset=11,
    ),
    "the row of the largest token": of_tokens(
        node("ArgMax", ["x"], ["most"], axis=1),
        node("Expand", ["most", "few"], ["places"]),
        node("Unsqueeze", ["places", "last"], ["each"]),
        node("Expand", ["each", "all"], ["indices"]),
        node("GatherElements", ["rows", "indices"], ["h"], axis=1),
        size=4,
        few=np.int64([1, 1]),
        all=np.int64([1, 1, 4]),
    ),
    "positions that some tokens do not count in": of_tokens(
        *MASK,
        node("Cast", ["mask"], ["ones"], to=TensorProto.INT32),
        node("CumSum", ["ones", "one"], ["counts"]),
        node("Mul", ["counts", "ones"], ["positions"]),
        node("Gather", ["table", "positions"], ["more"]),
        node("Add", ["rows", "more"], ["h"]),
        one=np.int64(1),
    ),
    "the row of the first token of a kind": of_tokens(
        node("Equal", ["x", "three"], ["found"]),
        node("Cast", ["found"], ["ones"], to=TensorProto.INT32),
        node("ArgMax", ["ones"], ["first"], axis=-1),
        node("Unsqueeze", ["first", "last"], ["each"]),
        node("Expand", ["each", "all"], ["indices"]),
        node("GatherElements", ["rows", "indices"], ["h"], axis=1),
        size=4,
        all=np.int64([1, 1, 4]),
    ),
    "the tokens as numbers": of_tokens(
        node("Cast", ["x"], ["numbers"], to=TensorProto.FLOAT),
        node("Flatten", ["rows"], ["all"]),
        node("Concat", ["all", "numbers"], ["h"], axis=1),
        size=25,
    ),
    "tokens in another order": of_tokens(
        node("Transpose", ["x"], ["turned"], perm=[1, 0]),
        node("Transpose", ["turned"], ["back"], perm=[1, 0]),
        node("Cast", ["back"], ["short"], to=TensorProto.INT32),
        node("Greater", ["short", "five"], ["large"]),
        node("Cast", ["large"], ["mask"], to=TensorProto.FLOAT),
        node("Unsqueeze", ["mask", "last"], ["masks"]),
        node("Add", ["rows", "masks"], ["h"]),
        five=np.int32(5),
    ),
}


@pytest.mark.parametrize("name", FILES)
def test_what_computes_with_tokens_reads_a_table_of_numbers(name: str, tmp_path: Path) -> None:
    model = FILES[name]
    found = import_file(saved(tmp_path, model))
    tables = [each for each in found.workload.model.nodes if isinstance(each.layer, L.Embedding)]
    assert sorted(table.layer.features for table in tables) == [1, 4]
    (numbers,) = (table.name for table in tables if table.layer.features == 1)
    np.testing.assert_array_equal(found.weights[f"{numbers}.weight"][:, 0], np.arange(ENTRIES))
    tokens = np.random.default_rng(5).integers(0, ENTRIES, (3, 5))
    session = InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    (expected,) = session.run(None, {"x": tokens})
    weights = {key: array.astype(np.float64) for key, array in found.weights.items()}
    canonical = canonical_graph(found.workload.model, weights, dtype="float64")
    (value,) = evaluate(canonical, {canonical.graph.input[0].name: tokens}).values()
    np.testing.assert_allclose(value, expected, rtol=1e-4, atol=1e-5)


def test_tokens_that_are_only_looked_up_have_no_other_table(tmp_path: Path) -> None:
    model = of_tokens(node("Sin", ["rows"], ["h"]))
    found = import_file(saved(tmp_path, model))
    assert kinds(found.workload.model).count("embedding") == 1
