"""Whether the canonical graph of what was read computes what the file computes.

All that is proven of an adapter is compared with that graph, so this ties the proof to the file:
both are run in float64 on the same noise, and their structures are compared. Where something is
written differently, values decide as far as what differs is analytic
(:mod:`dlb.proof.files.analytic`).
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
from dlb.graph.operations import Operation, operations
from dlb.graph.precision import as_meant
from dlb.graph.structure import compare_operations
from dlb.graph.trace import Trace, trace
from dlb.proof.certificate import Baseline, CheckResult
from dlb.proof.checks.structure import check_file
from dlb.proof.distance import figure
from dlb.proof.files.analytic import undecided_nodes
from dlb.proof.files.inputs import SCALES
from dlb.proof.files.read import nodes_within
from dlb.proof.tolerances import FLOAT64_TOLERANCE
from dlb.samples import noise
from dlb.workload.model import Model

__all__ = ["compare_with_file", "cut"]

Array = npt.NDArray[Any]
LISTED = 4
#: Samples of each batch that are compared; where a file fixes its batch, it has to be run whole.
FEW = 4


def cut(
    model: onnx.ModelProto, logits: str, traced: Trace, meant: Mapping[str, float | Array]
) -> onnx.ModelProto:
    """What of the file makes its logits: all else is taken out of the model, which is given back.

    Args:
        model: in float64; changed.
        meant: constants by name that the file keeps rounded, as what was meant: a number as the decimal
            that an attribute is read as.
    """
    nodes, needed = model.graph.node, {logits}
    as_meant(model, traced.values, meant)
    for place in reversed(range(len(nodes))):
        if not needed.isdisjoint(nodes[place].output):
            within = nodes_within([nodes[place]])
            needed.update(name for each in within for name in each.input)
        else:
            del nodes[place]
    shape = [None, *traced.values[logits].shape[1:]]
    del model.graph.output[:]
    model.graph.output.append(helper.make_tensor_value_info(logits, TensorProto.DOUBLE, shape))
    return model


def compare_with_file(
    file: onnx.ModelProto,
    model: Model,
    exact: Mapping[str, Array],
    axes: Sequence[int],
    batch: int,
    places: Array,
    baseline: Baseline,
) -> CheckResult:
    """The check ``file``, whose verdict is ``passed`` if the canonical graph is the file.

    Args:
        file: in float64, cut at its logits.
        exact: the weights in float64.
        axes: of the file's input, in the order in which the model reads them.
        batch: samples of a run.
        places: of the numbers of the file's logits, in the layer's value.

    Raises:
        UnsupportedError: a graph cannot be evaluated.
    """
    began = time.perf_counter()
    name = next(value.name for value in file.graph.input if value.name not in _held(file))
    output = file.graph.output[0].name
    real = model.input.kind == "real"
    scales = SCALES if real else SCALES[:1]
    batches = [noise(model, place, batch) for place in range(1, len(scales) + 1)]
    if real:
        batches = [each.astype(np.float64) * scale for each, scale in zip(batches, scales)]
    fed = [{name: _typed(file, name, each.transpose(np.argsort(axes)))} for each in batches]
    # One after the other: of a large network, every graph that can be run is gigabytes.
    expected = [np.empty(places.size) for _ in batches]
    runner = Evaluator(file)
    for numbers, inputs in zip(expected, fed):
        numbers[places.ravel()] = runner.run(inputs)[output].ravel()
    del runner
    canonical = canonical_graph(model, exact, dtype="float64")
    last = model.nodes[-1].name
    runner = Evaluator(canonical)
    compared = []
    for place, (numbers, each) in enumerate(zip(expected, batches), start=1):
        value = runner.run({model.input.name: each[:FEW]})[last]
        few = numbers[: value.size].reshape(value.shape)
        compared.append(figure(f"logits, batch {place} of noise", few, value))
    del runner
    structure = compare_operations(
        *(list(map(_scaled, operations(each))) for each in (canonical, file))
    )
    undecided: tuple[str, ...] = ()
    if not structure.equal:
        theirs = trace(file, fed[0])
        undecided = undecided_nodes(
            trace(canonical, {model.input.name: batches[0]}), theirs, FLOAT64_TOLERANCE
        )
    result = check_file(baseline, compared, structure.differences, LISTED, undecided[:LISTED])
    return msgspec.structs.replace(result, seconds=time.perf_counter() - began)


def _scaled(operation: Operation) -> Operation:
    """A convolution of each channel by itself with a kernel of 1 as the scale and shift that it was
    read from."""
    given = operation.attributes
    channels = given["weight"][0] if operation.kind == "Conv" else 0
    plain = {"weight": (channels, 1, 1, 1), "groups": channels, "stride": (1, 1), "pads": (0,) * 4}
    if not channels or any(given[name] != value for name, value in plain.items()):
        return operation
    kept = {"channels": channels, "elements": given["elements"]}
    if given["bias"]:
        kept |= {"epsilon": None, "training": False}
        return replace(operation, kind="BatchNormalization", attributes=kept)
    return replace(operation, kind="Affine", attributes={**kept, "scaled": True})


def _held(file: onnx.ModelProto) -> set[str]:
    return {tensor.name for tensor in file.graph.initializer}


def _typed(file: onnx.ModelProto, name: str, given: Array) -> Array:
    """In the type of the file's input: MXNet reads indices as real numbers."""
    kinds = {value.name: value.type.tensor_type.elem_type for value in file.graph.input}
    return given.astype(helper.tensor_dtype_to_np_dtype(kinds[name]))
