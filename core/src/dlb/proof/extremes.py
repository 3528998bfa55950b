"""Weights and inputs that take every layer to its bounds, beyond them, and into ties.

Noise and initial weights leave much untried: no value of a ReLU is exactly 0, no two elements of a pooling tie,
few values pass 6, none passes 88 (where exp overflows in float32) or 710 (in float64), and no mean is large
against its spread. A fault there does not show, and trains another model on real data.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from dlb.errors import WorkloadError
from dlb_graph import layers as L
from dlb_graph.workload import Model, Node

__all__ = ["Extreme", "ExtremeKind", "check_domains", "extremes"]

if TYPE_CHECKING:
    from dlb.proof.reference import Reference

Array = npt.NDArray[Any]
ExtremeKind = Literal["ties", "large", "offset"]
#: Numbers of the case ``ties`` are multiples of this. 3 and 6 are no multiples: at the bounds of a hard
#: sigmoid and at the upper bound of a ReLU6, frameworks have different derivatives.
GRID = 7 / 16
#: Factor of the case ``large``: values of about 1 pass 88 and 710.
GAIN = 1024.0
#: Summand of the case ``offset``. A variance computed as the mean of squares minus the squared mean loses
#: the square of this, 1e-9 in float64, and is found; a correct one loses 1e-12.
OFFSET = 4096.0
#: One channel in this many is silent in the case ``ties``.
SILENT = 4


@dataclass(frozen=True)
class Extreme:
    """Weights and inputs of one case.

    Attributes:
        kind: ``ties``: sums are exact, and some channels are constant, so that values are exactly 0 and
            elements of a pooling are exactly equal. ``large``: values far beyond every bound. ``offset``:
            normalisations of values whose mean is large against their spread.
        weights: by ``layer.parameter``.
        inputs: [batch, ...].
    """

    kind: ExtremeKind
    weights: dict[str, Array]
    inputs: Array


def extremes(model: Model, weights: Mapping[str, Array], inputs: Array) -> Iterator[Extreme]:
    """Every case that applies to a model. With a function that is not finite for every number, such as a
    logarithm, only cases in which all values are finite apply.

    Args:
        weights: the proof's weights, float32, by ``layer.parameter``.
        inputs: noise, float32 or int64 [batch, ...].
    """
    cases = _cases(model, weights, inputs)
    if not any(node.layer.has_limited_domain() for node in model.nodes):
        yield from cases
        return
    yield from (case for case in cases if _is_finite(model, case))


def check_domains(reference: Reference) -> None:
    """Check that functions such as a logarithm are finite on the proof's inputs.

    Raises:
        WorkloadError: one is not, so that no framework could be compared; the message names its layer.
    """
    nodes = [node for node in reference.model.nodes if node.layer.has_limited_domain()]
    if not nodes:
        return
    with np.errstate(all="ignore"):
        values = reference.training_layers
    for node in reference.model.nodes:
        if not np.isfinite(values[node.name]).all():
            kind = f"{L.type_name(node.layer)} {getattr(node.layer, 'function', '')}".strip()
            raise WorkloadError(
                f"layer '{node.name}' ({kind}) is not finite for the inputs and weights of the proof; "
                "keep what it reads where it is, for example with an elementwise clip before it"
            )


def _is_finite(model: Model, case: Extreme) -> bool:
    """Whether a case's values and slopes are finite, in float32 too: a logarithm of 0 shows nothing."""
    from dlb_graph.truth.canonical import canonical_graph
    from dlb_graph.truth.evaluate import Evaluator

    graph = canonical_graph(model, None, dtype="float32", training=True)
    names = [node.name for node in model.nodes]
    given = {model.input.name: case.inputs}
    with np.errstate(all="ignore"):
        values = given | Evaluator(graph).run(given | case.weights, names)
    return all(
        np.isfinite(values[node.name]).all()
        and node.layer.has_finite_gradient(values[node.inputs[0]])
        for node in model.wired()
    )


def _cases(model: Model, weights: Mapping[str, Array], inputs: Array) -> Iterator[Extreme]:
    yield Extreme("ties", _tied(model, weights), _on_grid(inputs, 2.0))
    large = _moved(inputs, GAIN, 0.0)
    yield Extreme("large", _large(model, weights, large), large)
    normalised = _normalised(model)
    if normalised:
        moved = _moved(inputs, 1.0, OFFSET) if model.input.name in normalised else inputs
        yield Extreme("offset", _offset(model, weights, normalised), moved)


def _moved(inputs: Array, gain: float, offset: float) -> Array:
    if inputs.dtype.kind != "f":
        return inputs
    moved: Array = (inputs * gain + offset).astype(inputs.dtype)
    return moved


def _on_grid(array: Array, scale: float) -> Array:
    """The nearest multiples of :data:`GRID`, after multiplication; integers unchanged."""
    if array.dtype.kind != "f":
        return array
    nearest: Array = (np.rint(array * scale / GRID) * GRID).astype(array.dtype)
    return nearest


