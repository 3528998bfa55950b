"""What float32 steps may differ by from the optimizer's definition, and what they may not."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from dlb.proof.certificate import CheckResult
from dlb.proof.checks.float32_updates import (
    GRADIENT_NOISE,
    check_update_float32,
    perturbed_gradient,
)
from dlb.proof.engine import Check
from dlb_graph.comparing.updates import Updates
from dlb_graph.workload import SGD, Adadelta, Adagrad, Adam, Adamax, AdamW, Optimizer, RMSprop

Array = npt.NDArray[Any]
STEPS = 3
CHECK = Check.of("update float32", "torch")
SIMPLE = SGD(learning_rate=0.1, momentum=0.9, nesterov=True, weight_decay=5e-4)
MOMENTS = Adam(learning_rate=0.01)


def checked(described: Optimizer, built: Optimizer, dtype: str = "float32") -> CheckResult:
    """The result of an adapter that steps as ``built`` where ``described`` was asked for."""
    generator = np.random.default_rng(0)
    start = {
        name: generator.standard_normal(shape).astype(np.float32).astype(np.float64)
        for name, shape in (("a.weight", (30, 20)), ("a.bias", (20,)))
    }
    truth, own = Updates(described, start), Updates(built, start, dtype)
    baseline = Updates(described, start, "float32")
    for _ in range(STEPS):
        gradients = {
            name: generator.standard_normal(array.shape).astype(np.float32)
            for name, array in start.items()
        }
        for each in (truth, own, baseline):
            each.step(gradients, described.learning_rate)
    sets = ({**one.weights, **one.state} for one in (own, truth, baseline))
    return check_update_float32(CHECK, STEPS, start, *sets)


@pytest.mark.parametrize("optimizer", [SIMPLE, MOMENTS])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_same_steps_pass(optimizer: Optimizer, dtype: str) -> None:
    result = checked(optimizer, optimizer, dtype)
    assert result.verdict == "passed"
    assert {one.tensor.count(".") for one in result.figures} == {1, 2}


@pytest.mark.parametrize(
    ("described", "built"),
    [
        (SIMPLE, SGD(learning_rate=0.1, momentum=0.899, nesterov=True, weight_decay=5e-4)),
        (SIMPLE, SGD(learning_rate=0.1, momentum=0.9, weight_decay=5e-4)),
        (SIMPLE, SGD(learning_rate=0.1, momentum=0.9, nesterov=True)),
        (MOMENTS, Adam(learning_rate=0.01, epsilon=1e-3)),
        (MOMENTS, Adam(learning_rate=0.01, beta2=0.99)),
        (MOMENTS, SGD(learning_rate=0.01)),
        (AdamW(), Adam(weight_decay=0.01)),
        (AdamW(), AdamW(weight_decay=0.02)),
        (RMSprop(epsilon=1e-3), RMSprop(epsilon=1e-3, epsilon_place="inside")),
        (RMSprop(momentum=0.9), RMSprop(momentum=0.8)),
        (Adagrad(), Adagrad(initial_accumulator=0.1)),
        (Adadelta(), Adadelta(rho=0.9)),
        (Adamax(epsilon=0.1), Adamax(epsilon=0.1, epsilon_place="inside")),
    ],
)
def test_other_steps_fail(described: Optimizer, built: Optimizer) -> None:
    result = checked(described, built)
    assert result.verdict == "failed"
    assert result.worst is not None
    assert result.worst.relative_l2 is None or result.worst.relative_l2 > (
        result.tolerance or np.inf
    )


@pytest.mark.parametrize(("off", "expected"), [(3e-5, "passed"), (3e-3, "failed")])
def test_the_first_figure_is_the_one_that_the_tolerance_is_of(off: float, expected: str) -> None:
    """A tensor that NumPy rounds more may be further off than one that is most of what it may be."""
    start = {"rough.weight": np.zeros(10), "fine.weight": np.zeros(10)}
    truth = {name: np.ones(10) for name in start}
    baseline = {"rough.weight": np.full(10, 1 + 1e-3), "fine.weight": np.full(10, 1 + 2e-6)}
    found = {"rough.weight": np.full(10, 1 + 5e-3), "fine.weight": np.full(10, 1 + off)}
    result = check_update_float32(CHECK, STEPS, start, found, truth, baseline)
    assert result.verdict == expected and result.tolerance == pytest.approx(20 * 2e-6)
    assert result.worst is not None and result.worst.tensor == "fine.weight"
    assert (result.worst.relative_l2 or 0.0) <= result.tolerance or expected == "failed"


def test_last_places_are_those_of_float32() -> None:
    result = checked(SIMPLE, SIMPLE)
    assert all(one.ulp is not None and one.ulp < 1e4 for one in result.figures)


@pytest.mark.parametrize(("least", "norm"), [(0.0, 10.0), (500.0, 500.0), (2.0, 10.0)])
def test_noise_is_of_the_gradient_or_of_what_it_is_a_small_part_of(
    least: float, norm: float
) -> None:
    generator = np.random.default_rng(0)
    gradient = generator.standard_normal((40, 50))
    gradient *= 10.0 / np.linalg.norm(gradient)
    noise = np.linalg.norm(perturbed_gradient(gradient, least, generator) - gradient)
    assert noise == pytest.approx(GRADIENT_NOISE * norm, rel=0.1)


def test_an_element_that_has_no_gradient_gets_no_noise() -> None:
    gradient = np.array([0.0, 1.0, 0.0])
    found = perturbed_gradient(gradient, 100.0, np.random.default_rng(0))
    assert found[0] == found[2] == 0.0 and found[1] != 1.0
