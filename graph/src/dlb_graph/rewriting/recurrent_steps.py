"""Recurrent operators as the steps that they take, in ONNX's other operators.

So are read those that no layer is: that begin with a state of another part of the network, as a decoder does,
or that hand out the last state of their cells.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np
import onnx

from dlb_graph.errors import UnsupportedError
from dlb_graph.layers.numbers import Array
from dlb_graph.rewriting.node_writer import NodeWriter, write_out
from dlb_graph.truth.limits import MOST_NODES
from dlb_graph.truth.trace import Trace, attributes_of, trace
from dlb_graph.truth.weights import directions

__all__ = ["RECURRENT", "recurrent_steps"]

#: Nodes of a step, about.
_OF_A_STEP = {"GRU": 16, "LSTM": 16, "RNN": 6}
RECURRENT = frozenset(_OF_A_STEP)


def recurrent_steps(model: onnx.ModelProto) -> onnx.ModelProto | None:
    """Write out each recurrent operator that needs it, unless all of them take too many steps."""
    if RECURRENT.isdisjoint(node.op_type for node in model.graph.node):
        return None
    try:
        traced = trace(model)
    except UnsupportedError:
        return None
    read = {name for node in model.graph.node for name in node.input}
    read.update(value.name for value in model.graph.output)
    chosen = [node for node in model.graph.node if _needs_steps(traced, node, read)]
    nodes = sum(_steps_of(traced, node) * _OF_A_STEP[node.op_type] for node in chosen)
    if len(model.graph.node) + nodes > MOST_NODES:
        return None
    outputs = {node.output[0] for node in chosen}

    def rule(write: NodeWriter) -> bool:
        _Operator(write, traced).write_out()
        return True

    return write_out(
        model,
        lambda node: rule if node.op_type in RECURRENT and node.output[0] in outputs else None,
    )


def _steps_of(traced: Trace, node: onnx.NodeProto) -> int:
    batch_first = bool(attributes_of(node).get("layout", 0))
    shape: tuple[int, ...] = traced.values[node.input[0]].shape
    return shape[1 if batch_first else 0]


def _needs_steps(traced: Trace, node: onnx.NodeProto, read: Iterable[str]) -> bool:
    """Whether a node begins with a state that is not 0, or its cells' last state is read.

    Of a node with kinks, the last hidden state too: as a step of all, it would be another way to write it.
    """
    if node.op_type not in _OF_A_STEP:
        return False
    kinks = b"Relu" in attributes_of(node).get("activations", [])
    begins = any(_begins_with(traced, name) for name in node.input[5:7])
    return begins or not {*node.output[1 if kinks else 2 :]}.isdisjoint({*read} - {""})


def _begins_with(traced: Trace, name: str) -> bool:
    """Whether a state is given, and may be other than 0."""
    return bool(name) and (name in traced.live or bool(np.any(traced.values[name])))


class _Operator:
    """One operator, in all its directions."""

    def __init__(self, write: NodeWriter, traced: Trace) -> None:
        attributes = attributes_of(write.node)
        self.write, self.traced = write, traced
        self.batch_first = bool(attributes.get("layout", 0))
        self.backwards = directions(attributes)
        self.steps = _steps_of(traced, write.node)
        self.weights = [traced.values[write.input(place)] for place in (1, 2)]
        rows = self.weights[0].shape[:2]
        bias = traced.values[write.input(3)] if write.input(3) else np.zeros((rows[0], 2 * rows[1]))
        self.biases = bias.reshape(rows[0], 2, rows[1])
        self.cell = _CELLS[write.node.op_type]

    def write_out(self) -> None:
        """Write the nodes of every direction, and join what each gives."""
        write = self.write
        source = self._turned(write.input(0), (1, 0, 2))
        begin = [
            self._turned(name, (1, 0, 2)) if _begins_with(self.traced, name) else ""
            for name in map(write.input, (5, 6))
        ]
        hidden: list[list[str]] = []
        lasts: list[list[str]] = []
        for direction, backwards in enumerate(self.backwards):
            order = range(self.steps)[:: -1 if backwards else 1]
            states = [write.place(name, direction) if name else "" for name in begin]
            every, last = self._run(direction, source, states, order)
            hidden.append([every[step] for step in range(self.steps)])
            lasts.append(last)
        if write.uses(0):
            steps = [self._stacked(at_one) for at_one in zip(*hidden)]
            write.end(self._turned(self._stacked(steps), (2, 0, 1, 3)))
        for place, of_state in enumerate(zip(*lasts), 1):
            if write.uses(place):
                write.end(self._turned(self._stacked(of_state), (1, 0, 2)), place)

    def _run(
        self, direction: int, source: str, states: list[str], order: Sequence[int]
    ) -> tuple[dict[int, str], list[str]]:
        """The hidden state after each step of one direction, and each state after the last."""
        write, (of_input, recurrent) = (
            self.write,
            (matrices[direction] for matrices in self.weights),
        )
        cell = self.cell(write, recurrent, self.biases[direction])
        sums = write.add("MatMul", source, write.tensor(of_input.T))
        for bias in cell.biases:  # their sum would be rounded
            sums = write.add("Add", sums, write.tensor(bias))
        every = {}
        for step in order:
            states = cell.step(write.place(sums, step), states)
            every[step] = states[0]
        return every, states

    def _turned(self, name: str, order: tuple[int, ...]) -> str:
        """A value with its axes in an order, where the batch comes first."""
        return self.write.add("Transpose", name, perm=order) if name and self.batch_first else name

    def _stacked(self, names: Sequence[str]) -> str:
        """Values on a new first axis."""
        return self.write.joined([self.write.raised(name) for name in names], 0)


class _Cell:
    """A step of one direction.

    Attributes:
        biases: what is added to the products with the input of all steps.
    """

    def __init__(self, write: NodeWriter, recurrent: Array, biases: Array) -> None:
        self.write, self.recurrent, self.biases = write, write.tensor(recurrent.T), biases

    def sums(self, x: str, h: str) -> str:
        """The input's products plus those of the hidden state; there is none before the first step."""
        return self.write.sum(x, self.write.add("MatMul", h, self.recurrent) if h else "")

    def step(self, x: str, states: list[str]) -> list[str]:
        """The states after a step."""
        raise NotImplementedError


