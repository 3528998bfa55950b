"""A user's model as a subject: what it gives for each check, with another user's model as its reference."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt

from dlb.errors import DlbError
from dlb.proof.check_table import Ability
from dlb.proof.divergence import comparable_steps, error_growth, observed_steps
from dlb.proof.engine import infinite_cause
from dlb.proof.findings import Figure, Finding
from dlb.proof.findings.workload import NoWeightMoves
from dlb.proof.subject import Sides
from dlb.proof.update_batches import as_dtype
from dlb_graph.comparing.distance import figure, figures, norm, relative_l2
from dlb_graph.comparing.tolerances import (
    FLOAT32_LEAST,
    FLOAT32_MOST,
    FLOAT32_MULTIPLE,
    FLOAT64_TOLERANCE,
    NOISE,
    PERTURBED_MULTIPLE,
    SMALL,
    STEP_SCALE,
    Tensors,
    norm_floor,
)
from dlb_graph.comparing.updates import Updates
from dlb_graph.workload import SGD
from dlb_port.comparison import PortComparison, input_names
from dlb_port.culprit import name_outputs
from dlb_port.findings import port as port_causes
from dlb_port.inputs import LAYOUTS, in_dtype, to_canonical_layout
from dlb_port.model import Model
from dlb_port.own_steps import Program, compare_own_steps
from dlb_port.settings import compare_settings, have_settings
from dlb_port.statistics import compare_statistics
from dlb_worker.contract import ForwardPass

__all__ = ["PortSubject", "layout_of"]

Array = npt.NDArray[Any]
T = TypeVar("T")
#: Steps of a trajectory, and their momentum. The first step changes the weights by this share of their norm:
#: enough to change the gradients, whatever the scale of the outputs.
STEPS, MOMENTUM, STEP_SHARE = 5, 0.9, 0.01


class PortSubject:
    """A user's model, compared with the reference of a port.

    Attributes:
        port: the values of both.
        program: users' own training programs; None if there are none.
        float32: the reference and the model in float32 with the same weights, once they are made again, or
            why one could not be.
    """

    def __init__(self, port: PortComparison, program: Program | None = None) -> None:
        self.port, self.program = port, program
        self.name = port.model.name
        self._answers: dict[tuple[str, int], Any] = {}
        self.references: tuple[str, ...] = (port.truth.model.name,)
        self.float32: tuple[Model | DlbError, Model | DlbError] | None = None

    @property
    def abilities(self) -> frozenset[Ability]:
        """What both models can do."""
        port = self.port
        abilities: dict[Ability, object] = {
            "float64": not port.float32_only,
            "training": not port.evaluation_only,
            "settings": have_settings(port.truth.model, port.model),
            "statistics": port.normalisations,
            "own steps": self.program,
        }
        return frozenset(ability for ability, has in abilities.items() if has)

    @property
    def compares(self) -> Mapping[str, Callable[[], Sides]]:
        """What it gives for each check in float64."""
        port = self.port
        compares: dict[str, Callable[[], Sides]] = {
            "weights": self.weights,
            "settings": self.settings,
            "forward": self.outputs,
            "layers": self.layers,
            "forward, training": self.training_outputs,
            "running statistics": partial(compare_statistics, port),
            "gradients": self.gradients,
            "trajectory": self.trajectory,
        }
        if self.program is not None:
            compares["own steps"] = partial(compare_own_steps, port, self.program)
        return compares

    def weights(self) -> Sides:
        """The reference's weights, loaded and read back. States that both factories compute are as made."""
        port, remote, states = self.port, self.port.model.remote, self.port.states
        expected = {
            name: as_dtype(array, remote.dtype) for name, array in port.carried_weights.items()
        }
        remote.load_weights(expected)
        loaded = remote.weights()
        apart = [side.name for pair in states.left for side in (pair.source, pair.target)]
        left = tuple(dict.fromkeys((*port.truth.model.leave, *port.model.leave, *apart)))
        note = (Finding(cause=port_causes.WeightsLeft(parameters=left)),) if left else ()
        return Sides(
            {name: loaded[name] for name in expected},
            expected,
            figures=states.figures,
            faults=states.faults,
            doubts=states.doubts,
            facts=(*states.facts, *note),
        )

    def settings(self) -> Sides:
        """Dropout and penalties."""
        port = self.port
        return compare_settings(port.truth.model, port.model, port.pairs, port.draws)

    def outputs(self) -> Sides:
        """Outputs in evaluation mode, at several scales of the inputs."""
        port = self.port
        by_scale = [("", port.truth.evaluation_pass, port.evaluation_pass)]
        for (name, _, ours), (_, _, theirs) in zip(port.truth.further_passes, port.further_passes):
            by_scale.append((name, ours, theirs))
        layout = layout_of(port.evaluation_pass, port.truth.evaluation_pass)
        hint = port_causes.OutputLayout(model=self.name, layout=layout)
        return replace(_outputs(by_scale), facts=(Finding(cause=hint),) if layout else ())

    def training_outputs(self) -> Sides:
        """Outputs in training mode, in which batch normalisations use the batch's statistics.

        If they differ, a finding names the layer, unless the same layer differs in evaluation mode.
        """
        port = self.port
        if port.randomness is not None:
            return Sides(tolerance=FLOAT64_TOLERANCE, doubts=(port.randomness,))
        sides = _outputs([("", port.truth.training_pass, port.training_pass)])

        def locate(compared: tuple[Figure, ...]) -> tuple[Finding, ...]:
            findings = _layer_findings(self.layers(training=True))
            if _causes(findings) == _causes(_layer_findings(self.layers())):
                findings = (Finding(cause=port_causes.SameAsEvaluation()),)
            return (*sides.locate(compared), *findings)

        return replace(sides, locate=locate)

    def layers(self, training: bool = False) -> Sides:
        """Outputs of layers that own matched parameters; a fault names the first that differs.

        Layers locate a difference of the outputs. If the outputs agree, no layer differs.
        """
        compared = self.port.layers(training)
        unknown = not compared.figures and not compared.culprit
        apart = compared.apart or (
            (Finding(cause=port_causes.NoCounterparts()),) if unknown else ()
        )
        return Sides(
            figures=compared.figures,
            tolerance=self.port.tolerance,
            faults=compared.culprit,
            doubts=apart if unknown else (),
            facts=() if unknown else apart,
            by_figures=False,
        )

    def gradients(self) -> Sides:
        """Gradients of every parameter and of the input, for seeded cotangents of the outputs."""
        port, training = self.port, self.port.randomness is None
        ours, theirs = port.truth.gradients(training), port.gradients
        expected = port.named(ours.parameters, port.truth.model)
        actual = port.named(theirs.parameters, port.model)
        in_one = [
            port_causes.TrainedInOne(parameter=pair.source.name, model=port.truth.model.name)
            if pair.source.name in expected
            else port_causes.TrainedInOne(parameter=pair.target.name, model=port.model.name)
            for pair in port.pairs
            if (pair.source.name in expected) != (pair.source.name in actual)
        ]
        expected |= input_names(ours.several)
        actual |= input_names(theirs.several)
        # Rounding of a gradient that is zero is about 1e-16 of the whole gradient.
        floor = SMALL / NOISE * norm_floor(expected)
        return Sides(
            figures=figures(actual, expected, floor),
            tolerance=FLOAT64_TOLERANCE,
            faults=tuple(Finding(cause=cause) for cause in in_one),
            facts=() if training else (Finding(cause=port_causes.EvaluationMode()),),
        )

    def trajectory(self) -> Sides:
        """What some steps change in both models.

        A user's model has no optimizer. So NumPy takes the steps, with momentum, and with each model's own
        gradients at its own weights. Each step uses other cotangents.
        """
        port, truth, training = self.port, self.port.truth, self.port.randomness is None
        ours = port.named(truth.gradients(training).parameters, truth.model)
        theirs = port.named(port.gradients.parameters, port.model)
        weights = port.named(port.weights, truth.model)
        every = (ours, theirs, weights)
        pairs = [pair for pair in port.pairs if all(pair.source.name in one for one in every)]
        start = {pair.source.name: weights[pair.source.name] for pair in pairs}
        size, slope = norm(start.values()), norm(ours[name] for name in start)
        if not size or not slope or not math.isfinite(size * slope):
            note = Finding(cause=NoWeightMoves(steps=STEPS))
            return Sides(tolerance=FLOAT64_TOLERANCE, doubts=(note,))
        # A power of two does not depend on the order in which squares are added.
        optimizer = SGD(
            learning_rate=2.0 ** round(math.log2(STEP_SHARE * size / slope)), momentum=MOMENTUM
        )
        longer = msgspec.structs.replace(
            optimizer, learning_rate=optimizer.learning_rate * (1 + STEP_SCALE)
        )

        def gradients(model: Model, step: int, weights: Tensors) -> Tensors:
            carried: dict[str, Array] = {}
            for pair in pairs:
                to_side = pair.to_source if model is truth.model else pair.to_target
                carried |= to_side(weights[pair.source.name])
            model.remote.load_weights(carried)
            cotangents = truth.step_cotangents(step)
            return port.by_reference_names(
                model.gradients(truth.inputs, cotangents, training), model
            )

        try:
            expected = _step_changes(partial(gradients, truth.model), start, optimizer)
            perturbed = _step_changes(partial(gradients, truth.model), start, longer)
            actual = _step_changes(partial(gradients, port.model), start, optimizer)
        finally:
            # Other models are compared with the same reference.
            truth.model.remote.load_weights(dict(port.weights))
            port.model.remote.load_weights(port.carried_weights)
        growth = {step: error_growth(expected[step], perturbed[step]) for step in expected}
        steps, finding = comparable_steps(expected, growth)
        least = norm_floor(expected[steps], SMALL)
        compared = (
            figure(name, actual[steps][name], expected[steps][name], least) for name in start
        )
        return Sides(figures=tuple(compared), tolerance=FLOAT64_TOLERANCE, facts=(finding,))

    def float32_outputs(self, place: int) -> Sides:
        """The float32 errors of one model, and as tolerance a multiple of the smaller error of both.

        If the other cannot be run in float32, it is what moving the weights makes.

        Args:
            place: 0 is the reference, 1 the model.
        """
        truth = name_outputs(self.port.truth.evaluation_pass)

        def errors(model: Model) -> tuple[Figure, ...]:
            found = model.forward(in_dtype(self.port.truth.inputs, "float32"))
            return figures(name_outputs(found), truth)

        own, other = self._in_float32(errors, place)
        near = own if other is None else min((own, other), key=lambda each: each[0].distance)
        least = near[0].distance if near[0].distance < FLOAT32_MOST else 0.0
        if other is None:
            passes = self.port.truth.perturbed_passes
            moved = [figures(name_outputs(trace), truth)[0].distance for trace in passes]
            least = max(moved, default=0.0) * PERTURBED_MULTIPLE / FLOAT32_MULTIPLE
        return Sides(figures=own, tolerance=FLOAT32_MULTIPLE * max(least, FLOAT32_LEAST))

    def float32_gradients(self, place: int) -> tuple[Tensors, Tensors | None]:
        """Gradients of one model in float32, by the reference's names, and of the other if it can be run."""
        port, truth = self.port, self.port.truth
        cotangents = [array.astype(np.float32) for array in truth.cotangents]

        def gradients(model: Model) -> Tensors:
            inputs = in_dtype(truth.inputs, "float32")
            found = model.gradients(inputs, cotangents, port.randomness is None)
            return port.by_reference_names(found, model)

        return self._in_float32(gradients, place)

    def _in_float32(self, ask: Callable[[Model], T], place: int) -> tuple[T, T | None]:
        """What one model in float32 answers, and the other; None if that fails."""
        answers: list[T | DlbError] = []
        for number, model in enumerate(self.float32 or ()):
            key = (ask.__qualname__, number)
            if key not in self._answers:
                try:
                    self._answers[key] = model if isinstance(model, DlbError) else ask(model)
                except DlbError as error:
                    self._answers[key] = error
            answers.append(self._answers[key])
        own, other = answers[place], answers[1 - place]
        if isinstance(own, DlbError):
            raise own
        return own, None if isinstance(other, DlbError) else other


