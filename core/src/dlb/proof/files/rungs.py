"""The rungs of two files, a function each."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper, numpy_helper

from dlb.errors import DlbError, UnsupportedError
from dlb.graph.evaluate import Evaluator
from dlb.graph.precision import in_precision
from dlb.graph.runtime import run_model
from dlb.proof.certificate import Figure, Level, Rung
from dlb.proof.distance import figure, passes, relative_l2, worst_first
from dlb.proof.files.analytic import not_decided
from dlb.proof.files.parting import first_parting
from dlb.proof.files.runs import Pair, Runs, traced_on
from dlb.proof.files.structure import LISTED, Structure
from dlb.proof.files.weights import FOLDED_GATE, Matched
from dlb.proof.reference import FLOAT32_MOST
from dlb.proof.rungs import FLOAT32_LEAST, FLOAT32_MULTIPLE, FLOAT64_GATE, not_run

__all__ = [
    "RUNGS",
    "float32_rung",
    "float64_gate",
    "forward_rung",
    "layers_rung",
    "structure_rung",
    "unrun",
    "weights_rung",
]

Array = npt.NDArray[Any]

#: Every rung that there may be, in order, and its level.
RUNGS: dict[str, Level] = {
    "structure": "structure",
    "weights": "weights",
    "forward float64": "forward",
    "layers": "layers",
    "forward float32": "float32",
}

#: What is told of two files that may have folded a batch normalisation with other roundings: neither
#: has the numbers it was.
_BOTH_FOLDED = (
    "no further apart than a batch normalisation is rounded where it is folded; if both files have it "
    "folded, hold one that was exported with its normalisations kept against the other"
)
#: Half a unit in the last place of float32: what rounding may do to a weight, relatively.
_ROUNDING = 2.0**-24


def structure_rung(pair: Pair, runs: Runs, found: Structure, agree: bool) -> Rung:
    """Other operators are a difference only if other values come of them."""
    if found.equal:
        return rung(pair, "structure", "passed", detail=found.detail)
    if not found.compared:
        return unrun(pair, "structure", found.detail)
    if not agree:
        return rung(pair, "structure", "failed", detail=found.detail)
    open_pieces = not_decided(*runs.traces, FLOAT64_GATE)
    if not open_pieces:
        return rung(
            pair,
            "structure",
            "passed",
            detail=f"written differently, but in analytic operators, so that values decide: "
            f"{found.detail}",
        )
    return unrun(
        pair,
        "structure",
        "written differently, and equal where it was tried; that shows nothing about inputs that "
        f"take another side of {', '.join(open_pieces[:LISTED])}: {found.detail}",
    )


def weights_rung(pair: Pair, matched: Matched, structure: Structure, agree: bool) -> Rung:
    detail = "; ".join(matched.unmatched[:LISTED])
    if len(matched.unmatched) > LISTED:
        detail += f"; and {len(matched.unmatched) - LISTED} more"
    if matched.unmatched and agree and not structure.equal:
        return unrun(
            pair,
            "weights",
            f"written differently, so that these cannot be held against each other: {detail}",
        )
    if detail and all(
        each.relative_l2 is not None and each.relative_l2 <= FOLDED_GATE for each in matched.figures
    ):
        detail += f"; {_BOTH_FOLDED}"
    folded = [each.name for side in matched.folded for each in side]
    if folded and not detail:
        detail = f"batch normalisation folded into: {', '.join(folded)}"
    return rung(
        pair,
        "weights",
        "failed" if matched.unmatched else "passed",
        gate=FOLDED_GATE if folded else None,
        figures=matched.figures,
        detail=detail,
    )


def float64_gate(pair: Pair, runs: Runs, matched: Matched, draw: np.random.Generator) -> float:
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
        found = Evaluator(file.wide).run({**batches[0], **moved})
        for names_of in pair.outputs:
            expected = runs.values[side][0][names_of[0]]
            worst = max(worst, relative_l2(found[names_of[side]], expected))
    return max(FLOAT64_GATE, FLOAT32_MULTIPLE * worst) if math.isfinite(worst) else FLOAT64_GATE


def forward_rung(pair: Pair, runs: Runs, gate: float) -> Rung:
    several = len(runs.values[0]) > 1
    found: list[Figure] = []
    unsound: list[str] = []
    for place, (ours, theirs) in enumerate(zip(*runs.values), start=1):
        batch = f", batch {place}" if several else ""
        for name, value in ours.items():
            found.append(figure(f"{name}{batch}", theirs[name], value))
            for file, each in ((pair.first, value), (pair.second, theirs[name])):
                if not np.isfinite(each.astype(np.float64)).all():
                    unsound.append(f"{file.label}: '{name}'{batch}")
    ordered = worst_first(found)
    detail = pair.told
    if unsound:
        detail += f"; a NaN or an infinity in {', '.join(unsound[:LISTED])}: "
        detail += "give inputs that both are made for with --input"
    if gate > FLOAT64_GATE:
        detail += "; the gate is what rounding of the folded weights does, times 20"
    return rung(
        pair,
        "forward float64",
        "passed" if passes(ordered, gate) else "failed",
        gate=gate,
        figures=ordered,
        detail=detail,
    )


def layers_rung(pair: Pair, runs: Runs, gate: float) -> Rung:
    """Where the values of the first batch that differs part."""
    for place, (ours, theirs) in enumerate(zip(*runs.values)):
        apart = [
            names
            for names in pair.outputs
            if not relative_l2(theirs[names[0]], ours[names[0]]) <= gate
        ]
        if not apart:
            continue
        traces = runs.traces
        if place:
            traces = (
                traced_on(pair.first, pair.fed.first[place]),
                traced_on(pair.second, pair.fed.second[place]),
            )
        found = first_parting(*traces, apart, gate)
        if found is None:
            break
        detail = f"first apart: {found.first} of {pair.first.label}, {found.second} of "
        detail += pair.second.label + (f"; {found.differs}" if found.differs else "")
        return rung(pair, "layers", "failed", gate=gate, figures=(found.figure,), detail=detail)
    return unrun(pair, "layers", "the outputs that differ are inputs or constants")


def float32_rung(pair: Pair, runs: Runs, agree: bool) -> Rung:
    """Each file's own error by ONNX Runtime, the larger against the smaller.

    Args:
        agree: whether the files do in float64.
    """
    errors: list[list[Figure]] = []
    told = []
    sides = ((pair.first, pair.fed.first), (pair.second, pair.fed.second))
    try:
        for side, (file, batches) in enumerate(sides):
            model = file.model
            if _is_wide(model):
                model = in_precision(model, TensorProto.FLOAT)
                told.append(f"{file.label} is of float64 and was run in float32")
            errors.append(_errors(pair, runs, side, model, batches))
    except DlbError as error:
        return unrun(pair, "forward float32", str(error))
    largest = [
        math.inf if some[0].relative_l2 is None else some[0].relative_l2
        for some in map(worst_first, errors)
    ]
    if agree and max(largest) > FLOAT32_MOST:
        # Before 1.31 the last window of an average pooling in ceil mode, for one.
        reason = f"this ONNX Runtime computes something else: {max(largest):.1e} from the truth"
        return unrun(pair, "forward float32", reason)
    least = min(largest)
    gate = FLOAT32_MULTIPLE * max(least if math.isfinite(least) else 0.0, FLOAT32_LEAST)
    ordered = worst_first([*errors[0], *errors[1]])
    return rung(
        pair,
        "forward float32",
        "passed" if passes(ordered, gate) else "failed",
        against=f"{pair.first.label} in float64",
        gate=gate,
        figures=ordered,
        detail="; ".join(told),
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
    found = []
    for batch, truth in zip(batches, runs.values[0]):
        given = {
            name: array.astype(helper.tensor_dtype_to_np_dtype(types[name]))
            for name, array in batch.items()
        }
        try:
            made = run_model(content, given, threads=1)
        except DlbError as error:
            raise UnsupportedError(f"{file.label}: {error}") from None
        values = {port.name: value for port, value in zip(file.outputs, made)}
        found += [
            figure(f"{names[0]} of {file.label}", values[names[side]], truth[names[0]])
            for names in pair.outputs
        ]
    return found


def _is_wide(model: onnx.ModelProto) -> bool:
    double = TensorProto.DOUBLE
    return any(tensor.data_type == double for tensor in model.graph.initializer) or any(
        value.type.tensor_type.elem_type == double
        for value in (*model.graph.input, *model.graph.output)
    )


def rung(pair: Pair, name: str, word: Any, *, against: str = "", **rest: Any) -> Rung:
    return Rung(
        name=name,
        level=RUNGS[name],
        adapter=pair.second.label,
        against=against or pair.first.label,
        verdict=word,
        **rest,
    )


def unrun(pair: Pair, name: str, reason: str) -> Rung:
    return not_run(name, RUNGS[name], pair.second.label, pair.first.label, reason)
