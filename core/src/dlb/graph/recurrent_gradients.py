"""Gradients of layers over the steps of a sequence, backwards through time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from dlb.graph.linear_gradients import linear_gradients
from dlb.graph.operators import sigmoid
from dlb.workload.layers import GRU, LSTM, RNN

__all__ = ["gru_gradients", "lstm_gradients", "rnn_gradients"]

Array = npt.NDArray[Any]
Parameters = Mapping[str, Array]


def lstm_gradients(
    layer: LSTM, x: Array, parameters: Parameters, cotangent: Array
) -> tuple[Array, dict[str, Array]]:
    """The gradients of the input and of the parameters by role.

    Args:
        x: [N, T, features].
        cotangent: the gradient of the output, [N, T, hidden].
    """
    hidden, steps = layer.hidden, x.shape[1]
    weight, recurrent = parameters["input_weight"], parameters["recurrent_weight"]
    h = c = np.zeros((len(x), hidden), x.dtype)
    kept: list[tuple[Array, ...]] = []
    for step in range(steps):
        sums = x[:, step] @ weight.T + h @ recurrent.T + parameters["bias"]
        i, o, f = (sigmoid(sums[:, n * hidden : (n + 1) * hidden]) for n in range(3))
        g = np.tanh(sums[:, 3 * hidden :])
        before_step = (h, c)
        c = f * c + i * g
        curve = np.tanh(c)
        h = o * curve
        kept.append((*before_step, i, o, f, g, curve))
    of_sums = np.empty((len(x), steps, 4 * hidden), x.dtype)
    before = np.empty((len(x), steps, hidden), x.dtype)
    of_h = of_c = np.zeros_like(c)
    for step in reversed(range(steps)):
        previous, old, i, o, f, g, curve = kept[step]
        of_h = of_h + cotangent[:, step]
        of_c = of_c + of_h * o * (1 - curve * curve)
        gates = (
            of_c * g * i * (1 - i),
            of_h * curve * o * (1 - o),
            of_c * old * f * (1 - f),
            of_c * i * (1 - g * g),
        )
        of_sums[:, step], before[:, step] = np.concatenate(gates, axis=1), previous
        of_h, of_c = of_sums[:, step] @ recurrent, of_c * f
    of_x, of_input = linear_gradients(x, weight, of_sums)
    _, of_recurrent = linear_gradients(before, recurrent, of_sums)
    return of_x, {
        "input_weight": of_input["weight"],
        "recurrent_weight": of_recurrent["weight"],
        "bias": of_input["bias"],
    }


def gru_gradients(
    layer: GRU, x: Array, parameters: Parameters, cotangent: Array
) -> tuple[Array, dict[str, Array]]:
    """The gradients of the input and of the parameters by role; arguments as in :func:`lstm_gradients`."""
    hidden, steps, last = layer.hidden, x.shape[1], layer.linear_before_reset
    weight, recurrent = parameters["input_weight"], parameters["recurrent_weight"]
    of_gates, of_candidate = recurrent[: 2 * hidden], recurrent[2 * hidden :]
    bias = parameters["bias"]
    input_bias, product_bias = bias if last else (bias, np.zeros_like(bias))
    h = np.zeros((len(x), hidden), x.dtype)
    kept: list[tuple[Array, ...]] = []
    for step in range(steps):
        sums = x[:, step] @ weight.T + input_bias
        gates = sigmoid(sums[:, : 2 * hidden] + h @ of_gates.T + product_bias[: 2 * hidden])
        z, r = gates[:, :hidden], gates[:, hidden:]
        # What the product of the candidate reads, and the product.
        read = h if last else r * h
        product = read @ of_candidate.T + product_bias[2 * hidden :]
        candidate = np.tanh(sums[:, 2 * hidden :] + (r * product if last else product))
        kept.append((h, z, r, read, product, candidate))
        h = (1 - z) * candidate + z * h
    of_sums = np.empty((len(x), steps, 3 * hidden), x.dtype)
    of_products = np.empty_like(of_sums)
    before = np.empty((len(x), steps, hidden), x.dtype)
    candidate_read = np.empty_like(before)
    of_h = np.zeros_like(h)
    for step in reversed(range(steps)):
        previous, z, r, read, product, candidate = kept[step]
        of_h = of_h + cotangent[:, step]
        of_curve = of_h * (1 - z) * (1 - candidate * candidate)
        of_product = of_curve * r if last else of_curve
        of_read = of_product @ of_candidate
        of_reset = of_curve * product if last else of_read * previous
        of_both = np.concatenate(
            [of_h * (previous - candidate) * z * (1 - z), of_reset * r * (1 - r)], axis=1
        )
        of_sums[:, step] = np.concatenate([of_both, of_curve], axis=1)
        of_products[:, step] = np.concatenate([of_both, of_product], axis=1)
        before[:, step], candidate_read[:, step] = previous, read
        of_h = of_h * z + (of_read if last else of_read * r) + of_both @ of_gates
    of_x, of_input = linear_gradients(x, weight, of_sums)
    _, by_gates = linear_gradients(before, of_gates, of_products[..., : 2 * hidden])
    _, by_candidate = linear_gradients(candidate_read, of_candidate, of_products[..., 2 * hidden :])
    of_recurrent = [
        np.concatenate([by_gates[key], by_candidate[key]]) for key in ("weight", "bias")
    ]
    return of_x, {
        "input_weight": of_input["weight"],
        "recurrent_weight": of_recurrent[0],
        "bias": np.stack([of_input["bias"], of_recurrent[1]]) if last else of_input["bias"],
    }


def rnn_gradients(
    layer: RNN, x: Array, parameters: Parameters, cotangent: Array
) -> tuple[Array, dict[str, Array]]:
    """The gradients of the input and of the parameters by role; arguments as in :func:`lstm_gradients`."""
    steps = x.shape[1]
    weight, recurrent = parameters["input_weight"], parameters["recurrent_weight"]
    states = [np.zeros((len(x), layer.hidden), x.dtype)]
    for step in range(steps):
        sums = x[:, step] @ weight.T + states[-1] @ recurrent.T + parameters["bias"]
        states.append(np.tanh(sums) if layer.activation == "tanh" else np.maximum(sums, 0))
    of_sums = np.empty((len(x), steps, layer.hidden), x.dtype)
    of_h = np.zeros_like(states[0])
    for step in reversed(range(steps)):
        h = states[step + 1]
        slope = 1 - h * h if layer.activation == "tanh" else h > 0
        of_sums[:, step] = (of_h + cotangent[:, step]) * slope
        of_h = of_sums[:, step] @ recurrent
    of_x, of_input = linear_gradients(x, weight, of_sums)
    _, of_recurrent = linear_gradients(np.stack(states[:-1], axis=1), recurrent, of_sums)
    return of_x, {
        "input_weight": of_input["weight"],
        "recurrent_weight": of_recurrent["weight"],
        "bias": of_input["bias"],
    }
