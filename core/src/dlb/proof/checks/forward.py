"""``forward``: the values of a subject in float64, in evaluation mode and in training mode.

For a built model, every layer's value is compared with the canonical graph's, and the first that differs is
named. For a port and for a file, the outputs are compared with the reference's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import numpy.typing as npt

from dlb.proof.certificate import Baseline, CheckResult
from dlb.proof.checks.layers import (
    ISOLATED,
    check_counterparts,
    check_isolated_layers,
    infinite_causes,
    layers_result,
    missing_layers,
)
from dlb.proof.distance import figure, figures, infinite_cause, passes, worst_first
from dlb.proof.engine import Check, Keep, run
from dlb.proof.findings import Figure, Finding
from dlb.proof.findings.base import LISTED
from dlb.proof.findings.files import FoldedTolerance, NotFiniteOutputs, OutputValue
from dlb.proof.findings.port import OutputCount, SameAsEvaluation
from dlb.proof.port.comparison import PortComparison
from dlb.proof.reference import Reference
from dlb.proof.tolerances import FLOAT32_MULTIPLE, FLOAT64_TOLERANCE, Tensors
from dlb.proof.update_batches import as_dtype
from dlb.supervision.remote import RemoteModel
from dlb.workload import Model
from dlb_worker.contract import ForwardPass

if TYPE_CHECKING:
    from dlb.proof.files.runs import FilePair, Runs

__all__ = [
    "CANONICAL",
    "check_file_outputs",
    "check_forward",
    "check_outputs",
    "check_training_outputs",
    "name_outputs",
    "prove_layers",
]

Array = npt.NDArray[Any]
CANONICAL = Baseline(kind="canonical_graph")


def prove_layers(
    model: RemoteModel, reference: Reference, adapter: str, training: bool, keep: Keep
) -> dict[str, Array]:
    """Check every layer's value in one mode: with accumulated errors, and each layer isolated.

    Returns:
        every layer's value, as the adapter computed it.
    """
    mode = ", training" if training else ""
    truth = reference.training_layers if training else reference.layers
    values: dict[str, Array] = {}

    def forward(check: Check) -> CheckResult:
        inputs = as_dtype(reference.inputs, "float64")
        values.update(model.forward(inputs, training=training, layers=list(truth)))
        return check_forward(
            adapter, check.name, reference.model, values, truth, model.native_layers
        )

    def isolated(check: Check) -> CheckResult:
        if missing := missing_layers(values, truth):
            return check.not_run(missing)
        canonical = reference.isolated_layers(values, training=training)
        return check_isolated_layers(
            adapter, check.name, reference.model, values, canonical, model.native_layers
        )

    keep(run(Check(f"forward float64{mode}", "forward", adapter, CANONICAL), forward))
    keep(run(Check(f"isolated layers{mode}", "layers", adapter, ISOLATED), isolated))
    return values


def check_forward(
    adapter: str,
    name: str,
    model: Model,
    values: Tensors,
    truth: Tensors,
    native: Mapping[str, str],
) -> CheckResult:
    """Compare the values of a forward pass with the canonical graph's in float64.

    The finding names the first layer past the tolerance, with its description and what the framework built.

    Args:
        values: every layer's value, as the adapter computed it.
        truth: every layer's value of the canonical graph.
        native: the framework's description of each layer, by name.
    """
    compared = figures(values, truth)
    causes = infinite_causes(compared, values, truth)
    check = Check(name, "forward", adapter, CANONICAL)
    return layers_result(check, model, compared, FLOAT64_TOLERANCE, native, causes)


def check_outputs(check: Check, port: PortComparison) -> CheckResult:
    """Compare the outputs of a user's model in evaluation mode with the reference's, at several scales."""
    passes_by_scale = [("", port.truth.evaluation_pass, port.evaluation_pass)]
    for (name, _, own), (_, _, other) in zip(port.truth.scaled_passes, port.scaled_passes):
        passes_by_scale.append((name, own, other))
    return _compare_outputs(check, passes_by_scale)


def check_training_outputs(check: Check, port: PortComparison) -> CheckResult:
    """Compare outputs in training mode, in which batch normalisations use the batch's statistics.

    If they differ, the finding names the layer, unless the same layer differs in evaluation mode.
    """
    if port.randomness is not None:
        return check.not_run(port.randomness)
    result = _compare_outputs(check, [("", port.truth.training_pass, port.training_pass)])
    if result.verdict == "failed":
        findings = check_counterparts(check, port, training=True).findings
        in_evaluation = check_counterparts(check, port).findings
        if _causes(findings) == _causes(in_evaluation):
            findings = (Finding(cause=SameAsEvaluation()),)
        result = msgspec.structs.replace(result, findings=(*result.findings, *findings))
    return result


def _causes(findings: Sequence[Finding]) -> list[Any]:
    """Causes of findings, without their distances."""
    return [finding.cause for finding in findings]


def _compare_outputs(
    check: Check, passes_by_scale: Sequence[tuple[str, ForwardPass, ForwardPass]]
) -> CheckResult:
    """Compare passes of the reference and of a model, each pair with the name of its inputs."""
    actual: dict[str, Array] = {}
    expected: dict[str, Array] = {}
    for inputs, ours, theirs in passes_by_scale:
        actual |= name_outputs(theirs, inputs)
        expected |= name_outputs(ours, inputs)
    compared = figures(actual, expected)
    findings: list[Finding] = []
    if len(actual) != len(expected):
        findings.append(Finding(cause=OutputCount(found=len(actual), expected=len(expected))))
    for item in compared if not findings else ():
        cause = infinite_cause(item.tensor, actual.get(item.tensor), expected.get(item.tensor))
        if item.relative_l2 is None and cause is not None:
            findings.append(Finding(cause=cause, figure=item, tolerance=FLOAT64_TOLERANCE))
    passed = passes(compared, FLOAT64_TOLERANCE) and len(actual) == len(expected)
    return check.result(compared, FLOAT64_TOLERANCE, findings, passed=passed)


def name_outputs(trace: ForwardPass, inputs: str = "") -> dict[str, Array]:
    """Outputs by tensor name: ``output``, or ``output NAME`` if there are several.

    Args:
        inputs: what the inputs are called, if they are not the first ones.
    """
    end = f", {inputs}" if inputs else ""
    if len(trace.outputs) == 1:
        return {f"output{end}": trace.outputs[0]}
    return {f"output {number}{end}": output for number, output in enumerate(trace.outputs)}


def check_file_outputs(check: Check, pair: FilePair, runs: Runs, tolerance: float) -> CheckResult:
    """Compare every output of the second file with the first file's, in every batch."""
    several = len(runs.values[0]) > 1
    compared: list[Figure] = []
    not_finite: list[OutputValue] = []
    for place, (ours, theirs) in enumerate(zip(*runs.values), start=1):
        batch = f", batch {place}" if several else ""
        for name, value in ours.items():
            compared.append(figure(f"{name}{batch}", theirs[name], value))
            for file, array in ((pair.first, value), (pair.second, theirs[name])):
                if not np.isfinite(array.astype(np.float64)).all():
                    number = place if several else 0
                    not_finite.append(OutputValue(file=file.label, output=name, batch=number))
    findings = list(pair.facts)
    if not_finite:
        findings.append(Finding(cause=NotFiniteOutputs(outputs=tuple(not_finite[:LISTED]))))
    if tolerance > FLOAT64_TOLERANCE:
        findings.append(Finding(cause=FoldedTolerance(multiple=FLOAT32_MULTIPLE)))
    return check.result(worst_first(compared), tolerance, findings)
