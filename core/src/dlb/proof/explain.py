"""Where each adapter of a certificate differs first, and the probable reason. It is no verdict.

Explanations have fields and no sentences; :mod:`dlb.report.explanations` makes the sentences.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import get_args

from dlb.proof.certificate import Certificate, CheckGroup, CheckResult
from dlb.proof.check_table import kind_named
from dlb.proof.findings import AnyCause, Cause, Figure, Finding, Part
from dlb.proof.findings.workload import Otherwise

__all__ = ["Explanation", "NotRun", "explain"]

#: A relative distance of about one rounding to float32.
_FLOAT32_ROUNDING = (1e-9, 3e-7)
#: Beyond it, no lack of digits is the cause.
_FEW_DIGITS = 1e-2
#: What is behind the name of a check on the batch that is timed.
_TIMED = ", timed batch"
#: The same at extreme values.
_EXTREMES = ", extremes"
#: Parameters that a normalisation only moves in training.
_STATISTICS = {"mean", "variance"}
#: Figures whose relative difference is at most this have one common cause.
_SAME_SIZE = 0.05


class InfiniteDistance(Cause, frozen=True, kw_only=True):
    """A value is missing, has another shape, or is not finite."""


class Float32Rounding(Cause, frozen=True, kw_only=True):
    """The distance is about one rounding to float32."""


class LosesDigits(Cause, frozen=True, kw_only=True):
    """Rounding sets values apart where numbers are large or far from zero, and nowhere else."""


class NativeDropout(Cause, frozen=True, kw_only=True):
    """Dropout is wrong if the framework draws the mask; ``fault`` says how."""

    fault: AnyCause


class TrainingOnly(Cause, frozen=True, kw_only=True):
    """Evaluation mode agrees: the cause is what a layer of this kind, if known, does in training mode only."""

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


class OtherGradients(Cause, frozen=True, kw_only=True):
    """Most weights move elsewhere, and no number of the optimizer explains it."""


class OnlyState(Cause, frozen=True, kw_only=True):
    """The weights agree; only the optimizer's state differs.

    Attributes:
        scaled: whether all of it is off by one factor, as a convention of its scale makes it.
    """

    scaled: bool


class OnlyStatistics(Cause, frozen=True, kw_only=True):
    """The weights agree; only running statistics differ."""


class OnlyLoss(Cause, frozen=True, kw_only=True):
    """What a step changes agrees; only the loss that it tells differs."""


class OnlyTimedBatch(Cause, frozen=True, kw_only=True):
    """The same check agrees on a smaller batch."""


class OfLoss(Cause, frozen=True, kw_only=True):
    """The loss itself differs, or its gradient."""


class OfBackward(Cause, frozen=True, kw_only=True):
    """Forward passes and the loss agree; the gradient of a layer does not.

    Attributes:
        extreme: whether it agrees but at values that are tied, at a kink, or far beyond every bound.
    """

    extreme: bool


class OnlyClipping(Cause, frozen=True, kw_only=True):
    """The steps agree but for the one whose gradients are clipped otherwise."""


class OtherInFloat32(Cause, frozen=True, kw_only=True):
    """The distance in float32 is larger than a lack of digits makes."""


class OfGroup(Cause, frozen=True, kw_only=True):
    """The usual reason of a difference that this group shows first."""

    group: CheckGroup


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
    reasons: tuple[Cause, ...]
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
        if not failed or not certificate.deviates(adapter):
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
    """Groups in the order in which they point to a cause: isolated layers before what follows them.

    What workers do wrong together comes before the audit of what they trained.
    """
    groups: tuple[CheckGroup, ...] = get_args(CheckGroup)
    nearest: tuple[CheckGroup, ...] = ("weights", "layers")
    last: tuple[CheckGroup, ...] = ("distributed", "audit", "structure", "export")
    between = tuple(group for group in groups if group not in (*nearest, *last))
    return (*nearest, *between, *last)


def _first_difference(result: CheckResult) -> tuple[Finding | None, Figure | None]:
    """The finding that says where a check failed first, and how far apart it is there."""
    for finding in result.findings:
        if finding.layer is not None:
            return finding, finding.figure
        if finding.cause.locates:
            return finding, finding.figure or result.worst
    return None, result.worst


def _reasons(
    result: CheckResult, own: Sequence[CheckResult], finding: Finding | None, figure: Figure | None
) -> Iterator[Cause]:
    alike = [each for each in own if each.group == result.group == "float32"]
    for other in (each for same in (result, *alike) for each in same.findings):
        if isinstance(other.cause, Otherwise):
            yield other.cause
            return
    size = figure.relative_l2 if figure else None
    if figure is not None and size is None:
        yield InfiniteDistance()
    if size is not None and result.check.endswith(_EXTREMES) and size < _FLOAT32_ROUNDING[1]:
        yield LosesDigits()
        return
    if size is not None and _FLOAT32_ROUNDING[0] < size < _FLOAT32_ROUNDING[1]:
        yield Float32Rounding()
    kind = finding.layer.kind if finding is not None and finding.layer is not None else ""
    check = kind_named(result.check, result.baseline.kind)
    reason = check.reason if check else "group"
    passed = {other.check for other in own if other.verdict == "passed"}
    if reason == "finding":
        return
    if reason == "dropout" and finding is not None:
        yield NativeDropout(fault=finding.cause)
        return
    if result.check.endswith(_TIMED) and result.check.removesuffix(_TIMED) in passed:
        yield OnlyTimedBatch()
        return
    if result.group in ("layers", "forward"):
        if check is not None and check.evaluation in passed:
            yield TrainingOnly(kind=kind)
            return
        if result.group == "layers":
            if kind:
                yield LayerKind(kind=kind)
            return
    if reason == "float32":
        yield from [*_update_reasons(result)] or [InFloat32Only()]
        return
    if result.group == "float32" and size is not None and size > _FEW_DIGITS:
        yield OtherInFloat32()
        return
    if result.check == "clipping":
        yield OnlyClipping()
        return
    if result.group == "gradients":
        of_loss = figure is not None and figure.tensor == "loss"
        yield OfLoss() if of_loss else OfBackward(extreme=result.check.endswith(_EXTREMES))
        return
    if result.group == "update":
        reasons = [*_update_reasons(result)]
        yield from reasons
        if reasons:
            return
    if finding is None or finding.layer is not None:
        yield OfGroup(group=result.group)


def _update_reasons(result: CheckResult) -> Iterator[Cause]:
    """Reasons that follow from which tensors of an update differ, and by how much."""
    tolerance = result.tolerance or 0.0
    failing = [item for item in result.figures if item.distance > tolerance]
    if {item.tensor for item in failing} == {"loss"}:
        yield OnlyLoss()
        return
    # Weights are ``layer.parameter``; state of the optimizer is ``layer.parameter.slot``.
    weights = [item for item in result.figures if item.tensor.count(".") == 1]
    moved = [item for item in failing if item.tensor.count(".") == 1]
    parameters = {item.tensor.split(".")[1] for item in moved}
    if parameters and parameters <= _STATISTICS:
        yield OnlyStatistics()
        return
    sizes = [item.relative_l2 for item in moved if item.relative_l2]
    if 1 < len(moved) == len(weights) == len(sizes) and _alike(sizes):
        yield SameFactor(size=max(sizes))
    elif moved and len(moved) < len(weights) and len(parameters) == 1:
        yield OnlyParameters(parameter=parameters.pop())
    elif 2 * sum(size > _FEW_DIGITS for size in sizes) > len(weights):
        yield OtherGradients()
    state = [item.relative_l2 or 0.0 for item in failing if item.tensor.count(".") > 1]
    if state and not moved:
        yield OnlyState(scaled=_alike(state))


def _alike(sizes: Sequence[float]) -> bool:
    return max(sizes) - min(sizes) <= _SAME_SIZE * max(sizes)
