"""Whether the canonical graph of what was read computes what the file computes.

All that is proven of an adapter is held against that graph, so this ties the proof to the file:
both are run in float64 on the same noise, and their structures are compared. Where something is
written differently, values decide as far as what differs is analytic
(:mod:`dlb.proof.files.analytic`).
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper, numpy_helper

from dlb.graph.canonical import canonical_graph
from dlb.graph.evaluate import evaluate
from dlb.graph.structure import compare_structure
from dlb.graph.trace import Trace, trace
from dlb.proof.certificate import Figure, Rung
from dlb.proof.distance import figure
from dlb.proof.files.analytic import not_decided
from dlb.proof.files.inputs import SCALES
from dlb.proof.files.read import nodes_within
from dlb.proof.files.runs import settled
from dlb.proof.rungs import FLOAT64_GATE, file_rung
from dlb.samples import noise
from dlb.workload.model import Model

__all__ = ["cut", "hold"]

Array = npt.NDArray[Any]
LISTED = 4
#: Samples of each batch that are compared; where a file fixes its batch, it has to be run whole.
FEW = 4


def cut(
    model: onnx.ModelProto, logits: str, traced: Trace, meant: Mapping[str, float]
) -> onnx.ModelProto:
    """What of the file makes its logits.

    Args:
        meant: single numbers by name, attributes that are written as constants, as the decimal that
            was meant: what an attribute is read as.
    """
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    kept, needed = [], {logits}
    for node in reversed(copy.graph.node):
        if meant.keys().isdisjoint(node.output) and not needed.isdisjoint(node.output):
            kept.append(node)
            within = nodes_within([node])
            needed.update(name for each in within for name in each.input)
    kept.reverse()
    held = [tensor for tensor in copy.graph.initializer if tensor.name not in meant]
    held += [
        numpy_helper.from_array(np.full_like(traced.values[name], number), name)
        for name, number in meant.items()
    ]
    del copy.graph.node[:], copy.graph.initializer[:]
    copy.graph.node.extend(kept)
    copy.graph.initializer.extend(held)
    shape = [None, *traced.values[logits].shape[1:]]
    del copy.graph.output[:]
    copy.graph.output.append(helper.make_tensor_value_info(logits, TensorProto.DOUBLE, shape))
    return copy


def hold(
    file: onnx.ModelProto,
    model: Model,
    exact: Mapping[str, Array],
    axes: Sequence[int],
    batch: int,
    places: Array,
    against: str,
) -> Rung:
    """The rung ``file``, whose verdict is ``passed`` if the canonical graph is the file.

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
    canonical = canonical_graph(model, exact, dtype="float64")
    last = model.nodes[-1].name
    name = next(value.name for value in file.graph.input if value.name not in _held(file))
    real = model.input.kind == "real"

    def batch_of(place: int, scale: float) -> tuple[Array, Trace]:
        """What is given to the model, and the file run on it."""
        given = noise(model, place, batch)
        given = given.astype(np.float64) * scale if real else given
        fed = {name: _typed(file, name, given.transpose(np.argsort(axes)))}
        return given, trace(settled(file, fed), fed)

    def compared(place: int, scale: float) -> Figure:
        given, theirs = batch_of(place, scale)
        numbers = np.empty(places.size)
        numbers[places.ravel()] = theirs.values[file.graph.output[0].name].ravel()
        value = evaluate(canonical, {model.input.name: given[:FEW]})[last]
        few = numbers[: value.size].reshape(value.shape)
        return figure(f"logits, batch {place} of noise", few, value)

    scales = SCALES if real else SCALES[:1]
    found = [compared(place, scale) for place, scale in enumerate(scales, start=1)]
    structure = compare_structure(canonical, file)
    listed = "; ".join(str(each) for each in structure.differences[:LISTED])
    apart: tuple[str, ...] = ()
    if not structure.equal:
        # Run again: to keep every value meanwhile takes gigabytes of a large network.
        given, theirs = batch_of(1, scales[0])
        apart = not_decided(trace(canonical, {model.input.name: given}), theirs, FLOAT64_GATE)
    rung = file_rung(against, found, listed, apart[:LISTED])
    return msgspec.structs.replace(rung, seconds=time.perf_counter() - began)


def _held(file: onnx.ModelProto) -> set[str]:
    return {tensor.name for tensor in file.graph.initializer}


def _typed(file: onnx.ModelProto, name: str, given: Array) -> Array:
    """In the type of the file's input: MXNet reads indices as real numbers."""
    kinds = {value.name: value.type.tensor_type.elem_type for value in file.graph.input}
    return given.astype(helper.tensor_dtype_to_np_dtype(kinds[name]))
