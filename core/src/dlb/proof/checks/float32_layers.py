"""``isolated layers float32`` and ``gradients float32``: a float32 model against dlb's own float32.

Both compare the model with float64 in NumPy, computed from the values that the model itself computed. So no
error of an earlier layer counts, and no kink lies between both. What float32 itself makes is measured by the
same computation in NumPy's float32. No second adapter is needed, and none can be a witness for another.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from dlb.proof.certificate import CheckResult
from dlb.proof.checks.backward import (
    backward_otherwise,
    missing_values,
    nearest_the_loss,
    own_gradients,
)
from dlb.proof.checks.float32 import gradient_errors, judge_multiples
from dlb.proof.checks.layers import layer_facts
from dlb.proof.checks.updates import NEARER
from dlb.proof.engine import Check, Keep
from dlb.proof.findings import Figure, Finding
from dlb.proof.findings.common import NotFinite
from dlb.proof.findings.workload import LayerDiffers, Otherwise
from dlb.proof.reference import Reference
from dlb.proof.rounding import FLOAT32, Rounding
from dlb.proof.update_batches import as_dtype
from dlb.supervision.remote import RemoteModel
from dlb.threads import ahead, together
from dlb_graph.comparing.distance import figure, worst_first
from dlb_graph.comparing.near_misses import layer_otherwise
from dlb_graph.comparing.tolerances import FLOAT32_MOST, Tensors
from dlb_graph.workload import BatchNorm, Model

__all__ = ["BATCHES", "Float32Errors"]

Array = npt.NDArray[Any]
#: Small batches that are compared: three, so that one with an unlucky rounding is not the median.
BATCHES = 3
#: A gradient may be off by this many times what a batch normalisation of a large batch is.
STATISTICS = 2.0
#: And by this many times what kinks make of NumPy's own, which are not the same kinks.
CROSSED = 5.0


@dataclass
class Float32Errors:
    """Errors of a float32 model, and those of NumPy's float32, collected over batches.

    Attributes:
        model: the model's description.
        native: the framework's description of each layer, by name.
        layers, gradients: pairs of figures of a batch: the model's, and NumPy's. ``gradients`` has a list
            for each state of the weights.
        missing: why a batch could not be compared.
        rounding: the type that the model computes in.
        notes: facts about the comparison.
        otherwise: what of a layer, or of the backward pass (""), was otherwise, if one thing explains it.
    """

    model: Model
    rounding: Rounding = FLOAT32
    native: Mapping[str, str] = field(default_factory=dict)
    layers: list[tuple[dict[str, Figure], dict[str, Figure]]] = field(default_factory=list)
    gradients: list[list[tuple[dict[str, Figure], dict[str, Figure]]]] = field(default_factory=list)
    missing: list[Finding] = field(default_factory=list)
    notes: Sequence[Finding] = ()
    otherwise: dict[str, tuple[Finding, ...]] = field(default_factory=dict)

    def collect(
        self,
        model: RemoteModel,
        references: Iterable[Reference],
        weights: Mapping[str, Array],
        *,
        backward: bool = True,
        growth: float | None = None,
    ) -> None:
        """Compare one state of the weights on some batches.

        Args:
            model: a model in float32.
            references: the batches.
            weights: the model's weights, by ``layer.parameter``.
            backward: whether gradients are compared too.
            growth: of large batches, how many times as much an error may be that passes in any case. They are
                compared in training mode alone, and NumPy's error is computed only where the model's is more.
        """
        self.native = model.native_layers
        names = [node.name for node in self.model.nodes]
        batches: list[tuple[dict[str, Figure], dict[str, Figure]]] = []
        for reference in references:
            inputs = as_dtype(reference.inputs, model.dtype)
            for training in (True, False) if growth is None else (True,):
                values = model.forward(inputs, training=training, layers=names)
                if found := missing_values(values, reference):
                    self.missing.append(found)
                    return
                if growth is None:
                    errors = _layer_errors(reference, values, weights, training, self.rounding)
                else:
                    errors = _few_layer_errors(reference, values, weights, self.rounding, growth)
                self.layers.append(errors)
                self._explain(reference, values, weights, training, errors)
                if training and backward:
                    least = self._least_gradient(errors[0], growth or 1.0)
                    batches.append(
                        self._gradient_errors(model, reference, values, weights, least, growth)
                    )
        if batches:
            self.gradients.append(batches)

    def _explain(
        self,
        reference: Reference,
        values: Tensors,
        weights: Mapping[str, Array],
        training: bool,
        errors: tuple[dict[str, Figure], dict[str, Figure]],
    ) -> None:
        """Look for what was otherwise in the first layer that is too far off."""
        own, numpy = errors
        most = {name: max(item.distance, self.rounding.least) for name, item in numpy.items()}
        far = [name for name in own if _multiple(own[name], most) > self.rounding.multiple]
        if not far or far[0] in self.otherwise:
            return
        fields = layer_otherwise(
            self.model,
            far[0],
            {**weights, **values, self.model.input.name: reference.inputs},
            training=training,
            masks=reference.masks,
            tolerance=own[far[0]].distance / NEARER,
        )
        self.otherwise[far[0]] = (Finding(cause=Otherwise(fields=fields)),) if fields else ()

    def _least_gradient(self, layers: Mapping[str, Figure], growth: float) -> float:
        """The error of a gradient that counts at least, before what the loss makes of it.

        A batch normalisation's backward pass reads the statistics that the model computed. Of a large batch
        they are long sums, whose rounding passes in the layer itself and is in the gradients too.
        """
        least = self.rounding.least * growth
        if growth == 1.0:
            return least
        norms = (node.name for node in self.model.nodes if isinstance(node.layer, BatchNorm))
        errors = [layers[name].distance for name in norms if name in layers]
        finite = (
            STATISTICS * error / self.rounding.multiple for error in errors if error < FLOAT32_MOST
        )
        return max([least, *finite])

    def _gradient_errors(
        self,
        model: RemoteModel,
        reference: Reference,
        values: Tensors,
        weights: Mapping[str, Array],
        least: float,
        growth: float | None,
    ) -> tuple[dict[str, Figure], dict[str, Figure]]:
        """Figures of the model's gradients of a batch, and of NumPy's rounded ones."""
        own, last = own_gradients(model, reference), self.model.nodes[-1].name
        exact = partial(reference.gradients, values, weights)
        rounded = partial(self.rounding.gradients, reference, values, weights)
        cancelled = reference.loss.cancellation(values[last], reference.labels)
        least *= cancelled
        truth, numpy = together(exact, rounded) if growth is None else (exact(), None)
        errors, far = _by_tensor(gradient_errors(own, truth)), False
        if numpy is None:
            far = any(item.distance > self.rounding.multiple * least for item in errors.values())
            numpy = rounded() if far else truth
        rounding = _by_tensor(gradient_errors(numpy, truth))
        if growth is not None and far:
            # Of a large batch, some value is near a kink: a framework that computes layers and gradients in
            # two programs may have it on both sides. As much passes as crossing makes of NumPy's own float32.
            by_kinks = _kink_errors(reference)
            for name, item in by_kinks.items():
                size = CROSSED * item.distance / self.rounding.multiple
                if rounding[name].distance < size < np.inf:
                    rounding[name] = msgspec.structs.replace(item, relative_l2=size)
        for name, item in rounding.items():
            if (item.relative_l2 or 0.0) < least:
                rounding[name] = msgspec.structs.replace(item, relative_l2=least)
        sizes = {name: item.distance for name, item in rounding.items()}
        worst = max(errors.values(), key=lambda item: _multiple(item, sizes))
        if _multiple(worst, sizes) > self.rounding.multiple and "" not in self.otherwise:
            far_off = worst.distance / NEARER
            self.otherwise[""] = backward_otherwise(reference, values, own, far_off, weights)
        return errors, rounding

    def keep(self, adapter: str, keep: Keep) -> None:
        """Judge what was collected."""
        layers, gradients = (
            Check.of(f"{name} {self.rounding.name}", adapter)
            for name in ("isolated layers", "gradients")
        )
        if self.missing:
            for check in (layers, gradients):
                keep(check.not_run(self.missing[0]))
            return
        keep(self._judge_layers(layers))
        keep(self._judge_gradients(gradients))

    def _judge_layers(self, check: Check) -> CheckResult:
        compared, allowed = _worst_multiples(self.layers, self.rounding.least)
        of, most = self.rounding.of, self.rounding.multiple
        if len(compared) < len(self.model.nodes):
            return check.not_run(Finding(cause=NotFinite()))
        result = judge_multiples(check, compared, allowed, of, *self.notes, allowed=most)
        if result.verdict == "passed":
            return result
        failing = {item.tensor: item for item in compared if _multiple(item, allowed) > most}
        first = next(node.name for node in self.model.nodes if node.name in failing)
        fault = Finding(
            cause=LayerDiffers(),
            layer=layer_facts(self.model, first, self.native),
            figure=failing[first],
            tolerance=most * allowed[first],
        )
        notes = (fault, *self.otherwise.get(first, ()), *self.notes)
        return judge_multiples(check, compared, allowed, of, *notes, allowed=most)

    def _judge_gradients(self, check: Check) -> CheckResult:
        medians = [_medians(batches) for batches in self.gradients]
        compared, allowed = _worst_multiples(medians, self.rounding.least)
        of, most = self.rounding.of, self.rounding.multiple
        failing = [item for item in compared if _multiple(item, allowed) > most]
        finding = nearest_the_loss(self.model, failing, 0.0, self.native)
        notes = (finding, *self.otherwise.get("", ()), *self.notes) if finding else self.notes
        return judge_multiples(check, compared, allowed, of, *notes, allowed=most)


def _layer_errors(
    reference: Reference,
    values: Tensors,
    weights: Mapping[str, Array],
    training: bool,
    rounding: Rounding,
    layers: Collection[str] | None = None,
) -> tuple[dict[str, Figure], dict[str, Figure]]:
    """Figures of the model's layers, and of NumPy's rounded layers, against the layers in float64.

    A layer is left out if the type overflows in it: there is no error to compare with.

    Args:
        layers: names of those that are compared; all if left out.
    """
    own, numpy = {}, {}
    exact = iter(
        reference.isolated_layers(values, training=training, weights=weights, layers=layers)
    )
    rounded = rounding.layers(reference, values, weights, training, layers)
    for (name, truth), (_, baseline) in zip(ahead(exact), ahead(rounded)):
        if not np.isfinite(baseline).all():
            continue
        own[name] = figure(name, values[name], truth)
        numpy[name] = figure(name, baseline, truth)
    if rounding is FLOAT32 and training:
        most = rounding.multiple
        errors = {name: max(item.distance, rounding.least) for name, item in numpy.items()}
        far = {name for name, item in own.items() if item.distance > most * errors[name]}
        for name, item in _added_in_turn(reference, values, weights, far):
            if item.distance > errors[name]:
                numpy[name] = item
    return own, numpy


def _kink_errors(reference: Reference) -> dict[str, Figure]:
    """How far float32 in the forward pass alone moves gradients, which are computed in float64."""
    rounded, exact = (
        reference.gradients(reference.training_values(dtype)) for dtype in ("float32", "float64")
    )
    return _by_tensor(gradient_errors(rounded, exact))


def _few_layer_errors(
    reference: Reference,
    values: Tensors,
    weights: Mapping[str, Array],
    rounding: Rounding,
    growth: float,
) -> tuple[dict[str, Figure], dict[str, Figure]]:
    """As :func:`_layer_errors` in training mode, with NumPy's layers only where an error is large."""
    least = rounding.least * growth
    exact = iter(reference.isolated_layers(values, training=True, weights=weights))
    own = {name: figure(name, values[name], truth) for name, truth in ahead(exact)}
    far = [name for name, item in own.items() if item.distance > rounding.multiple * least]
    numpy = {name: Figure(tensor=name, relative_l2=least, largest=None) for name in own}
    if far:
        of_far, of_numpy = _layer_errors(reference, values, weights, True, rounding, far)
        for name in far:
            if name not in of_far:
                del own[name]
            elif of_numpy[name].distance > least:
                numpy[name] = of_numpy[name]
    return own, numpy


