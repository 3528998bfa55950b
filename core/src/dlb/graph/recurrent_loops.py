"""Loops over the steps of a sequence that are an RNN or a GRU, written as that operator.

Exporters write a framework's layer as a loop where they know no operator for it. Whether a loop is one, values
decide: both must compute the same of numbers that are drawn. All that they compute is analytic but for Relu, of
which such numbers take both sides.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper, numpy_helper

from dlb.errors import UnsupportedError
from dlb.graph.evaluate import Evaluator, names_read
from dlb.graph.liveness import live_names
from dlb.graph.precision import in_precision

__all__ = ["recurrence_of"]

Array = npt.NDArray[Any]

_TOLERANCE = 1e-9
_SEED = 0
#: Names of the state at the start, and of the outputs of an operator.
_START, _STEPS, _END = "dlb/start", "dlb/steps", "dlb/end"


def recurrence_of(
    node: onnx.NodeProto,
    values: Mapping[str, Array],
    live: set[str],
    opset: onnx.OperatorSetIdProto,
) -> onnx.GraphProto | None:
    """A graph with the outputs of a Loop that is an RNN or a GRU; None if it is none.

    Args:
        node: a Loop whose number of rounds is the same for every input.
        values: what it reads, by name.
        live: names of what depends on the inputs' numbers.
        opset: of ONNX's own operators.
    """
    loop = _read(node, values, live)
    if loop is None:
        return None
    shape = values[loop.sequence].shape
    try:
        of_step, of_state = loop.products(values, opset)
        draw = np.random.default_rng(_SEED)
        feed = {loop.sequence: draw.normal(size=shape)}
        expected = Evaluator(in_precision(loop.alone(values, opset), TensorProto.DOUBLE)).run(feed)
        for cell in _cells(of_step, of_state, loop.hidden):
            steps, end = (
                Evaluator(cell.alone(shape, opset)).run({"x": feed[loop.sequence]}).values()
            )
            if all(_close(expected[name], steps[:, 0]) for name in loop.lists) and all(
                _close(expected[name], end[0]) for name in loop.ends
            ):
                kind = values[loop.sequence].dtype
                return loop.written(cell, expected, kind, opset)
    except UnsupportedError:
        return None
    return None


def _close(a: Array, b: Array) -> bool:
    return a.shape == b.shape and bool(np.abs(a - b).max() < _TOLERANCE)


@dataclass(frozen=True)
class _Cell:
    """An RNN or a GRU: its attributes, and W, R and B of one direction."""

    operator: str
    attributes: Mapping[str, Any]
    weights: Mapping[str, Array]

    def node(self, sequence: str, prefix: str) -> onnx.NodeProto:
        inputs = [sequence, *(f"{prefix}{name}" for name in self.weights)]
        outputs = [f"{prefix}{_STEPS}", f"{prefix}{_END}"]
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
            [_STEPS, _END],
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
    if len(of_step) != len(of_state) or len(of_step) not in (1, 3) or max(map(len, shapes)) > 1:
        return
    orders = list(itertools.permutations(range(len(of_step))))
    for one, other in itertools.product(orders, orders):
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
        else:
            # A product of the whole state is one before its reset.
            for before in (1, 0) if len(state) > 1 else (1,):
                settings = {"hidden_size": hidden, "linear_before_reset": before}
                yield _Cell("GRU", settings, weights)


@dataclass(frozen=True)
class _Loop:
    """A Loop with one state of real numbers, all other states constant, that reads one sequence.

    Attributes:
        node: the Loop.
        sequence: the name of what it reads, [steps, samples, features].
        state: the name of its state in the body.
        hidden: numbers of the state.
        ends, lists: outputs that are the last state, and the states of all rounds.
    """

    node: onnx.NodeProto
    sequence: str
    state: str
    hidden: int
    ends: tuple[str, ...]
    lists: tuple[str, ...]

    @property
    def body(self) -> onnx.GraphProto:
        return _body(self.node)

    def alone(self, values: Mapping[str, Array], opset: onnx.OperatorSetIdProto) -> onnx.ModelProto:
        """The Loop and what it reads."""
        held = (names_read(self.node) & values.keys()) - {self.sequence}
        outputs = [name for name in self.node.output if name]
        return self._model(
            [self.node], outputs, {name: values[name] for name in held}, values, opset
        )

    def products(
        self, values: Mapping[str, Array], opset: onnx.OperatorSetIdProto
    ) -> tuple[list[_Product], list[_Product]]:
        """The products of the step, and those of the state."""
        held = {name: values[name] for name in names_read(self.node) & values.keys()}
        del held[self.sequence]
        held |= {tensor.name: numpy_helper.to_array(tensor) for tensor in self.body.initializer}
        held |= {self.body.input[0].name: np.array(0), self.body.input[1].name: np.array(True)}
        for place, name in enumerate(self.node.input[2:], start=2):
            held[self.body.input[place].name] = values[name]
        nodes = list(self.body.node)
        live = live_names(nodes, {self.sequence, self.state})
        of_state = live_names(nodes, {self.state})
        fixed = {name for node in nodes for name in node.output if name} - live
        model = self._model(nodes, sorted(fixed), held, values, opset)
        shape = values[self.sequence].shape
        found = held | Evaluator(model).run(
            {self.sequence: np.zeros(shape, values[self.sequence].dtype)}
        )
        both: tuple[list[_Product], list[_Product]] = ([], [])
        for node in nodes:
            if node.op_type == "MatMul" and node.input[0] in live and node.input[1] in found:
                matrix = found[node.input[1]].astype(np.float64)
                if matrix.ndim == 2:
                    bias = _bias(node.output[0], nodes, found, matrix.shape[1])
                    both[node.input[0] in of_state].append((matrix, bias))
        return both

    def _model(
        self,
        nodes: Sequence[onnx.NodeProto],
        outputs: Sequence[str],
        held: Mapping[str, Array],
        values: Mapping[str, Array],
        opset: onnx.OperatorSetIdProto,
    ) -> onnx.ModelProto:
        sequence = values[self.sequence]
        return _model(
            nodes,
            {self.sequence: sequence.shape},
            outputs,
            [numpy_helper.from_array(np.asarray(array), name) for name, array in held.items()],
            opset,
            helper.np_dtype_to_tensor_dtype(sequence.dtype),
        )

    def written(
        self,
        cell: _Cell,
        computed: Mapping[str, Array],
        kind: np.dtype[Any],
        opset: onnx.OperatorSetIdProto,
    ) -> onnx.GraphProto:
        """The operator, with the Loop's outputs."""
        prefix = f"{next(name for name in self.node.output if name)}/"
        nodes = [cell.node(self.sequence, prefix)]
        nodes[0].name = self.node.name
        tensors = cell.tensors(prefix, kind)
        squeezed = dict.fromkeys(self.lists, (_STEPS, 1)) | dict.fromkeys(self.ends, (_END, 0))
        for name, (source, axis) in squeezed.items():
            if opset.version < 13:
                nodes.append(
                    helper.make_node("Squeeze", [f"{prefix}{source}"], [name], axes=[axis])
                )
                continue
            tensors.append(numpy_helper.from_array(np.array([axis]), f"{name}/axis"))
            nodes.append(helper.make_node("Squeeze", [f"{prefix}{source}", f"{name}/axis"], [name]))
        tensors += [
            numpy_helper.from_array(computed[name], name)
            for name in self.node.output
            if name and name not in squeezed
        ]
        return helper.make_graph(nodes, "recurrence", [], [], tensors)


