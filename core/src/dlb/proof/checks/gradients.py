"""``gradients`` in float64: compared with finite differences, or for a port with the reference."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from dlb.errors import PluginError
from dlb.proof.certificate import Baseline, CheckResult
from dlb.proof.distance import figure, figures, passes, worst_first
from dlb.proof.engine import Check, Keep, run
from dlb.proof.findings import Finding
from dlb.proof.findings.port import EvaluationMode, TrainedInOne
from dlb.proof.findings.workload import DifferenceSteps
from dlb.proof.port.comparison import PortComparison, input_names
from dlb.proof.tolerances import FLOAT64_TOLERANCE, NOISE, SLOPE_TOLERANCE, SMALL, norm_floor
from dlb.workload import Model, parameter_shapes
from dlb.workload.shapes import trained_names

if TYPE_CHECKING:
    from dlb.proof.reference import Reference, Slope

__all__ = ["check_gradient_shapes", "check_slopes", "check_user_gradients", "prove_slopes"]

Array = npt.NDArray[Any]


def prove_slopes(
    gradients: Mapping[str, Array], reference: Reference, adapter: str, seed: int, keep: Keep
) -> None:
    """Compare a built model's gradients with finite differences."""
    parameters = {name: own for name, own in gradients.items() if name not in ("loss", "input")}

    def slopes(check: Check) -> CheckResult:
        return check_slopes(adapter, reference.slopes(parameters, gradients.get("input"), seed))

    keep(run(_slopes_check(adapter), slopes))


def check_slopes(adapter: str, slopes: Mapping[str, Slope]) -> CheckResult:
    """Compare directional derivatives by the adapter's gradient with those by finite differences."""
    compared = worst_first(
        figure(name, np.array([slope.gradient]), np.array([slope.difference]), slope.typical)
        for name, slope in slopes.items()
    )
    steps = DifferenceSteps(steps={name: slope.step for name, slope in slopes.items()})
    findings = (Finding(cause=steps),)
    return _slopes_check(adapter).result(compared, SLOPE_TOLERANCE, findings)


def _slopes_check(adapter: str) -> Check:
    baseline = Baseline(kind="finite_differences")
    return Check("gradients by differences", "gradients", adapter, baseline)


def check_user_gradients(check: Check, port: PortComparison) -> CheckResult:
    """Compare the gradients of every parameter and of the input, for seeded cotangents of the outputs."""
    training = port.randomness is None
    ours, theirs = port.truth.gradients(training), port.gradients
    expected: dict[str, Array] = {}
    actual: dict[str, Array] = {}
    findings: list[Finding] = []
    for pair in port.pairs:
        source, target = pair.source.name, pair.target.name
        own, other = pair.of_source(ours.parameters), pair.of_target(theirs.parameters)
        if own is not None:
            expected[source] = own
        if own is not None and other is not None:
            actual[source] = other
        elif own is not None or other is not None:
            model = port.model if own is None else port.truth.model
            parameter = target if own is None else source
            findings.append(Finding(cause=TrainedInOne(parameter=parameter, model=model.name)))
    trained_in_both = not findings
    expected |= input_names(ours.several)
    actual |= input_names(theirs.several)
    # Rounding of a gradient that is zero is about 1e-16 of the whole gradient.
    compared = figures(actual, expected, SMALL / NOISE * norm_floor(expected))
    findings += [] if training else [Finding(cause=EvaluationMode())]
    passed = passes(compared, FLOAT64_TOLERANCE) and trained_in_both
    return check.result(compared, FLOAT64_TOLERANCE, findings, passed=passed)


def check_gradient_shapes(gradients: Mapping[str, Array], model: Model) -> None:
    """Check that every gradient is there and has the right shape.

    Raises:
        PluginError: the adapter returned other gradients than the contract requires.
    """
    shapes = parameter_shapes(model)
    expected = {name: shapes[name] for name in trained_names(model)}
    if model.input.kind == "real":
        expected["input"] = model.input.shape
    for name in {**expected, **gradients}:
        if name == "loss":
            continue
        if name not in gradients or name not in expected:
            kind = "no" if name in expected else "a needless"
            raise PluginError(f"its adapter gave {kind} gradient of '{name}'")
        array = gradients[name]
        shape = array.shape[1:] if name == "input" else array.shape
        if shape != expected[name]:
            raise PluginError(
                f"its adapter gave a gradient of shape {list(shape)} of '{name}', which has shape "
                f"{list(expected[name])}"
            )
