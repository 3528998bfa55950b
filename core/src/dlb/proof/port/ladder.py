"""Climbing with a port: the weights carried, then what both models make of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, Literal

import msgspec
import numpy as np
import numpy.typing as npt

from dlb.errors import UnsupportedError, WorkerRaised
from dlb.proof.certificate import Level, Rung
from dlb.proof.distance import figures, passes, same_bits
from dlb.proof.port.culprit import Side, compare_layers, owner_pairs
from dlb.proof.port.inputs import LAYOUTS, as_read, from_read
from dlb.proof.port.weight_map import Pair
from dlb.proof.rungs import FLOAT64_GATE, NOISE, floor, not_run, verdict
from dlb.supervision.user_model import RemoteUserModel
from dlb_worker.contract import ForwardPass, Gradients, UserLayer

__all__ = ["Model", "climb"]

Array = npt.NDArray[Any]
GRADIENTS: Literal["gradients"] = "gradients"
#: A gradient this small beside the whole one is compared as if it were so large: one that is zero
#: but for rounding, as a bias before a batch normalisation has, is off by 1e-16 of the whole.
SMALL = 1e-3
TRAINING = "forward, training"
STATISTICS = "running statistics"


class Model:
    """A model that was taken in, with how its input and output lie.

    Attributes:
        calls: names of layers in the order in which they are called.
        leave: parameters that are not carried.
    """

    def __init__(
        self, remote: RemoteUserModel, reads: str = "", gives: str = "", leave: Sequence[str] = ()
    ) -> None:
        self.remote = remote
        self.name = remote.name
        self.reads, self.gives = reads, gives
        self.leave = tuple(leave)
        self.calls: list[str] = []

    def forward(
        self, inputs: Array, *, training: bool = False, layers: Sequence[str] = ()
    ) -> ForwardPass:
        """One pass on a canonical input; outputs canonical."""
        read = as_read(inputs, self.reads, self.name)
        trace = self.remote.forward(read, training=training, layers=layers)
        return ForwardPass(tuple(from_read(one, self.gives) for one in trace.outputs), trace.calls)

    def gradients(self, inputs: Array, cotangents: Sequence[Array], training: bool) -> Gradients:
        """Gradients of parameters, and of the canonical input; states as the passes left them."""
        given = [
            as_read(one, self.gives, self.name) if one.ndim == _axes(self.gives) else one
            for one in cotangents
        ]
        read = as_read(inputs, self.reads, self.name)
        found = self.remote.vjp(read, given, training=training)
        if found.inputs is None:
            return found
        return replace(found, inputs=from_read(found.inputs, self.reads))

    def drawing(self, inputs: Array) -> str:
        """Why two passes in training mode differ; "" if they do not."""
        leaves = [name for name in self.remote.layers if name]
        first, second = (self.forward(inputs, training=True, layers=leaves) for _ in range(2))
        if not _differ(first.outputs, second.outputs):
            return ""
        layers = [
            one.layer
            for one, two in zip(first.calls, second.calls)
            if one.output is not None
            and two.output is not None
            and _differ([one.output], [two.output])
        ]
        where = Side(self.name, self.remote.layers, first).told(layers[0]) if layers else "its code"
        return f"two passes of {self.name} differ from {where} on: it draws random numbers"


def _axes(word: str) -> int:
    return len(LAYOUTS.get(word, ()))


def _differ(some: Sequence[Array], others: Sequence[Array]) -> bool:
    found = figures(dict(enumerate(some)), dict(enumerate(others)))  # type: ignore[arg-type]
    return not passes(found, FLOAT64_GATE)


def climb(
    reference: Model,
    others: Sequence[Model],
    pairs: Mapping[str, Sequence[Pair]],
    inputs: Array,
    seed: int,
    report: Callable[[str], None] = lambda line: None,
) -> list[Rung]:
    """Every rung of every model but the reference."""
    # The reference too is given what it gave: of two biases that are added, it gave the sum.
    weights = reference.remote.weights()
    reference.remote.load_weights(weights)
    owners = {name: owner_pairs(some) for name, some in pairs.items()}
    wanted = list(dict.fromkeys(layer for some in owners.values() for layer in some))
    truth = _Truth(reference, inputs, seed, wanted, report)
    found: list[Rung] = []
    for other in others:
        report(f"{other.name}: comparing with {reference.name}")
        found += _Comparison(truth, other, pairs[other.name], owners[other.name], weights).rungs()
    return found


class _Truth:
    """What the reference computes, each once."""

    def __init__(
        self,
        model: Model,
        inputs: Array,
        seed: int,
        owners: Sequence[str],
        report: Callable[[str], None],
    ) -> None:
        self.model, self.inputs, self.seed, self.owners = model, inputs, seed, owners
        report(f"{model.name}: computing the reference")

    @cached_property
    def evaluated(self) -> ForwardPass:
        return self.model.forward(self.inputs, layers=self.owners)

    @cached_property
    def trained(self) -> ForwardPass:
        return self.model.forward(self.inputs, training=True, layers=self.owners)

    @cached_property
    def drawing(self) -> str:
        return self.model.drawing(self.inputs)

    @cached_property
    def cotangents(self) -> list[Array]:
        generator = np.random.default_rng(self.seed)
        return [generator.standard_normal(one.shape) for one in self.evaluated.outputs]

    def gradients(self, training: bool) -> Gradients:
        if training not in self._gradients:
            self._gradients[training] = self.model.gradients(self.inputs, self.cotangents, training)
        return self._gradients[training]

    @cached_property
    def _gradients(self) -> dict[bool, Gradients]:
        return {}


class _Comparison:
    """One model against the reference."""

    def __init__(
        self,
        truth: _Truth,
        model: Model,
        pairs: Sequence[Pair],
        owners: Mapping[str, str],
        weights: Mapping[str, Array],
    ) -> None:
        self.truth, self.model, self.pairs, self.owners = truth, model, pairs, owners
        self.weights = weights
        self.against = f"{truth.model.name}, with the same weights"

    def rungs(self) -> list[Rung]:
        """Climb: each rung is timed, and what raises is not run."""
        found = []
        rungs: list[tuple[str, Level, Callable[[], Rung]]] = [
            ("weights", "weights", self.carried),
            ("forward", "forward", self.evaluated),
            ("layers", "layers", self.layers),
            (TRAINING, "forward", self.trained),
        ]
        if self._normalisations():
            rungs.append((STATISTICS, "forward", self.statistics))
        for name, level, make in (*rungs, (GRADIENTS, GRADIENTS, self.gradients)):
            began = time.perf_counter()
            try:
                rung = make()
            except (WorkerRaised, UnsupportedError) as error:
                rung = not_run(name, level, self.model.name, self.against, str(error))
            seconds = time.perf_counter() - began
            found.append(msgspec.structs.replace(rung, seconds=seconds))
        return found

    def carried(self) -> Rung:
        """Give the weights over, and see that every bit came."""
        expected = {
            pair.target.name: pair.carry(self.weights[pair.source.name]) for pair in self.pairs
        }
        self.model.remote.load_weights(expected)
        held = self.model.remote.weights()
        found = {name: held[name] for name in expected}
        wrong = [name for name in expected if not same_bits(found[name], expected[name])]
        left = [*self.truth.model.leave, *self.model.leave]
        detail = f"not the same bits: {', '.join(wrong)}" if wrong else ""
        if left:
            detail += f"; left as they are: {', '.join(left)}"
        return Rung(
            name="weights",
            level="weights",
            adapter=self.model.name,
            against=f"weights of {self.truth.model.name}, bit for bit",
            verdict=verdict(not wrong),
            figures=figures(found, expected),
            detail=detail.lstrip("; "),
        )

    @cached_property
    def passed(self) -> Gradients:
        """The model's pass forward and back: in training mode, unless that draws."""
        training = not self.drawing
        return self.model.gradients(self.truth.inputs, self.truth.cotangents, training)

    def evaluated(self) -> Rung:
        """Outputs in evaluation mode."""
        self.trace = self.model.forward(self.truth.inputs, layers=list(self.owners.values()))
        return self._outputs("forward", self.truth.evaluated, self.trace)

    def _outputs(self, name: str, ours: ForwardPass, theirs: ForwardPass) -> Rung:
        found, expected = _named(theirs.outputs), _named(ours.outputs)
        detail = ""
        if len(found) != len(expected):
            detail = f"{len(found)} outputs against {len(expected)}"
        else:
            apart = [
                f"{key} has shape {list(found[key].shape)} against {list(expected[key].shape)}"
                for key in expected
                if found[key].shape != expected[key].shape
            ]
            detail = "; ".join(apart)
        compared = figures(found, expected)
        return Rung(
            name=name,
            level="forward",
            adapter=self.model.name,
            against=self.against,
            verdict=verdict(passes(compared, FLOAT64_GATE) and len(found) == len(expected)),
            gate=FLOAT64_GATE,
            figures=compared,
            detail=detail,
        )

    def layers(self) -> Rung:
        """Outputs of the layers that own matched parameters, in evaluation mode."""
        rung = self._layers("layers", training=False)
        self.told = rung.detail
        return rung

    def _layers(self, name: str, training: bool) -> Rung:
        ours = self.truth.trained if training else self.truth.evaluated
        theirs = (
            self.model.forward(self.truth.inputs, training=True, layers=list(self.owners.values()))
            if training
            else self.trace
        )
        found = compare_layers(*self._sides(ours, theirs), self.pairs, FLOAT64_GATE)
        if found.culprit:
            # Once more with every layer's values, to look between those that have parameters.
            both = [
                model.forward(
                    self.truth.inputs, training=training, layers=list(model.remote.layers)
                )
                for model in (self.truth.model, self.model)
            ]
            found = compare_layers(*self._sides(*both), self.pairs, FLOAT64_GATE)
        if not found.figures:
            reason = "; ".join(found.apart) or "no layer of one is that of the other"
            return not_run(name, "layers", self.model.name, self.against, reason)
        return Rung(
            name=name,
            level="layers",
            adapter=self.model.name,
            against=self.against,
            verdict=verdict(passes(found.figures, FLOAT64_GATE) and not found.culprit),
            gate=FLOAT64_GATE,
            figures=found.figures,
            detail="; ".join(one for one in (found.culprit, *found.apart) if one),
        )

    def _sides(self, ours: ForwardPass, theirs: ForwardPass) -> tuple[Side, Side]:
        reference = self.truth.model
        return (
            Side(reference.name, reference.remote.layers, ours),
            Side(self.model.name, self.model.remote.layers, theirs),
        )

    @cached_property
    def drawing(self) -> str:
        return self.truth.drawing or self.model.drawing(self.truth.inputs)

    def trained(self) -> Rung:
        """Outputs in training mode: batch normalisation by the batch's statistics."""
        if self.drawing:
            reason = f"{self.drawing}; make the models without dropout"
            return not_run(TRAINING, "forward", self.model.name, self.against, reason)
        theirs = self.model.forward(self.truth.inputs, training=True)
        rung = self._outputs(TRAINING, self.truth.trained, theirs)
        if rung.verdict == "failed":
            layers = self._layers("layers, training", training=True).detail
            if layers == self.told:
                layers = "as in evaluation mode"
            detail = "; ".join(one for one in (rung.detail, layers) if one)
            rung = msgspec.structs.replace(rung, detail=detail)
        return rung

    def _normalisations(self) -> list[tuple[UserLayer, UserLayer]]:
        """Batch normalisations that are counterparts; not those that keep no fixed part, both."""
        ours, theirs = self.truth.model.remote.layers, self.model.remote.layers
        found = [
            (ours[own], theirs[other])
            for own, other in self.owners.items()
            if own in ours and other in theirs and ours[own].kind == "batch_norm"
        ]
        return [pair for pair in found if any(one.momentum is not None for one in pair)]

    def statistics(self) -> Rung:
        """What a step of training makes of the running statistics, and what part of them it keeps."""
        normalisations = self._normalisations()
        expected = {own.name: np.array([own.momentum], np.float64) for own, _ in normalisations}
        found = {own.name: np.array([other.momentum], np.float64) for own, other in normalisations}
        told = [
            f"'{own.name}' of {self.truth.model.name} keeps {_part(own)} of its running statistics "
            f"at a step, '{other.name}' of {self.model.name} {_part(other)}"
            for own, other in normalisations
            if not passes(figures({"": found[own.name]}, {"": expected[own.name]}), FLOAT64_GATE)
        ]
        moved, meant, note = self._moved({own.name: own for own, _ in normalisations})
        compared = figures({**found, **moved}, {**expected, **meant})
        more = [f"and {len(told) - 3} more"] if told[3:] else []
        return Rung(
            name=STATISTICS,
            level="forward",
            adapter=self.model.name,
            against=f"{self.truth.model.name}'s batch normalisations, after a step of training",
            verdict=verdict(passes(compared, FLOAT64_GATE)),
            gate=FLOAT64_GATE,
            figures=compared,
            detail="; ".join([*told[:3], *more, *([note] if note else [])]),
        )

    def _moved(
        self, normalisations: Mapping[str, UserLayer]
    ) -> tuple[dict[str, Array], dict[str, Array], str]:
        """Running means and variances after a step, what they should be, and what there is to say."""
        only = "only what a step keeps of them is compared"
        if self.drawing:
            return {}, {}, f"{only}: training mode draws random numbers"
        ours, theirs = self.truth.gradients(True).states, self.passed.states
        for model, states in ((self.truth.model, ours), (self.model, theirs)):
            if not states:
                return {}, {}, f"{only}: {model.name}'s adapter does not tell more"
        found: dict[str, Array] = {}
        expected: dict[str, Array] = {}
        divisors: dict[str, tuple[str, str]] = {}
        for pair in self.pairs:
            own = normalisations.get(pair.source.layer)
            name, other = pair.source.name, pair.target.name
            if own is None or pair.source.role not in ("mean", "variance"):
                continue
            if name not in ours or other not in theirs:  # of several calls of a layer
                continue
            expected[name], found[name] = ours[name], pair.bring_back(theirs[other])
            if pair.source.role == "variance":
                for over, changed in self._by_other_variance(own, name, expected[name]):
                    if passes(figures({"": found[name]}, {"": changed}), FLOAT64_GATE):
                        expected[name], divisors[name] = changed, over
                        break
        note = ""
        if divisors:
            names = ", ".join(f"'{name}'" for name in divisors)
            mine, others = next(iter(divisors.values()))
            note = (
                f"running variances are moved by the batch's variance over {mine} values in "
                f"{self.truth.model.name} and over {others} in {self.model.name}, and compared as if "
                f"both took the same: {names}"
            )
        return found, expected, note

    def _by_other_variance(
        self, own: UserLayer, name: str, moved: Array
    ) -> Iterator[tuple[tuple[str, str], Array]]:
        """A running variance as the reference had moved it by the batch's other variance.

        Over n - 1 values in torch and Chainer, over n in Keras and MXNet; none lets one choose.
        """
        calls = [call for call in self.truth.trained.calls if call.layer == own.name]
        if own.momentum in (None, 1.0) or len(calls) != 1:
            return
        given, before = calls[0].inputs, self.weights[name]
        if given is None or given.size == before.size:
            return
        count, kept = given.size // before.size, own.momentum * before
        batch = moved - kept
        yield ("n - 1", "n"), kept + (count - 1) / count * batch
        yield ("n", "n - 1"), kept + count / (count - 1) * batch

    def gradients(self) -> Rung:
        """Gradients of the outputs times seeded cotangents, by every parameter and the input."""
        training = not self.drawing
        whole, passed = self.truth.gradients(training), self.passed
        mine, theirs = whole.parameters, passed.parameters
        expected: dict[str, Array] = {}
        found: dict[str, Array] = {}
        alone = []
        for pair in self.pairs:
            source, target = pair.source.name, pair.target.name
            if source in mine:
                expected[source] = mine[source]
            if source in mine and target in theirs:
                found[source] = pair.bring_back(theirs[target])
            elif source in mine or target in theirs:
                model = self.truth.model if source in mine else self.model
                alone.append(
                    f"'{source if source in mine else target}' is trained in {model.name} only"
                )
        if whole.inputs is not None:
            expected["input"] = whole.inputs
        if passed.inputs is not None:
            found["input"] = passed.inputs
        compared = figures(found, expected, SMALL / NOISE * floor(expected))
        mode = "" if training else "in evaluation mode, since training mode draws random numbers"
        return Rung(
            name=GRADIENTS,
            level=GRADIENTS,
            adapter=self.model.name,
            against=self.against,
            verdict=verdict(passes(compared, FLOAT64_GATE) and not alone),
            gate=FLOAT64_GATE,
            figures=compared,
            detail="; ".join([*alone, *([mode] if mode else [])]),
        )


def _part(layer: UserLayer) -> str:
    return "no fixed part" if layer.momentum is None else f"{layer.momentum:.6g}"


def _named(outputs: Sequence[Array]) -> dict[str, Array]:
    if len(outputs) == 1:
        return {"output": outputs[0]}
    return {f"output {number}": one for number, one in enumerate(outputs)}
