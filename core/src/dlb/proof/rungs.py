"""The rungs, a function each. Each takes what was computed and gives verdicts; none computes models.

A rung is added by writing one more such function and calling it in :mod:`dlb.proof.ladder`.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import numpy.typing as npt

from dlb.proof.certificate import Figure, Level, Rung, Verdict
from dlb.proof.distance import (
    figure,
    figures,
    norm,
    passes,
    pieces,
    relative_l2,
    same_bits,
    worst_first,
)
from dlb.workload import Layer, Model, type_name

if TYPE_CHECKING:
    from dlb.proof.reference import Slope

__all__ = [
    "ALONE",
    "FLOAT64_GATE",
    "LONGER",
    "agreed",
    "agreement_rungs",
    "alone_rung",
    "comparable",
    "culprit",
    "distributed_rung",
    "export_rung",
    "file_rung",
    "float32_rungs",
    "forward_rung",
    "gradient_errors",
    "growth",
    "masks_rung",
    "not_run",
    "rounding_rung",
    "slope_rung",
    "structure_rung",
    "trajectory_rung",
    "update_float32_rung",
    "update_rung",
    "weights_rung",
]

Array = npt.NDArray[Any]
Tensors = Mapping[str, Array]

CANONICAL = "canonical graph in float64"
DEFINITION = "the optimizer's definition, on the adapter's own gradients, in float64"
ALONE = "canonical layer in float64, given the adapter's own inputs to it"

#: In float64 the same mathematics agrees to about 1e-15; another meaning shows far above this.
FLOAT64_GATE = 1e-10
#: A float32 result may be this many times as far from the truth as the nearest one is.
FLOAT32_MULTIPLE = 20.0
#: The same of the error that moving the weights by a few units in their last place makes.
NUDGE_MULTIPLE = 1.25
#: Rounding of float32 itself; no result is asked to be nearer than some of it.
FLOAT32_LEAST = 1e-6
#: An exported model and the object it was exported from compute the same sums in another order.
EXPORT_GATES = {"float32": 1e-5, "float64": FLOAT64_GATE}
#: Central differences of a piecewise smooth loss; their own error is well below this.
SLOPE_GATE = 1e-5
#: A gradient this small beside the whole one is rounding.
NOISE = 1e-6
#: Across adapters a gradient this small beside the whole one is judged by the whole: at the gate, by
#: 1e-13 of it. Rounding leaves some 1e-15 of a gradient that is zero (a bias's before a batch
#: normalisation), and nobody can ask two adapters to round alike.
SMALL = 1e-3
#: The same in float32: no result is asked to be nearer than 20 times FLOAT32_LEAST of this, 5e-6 of
#: the whole. Sums that cancel (the backward of a batch normalisation) leave up to 3e-6 of it.
FLOAT32_SMALL = 0.25
#: A gradient this small beside the whole one in float64 is what rounding left of zero.
ROUNDED = 1e-12
#: How much longer steps are taken to see what rounding may make of a trajectory: gradients that agree
#: so well are the same.
LONGER = 1e-12
#: A change this small beside the weight it changes is rounded to fewer digits than the gate asks for.
CHANGE_LEAST = 1e-5
#: Where no change is above this, beside the weight, one a tenth too large would be within the gate.
CHANGE_SEEN = 1e-14


def verdict(passed: bool) -> Verdict:
    return "passed" if passed else "failed"


def not_run(name: str, level: Level, adapter: str, against: str, reason: str) -> Rung:
    """A rung that could not be run, which never counts as passed."""
    return Rung(
        name=name, level=level, adapter=adapter, against=against, verdict="not run", detail=reason
    )


def masks_rung(adapter: str, contract: Sequence[int]) -> Rung:
    """Why an adapter is proven without the dropout that its workload has."""
    made = ".".join(map(str, contract))
    return Rung(
        name="dropout masks",
        level="forward",
        adapter=adapter,
        against="canonical graph in float64",
        verdict="not run",
        detail=f"its adapter is made for contract {made} and takes no masks (1.2 has them): what "
        "training does was compared with every dropout at rate 0",
    )


def file_rung(
    against: str, found: Sequence[Figure], differences: str, undecided: Collection[str]
) -> Rung:
    """The canonical graph against the file that it was read from; of no adapter yet.

    Args:
        found: its logits on noise, against the file's.
        differences: of their structures, in words.
        undecided: operators that only one of them has and that noise cannot decide about.
    """
    detail = f"other operators: {', '.join(undecided)}: {differences}" if undecided else ""
    if differences and not undecided:
        detail = f"written differently, in analytic operators, so that values decide: {differences}"
    ordered = worst_first(found)
    return Rung(
        name="file",
        level="file",
        adapter="",
        against=against,
        verdict=verdict(passes(ordered, FLOAT64_GATE) and not undecided),
        gate=FLOAT64_GATE,
        figures=ordered,
        detail=detail,
    )


def weights_rung(adapter: str, dtype: str, found: Tensors, seeded: Tensors) -> Rung:
    """Every parameter after loading, bit for bit."""
    expected = {name: array.astype(dtype) for name, array in seeded.items()}
    wrong = [
        name
        for name in {**expected, **found}
        if name not in found or name not in expected or not same_bits(found[name], expected[name])
    ]
    return Rung(
        name=f"weights {dtype}",
        level="weights",
        adapter=adapter,
        against="the weights it was given, bit for bit",
        verdict=verdict(not wrong),
        figures=figures(found, expected),
        detail=f"not the same bits: {', '.join(wrong)}" if wrong else "",
    )


def forward_rung(
    adapter: str,
    name: str,
    model: Model,
    found: Tensors,
    truth: Tensors,
    native: Mapping[str, str],
) -> Rung:
    """Values of a forward pass against the canonical graph's in float64.

    The first layer past the gate is named, as it is described and as the framework says that it
    built it.

    Args:
        native: what the framework says of each layer, by name.
    """
    compared = figures(found, truth)
    return _layers_rung(name, "forward", adapter, CANONICAL, model, compared, FLOAT64_GATE, native)


def rounding_rung(
    adapter: str,
    model: Model,
    found: Tensors,
    truth: Tensors,
    gate: float,
    witness: float,
    native: Mapping[str, str],
) -> Rung:
    """Values of a float32 forward pass against the canonical graph's in float64.

    Args:
        witness: distance of ONNX Runtime's, on the canonical graph.
        native: what the framework says of each layer, by name.
    """
    name = "forward float32"
    compared = figures(found, truth)
    rung = _layers_rung(name, "float32", adapter, CANONICAL, model, compared, gate, native)
    told = f"ONNX Runtime on the canonical graph: {witness:.1e}"
    if all(len(array) > 1 and (array == array[:1]).all() for array in truth.values()):
        told += "; at these weights the logits are the same for every input"
    return msgspec.structs.replace(rung, detail="; ".join(filter(None, (told, rung.detail))))


def alone_rung(
    adapter: str,
    name: str,
    model: Model,
    found: Tensors,
    truth: Iterable[tuple[str, Array]],
    native: Mapping[str, str],
) -> Rung:
    """Each layer's value against the canonical layer's, given the adapter's own inputs to it.

    So no layer answers for the errors of those before it.
    """
    compared = worst_first(figure(layer, found[layer], value) for layer, value in truth)
    return _layers_rung(name, "layers", adapter, ALONE, model, compared, FLOAT64_GATE, native)


def _layers_rung(
    name: str,
    level: Level,
    adapter: str,
    against: str,
    model: Model,
    ordered: tuple[Figure, ...],
    gate: float,
    native: Mapping[str, str],
) -> Rung:
    past = {one.tensor for one in ordered if not passes((one,), gate)}
    first = next((node.name for node in model.nodes if node.name in past), None)
    return Rung(
        name=name,
        level=level,
        adapter=adapter,
        against=against,
        verdict=verdict(passes(ordered, gate)),
        gate=gate,
        figures=ordered,
        detail=culprit(adapter, model, first, native) if first else "",
    )


def culprit(adapter: str, model: Model, name: str, native: Mapping[str, str]) -> str:
    """The layer to blame: as it is described, and as the framework says that it built it."""
    (layer,) = (node.layer for node in model.nodes if node.name == name)
    built = " ".join(native.get(name, "").split())
    said = f"; in {adapter}: {built}" if built else ""
    return f"first layer past the gate: {name}, {shown(layer)}{said}"


def shown(layer: Layer) -> str:
    """A layer's type and attributes as its description writes them: ``lrn(size=5, alpha=0.01)``."""
    fields = msgspec.structs.asdict(layer)
    inside = ", ".join(
        f"{key}={list(value) if isinstance(value, tuple) else value}"
        for key, value in fields.items()
    )
    return f"{type_name(layer)}({inside})"


