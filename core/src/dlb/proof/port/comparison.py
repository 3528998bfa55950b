"""A port's checks: the weights carried, then what both models make of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any, Literal

import msgspec
import numpy.typing as npt

from dlb.errors import UnsupportedError, WorkerRaised
from dlb.failure import failure_of
from dlb.proof.certificate import Baseline, CheckGroup, CheckResult, not_run
from dlb.proof.checks.tolerances import FLOAT64_TOLERANCE, NOISE, SMALL, norm_floor, verdict
from dlb.proof.distance import figures, infinite_cause, passes, same_bits
from dlb.proof.findings import Finding
from dlb.proof.findings.common import BitsDiffer, CannotRun
from dlb.proof.findings.port import (
    EvaluationMode,
    NoCounterparts,
    OutputCount,
    SameAsEvaluation,
    TrainedInOne,
    WeightsLeft,
)
from dlb.proof.port.culprit import compare_layers, owner_pairs
from dlb.proof.port.layer_events import Side
from dlb.proof.port.model import Model
from dlb.proof.port.reference_model import ReferenceModel
from dlb.proof.port.statistics import STATISTICS, check_statistics, normalisations
from dlb.proof.port.weight_map import Pair
from dlb_worker.contract import ForwardPass, Gradients

__all__ = ["compare_models"]

Array = npt.NDArray[Any]
GRADIENTS: Literal["gradients"] = "gradients"
TRAINING = "forward, training"


def compare_models(
    reference: Model,
    others: Sequence[Model],
    pairs: Mapping[str, Sequence[Pair]],
    inputs: Array,
    seed: int,
    report: Callable[[str], None] = lambda line: None,
) -> list[CheckResult]:
    """Every check of every model but the reference."""
    # The reference too is given what it gave: of two biases that are added, it gave the sum.
    weights = reference.remote.weights()
    reference.remote.load_weights(weights)
    owners = {name: owner_pairs(matched) for name, matched in pairs.items()}
    layers = list(
        dict.fromkeys(layer for counterparts in owners.values() for layer in counterparts)
    )
    truth = ReferenceModel(reference, inputs, seed, layers, report)
    results: list[CheckResult] = []
    for model in others:
        report(f"{model.name}: comparing with {reference.name}")
        comparison = _Comparison(truth, model, pairs[model.name], owners[model.name], weights)
        results += comparison.run()
    return results


class _Comparison:
    """One model against the reference."""

    def __init__(
        self,
        truth: ReferenceModel,
        model: Model,
        pairs: Sequence[Pair],
        owners: Mapping[str, str],
        weights: Mapping[str, Array],
    ) -> None:
        self.truth, self.model, self.pairs, self.owners = truth, model, pairs, owners
        self.weights = weights
        self.baseline = Baseline(kind="model", names=(truth.model.name,))
        self.normalisations = normalisations(truth.model, model, owners)

    def run(self) -> list[CheckResult]:
        """Every check, timed; one that raises is not run."""
        results = []
        checks: list[tuple[str, CheckGroup, Callable[[], CheckResult]]] = [
            ("weights", "weights", self.carried),
            ("forward", "forward", self.evaluated),
            ("layers", "layers", self.layers),
            (TRAINING, "forward", self.trained),
        ]
        if self.normalisations:
            checks.append((STATISTICS, "forward", self.statistics))
        for name, group, check in (*checks, (GRADIENTS, GRADIENTS, self.gradients)):
            began = time.perf_counter()
            try:
                result = check()
            except (WorkerRaised, UnsupportedError) as error:
                reason = Finding(cause=CannotRun(failure=failure_of(error)))
                result = not_run(name, group, self.model.name, self.baseline, reason)
            seconds = time.perf_counter() - began
            results.append(msgspec.structs.replace(result, seconds=seconds))
        return results

    def carried(self) -> CheckResult:
        """Give the weights over, and see that every bit came."""
        expected = {
            pair.target.name: pair.carry(self.weights[pair.source.name]) for pair in self.pairs
        }
        self.model.remote.load_weights(expected)
        held = self.model.remote.weights()
        found = {name: held[name] for name in expected}
        wrong = tuple(name for name in expected if not same_bits(found[name], expected[name]))
        left = (*self.truth.model.leave, *self.model.leave)
        findings = [Finding(cause=BitsDiffer(tensors=wrong))] if wrong else []
        findings += [Finding(cause=WeightsLeft(parameters=left))] if left else []
        return CheckResult(
            check="weights",
            group="weights",
            adapter=self.model.name,
            baseline=Baseline(kind="model_weights", names=(self.truth.model.name,)),
            verdict=verdict(not wrong),
            figures=figures(found, expected),
            findings=tuple(findings),
        )

    @cached_property
    def passed(self) -> Gradients:
        """The model's pass forward and back: in training mode, unless that draws."""
        training = self.drawing is None
        return self.model.gradients(self.truth.inputs, self.truth.cotangents, training)

    def evaluated(self) -> CheckResult:
        """Outputs in evaluation mode."""
        self.trace = self.model.forward(self.truth.inputs, layers=list(self.owners.values()))
        return self._outputs("forward", self.truth.evaluated, self.trace)

    def _outputs(self, check: str, ours: ForwardPass, theirs: ForwardPass) -> CheckResult:
        found, expected = _named(theirs.outputs), _named(ours.outputs)
        compared = figures(found, expected)
        findings: list[Finding] = []
        if len(found) != len(expected):
            findings.append(Finding(cause=OutputCount(found=len(found), expected=len(expected))))
        for one in compared if not findings else ():
            cause = infinite_cause(one.tensor, found.get(one.tensor), expected.get(one.tensor))
            if one.relative_l2 is None and cause is not None:
                findings.append(Finding(cause=cause, figure=one, tolerance=FLOAT64_TOLERANCE))
        return CheckResult(
            check=check,
            group="forward",
            adapter=self.model.name,
            baseline=self.baseline,
            verdict=verdict(passes(compared, FLOAT64_TOLERANCE) and len(found) == len(expected)),
            tolerance=FLOAT64_TOLERANCE,
            figures=compared,
            findings=tuple(findings),
        )

    def layers(self) -> CheckResult:
        """Outputs of the layers that own matched parameters, in evaluation mode."""
        result = self._layers("layers", training=False)
        self.in_evaluation = result.findings
        return result

    def _layers(self, check: str, training: bool) -> CheckResult:
        ours = self.truth.trained if training else self.truth.evaluated
        theirs = (
            self.model.forward(self.truth.inputs, training=True, layers=list(self.owners.values()))
            if training
            else self.trace
        )
        compared = compare_layers(*self._sides(ours, theirs), self.pairs, FLOAT64_TOLERANCE)
        if compared.culprit:
            # Once more with every layer's values, to look between those that have parameters.
            both = [
                model.forward(
                    self.truth.inputs, training=training, layers=list(model.remote.layers)
                )
                for model in (self.truth.model, self.model)
            ]
            compared = compare_layers(*self._sides(*both), self.pairs, FLOAT64_TOLERANCE)
        if not compared.figures:
            reasons = compared.apart or (Finding(cause=NoCounterparts()),)
            return not_run(check, "layers", self.model.name, self.baseline, *reasons)
        return CheckResult(
            check=check,
            group="layers",
            adapter=self.model.name,
            baseline=self.baseline,
            verdict=verdict(passes(compared.figures, FLOAT64_TOLERANCE) and not compared.culprit),
            tolerance=FLOAT64_TOLERANCE,
            figures=compared.figures,
            findings=(*compared.culprit, *compared.apart),
        )

    def _sides(self, ours: ForwardPass, theirs: ForwardPass) -> tuple[Side, Side]:
        reference = self.truth.model
        return (
            Side(reference.name, reference.remote.layers, ours),
            Side(self.model.name, self.model.remote.layers, theirs),
        )

    @cached_property
    def drawing(self) -> Finding | None:
        return self.truth.drawing or self.model.drawing(self.truth.inputs)

    def trained(self) -> CheckResult:
        """Outputs in training mode: batch normalisation by the batch's statistics."""
        if self.drawing is not None:
            return not_run(TRAINING, "forward", self.model.name, self.baseline, self.drawing)
        theirs = self.model.forward(self.truth.inputs, training=True)
        result = self._outputs(TRAINING, self.truth.trained, theirs)
        if result.verdict == "failed":
            findings = self._layers("layers, training", training=True).findings
            if _places(findings) == _places(self.in_evaluation):
                findings = (Finding(cause=SameAsEvaluation()),)
            result = msgspec.structs.replace(result, findings=(*result.findings, *findings))
        return result

    def statistics(self) -> CheckResult:
        """Running statistics after a step of training."""
        return check_statistics(
            self.truth,
            self.model,
            self.normalisations,
            self.pairs,
            self.weights,
            None if self.drawing is not None else self.passed,
        )

    def gradients(self) -> CheckResult:
        """Gradients of the outputs times seeded cotangents, by every parameter and the input."""
        training = self.drawing is None
        whole, passed = self.truth.gradients(training), self.passed
        mine, theirs = whole.parameters, passed.parameters
        expected: dict[str, Array] = {}
        found: dict[str, Array] = {}
        findings: list[Finding] = []
        for pair in self.pairs:
            source, target = pair.source.name, pair.target.name
            if source in mine:
                expected[source] = mine[source]
            if source in mine and target in theirs:
                found[source] = pair.bring_back(theirs[target])
            elif source in mine or target in theirs:
                ours = source in mine
                model = self.truth.model if ours else self.model
                cause = TrainedInOne(parameter=source if ours else target, model=model.name)
                findings.append(Finding(cause=cause))
        trained_in_both = not findings
        if whole.inputs is not None:
            expected["input"] = whole.inputs
        if passed.inputs is not None:
            found["input"] = passed.inputs
        # A gradient that is zero but for rounding is off by 1e-16 of the whole.
        compared = figures(found, expected, SMALL / NOISE * norm_floor(expected))
        findings += [] if training else [Finding(cause=EvaluationMode())]
        return CheckResult(
            check=GRADIENTS,
            group=GRADIENTS,
            adapter=self.model.name,
            baseline=self.baseline,
            verdict=verdict(passes(compared, FLOAT64_TOLERANCE) and trained_in_both),
            tolerance=FLOAT64_TOLERANCE,
            figures=compared,
            findings=tuple(findings),
        )


def _places(findings: Sequence[Finding]) -> list[Any]:
    """What findings are about, whatever the distances are."""
    return [finding.cause for finding in findings]


def _named(outputs: Sequence[Array]) -> dict[str, Array]:
    if len(outputs) == 1:
        return {"output": outputs[0]}
    return {f"output {number}": output for number, output in enumerate(outputs)}
