"""Layers over the steps of a sequence; their gradients go backwards through time."""

from __future__ import annotations

import math
from typing import Any, Literal

from dlb_graph.layers.base import Gradients, Graph, Layer, Pass, Shape, check_rank
from dlb_graph.layers.initializers import Initializer
from dlb_graph.layers.linear import linear_gradients
from dlb_graph.layers.numbers import Array, np
from dlb_graph.layers.special_functions import sigmoid

__all__ = ["GRU", "LSTM", "RNN", "Recurrent"]


_WEIGHTS = ("input", "recurrent")


class Recurrent(Layer, kw_only=True, frozen=True):
    """Base class: one forward layer over [N, T, features], from a zero state.

    ``gates``: how many there are; each has ``hidden`` rows of the weights.
    """

    hidden: int

    gates = 0

    input_roles = ("input_weight",)
    growing_roles = ("input_weight",)
    summand = ""
    reads_input_again = True
    reads_output_again = True

    @property
    def has_two_biases(self) -> bool:
        """Whether it has a bias for each product, one row below the other."""
        return False

    def output_shape(self, inputs: list[Shape]) -> Shape:
        check_rank(inputs[0], 2)
        return (inputs[0][0], self.hidden)

    def parameters(self, shape: Shape) -> dict[str, Shape]:
        rows = self.gates * self.hidden
        return {
            "input_weight": (rows, shape[-1]),
            "recurrent_weight": (rows, self.hidden),
            "bias": (2, rows) if self.has_two_biases else (rows,),
        }

    def multiply_adds(self, inputs: list[Shape], output: Shape) -> int:
        """A weight counts once for each step."""
        return self.gates * math.prod(output) * (inputs[0][-1] + self.hidden)

    def input_products(self, inputs: list[Shape], output: Shape) -> int:
        return self.gates * math.prod(output) * inputs[0][-1]

    def first_products(self) -> int:
        return self.gates * self.hidden**2

    def _options(self) -> dict[str, Any]:
        """Further attributes of the operator."""
        return {}

    def nodes(self, graph: Graph, name: str, inputs: list[str], shapes: list[Shape]) -> None:
        """[N, T, F] to [T, N, F], a forward ONNX operator, and back. One bias is B = [bias, 0]."""
        within = graph.within(name)
        add, held = within.add, within.held
        rows, direction = self.gates * self.hidden, held([0])
        weights = (add("Unsqueeze", f"{name}.{role}_weight", direction) for role in _WEIGHTS)
        if self.has_two_biases:
            bias = add("Reshape", f"{name}.bias", held([1, 2 * rows]))
        else:
            biases = add("Concat", f"{name}.bias", held(np.zeros(rows)), axis=0)
            bias = add("Unsqueeze", biases, direction)
        read = [add("Transpose", *inputs, perm=[1, 0, 2]), *weights, bias]
        settings = {"hidden_size": self.hidden, "direction": "forward", **self._options()}
        every = graph.node(self.operator, read, f"{name}/directions", name=name, **settings)
        hidden = add("Squeeze", every, held([1]))
        graph.node("Transpose", [hidden], name, name=f"{name}/batch_first", perm=[1, 0, 2])


