"""What steps did otherwise is found, where one thing explains it."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pytest

from dlb_graph import workload as DLB
from dlb_graph.comparing.near_steps import steps_otherwise
from dlb_graph.comparing.updates import Updates

SGD = DLB.SGD(learning_rate=0.1, momentum=0.9, nesterov=True, weight_decay=0.01)
ADAM = DLB.Adam(weight_decay=0.01)
#: An optimizer, one in its place, the factor of its gradients, and what is told.
STEPS = {
    "nesterov": (SGD, msgspec.structs.replace(SGD, nesterov=False), 1.0, {"nesterov": False}),
    "decay": (SGD, msgspec.structs.replace(SGD, weight_decay=0.0), 1.0, {"weight_decay": 0.0}),
    "doubled": (SGD, SGD, 2.0, {"gradients": "times 2"}),
    "decoupled": (
        ADAM,
        DLB.AdamW(learning_rate=ADAM.learning_rate, weight_decay=0.01),
        1.0,
        {"type": "adamw"},
    ),
    "nothing": (SGD, SGD, 1.0, None),
}


@pytest.mark.parametrize(("optimizer", "other", "by", "told"), STEPS.values(), ids=list(STEPS))
def test_what_a_step_did_otherwise(optimizer: Any, other: Any, by: float, told: Any) -> None:
    generator = np.random.default_rng(0)
    start = {f"fc.{role}": generator.standard_normal(5) for role in ("weight", "bias")}
    gradients = {name: generator.standard_normal(5) for name in start}
    updates = Updates(other, start)
    updates.step({name: by * array for name, array in gradients.items()}, other.learning_rate)
    found = steps_otherwise(
        optimizer,
        start,
        [gradients],
        {**updates.weights, **updates.state},
        [optimizer.learning_rate],
    )
    assert found == ((told,) if told else ())


def test_a_learning_rate_is_read_from_the_step() -> None:
    start, gradients = {"fc.weight": np.ones(3)}, {"fc.weight": np.arange(3.0)}
    plain = DLB.SGD(learning_rate=0.1)
    updates = Updates(plain, start)
    updates.step(gradients, 0.0375)
    ((name, rate),) = steps_otherwise(plain, start, [gradients], updates.weights, [0.1])[0].items()
    assert name == "learning_rate"
    assert np.isclose(rate, 0.0375, rtol=1e-12)


MOMENTUM = DLB.SGD(learning_rate=0.1, momentum=0.9)
CLIPPED = DLB.SGD(learning_rate=0.1, momentum=0.9, weight_decay=0.1, clip_value=0.5)
RATES = [0.1, 0.1, 0.05, 0.05]


def taken(optimizer: Any, rates: Any = RATES, change: Any = None, **others: Any) -> Any:
    """Weights before the steps, the gradients of each, and what they changed."""
    generator = np.random.default_rng(0)
    start = {f"fc.{role}": generator.standard_normal(5) for role in ("weight", "bias")}
    gradients = [{name: generator.standard_normal(5) for name in start} for _ in rates]
    updates = Updates(optimizer, start, **others)
    for place, (given, rate) in enumerate(zip(gradients, rates)):
        if change:
            given = change(place, given, updates)
        updates.step(given, rate)
    return start, gradients, {**updates.weights, **updates.state}


def test_rates_of_later_steps_are_read_from_what_all_changed() -> None:
    start, gradients, after = taken(MOMENTUM, [0.1, 0.1, 0.1, 0.05])
    found = steps_otherwise(MOMENTUM, start, gradients, after, RATES)
    assert found == ({"learning_rate": "0.1 for 0.05 in step 3"},)


def test_a_velocity_that_holds_the_rate() -> None:
    def hold(place: int, given: Any, updates: Any) -> Any:
        for name in updates.state if place else ():
            updates.state[name] *= RATES[place - 1] / RATES[place]
        return given

    start, gradients, after = taken(MOMENTUM, change=hold)
    found = steps_otherwise(MOMENTUM, start, gradients, after, RATES)
    assert found == ({"velocity": "that holds the learning rate"},)


def test_no_bias_correction() -> None:
    start, gradients, after = taken(ADAM, [0.1], steps=10**9)
    found = steps_otherwise(ADAM, start, gradients, after, [0.1])
    assert found == ({"bias correction": "left out"},)


def test_decay_before_gradients_are_clipped() -> None:
    def decayed(place: int, given: Any, updates: Any) -> Any:
        return {
            name: np.clip(array + 0.1 * updates.weights[name], -0.5, 0.5)
            - 0.1 * updates.weights[name]
            for name, array in given.items()
        }

    plain = msgspec.structs.replace(CLIPPED, clip_value=0.0)
    start, gradients, after = taken(plain, [0.1], decayed)
    found = steps_otherwise(CLIPPED, start, gradients, after, [0.1])
    assert found == ({"weight_decay": "before gradients are clipped"},)


def test_one_parameter_that_decays_alone() -> None:
    start, gradients, after = taken(SGD, [0.1])
    others = taken(msgspec.structs.replace(SGD, weight_decay=0.02), [0.1])[2]
    after |= {name: array for name, array in others.items() if name.startswith("fc.bias")}
    found = steps_otherwise(SGD, start, gradients, after, [0.1])
    assert found == ({"weight_decay of fc.bias": 0.02},)


def test_other_gradients_are_explained_by_nothing() -> None:
    start, gradients, after = taken(SGD, [0.1])
    others = [{name: array[::-1] for name, array in each.items()} for each in gradients]
    assert not steps_otherwise(SGD, start, others, after, [0.1])
