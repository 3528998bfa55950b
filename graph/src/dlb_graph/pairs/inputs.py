"""The inputs of two models: seeded noise that fits both, or the user's arrays."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import helper

from dlb_graph.comparing.read_facts import FedArrays, FedNoise, PairedByOrder, PairFact
from dlb_graph.errors import RequestError
from dlb_graph.files.model_file import SCALES, ModelFile, Port
from dlb_graph.layers.numbers import Array
from dlb_graph.pairs.input_arrays import read_arrays
from dlb_graph.truth.held import array_of
from dlb_graph.truth.limits import MOST_NUMBERS
from dlb_graph.truth.precision import REAL_TYPES
from dlb_graph.truth.trace import attributes_of

__all__ = ["FileInputs", "feed", "pair_ports"]


#: Samples if the batch size is open. Other axes often have size 1 or 2.
BATCH = 3
#: Operators whose output is still an index, or nearly one.
# fmt: off
_INDEX_PRESERVING = {
    "Add", "Cast", "Clip", "Concat", "Expand", "Flatten", "Identity", "Max", "Min", "Mod",
    "Reshape", "Slice", "Squeeze", "Sub", "Transpose", "Unsqueeze", "Where",
}
# fmt: on


@dataclass(frozen=True)
class FileInputs:
    """The inputs of two models.

    Attributes:
        first, second: for each batch, the inputs of that model by name. Real numbers are float64, rounded
            to the types of both models.
        facts: where the inputs come from, and which were paired by order.
    """

    first: tuple[dict[str, Array], ...]
    second: tuple[dict[str, Array], ...]
    facts: tuple[PairFact, ...]


def pair_ports(
    kind: str, first: ModelFile, second: ModelFile
) -> tuple[list[tuple[Port, Port]], tuple[PairFact, ...]]:
    """Pair the inputs or outputs of two models: by name, or else by order, with a fact.

    Args:
        kind: ``inputs`` or ``outputs``.

    Raises:
        RequestError: the models have different numbers of them.
    """
    first_ports: tuple[Port, ...] = getattr(first, kind)
    second_ports: tuple[Port, ...] = getattr(second, kind)
    if len(first_ports) != len(second_ports):
        raise RequestError(
            f"{first.label} has {len(first_ports)} {kind} ({_list_ports(first_ports)}) and {second.label} "
            f"{len(second_ports)} ({_list_ports(second_ports)}); only models with the same {kind} are compared"
        )
    by_name = {port.name: port for port in second_ports}
    if set(by_name) == {port.name for port in first_ports}:
        return [(port, by_name[port.name]) for port in first_ports], ()
    pairs = list(zip(first_ports, second_ports))
    names = tuple((first_port.name, second_port.name) for first_port, second_port in pairs)
    return pairs, (PairedByOrder(kind=kind, pairs=names),)


def feed(first: ModelFile, second: ModelFile, path: Path | None, seed: int) -> FileInputs:
    """Batches for both models: one from an .npz file, or two of seeded noise.

    Args:
        path: an .npz file with every input, by its name in either model; None for noise.
        seed: seed of the noise.

    Raises:
        RequestError: the models read different types or shapes, a size is open, or the arrays do not fit.
        DataError: the file is no .npz file of plain numbers.
    """
    pairs, by_order = pair_ports("inputs", first, second)
    bounds = {
        port.name: _common_index_bound(first, port, second, counterpart)
        for port, counterpart in pairs
    }
    if path is not None:
        arrays = _read_batch(path, pairs, bounds)
        batches = [arrays]
        _resolve_sizes(first, second, pairs, {name: array.shape for name, array in arrays.items()})
        source: PairFact = FedArrays(path=str(path))
    else:
        shapes = _resolve_sizes(first, second, pairs, {})
        generator = np.random.Generator(np.random.PCG64(seed))
        batches = [
            {
                port.name: _noise(generator, port, shapes[port.name], bounds[port.name], scale)
                for port, _ in pairs
            }
            for scale in SCALES
        ]
        source = FedNoise(deviations=SCALES)
    batches = [
        {
            port.name: _round_to_both(batch[port.name], port, counterpart)
            for port, counterpart in pairs
        }
        for batch in batches
    ]
    fed = [
        tuple(
            {pair[side].name: _cast_for_run(batch[pair[0].name], pair[side]) for pair in pairs}
            for batch in batches
        )
        for side in (0, 1)
    ]
    return FileInputs(fed[0], fed[1], (source, *by_order))


def _common_index_bound(
    first: ModelFile, port: Port, second: ModelFile, counterpart: Port
) -> int | None:
    """The number of values that an input of indices may take; None if the input is not an index.

    Raises:
        RequestError: the types differ in more than precision. MXNet reads indices as real numbers, so an
            index may be real in one model.
    """
    bounds = [
        _index_bound(first.float64, port.name),
        _index_bound(second.float64, counterpart.name),
    ]
    dtype, other_dtype = _dtype(port), _dtype(counterpart)
    compatible = (
        dtype == other_dtype
        or (_is_real(port) and _is_real(counterpart))
        or dtype.kind + other_dtype.kind == "ii"
    )
    if not compatible and not all(bounds):
        raise RequestError(
            f"input '{port.name}' is of {dtype} in {first.label} and '{counterpart.name}' of "
            f"{other_dtype} in {second.label}; only models that read the same are compared"
        )
    return min((bound for bound in bounds if bound), default=None)


def _resolve_sizes(
    first: ModelFile,
    second: ModelFile,
    pairs: list[tuple[Port, Port]],
    fixed_shapes: Mapping[str, tuple[int, ...]],
) -> dict[str, tuple[int, ...]]:
    """A size for every axis of every input, by the first model's names.

    Open axes with the same name have one size. An axis that the other model fixes has that size. An open
    first axis is the batch.
    """

    def mismatch(port: Port, counterpart: Port, problem: str, advice: str = "") -> RequestError:
        shape = fixed_shapes.get(port.name)
        shown = "" if shape is None else f"; given: {list(shape)}"
        return RequestError(
            f"input {port} of {first.label}, {counterpart} of {second.label}: {problem}{shown}{advice}"
        )

    sizes: dict[str, list[int]] = {}
    for port, counterpart in pairs:
        ranks = {len(side.shape) for side in (port, counterpart) if side.shape is not None}
        ranks |= {len(fixed_shapes[port.name])} if port.name in fixed_shapes else set()
        if len(ranks) != 1:
            problem = "neither file says its shape" if not ranks else "shapes do not match"
            raise mismatch(port, counterpart, problem)
        sizes[port.name] = [0] * ranks.pop()
    named_sizes: dict[tuple[int, str], int] = {}
    # Two passes, since a later input may fix the size of a name that an earlier one uses.
    for batch_may_be_chosen in (False, False, True):
        for port, counterpart in pairs:
            for axis, size in enumerate(sizes[port.name]):
                declared = [_size(side, axis) for side in (port, counterpart)]
                names = [
                    (side, name) for side, name in enumerate(declared) if isinstance(name, str)
                ]
                known_sizes = {size, *(fixed for fixed in declared if isinstance(fixed, int))}
                known_sizes |= {named_sizes.get(name, 0) for name in names}
                known_sizes |= (
                    {fixed_shapes[port.name][axis]} if port.name in fixed_shapes else set()
                )
                known_sizes -= {0}
                if len(known_sizes) > 1:
                    raise mismatch(port, counterpart, "shapes do not match")
                if not known_sizes and batch_may_be_chosen and axis == 0:
                    known_sizes = {BATCH}
                if known_sizes:
                    (sizes[port.name][axis],) = known_sizes
                    named_sizes.update(dict.fromkeys(names, sizes[port.name][axis]))
    for port, counterpart in pairs:
        if 0 in sizes[port.name]:
            axis = sizes[port.name].index(0)
            problem = f"the size of axis {axis} is left open"
            raise mismatch(port, counterpart, problem, "; give a batch with --input")
        if np.prod(sizes[port.name], dtype=float) > MOST_NUMBERS:
            raise RequestError(
                f"input '{port.name}' of {first.label} has shape {sizes[port.name]}: at most "
                f"{MOST_NUMBERS} numbers are fed"
            )
    return {name: tuple(axis_sizes) for name, axis_sizes in sizes.items()}


def _size(port: Port, axis: int) -> int | str | None:
    return None if port.shape is None else port.shape[axis]


def _noise(
    generator: np.random.Generator,
    port: Port,
    shape: tuple[int, ...],
    bound: int | None,
    scale: float,
) -> Array:
    if _is_real(port) and not bound:
        return generator.standard_normal(shape) * scale
    dtype = _dtype(port)
    if dtype.kind == "b":
        return generator.integers(0, 2, shape).astype(bool)
    limit = bound or (256 if dtype == np.uint8 else 2)
    if dtype.kind in "iu":
        limit = min(limit, int(np.iinfo(dtype).max) + 1)
    return generator.integers(0, limit, shape).astype(dtype)


def _index_bound(model: onnx.ModelProto, name: str) -> int | None:
    constants = {tensor.name: tensor for tensor in model.graph.initializer}
    for node in model.graph.node:
        for attribute in node.attribute:
            if node.op_type == "Constant" and attribute.name == "value":
                constants[node.output[0]] = attribute.t
    index_values, bounds = {name}, []
    for node in model.graph.node:
        if node.op_type in ("Gather", "GatherElements") and node.input[1] in index_values:
            table = constants.get(node.input[0])
            if table is not None and table.dims:
                bounds.append(table.dims[attributes_of(node).get("axis", 0)])
        elif (
            node.op_type == "OneHot"
            and node.input[0] in index_values
            and node.input[1] in constants
        ):
            bounds.append(int(array_of(constants[node.input[1]]).ravel()[0]))
        elif node.op_type in _INDEX_PRESERVING and index_values & set(node.input):
            index_values.update(node.output)
    return min((bound for bound in bounds if bound > 0), default=None)


def _read_batch(
    path: Path, pairs: list[tuple[Port, Port]], bounds: Mapping[str, int | None]
) -> dict[str, Array]:
    stored = read_arrays(path)
    names_by_side = [{port.name for port in side} for side in zip(*pairs)]
    if set(stored) not in names_by_side:
        expected_names = " or ".join(
            dict.fromkeys(", ".join(sorted(names)) for names in names_by_side)
        )
        raise RequestError(
            f"holds {', '.join(stored) or 'nothing'}; the models read {expected_names or 'nothing'}",
            path=path,
        )
    arrays = {}
    for port, counterpart in pairs:
        array = stored[port.name if set(stored) == names_by_side[0] else counterpart.name]
        dtypes = list(dict.fromkeys(str(_dtype(side)) for side in (port, counterpart)))
        name = f"'{port.name}'"
        if str(array.dtype) not in dtypes:
            raise RequestError(
                f"{name} is of {array.dtype}; the models read {' or '.join(dtypes)}", path=path
            )
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            raise RequestError(
                f"{name} holds a NaN or an infinity, which proves nothing", path=path
            )
        if not array.size:
            raise RequestError(f"{name} has shape {list(array.shape)}: no numbers", path=path)
        bound = bounds[port.name]
        if bound and not -bound <= array.min() <= array.max() < bound:
            raise RequestError(
                f"{name} holds {array.min()} to {array.max()}; the models look up 0 to {bound - 1}",
                path=path,
            )
        arrays[port.name] = array
    return arrays


def _round_to_both(array: Array, port: Port, counterpart: Port) -> Array:
    """Real numbers, rounded to the types of both models."""
    for side in (port, counterpart):
        if _is_real(side) and array.dtype.kind == "f":
            array = array.astype(_dtype(side))
    return array


def _cast_for_run(array: Array, port: Port) -> Array:
    """Real inputs in float64, others in the input's type."""
    return array.astype(np.float64 if _is_real(port) else _dtype(port))


def _is_real(port: Port) -> bool:
    return port.element in REAL_TYPES


def _dtype(port: Port) -> np.dtype[Any]:
    return np.dtype(helper.tensor_dtype_to_np_dtype(port.element))


def _list_ports(ports: tuple[Port, ...]) -> str:
    return ", ".join(str(port) for port in ports) or "none"