class LSTM(Recurrent, tag="lstm", kw_only=True, frozen=True):
    """One forward LSTM layer over [N, T, features], ONNX LSTM, zero initial state.

    Gates in ONNX order: input, output, forget, cell (iofc); no peepholes; tanh and sigmoid.
    There is *one* bias per gate: ONNX's B is [bias, 0]. Frameworks with two biases train one.
    Output: the hidden state at every step [N, T, hidden].

    Parameters: ``input_weight`` [4 * hidden, features], ``recurrent_weight`` [4 * hidden, hidden],
    ``bias`` [4 * hidden].
    """

    init: Initializer = "glorot_uniform"

    gates = 4
    operator = "LSTM"
    bounded = True
    numbers_within = 5
    mistakes = (
        "the order of the gates, a forget bias, one bias for two, the direction, or an activation"
    )

    def gradients(self, read: Pass, cotangent: Array) -> Gradients:
        x, parameters = read.input, read.parameters
        hidden, steps = self.hidden, x.shape[1]
        weight, recurrent = parameters["input_weight"], parameters["recurrent_weight"]
        h = c = np.zeros((len(x), hidden), x.dtype)
        states: list[tuple[Array, ...]] = []
        for step in range(steps):
            sums = x[:, step] @ weight.T + h @ recurrent.T + parameters["bias"]
            i, o, f = (sigmoid(sums[:, n * hidden : (n + 1) * hidden]) for n in range(3))
            g = np.tanh(sums[:, 3 * hidden :])
            before_step = (h, c)
            c = f * c + i * g
            curve = np.tanh(c)
            h = o * curve
            states.append((*before_step, i, o, f, g, curve))
        of_sums = np.empty((len(x), steps, 4 * hidden), x.dtype)
        before = np.empty((len(x), steps, hidden), x.dtype)
        of_h = of_c = np.zeros_like(c)
        for step in reversed(range(steps)):
            previous, old, i, o, f, g, curve = states[step]
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
        return _gradients(read, before, of_sums)


class GRU(Recurrent, tag="gru", kw_only=True, frozen=True):
    """One forward GRU layer over [N, T, features], ONNX GRU, zero initial state.

    Gates in ONNX order: update, reset, hidden (zrh); tanh and sigmoid. Frameworks differ in the side of
    the recurrent product on which the reset gate acts, so ``linear_before_reset`` has no default.
    Output: the hidden state at every step [N, T, hidden].

    Parameters: ``input_weight`` [3 * hidden, features], ``recurrent_weight`` [3 * hidden, hidden],
    ``bias`` [3 * hidden]; with ``linear_before_reset`` [2, 3 * hidden], a bias for each product, as all
    frameworks that have this form train two.

    Attributes:
        hidden: number of units.
        linear_before_reset: whether the reset gate multiplies the recurrent product and its bias
            (torch, cuDNN, Keras's ``reset_after``), not the state before it (Cho et al.,
            arXiv:1406.1078).
        init: how both weights are initialised.
    """

    linear_before_reset: bool
    init: Initializer = "glorot_uniform"

    gates = 3
    operator = "GRU"
    bounded = True
    numbers_within = 4
    mistakes = (
        "the order of the gates, the side of the recurrent product on which the reset gate acts, the "
        "update gate and one minus it swapped, or a bias left out"
    )

    @property
    def has_two_biases(self) -> bool:
        return self.linear_before_reset

    def first_products(self) -> int:
        """Where the reset gate comes first, one product reads it too."""
        return (self.gates if self.linear_before_reset else self.gates - 1) * self.hidden**2

    def _options(self) -> dict[str, Any]:
        return {"linear_before_reset": int(self.linear_before_reset)}

    def gradients(self, read: Pass, cotangent: Array) -> Gradients:
        x, parameters = read.input, read.parameters
        hidden, steps, last = self.hidden, x.shape[1], self.linear_before_reset
        weight, recurrent = parameters["input_weight"], parameters["recurrent_weight"]
        of_gates, of_candidate = recurrent[: 2 * hidden], recurrent[2 * hidden :]
        bias = parameters["bias"]
        input_bias, product_bias = bias if last else (bias, np.zeros_like(bias))
        h = np.zeros((len(x), hidden), x.dtype)
        states: list[tuple[Array, ...]] = []
        for step in range(steps):
            sums = x[:, step] @ weight.T + input_bias
            gates = sigmoid(sums[:, : 2 * hidden] + h @ of_gates.T + product_bias[: 2 * hidden])
            z, r = gates[:, :hidden], gates[:, hidden:]
            # What the product of the candidate reads, and the product.
            reset = h if last else r * h
            product = reset @ of_candidate.T + product_bias[2 * hidden :]
            candidate = np.tanh(sums[:, 2 * hidden :] + (r * product if last else product))
            states.append((h, z, r, reset, product, candidate))
            h = (1 - z) * candidate + z * h
        of_sums = np.empty((len(x), steps, 3 * hidden), x.dtype)
        of_products = np.empty_like(of_sums)
        before = np.empty((len(x), steps, hidden), x.dtype)
        candidate_read = np.empty_like(before)
        of_h = np.zeros_like(h)
        for step in reversed(range(steps)):
            previous, z, r, reset, product, candidate = states[step]
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
            before[:, step], candidate_read[:, step] = previous, reset
            of_h = of_h * z + (of_read if last else of_read * r) + of_both @ of_gates
        of_x, of_input = linear_gradients(x, weight, of_sums)
        _, by_gates = linear_gradients(before, of_gates, of_products[..., : 2 * hidden])
        _, by_candidate = linear_gradients(
            candidate_read, of_candidate, of_products[..., 2 * hidden :]
        )
        of_recurrent = [
            np.concatenate([by_gates[key], by_candidate[key]]) for key in ("weight", "bias")
        ]
        return (of_x,), {
            "input_weight": of_input["weight"],
            "recurrent_weight": of_recurrent[0],
            "bias": np.stack([of_input["bias"], of_recurrent[1]]) if last else of_input["bias"],
        }


