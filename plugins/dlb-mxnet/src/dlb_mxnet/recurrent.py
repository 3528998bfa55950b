"""Layers over the steps of a sequence [N, T, features]: gluon's own, and what gluon does not have."""

from __future__ import annotations

from typing import Any

import mxnet as mx
from mxnet.gluon import HybridBlock, rnn

from dlb_mxnet.modules import EXPORTING
from dlb_worker.model import Node

Shape = tuple[int, ...]
#: What stands for a loop in an export, as one operator.
STAND_IN = "dlb_recurrent"
#: What a recurrent layer multiplies, in gluon's words: its input, and its last state.
SIDES = ("i2h", "h2h")


class ResetFirstGRU(HybridBlock):
    """A GRU whose reset gate acts before the recurrent product; gates as ONNX has them."""

    def __init__(self, node: Node) -> None:
        super().__init__()
        self.steps, self.hidden = node.shape
        with self.name_scope():
            for role, parameter in node.parameters.items():
                setattr(self, role, self.params.get(role, shape=parameter.shape))

    def hybrid_forward(
        self, F: Any, inputs: Any, input_weight: Any, recurrent_weight: Any, bias: Any
    ) -> Any:
        if EXPORTING.get():
            return stand_in(F, inputs, input_weight, recurrent_weight, bias, "GRU", self.hidden)
        size = self.hidden
        of_gates = F.slice_axis(recurrent_weight, axis=0, begin=0, end=2 * size)
        of_candidate = F.slice_axis(recurrent_weight, axis=0, begin=2 * size, end=3 * size)
        sums = F.FullyConnected(inputs, input_weight, bias, num_hidden=3 * size, flatten=False)
        hidden, outputs = None, []
        for step in range(self.steps):
            part = _step(F, sums, step)
            gates = F.slice_axis(part, axis=1, begin=0, end=2 * size)
            candidate = F.slice_axis(part, axis=1, begin=2 * size, end=3 * size)
            if hidden is None:
                hidden = F.zeros_like(candidate)
            gates = F.sigmoid(gates + _product(F, hidden, of_gates, 2 * size))
            update = F.slice_axis(gates, axis=1, begin=0, end=size)
            reset = F.slice_axis(gates, axis=1, begin=size, end=2 * size)
            candidate = F.tanh(candidate + _product(F, reset * hidden, of_candidate, size))
            hidden = (1 - update) * candidate + update * hidden
            outputs.append(hidden)
        return F.stack(*outputs, axis=1)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.input_weight.shape[1]} -> {self.hidden})"


def _product(F: Any, values: Any, weight: Any, rows: int) -> Any:
    return F.FullyConnected(values, weight, num_hidden=rows, no_bias=True)


class ReLUInDouble(rnn.RNN):
    """Composed, since the operator has its ReLU in float32."""

    def __init__(self, steps: int, *sizes: Any, **options: Any) -> None:
        super().__init__(*sizes, **options)
        self.steps = steps

    def __call__(self, inputs: Any) -> Any:
        return super().__call__(inputs) if EXPORTING.get() else HybridBlock.__call__(self, inputs)

    def hybrid_forward(self, F: Any, inputs: Any, states: Any = None, **weights: Any) -> Any:
        if EXPORTING.get():
            return super().hybrid_forward(F, inputs, states, **weights)
        i2h, h2h = ([weights[f"l0_{each}_{role}"] for role in ("weight", "bias")] for each in SIDES)
        size, outputs = self._hidden_size, []
        sums = F.FullyConnected(inputs, *i2h, num_hidden=size, flatten=False)
        hidden = F.zeros_like(_step(F, sums, 0))
        for step in range(self.steps):
            hidden = F.relu(_step(F, sums, step) + F.FullyConnected(hidden, *h2h, num_hidden=size))
            outputs.append(hidden)
        return F.stack(*outputs, axis=1)


def _step(F: Any, sums: Any, step: int) -> Any:
    """One step of [N, T, rows]."""
    return F.squeeze(F.slice_axis(sums, axis=1, begin=step, end=step + 1), axis=1)


@mx.operator.register(STAND_IN)
class StandIn(mx.operator.CustomOpProp):
    """The shapes of a recurrent operator of ONNX. It is never run."""

    def __init__(self, **attributes: str) -> None:
        super().__init__(need_top_grad=False)
        self.hidden = int(attributes["hidden_size"])

    def list_arguments(self) -> list[str]:
        return ["steps", "input_weight", "recurrent_weight", "bias"]

    def infer_shape(self, shapes: list[Shape]) -> tuple[list[Shape], list[Shape], list[Shape]]:
        return shapes, [(*shapes[0][:2], self.hidden)], []


def stand_in(
    F: Any,
    inputs: Any,
    input_weight: Any,
    recurrent_weight: Any,
    bias: Any,
    operator: str,
    hidden: int,
) -> Any:
    """What the exporter of this package writes as ONNX's operator of that name."""
    steps = F.swapaxes(inputs, 0, 1)
    read = (steps, input_weight, recurrent_weight, bias)
    every = F.Custom(*read, op_type=STAND_IN, operator=operator, hidden_size=hidden)
    return F.swapaxes(every, 0, 1)


def lstm(node: Node) -> HybridBlock:
    return _with_one_bias(rnn.LSTM(node.hidden, layout="NTC", input_size=node.input_shape[-1]))


def gru(node: Node) -> HybridBlock:
    if node.linear_before_reset:
        return rnn.GRU(node.hidden, layout="NTC", input_size=node.input_shape[-1])
    return ResetFirstGRU(node)


def elman(node: Node, dtype: str) -> HybridBlock:
    options = {"activation": node.activation, "layout": "NTC", "input_size": node.input_shape[-1]}
    if node.activation == "relu" and dtype == "float64":
        return _with_one_bias(ReLUInDouble(node.shape[0], node.hidden, **options))
    return _with_one_bias(rnn.RNN(node.hidden, **options))


def _with_one_bias(layer: HybridBlock) -> HybridBlock:
    """The block whose second bias is not trained, and stays zero."""
    layer.l0_h2h_bias.grad_req = "null"
    return layer