def _added_in_turn(
    reference: Reference, values: Tensors, weights: Mapping[str, Array], names: Collection[str]
) -> Iterator[tuple[str, Figure]]:
    """Batch normalisations by sums of one number after the other, against float64.

    Of channels that are all one number, the rounding of their mean over the root of epsilon is all that is
    left. NumPy adds equal numbers in pairs, without an error; an adapter may add in any order.
    """
    nodes = [
        n for n in reference.model.wired() if n.name in names and isinstance(n.layer, BatchNorm)
    ]
    available = {**values, reference.model.input.name: reference.inputs}
    exact = dict(
        reference.isolated_layers(
            values, training=True, weights=weights, layers=[node.name for node in nodes]
        )
        if nodes
        else ()
    )
    for node in nodes:
        x = np.moveaxis(available[node.inputs[0]], 1, 0).astype(np.float32)
        rows = x.reshape(len(x), -1)
        mean = np.cumsum(rows, axis=1)[:, -1:] / np.float32(rows.shape[1])
        away = rows - mean
        variance = np.cumsum(away * away, axis=1)[:, -1:] / np.float32(rows.shape[1])
        owner = node.weights_of or node.name
        scale, bias = (
            weights[f"{owner}.{role}"].astype(np.float32)[:, None] for role in ("scale", "bias")
        )
        epsilon = np.float32(node.layer.epsilon)  # type: ignore[attr-defined]
        array = away / np.sqrt(variance + epsilon) * scale + bias
        found = np.moveaxis(array.reshape(x.shape), 0, 1)
        yield node.name, figure(node.name, found, exact[node.name])