def _body(node: onnx.NodeProto) -> onnx.GraphProto:
    body: onnx.GraphProto = next(one.g for one in node.attribute if one.name == "body")
    return body


def _read(node: onnx.NodeProto, values: Mapping[str, Array], live: set[str]) -> _Loop | None:
    """A Loop with one state of real numbers, zeros at first, and one sequence; None if it is another."""
    body = _body(node)
    sequences = names_read(node) & live
    if len(sequences) != 1 or not live.isdisjoint(node.input) or not node.input[2:]:
        return None
    (sequence,) = sequences
    live_inside = live_names(body.node, {sequence})
    count = len(node.input) - 2
    states = [place for place in range(count) if body.output[1 + place].name in live_inside]
    if len(states) != 1 or body.output[0].name in live_inside:
        return None
    start = values[node.input[2 + states[0]]]
    if start.ndim != 2 or start.any() or values[sequence].ndim != 3 or not values[sequence].size:
        return None
    outputs = dict(zip(node.output, (value.name for value in body.output[1:])))
    state = body.input[2 + states[0]].name
    live_inside = live_names(body.node, {sequence, state})
    if any(node.op_type in ("If", "Loop", "Scan") for node in body.node):
        return None
    return _Loop(
        node=node,
        sequence=sequence,
        state=state,
        hidden=start.shape[1],
        ends=tuple(name for name in node.output[:count][states[0] : states[0] + 1] if name),
        lists=tuple(name for name in node.output[count:] if name and outputs[name] in live_inside),
    )


def _bias(
    name: str, nodes: Sequence[onnx.NodeProto], found: Mapping[str, Array], size: int
) -> Array:
    """The constant that is added to a product; zeros if there is none."""
    for node in nodes:
        if node.op_type == "Add" and name in node.input:
            other = next((one for one in node.input if one != name), name)
            if other in found and found[other].size == size:
                return found[other].astype(np.float64).ravel()
    return np.zeros(size)


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
