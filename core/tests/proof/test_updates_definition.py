"""The steps that updates are compared with, next to the formulas of the conformance suite."""

from __future__ import annotations

import numpy as np
import pytest

from dlb_conformance.optimizer_formulas import Formula
from dlb_conformance.test_updates import FURTHER, OPTIMIZERS
from dlb_graph.comparing.updates import Updates


@pytest.mark.parametrize("name", [*OPTIMIZERS, *FURTHER])
def test_both_take_the_same_steps(name: str) -> None:
    optimizer = {**OPTIMIZERS, **FURTHER}[name]
    generator = np.random.default_rng(0)
    start = {"a.weight": generator.standard_normal((5, 3)), "a.bias": np.zeros(5)}
    steps, formula = Updates(optimizer, start), Formula(optimizer, start)
    for rate in (0.1, 0.1, 0.02, 0.02):
        gradients = {name: generator.standard_normal(each.shape) for name, each in start.items()}
        steps.step(gradients, rate)
        formula.step(gradients, rate)
    assert steps.state.keys() == formula.state.keys()
    for name, expected in {**formula.weights, **formula.state}.items():
        found = {**steps.weights, **steps.state}[name]
        np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-15, err_msg=name)
