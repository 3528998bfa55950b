"""Layers over the steps of a sequence [N, T, features], each a function that an exporter sees as one."""

from __future__ import annotations

from typing import Any

import chainer
import chainer.functions as F
import chainer.links as L
from chainer import Variable

from dlb_worker.model import Node


def lstm_sequence(
    inputs: Variable, upward: Variable, lateral: Variable, bias: Variable
) -> Variable:
    """Chainer's LSTM cell over [N, T, features], the upward product taken for all steps at once."""
    sources = F.separate(F.linear(inputs, upward, bias, n_batch_axes=2), axis=1)
    cell = inputs.xp.zeros((len(inputs), lateral.shape[1]), inputs.dtype)
    hidden: list[Variable] = []
    for source in sources:
        if hidden:
            source += F.linear(hidden[-1], lateral)
        cell, output = F.lstm(cell, source)
        hidden.append(output)
    return F.stack(hidden, axis=1)


class SequenceLSTM(L.StatelessLSTM):
    """Chainer's stateless LSTM, which takes a whole sequence and starts each from zero."""

    def forward(self, inputs: Any) -> Variable:
        return lstm_sequence(
            chainer.as_variable(inputs), self.upward.W, self.lateral.W, self.upward.b
        )


def gru_sequence(
    inputs: Variable,
    input_weight: Variable,
    recurrent_weight: Variable,
    bias: Variable,
    *,
    linear_before_reset: bool,
) -> Variable:
    """A GRU over [N, T, features], gates as ONNX has them, the input's product taken at once."""
    size = recurrent_weight.shape[1]
    input_bias, bias = F.separate(bias) if linear_before_reset else (bias, None)
    of_gates, of_candidate = F.split_axis(recurrent_weight, [2 * size], axis=0)
    sources = F.separate(F.linear(inputs, input_weight, input_bias, n_batch_axes=2), axis=1)
    last = chainer.as_variable(inputs.xp.zeros((len(inputs), size), inputs.dtype))
    hidden: list[Variable] = []
    for source in sources:
        gates, candidate = F.split_axis(source, [2 * size], axis=1)
        if linear_before_reset:
            product = F.linear(last, recurrent_weight, bias)
            of_last, product = F.split_axis(product, [2 * size], axis=1)
        else:
            of_last = F.linear(last, of_gates)
        update, reset = F.split_axis(F.sigmoid(gates + of_last), 2, axis=1)
        if linear_before_reset:
            product = reset * product
        else:
            product = F.linear(reset * last, of_candidate)
        last = (1 - update) * F.tanh(candidate + product) + update * last
        hidden.append(last)
    return F.stack(hidden, axis=1)


def rnn_sequence(
    inputs: Variable,
    input_weight: Variable,
    recurrent_weight: Variable,
    bias: Variable,
    *,
    activation: str,
) -> Variable:
    """A layer without gates over [N, T, features], the input's product taken at once."""
    function = {"tanh": F.tanh, "relu": F.relu}[activation]
    sources = F.separate(F.linear(inputs, input_weight, bias, n_batch_axes=2), axis=1)
    start = inputs.xp.zeros((len(inputs), recurrent_weight.shape[1]), inputs.dtype)
    hidden = [chainer.as_variable(start)]
    for source in sources:
        hidden.append(function(source + F.linear(hidden[-1], recurrent_weight)))
    return F.stack(hidden[1:], axis=1)


class Sequence(chainer.Link):
    """A layer that starts each sequence from zero, with parameters and attributes of the node's names."""

    def __init__(self, node: Node, *options: str) -> None:
        super().__init__()
        for name in ("hidden", *options):
            setattr(self, name, getattr(node, name))
        with self.init_scope():
            for role, parameter in node.parameters.items():
                setattr(self, role, chainer.Parameter(0, parameter.shape))

    def read(self, inputs: Any) -> tuple[Variable, ...]:
        """What its function reads."""
        variable = chainer.as_variable(inputs)
        return variable, self.input_weight, self.recurrent_weight, self.bias


class SequenceGRU(Sequence):
    def forward(self, inputs: Any) -> Variable:
        return gru_sequence(*self.read(inputs), linear_before_reset=self.linear_before_reset)


class SequenceRNN(Sequence):
    def forward(self, inputs: Any) -> Variable:
        return rnn_sequence(*self.read(inputs), activation=self.activation)
