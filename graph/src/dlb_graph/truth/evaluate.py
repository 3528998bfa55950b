"""Evaluates an ONNX graph in NumPy: the framework-independent reference of every proof."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import onnx
from onnx import helper

from dlb_graph.errors import RequestError, UnsupportedError
from dlb_graph.layers.numbers import Array
from dlb_graph.truth.held import Values, held_arrays
from dlb_graph.truth.limits import MOST_INNER_NODES, LimitedEvaluator, inner_nodes_left
from dlb_graph.truth.operators import OPERATORS

__all__ = ["Evaluator", "NodeFailed", "evaluate", "names_read"]


class NodeFailed(UnsupportedError):
    """A node could not be evaluated.

    Attributes:
        node: the node.
    """

    def __init__(self, message: str, node: onnx.NodeProto) -> None:
        super().__init__(message)
        self.node = node


class Evaluator:
    """A graph ready to be run many times.

    It computes in the types of the graph. The reference of a proof is a graph with
    ``dtype="float64"``. Operators come from ``onnx.reference``, except for
    :data:`dlb_graph.truth.operators.OPERATORS`. A real attribute counts as the shortest decimal that
    rounds to the same float32 (:func:`dlb_graph.layers.decimals.decimal`).

    Raises:
        UnsupportedError: the graph has an operator without a reference implementation.
    """

    def __init__(self, graph: onnx.ModelProto) -> None:
        # The reference evaluator would look for files.
        self._held = held_arrays(graph.graph)
        try:
            self._runner = LimitedEvaluator(_without(graph, self._held), new_ops=list(OPERATORS))
        except Exception as error:  # onnx.reference raises any type
            raise UnsupportedError(f"the graph cannot be evaluated: {_one_line(error)}") from error
        initializers = {
            tensor.name: (tensor.data_type, list(tensor.dims)) for tensor in graph.graph.initializer
        }
        self._initializers = tuple(initializers)
        self._types = {name: _dtype(kind) for name, (kind, _) in initializers.items()}
        self._shapes: dict[str, list[int | None]] = {
            name: [int(size) for size in dims] for name, (_, dims) in initializers.items()
        }
        self._required = []
        for value in graph.graph.input:
            kind = value.type.tensor_type
            self._types[value.name] = _dtype(kind.elem_type)
            if kind.HasField("shape"):
                self._shapes[value.name] = [
                    dim.dim_value if dim.HasField("dim_value") else None for dim in kind.shape.dim
                ]
            if value.name not in initializers:
                self._required.append(value.name)
        self._outputs = [value.name for value in graph.graph.output]
        self._reads = [names_read(node.onnx_node) for node in self._runner.rt_nodes_]

    def __del__(self) -> None:
        # The nodes refer to their runner. Break the cycle, so that its weights are freed at once.
        if hasattr(self, "_runner"):
            self._runner.rt_nodes_.clear()

    def run(
        self, inputs: Mapping[str, Array], outputs: Iterable[str] | None = None
    ) -> dict[str, Array]:
        """Values by name.

        Args:
            inputs: every input by name, and any initialisers to replace. Each is converted to the
                graph's type for it.
            outputs: names of any values in the graph; its outputs if left out.

        Raises:
            RequestError: an input is missing, unknown, or has the wrong shape or type.
            UnsupportedError: an operator could not be evaluated.
        """
        names = list(self._outputs if outputs is None else outputs)
        values = dict(self.stream(inputs, names))
        return {name: values[name] for name in names}

    def values(self, inputs: Mapping[str, Array]) -> Values:
        """Every value of the graph, initialisers included. Held weights are converted when they are read.

        Raises:
            RequestError, UnsupportedError: as :meth:`run`.
        """
        held = {name: array for name, array in self._held.items() if name not in inputs}
        names = [name for name in self._initializers if name not in held]
        names += [name for node in self._runner.rt_nodes_ for name in node.output if name]
        # Inputs are as they were given.
        return Values({**self.run(inputs, names), **inputs}, held, self._types)

    def stream(
        self, inputs: Mapping[str, Array], outputs: Iterable[str] | None = None
    ) -> Iterator[tuple[str, Array]]:
        """The same as :meth:`run`, but yields each value as soon as it is computed.

        A value is released after its last use. All values of a deep network together can take many
        times the memory of the requested ones. Nodes that no requested value needs are not run.
        """
        requested = set(self._outputs if outputs is None else outputs)
        inputs = {name: np.asarray(value) for name, value in inputs.items()}
        self._check(inputs)
        nodes = list(zip(self._runner.rt_nodes_, self._reads))
        values: dict[str, Any] = {"": None, **self._runner.rt_inits_, **self._held, **inputs}
        written = inputs.keys() | self._held.keys()
        missing = requested - values.keys() - {name for node, _ in nodes for name in node.output}
        if missing:
            raise UnsupportedError(f"the graph has no value called {', '.join(sorted(missing))}")

        needed = set(requested)
        run_nodes: list[tuple[Any, set[str]]] = []
        for node, reads in reversed(nodes):
            if not needed.isdisjoint(node.output):
                run_nodes.append((node, reads))
                needed |= reads
        run_nodes.reverse()
        last_read = {name: index for index, (_, reads) in enumerate(run_nodes) for name in reads}

        def value_of(name: str) -> Any:
            # Convert what was given only when it is read: converted weights take twice the memory.
            value = values[name]
            return value.astype(self._types[name], copy=False) if name in written else value

        for name in requested & values.keys():
            yield name, np.asarray(value_of(name))
        left = [MOST_INNER_NODES]
        for index, (node, reads) in enumerate(run_nodes):
            inner_nodes_left.set(left)
            try:
                context = {}
                if node.need_context():
                    context["context"] = {name: value_of(name) for name in reads & values.keys()}
                # Numbers that are not finite are compared, not reported.
                with np.errstate(all="ignore"):
                    computed = node.run(*map(value_of, node.input), **context)
            except Exception as error:
                raise NodeFailed(
                    f"the graph cannot be evaluated: {_one_line(error)}", node.onnx_node
                ) from error
            for name in reads - {""}:
                if last_read[name] == index:
                    values.pop(name, None)
            for name, value in zip(node.output, computed):
                if name and name in last_read:
                    values[name] = value
                if name not in requested:
                    continue
                if isinstance(value, list):
                    raise UnsupportedError(
                        f"the graph cannot be evaluated: '{name}' is a sequence, not a tensor"
                    )
                yield name, np.asarray(value)

    def _check(self, inputs: Mapping[str, Array]) -> None:
        """Raises RequestError if inputs are missing, unknown, or have the wrong shape or type."""
        missing = [name for name in self._required if name not in inputs]
        unknown = [name for name in inputs if name not in self._types]
        if missing or unknown:
            raise RequestError(
                f"the graph reads {', '.join(self._required)}; missing: "
                f"{', '.join(missing) or 'none'}; unknown: {', '.join(unknown) or 'none'}"
            )
        for name, value in inputs.items():
            expected_shape, shape = self._shapes.get(name), value.shape
            if expected_shape is not None and (
                len(expected_shape) != len(shape)
                or any(size not in (None, actual) for size, actual in zip(expected_shape, shape))
            ):
                readable_shape = [size if size is not None else "N" for size in expected_shape]
                raise RequestError(
                    f"'{name}' has shape {list(shape)}; the graph reads {readable_shape}"
                )
            dtype = self._types[name]
            if dtype.kind in "iu" and value.dtype.kind not in "iu":
                raise RequestError(
                    f"'{name}' has dtype {value.dtype}; the graph reads integers ({dtype})"
                )


def _without(graph: onnx.ModelProto, names: Mapping[str, Array]) -> onnx.ModelProto:
    """A graph without some of its initialisers; itself if there are none."""
    if not names:
        return graph
    result = onnx.ModelProto()
    result.CopyFrom(graph)
    for index in reversed(range(len(result.graph.initializer))):
        if result.graph.initializer[index].name in names:
            del result.graph.initializer[index]
    return result


def names_read(node: onnx.NodeProto) -> set[str]:
    """Names that a node reads, directly or in a subgraph."""
    names = set(node.input)
    for attribute in node.attribute:
        for inner in (attribute.g, *attribute.graphs):
            names.update(value.name for value in inner.output)
            names.update(*map(names_read, inner.node))
    return names


def evaluate(graph: onnx.ModelProto, inputs: Mapping[str, Array]) -> dict[str, Array]:
    """The graph's outputs by name; see :class:`Evaluator` for the errors."""
    return Evaluator(graph).run(inputs)


def _dtype(element_type: int) -> np.dtype[Any]:
    return np.dtype(helper.tensor_dtype_to_np_dtype(element_type))


def _one_line(error: BaseException) -> str:
    """The innermost cause of an error, in one line."""
    while error.__cause__ is not None:
        error = error.__cause__
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= 300 else text[:300] + "..."
