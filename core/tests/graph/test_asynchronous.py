"""Asynchronous training in NumPy: schedules, staleness, and what explains other weights."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest

from dlb_graph.comparing.asynchronous import Play, PushesDiffer, held_back, mixed
from dlb_graph.comparing.updates import Updates
from dlb_graph.optimizers import SGD, Adam, Optimizer
from dlb_worker.contract import PHASES

SGD_WITH_MOMENTUM = SGD(learning_rate=0.1, momentum=0.9)
FAULTS = [
    PushesDiffer(shape="fresh"),
    PushesDiffer(shape="twice", rank=1),
    PushesDiffer(shape="lost", rank=0),
    PushesDiffer(shape="twice", rank=0, push=1),
    PushesDiffer(shape="lost", rank=1, push=0),
]


def play(optimizer: Optimizer = SGD_WITH_MOMENTUM) -> Play:
    """Two workers that each draw two weights to a point of their own."""

    def gradient(rank: int, step: int, held: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        return {"fc.weight": held["fc.weight"] - (1 + rank) * (1 + step) * np.array([1.0, 3.0])}

    start = {"fc.weight": np.array([0.5, -0.5])}
    return Play(2, lambda: Updates(optimizer, start), gradient, lambda step: 0.1)


def schedule(ranks: list[int]) -> list[tuple[int, str]]:
    """Each rank with the part of its step that comes next."""
    taken = [ranks[:place].count(rank) for place, rank in enumerate(ranks)]
    return [(rank, PHASES[part % len(PHASES)]) for rank, part in zip(ranks, taken)]


def test_a_worker_that_is_held_back_pushes_a_stale_gradient() -> None:
    ranks = held_back(2, 3)
    assert sorted(ranks) == [0] * 9 + [1] * 9
    played = play().of(schedule(ranks))
    assert played.staleness[1][0] == 2
    # By hand: worker 0 steps twice by itself, then the server gets worker 1's gradient at the first weights.
    weight, velocity = np.array([0.5, -0.5]), 0.0
    stale = weight - 2 * np.array([1.0, 3.0])
    for step in range(2):
        velocity = 0.9 * velocity + weight - (1 + step) * np.array([1.0, 3.0])
        weight = weight - 0.1 * velocity
    velocity = 0.9 * velocity + stale
    weight = weight - 0.1 * velocity
    first = play().of(schedule(ranks)[:9])
    assert np.allclose(first.server.weights["fc.weight"], weight, rtol=1e-14)


def test_one_worker_is_never_late() -> None:
    one = replace(play(), workers=1).of(schedule([0] * 9))
    assert one.staleness == [[0, 0, 0]]
    alone = Updates(SGD_WITH_MOMENTUM, {"fc.weight": np.array([0.5, -0.5])})
    for step in range(3):
        alone.step(play().gradient(0, step, alone.weights), 0.1)
    assert np.array_equal(one.server.weights["fc.weight"], alone.weights["fc.weight"])


def test_a_worker_that_pulls_first_has_the_weights_of_then() -> None:
    first, order = replace(play(), pulls_first=True), schedule(held_back(2, 3))
    # Held back after it has pulled, the last worker's first push is late in either case, and no other one is.
    kept, pulled = play().of(order), first.of(order)
    assert kept.staleness == [[0, 0, 1], [2, 1, 0]]
    assert pulled.staleness == [[0, 0, 0], [2, 0, 0]]
    (own, other), shared = pulled.pulled, pulled.server.weights
    assert np.array_equal(own["fc.weight"], shared["fc.weight"])
    assert np.array_equal(other["fc.weight"], shared["fc.weight"])
    # Another worker steps before this one's second step begins.
    ranks = [0] * 3 + [1] * 3 + [0] * 3
    assert first.of(schedule(ranks)).staleness == [[0, 0], [0]]
    assert play().of(schedule(ranks)).staleness == [[0, 1], [1]]
    fault = PushesDiffer(shape="lost", rank=1, push=0)
    wrong = replace(first, fault=fault).of(order)
    assert first.compare(order, wrong.pulled, wrong.staleness)[1] == [fault]


@pytest.mark.parametrize("optimizer", [SGD_WITH_MOMENTUM, Adam(learning_rate=0.1)])
@pytest.mark.parametrize("fault", FAULTS, ids=str)
def test_what_went_wrong_is_named(fault: PushesDiffer, optimizer: Optimizer) -> None:
    right, order = play(optimizer), schedule(mixed(2, 3, seed=1))
    wrong = replace(right, fault=fault).of(order)
    figures, named, _ = right.compare(order, wrong.pulled, wrong.staleness)
    assert figures[0].distance > 1e-4
    assert named == [fault]


def test_nothing_is_named_where_nothing_is_wrong() -> None:
    right, order = play(), schedule(mixed(2, 3, seed=1))
    played = right.of(order)
    assert max(map(max, played.staleness)) > 0
    figures, named, _ = right.compare(order, played.pulled, played.staleness)
    assert figures[0].distance == 0 and named == []
    assert right.compare(order, played.pulled, [[], []])[1] == []


def test_other_weights_and_another_staleness_are_faults() -> None:
    right, order = play(), schedule(mixed(2, 3, seed=1))
    played = right.of(order)
    late = [played.staleness[0], [each + 1 for each in played.staleness[1]]]
    assert right.compare(order, played.pulled, late)[1] == [PushesDiffer(shape="staleness")]
    moved = [{"fc.weight": end["fc.weight"] + 1} for end in played.pulled]
    assert right.compare(order, moved, late)[1] == [PushesDiffer(shape="other")]
