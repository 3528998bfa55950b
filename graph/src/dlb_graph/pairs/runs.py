"""Runs of both models in float64 on all their inputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from dlb_graph.comparing.read_facts import PairFact
from dlb_graph.errors import DlbError, UnsupportedError
from dlb_graph.files.model_file import ModelFile, read_model_file
from dlb_graph.layers.numbers import Array
from dlb_graph.pairs.inputs import FileInputs, feed, pair_ports
from dlb_graph.pairs.layouts import Outputs, in_layout_of
from dlb_graph.pairs.training_mode import training_facts
from dlb_graph.rewriting.control_flow import traced
from dlb_graph.rewriting.nominal import fix_input_shapes, restore_nominal_values
from dlb_graph.truth.trace import Trace

__all__ = ["FilePair", "Runs", "make_pair", "run_both", "trace_file"]

Values = dict[str, Array]
_AS_WRITTEN: Mapping[str, str] = {}


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
    facts: tuple[PairFact, ...]

    @property
    def sides(self) -> tuple[tuple[ModelFile, Sequence[Values]], ...]:
        """Each file with its batches."""
        return (self.first, self.inputs.first), (self.second, self.inputs.second)


@dataclass(frozen=True)
class Runs:
    """Results of both models in float64.

    Attributes:
        traces: traces of the first batch.
        values: outputs of every batch, by the first model's names.
    """

    traces: tuple[Trace, Trace]
    values: tuple[list[Values], list[Values]]


def make_pair(
    first: str | Path,
    second: str | Path,
    inputs: str | Path | None = None,
    seed: int = 0,
    layouts: Mapping[str, str] = _AS_WRITTEN,
) -> FilePair:
    """Read two files, and make inputs for both, in the layout of the first.

    Args:
        inputs: an .npz file with the inputs; seeded noise if left out.
        seed: of the noise.
        layouts: of inputs, by a file's name; see :data:`dlb_graph.pairs.layouts.LAYOUTS`. Found if left out.

    Raises:
        DataError: a file cannot be read.
        UnsupportedError: a file holds something that dlb cannot run.
        RequestError: the files have different inputs or outputs, or the given inputs do not fit.
    """
    paths = Path(first), Path(second)
    labels = [path.name for path in paths]
    if labels[0] == labels[1]:
        labels = [str(path) for path in paths]
    one, other = (read_model_file(path, label) for path, label in zip(paths, labels))
    outputs, by_order = pair_ports("outputs", one, other)
    path = None if inputs is None else Path(inputs)

    def outputs_of(turned: ModelFile) -> Outputs:
        fed = feed(one, turned, path, seed)
        runs = [
            trace_file(file, each[0]) for file, each in ((one, fed.first), (turned, fed.second))
        ]
        return [
            (name.name, runs[0].values[name.name], same.name, runs[1].values[same.name])
            for name, same in outputs
        ]

    ports, _ = pair_ports("inputs", one, other)
    other, turned = in_layout_of(one, other, ports, layouts, outputs_of)
    fed = feed(one, other, path, seed)
    names = [(output.name, counterpart.name) for output, counterpart in outputs]
    return FilePair(
        one, other, fed, names, (*training_facts(one, other), *fed.facts, *by_order, *turned)
    )


def run_both(pair: FilePair) -> Runs:
    """Run both models on every batch.

    Raises:
        UnsupportedError: a graph cannot be evaluated in float64; the message names the file.
    """
    traces: list[Trace] = []
    values: tuple[list[Values], list[Values]] = ([], [])
    for side, (file, batches) in enumerate(pair.sides):
        # A run that fails here raises the same error below.
        restore_nominal_values(file.float64, batches[0])
        for place, batch in enumerate(batches):
            run = trace_file(file, batch)
            if not place:
                traces.append(run)
            outputs = {names[0]: run.values[names[side]] for names in pair.outputs}
            for name, value in outputs.items():
                if value.dtype.kind == "f" and value.dtype != np.float64:
                    raise UnsupportedError(
                        f"{file.label}: '{name}' is evaluated in {value.dtype}, not in float64"
                    )
            values[side].append(outputs)
    return Runs((traces[0], traces[1]), values)


def trace_file(file: ModelFile, batch: Mapping[str, Array]) -> Trace:
    try:
        return traced(fix_input_shapes(file.float64, batch), batch)
    except DlbError as error:
        raise UnsupportedError(f"{file.label}: {error}") from None