def slope_rung(adapter: str, slopes: Mapping[str, Slope]) -> Rung:
    """Directional derivatives: the adapter's gradient against finite differences, by what is moved."""
    found = worst_first(
        figure(name, np.array([one.gradient]), np.array([one.difference]), one.typical)
        for name, one in slopes.items()
    )
    return Rung(
        name="gradients by differences",
        level="gradients",
        adapter=adapter,
        against="finite differences of the canonical graph's loss in float64",
        verdict=verdict(passes(found, SLOPE_GATE)),
        gate=SLOPE_GATE,
        figures=found,
        detail="central differences, step "
        + ", ".join(f"{one.step:.1e} along {name}" for name, one in slopes.items()),
    )


def update_rung(
    adapter: str, steps: int, start: Tensors, found: Tensors, truth: Tensors, running: Tensors
) -> Rung:
    """What one step changed, optimizer state and running statistics too, against the definition."""
    return _change_rung("update", "update", adapter, steps, start, found, truth, running)


def trajectory_rung(
    adapter: str, steps: int, start: Tensors, found: Tensors, truth: Tensors, running: Tensors
) -> Rung:
    """What many steps changed, against the definition fed with the adapter's own gradients."""
    return _change_rung("trajectory", "trajectory", adapter, steps, start, found, truth, running)


