"""Sentences of findings about the audit of a timed run."""

from __future__ import annotations

from dlb.proof.findings import Finding, audit
from dlb.report.common import renders, says

__all__: list[str] = []


def _loss(value: float | None) -> str:
    return "not finite" if value is None else f"{value:.8g}"


def _where(step: int, steps: int) -> str:
    return f"step {step + 1}" + (f" and {steps - 1} more" if steps > 1 else "")


@renders(audit.StepsAudited)
def _audited(cause: audit.StepsAudited, finding: Finding, adapter: str) -> str:
    text = f"{cause.audited} of {cause.steps} steps audited, {cause.judged} judged whole"
    if cause.replayed:
        text += f", and the losses of the first {cause.replayed} replayed"
    text += f"; a fault in 1 of {cause.rare} steps is found with {cause.chance:.1%}"
    return text if cause.joined else f"{text}; what changes between steps was not looked for"


says(
    audit.TooFewJudged,
    "{judged} of {audited} audited steps were judged, less than half: there was no time for "
    "more, or rounding hides what they change",
)


@renders(audit.StateChanged)
def _state(cause: audit.StateChanged, finding: Finding, adapter: str) -> str:
    place = f"between step {cause.step} and {cause.step + 1}" if cause.step else "before step 1"
    more = f", and before {cause.steps - 1} more," if cause.steps > 1 else ""
    names = " and ".join(f"'{name}'" for name in cause.tensors)
    return f"{place}{more} {names} changed" + (
        " while the model was tested" if cause.tested else ""
    )


@renders(audit.BatchDiffers)
def _batch(cause: audit.BatchDiffers, finding: Finding, adapter: str) -> str:
    where = _where(cause.step, cause.steps)
    worker = f" of worker {cause.worker}" if cause.worker else ""
    if cause.samples is None:
        return (
            f"{where}{worker} got {cause.part} of shape {list(cause.found)}, "
            f"the order says {list(cause.expected)}"
        )
    return (
        f"{where}{worker} got other {cause.part} than the order says, in {cause.samples} of "
        f"{cause.expected[0]} samples"
    )


@renders(audit.StepDiffers)
def _step(cause: audit.StepDiffers, finding: Finding, adapter: str) -> str:
    where = _where(cause.step, cause.steps)
    if cause.nothing:
        return f"{where} changed nothing"
    tensor = finding.figure.tensor if finding.figure else "any tensor"
    return f"{where} changed {tensor} otherwise than the workload's step does on its batch"


@renders(audit.LossDiffers)
def _loss_differs(cause: audit.LossDiffers, finding: Finding, adapter: str) -> str:
    whose = "a replay's" if cause.replayed else "its batch's"
    where = _where(cause.step, cause.steps)
    return f"{where} told a loss of {_loss(cause.told)}; {whose} is {_loss(cause.expected)}"


@renders(audit.LogitsAudited)
def _tests_audited(cause: audit.LogitsAudited, finding: Finding, adapter: str) -> str:
    tests = f" of {cause.tests} tests" if cause.tests > 1 else ""
    return f"{cause.samples} samples from {cause.batches} batches{tests} drawn at random"


@renders(audit.LogitsDiffer)
def _test_differs(cause: audit.LogitsDiffer, finding: Finding, adapter: str) -> str:
    batch = f"batch {cause.batch + 1}" + (f" and {cause.batches - 1} more" * (cause.batches > 1))
    return (
        f"{batch} of the test after step {cause.step} has other logits than the model had then, in "
        f"{cause.samples} of {cause.compared} samples"
    )


@renders(audit.WorkersApart)
def _apart(cause: audit.WorkersApart, finding: Finding, adapter: str) -> str:
    tensors = ", ".join(cause.tensors)
    return f"after step {cause.step + 1} workers hold other weights than their peers: {tensors}"


says(audit.ClockDiffers, "a worker's clock told {told:.3g} s of training that took {seen:.3g} s")
says(
    audit.TimeUntold,
    "the clock tells {told:.2g} s of a step whose loss is there {untold:.2g} s later",
)
says(
    audit.WorkPending,
    "when its clock stops, a step's work goes on for {seconds:.2g} s more; it told "
    "{step_seconds:.2g} s",
)
says(audit.OtherWhenWatched, "audited steps take {watched:.2g} s, others {others:.2g} s")
says(audit.MasksUnknown, "the masks that a timed step draws are not known: {reason}")