def _by_tensor(collected: Iterable[Figure]) -> dict[str, Figure]:
    return {item.tensor: item for item in collected}


def _medians(
    batches: Collection[tuple[dict[str, Figure], dict[str, Figure]]],
) -> tuple[dict[str, Figure], dict[str, Figure]]:
    """For each tensor, the figure of the batch with the median error; an infinite one comes first."""
    sides: list[dict[str, Figure]] = []
    for side in (0, 1):
        chosen = {}
        for name in next(iter(batches))[side]:
            ordered = worst_first(batch[side][name] for batch in batches)
            infinite = ordered[0].relative_l2 is None
            chosen[name] = ordered[0 if infinite else len(ordered) // 2]
        sides.append(chosen)
    return sides[0], sides[1]


def _worst_multiples(
    pairs: Iterable[tuple[dict[str, Figure], dict[str, Figure]]], least: float
) -> tuple[tuple[Figure, ...], dict[str, float]]:
    """For each tensor, the figure that is the largest multiple of NumPy's error, and that error."""
    worst: dict[str, Figure] = {}
    allowed: dict[str, float] = {}
    for own, numpy in pairs:
        for name, item in own.items():
            error = numpy[name].distance
            error = max(error if np.isfinite(error) else 0.0, least)
            if name not in worst or item.distance / error > _multiple(worst[name], allowed):
                worst[name], allowed[name] = item, error
    return tuple(worst.values()), allowed


def _multiple(item: Figure, allowed: Mapping[str, float]) -> float:
    return item.distance / allowed[item.tensor]
