"""``layers``: each layer by itself, with the inputs that the subject computed for it.

For a built model, every layer is compared with the canonical layer. For a port, the layers that own matched
parameters are compared with their counterparts. For two files whose outputs differ, the first pair of
nodes that differ is found.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec
import numpy.typing as npt

from dlb.proof.certificate import Baseline, CheckResult
from dlb.proof.distance import figure, infinite_cause, passes, relative_l2, worst_first
from dlb.proof.engine import Check
from dlb.proof.findings import AnyCause, Figure, Finding, LayerFacts
from dlb.proof.findings.common import Missing
from dlb.proof.findings.files import NodesPart, OutputsConstant
from dlb.proof.findings.port import NoCounterparts
from dlb.proof.findings.workload import LayerDiffers
from dlb.proof.port.comparison import PortComparison
from dlb.proof.tolerances import FLOAT64_TOLERANCE, Tensors
from dlb.workload import Model, type_name

if TYPE_CHECKING:
    from dlb.proof.files.runs import FilePair, Runs

__all__ = [
    "ISOLATED",
    "check_counterparts",
    "check_isolated_layers",
    "check_node_values",
    "infinite_causes",
    "layer_facts",
    "layers_result",
    "missing_layers",
]

Array = npt.NDArray[Any]
ISOLATED = Baseline(kind="canonical_layers")


def check_isolated_layers(
    adapter: str,
    name: str,
    model: Model,
    values: Tensors,
    truth: Iterable[tuple[str, Array]],
    native: Mapping[str, str],
) -> CheckResult:
    """Compare each layer's value with the canonical layer's, computed from the adapter's own inputs.

    So the errors of earlier layers do not count.

    Args:
        values: every layer's value, as the adapter computed it.
        truth: name and value of every canonical layer.
        native: the framework's description of each layer, by name.
    """
    compared: list[Figure] = []
    causes: dict[str, AnyCause] = {}
    for layer, array in truth:
        compared.append(figure(layer, values[layer], array))
        if compared[-1].relative_l2 is None and (
            cause := infinite_cause(layer, values[layer], array)
        ):
            causes[layer] = cause
    check = Check(name, "layers", adapter, ISOLATED)
    return layers_result(check, model, worst_first(compared), FLOAT64_TOLERANCE, native, causes)


def layers_result(
    check: Check,
    model: Model,
    compared: tuple[Figure, ...],
    tolerance: float,
    native: Mapping[str, str],
    causes: Mapping[str, AnyCause],
    *notes: Finding,
) -> CheckResult:
    """The result of comparing layers. It names the first layer past the tolerance in the model's order.

    Args:
        native: the framework's description of each layer, by name.
        causes: causes of infinite distances, by layer.
        notes: further findings.
    """
    failing = {item.tensor: item for item in compared if not passes((item,), tolerance)}
    first = next((node.name for node in model.nodes if node.name in failing), None)
    fault = None
    if first is not None:
        fault = Finding(
            cause=causes.get(first, LayerDiffers()),
            layer=layer_facts(model, first, native),
            figure=failing[first],
            tolerance=tolerance,
        )
    return check.result(compared, tolerance, (fault, *notes))


def infinite_causes(
    compared: Iterable[Figure], values: Tensors, truth: Tensors
) -> dict[str, AnyCause]:
    """Why distances are infinite, by layer."""
    names = [item.tensor for item in compared if item.relative_l2 is None]
    causes = {name: infinite_cause(name, values.get(name), truth.get(name)) for name in names}
    return {name: cause for name, cause in causes.items() if cause is not None}


def layer_facts(model: Model, name: str, native: Mapping[str, str]) -> LayerFacts:
    """A layer's description, and what the framework built."""
    (layer,) = (node.layer for node in model.nodes if node.name == name)
    attributes = msgspec.json.decode(msgspec.json.encode(msgspec.structs.asdict(layer)))
    return LayerFacts(
        name=name,
        kind=type_name(layer),
        # Converted to JSON containers, so that a written and read document is equal.
        attributes={field: value for field, value in attributes.items() if value is not None},
        built=" ".join(native.get(name, "").split()),
    )


def missing_layers(values: Tensors, truth: Tensors) -> Finding | None:
    """Values that are missing or have another shape, so that layers cannot be isolated; None if none."""
    names = [
        name
        for name, array in truth.items()
        if name not in values or values[name].shape != array.shape
    ]
    return Finding(cause=Missing(names=tuple(names))) if names else None


def check_counterparts(check: Check, port: PortComparison, training: bool = False) -> CheckResult:
    """Compare outputs of layers that own matched parameters; the findings name the first that differs.

    Layers locate a difference of the outputs. If the outputs agree, no layer differs.
    """
    compared = port.layers(training)
    if not compared.figures and not compared.culprit:
        return check.not_run(*(compared.apart or (Finding(cause=NoCounterparts()),)))
    findings = (*compared.culprit, *compared.apart)
    return check.result(compared.figures, port.tolerance, findings, passed=not compared.culprit)


def check_node_values(check: Check, pair: FilePair, runs: Runs, tolerance: float) -> CheckResult:
    """Find the first pair of nodes that differ, in the first batch whose outputs differ."""
    from dlb.proof.files.parting import first_parting
    from dlb.proof.files.runs import trace_file

    for place, (ours, theirs) in enumerate(zip(*runs.values)):
        differing = [
            names
            for names in pair.outputs
            if not relative_l2(theirs[names[0]], ours[names[0]]) <= tolerance
        ]
        if not differing:
            continue
        traces = runs.traces
        if place:
            traces = (
                trace_file(pair.first, pair.inputs.first[place]),
                trace_file(pair.second, pair.inputs.second[place]),
            )
        parting = first_parting(*traces, differing, tolerance)
        if parting is None:
            break
        with_owner = msgspec.structs.replace
        cause = NodesPart(
            node=with_owner(parting.first, owner=pair.first.label),
            other=with_owner(parting.second, owner=pair.second.label),
            **parting.differs,
        )
        finding = Finding(cause=cause, figure=parting.figure, tolerance=tolerance)
        return check.result((parting.figure,), tolerance, (finding,), passed=False)
    return check.not_run(Finding(cause=OutputsConstant()))