def _tied(model: Model, weights: Mapping[str, Array]) -> dict[str, Array]:
    """Matrices of few different numbers, and channels that are constant: 0, or one multiple of the grid."""
    result = dict(weights)
    for node in model.nodes:
        if node.weights_of:
            continue
        name = node.name
        if node.layer.rows_of_channels and f"{name}.weight" in weights:
            weight = weights[f"{name}.weight"]
            unit = np.float32(2.0 ** np.floor(np.log2(np.abs(weight).mean() + 2.0**-60)))
            weight = np.rint(weight / unit) * unit
            if f"{name}.bias" in weights:
                weight[::SILENT] = 0.0
                result[f"{name}.bias"] = _silenced(_on_grid(weights[f"{name}.bias"], 1.0))
            result[f"{name}.weight"] = weight
        elif node.layer.subtracts_mean:
            scale = weights[f"{name}.scale"].copy()
            scale[::SILENT] = 0.0
            result[f"{name}.scale"] = scale
            result[f"{name}.bias"] = _silenced(weights[f"{name}.bias"])
    return result


def _silenced(bias: Array) -> Array:
    """A bias whose silent channels are 0 and one step of the grid, in turns."""
    silenced: Array = bias.copy()
    silenced[::SILENT] = 0.0
    silenced[SILENT :: 2 * SILENT] = GRID
    return silenced


def _large(model: Model, weights: Mapping[str, Array], inputs: Array) -> dict[str, Array]:
    """Parameters that let every layer pass its bounds, whatever bounds or normalises the values before it."""
    result = dict(weights)
    large = {model.input.name} if model.input.kind == "real" else set()

    def grow(*names: str) -> None:
        for name in names:
            if name in weights:
                result[name] = weights[name] * np.float32(GAIN)

    for node in model.wired():
        reads_large = any(name in large for name in node.inputs)
        growing = node.layer.growing_roles
        if node.layer.normalises or not reads_large:
            grow(*(f"{node.owner}.{role}" for role in growing))
        if not node.layer.is_bounded() and (growing or reads_large):
            large.add(node.name)
    return result | _scaled_queries(model, result, inputs)


def _scaled_queries(model: Model, weights: Mapping[str, Array], inputs: Array) -> dict[str, Array]:
    """Queries whose products with the keys are about :data:`GAIN`.

    Larger ones would nearly tie at random, where a softmax blows up rounding.
    """
    from dlb_graph.truth.canonical import canonical_graph
    from dlb_graph.truth.evaluate import Evaluator

    nodes = [node for node in model.wired() if isinstance(node.layer, L.Attention)]
    if not nodes:
        return {}
    graph = canonical_graph(model, None, dtype="float64", training=True)
    sources = [node.inputs[0] for node in nodes]
    given = {model.input.name: inputs}
    values = given | Evaluator(graph).run(given | dict(weights), set(sources) - set(given))
    scaled = {}
    for node, source in zip(nodes, sources):
        roles = {
            role: values[source] @ weights[f"{node.owner}.{role}_weight"].T
            for role in ("query", "key")
        }
        assert isinstance(node.layer, L.Attention)
        size = roles["query"].shape[-1] // node.layer.heads
        heads = [role.reshape(*role.shape[:2], -1, size).swapaxes(1, 2) for role in roles.values()]
        products = heads[0] @ heads[1].swapaxes(2, 3) / np.sqrt(size)
        for name in (f"{node.owner}.query_weight", f"{node.owner}.query_bias"):
            if name in weights:
                factor = GAIN / max(float(np.sqrt((products**2).mean())), 1e-30)
                scaled[name] = (weights[name] * factor).astype(np.float32)
    return scaled


def _normalised(model: Model) -> set[str]:
    """Values that only normalisations read, directly or through layers that keep a common summand.

    Elsewhere a large mean says nothing: it saturates what reads it.
    """
    readers: dict[str, list[Node]] = {}
    for node in model.wired():
        for source in node.inputs:
            readers.setdefault(source, []).append(node)
    normalised: set[str] = set()
    for name in (*reversed([node.name for node in model.nodes]), model.input.name):
        if name in readers and all(
            node.layer.subtracts_mean or (_keeps_means(node.layer) and node.name in normalised)
            for node in readers[name]
        ):
            normalised.add(name)
    return normalised


def _keeps_means(layer: L.Layer) -> bool:
    """Whether a common summand of all inputs is one of all outputs; zeros around a map break it."""
    return layer.keeps_means and not any(getattr(layer, "pads", ()))


def _offset(model: Model, weights: Mapping[str, Array], normalised: set[str]) -> dict[str, Array]:
    """Biases and tables that give the values before a normalisation a large mean."""
    result = dict(weights)
    for node in model.nodes:
        name = f"{node.name}.{node.layer.summand}"
        if node.name in normalised and name in weights:
            result[name] = weights[name] + np.float32(OFFSET)
    return result
