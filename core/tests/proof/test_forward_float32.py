"""What the check of a float32 forward pass says."""

from __future__ import annotations

import numpy as np
import pytest

from dlb.proof.checks.float32 import float32_logits
from dlb.proof.engine import Check, judge
from dlb.proof.findings.workload import ConstantLogits
from dlb.report.sentences import describe
from dlb_graph.workload.files import load

MODEL = load("lenet5").model
LAST = MODEL.nodes[-1].name


@pytest.mark.parametrize(
    ("logits", "constant"),
    [
        ([[0.0, 0.0], [0.0, 0.0]], True),
        ([[0.5, 1.0], [0.5, 1.0]], True),
        ([[0.5, 1.0], [0.5, 2.0]], False),
        ([[0.5, 1.0]], False),
    ],
)
def test_logits_that_tell_nothing_are_told(logits: list[list[float]], constant: bool) -> None:
    values = {LAST: np.array(logits)}
    sides = float32_logits(MODEL, values, values, 1e-5, 1e-7, {})
    result = judge(Check.of("forward float32", "torch"), sides)
    causes = [finding.cause for finding in result.findings]
    assert (ConstantLogits() in causes) is constant
    assert ("the same for every input" in describe(result)) is constant
    assert "ONNX Runtime on the canonical graph: 1.0e-07" in describe(result)