def _outputs(by_scale: Sequence[tuple[str, ForwardPass, ForwardPass]]) -> Sides:
    """Passes of the reference and of a model, each pair with the name of its inputs."""
    actual: dict[str, Array] = {}
    expected: dict[str, Array] = {}
    for inputs, ours, theirs in by_scale:
        actual |= name_outputs(theirs, inputs)
        expected |= name_outputs(ours, inputs)
    if len(actual) != len(expected):
        count = port_causes.OutputCount(found=len(actual), expected=len(expected))
        faults = (Finding(cause=count),)
        return Sides(actual, expected, tolerance=FLOAT64_TOLERANCE, faults=faults)

    def infinite(compared: tuple[Figure, ...]) -> tuple[Finding, ...]:
        causes = (
            (item, infinite_cause(item.tensor, actual.get(item.tensor), expected[item.tensor]))
            for item in compared
            if item.relative_l2 is None
        )
        return tuple(
            Finding(cause=cause, figure=item, tolerance=FLOAT64_TOLERANCE)
            for item, cause in causes
            if cause is not None
        )

    return Sides(actual, expected, tolerance=FLOAT64_TOLERANCE, locate=infinite)


def layout_of(theirs: ForwardPass, ours: ForwardPass) -> str:
    """The layout in which the only output of a model has the reference's numbers; "" if in none but its own."""
    if len(theirs.outputs) != 1 or len(ours.outputs) != 1:
        return ""
    (actual,), (expected,) = theirs.outputs, ours.outputs
    if actual.shape == expected.shape:
        return ""
    moved = {layout: to_canonical_layout(actual, layout) for layout in LAYOUTS}
    near = (name for name, each in moved.items() if relative_l2(each, expected) <= FLOAT32_MOST)
    return next(near, "")


def _layer_findings(layers: Sides) -> tuple[Finding, ...]:
    return (*layers.faults, *layers.doubts, *layers.facts)


def _causes(findings: Sequence[Finding]) -> list[Any]:
    """Causes of findings, without their distances."""
    return [finding.cause for finding in findings]


def _step_changes(
    gradients: Callable[[int, Tensors], Tensors], start: Tensors, optimizer: SGD
) -> dict[int, dict[str, Array]]:
    """The changes of weights after each observed step.

    Args:
        gradients: computes the gradients of a step at given weights.
    """
    updates, observed = Updates(optimizer, start), observed_steps(STEPS)
    moved: dict[int, dict[str, Array]] = {}
    for step in range(STEPS):
        updates.step(gradients(step, updates.weights), optimizer.learning_rate)
        if step + 1 in observed:
            moved[step + 1] = {name: updates.weights[name] - start[name] for name in start}
    return moved