def _change_rung(
    name: str,
    level: Level,
    adapter: str,
    steps: int,
    start: Tensors,
    found: Tensors,
    truth: Tensors,
    running: Tensors,
) -> Rung:
    """Changes rather than weights: a wrong rate is small beside a weight, not beside its change.

    Args:
        start: weights and running statistics before the first step; what is not in it started at
            zero.
        found: both and ``layer.parameter.slot`` after the last.
        truth, running: trained weights and slots, and running statistics, as they should be.
    """
    if not _moves(start, truth):
        return not_run(name, level, adapter, DEFINITION, _still(steps))
    ordered = _changes(start, found, {**truth, **running})
    return Rung(
        name=name,
        level=level,
        adapter=adapter,
        against=DEFINITION,
        verdict=verdict(passes(ordered, FLOAT64_GATE)),
        gate=FLOAT64_GATE,
        figures=ordered,
        detail=f"{steps} step{'s' if steps > 1 else ''}",
    )


def _still(steps: int) -> str:
    """Why steps that move nothing are not judged."""
    return (
        f"in {steps} step{'s' if steps > 1 else ''} no weight moves by more than its rounding: a wrong "
        "step would look the same; raise optimizer.learning_rate, or start from other weights"
    )


def _moves(start: Tensors, truth: Tensors) -> bool:
    """Whether any weight that is trained should have changed so that it shows. A NaN does."""
    for name in start.keys() & truth.keys():
        apart = (after - before for after, before in pieces(truth[name], start[name]))
        moved = math.sqrt(sum(float(one @ one) for one in apart))
        if not moved <= CHANGE_SEEN * norm([start[name]]):
            return True
    return False


