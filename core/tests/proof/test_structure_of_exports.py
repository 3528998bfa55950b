"""The structure of an exported file next to a canonical graph of other weights."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import helper, numpy_helper

from dlb.proof.checks.structure import check_structure
from dlb.proof.engine import Check
from dlb_graph import workload as W
from dlb_graph.truth.canonical import canonical_graph, with_weights
from dlb_graph.workload.initial import initial_weights

CHECK = Check.of("structure", "torch")


@pytest.mark.parametrize(
    "layer", [W.Shift(sizes=(1,)), W.Scale(sizes=(1,)), W.Shift(sizes=(4,))], ids=repr
)
def test_a_trained_number_is_no_attribute(layer: W.Layer, tmp_path: Path) -> None:
    """One that is added to every value may also be a constant of the graph."""
    nodes = (
        W.Node(name="a", layer=W.Linear(out_features=4)),
        W.Node(name="t", layer=W.Tanh()),
        W.Node(name="moved", layer=layer),
        W.Node(name="b", layer=W.Linear(out_features=3)),
    )
    model = W.Model(input=W.Input(shape=(6,)), nodes=nodes)
    weights = initial_weights(model, 0)
    trained = {name: array + np.float32(0.01) for name, array in weights.items()}
    path = tmp_path / "exported.onnx"
    path.write_bytes(canonical_graph(model, trained).SerializeToString())
    canonical = canonical_graph(model, weights)
    assert check_structure(CHECK, canonical, path, lambda: trained).verdict == "passed"
    other = {name: array for name, array in trained.items() if not name.startswith("moved")}
    other |= {name: weights[name] + 1 for name in weights if name.startswith("moved")}
    wrong = check_structure(CHECK, canonical, path, lambda: other)
    assert wrong.verdict == ("passed" if layer.sizes == (4,) else "failed")
    assert with_weights(canonical, trained) == canonical_graph(model, trained)


@pytest.mark.parametrize(("twice", "verdict"), [(2.0, "passed"), (1.9, "failed")])
def test_what_is_written_in_parts_is_decided_by_values(
    twice: float, verdict: str, tmp_path: Path
) -> None:
    """A hyperbolic tangent as (exp(2x) - 1) / (exp(2x) + 1), in analytic operators."""
    nodes = (W.Node(name="a", layer=W.Linear(out_features=4)), W.Node(name="t", layer=W.Tanh()))
    model = W.Model(input=W.Input(shape=(6,)), nodes=nodes)
    weights = initial_weights(model, 0)
    exported = canonical_graph(model, weights)
    tanh = next(node for node in exported.graph.node if node.op_type == "Tanh")
    node, (read,), (made,) = helper.make_node, tanh.input, tanh.output
    parts = [
        node("Mul", [read, "two"], ["doubled"]),
        node("Exp", ["doubled"], ["e"]),
        node("Sub", ["e", "one"], ["above"]),
        node("Add", ["e", "one"], ["below"]),
        node("Div", ["above", "below"], [made]),
    ]
    place = list(exported.graph.node).index(tanh)
    kept = [*exported.graph.node]
    del exported.graph.node[:]
    exported.graph.node.extend([*kept[:place], *parts, *kept[place + 1 :]])
    kind = np.float64 if exported.graph.input[0].type.tensor_type.elem_type == 11 else np.float32
    exported.graph.initializer.extend(
        numpy_helper.from_array(np.array(value, kind), name)
        for name, value in (("one", 1.0), ("two", twice))
    )
    path = tmp_path / "exported.onnx"
    path.write_bytes(exported.SerializeToString())
    canonical = canonical_graph(model, initial_weights(model, 1))
    result = check_structure(CHECK, canonical, path, lambda: weights)
    assert result.verdict == verdict
    (finding,) = result.findings
    assert finding.cause.decided_by == ("values" if verdict == "passed" else "structure")
