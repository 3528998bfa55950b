"""The structure of an exported file next to a canonical graph of other weights."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from dlb import workload as W
from dlb.graph.canonical import canonical_graph, with_weights
from dlb.proof.checks.structure import STRUCTURE, check_structure
from dlb.proof.engine import Check
from dlb.workload.initial import initial_weights

CHECK = Check("structure", "structure", "torch", STRUCTURE)


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