def _changes(start: Tensors, found: Tensors, truth: Tensors) -> tuple[Figure, ...]:
    """How far what was changed is from what should have been, worst first."""
    collected = []
    slots: dict[str, dict[str, Array]] = {}
    for tensor, array in truth.items():
        if tensor not in start:
            slots.setdefault(tensor.rsplit(".", 1)[1], {})[tensor] = array
    floors = {slot: floor(some) for slot, some in slots.items()}
    for tensor in {**truth, **found}:
        expected, own = truth.get(tensor), found.get(tensor)
        if expected is None or own is None or own.shape != expected.shape:
            collected.append(Figure(tensor=tensor, relative_l2=None, largest=None))
            continue
        before = start.get(tensor)
        least = (
            floors[tensor.rsplit(".", 1)[1]] if before is None else CHANGE_LEAST * norm([before])
        )
        collected.append(figure(tensor, own, expected, least, before))
    return worst_first(collected)


def update_float32_rung(
    adapter: str, steps: int, start: Tensors, found: Tensors, truth: Tensors, witness: Tensors
) -> Rung:
    """What some float32 steps changed, against the definition fed with the adapter's own gradients.

    Args:
        start: float64 weights before the first step.
        found, truth: weights and ``layer.parameter.slot`` after the last; float32, and float64.
        witness: what NumPy makes of it in float32.
    """
    if not _moves(start, truth):
        return not_run("update float32", "float32", adapter, DEFINITION, _still(steps))
    rounding = {one.tensor: one.relative_l2 for one in _changes(start, witness, truth)}
    changes = _changes(start, found, truth)
    allowed = {one.tensor: max(rounding.get(one.tensor) or 0.0, FLOAT32_LEAST) for one in changes}
    ordered, worst, multiple = _beside(changes, allowed)
    return Rung(
        name="update float32",
        level="float32",
        adapter=adapter,
        against=DEFINITION,
        verdict=verdict(bool(ordered) and multiple <= FLOAT32_MULTIPLE),
        gate=FLOAT32_MULTIPLE * allowed.get(worst, FLOAT32_LEAST),
        figures=ordered,
        detail=f"{steps} step{'s' if steps > 1 else ''}; {multiple:.1f} times what "
        f"float32 makes of {worst} in NumPy; allowed {FLOAT32_MULTIPLE:.0f}",
    )


def _beside(
    found: Iterable[Figure], errors: Mapping[str, float]
) -> tuple[tuple[Figure, ...], str, float]:
    """Figures by how many times their tensor's own error they are; the first's tensor and number.

    Where each tensor has a gate of its own, the first of the figures is held against the rung's.
    """

    def multiple(one: Figure) -> float:
        return (np.inf if one.relative_l2 is None else one.relative_l2) / errors[one.tensor]

    ordered = tuple(sorted(found, key=multiple, reverse=True))
    return (ordered, ordered[0].tensor, multiple(ordered[0])) if ordered else ((), "", 0.0)


def growth(found: Tensors, beside: Tensors) -> float:
    """The largest distance of any tensor between what two trajectories of one adapter changed, as
    :func:`agreement_rungs` measures it between adapters.

    Args:
        beside: all of ``found``, or more.
    """
    least = floor(found, SMALL)
    return max((relative_l2(beside[name], found[name], least) for name in found), default=0.0)


def comparable(
    steps: Collection[int], growths: Mapping[int, float], apart: float = 0.0
) -> tuple[int, str]:
    """After how many steps trajectories can be compared, and the rung's detail.

    Args:
        steps: after which they were looked at.
        growths: what steps that are :data:`LONGER` grow to after each; none where it is unknown.
        apart: how far gradients that agree are apart, of any adapter: so much grows, too.
    """
    asked, more = max(steps), max(1.0, apart / LONGER)
    near = [step for step in steps if more * growths.get(step, 0.0) <= FLOAT64_GATE]
    chosen = max(near, default=min(steps))
    if chosen == asked:
        return chosen, f"{asked} step{'s' if asked > 1 else ''}"
    grown = f"in {asked}, steps {LONGER:.0e} longer end {growths[asked]:.0e} apart"
    if more > 1.0:
        grown += f", and gradients are {apart:.0e} apart"
    return chosen, f"after {chosen} of {asked} steps: {grown}"


