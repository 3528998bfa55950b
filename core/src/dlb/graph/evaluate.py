"""Running an ONNX graph in NumPy: the framework-neutral truth that proofs are measured against."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import helper
from onnx.reference import ReferenceEvaluator

from dlb.errors import RequestError, UnsupportedError
from dlb.graph.operators import OPERATORS

__all__ = ["Evaluator", "evaluate", "reads"]

Array = npt.NDArray[Any]


class Evaluator:
    """A graph ready to be run many times.

    It computes in the types of the graph: a truth is a graph made with ``dtype="float64"``.
    Operators are those of ``onnx.reference`` but for :data:`dlb.graph.operators.OPERATORS`. Real
    attributes are taken as the shortest decimal that their float32 stands for
    (:func:`dlb.graph.decimals.decimal`).

    Raises:
        UnsupportedError: the graph has an operator that there is no reference of.
    """

    def __init__(self, graph: onnx.ModelProto) -> None:
        try:
            self._runner = ReferenceEvaluator(graph, new_ops=list(OPERATORS))
        except Exception as error:  # the reference raises whatever its parts do
            raise UnsupportedError(f"the graph cannot be evaluated: {_one_line(error)}") from error
        held = {
            tensor.name: (tensor.data_type, list(tensor.dims)) for tensor in graph.graph.initializer
        }
        self._types = {name: _dtype(kind) for name, (kind, _) in held.items()}
        self._shapes: dict[str, list[int | None]] = {
            name: [int(size) for size in dims] for name, (_, dims) in held.items()
        }
        self._required = []
        for value in graph.graph.input:
            kind = value.type.tensor_type
            self._types[value.name] = _dtype(kind.elem_type)
            if kind.HasField("shape"):
                self._shapes[value.name] = [
                    dim.dim_value if dim.HasField("dim_value") else None for dim in kind.shape.dim
                ]
            if value.name not in held:
                self._required.append(value.name)
        self._outputs = [value.name for value in graph.graph.output]

    def __del__(self) -> None:
        # The nodes refer to their runner: it would stay, and its weights, until Python looks for
        # circles.
        if hasattr(self, "_runner"):
            self._runner.rt_nodes_.clear()

    def run(
        self, inputs: Mapping[str, Array], outputs: Iterable[str] | None = None
    ) -> dict[str, Array]:
        """Values by name.

        Args:
            inputs: every input by name, and any initialisers to replace; each is converted to the
                graph's type for it.
            outputs: names of any values in the graph; its outputs when left out.

        Raises:
            RequestError: an input is missing, unknown or of the wrong shape.
            UnsupportedError: an operator could not be evaluated.
        """
        names = list(self._outputs if outputs is None else outputs)
        found = dict(self.each(inputs, names))
        return {name: found[name] for name in names}

    def each(
        self, inputs: Mapping[str, Array], outputs: Iterable[str] | None = None
    ) -> Iterator[tuple[str, Array]]:
        """What :meth:`run` gives, each value when it is computed.

        A value is let go when nothing reads it any more: those of a deep network all together may
        take many times the memory of what is asked for.
        """
        asked = set(self._outputs if outputs is None else outputs)
        inputs = {name: np.asarray(value) for name, value in inputs.items()}
        self._check(inputs)
        nodes = self._runner.rt_nodes_
        last = {name: place for place, node in enumerate(nodes) for name in reads(node.onnx_node)}
        values: dict[str, Any] = {"": None, **self._runner.rt_inits_, **inputs}
        missing = asked - values.keys() - {name for node in nodes for name in node.output}
        if missing:
            raise UnsupportedError(f"the graph has no value called {', '.join(sorted(missing))}")

        def value_of(name: str) -> Any:
            # An input in the graph's type, not before it is read: weights take twice the memory so.
            value = values[name]
            return value.astype(self._types[name], copy=False) if name in inputs else value

        for name in asked & values.keys():
            yield name, np.asarray(value_of(name))
        for place, node in enumerate(nodes):
            try:
                around = {}
                if node.need_context():
                    around["context"] = {name: value_of(name) for name in values}
                computed = node.run(*map(value_of, node.input), **around)
            except Exception as error:
                raise UnsupportedError(
                    f"the graph cannot be evaluated: {_one_line(error)}"
                ) from error
            for name in reads(node.onnx_node) - {""}:
                if last[name] == place:
                    values.pop(name, None)
            for name, value in zip(node.output, computed):
                if name and name in last:
                    values[name] = value
                if name not in asked:
                    continue
                if isinstance(value, list):
                    raise UnsupportedError(
                        f"the graph cannot be evaluated: '{name}' is a sequence, not a tensor"
                    )
                yield name, np.asarray(value)

    def _check(self, inputs: Mapping[str, Array]) -> None:
        """See that inputs are those that the graph reads, of their shapes."""
        missing = [name for name in self._required if name not in inputs]
        unknown = [name for name in inputs if name not in self._types]
        if missing or unknown:
            raise RequestError(
                f"the graph reads {', '.join(self._required)}; missing: "
                f"{', '.join(missing) or 'none'}; unknown: {', '.join(unknown) or 'none'}"
            )
        for name, value in inputs.items():
            wanted, shape = self._shapes.get(name), value.shape
            if wanted is not None and (
                len(wanted) != len(shape)
                or any(size not in (None, given) for size, given in zip(wanted, shape))
            ):
                shown = [size if size is not None else "N" for size in wanted]
                raise RequestError(f"'{name}' has shape {list(shape)}; the graph reads {shown}")
            kind = self._types[name]
            if kind.kind in "iu" and value.dtype.kind not in "iu":
                raise RequestError(
                    f"'{name}' is of {value.dtype}; the graph reads integers ({kind})"
                )


def reads(node: onnx.NodeProto) -> set[str]:
    """Names that a node reads, by itself or in a graph within it."""
    found = set(node.input)
    for attribute in node.attribute:
        for inner in (attribute.g, *attribute.graphs):
            found.update(value.name for value in inner.output)
            found.update(*map(reads, inner.node))
    return found


def evaluate(graph: onnx.ModelProto, inputs: Mapping[str, Array]) -> dict[str, Array]:
    """The graph's outputs by name; see :class:`Evaluator`, whose errors these are."""
    return Evaluator(graph).run(inputs)


def _dtype(element_type: int) -> np.dtype[Any]:
    return np.dtype(helper.tensor_dtype_to_np_dtype(element_type))


def _one_line(error: BaseException) -> str:
    """The innermost reason, in one line."""
    while error.__cause__ is not None:
        error = error.__cause__
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= 300 else text[:300] + "..."
