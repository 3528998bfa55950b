"""Weights after loading, and values of layers: as errors accumulate, and each layer isolated."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from dlb.proof.certificate import Baseline, CheckGroup, CheckResult
from dlb.proof.checks.tolerances import FLOAT64_TOLERANCE, Tensors, verdict
from dlb.proof.distance import figure, figures, infinite_cause, passes, same_bits, worst_first
from dlb.proof.findings import AnyCause, Figure, Finding, LayerFacts
from dlb.proof.findings.common import BitsDiffer, Missing
from dlb.proof.findings.workload import ConstantLogits, Float32Baseline, LayerDiffers
from dlb.workload import Model, type_name

__all__ = [
    "CANONICAL",
    "ISOLATED",
    "check_forward",
    "check_forward_float32",
    "check_isolated_layers",
    "check_weights",
    "layer_facts",
    "missing_layers",
]

Array = npt.NDArray[Any]

CANONICAL = Baseline(kind="canonical_graph")
ISOLATED = Baseline(kind="canonical_layers")


def check_weights(adapter: str, dtype: str, held: Tensors, given: Tensors) -> CheckResult:
    """Every parameter after loading, bit for bit."""
    expected = {name: array.astype(dtype) for name, array in given.items()}
    wrong = [
        name
        for name in {**expected, **held}
        if name not in held or name not in expected or not same_bits(held[name], expected[name])
    ]
    compared = figures(held, expected)
    findings: list[Finding] = []
    if wrong:
        cause: AnyCause = BitsDiffer(tensors=tuple(wrong))
        findings.append(Finding(cause=cause, figure=compared[0] if compared else None))
        first = next((name for name in wrong if name in expected), wrong[0])
        if infinite := infinite_cause(first, held.get(first), expected.get(first)):
            findings.append(Finding(cause=infinite))
    return CheckResult(
        check=f"weights {dtype}",
        group="weights",
        adapter=adapter,
        baseline=Baseline(kind="given_weights"),
        verdict=verdict(not wrong),
        figures=compared,
        findings=tuple(findings),
    )


def check_forward(
    adapter: str,
    check: str,
    model: Model,
    values: Tensors,
    truth: Tensors,
    native: Mapping[str, str],
) -> CheckResult:
    """Values of a forward pass against the canonical graph's in float64.

    The first layer past the tolerance is named, as it is described and as the framework says that it
    built it.

    Args:
        values: of every layer, as the adapter computed them.
        native: what the framework says of each layer, by name.
    """
    compared = figures(values, truth)
    return _layers_result(
        check,
        "forward",
        adapter,
        CANONICAL,
        model,
        compared,
        FLOAT64_TOLERANCE,
        native,
        _infinite_causes(compared, values, truth),
    )


def check_forward_float32(
    adapter: str,
    model: Model,
    values: Tensors,
    truth: Tensors,
    tolerance: float,
    float32_baseline: float,
    native: Mapping[str, str],
) -> CheckResult:
    """Logits of a float32 forward pass against the canonical graph's in float64.

    Args:
        float32_baseline: distance of ONNX Runtime's, on the canonical graph.
        native: what the framework says of each layer, by name.
    """
    compared = figures(values, truth)
    result = _layers_result(
        "forward float32",
        "float32",
        adapter,
        CANONICAL,
        model,
        compared,
        tolerance,
        native,
        _infinite_causes(compared, values, truth),
    )
    finite = float32_baseline if np.isfinite(float32_baseline) else None
    facts = [Finding(cause=Float32Baseline(distance=finite))]
    if all(len(array) > 1 and (array == array[:1]).all() for array in truth.values()):
        facts.append(Finding(cause=ConstantLogits()))
    return msgspec.structs.replace(result, findings=(*result.findings, *facts))


def check_isolated_layers(
    adapter: str,
    check: str,
    model: Model,
    values: Tensors,
    truth: Iterable[tuple[str, Array]],
    native: Mapping[str, str],
) -> CheckResult:
    """Each layer's value against the canonical layer's, given the adapter's own inputs to it.

    So no layer answers for the errors of those before it.
    """
    compared: list[Figure] = []
    causes: dict[str, AnyCause] = {}
    for name, array in truth:
        compared.append(figure(name, values[name], array))
        if compared[-1].relative_l2 is None and (
            cause := infinite_cause(name, values[name], array)
        ):
            causes[name] = cause
    return _layers_result(
        check,
        "layers",
        adapter,
        ISOLATED,
        model,
        worst_first(compared),
        FLOAT64_TOLERANCE,
        native,
        causes,
    )


def _infinite_causes(
    compared: Iterable[Figure], values: Tensors, truth: Tensors
) -> dict[str, AnyCause]:
    """Why distances are infinite, by layer."""
    names = [one.tensor for one in compared if one.relative_l2 is None]
    causes = {name: infinite_cause(name, values.get(name), truth.get(name)) for name in names}
    return {name: cause for name, cause in causes.items() if cause is not None}


def _layers_result(
    check: str,
    group: CheckGroup,
    adapter: str,
    baseline: Baseline,
    model: Model,
    ordered: tuple[Figure, ...],
    tolerance: float,
    native: Mapping[str, str],
    causes: Mapping[str, AnyCause],
) -> CheckResult:
    past = {one.tensor: one for one in ordered if not passes((one,), tolerance)}
    first = next((node.name for node in model.nodes if node.name in past), None)
    findings: tuple[Finding, ...] = ()
    if first is not None:
        finding = Finding(
            cause=causes.get(first, LayerDiffers()),
            layer=layer_facts(model, first, native),
            figure=past[first],
            tolerance=tolerance,
        )
        findings = (finding,)
    return CheckResult(
        check=check,
        group=group,
        adapter=adapter,
        baseline=baseline,
        verdict=verdict(passes(ordered, tolerance)),
        tolerance=tolerance,
        figures=ordered,
        findings=findings,
    )


def layer_facts(model: Model, name: str, native: Mapping[str, str]) -> LayerFacts:
    """A layer as it is described, and as the framework says that it built it."""
    (layer,) = (node.layer for node in model.nodes if node.name == name)
    return LayerFacts(
        name=name,
        kind=type_name(layer),
        # To the containers of JSON, so that what is read back is equal.
        attributes=msgspec.json.decode(msgspec.json.encode(msgspec.structs.asdict(layer))),
        built=" ".join(native.get(name, "").split()),
    )


def missing_layers(values: Tensors, truth: Tensors) -> Finding | None:
    """What keeps layers from being isolated: values that are not there, or of another shape."""
    names = [
        name
        for name, array in truth.items()
        if name not in values or values[name].shape != array.shape
    ]
    return Finding(cause=Missing(names=tuple(names))) if names else None