def agreed(found: Collection[Rung]) -> float:
    """The largest distance between gradients of adapters whose gradients agree."""
    agreeing = [one for rung in found if rung.verdict == "passed" for one in rung.figures]
    return max((one.relative_l2 or 0.0 for one in agreeing), default=0.0)


def agreement_rungs(
    name: str,
    level: Level,
    found: Mapping[str, Tensors],
    sound: Collection[str],
    detail: str = "",
) -> list[Rung]:
    """Tensors of every adapter against the other adapters', in float64.

    An adapter's figure for a tensor is its median distance to the others, so that one that is
    wrong among three or more does not make the others look wrong. An adapter with no others to be
    held against gets no rung.

    Args:
        found: ``loss``, ``input`` and parameter gradients, by adapter.
        sound: adapters that the others are held against: what already differs from the neutral
            truth is no witness.
    """
    rungs = []
    least = {adapter: floor(tensors, SMALL) for adapter, tensors in found.items()}
    for adapter, own in found.items():
        others = {
            other: tensors
            for other, tensors in found.items()
            if other != adapter and other in sound
        }
        if not others:
            continue
        collected: list[Figure] = []
        for tensor, array in own.items():
            distances = [
                relative_l2(array, tensors.get(tensor, np.full(1, np.nan)), least[each])
                for each, tensors in others.items()
            ]
            middle = statistics.median_low(distances)
            nearest = min(
                others, key=lambda other: abs(distances[list(others).index(other)] - middle)
            )
            other = others[nearest].get(tensor, np.full(1, np.nan))
            one = figure(tensor, array, other, least[adapter])
            finite = middle if np.isfinite(middle) else None
            collected.append(msgspec.structs.replace(one, relative_l2=finite))
        ordered = worst_first(collected)
        rungs.append(
            Rung(
                name=name,
                level=level,
                adapter=adapter,
                against=f"{', '.join(others)} in float64",
                verdict=verdict(passes(ordered, FLOAT64_GATE)),
                gate=FLOAT64_GATE,
                figures=ordered,
                detail=detail,
            )
        )
    return rungs


def float32_rungs(
    found: Mapping[str, Sequence[Sequence[Figure]]], nudged: Sequence[Sequence[Figure]]
) -> list[Rung]:
    """Errors of float32 gradients to the truth, judged as multiples of the best adapter's.

    Never adapter against adapter: two that round alike would prove each other. Of several batches,
    each tensor's figure is the one of median error: where rounding takes a value across the kink
    of a ReLU, or another element wins a pooling, a gradient jumps though nothing is wrong; what is
    computed too coarsely is wrong in every batch. Deep networks may meet a kink in every batch too,
    and the best adapter may have been lucky: an error is also allowed that float64 has from weights
    that are a few units in the last place of float32 beside.

    Args:
        found: :func:`gradient_errors` of several batches in float32, by adapter.
        nudged: those of one adapter in float64, at such weights.
    """
    every = {adapter: _middle(batches) for adapter, batches in found.items()}
    known: dict[str, float] = {}
    for batch in nudged:
        for one in batch:
            known[one.tensor] = max(known.get(one.tensor, 0.0), one.relative_l2 or 0.0)
    best: dict[str, float] = {}
    for some in every.values():
        for one in some:
            error = np.inf if one.relative_l2 is None else one.relative_l2
            best[one.tensor] = min(best.get(one.tensor, np.inf), error)
    allowed = {
        name: max(error, FLOAT32_LEAST, known.get(name, 0.0) * NUDGE_MULTIPLE / FLOAT32_MULTIPLE)
        for name, error in best.items()
    }
    rungs = []
    for adapter, some in every.items():
        ordered, worst, multiple = _beside(some, allowed)
        rungs.append(
            Rung(
                name="gradients float32",
                level="float32",
                adapter=adapter,
                against="its own in float64, as a multiple of the best adapter's error",
                verdict=verdict(bool(ordered) and multiple <= FLOAT32_MULTIPLE),
                gate=FLOAT32_MULTIPLE * allowed.get(worst, FLOAT32_LEAST),
                figures=ordered,
                detail=f"{multiple:.1f} times the best error in {worst}, or a "
                f"sixteenth of what moving the weights makes; allowed {FLOAT32_MULTIPLE:.0f}",
            )
        )
    return rungs


