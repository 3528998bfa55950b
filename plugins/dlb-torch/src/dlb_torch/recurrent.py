"""Layers over the steps of a sequence [N, T, features]: torch's own, and what torch does not have."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dlb_worker.model import Node


class LastAxisLSTM(nn.LSTM):
    def forward(self, inputs: Tensor) -> Tensor:
        return super().forward(inputs)[0]


class LastAxisGRU(nn.GRU):
    def forward(self, inputs: Tensor) -> Tensor:
        return super().forward(inputs)[0]


class LastAxisRNN(nn.RNN):
    def forward(self, inputs: Tensor) -> Tensor:
        if torch.onnx.is_in_onnx_export() and hasattr(torch.onnx, "ops"):
            read = (inputs, self.weight_ih_l0, self.weight_hh_l0, self.bias_ih_l0)
            return as_one_operator("RNN", *read, activations=[self.nonlinearity.title()])
        return super().forward(inputs)[0]


class ResetFirstGRU(nn.Module):
    """A GRU whose reset gate acts before the recurrent product; gates as ONNX has them."""

    def __init__(self, features: int, hidden: int) -> None:
        super().__init__()
        self.hidden = hidden
        self.input_weight = nn.Parameter(torch.zeros(3 * hidden, features))
        self.recurrent_weight = nn.Parameter(torch.zeros(3 * hidden, hidden))
        self.bias = nn.Parameter(torch.zeros(3 * hidden))

    def forward(self, inputs: Tensor) -> Tensor:
        if torch.onnx.is_in_onnx_export() and hasattr(torch.onnx, "ops"):
            return as_one_operator(
                "GRU", inputs, self.input_weight, self.recurrent_weight, self.bias
            )
        sizes = [2 * self.hidden, self.hidden]
        of_gates, of_candidate = self.recurrent_weight.split(sizes)
        hidden, outputs = inputs.new_zeros(len(inputs), self.hidden), []
        for sums in F.linear(inputs, self.input_weight, self.bias).unbind(1):
            gates, candidate = sums.split(sizes, 1)
            update, reset = torch.sigmoid(gates + F.linear(hidden, of_gates)).chunk(2, 1)
            candidate = torch.tanh(candidate + F.linear(reset * hidden, of_candidate))
            hidden = (1 - update) * candidate + update * hidden
            outputs.append(hidden)
        return torch.stack(outputs, 1)

    def extra_repr(self) -> str:
        return f"{self.input_weight.shape[1]}, {self.hidden}"


def as_one_operator(
    operator: str,
    inputs: Tensor,
    input_weight: Tensor,
    recurrent_weight: Tensor,
    bias: Tensor,
    **attributes: Any,
) -> Tensor:
    """What an exported loop would be many operators of, as ONNX's own operator of torch 2.8 or later."""
    hidden = recurrent_weight.shape[1]
    steps = inputs.transpose(0, 1)
    biases = torch.cat([bias, torch.zeros_like(bias)])
    read = [steps, input_weight[None], recurrent_weight[None], biases[None]]
    every = torch.onnx.ops.symbolic(
        operator,
        read,
        {"hidden_size": hidden, **attributes},
        dtype=inputs.dtype,
        shape=[steps.shape[0], 1, steps.shape[1], hidden],
    )
    return every.squeeze(1).transpose(0, 1)


def lstm(node: Node) -> nn.Module:
    return _with_one_bias(LastAxisLSTM(node.input_shape[-1], node.hidden, batch_first=True))


def gru(node: Node) -> nn.Module:
    if node.linear_before_reset:
        return LastAxisGRU(node.input_shape[-1], node.hidden, batch_first=True)
    return ResetFirstGRU(node.input_shape[-1], node.hidden)


def rnn(node: Node) -> nn.Module:
    options = {"nonlinearity": node.activation, "batch_first": True}
    return _with_one_bias(LastAxisRNN(node.input_shape[-1], node.hidden, **options))


def _with_one_bias(layer: nn.RNNBase) -> nn.Module:
    """The layer with its second bias at zero for good."""
    nn.init.zeros_(layer.bias_hh_l0)
    layer.bias_hh_l0.requires_grad_(False)
    return layer
