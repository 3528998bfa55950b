"""An exported file that float32 rounds to something else: judged in float64, and no weight may be wrong."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from dlb.proof.checks.export import check_export, run_exported
from dlb.proof.checks.export_rounding import judge_rounding
from dlb.proof.engine import Check
from dlb.report.sentences import describe
from dlb_graph import workload as W
from dlb_graph.truth.canonical import canonical_graph
from dlb_graph.workload.initial import initial_weights

CHECK = Check.of("export", "torch")
#: A normalisation of numbers that are close to their mean, and far from zero.
FAR = W.Model(
    input=W.Input(shape=(6,)),
    nodes=(
        W.Node(name="a", layer=W.Linear(out_features=16, bias_init=W.Fill(value=3000.0))),
        W.Node(name="n", layer=W.BatchNorm()),
        W.Node(name="l", layer=W.Linear(out_features=3)),
    ),
)


def far_weights() -> dict[str, np.ndarray]:
    weights = initial_weights(FAR, 0)
    return {**weights, "n.mean": np.full_like(weights["n.mean"], 3000.0)}


@pytest.mark.parametrize(
    ("name", "factor", "verdict"),
    [("", 1.0, "passed"), ("l.weight", 1.001, "failed"), ("n.scale", 1.001, "failed")],
)
def test_what_float32_cannot_tell_is_compared_in_float64(
    name: str, factor: float, verdict: str, tmp_path: Path
) -> None:
    weights = far_weights()
    own = canonical_graph(FAR, weights)
    exported = {**weights, **({name: weights[name] * np.float32(factor)} if name else {})}
    path = tmp_path / "exported.onnx"
    path.write_bytes(canonical_graph(FAR, exported).SerializeToString())
    inputs = np.random.default_rng(0).standard_normal((16, 6)).astype(np.float32)
    (outputs,) = run_exported(path, inputs)
    # What a framework computes in float32: as right, and rounded in another way.
    apart = outputs * np.float32(1 + 1e-4)
    failed = check_export(CHECK, "float32", {"logits": outputs}, {"logits": apart})
    assert failed.verdict == "failed"
    judged = judge_rounding(CHECK, failed, own, weights, path, inputs, outputs, apart)
    assert judged.verdict == verdict
    assert ("float32 rounding makes an error of" in describe(judged)) == (verdict == "passed")


@pytest.mark.parametrize("wrong", ["runtime", "model"])
def test_who_is_further_off_than_rounding_fails(wrong: str, tmp_path: Path) -> None:
    """However right the file is."""
    weights = far_weights()
    graph, path = canonical_graph(FAR, weights), tmp_path / "exported.onnx"
    path.write_bytes(graph.SerializeToString())
    inputs = np.random.default_rng(0).standard_normal((16, 6)).astype(np.float32)
    (right,) = run_exported(path, inputs)
    off = right * np.float32(1.01)
    outputs, own = (off, right) if wrong == "runtime" else (right, off)
    failed = check_export(CHECK, "float32", {"logits": outputs}, {"logits": own})
    judged = judge_rounding(CHECK, failed, graph, weights, path, inputs, outputs, own)
    assert judged is failed


#: A sigmoid far from its middle, whose value ONNX Runtime rounds as if it were near 1.
SMALL = W.Model(
    input=W.Input(shape=(6,)),
    nodes=(
        W.Node(name="a", layer=W.Linear(out_features=4, bias_init=W.Fill(value=-7.0))),
        W.Node(name="s", layer=W.Sigmoid()),
    ),
)


def test_the_runtimes_own_error_is_not_the_models(tmp_path: Path) -> None:
    weights = initial_weights(SMALL, 0)
    graph = canonical_graph(SMALL, weights)
    path = tmp_path / "exported.onnx"
    path.write_bytes(graph.SerializeToString())
    inputs = 0.01 * np.random.default_rng(0).standard_normal((16, 6)).astype(np.float32)
    (outputs,) = run_exported(path, inputs)
    logits = (
        inputs.astype(np.float64) @ weights["a.weight"].T.astype(np.float64) + weights["a.bias"]
    )
    own = (1 / (1 + np.exp(-logits))).astype(np.float32)
    failed = check_export(CHECK, "float32", {"logits": outputs}, {"logits": own})
    judged = judge_rounding(CHECK, failed, graph, weights, path, inputs, outputs, own)
    assert judged.verdict == "passed"
    wrong = outputs + np.float32(1e-5)
    failed = check_export(CHECK, "float32", {"logits": wrong}, {"logits": own})
    judged = judge_rounding(CHECK, failed, graph, weights, path, inputs, wrong, own)
    assert judged is failed
