"""The rungs of two ONNX files, and the certificate that they make.

In float64, files that compute the same agree to rounding, and one that does not stands out: the
second file is held to 1e-10 of the first. Values show agreement where they were tried. What shows
it elsewhere is that both are made of the same operators with the same numbers, or that what is
written differently is analytic (:mod:`dlb.proof.files.analytic`).
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper, numpy_helper

from dlb.errors import DlbError, UnsupportedError
from dlb.graph.evaluate import Evaluator
from dlb.graph.precision import in_precision
from dlb.graph.runtime import run_model
from dlb.graph.structure import compare_structure
from dlb.graph.trace import Trace, trace
from dlb.proof.certificate import Certificate, Figure, Rung
from dlb.proof.distance import figure, passes, relative_l2, worst_first
from dlb.proof.files.analytic import not_decided
from dlb.proof.files.inputs import Fed, feed, paired
from dlb.proof.files.parting import called, first_parting
from dlb.proof.files.read import ModelFile, nodes_within, read_model_file
from dlb.proof.files.weights import FOLDED_GATE, Matched, match_weights
from dlb.proof.reference import FLOAT32_LEAST
from dlb.proof.rungs import FLOAT32_MULTIPLE, FLOAT64_GATE, not_run

__all__ = ["RUNGS", "verify_files"]

Array = npt.NDArray[Any]
Values = dict[str, Array]

#: Every rung that there may be, in order.
RUNGS = ("structure", "weights", "forward float64", "layers", "forward float32")
#: Differences listed in a rung's detail.
_LISTED = 6
#: Half a unit in the last place of float32: what rounding may do to a weight, relatively.
_ROUNDING = 2.0**-24
#: Types of attribute that structures do not compare.
_HELD = {
    onnx.AttributeProto.GRAPH,
    onnx.AttributeProto.GRAPHS,
    onnx.AttributeProto.TENSOR,
    onnx.AttributeProto.TENSORS,
    onnx.AttributeProto.SPARSE_TENSOR,
    onnx.AttributeProto.SPARSE_TENSORS,
}


def verify_files(
    first: Path, second: Path, given: Path | None = None, seed: int = 0
) -> Certificate:
    """Hold the second file against the first.

    Args:
        given: an .npz file with the inputs; seeded noise that fits when left out.
        seed: of the noise.

    Returns:
        A certificate whose rungs are of one adapter, the second file. ``workload`` names both
        files, ``workload_hash`` is the SHA-256 of the first file's bytes, ``seed`` is that of the
        inputs, and ``adapters`` has the producer and the operator set of each file.

    Raises:
        DataError, UnsupportedError, RequestError: a file cannot be read, the two read different
            things, or the inputs do not fit.
    """
    labels = [path.name for path in (first, second)]
    if labels[0] == labels[1]:
        labels = [str(first), str(second)]
    ours, theirs = (read_model_file(path, label) for path, label in zip((first, second), labels))
    outputs, told = paired("outputs", ours, theirs)
    fed = feed(ours, theirs, given, seed)
    pair = _Pair(
        ours,
        theirs,
        fed,
        [(a.name, b.name) for a, b in outputs],
        "; ".join(each for each in (fed.told, told) if each),
    )
    # What overflows is found as an infinity; NumPy need not warn of it as well.
    with np.errstate(all="ignore"):
        rungs = tuple(_climb(pair, np.random.default_rng(seed)))
    return Certificate(
        workload=f"{labels[0]} and {labels[1]}",
        workload_hash=ours.sha256,
        seed=seed,
        adapters={each.label: each.described for each in (ours, theirs)},
        rungs=rungs,
    )


@dataclass(frozen=True)
class _Pair:
    """Two files and what they are fed; ``outputs`` are pairs of names."""

    first: ModelFile
    second: ModelFile
    fed: Fed
    outputs: list[tuple[str, str]]
    told: str


@dataclass(frozen=True)
class _Runs:
    """Both models in float64: traces of the first batch, and every batch's outputs by the first's
    names."""

    traces: tuple[Trace, Trace]
    values: tuple[list[Values], list[Values]]


@dataclass(frozen=True)
class _Structure:
    """How two graphs compare; ``hidden`` batch normalisations are folded or written out in one."""

    equal: bool
    detail: str
    hidden: bool = False
    compared: bool = True


def _climb(pair: _Pair, draw: np.random.Generator) -> list[Rung]:
    """Every rung, in order; what structure and weights amount to depends on the values."""
    clock = _Clock()
    try:
        runs = _run(pair)
    except DlbError as error:
        names = [name for name in RUNGS if name != "layers"]
        return [_not_run(pair, name, str(error)) for name in names]
    run_seconds = clock.lap()
    structure = _structure(pair, runs)
    structure_seconds = clock.lap()
    matched = match_weights(*runs.traces, folding=structure.equal and structure.hidden)
    weights_seconds = clock.lap()
    gate = _float64_gate(pair, runs, matched, draw)
    forward = clock.stamp(_forward_rung(pair, runs, gate), run_seconds)
    agree = forward.verdict == "passed"
    rungs = [clock.stamp(_structure_rung(pair, runs, structure, agree), structure_seconds)]
    if matched.figures:
        rungs.append(clock.stamp(_weights_rung(pair, matched, structure, agree), weights_seconds))
    rungs.append(forward)
    if not agree:
        rungs.append(clock.stamp(_layers_rung(pair, runs, gate)))
    rungs.append(clock.stamp(_float32_rung(pair, runs)))
    return rungs


class _Clock:
    """What each rung cost."""

    def __init__(self) -> None:
        self._began = time.perf_counter()

    def lap(self) -> float:
        """Seconds since the last call."""
        before, self._began = self._began, time.perf_counter()
        return self._began - before

    def stamp(self, rung: Rung, more: float = 0.0) -> Rung:
        """The rung with the seconds since the last call, and those before."""
        return msgspec.structs.replace(rung, seconds=self.lap() + more)


# --- running ---------------------------------------------------------------------------------


def _run(pair: _Pair) -> _Runs:
    """Raises UnsupportedError, with the file, if a graph cannot be evaluated in float64."""
    traces: list[Trace] = []
    values: tuple[list[Values], list[Values]] = ([], [])
    sides = ((pair.first, pair.fed.first), (pair.second, pair.fed.second))
    for side, (file, batches) in enumerate(sides):
        for place, batch in enumerate(batches):
            traced = _traced(file, batch)
            if not place:
                traces.append(traced)
            found = {names[0]: traced.values[names[side]] for names in pair.outputs}
            for name, value in found.items():
                if value.dtype.kind == "f" and value.dtype != np.float64:
                    raise UnsupportedError(
                        f"{file.label}: '{name}' is evaluated in {value.dtype}, not in float64"
                    )
            values[side].append(found)
    return _Runs((traces[0], traces[1]), values)


def _traced(file: ModelFile, batch: Mapping[str, Array]) -> Trace:
    try:
        return trace(_settled(file.wide, batch), batch)
    except DlbError as error:
        raise UnsupportedError(f"{file.label}: {error}") from None


def _settled(model: onnx.ModelProto, batch: Mapping[str, Array]) -> onnx.ModelProto:
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


# --- structure and weights -------------------------------------------------------------------


def _structure(pair: _Pair, runs: _Runs) -> _Structure:
    if pair.first.opset == pair.second.opset and pair.first.wide.graph == pair.second.wide.graph:
        return _Structure(True, "")
    for file, traced in zip((pair.first, pair.second), runs.traces):
        for node in nodes_within(file.wide.graph.node):
            # A branch that is taken whatever goes in is compared as if it stood alone.
            reads = node.input if node.op_type == "If" else node.output
            if _holds(node) and not traced.live.isdisjoint(reads):
                return _Structure(
                    False,
                    f"{file.label}: {node.op_type} '{called(node)}' depends on the input and holds "
                    "a graph or a tensor of its own, which is not compared",
                    compared=False,
                )
    settled = [
        _settled(file.wide, batches[0])
        for file, batches in ((pair.first, pair.fed.first), (pair.second, pair.fed.second))
    ]
    try:
        found = compare_structure(settled[0], settled[1])
        hides = pair.second.label
        if not found.equal:
            # Which of the two has batch normalisation folded away is not known.
            other = compare_structure(settled[1], settled[0])
            if other.equal:
                found, hides = other, pair.first.label
    except DlbError as error:
        return _Structure(False, str(error), compared=False)
    if found.equal and found.unseen:
        names = ", ".join(f"'{name}'" for name in found.unseen)
        return _Structure(
            True, f"batch normalisation that {hides} has folded or written out: {names}", True
        )
    listed = [str(each) for each in found.differences]
    more = f"; and {len(listed) - _LISTED} more" if len(listed) > _LISTED else ""
    return _Structure(found.equal, "; ".join(listed[:_LISTED]) + more)


def _holds(node: onnx.NodeProto) -> bool:
    return node.op_type != "Constant" and any(each.type in _HELD for each in node.attribute)


def _structure_rung(pair: _Pair, runs: _Runs, found: _Structure, agree: bool) -> Rung:
    """Other operators are a difference only if other values come of them."""
    if found.equal:
        return _rung(pair, "structure", "passed", detail=found.detail)
    if not found.compared:
        return _not_run(pair, "structure", found.detail)
    if not agree:
        return _rung(pair, "structure", "failed", detail=found.detail)
    open_pieces = not_decided(*runs.traces, FLOAT64_GATE)
    if not open_pieces:
        return _rung(
            pair,
            "structure",
            "passed",
            detail=f"written differently, but in analytic operators, so that values decide: "
            f"{found.detail}",
        )
    return _not_run(
        pair,
        "structure",
        "written differently, and equal where it was tried; that shows nothing about inputs that "
        f"take another side of {', '.join(open_pieces[:_LISTED])}: {found.detail}",
    )


def _weights_rung(pair: _Pair, matched: Matched, structure: _Structure, agree: bool) -> Rung:
    detail = "; ".join(matched.unmatched[:_LISTED])
    if len(matched.unmatched) > _LISTED:
        detail += f"; and {len(matched.unmatched) - _LISTED} more"
    if matched.unmatched and agree and not structure.equal:
        return _not_run(
            pair,
            "weights",
            f"written differently, so that these cannot be held against each other: {detail}",
        )
    folded = [each.name for side in matched.folded for each in side]
    if folded and not detail:
        detail = f"batch normalisation folded into: {', '.join(folded)}"
    return _rung(
        pair,
        "weights",
        "failed" if matched.unmatched else "passed",
        gate=FOLDED_GATE if folded else None,
        figures=matched.figures,
        detail=detail,
    )


# --- values ----------------------------------------------------------------------------------


def _float64_gate(pair: _Pair, runs: _Runs, matched: Matched, draw: np.random.Generator) -> float:
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


def _forward_rung(pair: _Pair, runs: _Runs, gate: float) -> Rung:
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
        detail += f"; a NaN or an infinity in {', '.join(unsound[:_LISTED])}: "
        detail += "give inputs that both are made for with --input"
    if gate > FLOAT64_GATE:
        detail += "; the gate is what rounding of the folded weights does, times 20"
    return _rung(
        pair,
        "forward float64",
        "passed" if passes(ordered, gate) else "failed",
        gate=gate,
        figures=ordered,
        detail=detail,
    )


def _layers_rung(pair: _Pair, runs: _Runs, gate: float) -> Rung:
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
                _traced(pair.first, pair.fed.first[place]),
                _traced(pair.second, pair.fed.second[place]),
            )
        found = first_parting(*traces, apart, FLOAT64_GATE)
        if found is None:
            break
        detail = f"first apart: {found.first} of {pair.first.label}, {found.second} of "
        detail += pair.second.label + (f"; {found.differs}" if found.differs else "")
        return _rung(pair, "layers", "failed", gate=gate, figures=(found.figure,), detail=detail)
    return _not_run(pair, "layers", "the outputs that differ are inputs or constants")


def _float32_rung(pair: _Pair, runs: _Runs) -> Rung:
    """Each file's own error by ONNX Runtime, the larger against the smaller."""
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
        return _not_run(pair, "forward float32", str(error))
    largest = [
        math.inf if some[0].relative_l2 is None else some[0].relative_l2
        for some in map(worst_first, errors)
    ]
    least = min(largest)
    gate = FLOAT32_MULTIPLE * max(least if math.isfinite(least) else 0.0, FLOAT32_LEAST)
    ordered = worst_first([*errors[0], *errors[1]])
    return _rung(
        pair,
        "forward float32",
        "passed" if passes(ordered, gate) else "failed",
        against=f"{pair.first.label} in float64",
        gate=gate,
        figures=ordered,
        detail="; ".join(told),
    )


def _errors(
    pair: _Pair,
    runs: _Runs,
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


def _rung(pair: _Pair, name: str, word: Any, *, against: str = "", **rest: Any) -> Rung:
    return Rung(
        name=name,
        adapter=pair.second.label,
        against=against or pair.first.label,
        verdict=word,
        **rest,
    )


def _not_run(pair: _Pair, name: str, reason: str) -> Rung:
    return not_run(name, pair.second.label, pair.first.label, reason)
