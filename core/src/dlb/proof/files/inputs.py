"""What two models are both fed: seeded noise that fits them, or arrays that were given."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import helper

from dlb.errors import RequestError
from dlb.graph.precision import REAL_TYPES
from dlb.graph.trace import attributes_of
from dlb.proof.files.read import ModelFile, Port
from dlb.proof.findings import AnyCause, Finding
from dlb.proof.findings.files import FedArrays, FedNoise, PairedByOrder
from dlb.proof.input_arrays import read_arrays

__all__ = ["Fed", "feed", "paired"]

Array = npt.NDArray[Any]

#: Samples where the batch is left open: neither 1 nor 2, which are the sizes of much else.
BATCH = 3
#: Standard deviation of each batch of noise. The second reaches what a bound far from zero clips.
SCALES = (1.0, 8.0)
#: Numbers of one input; what a graph asks for may be anything.
LARGEST_INPUT = 1 << 28
#: Through these an index is still the index, or nearly.
# fmt: off
_CARRIES = {
    "Add", "Cast", "Clip", "Concat", "Expand", "Flatten", "Identity", "Max", "Min", "Mod",
    "Reshape", "Slice", "Squeeze", "Sub", "Transpose", "Unsqueeze", "Where",
}
# fmt: on


@dataclass(frozen=True)
class Fed:
    """What two models are fed.

    Attributes:
        first, second: for each batch, every input of that model by its own name, real numbers in
            float64 but with no more digits than either model's own type has.
        facts: where they come from, and what was paired by order.
    """

    first: tuple[dict[str, Array], ...]
    second: tuple[dict[str, Array], ...]
    facts: tuple[Finding, ...]


def paired(
    kind: str, first: ModelFile, second: ModelFile
) -> tuple[list[tuple[Port, Port]], tuple[Finding, ...]]:
    """The inputs or outputs of both that stand for each other, and a finding if by order.

    Args:
        kind: ``inputs`` or ``outputs``.

    Raises:
        RequestError: one has more than the other.
    """
    ours: tuple[Port, ...] = getattr(first, kind)
    theirs: tuple[Port, ...] = getattr(second, kind)
    if len(ours) != len(theirs):
        raise RequestError(
            f"{first.label} has {len(ours)} {kind} ({_listed(ours)}) and {second.label} "
            f"{len(theirs)} ({_listed(theirs)}); only models with the same {kind} are compared"
        )
    by_name = {port.name: port for port in theirs}
    if set(by_name) == {port.name for port in ours}:
        return [(port, by_name[port.name]) for port in ours], ()
    pairs = list(zip(ours, theirs))
    names = tuple((a.name, b.name) for a, b in pairs)
    return pairs, (Finding(cause=PairedByOrder(kind=kind, pairs=names)),)


def feed(first: ModelFile, second: ModelFile, given: Path | None, seed: int) -> Fed:
    """Batches for both: those of an .npz file, or two of seeded noise.

    Args:
        given: an .npz file with every input by its name in either model.
        seed: of the noise.

    Raises:
        RequestError: the models read different things, a size is left open, or the arrays do not
            fit.
        DataError: the file is no .npz file of plain numbers.
    """
    pairs, by_order = paired("inputs", first, second)
    bounds = {ours.name: _bound(first, ours, second, theirs) for ours, theirs in pairs}
    if given is not None:
        arrays = _read(given, pairs, bounds)
        batches = [arrays]
        _settle(first, second, pairs, {name: each.shape for name, each in arrays.items()})
        source: AnyCause = FedArrays(path=str(given))
    else:
        shapes = _settle(first, second, pairs, {})
        draw = np.random.Generator(np.random.PCG64(seed))
        batches = [
            {
                ours.name: _noise(draw, ours, shapes[ours.name], bounds[ours.name], scale)
                for ours, _ in pairs
            }
            for scale in SCALES
        ]
        source = FedNoise(deviations=SCALES)
    batches = [
        {ours.name: _narrowed(batch[ours.name], ours, theirs) for ours, theirs in pairs}
        for batch in batches
    ]
    fed = [
        tuple(
            {pair[side].name: _typed(batch[pair[0].name], pair[side]) for pair in pairs}
            for batch in batches
        )
        for side in (0, 1)
    ]
    return Fed(fed[0], fed[1], (Finding(cause=source), *by_order))


def _bound(first: ModelFile, ours: Port, second: ModelFile, theirs: Port) -> int | None:
    """How many values an input of indices may take; None where nothing is indexed.

    Raises:
        RequestError: the types differ, and not only in precision. Indices may come as real numbers
            in one model: MXNet reads them so.
    """
    bounds = [_index_bound(first.wide, ours.name), _index_bound(second.wide, theirs.name)]
    a, b = _dtype(ours), _dtype(theirs)
    alike = a == b or (_is_real(ours) and _is_real(theirs)) or a.kind + b.kind == "ii"
    if not alike and not all(bounds):
        raise RequestError(
            f"input '{ours.name}' is of {a} in {first.label} and '{theirs.name}' of {b} in "
            f"{second.label}; only models that read the same are compared"
        )
    return min((bound for bound in bounds if bound), default=None)


def _settle(
    first: ModelFile,
    second: ModelFile,
    pairs: list[tuple[Port, Port]],
    given: Mapping[str, tuple[int, ...]],
) -> dict[str, tuple[int, ...]]:
    """A size for every axis of every input, by the first model's names.

    Open axes that share a name are of one size; one that the other model fixes is of that size; an
    open first axis is the batch.
    """
    sizes: dict[str, list[int]] = {}
    for ours, theirs in pairs:
        ranks = {len(port.shape) for port in (ours, theirs) if port.shape is not None}
        ranks |= {len(given[ours.name])} if ours.name in given else set()
        if len(ranks) != 1:
            wrong = "no shape is told" if not ranks else "shapes do not match"
            raise RequestError(_unlike(first, ours, second, theirs, wrong, given))
        sizes[ours.name] = [0] * ranks.pop()
    known: dict[tuple[int, str], int] = {}
    # Twice, since what the second input fixes may be what the first calls by the same name.
    for may_guess in (False, False, True):
        for ours, theirs in pairs:
            for axis, settled in enumerate(sizes[ours.name]):
                written = [_dim(port, axis) for port in (ours, theirs)]
                names = [(k, name) for k, name in enumerate(written) if isinstance(name, str)]
                known_sizes = {settled, *(size for size in written if isinstance(size, int))}
                known_sizes |= {known.get(name, 0) for name in names}
                known_sizes |= {given[ours.name][axis]} if ours.name in given else set()
                known_sizes -= {0}
                if len(known_sizes) > 1:
                    wrong = "shapes do not match"
                    raise RequestError(_unlike(first, ours, second, theirs, wrong, given))
                if not known_sizes and may_guess and axis == 0:
                    known_sizes = {BATCH}
                if known_sizes:
                    (sizes[ours.name][axis],) = known_sizes
                    known.update(dict.fromkeys(names, sizes[ours.name][axis]))
    for ours, theirs in pairs:
        if 0 in sizes[ours.name]:
            axis = sizes[ours.name].index(0)
            raise RequestError(
                _unlike(first, ours, second, theirs, f"the size of axis {axis} is left open", given)
                + "; give a batch with --input"
            )
        if np.prod(sizes[ours.name], dtype=float) > LARGEST_INPUT:
            raise RequestError(
                f"input '{ours.name}' of {first.label} has shape {sizes[ours.name]}: at most "
                f"{LARGEST_INPUT} numbers are fed"
            )
    return {name: tuple(found) for name, found in sizes.items()}


def _dim(port: Port, axis: int) -> int | str | None:
    return None if port.shape is None else port.shape[axis]


def _unlike(
    first: ModelFile,
    ours: Port,
    second: ModelFile,
    theirs: Port,
    wrong: str,
    given: Mapping[str, tuple[int, ...]],
) -> str:
    shown = f"; given: {list(given[ours.name])}" if ours.name in given else ""
    return f"input {ours} of {first.label}, {theirs} of {second.label}: {wrong}{shown}"


def _noise(
    draw: np.random.Generator,
    port: Port,
    shape: tuple[int, ...],
    bound: int | None,
    scale: float,
) -> Array:
    if _is_real(port) and not bound:
        return draw.standard_normal(shape) * scale
    kind = _dtype(port)
    if kind.kind == "b":
        return draw.integers(0, 2, shape).astype(bool)
    top = bound or (256 if kind == np.uint8 else 2)
    if kind.kind in "iu":
        top = min(top, int(np.iinfo(kind).max) + 1)
    return draw.integers(0, top, shape).astype(kind)


def _index_bound(model: onnx.ModelProto, name: str) -> int | None:
    held = {tensor.name: tensor for tensor in model.graph.initializer}
    for node in model.graph.node:
        for attribute in node.attribute:
            if node.op_type == "Constant" and attribute.name == "value":
                held[node.output[0]] = attribute.t
    carried, bounds = {name}, []
    for node in model.graph.node:
        if node.op_type in ("Gather", "GatherElements") and node.input[1] in carried:
            table = held.get(node.input[0])
            if table is not None and table.dims:
                bounds.append(table.dims[attributes_of(node).get("axis", 0)])
        elif node.op_type == "OneHot" and node.input[0] in carried and node.input[1] in held:
            bounds.append(int(onnx.numpy_helper.to_array(held[node.input[1]]).ravel()[0]))
        elif node.op_type in _CARRIES and carried & set(node.input):
            carried.update(node.output)
    return min((bound for bound in bounds if bound > 0), default=None)


def _read(
    path: Path, pairs: list[tuple[Port, Port]], bounds: Mapping[str, int | None]
) -> dict[str, Array]:
    stored = read_arrays(path)
    named = [{port.name for port in side} for side in zip(*pairs)]
    if set(stored) not in named:
        expected_names = " or ".join(dict.fromkeys(", ".join(sorted(some)) for some in named))
        raise RequestError(
            f"holds {', '.join(stored) or 'nothing'}; the models read {expected_names or 'nothing'}",
            path=path,
        )
    arrays = {}
    for ours, theirs in pairs:
        array = stored[ours.name if set(stored) == named[0] else theirs.name]
        kinds = list(dict.fromkeys(str(_dtype(port)) for port in (ours, theirs)))
        name = f"'{ours.name}'"
        if str(array.dtype) not in kinds:
            raise RequestError(
                f"{name} is of {array.dtype}; the models read {' or '.join(kinds)}", path=path
            )
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            raise RequestError(
                f"{name} holds a NaN or an infinity, which proves nothing", path=path
            )
        if not array.size:
            raise RequestError(f"{name} has shape {list(array.shape)}: no numbers", path=path)
        bound = bounds[ours.name]
        if bound and not -bound <= array.min() <= array.max() < bound:
            raise RequestError(
                f"{name} holds {array.min()} to {array.max()}; the models look up 0 to {bound - 1}",
                path=path,
            )
        arrays[ours.name] = array
    return arrays


def _narrowed(array: Array, ours: Port, theirs: Port) -> Array:
    """Real numbers with no more digits than both models' own types have."""
    for port in (ours, theirs):
        if _is_real(port) and array.dtype.kind == "f":
            array = array.astype(_dtype(port))
    return array


def _typed(array: Array, port: Port) -> Array:
    """In float64 for real inputs, else in the input's own type."""
    return array.astype(np.float64 if _is_real(port) else _dtype(port))


def _is_real(port: Port) -> bool:
    return port.element in REAL_TYPES


def _dtype(port: Port) -> np.dtype[Any]:
    return np.dtype(helper.tensor_dtype_to_np_dtype(port.element))


def _listed(ports: tuple[Port, ...]) -> str:
    return ", ".join(str(port) for port in ports) or "none"
