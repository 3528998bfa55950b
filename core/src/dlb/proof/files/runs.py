"""Runs of both models in float64 on all their inputs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from dlb.errors import DlbError, UnsupportedError
from dlb.graph.nominal import fix_input_shapes, restore_nominal_values
from dlb.graph.trace import Trace, trace
from dlb.proof.files.inputs import FileInputs
from dlb.proof.files.read import ModelFile
from dlb.proof.findings import Finding

__all__ = ["FilePair", "Runs", "run_both", "trace_file"]

Array = npt.NDArray[Any]
Values = dict[str, Array]


@dataclass(frozen=True)
class FilePair:
    """Two files and their inputs.

    Attributes:
        first, second: the files.
        inputs: inputs of both.
        outputs: pairs of output names.
        facts: where the inputs come from, and what was paired by order.
    """

    first: ModelFile
    second: ModelFile
    inputs: FileInputs
    outputs: list[tuple[str, str]]
    facts: tuple[Finding, ...]


@dataclass(frozen=True)
class Runs:
    """Results of both models in float64.

    Attributes:
        traces: traces of the first batch.
        values: outputs of every batch, by the first model's names.
    """

    traces: tuple[Trace, Trace]
    values: tuple[list[Values], list[Values]]


def run_both(pair: FilePair) -> Runs:
    """Run both models on every batch.

    Raises:
        UnsupportedError: a graph cannot be evaluated in float64; the message names the file.
    """
    traces: list[Trace] = []
    values: tuple[list[Values], list[Values]] = ([], [])
    sides = ((pair.first, pair.inputs.first), (pair.second, pair.inputs.second))
    for side, (file, batches) in enumerate(sides):
        # A run that fails here raises the same error below.
        restore_nominal_values(file.float64, batches[0])
        for place, batch in enumerate(batches):
            traced = trace_file(file, batch)
            if not place:
                traces.append(traced)
            outputs = {names[0]: traced.values[names[side]] for names in pair.outputs}
            for name, value in outputs.items():
                if value.dtype.kind == "f" and value.dtype != np.float64:
                    raise UnsupportedError(
                        f"{file.label}: '{name}' is evaluated in {value.dtype}, not in float64"
                    )
            values[side].append(outputs)
    return Runs((traces[0], traces[1]), values)


def trace_file(file: ModelFile, batch: Mapping[str, Array]) -> Trace:
    try:
        return trace(fix_input_shapes(file.float64, batch), batch)
    except DlbError as error:
        raise UnsupportedError(f"{file.label}: {error}") from None