class _RNN(_Cell):
    def step(self, x: str, states: list[str]) -> list[str]:
        names = self.write.attributes.get("activations", [b"Tanh"])
        return [self.write.add(names[0].decode().title(), self.sums(x, states[0]))]


class _LSTM(_Cell):
    def step(self, x: str, states: list[str]) -> list[str]:
        add, (h, c) = self.write.add, states
        i, o, f, g = self.write.parts(self.sums(x, h), 4)
        new = add("Mul", add("Sigmoid", i), add("Tanh", g))
        c = self.write.sum(add("Mul", add("Sigmoid", f), c) if c else "", new)
        return [add("Mul", add("Sigmoid", o), add("Tanh", c)), c]


class _GRU(_Cell):
    def __init__(self, write: NodeWriter, recurrent: Array, biases: Array) -> None:
        self.write, size = write, recurrent.shape[1]
        self.reset_last = bool(write.attributes.get("linear_before_reset", 0))
        self.of_gates = write.tensor(recurrent[: 2 * size].T)
        self.of_candidate = write.tensor(recurrent[2 * size :].T)
        self.biases = biases.copy()
        if self.reset_last:
            self.product_bias = write.tensor(biases[1, 2 * size :])
            self.biases[1, 2 * size :] = 0
        self.size = size

    def step(self, x: str, states: list[str]) -> list[str]:
        add, h = self.write.add, states[0]
        gates, candidate = self.write.cut(x, 2 * self.size, 3 * self.size)
        update, reset = self.write.parts(
            add("Sigmoid", self.write.sum(gates, add("MatMul", h, self.of_gates) if h else "")), 2
        )
        if self.reset_last:
            product = add("MatMul", h, self.of_candidate) if h else ""
            product = add("Mul", reset, self.write.sum(product, self.product_bias))
        else:
            product = add("MatMul", add("Mul", reset, h), self.of_candidate) if h else ""
        candidate = add("Tanh", self.write.sum(candidate, product))
        changed = add("Mul", add("Sub", self.write.tensor(1.0), update), candidate)
        return [self.write.sum(changed, add("Mul", update, h) if h else "")]


_CELLS: dict[str, Callable[[NodeWriter, Array, Array], _Cell]] = {
    "GRU": _GRU,
    "LSTM": _LSTM,
    "RNN": _RNN,
}
