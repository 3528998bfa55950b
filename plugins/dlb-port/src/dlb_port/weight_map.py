"""Pairs of parameters of two models, and the file that holds them: the map."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from dlb.documents import write_atomically
from dlb.errors import RequestError
from dlb_graph.toml_files import read_toml
from dlb_graph.workload.decoding import decode_as
from dlb_port.inputs import check_layout
from dlb_worker.contract import ParameterDescription

__all__ = ["Entry", "ModelMap", "Pair", "WeightMap", "carry", "join", "mapped_pairs", "read_map"]
__all__ += ["write_map"]

Array = npt.NDArray[Any]
#: What stands between the names of parameters that are joined.
SEPARATOR = " | "
#: Largest size of a map.
_LARGEST_BYTES = 16 * 1024 * 1024


class Entry(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """One line of a map.

    Attributes:
        source: ``from``, a parameter of the reference, or several joined by `` | `` that lie one after
            another on the first axis.
        to: a parameter of this model, or several.
        reshape: the shape that the reference's array is reshaped to first.
        transpose: the order of axes for a transpose after that, as in numpy.transpose.
    """

    source: str = msgspec.field(name="from")
    to: str
    reshape: tuple[int, ...] | None = None
    transpose: tuple[int, ...] | None = None


class ModelMap(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The part of a map about one model.

    Attributes:
        input: layout of the inputs with that number of axes; empty for canonical layout.
        output: likewise of the outputs, or one for each output.
        leave: parameters that have no counterpart and are not changed.
        weights: one entry for each parameter; None for the reference.
    """

    input: str = ""
    output: str | tuple[str, ...] = ""
    leave: tuple[str, ...] = ()
    weights: tuple[Entry, ...] | None = None


