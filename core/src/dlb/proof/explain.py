"""Where each adapter of a certificate differs first, and the probable reason. It is no verdict.

Explanations have fields and no sentences; :mod:`dlb.report.explanations` makes the sentences.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Union, get_args

from dlb.proof.certificate import Certificate, CheckGroup, CheckResult
from dlb.proof.findings import AnyCause, Cause, Figure, Finding, Part
from dlb.proof.findings.common import StructuresDiffer
from dlb.proof.findings.files import NodesPart
from dlb.proof.findings.port import (
    DropoutDiffers,
    PenaltyDiffers,
    PortLayerDiffers,
    SpanDiffers,
)
from dlb.proof.findings.workload import GradientsDiffer

__all__ = ["Explanation", "NotRun", "Reason", "explain"]

#: A relative distance of about one rounding to float32.
_FLOAT32_ROUNDING = (1e-9, 3e-7)
#: Figures whose relative difference is at most this have one common cause.
_SAME_SIZE = 0.05
#: Checks in training mode; their groups also have a check in evaluation mode.
_TRAINING_CHECKS = {"forward float64, training", "isolated layers, training"}
#: Causes without a layer that say where the difference is.
_LOCATING_CAUSES = (
    GradientsDiffer,
    PortLayerDiffers,
    SpanDiffers,
    NodesPart,
    StructuresDiffer,
    DropoutDiffers,
    PenaltyDiffers,
)


class InfiniteDistance(Cause, frozen=True, kw_only=True):
    """A value is missing, has another shape, or is not finite."""


class Float32Rounding(Cause, frozen=True, kw_only=True):
    """The distance is about one rounding to float32."""


class NativeDropout(Cause, frozen=True, kw_only=True):
    """Dropout is wrong if the framework draws the mask; ``fault`` says how."""

    fault: AnyCause


class TrainingOnly(Cause, frozen=True, kw_only=True):
    """Evaluation mode agrees, so the cause is what a layer of this kind does in training mode only."""

    kind: str


class LayerKind(Cause, frozen=True, kw_only=True):
    """A usual mistake in layers of this kind."""

    kind: str


class InFloat32Only(Cause, frozen=True, kw_only=True):
    """The update is right in float64 and wrong in float32."""


class SameFactor(Cause, frozen=True, kw_only=True):
    """Every change is off by the same factor, 1 plus or minus ``size``."""

    size: float


class OnlyParameters(Cause, frozen=True, kw_only=True):
    """Only parameters of this name are off."""

    parameter: str


class OnlyState(Cause, frozen=True, kw_only=True):
    """The weights agree; only the optimizer's state differs."""


class OfGroup(Cause, frozen=True, kw_only=True):
    """The usual reason of a difference that this group shows first."""

    group: CheckGroup


Reason = Union[
    Float32Rounding,
    InFloat32Only,
    InfiniteDistance,
    LayerKind,
    NativeDropout,
    OfGroup,
    OnlyParameters,
    OnlyState,
    SameFactor,
    TrainingOnly,
]
#: Groups that have a usual reason.
_REASONED: tuple[CheckGroup, ...] = (
    "weights",
    "forward",
    "gradients",
    "update",
    "trajectory",
    "float32",
    "audit",
    "structure",
    "export",
    "distributed",
)


class NotRun(Part, frozen=True, kw_only=True):
    """A check that could not be run, with the reason."""

    check: str
    findings: tuple[Finding, ...]


class Explanation(Part, frozen=True, kw_only=True):
    """The first thing that differs for one adapter.

    Attributes:
        adapter: the adapter.
        group, check: the first check that failed.
        finding: the finding that says where: a layer, a span between layers, nodes of a file. None if
            only a figure says where.
        figure: the distance there; None if nothing was measured.
        reasons: probable reasons.
        failed_too: further checks that failed; usually they follow from the first.
        not_run: checks that could not be run, with the reason.
    """

    adapter: str
    group: CheckGroup
    check: str
    finding: Finding | None
    figure: Figure | None
    reasons: tuple[Reason, ...]
    failed_too: tuple[str, ...] = ()
    not_run: tuple[NotRun, ...] = ()


