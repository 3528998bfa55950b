"""What a layer magnifies is no fault of an adapter, and a wrong layer is one nevertheless."""

from __future__ import annotations

import numpy as np
import pytest

from dlb.proof.checks.extremes import _judged_layers
from dlb.proof.checks.float32_layers import _layer_errors
from dlb.proof.checks.updates import change_figures
from dlb.proof.reference import Reference
from dlb.proof.rounding import FLOAT32
from dlb_graph.comparing.tolerances import FLOAT64_TOLERANCE
from dlb_graph.workload import BatchNorm, Flatten, Input, Linear, Model, Node

MODEL = Model(
    input=Input(shape=(2, 8, 8)),
    nodes=(
        Node(name="norm", layer=BatchNorm()),
        Node(name="flat", layer=Flatten()),
        Node(name="last", layer=Linear(out_features=3)),
    ),
)
RANDOM = np.random.default_rng(0)


def reference(spread: float) -> Reference:
    """Channels of about 0.4 that are multiplied by more than a thousand, as beyond every bound."""
    weights = {
        **{"norm.scale": np.full(2, 1800.0, np.float32), "norm.bias": np.ones(2, np.float32)},
        **{"norm.mean": np.zeros(2, np.float32), "norm.variance": np.ones(2, np.float32)},
        "last.weight": RANDOM.standard_normal((3, 128)).astype(np.float32),
        "last.bias": np.zeros(3, np.float32),
    }
    inputs = 0.42 + spread * RANDOM.standard_normal((4, 2, 8, 8))
    return Reference(MODEL, weights, inputs, np.zeros(4, np.int64))


def judged(spread: float, error: float) -> float:
    """The multiple of the tolerance by which a normalisation is off that is wrong by a relative error."""
    case = reference(spread)
    values = dict(case.training_layers)
    values["norm"] = values["norm"] * (1 + error)
    return next(
        each.multiple
        for each in _judged_layers("large", case, values)
        if each.figure.tensor == "norm"
    )


def test_rounding_of_a_constant_channel_is_allowed() -> None:
    assert judged(0.0, 3e-10) <= 1


@pytest.mark.parametrize(("spread", "error"), [(0.0, 1e-4), (1.0, 2e-9), (1e-3, 2e-9)])
def test_a_wrong_normalisation_fails(spread: float, error: float) -> None:
    assert judged(spread, error) > 1


def multiple_in_float32(spread: float, epsilon: float) -> float:
    """Of NumPy's error in float32, that of a normalisation whose sums are those of even and odd places."""
    case = reference(spread)
    rows = np.moveaxis(case.inputs, 1, 0).reshape(2, -1).astype(np.float32)

    def mean(numbers: np.ndarray) -> np.ndarray:
        lanes = [np.cumsum(numbers[:, place::2], axis=1)[:, -1:] for place in (0, 1)]
        return (lanes[0] + lanes[1]) / np.float32(numbers.shape[1])

    away = rows - mean(rows)
    normal = away / np.sqrt(mean(away * away) + np.float32(epsilon)) * np.float32(
        1800
    ) + np.float32(1)
    values = {name: array.astype(np.float32) for name, array in case.training_layers.items()}
    values["norm"] = np.moveaxis(normal.reshape(2, 4, 8, 8), 0, 1)
    own, numpy = _layer_errors(case, values, case.weights, True, FLOAT32)
    error = max(numpy["norm"].relative_l2 or 0.0, FLOAT32.least)
    return (own["norm"].relative_l2 or 0.0) / error


def test_sums_of_a_constant_channel_may_be_in_any_order() -> None:
    assert multiple_in_float32(0.0, 1e-5) <= FLOAT32.multiple


def test_another_epsilon_is_no_rounding() -> None:
    assert multiple_in_float32(1.0, 1e-3) > FLOAT32.multiple


def test_a_trained_mean_moves_by_rounding_alone() -> None:
    """Of a running statistic, what a batch adds is a sum; of a weight, it is not."""
    before = {"norm.mean": np.full(4, 0.42)}
    truth = {"norm.mean": before["norm.mean"] + 1e-9}
    own = {"norm.mean": truth["norm.mean"] * (1 + 1.5e-15)}
    (running,) = change_figures(before, own, truth, ("norm.mean",))
    (weight,) = change_figures(before, own, truth)
    assert running.relative_l2 is not None and running.relative_l2 <= FLOAT64_TOLERANCE
    assert weight.relative_l2 is not None and weight.relative_l2 > FLOAT64_TOLERANCE


def test_a_trained_mean_with_another_momentum_fails() -> None:
    before = {"norm.mean": np.full(4, 0.42)}
    truth = {"norm.mean": before["norm.mean"] + 1e-9}
    own = {"norm.mean": before["norm.mean"] + 1.1e-9}
    (running,) = change_figures(before, own, truth, ("norm.mean",))
    assert running.relative_l2 is not None and running.relative_l2 > FLOAT64_TOLERANCE