def gradient_errors(found: Tensors, truth: Tensors) -> tuple[Figure, ...]:
    """Errors of one batch's loss and gradients to those in float64, worst first; of a gradient
    that is zero by the whole gradient."""
    whole = floor(truth, 1.0)
    nothing = np.full(1, np.nan)
    return worst_first(
        figure(
            name,
            found.get(name, nothing),
            array,
            whole if np.linalg.norm(array) <= ROUNDED * whole else FLOAT32_SMALL * whole,
        )
        for name, array in truth.items()
    )


def _middle(batches: Sequence[Sequence[Figure]]) -> tuple[Figure, ...]:
    """For each tensor the figure of the batch with the median error; an infinite one, which no kink
    makes, wherever there is one."""
    by: dict[str, list[Figure]] = {}
    for some in batches:
        for one in some:
            by.setdefault(one.tensor, []).append(one)
    ordered = map(worst_first, by.values())
    return worst_first(
        ones[0 if ones[0].relative_l2 is None else len(ones) // 2] for ones in ordered
    )


def floor(tensors: Tensors, share: float = NOISE) -> float:
    """The norm below which a gradient among these is too small to be judged by itself."""
    return share * norm(array for name, array in tensors.items() if name not in ("loss", "input"))


def structure_rung(
    adapter: str, canonical: Any, exported: Path, weights: Callable[[], Tensors]
) -> Rung:
    """The exported graph's operators, attributes, shapes and parameters against the canonical's.

    Args:
        weights: gives those that were exported; asked only where some may have been left out.
    """
    import onnx

    from dlb.graph.structure import compare_structure

    graph = onnx.load(str(exported), load_external_data=False)
    found = compare_structure(canonical, graph, {})
    if any(each.what in ("bias", "parameters") for each in found.differences):
        found = compare_structure(canonical, graph, weights())
    return Rung(
        name="structure",
        level="structure",
        adapter=adapter,
        against="canonical ONNX graph",
        verdict=verdict(found.equal),
        detail="; ".join(str(difference) for difference in found.differences),
    )


def export_rung(adapter: str, dtype: str, exported: Array, own: Array) -> Rung:
    """The exported model's logits against the timed object's own, after timing."""
    found = figures({"logits": exported}, {"logits": own})
    gate = EXPORT_GATES[dtype]
    return Rung(
        name="export",
        level="export",
        adapter=adapter,
        against="the timed object's own predictions",
        verdict=verdict(passes(found, gate)),
        gate=gate,
        figures=found,
    )


def distributed_rung(
    adapter: str, workers: int, steps: int, found: Sequence[Tensors], alone: Tensors
) -> Rung:
    """Weights of K workers after some steps against one worker's on the same global batches."""
    every = [figures(one, alone) for one in found]
    ordered = worst_first(one for some in every for one in some)
    apart = [
        name for name in alone if any(not same_bits(one[name], found[0][name]) for one in found[1:])
    ]
    detail = f"{workers} workers, {steps} steps"
    if apart:
        detail += f"; workers differ among themselves in {', '.join(apart)}"
    return Rung(
        name="distributed",
        level="distributed",
        adapter=adapter,
        against="one worker on the same global batches, in float64",
        verdict=verdict(passes(ordered, FLOAT64_GATE)),
        gate=FLOAT64_GATE,
        figures=ordered,
        detail=detail,
    )
