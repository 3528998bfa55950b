"""Large tensors are looked at in pieces: what comes of it does not depend on where they are cut."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from dlb_graph.comparing import distance, updates
from dlb_graph.comparing.distance import figure, norm, relative_l2, same_bits
from dlb_graph.comparing.updates import Updates
from dlb_graph.workload import SGD, Adadelta, Adagrad, Adam, Adamax, AdamW, Optimizer, RMSprop

Array = npt.NDArray[Any]
DRAW = np.random.default_rng(3)
OPTIMIZERS = [
    SGD(learning_rate=0.1),
    SGD(learning_rate=0.1, momentum=0.9, nesterov=True, weight_decay=1e-3, clip_norm=0.5),
    Adam(learning_rate=0.01, weight_decay=1e-3),
    AdamW(clip_value=0.5),
    AdamW(clip_variable_norm=0.5, weight_decay_on="weights"),
    Adam(beta2=0.1, amsgrad=True),
    RMSprop(momentum=0.9),
    Adagrad(epsilon_place="inside"),
    Adadelta(),
    Adamax(),
]


def cut(size: int, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(distance, "PIECE", size)
    patch.setattr(updates, "PIECE", size)


@pytest.mark.parametrize("size", [1, 7, 64])
def test_distances_are_those_of_whole_tensors(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    found, expected = DRAW.standard_normal((2, 5, 11)).astype(np.float32)
    expected = expected.T.copy().T  # stored by columns, as what a framework turned
    whole = np.linalg.norm(found.astype(np.float64) - expected) / np.linalg.norm(
        expected.astype(np.float64)
    )
    before = figure("w", found, expected)
    cut(size, monkeypatch)
    assert relative_l2(found, expected) == pytest.approx(whole, rel=1e-14)
    after = figure("w", found, expected)
    assert (after.largest, after.ulp) == (before.largest, before.ulp)
    assert norm([found, expected]) == pytest.approx(
        np.hypot(np.linalg.norm(found), np.linalg.norm(expected)), rel=1e-6
    )


@pytest.mark.parametrize("wrong", [np.nan, np.inf])
@pytest.mark.parametrize("place", [0, 6, 54])
def test_one_number_in_any_piece_is_seen(
    wrong: float, place: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    cut(7, monkeypatch)
    expected = DRAW.standard_normal((5, 11))
    found = expected.copy()
    found.flat[place] = np.nextafter(found.flat[place], np.inf)
    one = figure("w", found, expected)
    assert one.relative_l2 and one.largest and one.ulp == 1
    assert not same_bits(found, expected) and same_bits(expected.copy(), expected)
    found.flat[place] = wrong
    assert figure("w", found, expected).relative_l2 is None


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_a_difference_is_told_in_units_of_the_last_place(dtype: type) -> None:
    info = np.finfo(dtype)
    powers = 2.0 ** np.arange(info.minexp, min(info.maxexp, 500))  # squares overflow
    expected = np.concatenate([powers, -1.75 * powers]).astype(dtype)
    found = np.nextafter(expected, dtype(np.inf))
    for number, other in zip(expected, found):
        place = np.spacing(np.abs(number))
        # Below a power of two the neighbour is half a unit away; numbers may be compared in float64.
        units = abs(float(other) - float(number)) / float(place)
        one = figure("w", np.array([other]), np.array([number], np.float64))
        assert one.ulp == units
    beside_zero = figure("w", np.array([info.tiny], dtype), np.zeros(1, dtype), floor=1.0)
    assert beside_zero.ulp == float(info.tiny) / float(np.spacing(info.tiny))


def test_bits_are_compared_whatever_the_layout() -> None:
    some = DRAW.standard_normal((4, 3))
    assert same_bits(np.asfortranarray(some), some)
    assert not same_bits(np.zeros(3), -np.zeros(3))
    assert same_bits(np.full(2, np.nan), np.full(2, np.nan))
    assert same_bits(np.zeros((0, 3)), np.zeros((0, 3)))
    assert not same_bits(np.zeros((0, 3)), np.zeros((3, 0)))
    assert same_bits(np.float32(2).reshape(()), np.float32(2).reshape(()))


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_steps_are_those_of_whole_tensors(
    optimizer: Optimizer, dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = {"a.weight": np.asfortranarray(DRAW.standard_normal((5, 11))), "a.bias": np.ones(5)}
    gradients = [{n: DRAW.standard_normal(w.shape) for n, w in start.items()} for _ in range(3)]

    def stepped() -> dict[str, Array]:
        steps = Updates(optimizer, start, dtype)
        for one in gradients:
            steps.step(one, 0.1)
        return {**steps.weights, **steps.state}

    whole = stepped()
    cut(7, monkeypatch)
    parts = stepped()
    assert list(parts) == list(whole)
    # Clipping takes one norm of all, whose last bit is the order of a sum.
    rounding = 1e-15 if dtype == "float64" else 1e-7
    for name, array in whole.items():
        assert parts[name].dtype == array.dtype and parts[name].shape == array.shape
        assert np.allclose(parts[name], array, rtol=rounding, atol=rounding)
    assert np.array_equal(start["a.bias"], np.ones(5))
