"""Compares the canonical graph of the imported layers with the file.

Every proof of an adapter compares with that graph, so this check ties the proof to the file. Both
graphs run in float64 on the same noise, and their structures are compared. Where the structures
differ, values decide if the differing parts are analytic (:mod:`dlb_graph.comparing.analytic`).
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import onnx
from onnx import TensorProto, helper

from dlb_graph.comparing.analytic import undecided_nodes
from dlb_graph.comparing.causes import Figure
from dlb_graph.comparing.distance import figure, passes, worst_first
from dlb_graph.comparing.numbers import other_numbers
from dlb_graph.comparing.tolerances import FLOAT64_TOLERANCE
from dlb_graph.errors import UnsupportedError
from dlb_graph.files.model_file import SCALES, nodes_within
from dlb_graph.layers.numbers import Array
from dlb_graph.structure.normal_form import operations_of
from dlb_graph.structure.structure import Difference, compare_operations
from dlb_graph.truth.canonical import canonical_graph
from dlb_graph.truth.evaluate import Evaluator
from dlb_graph.truth.precision import set_nominal_values
from dlb_graph.truth.trace import Trace, trace
from dlb_graph.workload.model import Model
from dlb_graph.workload.noise import noise

__all__ = [
    "FileComparison",
    "LayersDiffer",
    "compare_with_file",
    "has_fixed_batch",
    "to_input_type",
    "truncate_at",
    "where_defined",
]

#: The share of numbers that must be finite, so that they say something.
_LEAST_DEFINED = 0.1
#: Samples of each batch that are compared. A file with a fixed batch runs all of them.
COMPARED_SAMPLES = 4


@dataclass(frozen=True)
class FileComparison:
    """How the canonical graph of the imported layers compares with the file.

    Attributes:
        figures: distances of its logits from the file's on noise, worst first.
        differences: of their structures.
        undecided: operators that only one of them has, and for which equal values on noise prove nothing.
        numbers: single numbers of the same operator in the same place that are others. These are a difference
            even if values agree.
        seconds: that the comparison took.
    """

    figures: tuple[Figure, ...]
    differences: tuple[Difference, ...]
    undecided: tuple[str, ...]
    numbers: tuple[Difference, ...]
    seconds: float

    @property
    def values_agree(self) -> bool:
        """Whether all logits are the same."""
        return passes(self.figures, FLOAT64_TOLERANCE)

    @property
    def equal(self) -> bool:
        """Whether the layers are the file."""
        return self.values_agree and not self.undecided and not self.numbers


class LayersDiffer(UnsupportedError):
    """The imported layers are not the file.

    Attributes:
        comparison: what differs.
    """

    def __init__(self, message: str, comparison: FileComparison) -> None:
        super().__init__(message)
        self.comparison = comparison


def truncate_at(
    model: onnx.ModelProto,
    logits: str,
    file_trace: Trace,
    nominal_values: Mapping[str, float | Array],
) -> onnx.ModelProto:
    """Remove from a model all that its logits do not depend on, and return the model.

    Args:
        model: in float64; modified.
        logits: name of the value that becomes the only output.
        file_trace: the model, run once.
        nominal_values: exact values, by name, of constants that the file keeps rounded.
    """
    nodes, needed = model.graph.node, {logits}
    set_nominal_values(model, file_trace.values, nominal_values)
    for index in reversed(range(len(nodes))):
        if not needed.isdisjoint(nodes[index].output):
            inner_nodes = nodes_within([nodes[index]])
            needed.update(name for inner in inner_nodes for name in inner.input)
        else:
            del nodes[index]
    shape = [None, *file_trace.values[logits].shape[1:]]
    del model.graph.output[:]
    model.graph.output.append(helper.make_tensor_value_info(logits, TensorProto.DOUBLE, shape))
    return model


def compare_with_file(
    file: onnx.ModelProto,
    model: Model,
    weights: Mapping[str, Array],
    axes: Sequence[int],
    batch: int,
    index_map: Array,
) -> FileComparison:
    """Compare what the canonical graph computes with what the file does.

    Args:
        file: in float64, truncated at its logits.
        model: the imported layers.
        weights: in float64, by ``layer.parameter``.
        axes: of the file's input, in the order in which the model reads them.
        batch: samples of a run.
        index_map: of the file's logits, into the layer's value.

    Raises:
        UnsupportedError: a graph cannot be evaluated.
    """
    began = time.perf_counter()
    name = next(
        value.name for value in file.graph.input if value.name not in _initializer_names(file)
    )
    output = file.graph.output[0].name
    is_real = model.input.kind == "real"
    scales = SCALES if is_real else SCALES[:1]
    batches = [noise(model, number, batch) for number in range(1, len(scales) + 1)]
    if is_real:
        batches = [
            batch_input.astype(np.float64) * scale for batch_input, scale in zip(batches, scales)
        ]
    feeds = [
        {name: to_input_type(file, name, batch_input.transpose(np.argsort(axes)))}
        for batch_input in batches
    ]
    # Each evaluator and each trace of a large network holds gigabytes, so one follows the other. The first
    # batch is traced: its values show what the graph computes, too.
    expected = [np.empty(index_map.size) for _ in batches]
    traced = trace(file, feeds[0])
    expected[0][index_map.ravel()] = traced.values[output].ravel()
    file_operations = operations_of(traced, depthwise=False)
    del traced
    if len(batches) > 1:
        evaluator = Evaluator(file)
        for expected_logits, inputs in zip(expected[1:], feeds[1:]):
            expected_logits[index_map.ravel()] = evaluator.run(inputs)[output].ravel()
        del evaluator
    canonical = canonical_graph(model, weights, dtype="float64", held=True)
    last = model.nodes[-1].name
    values = []
    if not has_fixed_batch(file, name):
        traced = trace(canonical, {model.input.name: batches[0]})
        values.append(traced.values[last][:COMPARED_SAMPLES])
        canonical_operations = operations_of(traced, depthwise=False)
        del traced
    else:
        # A trace needs a batch of a size that no other axis has, and may need all samples of the file.
        canonical_operations = operations_of(trace(canonical), depthwise=False)
    if len(values) < len(batches):
        evaluator = Evaluator(canonical)
        for batch_input in batches[len(values) :]:
            inputs = {model.input.name: batch_input[:COMPARED_SAMPLES]}
            values.append(evaluator.run(inputs)[last])
        del evaluator
    pairs = [
        (expected_logits[: value.size].reshape(value.shape), value)
        for expected_logits, value in zip(expected, values)
    ]
    figures = [
        figure(f"logits, batch {number} of noise", *pair)
        for number, pair in enumerate(where_defined(pairs), start=1)
    ]
    structure = compare_operations(canonical_operations, file_operations)
    undecided: tuple[str, ...] = ()
    numbers: list[Difference] = []
    if not structure.equal:
        traces = trace(canonical, {model.input.name: batches[0]}), trace(file, feeds[0])
        undecided = undecided_nodes(*traces, FLOAT64_TOLERANCE)
        numbers = other_numbers(*traces)
    return FileComparison(
        worst_first(figures),
        structure.differences,
        undecided,
        tuple(numbers),
        time.perf_counter() - began,
    )


def where_defined(pairs: Sequence[tuple[Array, Array]]) -> list[tuple[Array, Array]]:
    """Values with 0 where both are NaN, or the same infinity: outside what a function is defined for.

    As they are if nearly all numbers of all batches are such.
    """
    outside = [
        (np.isnan(expected) & np.isnan(value)) | (np.isinf(expected) & (expected == value))
        for expected, value in pairs
    ]
    if min(places.mean() for places in outside) > 1 - _LEAST_DEFINED:
        return list(pairs)
    return [
        (np.where(places, 0.0, expected), np.where(places, 0.0, value))
        for (expected, value), places in zip(pairs, outside)
    ]


def has_fixed_batch(file: onnx.ModelProto, name: str) -> bool:
    """Whether a file's input has a fixed number of samples."""
    (shape,) = (value.type.tensor_type.shape for value in file.graph.input if value.name == name)
    return bool(shape.dim[0].dim_value)


def _initializer_names(file: onnx.ModelProto) -> set[str]:
    return {tensor.name for tensor in file.graph.initializer}


def to_input_type(file: onnx.ModelProto, name: str, array: Array) -> Array:
    """The array in the type of the file's input: MXNet reads indices as real numbers."""
    element_types = {value.name: value.type.tensor_type.elem_type for value in file.graph.input}
    return array.astype(helper.tensor_dtype_to_np_dtype(element_types[name]))
