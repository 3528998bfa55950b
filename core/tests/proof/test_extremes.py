"""Weights and inputs at extremes reach what noise does not, and steps reach every change of a schedule."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from dlb.proof.extremes import extremes
from dlb.proof.reference import Reference
from dlb.proof.update_batches import step_numbers
from dlb.samples import proof_inputs, proof_labels
from dlb_graph.workload import SGD
from dlb_graph.workload.files import read
from dlb_graph.workload.initial import initial_weights, proof_weights
from dlb_graph.workload.training import (
    Constant,
    CosineRestarts,
    Decay,
    Inverse,
    Polynomial,
    Schedule,
    Step,
    WarmupCosine,
    learning_rate,
)

WORKLOADS = Path(__file__).parents[3] / "tests" / "seeded_faults" / "workloads"


@pytest.fixture(scope="module")
def cases() -> dict[str, Reference]:
    model = read(WORKLOADS / "bounds.toml").model
    weights = proof_weights(initial_weights(model, 0), 0)
    inputs, labels = proof_inputs(model, 0, 4), proof_labels(model, 0, 4)
    return {
        case.kind: Reference(model, case.weights, case.inputs, labels)
        for case in extremes(model, weights, inputs)
    }


def test_values_are_exactly_0_and_tie(cases: dict[str, Reference]) -> None:
    values = cases["ties"].training_layers
    assert (values["most"] == 0).any() and (values["second"] == 0).any()
    windows = values["norm"].reshape(4, 8, 6, 2, 6, 2).transpose(0, 1, 2, 4, 3, 5)
    windows = windows.reshape(*windows.shape[:4], 4)
    ties = (windows == windows.max(-1, keepdims=True)).sum(-1) > 1
    assert (ties & (windows.max(-1) > 0)).any()
    # At the other bounds frameworks have different derivatives.
    assert not (np.abs(values["second"]) == 3).any() and not (values["second"] == 6).any()


def test_values_pass_every_bound(cases: dict[str, Reference]) -> None:
    values = cases["large"].training_layers
    for layer in ("second", "narrow"):
        assert values[layer].max() > 710 and values[layer].min() < -710
    assert np.abs(values["logits"]).max() > 710
    assert all(np.isfinite(array).all() for array in values.values())


def test_a_mean_is_large_against_its_spread(cases: dict[str, Reference]) -> None:
    value = cases["offset"].training_layers["conv"]
    spread = value.std(axis=(0, 2, 3))
    assert (np.abs(value.mean(axis=(0, 2, 3))) > 1000 * spread).any()


def test_labels_have_every_class_that_there_is_room_for() -> None:
    model = read(WORKLOADS / "pictures.toml").model
    for seed in range(20):
        assert set(proof_labels(model, seed, 16)) == set(range(10))
        assert {0, 9} <= set(proof_labels(model, seed, 4))
    words = read(WORKLOADS / "words.toml").model
    assert set(proof_inputs(words, 0, 4).ravel()) == set(range(11))


@pytest.mark.parametrize("steps", [1, 2, 5, 20])
@pytest.mark.parametrize(
    ("schedule", "changes"),
    [
        (Constant(), ()),
        (Step(milestones=(1000, 2000, 3000)), (1000, 2000, 3000)),
        (Step(milestones=(5,)), (5,)),
        (Decay(start=500, every=100), (500, 600, 700)),
        (WarmupCosine(warmup=100, steps=10_000), (100, 5050)),
        (Polynomial(warmup=100, steps=10_000), (100, 5050)),
        (CosineRestarts(period=1000, growth=2), (500, 1000, 3000)),
        (Inverse(gamma=1e-4, power=0.75), (10, 1_000, 100_000)),
    ],
)
def test_steps_run_through_every_change(
    schedule: Schedule, changes: tuple[int, ...], steps: int
) -> None:
    optimizer = SGD(learning_rate=0.1)
    numbers = step_numbers(optimizer, schedule, steps)
    assert numbers[0] == 0 and list(numbers) == sorted(numbers)
    assert len(numbers) == max(steps, 1 + len(changes)) or len(numbers) == max(
        steps, 2 + len(changes)
    )
    assert set(changes) <= set(numbers)
    if steps == 20:
        assert {change - 1 for change in changes} | {change + 1 for change in changes} <= set(
            numbers
        )
    assert all(learning_rate(optimizer, schedule, number) > 0 for number in numbers)
