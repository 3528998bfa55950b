"""A file as a subject: what it gives for each check, with another file as its reference."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
from onnx import ModelProto, TensorProto, helper

from dlb.errors import DlbError, UnsupportedError
from dlb.proof.check_table import Ability
from dlb.proof.findings import Figure, Finding
from dlb.proof.findings.workload import FoldedWeights
from dlb.proof.subject import Sides
from dlb_graph.comparing.causes import LISTED
from dlb_graph.comparing.distance import figure, passes, relative_l2
from dlb_graph.comparing.tolerances import (
    FLOAT32_LEAST,
    FLOAT32_MOST,
    FLOAT32_MULTIPLE,
    FLOAT64_TOLERANCE,
    FOLDED_TOLERANCE,
)
from dlb_graph.pairs.runs import FilePair, Runs, trace_file
from dlb_graph.truth.evaluate import Evaluator, evaluate
from dlb_graph.truth.held import array_of, is_held, weights_as_inputs
from dlb_graph.truth.precision import in_precision
from dlb_graph.truth.runtime import run_model
from dlb_port.files.parting import first_parting
from dlb_port.files.structure import Structure, compare_structures
from dlb_port.files.weights import MatchedWeights, match_weights
from dlb_port.findings import files as files_causes

__all__ = ["FileSubject"]

Array = npt.NDArray[Any]
Values = dict[str, Array]
#: Half a unit in the last place of float32: the largest relative error of a rounded weight.
_ROUNDING = 2.0**-24


class FileSubject:
    """The second file of a pair, compared with the first.

    Args:
        draw: draws the roundings that the tolerance of folded weights is measured with.
    """

    abilities: frozenset[Ability] = frozenset()

    def __init__(self, pair: FilePair, runs: Runs, draw: np.random.Generator) -> None:
        self.pair, self.runs = pair, runs
        self.name = pair.second.label
        self.references: tuple[str, ...] = (pair.first.label,)
        self._draw = draw

    @property
    def compares(self) -> Mapping[str, Callable[[], Sides]]:
        """What it gives for each check but that of the structure."""
        compares: dict[str, Callable[[], Sides]] = {
            "forward float64": lambda: self.outputs,
            "forward float32": self.float32_outputs,
        }
        if self.matched.figures:
            compares["weights"] = self.weights
        if not self.agree:
            compares["layers"] = self.nodes
        return compares

    @cached_property
    def structure(self) -> Structure:
        """How the operators of both compare."""
        return compare_structures(self.pair, self.runs)

    @cached_property
    def matched(self) -> MatchedWeights:
        """The numbers that both hold."""
        labels = self.pair.first.label, self.pair.second.label
        folding = self.structure.equal and self.structure.hidden
        return match_weights(*self.runs.traces, labels, folding=folding)

    @property
    def agree(self) -> bool:
        """Whether the outputs agree."""
        return passes(self.outputs.figures, self.tolerance)

    @cached_property
    def tolerance(self) -> float:
        """1e-10, or 20 times the effect of rounding the folded weights on the outputs.

        Folding a batch normalisation rounds the folded weights to float32. The effect is measured by rounding
        these weights once more at random.
        """
        worst = 0.0
        for side, (file, batches) in enumerate(self.pair.sides):
            initialisers = {tensor.name: tensor for tensor in file.float64.graph.initializer}
            names = {weight.initialiser for weight in self.matched.folded[side]}
            rounded = {}
            for name in sorted(names & set(initialisers)):
                array = array_of(initialisers[name])
                signs = self._draw.choice((-1.0, 1.0), array.shape)
                rounded[name] = array * (1 + _ROUNDING * signs)
            if not rounded:
                continue
            outputs = Evaluator(file.float64).run({**batches[0], **rounded})
            for output_names in self.pair.outputs:
                expected = self.runs.values[side][0][output_names[0]]
                worst = max(worst, relative_l2(outputs[output_names[side]], expected))
        if not math.isfinite(worst):
            return FLOAT64_TOLERANCE
        return max(FLOAT64_TOLERANCE, FLOAT32_MULTIPLE * worst)

    def weights(self) -> Sides:
        """The numbers that both files hold."""
        matched = self.matched
        faults = tuple(Finding(cause=cause, figure=size) for cause, size in matched.unmatched)
        if faults and self.agree and not self.structure.equal:
            return Sides(doubts=(Finding(cause=files_causes.WeightsNotComparable()), *faults))
        if faults and all(item.distance <= FOLDED_TOLERANCE for item in matched.figures):
            faults = (Finding(cause=files_causes.BothFolded()), *faults)
        folded = tuple(weight.name for side in matched.folded for weight in side)
        note = (Finding(cause=FoldedWeights(weights=folded)),) if folded and not faults else ()
        tolerance = FOLDED_TOLERANCE if folded else None
        sizes = matched.figures
        return Sides(
            figures=sizes, tolerance=tolerance, faults=faults, facts=note, by_figures=False
        )

    @cached_property
    def outputs(self) -> Sides:
        """Every output, in every batch."""
        numbered = len(self.runs.values[0]) > 1
        compared: list[Figure] = []
        not_finite: list[files_causes.OutputValue] = []
        for place, (ours, theirs) in enumerate(zip(*self.runs.values), start=1):
            batch = f", batch {place}" if numbered else ""
            for name, value in ours.items():
                compared.append(figure(f"{name}{batch}", theirs[name], value))
                for file, array in ((self.pair.first, value), (self.pair.second, theirs[name])):
                    if not np.isfinite(array.astype(np.float64)).all():
                        number = place if numbered else 0
                        not_finite.append(
                            files_causes.OutputValue(file=file.label, output=name, batch=number)
                        )
        facts = [Finding(cause=cause) for cause in self.pair.facts]
        if not_finite:
            facts.append(
                Finding(cause=files_causes.NotFiniteOutputs(outputs=tuple(not_finite[:LISTED])))
            )
        if self.tolerance > FLOAT64_TOLERANCE:
            facts.append(Finding(cause=files_causes.FoldedTolerance(multiple=FLOAT32_MULTIPLE)))
        return Sides(figures=tuple(compared), tolerance=self.tolerance, facts=tuple(facts))

    def nodes(self) -> Sides:
        """The first pair of nodes that differ, in the first batch whose outputs differ."""
        for place, (ours, theirs) in enumerate(zip(*self.runs.values)):
            differing = [
                names
                for names in self.pair.outputs
                if not relative_l2(theirs[names[0]], ours[names[0]]) <= self.tolerance
            ]
            if not differing:
                continue
            first, second = self.runs.traces
            if place:
                first, second = (trace_file(file, each[place]) for file, each in self.pair.sides)
            parting = first_parting(first, second, differing, self.tolerance)
            if parting is None:
                break
            (cause, size), named = parting, msgspec.structs.replace
            node = named(cause.node, owner=self.pair.first.label)
            other = named(cause.other, owner=self.pair.second.label)
            cause = named(cause, node=node, other=other)
            fault = Finding(cause=cause, figure=size, tolerance=self.tolerance)
            return Sides(figures=(size,), tolerance=self.tolerance, faults=(fault,))
        return Sides(
            tolerance=self.tolerance, doubts=(Finding(cause=files_causes.OutputsConstant()),)
        )

    def float32_outputs(self) -> Sides:
        """The errors of both files in ONNX Runtime, and as tolerance a multiple of the smaller.

        Raises:
            DlbError: a file cannot be run.
        """
        facts: list[Finding] = []
        models: list[ModelProto] = []
        for file, _ in self.pair.sides:
            model = file.model
            if _is_float64(model):
                model = in_precision(model, TensorProto.FLOAT)
                facts.append(Finding(cause=files_causes.RunInFloat32(file=file.label)))
            models.append(model)
        errors = [self._errors(side, model, _run_in_runtime) for side, model in enumerate(models)]
        largest = [max(item.distance for item in compared) for compared in errors]
        if self.agree and max(largest) > FLOAT32_MOST:
            # For example the last window of an average pooling in ceil mode, before version 1.31, and a
            # sigmoid close to 0.
            distance = max(largest) if math.isfinite(max(largest)) else None
            errors = [self._errors(side, model, evaluate) for side, model in enumerate(models)]
            largest = [max(item.distance for item in compared) for compared in errors]
            in_numpy = max(largest) if math.isfinite(max(largest)) else None
            judged = max(largest) <= FLOAT32_MOST
            cause = files_causes.RuntimeDiffers(distance=distance, own=in_numpy, judged=judged)
            facts.append(Finding(cause=cause))
            if not judged:
                return Sides(doubts=tuple(facts))
        least = min(largest)
        tolerance = FLOAT32_MULTIPLE * max(least if math.isfinite(least) else 0.0, FLOAT32_LEAST)
        return Sides(figures=(*errors[0], *errors[1]), tolerance=tolerance, facts=tuple(facts))

    def _errors(
        self, side: int, model: ModelProto, run: Callable[[ModelProto, Values], Values]
    ) -> list[Figure]:
        """The distance of a file's outputs from the first file's outputs in float64.

        Args:
            run: computes the outputs of a model, by name, in the model's types.
        """
        file, batches = self.pair.sides[side]
        types = {value.name: value.type.tensor_type.elem_type for value in model.graph.input}
        errors = []
        for batch, truth in zip(batches, self.runs.values[0]):
            feeds = {
                name: array.astype(helper.tensor_dtype_to_np_dtype(types[name]))
                for name, array in batch.items()
            }
            try:
                values = run(model, feeds)
            except DlbError as error:
                raise UnsupportedError(f"{file.label}: {error}") from None
            errors += [
                figure(f"{names[0]} of {file.label}", values[names[side]], truth[names[0]])
                for names in self.pair.outputs
            ]
        return errors


def _run_in_runtime(model: ModelProto, feeds: Values) -> Values:
    content = weights_as_inputs(model).SerializeToString()
    weights = {
        tensor.name: array_of(tensor) for tensor in model.graph.initializer if is_held(tensor)
    }
    outputs = run_model(content, feeds, weights=weights, threads=1)
    return {port.name: value for port, value in zip(model.graph.output, outputs)}


def _is_float64(model: ModelProto) -> bool:
    double = TensorProto.DOUBLE
    return any(tensor.data_type == double for tensor in model.graph.initializer) or any(
        value.type.tensor_type.elem_type == double
        for value in (*model.graph.input, *model.graph.output)
    )