class RNN(Recurrent, tag="rnn", kw_only=True, frozen=True):
    """One forward layer of simple recurrent units over [N, T, features] (Elman 1990), ONNX RNN.

    ``h = f(W x + R h + b)`` from a zero initial state, with f tanh or ReLU. There is *one* bias: ONNX's
    B is [bias, 0]. Frameworks with two biases train one.
    Output: the hidden state at every step [N, T, hidden].

    Parameters: ``input_weight`` [hidden, features], ``recurrent_weight`` [hidden, hidden], ``bias``
    [hidden].
    """

    activation: Literal["tanh", "relu"] = "tanh"
    init: Initializer = "glorot_uniform"

    gates = 1
    operator = "RNN"
    mistakes = "another activation, one bias for two, or the state of another step"

    def is_bounded(self) -> bool:
        return self.activation == "tanh"

    def _options(self) -> dict[str, Any]:
        return {"activations": [self.activation.title()]}

    def gradients(self, read: Pass, cotangent: Array) -> Gradients:
        x, parameters = read.input, read.parameters
        steps = x.shape[1]
        weight, recurrent = parameters["input_weight"], parameters["recurrent_weight"]
        states = [np.zeros((len(x), self.hidden), x.dtype)]
        for step in range(steps):
            sums = x[:, step] @ weight.T + states[-1] @ recurrent.T + parameters["bias"]
            states.append(np.tanh(sums) if self.activation == "tanh" else np.maximum(sums, 0))
        of_sums = np.empty((len(x), steps, self.hidden), x.dtype)
        of_h = np.zeros_like(states[0])
        for step in reversed(range(steps)):
            h = states[step + 1]
            slope = 1 - h * h if self.activation == "tanh" else h > 0
            of_sums[:, step] = (of_h + cotangent[:, step]) * slope
            of_h = of_sums[:, step] @ recurrent
        return _gradients(read, np.stack(states[:-1], axis=1), of_sums)


def _gradients(read: Pass, before: Array, of_sums: Array) -> Gradients:
    """The gradients of a layer's input and parameters, from those of the sums of both products and the bias.

    Args:
        before: the hidden state before each step.
    """
    of_x, of_input = linear_gradients(read.input, read.parameters["input_weight"], of_sums)
    _, of_recurrent = linear_gradients(before, read.parameters["recurrent_weight"], of_sums)
    return (of_x,), {
        "input_weight": of_input["weight"],
        "recurrent_weight": of_recurrent["weight"],
        "bias": of_input["bias"],
    }
