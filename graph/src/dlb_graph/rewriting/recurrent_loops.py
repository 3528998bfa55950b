"""Loops over the steps of a sequence that are an RNN, a GRU or an LSTM, written as that operator.

Exporters write a framework's layer as a loop where they know no operator for it. Whether a loop is one, values
decide: both must compute the same of numbers that are drawn. All that they compute is analytic but for Relu, of
which such numbers take both sides.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from dlb_graph.errors import UnsupportedError
from dlb_graph.layers.numbers import Array
from dlb_graph.truth.evaluate import Evaluator, names_read
from dlb_graph.truth.liveness import live_names
from dlb_graph.truth.precision import in_precision

__all__ = ["recurrence_of"]


_TOLERANCE = 1e-9
_SEED = 0
#: Names of an operator's outputs: the state of each step, and at the last one; the cell's state there.
_STEPS, _END, _CELL = "dlb/steps", "dlb/end", "dlb/cell"


def recurrence_of(
    node: onnx.NodeProto,
    values: Mapping[str, Array],
    live: set[str],
    opset: onnx.OperatorSetIdProto,
) -> onnx.GraphProto | None:
    """A graph with the outputs of a Loop that is an RNN, a GRU or an LSTM; None if it is none.

    Args:
        node: a Loop whose number of rounds is the same for every input.
        values: what it reads, by name.
        live: names of what depends on the inputs' numbers.
        opset: of ONNX's own operators.
    """
    loop = _read(node, values, live, opset)
    if loop is None:
        return None
    shape = values[loop.sequence].shape
    try:
        feed = {loop.sequence: np.random.default_rng(_SEED).normal(size=shape)}
        expected = Evaluator(in_precision(loop.alone(), TensorProto.DOUBLE)).run(feed)
        for hidden in range(len(loop.states)):
            for cell in _cells(*loop.products(hidden), loop.hidden):
                computed = Evaluator(cell.alone(shape, opset)).run({"x": feed[loop.sequence]})
                outputs = loop.outputs(expected, computed)
                if outputs is not None:
                    return loop.written(cell, outputs, expected)
    except UnsupportedError:
        return None
    return None


def _close(a: Array, b: Array) -> bool:
    return a.shape == b.shape and bool(np.abs(a - b).max() < _TOLERANCE)


@dataclass(frozen=True)
class _Cell:
    """An RNN, a GRU or an LSTM: its attributes, and W, R and B of one direction."""

    operator: str
    attributes: Mapping[str, Any]
    weights: Mapping[str, Array]

    @property
    def outputs(self) -> tuple[str, ...]:
        return (_STEPS, _END, _CELL) if self.operator == "LSTM" else (_STEPS, _END)

    def node(self, sequence: str, prefix: str) -> onnx.NodeProto:
        inputs = [sequence, *(f"{prefix}{name}" for name in self.weights)]
        outputs = [f"{prefix}{name}" for name in self.outputs]
        return helper.make_node(self.operator, inputs, outputs, prefix, **self.attributes)

    def tensors(self, prefix: str, kind: Any) -> list[onnx.TensorProto]:
        return [
            numpy_helper.from_array(array.astype(kind), f"{prefix}{name}")
            for name, array in self.weights.items()
        ]

    def alone(self, shape: Sequence[int], opset: onnx.OperatorSetIdProto) -> onnx.ModelProto:
        return _model(
            [self.node("x", "")],
            {"x": shape},
            self.outputs,
            self.tensors("", np.float64),
            opset,
            TensorProto.DOUBLE,
        )


#: A matrix [features, outputs] that multiplies a value, and the bias that is added.
_Product = tuple[Array, Array]


def _gates(products: Sequence[_Product], hidden: int) -> list[_Product]:
    """The columns and the bias of each gate."""
    return [
        (matrix[:, start : start + hidden], bias[start : start + hidden])
        for matrix, bias in products
        for start in range(0, matrix.shape[1], hidden)
    ]


def _cells(step: Sequence[_Product], state: Sequence[_Product], hidden: int) -> Iterator[_Cell]:
    """What a loop may be that multiplies its step and its state by these matrices."""
    of_step, of_state = _gates(step, hidden), _gates(state, hidden)
    shapes = [{matrix.shape for matrix, _ in gates} for gates in (of_step, of_state)]
    if len(of_step) != len(of_state) or len(of_step) not in (1, 3, 4) or max(map(len, shapes)) > 1:
        return
    orders = list(itertools.permutations(range(len(of_step))))
    pairs: Iterable[tuple[tuple[int, ...], ...]] = itertools.product(orders, orders)
    if len(step) == len(state) == 1:  # their gates are in one order
        pairs = zip(orders, orders)
    for one, other in pairs:
        first, second = [of_step[place] for place in one], [of_state[place] for place in other]
        weights = {
            "W": np.concatenate([matrix.T for matrix, _ in first])[None],
            "R": np.concatenate([matrix.T for matrix, _ in second])[None],
            "B": np.concatenate([bias for _, bias in (*first, *second)])[None],
        }
        if len(of_step) == 1:
            for activation in ("Tanh", "Relu"):
                settings = {"hidden_size": hidden, "activations": [activation]}
                yield _Cell("RNN", settings, weights)
        elif len(of_step) == 4:
            yield _Cell("LSTM", {"hidden_size": hidden}, weights)
        else:
            # A product of the whole state is one before its reset.
            for before in (1, 0) if len(state) > 1 else (1,):
                settings = {"hidden_size": hidden, "linear_before_reset": before}
                yield _Cell("GRU", settings, weights)


@dataclass(frozen=True)
class _Loop:
    """A Loop that reads one sequence, with states that depend on it.

    Attributes:
        node: the Loop.
        sequence: the name of what it reads, [steps, samples, features].
        states: their places among the Loop's states.
        hidden: numbers of each.
        lists: outputs that depend on the sequence and are a list of all rounds.
        values: what the Loop reads, by name.
        opset: of its operators.
    """

    node: onnx.NodeProto
    sequence: str
    states: tuple[int, ...]
    hidden: int
    lists: tuple[str, ...]
    values: Mapping[str, Array]
    opset: onnx.OperatorSetIdProto

    @property
    def body(self) -> onnx.GraphProto:
        return _body(self.node)

    def alone(self) -> onnx.ModelProto:
        """The Loop and what it reads."""
        held = (names_read(self.node) & self.values.keys()) - {self.sequence}
        outputs = [name for name in self.node.output if name]
        return self._model([self.node], outputs, {name: self.values[name] for name in held})

    def outputs(
        self, expected: Mapping[str, Array], computed: Mapping[str, Array]
    ) -> dict[str, tuple[str, int]] | None:
        """Which output of an operator each one is, and the axis of its direction; None if one is none."""
        sources_of = {}
        ends = [name for place in self.states for name in self.node.output[place : place + 1]]
        for names, sources, axis in ((self.lists, {_STEPS}, 1), (ends, {_END, _CELL}, 0)):
            for name in filter(None, names):
                same = [
                    source
                    for source, value in computed.items()
                    if source in sources and _close(expected[name], value.squeeze(axis))
                ]
                if not same:
                    return None
                sources_of[name] = same[0], axis
        return sources_of

    def products(self, hidden: int) -> tuple[list[_Product], list[_Product]]:
        """The products of the step, and those of a state."""
        values = self.values
        held = {name: values[name] for name in names_read(self.node) & values.keys()}
        del held[self.sequence]
        held |= {tensor.name: numpy_helper.to_array(tensor) for tensor in self.body.initializer}
        held |= {self.body.input[0].name: np.array(0), self.body.input[1].name: np.array(True)}
        for place, name in enumerate(self.node.input[2:], start=2):
            held[self.body.input[place].name] = values[name]
        nodes = list(self.body.node)
        inner = [self.body.input[2 + place].name for place in self.states]
        live = live_names(nodes, {self.sequence, *inner})
        of_state = live_names(nodes, {inner[hidden]})
        fixed = {name for node in nodes for name in node.output if name} - live
        model = self._model(nodes, sorted(fixed), held)
        shape = values[self.sequence].shape
        fixed_values = held | Evaluator(model).run(
            {self.sequence: np.zeros(shape, values[self.sequence].dtype)}
        )
        both: tuple[list[_Product], list[_Product]] = ([], [])
        for node in nodes:
            if node.op_type == "MatMul" and node.input[0] in live and node.input[1] in fixed_values:
                matrix = fixed_values[node.input[1]].astype(np.float64)
                if matrix.ndim == 2:
                    bias = _bias(node.output[0], matrix.shape[1], nodes, fixed_values)
                    both[node.input[0] in of_state].append((matrix, bias))
        return both

    def _model(
        self, nodes: Sequence[onnx.NodeProto], outputs: Sequence[str], held: Mapping[str, Array]
    ) -> onnx.ModelProto:
        sequence = self.values[self.sequence]
        tensors = [numpy_helper.from_array(np.asarray(x), name) for name, x in held.items()]
        element = helper.np_dtype_to_tensor_dtype(sequence.dtype)
        inputs = {self.sequence: sequence.shape}
        return _model(nodes, inputs, outputs, tensors, self.opset, element)

    def written(
        self, cell: _Cell, outputs: Mapping[str, tuple[str, int]], computed: Mapping[str, Array]
    ) -> onnx.GraphProto:
        """The operator, with the Loop's outputs; those that are constant as computed."""
        prefix = f"{next(name for name in self.node.output if name)}/"
        nodes = [cell.node(self.sequence, prefix)]
        nodes[0].name = self.node.name
        real = self.values[self.sequence].dtype
        tensors = cell.tensors(prefix, real)
        for name, (source, axis) in outputs.items():
            if self.opset.version < 13:
                nodes.append(
                    helper.make_node("Squeeze", [f"{prefix}{source}"], [name], axes=[axis])
                )
                continue
            tensors.append(numpy_helper.from_array(np.array([axis]), f"{name}/axis"))
            nodes.append(helper.make_node("Squeeze", [f"{prefix}{source}", f"{name}/axis"], [name]))
        tensors += [
            numpy_helper.from_array(
                value.astype(real if value.dtype.kind == "f" else value.dtype), name
            )
            for name, value in computed.items()
            if name not in outputs
        ]
        return helper.make_graph(nodes, "recurrence", [], [], tensors)


