"""``isolated layers, extremes`` and ``gradients float64, extremes``: layers at their bounds and in ties.

Each case of :mod:`dlb.proof.extremes` is another set of weights and inputs of the same model, in training mode.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from dlb.proof.certificate import CheckGroup, CheckResult
from dlb.proof.checks.backward import (
    backward_otherwise,
    gradient_figures,
    missing_values,
    nearest_the_loss,
    own_gradients,
)
from dlb.proof.checks.layers import layer_facts
from dlb.proof.engine import Check, Keep, run
from dlb.proof.extremes import ExtremeKind
from dlb.proof.findings import Figure, Finding
from dlb.proof.findings.workload import Extremes, LayerDiffers, Otherwise
from dlb.proof.reference import Reference
from dlb.proof.update_batches import as_dtype
from dlb.supervision.remote import RemoteModel
from dlb.threads import together
from dlb_graph.comparing.distance import figure, relative_l2
from dlb_graph.comparing.near_misses import layer_otherwise
from dlb_graph.comparing.tolerances import (
    EXTREME_SMALL,
    EXTREME_TOLERANCE,
    FLOAT32_MULTIPLE,
    FLOAT64_FINER,
    FLOAT64_TOLERANCE,
    SMALL,
    Tensors,
)

__all__ = ["prove_extremes"]

Array = npt.NDArray[Any]
#: What is further off is wrong, whatever rounding moves it by.
MOST_MAGNIFIED = 1e-5


@dataclass(frozen=True)
class _Judged:
    """A figure in one case, with its own tolerance."""

    kind: ExtremeKind
    figure: Figure
    tolerance: float

    @property
    def multiple(self) -> float:
        """The distance in units of the tolerance."""
        return self.figure.distance / self.tolerance


def prove_extremes(
    model: RemoteModel,
    cases: Mapping[ExtremeKind, Reference],
    adapter: str,
    groups: Collection[CheckGroup],
    keep: Keep,
    *notes: Finding,
) -> None:
    """Run both checks on a float64 model; its weights are put back afterwards.

    Args:
        cases: the reference of each case.
        notes: facts about the comparison.
    """
    isolated = Check.of("isolated layers, extremes", adapter)
    gradient = Check.of("gradients float64, extremes", adapter)
    if not cases:
        for check in (isolated, gradient) if "gradients" in groups else (isolated,):
            keep(check.not_run(Finding(cause=Extremes(kinds=()))))
        return
    before = model.weights()[0]
    otherwise: list[Finding] = []
    backwards: list[Finding] = []
    layers: list[_Judged] = []
    gradients: list[_Judged] = []
    missing: list[Finding] = []
    described = next(iter(cases.values())).model
    names = [node.name for node in described.nodes]

    def compute(check: Check) -> CheckResult:
        try:
            for kind, reference in cases.items():
                model.load_weights(reference.weights)
                inputs = as_dtype(reference.inputs, model.dtype)
                values = model.forward(inputs, training=True, layers=names)
                if found := missing_values(values, reference):
                    missing.append(found)
                    return check.not_run(found)
                judged = list(_judged_layers(kind, reference, values))
                if not any(item.multiple > 1 for item in layers):
                    otherwise.extend(_layer_otherwise(reference, before, values, judged))
                layers.extend(judged)
                # A gradient behind a large mean is a difference of its products: ill-conditioned by nature.
                if "gradients" in groups and kind != "offset":
                    own = own_gradients(model, reference)
                    worst = list(_judged_gradients(kind, reference, values, own))
                    if any(not item.multiple <= 1 for item in worst) and not backwards:
                        tolerance = max(item.tolerance for item in worst)
                        backwards.extend(backward_otherwise(reference, values, own, tolerance))
                    gradients.extend(worst)
        finally:
            model.load_weights(before)
        failing = {item.figure.tensor: item for item in layers if not item.multiple <= 1}
        first = next((name for name in names if name in failing), None)
        if first is None:
            return _result(check, layers, None, *notes)
        fault = Finding(
            cause=LayerDiffers(),
            layer=layer_facts(described, first, model.native_layers),
            figure=failing[first].figure,
            tolerance=failing[first].tolerance,
        )
        return _result(check, layers, fault, *otherwise, *notes)

    def backward(check: Check) -> CheckResult:
        if missing:
            return check.not_run(*missing)
        failing = [item for item in gradients if not item.multiple <= 1]
        kinds = [item.kind for item in failing]
        own = [item.figure for item in failing if item.kind == kinds[0]]
        fault = nearest_the_loss(described, own, 0.0, model.native_layers)
        return _result(check, gradients, fault, *backwards, *notes)

    keep(run(isolated, compute))
    if "gradients" in groups:
        keep(run(gradient, backward))


def _judged_layers(kind: ExtremeKind, reference: Reference, values: Tensors) -> Iterator[_Judged]:
    """Distances from canonical layers that read the same values.

    Far from zero, and where the shares of a softmax nearly tie, a right layer has more rounding than the
    tolerance. The same layer in float32 shows how much: its error is about :data:`FLOAT64_FINER` times as
    large. So :data:`FLOAT32_MULTIPLE` times that error, divided by this, is allowed too. Since no error of
    float32 counts as more than 1, that is never more than 4e-8. Where sums are exact, nothing is allowed.

    A layer may also magnify what its inputs are rounded by, as a normalisation of a channel that is constant
    but for rounding. So the same multiple is allowed of what the last place of its inputs moves it by.
    """

    def layer_figures(dtype: Literal["float64", "float32"]) -> dict[str, Figure]:
        return dict(_layer_figures(reference, values, dtype))

    def rounded_figures() -> dict[str, Figure]:
        return {} if kind == "ties" else layer_figures("float32")

    def moved() -> dict[str, float]:
        return {} if kind == "ties" else dict(_moved_layers(kind, reference, values))

    exact, (rounded, magnified) = together(
        partial(layer_figures, "float64"), lambda: (rounded_figures(), moved())
    )
    for name, item in exact.items():
        error = rounded[name].relative_l2 if name in rounded else 0.0
        allowed = FLOAT32_MULTIPLE * min(1.0, 1.0 if error is None else error) / FLOAT64_FINER
        own = min(MOST_MAGNIFIED, FLOAT32_MULTIPLE * magnified.get(name, 0.0))
        yield _Judged(kind, item, max(FLOAT64_TOLERANCE, allowed, own))


def _moved_layers(
    kind: ExtremeKind, reference: Reference, values: Tensors
) -> Iterator[tuple[str, float]]:
    """How far each layer's value moves if the last place of what it reads does.

    In the case ``large``, a channel that is constant is multiplied by more than a hundred thousand, and so is
    the rounding of its mean, a sum over many numbers.
    """
    sums = {
        node.name: math.sqrt(values[node.name].size)
        for node in reference.model.nodes
        if kind == "large" and node.layer.subtracts_mean
    }
    pairs = zip(
        reference.isolated_layers(values, training=True),
        reference.isolated_layers(_last_place_moved(values), training=True),
    )
    for (name, truth), (_, array) in pairs:
        yield name, relative_l2(array, truth) * sums.get(name, 1.0)


def _last_place_moved(values: Tensors) -> dict[str, Array]:
    """Real numbers, each a unit in the last place of float64 larger or smaller, as drawn."""
    random = np.random.default_rng(0)
    unit = np.finfo(np.float64).eps
    return {
        name: array * (1 + unit * random.choice((-1.0, 1.0), array.shape))
        if array.dtype.kind == "f"
        else array
        for name, array in values.items()
    }


def _layer_figures(
    reference: Reference, values: Tensors, dtype: Literal["float64", "float32"]
) -> Iterator[tuple[str, Figure]]:
    isolated = reference.isolated_layers(values, training=True, dtype=dtype)
    for name, array in isolated:
        yield name, figure(name, values[name], array)


def _judged_gradients(
    kind: ExtremeKind, reference: Reference, values: Tensors, gradients: Tensors
) -> Iterator[_Judged]:
    exact = kind == "ties"
    tolerance, share = (FLOAT64_TOLERANCE, SMALL) if exact else (EXTREME_TOLERANCE, EXTREME_SMALL)
    if exact:
        truth = reference.gradients(values)
        magnified: dict[str, float] = {}
    else:
        truth, near = together(
            partial(reference.gradients, values),
            partial(reference.gradients, _last_place_moved(values)),
        )
        magnified = {item.tensor: item.distance for item in gradient_figures(near, truth, share)}
    for item in gradient_figures(gradients, truth, share):
        own = min(MOST_MAGNIFIED, FLOAT32_MULTIPLE * magnified.get(item.tensor, 0.0))
        yield _Judged(kind, item, max(tolerance, own))


def _layer_otherwise(
    reference: Reference, before: Tensors, values: Tensors, judged: Collection[_Judged]
) -> Iterator[Finding]:
    """What of the first layer that is past its tolerance was otherwise, if one thing explains it."""
    failing = {item.figure.tensor: item for item in judged if not item.multiple <= 1}
    for node in (each for each in reference.model.nodes if each.name in failing):
        fields = layer_otherwise(
            reference.model,
            node.name,
            {**reference.weights, **values, reference.model.input.name: reference.inputs},
            training=True,
            masks=reference.masks,
            start=before,
            tolerance=failing[node.name].tolerance,
        )
        if fields:
            yield Finding(cause=Otherwise(fields=fields))
        return


def _result(
    check: Check, judged: Collection[_Judged], fault: Finding | None, *causes: Finding
) -> CheckResult:
    """The result with each tensor's figure of the case in which it is worst, and that case if one fails."""
    ordered = sorted(judged, key=lambda item: item.multiple, reverse=True)
    worst: dict[str, _Judged] = {}
    for item in ordered:
        worst.setdefault(item.figure.tensor, item)
    first = ordered[0]
    kinds = (
        (first.kind,) if not first.multiple <= 1 else tuple(dict.fromkeys(i.kind for i in judged))
    )
    note = Finding(cause=Extremes(kinds=kinds))
    compared = tuple(item.figure for item in worst.values())
    return check.result(
        compared, first.tolerance, (fault, *causes, note), passed=first.multiple <= 1
    )
