"""The checks of two files, a function each."""

from __future__ import annotations

import math
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper, numpy_helper

from dlb.errors import DlbError, UnsupportedError
from dlb.failure import failure_of
from dlb.graph.evaluate import Evaluator
from dlb.graph.precision import in_precision
from dlb.graph.runtime import run_model
from dlb.proof.certificate import Baseline, CheckGroup, CheckResult, Verdict, not_run
from dlb.proof.checks.tolerances import FLOAT32_LEAST, FLOAT32_MULTIPLE, FLOAT64_TOLERANCE
from dlb.proof.distance import figure, passes, relative_l2, worst_first
from dlb.proof.files.analytic import not_decided
from dlb.proof.files.parting import first_parting
from dlb.proof.files.runs import Pair, Runs, traced_on
from dlb.proof.files.structure import LISTED, Structure
from dlb.proof.files.weights import FOLDED_TOLERANCE, Matched
from dlb.proof.findings import Figure, Finding
from dlb.proof.findings.common import CannotRun, StructuresDiffer
from dlb.proof.findings.files import (
    BothFolded,
    FoldedTolerance,
    FoldedWeights,
    NodesPart,
    NotFiniteOutputs,
    OutputsConstant,
    OutputValue,
    RunInFloat32,
    RuntimeDiffers,
    WeightsNotComparable,
)
from dlb.proof.reference import FLOAT32_MOST

__all__ = [
    "CHECKS",
    "check_float32",
    "check_forward",
    "check_layers",
    "check_structure",
    "check_weights",
    "float64_tolerance",
    "unrun",
]

Array = npt.NDArray[Any]

#: Every check that there may be, in order, and its group.
CHECKS: dict[str, CheckGroup] = {
    "structure": "structure",
    "weights": "weights",
    "forward float64": "forward",
    "layers": "layers",
    "forward float32": "float32",
}

#: Half a unit in the last place of float32: what rounding may do to a weight, relatively.
_ROUNDING = 2.0**-24


def check_structure(pair: Pair, runs: Runs, structure: Structure, agree: bool) -> CheckResult:
    """Other operators are a difference only if other values come of them."""
    cause = structure.cause
    findings = (Finding(cause=cause),) if cause is not None else ()
    if structure.equal:
        return _result(pair, "structure", "passed", findings=findings)
    if not structure.compared:
        return unrun(pair, "structure", *findings)
    if not agree or not isinstance(cause, StructuresDiffer):
        return _result(pair, "structure", "failed", findings=findings)
    undecided = not_decided(*runs.traces, FLOAT64_TOLERANCE)
    decided = msgspec.structs.replace(
        cause,
        decided_by="nothing" if undecided else "values",
        undecided=tuple(undecided[:LISTED]),
    )
    if undecided:
        return unrun(pair, "structure", Finding(cause=decided))
    return _result(pair, "structure", "passed", findings=(Finding(cause=decided),))


def check_weights(pair: Pair, matched: Matched, structure: Structure, agree: bool) -> CheckResult:
    """Which numbers both files hold."""
    findings = [Finding(cause=cause) for cause in matched.unmatched]
    if findings and agree and not structure.equal:
        return unrun(pair, "weights", Finding(cause=WeightsNotComparable()), *findings)
    if findings and all(
        one.relative_l2 is not None and one.relative_l2 <= FOLDED_TOLERANCE
        for one in matched.figures
    ):
        findings.insert(0, Finding(cause=BothFolded()))
    folded = tuple(weight.name for side in matched.folded for weight in side)
    if folded and not findings:
        findings = [Finding(cause=FoldedWeights(weights=folded))]
    return _result(
        pair,
        "weights",
        "failed" if matched.unmatched else "passed",
        tolerance=FOLDED_TOLERANCE if folded else None,
        figures=matched.figures,
        findings=tuple(findings),
    )


def float64_tolerance(pair: Pair, runs: Runs, matched: Matched, draw: np.random.Generator) -> float:
    """1e-10, or what rounding of folded weights does to the outputs, times 20.

    Whoever folds batch normalisation rounds what comes of it to float32. What that does is found
    by rounding those weights, and no others, once more at random.
    """
    worst = 0.0
    sides = (pair.first, pair.fed.first), (pair.second, pair.fed.second)
    for side, (file, batches) in enumerate(sides):
        held = {tensor.name: tensor for tensor in file.wide.graph.initializer}
        names = {each.initialiser for each in matched.folded[side]} & set(held)
        if not names:
            continue
        moved = {}
        for name in sorted(names):
            array = numpy_helper.to_array(held[name])
            moved[name] = array * (1 + _ROUNDING * draw.choice((-1.0, 1.0), array.shape))
        outputs = Evaluator(file.wide).run({**batches[0], **moved})
        for names_of in pair.outputs:
            expected = runs.values[side][0][names_of[0]]
            worst = max(worst, relative_l2(outputs[names_of[side]], expected))
    if not math.isfinite(worst):
        return FLOAT64_TOLERANCE
    return max(FLOAT64_TOLERANCE, FLOAT32_MULTIPLE * worst)


