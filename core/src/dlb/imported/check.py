"""Compares the canonical graph of the imported layers with the file.

Every proof of an adapter compares with that graph, so this check ties the proof to the file. Both
graphs run in float64 on the same noise, and their structures are compared. Where the structures
differ, values decide if the differing parts are analytic (:mod:`dlb.proof.files.analytic`).
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper

from dlb.graph.canonical import canonical_graph
from dlb.graph.evaluate import Evaluator
from dlb.graph.operations import Operation, operations, operations_of
from dlb.graph.precision import set_nominal_values
from dlb.graph.structure import Difference, compare_operations
from dlb.graph.trace import Trace, trace
from dlb.proof.certificate import Baseline, CheckResult
from dlb.proof.checks.structure import check_file
from dlb.proof.distance import figure
from dlb.proof.files.analytic import undecided_nodes
from dlb.proof.files.inputs import SCALES
from dlb.proof.files.read import nodes_within
from dlb.proof.files.structure import other_numbers
from dlb.proof.tolerances import FLOAT64_TOLERANCE
from dlb.samples import noise
from dlb.workload.model import Model

__all__ = ["compare_with_file", "has_fixed_batch", "to_input_type", "truncate_at", "where_defined"]

Array = npt.NDArray[Any]
MAX_LISTED = 4
#: The share of numbers that must be finite, so that they say something.
_LEAST_DEFINED = 0.1
#: Samples of each batch that are compared. A file with a fixed batch runs all of them.
COMPARED_SAMPLES = 4


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
    baseline: Baseline,
) -> CheckResult:
    """The check ``file``: whether the canonical graph computes the same as the file.

    Args:
        file: in float64, truncated at its logits.
        model: the imported layers.
        weights: in float64, by ``layer.parameter``.
        axes: of the file's input, in the order in which the model reads them.
        batch: samples of a run.
        index_map: of the file's logits, into the layer's value.
        baseline: the file, for the certificate.

    Returns:
        the result; its verdict is ``passed`` if they are the same.

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
    file_operations = operations_of(traced)
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
        canonical_operations = operations_of(traced)
        del traced
    else:
        # A trace needs a batch of a size that no other axis has, and may need all samples of the file.
        canonical_operations = operations(canonical)
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
    structure = compare_operations(
        *(list(map(_as_affine, each)) for each in (canonical_operations, file_operations))
    )
    undecided: tuple[str, ...] = ()
    numbers: list[Difference] = []
    if not structure.equal:
        traces = trace(canonical, {model.input.name: batches[0]}), trace(file, feeds[0])
        undecided = undecided_nodes(*traces, FLOAT64_TOLERANCE)
        numbers = other_numbers(*traces)
    result = check_file(
        baseline, figures, structure.differences, MAX_LISTED, undecided[:MAX_LISTED], numbers
    )
    return msgspec.structs.replace(result, seconds=time.perf_counter() - began)


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


def _as_affine(operation: Operation) -> Operation:
    """A depthwise convolution with a kernel of 1, as the scale and shift that it came from."""
    attributes = operation.attributes
    if operation.kind != "Conv":
        return operation
    channels, *others = attributes["weight"]
    windows = {*others, *attributes["stride"]} <= {1} and not any(attributes["pads"])
    if not windows or attributes["groups"] != channels:
        return operation
    affine = {"channels": channels, "elements": attributes["elements"]}
    if attributes["bias"]:
        affine |= {"epsilon": None, "training": False}
        return replace(operation, kind="BatchNormalization", attributes=affine)
    return replace(operation, kind="Affine", attributes={**affine, "scaled": True})


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
