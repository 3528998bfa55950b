"""What became of the gradients of several workers is read from their ratios to what is known."""

from __future__ import annotations

import numpy as np
import pytest

from dlb_graph.comparing.distance import factor
from dlb_graph.comparing.reduction import Known, known_gradients, other_samples, reductions
from dlb_graph.comparing.tolerances import FLOAT64_TOLERANCE

WORKERS = 3
RANDOM = np.random.default_rng(0)
OWN = [{"w": RANDOM.standard_normal(5), "b": RANDOM.standard_normal(1)} for _ in range(WORKERS)]
MEAN = {name: np.mean([own[name] for own in OWN], axis=0) for name in ("w", "b")}
MASKED = {name: array + 0.1 for name, array in MEAN.items()}
SEEDED = [
    ([{n: a / WORKERS for n, a in MEAN.items()}] * WORKERS, [(("w", "b"), (0, 1, 2), "factor", 1 / WORKERS)]),
    ([{n: a * WORKERS for n, a in MEAN.items()}] * WORKERS, [(("w", "b"), (0, 1, 2), "factor", 3.0)]),
    ([{n: a * 2 for n, a in MEAN.items()}] * WORKERS, [(("w", "b"), (0, 1, 2), "factor", 2.0)]),
    ([{**MEAN, "w": MEAN["w"] * 0}, MEAN, MEAN], [(("w",), (0,), "factor", 0.0)]),
    ([{**MEAN, "w": MEAN["w"] * 1.7}, MEAN, MEAN], [(("w",), (0,), "factor", 1.7)]),
    ([{**MEAN, "b": MEAN["b"] * 1.7}, MEAN, MEAN], [(("b",), (0,), "other", None)]),
    (OWN, [(("w", "b"), (0, 1, 2), "own", None)]),
    ([MEAN, {**MEAN, "b": OWN[1]["b"]}, MEAN], [(("b",), (1,), "own", None)]),
    ([MEAN, MEAN, OWN[0]], [(("w", "b"), (2,), "peer", 0.0)]),
    ([MASKED] * WORKERS, [(("w", "b"), (0, 1, 2), "masks_of_first", None)]),
    ([{**MEAN, "w": MEAN["w"] + 1}, MEAN, {"b": MEAN["b"]}], [(("w",), (0, 2), "other", None)]),
    ([MEAN] * WORKERS, []),
]  # fmt: skip


@pytest.mark.parametrize(("told", "expected"), SEEDED)
def test_a_fault_is_named_by_its_shape(
    told: list[dict[str, np.ndarray]], expected: list[tuple[object, ...]]
) -> None:
    causes = reductions(told, MEAN, [{}] * WORKERS, FLOAT64_TOLERANCE, lambda: Known(OWN, MASKED))
    assert [(each.tensors, each.ranks, each.shape, each.factor) for each in causes] == expected


def test_gradients_of_shares_weigh_as_much_as_their_samples() -> None:
    known = known_gradients(lambda first, end, row: {"w": np.full(1, first + 100 * row)}, (3, 2))
    assert [each["w"].item() for each in known.own] == [0, 303]
    assert known.masks_of_first["w"].item() == pytest.approx(3 * 2 / 5)


def test_samples_of_another_share_are_named() -> None:
    rows = np.arange(10.0).reshape(5, 2)
    whole = {"inputs": rows, "labels": np.arange(5)}
    parts = [{name: array[[0, 1, 2]] for name, array in whole.items()}]
    parts.append({name: array[[2, 3]] for name, array in whole.items()})
    (cause,) = other_samples(parts, whole, (3, 2), step=1)
    assert (cause.rank, cause.samples, cause.expected) == (1, (2, 3), (3, 4))


def test_a_factor_is_one_number_for_all_elements() -> None:
    array = RANDOM.standard_normal(7)
    assert factor(3 * array, array, 1e-12) == pytest.approx(3)
    assert factor(array + 1, array, 1e-12) is None
    assert factor(array, np.zeros(7), 1e-12) is None
    assert factor(array[:3], array, 1e-12) is None
    assert factor(np.full(7, np.nan), array, 1e-12) is None


def test_of_parts_each_worker_has_its_own_alone() -> None:
    mean, holds = {"w": RANDOM.standard_normal(6)}, np.arange(6) // 2
    held = [{"w": holds == rank} for rank in range(WORKERS)]
    # What lies in another's part is that one's to answer for.
    right = [{"w": np.where(holds == rank, mean["w"], np.nan)} for rank in range(WORKERS)]
    assert not reductions(right, mean, held, FLOAT64_TOLERANCE, lambda: Known(OWN, MASKED))
    wrong = [*right[:2], {"w": np.where(holds == 2, np.roll(mean["w"], 2), np.nan)}]
    (cause,) = reductions(wrong, mean, held, FLOAT64_TOLERANCE)
    assert (cause.ranks, cause.shape, cause.factor, cause.step) == ((2,), "part", 1.0, True)


def test_a_step_that_was_not_made_is_named() -> None:
    steps = [MEAN, {**MEAN, "w": MEAN["w"] * 0}, MEAN]
    (cause,) = reductions(steps, MEAN, [{}] * WORKERS, FLOAT64_TOLERANCE)
    assert (cause.tensors, cause.ranks, cause.factor, cause.step) == (("w",), (1,), 0.0, True)
