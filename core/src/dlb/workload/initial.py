"""Seeded initial weights, the same bits on every machine, for every framework."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterator, Mapping

import numpy as np
import numpy.typing as npt

from dlb.workload import layers as L
from dlb.workload.model import Model
from dlb.workload.shapes import Shape, infer_shapes, parameter_shapes

__all__ = ["initial_weights", "proof_masks", "proof_weights"]

#: Numbers drawn at a time: few enough to stay in a cache.
AT_ONCE = 1 << 15
#: Variance of a weight from its fan-in and fan-out: Glorot and Bengio 2010, He et al. 2015,
#: LeCun et al. 1998.
_VARIANCE: dict[str, Callable[[int, int], float]] = {
    "glorot": lambda fan_in, fan_out: 2.0 / (fan_in + fan_out),
    "he": lambda fan_in, fan_out: 2.0 / fan_in,
    "lecun": lambda fan_in, fan_out: 1.0 / fan_in,
}


def initial_weights(model: Model, seed: int) -> dict[str, npt.NDArray[np.float32]]:
    """Initial value of every parameter and state, by ``layer.parameter``, in canonical layout.

    Drawn in float64 and rounded to float32 once, so that a float32 and a float64 run start from
    the same numbers. Every tensor has its own stream, keyed by the seed and its name: a layer
    added elsewhere does not move it.

    Returns:
        float32 arrays of :func:`dlb.workload.parameter_shapes`.
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
    """Weights that training starts from, with nothing constant: a bias that starts at zero hides
    that it is left out, statistics that start at 0 and 1 that they are not used.

    Returns:
        the same arrays, but that those of one value have had a number between -0.25 and 0.25 of it
        (of 1, if it is 0) added to each element, so that variances and scales stay positive.
    """
    found = dict(weights)
    for name, array in found.items():
        if (array == array.flat[0]).all():
            uniform = _uniform(f"{name}/proof", array.size, seed).reshape(array.shape)
            moved = np.where(array == 0, 1.0, array) * (0.5 * uniform - 0.25)
            found[name] = (array + moved).astype(np.float32)
    return found


def proof_masks(model: Model, seed: int, rows: int) -> dict[str, npt.NDArray[np.float32]]:
    """What each dropout of a rate above 0 multiplies by in proofs, by layer name.

    Drawn as weights are: each layer has its own stream.

    Returns:
        float32 [rows, *shape of the layer's value], 0 with the probability ``rate`` and else 1.
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
    layer: L.Layer, name: str, shapes: Mapping[str, Shape], seed: int
) -> npt.NDArray[np.float64]:
    layer_name, parameter = name.split(".")
    shape = shapes[name]
    if parameter in ("scale", "variance"):
        return np.ones(shape)
    if parameter.endswith("_bias") or parameter == "mean":
        return np.zeros(shape)
    scheme: L.Initializer
    if parameter == "bias":
        scheme = getattr(layer, "bias_init", "zeros")
        # A bias has the fan-in of the weight beside it.
        sized = shapes.get(f"{getattr(layer, 'tied_to', '') or layer_name}.weight", shape)
    else:
        scheme, sized = getattr(layer, "init", "glorot_uniform"), shape
    return _values(scheme, sized, name, math.prod(shape), seed).reshape(shape)


def _values(
    scheme: L.Initializer, sized: Shape, name: str, count: int, seed: int
) -> npt.NDArray[np.float64]:
    """``count`` numbers by a scheme; ``sized`` is the shape of the weight that fans are of."""
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
    receptive = math.prod(sized[2:])
    fan_in, fan_out = sized[1] * receptive, sized[0] * receptive
    if scheme == "fan_in":
        return (2.0 * _uniform(name, count, seed) - 1.0) / math.sqrt(fan_in)
    family, distribution = scheme.split("_")
    variance = _VARIANCE[family](fan_in, fan_out)
    if distribution == "uniform":
        return (2.0 * _uniform(name, count, seed) - 1.0) * math.sqrt(3.0 * variance)
    return _normal(name, count, seed) * math.sqrt(variance)


def _normal(name: str, count: int, seed: int) -> npt.NDArray[np.float64]:
    """Box and Muller 1958; 1 - u keeps the logarithm finite."""
    found = np.empty(count)
    # The first half of the stream beside its second half.
    streams = _stream(name, count, seed), _stream(name, count, seed, skip=count)
    for (some, first), (_, second) in zip(*streams):
        found[some] = np.sqrt(-2.0 * np.log(1.0 - first)) * np.cos(2.0 * np.pi * second)
    return found


def _truncated_normal(name: str, count: int, seed: int) -> npt.NDArray[np.float64]:
    values, again = _normal(name, count, seed), 0
    while (beyond := np.abs(values) > 2.0).any():
        again += 1
        values[beyond] = _normal(f"{name}/{again}", int(beyond.sum()), seed)
    return values


def _uniform(name: str, count: int, seed: int) -> npt.NDArray[np.float64]:
    """``count`` numbers in [0, 1)."""
    found = np.empty(count)
    for some, numbers in _stream(name, count, seed):
        found[some] = numbers
    return found


def _stream(
    name: str, count: int, seed: int, *, skip: int = 0
) -> Iterator[tuple[slice, npt.NDArray[np.float64]]]:
    """``count`` numbers in [0, 1) from raw PCG64 output after the first ``skip``, some at a time.

    NumPy promises the raw stream of a bit generator for ever, and the streams of
    ``Generator``'s methods for no longer than a version.
    """
    key = hashlib.sha256(f"dlb weights {seed} {name}".encode()).digest()
    generator = np.random.PCG64(int.from_bytes(key, "big"))
    generator.advance(skip)
    for start in range(0, count, AT_ONCE):
        some = slice(start, min(start + AT_ONCE, count))
        raw = generator.random_raw(some.stop - start)
        yield some, (raw >> np.uint64(11)).astype(np.float64) * 2.0**-53