def _body(node: onnx.NodeProto) -> onnx.GraphProto:
    body: onnx.GraphProto = next(one.g for one in node.attribute if one.name == "body")
    return body


def _read(
    node: onnx.NodeProto,
    values: Mapping[str, Array],
    live: set[str],
    opset: onnx.OperatorSetIdProto,
) -> _Loop | None:
    """A Loop that reads one sequence, whose states that depend on it start at zero, or None."""
    body = _body(node)
    sequences = names_read(node) & live
    if len(sequences) != 1 or not live.isdisjoint(node.input) or sequences - values.keys():
        return None
    if not values.keys() >= set(node.input[2:]):  # a sequence of values
        return None
    if any(one.op_type in ("If", "Loop", "Scan") for one in body.node):
        return None
    (sequence,) = sequences
    count = len(node.input) - 2
    states, before = tuple[int, ...](), None
    while states != before:
        before = states
        inside = live_names(body.node, {sequence, *(body.input[2 + k].name for k in states)})
        states = tuple(k for k in range(count) if body.output[1 + k].name in inside)
    starts = [values[node.input[2 + place]] for place in states]
    shapes = {start.shape for start in starts}
    if len(shapes) != 1 or body.output[0].name in inside:
        return None
    fits = values[sequence].ndim == 3 and values[sequence].size and starts[0].ndim == 2
    if not fits or any(start.any() for start in starts):
        return None
    lists = zip(node.output[count:], (value.name for value in body.output[1 + count :]))
    return _Loop(
        node=node,
        sequence=sequence,
        states=states,
        hidden=starts[0].shape[1],
        lists=tuple(name for name, inner in lists if name and inner in inside),
        values=values,
        opset=opset,
    )


def _bias(
    name: str, size: int, nodes: Sequence[onnx.NodeProto], fixed_values: dict[str, Array]
) -> Array:
    """The sum of the constants that are added to a product, perhaps after another; each is found once."""
    bias = np.zeros(size)
    for node in nodes:
        if node.op_type == "Add" and name in node.input:
            other = next((one for one in node.input if one != name), name)
            if other in fixed_values and fixed_values[other].size == size:
                bias += fixed_values.pop(other).ravel()
            name = node.output[0]
    return bias


def _model(
    nodes: Sequence[onnx.NodeProto],
    inputs: Mapping[str, Sequence[int]],
    outputs: Sequence[str],
    held: Sequence[onnx.TensorProto],
    opset: onnx.OperatorSetIdProto,
    element: int,
) -> onnx.ModelProto:
    graph = helper.make_graph(
        nodes,
        "part",
        [helper.make_tensor_value_info(name, element, shape) for name, shape in inputs.items()],
        [helper.make_tensor_value_info(name, TensorProto.UNDEFINED, None) for name in outputs],
        held,
    )
    return helper.make_model(graph, opset_imports=[opset])
