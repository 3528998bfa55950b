"""Float32 trajectories: steps looked at, weights moved by one place, distances."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlb.proof.divergence import Changes, drift, observed_steps, perturbed


@given(st.integers(1, 10**6))
def test_steps_looked_at_rise_to_the_last(steps: int) -> None:
    found = observed_steps(steps)
    assert found[-1] == steps and list(found) == sorted(set(found))
    assert set(found[:-1]) <= {base * 10**power for base in (1, 2, 5) for power in range(6)}
    assert len(found) <= 3 * len(str(steps)) + 1


@given(st.integers(0, 100), st.lists(st.floats(-(2.0**100), 2.0**100, width=32)))
def test_every_weight_is_moved_to_a_neighbour(seed: int, values: list[float]) -> None:
    array = np.array(values, dtype=np.float32)
    moved = perturbed({"fc.weight": array}, seed)["fc.weight"]
    assert moved.dtype == np.float32 and moved.shape == array.shape
    above, below = (np.nextafter(array, np.float32(end)) for end in (np.inf, -np.inf))
    assert np.all((moved == above) | (moved == below))
    further = perturbed({"fc.weight": moved}, seed)["fc.weight"]
    assert np.array_equal(perturbed({"fc.weight": array}, seed, 2)["fc.weight"], further)


def kept(folder: Path, name: str, **weights: list[float]) -> list[Changes]:
    after = {key: np.array(value, np.float32) for key, value in weights.items()}
    return [Changes.write(folder / f"{name}.npz", START, after, frozenset(weights))]


#: In float32 every weight, and what changes of it, is exact.
START = {"a": np.array([1.0, 1.0], np.float32), "b": np.array([2.0], np.float32)}


@pytest.mark.parametrize(
    ("found", "expected"),
    [([3.0, 1.0], 0.0), ([3.0, 2.0], 0.5), ([np.nan, 1.0], None), ([np.inf, 1.0], None)],
)
def test_a_distance_is_a_part_of_what_changed(
    tmp_path: Path, found: list[float], expected: float | None
) -> None:
    truth = kept(tmp_path, "truth", a=[3.0, 1.0], b=[2.0])
    ours = kept(tmp_path, "found", a=found, b=[2.0])
    assert drift(ours, truth, truth, ["a", "b"]) == (expected,)


def test_where_nothing_should_change_any_distance_is_infinite(tmp_path: Path) -> None:
    truth, ours = kept(tmp_path, "truth", b=[2.0]), kept(tmp_path, "found", b=[2.5])
    assert drift(ours, truth, truth, ["b"]) == (None,)
    assert drift(truth, truth, truth, ["b"]) == (0.0,)


def test_a_weight_that_is_missing_or_of_another_shape_is_infinitely_far(tmp_path: Path) -> None:
    truth = kept(tmp_path, "truth", a=[1.0, 2.0], b=[2.0])
    for name, found in (("less", {"b": [2.0]}), ("wider", {"a": [1.0, 2.0], "b": [2.0, 2.0]})):
        assert drift(kept(tmp_path, name, **found), truth, truth, ["a", "b"]) == (None,)


def test_changes_are_exact_and_tell_which_are_more_than_rounding(tmp_path: Path) -> None:
    beside = np.nextafter(START["a"], np.float32(2))
    after = {"a": beside, "b": START["b"], "running": np.ones(3)}
    changes = Changes.write(tmp_path / "1.npz", START, after, frozenset({"a"}))
    found = changes.read()
    assert sorted(found) == ["a", "b"]
    assert all(array.dtype == np.float64 for array in found.values())
    assert np.array_equal(found["a"], [2.0**-23] * 2) and not found["b"].any()
    assert list(changes.read_moved()) == ["a"]
