"""Layouts: each map and its inverse, and gradients as the canonical parameter has them."""

import numpy as np
import pytest

from dlb_worker.parameters import (
    AS_IS,
    attention_locations,
    gru_mappings,
    location,
    low_rank,
    lstm_gates,
    reordered,
    stacked,
    summed,
    user_parameter,
)

RANDOM = np.random.RandomState(0)
TRANSPOSED = location("kernel", lambda array: array.T, lambda array: array.T)


@pytest.mark.parametrize(
    "mapping, shape",
    [
        (AS_IS, (3, 4)),
        (TRANSPOSED, (3, 4)),
        (lstm_gates("gates"), (8, 3)),
        (attention_locations("w", "b")["key_weight"], (3, 3)),
        (summed("bias_ih", "bias_hh", AS_IS), (8,)),
        (stacked(("query", "key", "value")), (6, 2)),
        (stacked(("query", "key", "value"), TRANSPOSED), (6, 2)),
        (stacked(("query", "key"), (TRANSPOSED, AS_IS), (4, 2)), (6, 2)),
        (gru_mappings(("w", "r"), ("b", "c"), (1, 0, 2))["input_weight"], (6, 4)),
        (gru_mappings(("w", "r"), ("b", "c"), (1, 2, 0))["recurrent_weight"], (6, 2)),
        (gru_mappings(("w", "r"), ("b", "c"), (2, 0, 1))["bias"], (2, 6)),
    ],
)
def test_what_goes_in_comes_out(mapping, shape):
    array = RANDOM.standard_normal(shape)
    natives = list(mapping.to_native(array))
    assert len(natives) == len(mapping.attributes)
    assert np.array_equal(mapping.to_canonical(natives), array)


@pytest.mark.parametrize(
    "shapes, transposed",
    [
        ({"lora_A": (2, 8), "lora_B": (6, 2)}, False),
        ({"lora_kernel_a": (8, 2), "lora_kernel_b": (2, 6), "scale": ()}, True),
        ({"w_up": (8, 2), "w_down": (2, 8)}, False),
        ({"w_up": (2, 8), "w_down": (8, 2)}, True),
        ({"a": (8, 8), "b": (8, 8)}, None),
        ({"gamma": (8,), "beta": (8,)}, None),
        ({"a": (2, 8), "c": (8, 2)}, None),
    ],
)
def test_matrices_of_low_rank_are_those_of_two_linear_layers(shapes, transposed):
    found = low_rank(shapes)
    if transposed is None:
        assert not found
        return
    assert len(found) == 2
    for name, (role, mapping) in found.items():
        assert role == f"low-rank {name} weight"
        shape = mapping.to_canonical([np.zeros(shapes[name])]).shape
        assert shape == (shapes[name][::-1] if transposed else shapes[name])


def test_the_gradient_of_a_sum_is_that_of_each():
    mapping = summed("first", "second", AS_IS)
    gradient = RANDOM.standard_normal(4)
    assert np.array_equal(mapping.to_gradient([gradient, gradient]), gradient)


def test_reordered_moves_whole_parts():
    assert reordered(3, (2, 0, 1))(np.arange(6)).tolist() == [4, 5, 0, 1, 2, 3]


def test_a_users_parameter_is_named_for_its_layer_and_attributes():
    both = summed("bias_ih", "bias_hh", AS_IS)
    held = user_parameter("rnn", "bias", True, {"bias_ih": 1, "bias_hh": 2}, both)
    assert held.name == "rnn.bias_ih + rnn.bias_hh" and held.natives == (1, 2)
    assert user_parameter("", "", False, {"scale": 1}).name == "scale"
