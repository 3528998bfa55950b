"""``exported weights``: the numbers of the exported file, compared bit for bit with the trained model's.

Predictions do not show one weight among thousands that is off by 1e-4.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from dlb.proof.certificate import CheckResult
from dlb.proof.engine import Check
from dlb.proof.findings import Figure, Finding
from dlb.proof.findings.common import BitsDiffer
from dlb.proof.findings.workload import FoldedWeights
from dlb_graph.comparing.distance import relative_l2, worst_first
from dlb_graph.comparing.tolerances import FOLDED_TOLERANCE
from dlb_graph.workload import Model

if TYPE_CHECKING:
    from onnx import GraphProto

__all__ = ["check_exported_weights"]

Array = npt.NDArray[Any]


def check_exported_weights(
    check: Check, model: Model, weights: Mapping[str, Array], exported: Path
) -> CheckResult:
    """Look for every number of the trained model among the constants of the file, bit for bit.

    Every number must occur in the file as often as in the model, in any layout and order; ``structure`` and
    ``export`` show whether the order is right. Of tensors that are equal in every bit a file may hold one, and
    of zeros alone none: exporters leave out a bias of zeros. A batch normalisation may be folded into the layer
    before. The file then has the product, which dlb computes in float64 and compares to
    :data:`FOLDED_TOLERANCE`.

    Args:
        model: the model's description.
        weights: every trained parameter and state, by ``layer.parameter``.
        exported: the file.
    """
    import onnx

    constants = list(_constants(onnx.load(str(exported)).graph))
    missing = _missing(weights, constants)
    folded = _folded(model, weights, missing, constants) if missing else {}
    compared = [
        Figure(
            tensor=name,
            relative_l2=folded[name]
            if name in folded
            else _nearest(array, constants)
            if name in missing
            else 0.0,
            largest=None,
        )
        for name, array in weights.items()
    ]
    wrong = tuple(name for name in missing if name not in folded)
    # Those that pass by the tolerance of folding may be further off than one that must agree in every bit.
    ordered = worst_first(each for each in compared if each.tensor in wrong)
    ordered += worst_first(each for each in compared if each.tensor not in wrong)
    findings = [Finding(cause=BitsDiffer(tensors=wrong))] if wrong else []
    if folded and not wrong:
        findings = [Finding(cause=FoldedWeights(weights=tuple(folded)))]
    tolerance = FOLDED_TOLERANCE if folded else None
    return check.result(ordered, tolerance, findings, passed=not wrong)


def _constants(graph: GraphProto) -> Iterator[Array]:
    """Every real tensor of a graph and of the graphs inside it, flat."""
    from onnx import numpy_helper

    tensors = [*graph.initializer]
    for node in graph.node:
        for attribute in node.attribute:
            tensors += [attribute.t] if attribute.HasField("t") else []
            for inner in (attribute.g, *attribute.graphs):
                yield from _constants(inner)
    for tensor in tensors:
        array = numpy_helper.to_array(tensor)
        if array.dtype.kind == "f":
            yield array.reshape(-1)


def _missing(weights: Mapping[str, Array], constants: list[Array]) -> list[str]:
    """Parameters of which the file lacks a number, or has it less often."""
    pool: Array = np.concatenate(constants) if constants else np.empty(0)
    own = np.concatenate([pool[:0], *(array.reshape(-1) for array in weights.values())])
    if pool.size == own.size and np.array_equal(np.sort(pool), np.sort(own)):
        return []
    held, counts = np.unique(pool, return_counts=True)
    needed = np.zeros(len(held), np.int64)
    places: dict[str, Array] = {}
    missing = []
    counted: set[bytes] = set()
    for name, array in weights.items():
        if not array.any():
            continue  # what adds zeros is left out
        values, count = np.unique(array, return_counts=True)
        place = np.searchsorted(held, values)
        found = held[np.minimum(place, max(len(held) - 1, 0))] == values if len(held) else False
        if not np.all(found):
            missing.append(name)
            continue
        places[name] = place
        digest = hashlib.sha256(array.tobytes()).digest()
        if digest not in counted:
            np.add.at(needed, place, count)
        counted.add(digest)
    # 0 and 1 may be left out by an exporter, where they change nothing.
    short = (needed > counts) & (held != 0) & (held != 1)
    return missing + [name for name, place in places.items() if short[place].any()]


def _folded(
    model: Model, weights: Mapping[str, Array], missing: list[str], constants: list[Array]
) -> dict[str, float]:
    """Of the missing parameters, those that a batch normalisation is folded into, with their distance."""
    from dlb_graph.comparing.foldings import foldings
    from dlb_graph.truth.canonical import canonical_graph
    from dlb_graph.truth.trace import trace

    distances: dict[str, float] = {}
    in_order = [np.sort(constant) for constant in constants]
    for values, sources in foldings(trace(canonical_graph(model, weights, dtype="float32"))):
        expected = np.sort(values, axis=None)
        distance = min(
            (relative_l2(held, expected) for held in in_order if held.size == expected.size),
            default=np.inf,
        )
        if distance <= FOLDED_TOLERANCE:
            for name in sorted(sources & set(missing)):
                distances[name] = max(distance, distances.get(name, 0.0))
    return distances


def _nearest(array: Array, constants: list[Array]) -> float | None:
    """The distance of the nearest constant of the same size, in any order; None if none is near."""
    expected = np.sort(array, axis=None)
    distances = [
        relative_l2(np.sort(constant), expected)
        for constant in constants
        if constant.size == expected.size
    ]
    nearest = min(distances, default=np.inf)
    return nearest if nearest < 1.0 else None
