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


@pytest.mark.parametrize(
    "shapes, kind, first, second",
    [
        # [rank, in, ...] and [out, rank, 1, ...] of convolutions.
        (
            {"lora_kernel_a": (3, 4, 5, 2), "lora_kernel_b": (2, 6)},
            "conv",
            (2, 5, 3, 4),
            (6, 2, 1, 1),
        ),
        ({"lora_A": (2, 5, 3, 4), "lora_B": (6, 2)}, "conv", (2, 5, 3, 4), (6, 2, 1, 1)),
        ({"a": (3, 5, 1), "b": (1, 6)}, "conv", (1, 5, 3), (6, 1, 1)),
        ({"a": (3, 4, 5, 2), "b": (2, 6)}, "", (2, 5, 3, 4), (6, 2, 1, 1)),
        # Of heads that share the second.
        ({"query.lora_a": (8, 3, 2), "query.lora_b": (2, 4)}, "", (2, 8, 3), (4, 2)),
        ({"output.lora_a": (3, 4, 2), "output.lora_b": (2, 8)}, "attention", (2, 12), (8, 2)),
    ],
)
def test_arrays_of_low_rank_are_those_of_two_layers(shapes, kind, first, second):
    found = low_rank(shapes, kind)
    assert len(found) == 2
    arrays = {name: RANDOM.standard_normal(shape) for name, shape in shapes.items()}
    for (name, (_, mapping)), shape in zip(found.items(), (first, second)):
        canonical = mapping.to_canonical([arrays[name]])
        assert canonical.shape == shape
        assert np.array_equal(mapping.to_native(canonical)[0], arrays[name])
    a, b = (mapping.to_canonical([arrays[name]]) for name, (_, mapping) in found.items())
    rank = a.shape[0]
    product = b.reshape(-1, rank) @ a.reshape(rank, -1)
    native_a, native_b = arrays.values()
    if native_a.shape[-1] == rank:
        assert np.isclose(np.sort((native_a @ native_b).ravel()), np.sort(product.ravel())).all()


@pytest.mark.parametrize(
    "shapes", [{"a": (3, 4, 5, 9), "b": (9, 6)}, {"a": (8, 3, 2), "b": (2, 4, 5)}]
)
def test_arrays_of_no_low_rank_are_none(shapes):
    assert not low_rank(shapes, "conv")


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