def check_forward(pair: Pair, runs: Runs, tolerance: float) -> CheckResult:
    """Every output of every batch, in float64."""
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
    ordered = worst_first(compared)
    findings = list(pair.facts)
    if not_finite:
        findings.append(Finding(cause=NotFiniteOutputs(outputs=tuple(not_finite[:LISTED]))))
    if tolerance > FLOAT64_TOLERANCE:
        findings.append(Finding(cause=FoldedTolerance(multiple=FLOAT32_MULTIPLE)))
    return _result(
        pair,
        "forward float64",
        "passed" if passes(ordered, tolerance) else "failed",
        tolerance=tolerance,
        figures=ordered,
        findings=tuple(findings),
    )


def check_layers(pair: Pair, runs: Runs, tolerance: float) -> CheckResult:
    """Where the values of the first batch that differs part."""
    for place, (ours, theirs) in enumerate(zip(*runs.values)):
        apart = [
            names
            for names in pair.outputs
            if not relative_l2(theirs[names[0]], ours[names[0]]) <= tolerance
        ]
        if not apart:
            continue
        traces = runs.traces
        if place:
            traces = (
                traced_on(pair.first, pair.fed.first[place]),
                traced_on(pair.second, pair.fed.second[place]),
            )
        parting = first_parting(*traces, apart, tolerance)
        if parting is None:
            break
        owned = msgspec.structs.replace
        cause = NodesPart(
            node=owned(parting.first, owner=pair.first.label),
            other=owned(parting.second, owner=pair.second.label),
            **parting.differs,
        )
        finding = Finding(cause=cause, figure=parting.figure, tolerance=tolerance)
        return _result(
            pair,
            "layers",
            "failed",
            tolerance=tolerance,
            figures=(parting.figure,),
            findings=(finding,),
        )
    return unrun(pair, "layers", Finding(cause=OutputsConstant()))


def check_float32(pair: Pair, runs: Runs, agree: bool) -> CheckResult:
    """Each file's own error by ONNX Runtime, the larger against the smaller.

    Args:
        agree: whether the files do in float64.
    """
    errors: list[list[Figure]] = []
    findings: list[Finding] = []
    sides = ((pair.first, pair.fed.first), (pair.second, pair.fed.second))
    try:
        for side, (file, batches) in enumerate(sides):
            model = file.model
            if _is_wide(model):
                model = in_precision(model, TensorProto.FLOAT)
                findings.append(Finding(cause=RunInFloat32(file=file.label)))
            errors.append(_errors(pair, runs, side, model, batches))
    except DlbError as error:
        reason = Finding(cause=CannotRun(failure=failure_of(error)))
        return unrun(pair, "forward float32", reason)
    largest = [
        math.inf if ordered[0].relative_l2 is None else ordered[0].relative_l2
        for ordered in map(worst_first, errors)
    ]
    if agree and max(largest) > FLOAT32_MOST:
        # Before 1.31 the last window of an average pooling in ceil mode, for one.
        distance = max(largest) if math.isfinite(max(largest)) else None
        reason = Finding(cause=RuntimeDiffers(distance=distance))
        return unrun(pair, "forward float32", reason)
    least = min(largest)
    tolerance = FLOAT32_MULTIPLE * max(least if math.isfinite(least) else 0.0, FLOAT32_LEAST)
    ordered = worst_first([*errors[0], *errors[1]])
    return _result(
        pair,
        "forward float32",
        "passed" if passes(ordered, tolerance) else "failed",
        float64=True,
        tolerance=tolerance,
        figures=ordered,
        findings=tuple(findings),
    )


def _errors(
    pair: Pair,
    runs: Runs,
    side: int,
    model: onnx.ModelProto,
    batches: tuple[dict[str, Array], ...],
) -> list[Figure]:
    """The distance of a file's outputs in ONNX Runtime from the first file's in float64."""
    file = (pair.first, pair.second)[side]
    types = {value.name: value.type.tensor_type.elem_type for value in model.graph.input}
    content = model.SerializeToString()
    errors = []
    for batch, truth in zip(batches, runs.values[0]):
        feeds = {
            name: array.astype(helper.tensor_dtype_to_np_dtype(types[name]))
            for name, array in batch.items()
        }
        try:
            made = run_model(content, feeds, threads=1)
        except DlbError as error:
            raise UnsupportedError(f"{file.label}: {error}") from None
        values = {port.name: value for port, value in zip(file.outputs, made)}
        errors += [
            figure(f"{names[0]} of {file.label}", values[names[side]], truth[names[0]])
            for names in pair.outputs
        ]
    return errors


def _is_wide(model: onnx.ModelProto) -> bool:
    double = TensorProto.DOUBLE
    return any(tensor.data_type == double for tensor in model.graph.initializer) or any(
        value.type.tensor_type.elem_type == double
        for value in (*model.graph.input, *model.graph.output)
    )


def _result(
    pair: Pair, check: str, verdict: Verdict, *, float64: bool = False, **rest: Any
) -> CheckResult:
    return CheckResult(
        check=check,
        group=CHECKS[check],
        adapter=pair.second.label,
        baseline=_baseline(pair, float64),
        verdict=verdict,
        **rest,
    )


def unrun(pair: Pair, check: str, *findings: Finding) -> CheckResult:
    """A check that could not be run, and why."""
    return not_run(check, CHECKS[check], pair.second.label, _baseline(pair, False), *findings)


def _baseline(pair: Pair, float64: bool) -> Baseline:
    return Baseline(kind="onnx_file", names=(pair.first.label,), float64=float64)
