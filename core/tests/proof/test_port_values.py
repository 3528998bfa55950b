"""Values that two models have in common, and the first calls that part."""

from __future__ import annotations

import numpy as np

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
