"""``dropout``: masks that a framework draws itself, compared with the definition of dropout.

All other checks give masks to dropouts, since frameworks draw different random numbers.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from dlb.proof.certificate import CheckResult
from dlb.proof.checks.layers import layer_facts
from dlb.proof.engine import Check, Keep, run
from dlb.proof.findings import AnyCause, Figure, Finding
from dlb.proof.findings.workload import (
    DropoutCount,
    DropoutElement,
    DropoutInEvaluation,
    DropoutShape,
    FewElements,
)
from dlb.proof.update_batches import as_dtype
from dlb.supervision.remote import RemoteModel
from dlb_graph.comparing.distance import figure, worst_first
from dlb_graph.workload import Dropout, Model, infer_shapes
from dlb_graph.workload.noise import noise

__all__ = ["DROPOUT_TOLERANCE", "check_dropout", "prove_dropout"]

Array = npt.NDArray[Any]
Tensors = Mapping[str, Array]
#: An event with a known probability; see :class:`DropoutCount`.
Event = Literal["dropped", "passes_alike", "neighbours_alike"]

#: Relative error of each element: one or two products, each rounded.
DROPOUT_TOLERANCE = 1e-12
FLOAT32_DROPOUT_TOLERANCE = 1e-6
#: Passes in training mode. A mask that comes back after fewer of them is found.
PASSES = 6
#: Probability that one count of correct draws fails. A layer has fewer than ten counts.
FALSE_ALARM = 1e-10
#: Elements that a dropout should drop, so that their number shows its rate to about a tenth. Then the least
#: and the most samples that are used for that.
DROPPED, LEAST_SAMPLES, MOST_SAMPLES = 2048, 16, 256


class DropoutPass(NamedTuple):
    """One pass of a dropout: its input and its output."""

    input: Array
    output: Array


class Mask(NamedTuple):
    """What one pass dropped: bool arrays of the layer's shape.

    Attributes:
        alive: elements whose input is not 0, so that a zero says something.
        dropped: elements whose output is 0.
    """

    alive: Array
    dropped: Array


def prove_dropout(
    model: RemoteModel, described: Model, adapter: str, seed: int, keep: Keep
) -> None:
    """Run the dropouts of a model without given masks, and check what they draw."""
    shapes, source = infer_shapes(described), described.input.name
    drops = [
        (node, math.prod(shapes[node.name]) * node.layer.rate)
        for node in described.wired()
        if isinstance(node.layer, Dropout) and node.layer.rate > 0
    ]
    # Enough samples for the dropout that drops the fewest elements.
    needed = math.ceil(DROPPED / min(dropped for _, dropped in drops))
    samples = max(LEAST_SAMPLES, min(needed, MOST_SAMPLES))
    layers = {name for node, _ in drops for name in (node.name, *node.inputs)} - {source}

    def draw(check: Check) -> CheckResult:
        inputs = as_dtype(noise(described, seed, samples), model.dtype)

        def values(training: bool) -> dict[str, Array]:
            found = model.forward(inputs, training=training, layers=sorted(layers))
            return {source: inputs, **found}

        first, second = values(True), values(True)
        names = [node.name for node, _ in drops]
        sources = {node.name: node.inputs[0] for node, _ in drops}
        later = []
        for _ in range(PASSES - 2):
            drawn = values(True)
            later.append({name: _mask(drawn[sources[name]], drawn[name]) for name in names})
        return check_dropout(
            check,
            described,
            first,
            second,
            values(False),
            model.native_layers,
            later=later,
            dtype=model.dtype,
        )

    name = "dropout" if model.dtype == "float64" else "dropout float32"
    keep(run(Check.of(name, adapter), draw))


def check_dropout(
    check: Check,
    model: Model,
    first: Tensors,
    second: Tensors,
    evaluated: Tensors,
    native: Mapping[str, str],
    *,
    later: Sequence[Mapping[str, Mask]] = (),
    dtype: str = "float64",
) -> CheckResult:
    """Check every dropout with a rate above 0.

    Each element is 0 or its input / (1 - rate). The share of zeros is the rate. Elements are drawn
    independently, and again in every pass. In evaluation mode a dropout is the identity.

    Args:
        first, second: values of every dropout and of its inputs, by name, of two passes in training mode.
        evaluated: the same values of a pass in evaluation mode.
        native: the framework's description of each layer, by name.
        later: what further passes in training mode dropped, by name.
        dtype: of the model.
    """
    tolerance = DROPOUT_TOLERANCE if dtype == "float64" else FLOAT32_DROPOUT_TOLERANCE
    collected: dict[str, Figure] = {}
    faults: list[Finding] = []
    few: list[str] = []
    for node in model.wired():
        if not isinstance(node.layer, Dropout) or not node.layer.rate:
            continue
        name, rate = node.name, node.layer.rate
        first_pass, second_pass, evaluation_pass = (
            DropoutPass(values[node.inputs[0]].astype(np.float64), values[name].astype(np.float64))
            for values in (first, second, evaluated)
        )
        collected[name] = _figure(name, (first_pass, second_pass), evaluation_pass, rate)
        masks = [drawn[name] for drawn in later]
        found = _faults(first_pass, second_pass, evaluation_pass, rate, tolerance, masks)
        fault = next(found, None)
        if fault is not None:
            # A wrong count says nothing about the elements that were kept.
            shown_figure = None if isinstance(fault, DropoutCount) else collected[name]
            facts = layer_facts(model, name, native)
            faults.append(
                Finding(cause=fault, layer=facts, figure=shown_figure, tolerance=tolerance)
            )
        elif not _has_enough_elements(first_pass, second_pass, rate):
            few.append(name)
    compared = worst_first(collected.values())
    if few and not faults:
        reason = Finding(cause=FewElements(layers=tuple(few)))
        return check.not_run(reason, figures=compared, tolerance=tolerance)
    return check.result(compared, tolerance, faults, passed=not faults)


def _figure(
    name: str, passes: tuple[DropoutPass, DropoutPass], evaluation_pass: DropoutPass, rate: float
) -> Figure:
    """The worst figure of three passes: against the kept inputs in training, the input in evaluation."""
    expected = [
        (
            dropout_pass.output,
            np.where(dropout_pass.output == 0, 0.0, dropout_pass.input / (1 - rate)),
        )
        for dropout_pass in passes
    ]
    return worst_first(
        figure(name, *pair) for pair in [*expected, (evaluation_pass.output, evaluation_pass.input)]
    )[0]


def _faults(
    first_pass: DropoutPass,
    second_pass: DropoutPass,
    evaluation_pass: DropoutPass,
    rate: float,
    tolerance: float,
    later: Sequence[Mask],
) -> Iterator[AnyCause]:
    """Everything that is wrong with a dropout."""
    if any(
        dropout_pass.output.shape != dropout_pass.input.shape
        for dropout_pass in (first_pass, second_pass, evaluation_pass)
    ):
        yield DropoutShape()
        return
    if not np.array_equal(evaluation_pass.output, evaluation_pass.input):
        yield DropoutInEvaluation()
    for dropout_pass in (first_pass, second_pass):
        scaled = dropout_pass.input / (1 - rate)
        distance = np.minimum(np.abs(dropout_pass.output), np.abs(dropout_pass.output - scaled))
        if not (distance <= tolerance * np.abs(scaled)).all():
            yield _element(dropout_pass, rate, tolerance)
    counts = [
        DropoutCount(event=event, axis=axis, share=float(hits.mean()), expected=chance)
        for event, axis, hits, chance in _event_counts(first_pass, second_pass, rate)
        if _is_improbable(hits, chance)
    ]
    # What is always or never so moves the other counts.
    yield from sorted(counts, key=lambda count: count.share not in (0, 1))
    chance = rate**2 + (1 - rate) ** 2
    first, second = (_mask(drawn.input, drawn.output) for drawn in (first_pass, second_pass))
    for one, other in itertools.combinations((first, second, *later), 2):
        hits = (one.dropped == other.dropped)[one.alive & other.alive]
        if _is_improbable(hits, chance):
            share = float(hits.mean())
            yield DropoutCount(event="passes_alike", share=share, expected=chance)


def _element(drawn: DropoutPass, rate: float, tolerance: float) -> DropoutElement:
    """That elements are not what they should be, and what they are instead."""
    kept = (drawn.output != 0) & (drawn.input != 0)
    if not kept.any():
        return DropoutElement(rate=rate)
    factors = drawn.output[kept] / drawn.input[kept]
    factor, share = float(np.median(factors)), float((drawn.output == 0)[drawn.input != 0].mean())
    same = np.abs(factors - factor).max() <= tolerance * abs(factor)
    return DropoutElement(rate=rate, factor=factor if same else None, share=share)


def _mask(inputs: Array, outputs: Array) -> Mask:
    return Mask(inputs != 0, outputs == 0)


def _event_counts(
    first_pass: DropoutPass, second_pass: DropoutPass, rate: float
) -> Iterator[tuple[Event, int | None, Array, float]]:
    """Independent events with a known probability: event, axis, bool [n], probability.

    Elements whose input is 0 are left out, since a zero there says nothing.
    """
    alike = rate**2 + (1 - rate) ** 2
    alive, dropped = first_pass.input != 0, first_pass.output == 0
    others_alive, others_dropped = second_pass.input != 0, second_pass.output == 0
    yield "dropped", None, np.concatenate([dropped[alive], others_dropped[others_alive]]), rate
    both = alive & others_alive
    yield "passes_alike", None, (dropped == others_dropped)[both], alike
    for axis in range(dropped.ndim):
        count = dropped.shape[axis] // 2
        evens, odds = (
            tuple(
                slice(start, 2 * count, 2) if a == axis else slice(None)
                for a in range(dropped.ndim)
            )
            for start in (0, 1)
        )
        pairs = alive[evens] & alive[odds]
        yield "neighbours_alike", axis, (dropped[evens] == dropped[odds])[pairs], alike


def _has_enough_elements(first_pass: DropoutPass, second_pass: DropoutPass, rate: float) -> bool:
    """Whether there are enough elements to detect a layer that drops nothing, or the same in each pass."""
    dropped, passes, *_ = _event_counts(first_pass, second_pass, rate)
    return all(
        _is_improbable(np.full_like(hits, extreme), chance)
        for (_, _, hits, chance), extreme in ((dropped, False), (passes, True))
    )


def _is_improbable(hits: Array, chance: float) -> bool:
    """Whether the number of hits is less likely than :data:`FALSE_ALARM`.

    For n independent events of probability p, a share s at this distance from p has a probability of at
    most 2 exp(-n KL(s, p)): Chernoff's bound, Hoeffding 1963, theorem 1.
    """
    if not hits.size:
        return False
    share = float(hits.mean())
    parts = ((share, chance), (1 - share, 1 - chance))
    divergence = sum(s * math.log(s / p) for s, p in parts if s > 0)
    return 2 * math.exp(-hits.size * divergence) < FALSE_ALARM
