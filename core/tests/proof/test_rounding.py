"""Rounding to bfloat16, and what it makes of a model."""

from __future__ import annotations

import ml_dtypes
import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from dlb.proof.reference import Reference
from dlb.proof.rounding import BFLOAT16, FLOAT32, rounding_of, to_bfloat16
from dlb_graph import workload as W


@given(st.lists(st.floats(width=32), min_size=1))
def test_numbers_round_as_in_the_type_itself(numbers: list[float]) -> None:
    array = np.array(numbers, np.float32)
    expected = array.astype(ml_dtypes.bfloat16).astype(np.float32)
    finite = np.isfinite(array)
    assert (to_bfloat16(array)[finite] == expected[finite]).all()
    assert (np.isnan(to_bfloat16(array)) == np.isnan(array)).all()


def test_types_and_shapes_are_kept() -> None:
    for array in (np.float32(1.0) * np.ones((2, 0)), np.array(0.1), np.arange(3)):
        rounded = to_bfloat16(np.asarray(array))
        assert rounded.dtype == array.dtype and rounded.shape == array.shape
    assert float(to_bfloat16(np.array(0.1))) != 0.1


def test_a_number_is_off_by_half_a_unit_in_the_last_place_at_most() -> None:
    array = np.random.default_rng(0).standard_normal(1000)
    off = np.abs(to_bfloat16(array) - array) / np.abs(array)
    assert BFLOAT16.least < off.max() <= 2.0**-8 and off.mean() < BFLOAT16.least


def test_a_variant_names_its_type() -> None:
    assert rounding_of({"precision": "bfloat16", "compile": "no"}) is BFLOAT16
    assert rounding_of({"compile": "no"}) is FLOAT32


def test_what_a_mask_replaces_stays_finite() -> None:
    """The lowest number of float32 is beyond the lowest of bfloat16."""
    layers = {
        "mask": W.Mask(sizes=(4,), kept="b0", value=-3.4028234663852886e38),
        "shares": W.Softmax(axis=1),
    }
    nodes = tuple(W.Node(name=name, layer=layer) for name, layer in layers.items())
    model = W.Model(input=W.Input(shape=(4,)), nodes=nodes)
    inputs = np.random.default_rng(0).standard_normal((3, 4)).astype(np.float32)
    truth = Reference(model, {}, inputs, np.zeros(3, int))
    rounded = dict(BFLOAT16.layers(truth, truth.layers, {}, training=False))
    assert all(np.isfinite(array).all() for array in rounded.values())
    assert not rounded["shares"][:, 1].any()