def explain(certificate: Certificate) -> list[Explanation]:
    """An explanation for each adapter that deviates, in the certificate's order."""
    order = {group: place for place, group in enumerate(_groups_by_nearness())}
    explanations = []
    for adapter in dict.fromkeys(result.adapter for result in certificate.checks):
        own = certificate.results_of(adapter)
        failed = sorted(
            (result for result in own if result.verdict == "failed"),
            key=lambda result: order[result.group],
        )
        if not failed:
            continue
        first = failed[0]
        finding, figure = _first_difference(first)
        explanations.append(
            Explanation(
                adapter=adapter,
                group=first.group,
                check=first.check,
                finding=finding,
                figure=figure,
                reasons=tuple(_reasons(first, own, finding, figure)),
                failed_too=tuple(result.check for result in failed[1:]),
                not_run=tuple(
                    NotRun(check=result.check, findings=result.findings)
                    for result in own
                    if result.verdict == "not run"
                ),
            )
        )
    return explanations


def _groups_by_nearness() -> tuple[CheckGroup, ...]:
    """Groups in the order in which they point to a cause: isolated layers before what follows them."""
    groups: tuple[CheckGroup, ...] = get_args(CheckGroup)
    nearest: tuple[CheckGroup, ...] = ("weights", "layers")
    return nearest + tuple(group for group in groups if group not in nearest)


def _first_difference(result: CheckResult) -> tuple[Finding | None, Figure | None]:
    """The finding that says where a check failed first, and how far apart it is there."""
    for finding in result.findings:
        if finding.layer is not None:
            return finding, finding.figure
        if isinstance(finding.cause, _LOCATING_CAUSES):
            return finding, finding.figure or result.worst
    return None, result.worst


def _reasons(
    result: CheckResult, own: Sequence[CheckResult], finding: Finding | None, figure: Figure | None
) -> Iterator[Reason]:
    size = figure.relative_l2 if figure else None
    if figure is not None and size is None:
        yield InfiniteDistance()
    if size is not None and _FLOAT32_ROUNDING[0] < size < _FLOAT32_ROUNDING[1]:
        yield Float32Rounding()
    kind = finding.layer.kind if finding is not None and finding.layer is not None else ""
    if result.check == "settings":
        return
    if result.check.startswith("dropout") and finding is not None:
        yield NativeDropout(fault=finding.cause)
        return
    if result.group in ("layers", "forward") and kind:
        evaluation_agrees = result.check in _TRAINING_CHECKS and any(
            other.verdict == "passed" and other.group == result.group for other in own
        )
        if evaluation_agrees:
            yield TrainingOnly(kind=kind)
            return
        if result.group == "layers":
            yield LayerKind(kind=kind)
            return
    if result.check == "update float32":
        yield InFloat32Only()
        return
    if result.group == "update":
        yield from _update_reasons(result)
    if result.group in _REASONED:
        yield OfGroup(group=result.group)


def _update_reasons(result: CheckResult) -> Iterator[Reason]:
    """Reasons that follow from which tensors of an update differ, and by how much."""
    tolerance = result.tolerance or 0.0
    if result.worst is not None and result.worst.tensor == "loss":
        return
    # Weights are ``layer.parameter``; state of the optimizer is ``layer.parameter.slot``.
    weights = [item for item in result.figures if item.tensor.count(".") == 1]
    failing = [item for item in weights if item.relative_l2 is None or item.relative_l2 > tolerance]
    sizes = [item.relative_l2 for item in failing if item.relative_l2]
    all_fail = 1 < len(failing) == len(weights) == len(sizes)
    if all_fail and max(sizes) - min(sizes) <= _SAME_SIZE * max(sizes):
        yield SameFactor(size=max(sizes))
    parameters = {item.tensor.split(".")[1] for item in failing}
    if failing and len(failing) < len(weights) and len(parameters) == 1:
        yield OnlyParameters(parameter=parameters.pop())
    if not failing:
        yield OnlyState()
