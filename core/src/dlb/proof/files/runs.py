"""Both models run in float64 on everything that they are fed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import helper

from dlb.errors import DlbError, UnsupportedError
from dlb.graph.decimals import unrounded
from dlb.graph.operations import reader_of
from dlb.graph.precision import set_nominal_values
from dlb.graph.trace import Trace, trace
from dlb.proof.files.inputs import Fed
from dlb.proof.files.read import ModelFile
from dlb.proof.findings import Finding

__all__ = ["FilePair", "Runs", "run_both", "settled", "traced_on"]

Array = npt.NDArray[Any]
Values = dict[str, Array]


@dataclass(frozen=True)
class FilePair:
    """Two files and what they are fed; ``outputs`` are pairs of names, ``facts`` say how both were paired."""

    first: ModelFile
    second: ModelFile
    fed: Fed
    outputs: list[tuple[str, str]]
    facts: tuple[Finding, ...]


@dataclass(frozen=True)
class Runs:
    """Both models in float64: traces of the first batch, and every batch's outputs by the first's
    names."""

    traces: tuple[Trace, Trace]
    values: tuple[list[Values], list[Values]]


def run_both(pair: FilePair) -> Runs:
    """Raises UnsupportedError, with the file, if a graph cannot be evaluated in float64."""
    traces: list[Trace] = []
    values: tuple[list[Values], list[Values]] = ([], [])
    sides = ((pair.first, pair.fed.first), (pair.second, pair.fed.second))
    for side, (file, batches) in enumerate(sides):
        _take_as_meant(file, batches[0])
        for place, batch in enumerate(batches):
            traced = traced_on(file, batch)
            if not place:
                traces.append(traced)
            found = {names[0]: traced.values[names[side]] for names in pair.outputs}
            for name, value in found.items():
                if value.dtype.kind == "f" and value.dtype != np.float64:
                    raise UnsupportedError(
                        f"{file.label}: '{name}' is evaluated in {value.dtype}, not in float64"
                    )
            values[side].append(found)
    return Runs((traces[0], traces[1]), values)


def _take_as_meant(file: ModelFile, batch: Mapping[str, Array]) -> None:
    """Let constants of the file in float64 be what they are read as: the root of two of a GELU that is
    written out is kept rounded to float32, and another file has the operator. And alpha of an LRN what
    it was before an exporter multiplied it by the size: 0.0001 divided by 3 in float32, and multiplied
    again, is one rounding off."""
    for node in file.wide.graph.node:
        for attribute in node.attribute:
            if (node.op_type, attribute.name) == ("LRN", "alpha"):
                attribute.f = unrounded(attribute.f)
    try:
        traced = traced_on(file, batch)
        meant = reader_of(traced).nominal_values
    except DlbError:
        return  # whatever it is, it is told where it is needed
    graph = file.wide.graph
    own = {tensor.name for tensor in graph.initializer}
    own.update(name for node in graph.node for name in node.output)
    set_nominal_values(
        file.wide, traced.values, {name: meant[name] for name in meant if name in own}
    )


def traced_on(file: ModelFile, batch: Mapping[str, Array]) -> Trace:
    try:
        return trace(settled(file.wide, batch), batch)
    except DlbError as error:
        raise UnsupportedError(f"{file.label}: {error}") from None


def settled(model: onnx.ModelProto, batch: Mapping[str, Array]) -> onnx.ModelProto:
    """The model with the sizes of its inputs as they are in a batch."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    for value in copy.graph.input:
        if value.name in batch:
            kind = value.type.tensor_type
            kind.CopyFrom(
                helper.make_tensor_type_proto(kind.elem_type, batch[value.name].shape).tensor_type
            )
    return copy
