"""Values that two models have in common, and the first calls that part."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from dlb.proof.checks.layers import ISOLATED, check_counterparts
from dlb.proof.engine import Check
from dlb.proof.port.comparison import PortComparison
from dlb.proof.port.values import KnownValues, find_parting
from dlb_worker.contract import LayerCall

DRAW = np.random.default_rng(0)


def known(calls: list[LayerCall]) -> KnownValues:
    return KnownValues(calls, (), 1e-10)


def test_a_value_is_known_in_any_order_of_its_axes() -> None:
    value = DRAW.standard_normal((2, 3, 4, 4))
    values = known([LayerCall("a", None, value)])
    assert value.transpose(0, 2, 3, 1) in values
    assert value * (1 + 1e-8) not in values
    assert np.where(value > 1, 0, value) not in values
    assert np.full_like(value, np.nan) not in values
    assert None not in values


def test_constants_are_not_known() -> None:
    assert np.zeros((2, 3)) not in known([LayerCall("a", None, np.zeros((2, 3)))])


@pytest.mark.parametrize("dtype", [np.bool_, np.uint8, np.int64, np.float16])
def test_values_of_any_dtype_are_known(dtype: type) -> None:
    value = np.array([[0, 1, 1], [1, 0, 1]], dtype)
    values = known([LayerCall("mask", value, ~value if dtype is np.bool_ else value + dtype(1))])
    assert value in values and np.zeros((2, 3), dtype) not in values


def test_an_error_while_locating_leaves_the_verdict(tmp_path: Path) -> None:
    port = object.__new__(PortComparison)
    port._layers, port.logs, port.model = {}, tmp_path / "tf", SimpleNamespace(name="tf")
    assert not hasattr(port, "truth")  # so that comparing layers raises
    result = check_counterparts(Check("layers", "layers", "tf", ISOLATED), port)
    assert result.verdict == "not run"
    failure = result.findings[0].cause.failure
    assert "could not be determined" in failure.message
    assert "'truth'" in Path(failure.log).read_text()


def test_the_calls_that_part_are_those_that_read_the_same() -> None:
    """The sum reads what has parted; the branch that agrees is passed over."""
    x = DRAW.standard_normal((2, 5))

    def calls(slope: float) -> list[LayerCall]:
        leaky, plain = np.where(x > 0, x, slope * x), np.maximum(x, 0)
        return [
            LayerCall("relu", x, plain),
            LayerCall("leaky", x, leaky),
            LayerCall("sum", plain, plain + leaky, (leaky,)),
        ]

    ours, theirs = calls(0.25), calls(0.5)
    parting = find_parting(ours, theirs, known(ours), known(theirs))
    assert parting is not None and [call.layer for call in parting] == ["leaky", "leaky"]


def test_a_layer_that_is_cut_in_two_does_not_part() -> None:
    x = DRAW.standard_normal((2, 5))
    ours = [LayerCall("scale", x, 2 * x), LayerCall("shift", 2 * x, 2 * x + 1)]
    theirs = [LayerCall("both", x, 2 * x + 1)]
    assert find_parting(ours, theirs, known(ours), known(theirs)) is None


def test_a_call_that_returns_a_constant_does_not_part() -> None:
    """The first step of a recurrence reads a state of zeros."""
    zeros, x = np.zeros((2, 5)), DRAW.standard_normal((2, 5))
    ours, theirs = ([LayerCall("step", zeros, zeros), LayerCall("last", x, k * x)] for k in (2, 3))
    parting = find_parting(ours, theirs, known(ours), known(theirs))
    assert parting is not None and parting[0].layer == "last"