class WeightMap(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A map file, with a table ``[models.NAME]`` for each model."""

    models: dict[str, ModelMap] = {}


@dataclass(frozen=True)
class Pair:
    """A parameter of the reference and its counterpart.

    Attributes:
        source, target: parameters of the reference and of the other model.
        reshape, transpose: as in :class:`Entry`.
        why: how the pair was found.
        source_parts, target_parts: the parameters that ``source`` and ``target`` join, one after another on
            the first axis; empty if they join none.
    """

    source: ParameterDescription
    target: ParameterDescription
    why: str
    reshape: tuple[int, ...] | None = None
    transpose: tuple[int, ...] | None = None
    source_parts: tuple[ParameterDescription, ...] = ()
    target_parts: tuple[ParameterDescription, ...] = ()

    def of_source(self, arrays: Mapping[str, Array]) -> Array | None:
        """The reference's array among its arrays by name; None if it is not there."""
        return _joined_array(self.source, self.source_parts, arrays)

    def of_target(self, arrays: Mapping[str, Array]) -> Array | None:
        """The other model's array among its arrays by name, in the reference's layout."""
        array = _joined_array(self.target, self.target_parts, arrays)
        return None if array is None else self.bring_back(array)

    def to_source(self, array: Array) -> dict[str, Array]:
        """The reference's array by the names of the reference's parameters."""
        return _split(self.source, self.source_parts, array)

    def to_target(self, array: Array) -> dict[str, Array]:
        """The reference's array, carried, by the names of the other model's parameters."""
        return _split(self.target, self.target_parts, self.carry(array))

    def carry(self, array: Array) -> Array:
        """Convert the reference's array to the shape of the other model."""
        if self.reshape is not None:
            array = array.reshape(self.reshape)
        if self.transpose is not None:
            array = array.transpose(self.transpose)
        return np.asarray(array.reshape(self.target.shape), order="C")

    def bring_back(self, array: Array) -> Array:
        """Convert the other model's array to the shape of the reference; the inverse of :meth:`carry`."""
        shape = self.reshape or self.source.shape
        if self.transpose is not None:
            array = array.reshape([shape[axis] for axis in self.transpose])
            array = array.transpose(np.argsort(self.transpose))
        return np.asarray(array.reshape(self.source.shape), order="C")


def carry(pairs: Iterable[Pair], weights: Mapping[str, Array]) -> dict[str, Array]:
    """Weights of the reference by the other model's names and in its layout."""
    carried: dict[str, Array] = {}
    for pair in pairs:
        array = pair.of_source(weights)
        if array is not None:
            carried |= pair.to_target(array)
    return carried


def join(parts: Sequence[ParameterDescription], role: str = "") -> ParameterDescription:
    """Parameters that lie one after another on the first axis, as one.

    It belongs to the layer that holds all of theirs.
    """
    owner = parts[0].layer
    while not all(f"{part.layer}.".startswith(f"{owner}." if owner else "") for part in parts):
        owner = owner.rpartition(".")[0]
    first, rows = parts[0], sum(part.shape[0] for part in parts)
    return ParameterDescription(
        name=SEPARATOR.join(part.name for part in parts),
        layer=owner,
        role=role,
        shape=(rows, *first.shape[1:]),
        native_shape=(rows, *first.shape[1:]),
        dtype=first.dtype,
        trained=all(part.trained for part in parts),
        frozen=all(part.frozen for part in parts),
    )


def _joined_array(
    parameter: ParameterDescription,
    parts: Sequence[ParameterDescription],
    arrays: Mapping[str, Array],
) -> Array | None:
    if not parts:
        return arrays.get(parameter.name)
    if any(part.name not in arrays for part in parts):
        return None
    return np.concatenate([arrays[part.name] for part in parts])


def _split(
    parameter: ParameterDescription, parts: Sequence[ParameterDescription], array: Array
) -> dict[str, Array]:
    if not parts:
        return {parameter.name: array}
    ends = np.cumsum([part.shape[0] for part in parts])[:-1]
    return {part.name: piece for part, piece in zip(parts, np.split(array, ends))}


def read_map(path: Path, models: Sequence[str]) -> WeightMap:
    """Read a map file.

    Args:
        models: names of the models; the first is the reference.

    Raises:
        RequestError: the file cannot be read or is not TOML; a field is unknown or has the wrong type;
            there is no such model or layout.
    """
    weight_map = read_toml(
        path,
        "map",
        _LARGEST_BYTES,
        RequestError,
        lambda document: decode_as(document, "not a map", WeightMap),
    )
    for name, model_map in weight_map.models.items():
        if name not in models:
            raise RequestError(
                f"[models.{name}]: there is no model '{name}'; the models are {', '.join(models)}",
                path=path,
            )
        if name == models[0] and model_map.weights is not None:
            raise RequestError(
                f"[models.{name}] is the reference, which is the first model; weights are "
                "carried from it, so entries belong to the others",
                path=path,
            )
        outputs = model_map.output
        for layout in (model_map.input, *([outputs] if isinstance(outputs, str) else outputs)):
            check_layout(name, layout)
    return weight_map


def mapped_pairs(
    model_map: ModelMap,
    source: Mapping[str, ParameterDescription],
    target: Mapping[str, ParameterDescription],
    left: Sequence[str],
    names: tuple[str, str],
) -> list[Pair]:
    """The pairs of a map, checked against the parameters of both models.

    Args:
        source, target: parameters of the reference and of the other model, by name.
        left: parameters of the reference that the map leaves.
        names: names of the reference and of the other model.

    Raises:
        RequestError: an entry is missing, repeated, about an unknown parameter, or has the wrong shapes.
    """
    assert model_map.weights is not None
    problems: list[str] = []
    pairs: list[Pair] = []
    source_parts = {entry.source: _parts(entry.source, source) for entry in model_map.weights}
    target_parts = {entry.to: _parts(entry.to, target) for entry in model_map.weights}
    sides = (
        (
            names[0],
            source,
            [part for entry in model_map.weights for part in source_parts[entry.source]],
            left,
        ),
        (
            names[1],
            target,
            [part for entry in model_map.weights for part in target_parts[entry.to]],
            model_map.leave,
        ),
    )
    for model, parameters, mentioned, leave in sides:
        unknown = sorted({*mentioned, *leave} - set(parameters))
        problems += [
            f"'{name}' is no parameter of {model}{_suggest(name, parameters)}" for name in unknown
        ]
        repeated = sorted({name for name in mentioned if mentioned.count(name) > 1})
        problems += [f"'{name}' of {model} is in several entries" for name in repeated]
        both = sorted({*mentioned} & {*leave})
        problems += [f"'{name}' of {model} is in an entry and left" for name in both]
        missing = [name for name in parameters if name not in mentioned and name not in leave]
        problems += [f"'{name}' of {model} is missing" for name in missing]
    for entry in model_map.weights:
        froms = [source.get(name) for name in source_parts[entry.source]]
        tos = [target.get(name) for name in target_parts[entry.to]]
        if all(froms) and all(tos):
            pair = _joining_pair(
                [each for each in froms if each], [each for each in tos if each], entry
            )
            problem = _shape_problem(pair)
            problems += [f"'{entry.source}' -> '{entry.to}': {problem}"] if problem else []
            pairs.append(pair)
    if problems:
        shown = "; ".join(problems[:8]) + (
            f"; and {len(problems) - 8} more" if len(problems) > 8 else ""
        )
        raise RequestError(
            f"the map of '{names[1]}' does not hold together: {shown}. Every parameter of both "
            "models needs one entry, or a place in a 'leave'"
        )
    return pairs


def _parts(name: str, parameters: Mapping[str, ParameterDescription]) -> list[str]:
    """The parameters that an entry names: one, or several joined."""
    return [name] if name in parameters else name.split(SEPARATOR)


def _joining_pair(
    froms: Sequence[ParameterDescription], tos: Sequence[ParameterDescription], entry: Entry
) -> Pair:
    return Pair(
        froms[0] if len(froms) == 1 else join(froms),
        tos[0] if len(tos) == 1 else join(tos),
        "told",
        entry.reshape,
        entry.transpose,
        tuple(froms) if len(froms) > 1 else (),
        tuple(tos) if len(tos) > 1 else (),
    )


def _suggest(name: str, parameters: Mapping[str, ParameterDescription]) -> str:
    import difflib

    matches = difflib.get_close_matches(name, parameters, n=1)
    return f" (did you mean '{matches[0]}'?)" if matches else ""


def _shape_problem(pair: Pair) -> str:
    """The problem with the shapes of a pair; "" if there is none."""
    shape, description = list(pair.source.shape), f"has shape {list(pair.source.shape)}"
    if pair.reshape is not None:
        if math.prod(pair.reshape) != math.prod(shape) or any(size < 0 for size in pair.reshape):
            return f"{description}, which reshape = {list(pair.reshape)} does not hold"
        shape, description = list(pair.reshape), f"has shape {list(pair.reshape)} then"
    if pair.transpose is not None:
        if sorted(pair.transpose) != list(range(len(shape))):
            return f"{description}, of which transpose = {list(pair.transpose)} is no order of the axes"
        shape = [shape[axis] for axis in pair.transpose]
    expected = list(pair.target.shape)
    # After a reshape only the order of elements counts.
    fits = (
        math.prod(shape) == math.prod(expected) if pair.reshape is not None else shape == expected
    )
    if fits:
        return ""
    canonical = " in canonical layout" if pair.target.role else ""
    return f"{shape} is carried to {expected}{canonical}"


def write_map(path: Path, weight_map: WeightMap, undecided: Sequence[str]) -> None:
    """Write a map file for users to edit.

    Raises:
        RequestError: the file cannot be written.
    """
    import tomli_w

    text = "# Which parameter is which; docs/how-to/porting.md has the form; give it with --map.\n"
    text += tomli_w.dumps(msgspec.to_builtins(weight_map))
    if undecided:
        text += "\n# Not decided:\n" + "".join(f"# {line}\n" for line in undecided)
    try:
        write_atomically(path, text.encode())
    except OSError as error:
        raise RequestError(
            f"cannot write the map to {path}: {error.strerror or error}; run dlb in a folder that "
            "can be written to, or give --map"
        ) from None
