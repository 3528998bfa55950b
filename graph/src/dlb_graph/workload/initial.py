"""Seeded initial weights, with the same bits on every machine and for every framework."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterator, Mapping

import numpy as np
import numpy.typing as npt

from dlb_graph import layers as L
from dlb_graph.workload.model import Model
from dlb_graph.workload.shapes import infer_shapes, parameter_shapes

__all__ = ["initial_weights", "proof_masks", "proof_weights"]

#: Numbers drawn at a time: few enough for a CPU cache.
CHUNK = 1 << 15
#: Variance of a weight from its fan-in and fan-out: Glorot and Bengio 2010, He et al. 2015,
#: LeCun et al. 1998.
_VARIANCE: dict[str, Callable[[int, int], float]] = {
    "glorot": lambda fan_in, fan_out: 2.0 / (fan_in + fan_out),
    "he": lambda fan_in, fan_out: 2.0 / fan_in,
    "lecun": lambda fan_in, fan_out: 1.0 / fan_in,
}


def initial_weights(model: Model, seed: int) -> dict[str, npt.NDArray[np.float32]]:
    """Initial value of every parameter and state, by ``layer.parameter``, in canonical layout.

    The numbers are drawn in float64 and rounded to float32 once, so that a float32 and a float64 run
    start from the same values. The seed and the name of a tensor select its random stream. A new layer
    elsewhere does not change it.

    Returns:
        float32 arrays with the shapes of :func:`dlb_graph.workload.parameter_shapes`.
    """
    layers = {node.name: node.layer for node in model.nodes}
    shapes = parameter_shapes(model)
    return {
        name: _draw(layers[name.split(".")[0]], name, shapes, seed).astype(np.float32)
        for name in shapes
    }


def proof_weights(
    weights: Mapping[str, npt.NDArray[np.float32]], seed: int
) -> dict[str, npt.NDArray[np.float32]]:
    """Initial weights without constant tensors.

    A bias of zeros would hide that a framework leaves the bias out. Statistics of 0 and 1 would hide
    that it does not use them.

    Returns:
        the same arrays, but each element of a constant array has a random number added. That number
        is between -0.25 and 0.25 times the constant (times 1 if it is 0), so that variances and
        scales stay positive.
    """
    result = dict(weights)
    for name, array in result.items():
        if (array == array.flat[0]).all():
            uniform = _uniform(f"{name}/proof", array.size, seed).reshape(array.shape)
            moved = np.where(array == 0, 1.0, array) * (0.5 * uniform - 0.25)
            result[name] = (array + moved).astype(np.float32)
    return result


def proof_masks(model: Model, seed: int, rows: int) -> dict[str, npt.NDArray[np.float32]]:
    """The dropout masks of proofs, by layer name, for each dropout with a rate above 0.

    Each layer has its own random stream, as weights have.

    Returns:
        float32 [rows, *shape of the layer's output], 0 with probability ``rate``, else 1.
    """
    shapes = infer_shapes(model)
    masks = {}
    for node in model.nodes:
        if isinstance(node.layer, L.Dropout) and node.layer.rate > 0:
            shape = (rows, *shapes[node.name])
            drawn = _uniform(f"{node.name}/mask", math.prod(shape), seed).reshape(shape)
            masks[node.name] = (drawn >= node.layer.rate).astype(np.float32)
    return masks


def _draw(
    layer: L.Layer, name: str, shapes: Mapping[str, L.Shape], seed: int
) -> npt.NDArray[np.float64]:
    layer_name, role = name.split(".")
    shape = fan_shape = shapes[name]
    if role == "bias":  # the fan-in of a bias is that of its weight
        fan_shape = shapes.get(f"{getattr(layer, 'tied_to', '') or layer_name}.weight", shape)
    return _values(layer.initializer(role), fan_shape, name, math.prod(shape), seed).reshape(shape)


def _values(
    scheme: L.Initializer, fan_shape: L.Shape, name: str, count: int, seed: int
) -> npt.NDArray[np.float64]:
    """``count`` numbers of a scheme; ``fan_shape`` is the weight's shape, which gives the fans."""
    if isinstance(scheme, L.Fill):
        return np.full(count, scheme.value)
    if isinstance(scheme, L.Uniform):
        return (2.0 * _uniform(name, count, seed) - 1.0) * scheme.limit
    if isinstance(scheme, L.Normal):
        return _normal(name, count, seed) * scheme.std
    if isinstance(scheme, L.TruncatedNormal):
        return _truncated_normal(name, count, seed) * scheme.std
    if scheme in ("zeros", "ones"):
        return np.full(count, float(scheme == "ones"))
    receptive_field = math.prod(fan_shape[2:])
    fan_in, fan_out = fan_shape[1] * receptive_field, fan_shape[0] * receptive_field
    if scheme == "fan_in":
        return (2.0 * _uniform(name, count, seed) - 1.0) / math.sqrt(fan_in)
    family, distribution = scheme.split("_")
    variance = _VARIANCE[family](fan_in, fan_out)
    if distribution == "uniform":
        return (2.0 * _uniform(name, count, seed) - 1.0) * math.sqrt(3.0 * variance)
    return _normal(name, count, seed) * math.sqrt(variance)


def _normal(name: str, count: int, seed: int) -> npt.NDArray[np.float64]:
    """``count`` normal numbers (Box and Muller 1958); 1 - u keeps the logarithm finite."""
    numbers = np.empty(count)
    # Each number uses one from the first half of the stream and one from the second half.
    streams = _stream(name, count, seed), _stream(name, count, seed, skip=count)
    for (chunk, first), (_, second) in zip(*streams):
        numbers[chunk] = np.sqrt(-2.0 * np.log(1.0 - first)) * np.cos(2.0 * np.pi * second)
    return numbers


def _truncated_normal(name: str, count: int, seed: int) -> npt.NDArray[np.float64]:
    values, redraw = _normal(name, count, seed), 0
    while (beyond := np.abs(values) > 2.0).any():
        redraw += 1
        values[beyond] = _normal(f"{name}/{redraw}", int(beyond.sum()), seed)
    return values


def _uniform(name: str, count: int, seed: int) -> npt.NDArray[np.float64]:
    """``count`` numbers in [0, 1)."""
    numbers = np.empty(count)
    for chunk, drawn in _stream(name, count, seed):
        numbers[chunk] = drawn
    return numbers


def _stream(
    name: str, count: int, seed: int, *, skip: int = 0
) -> Iterator[tuple[slice, npt.NDArray[np.float64]]]:
    """``count`` numbers in [0, 1) from raw PCG64 output after the first ``skip``, in chunks.

    NumPy guarantees the raw stream of a bit generator for ever. The streams of ``Generator``'s methods
    may change with any version.
    """
    key = hashlib.sha256(f"dlb weights {seed} {name}".encode()).digest()
    generator = np.random.PCG64(int.from_bytes(key, "big"))
    generator.advance(skip)
    for start in range(0, count, CHUNK):
        chunk = slice(start, min(start + CHUNK, count))
        raw = generator.random_raw(chunk.stop - start)
        yield chunk, (raw >> np.uint64(11)).astype(np.float64) * 2.0**-53
