"""Two files that hold constants of the same meaning, which were rounded at different steps.

Exporters compute what depends on no input, such as a convolution with its normalisation folded in, or one over
a root: in float32 and in an order of their own, or leave it to whoever runs the file. The same model then has
constants that differ in their last digits. With those of one file in both, both compute the same.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import numpy_helper

from dlb_graph.comparing.counterparts import transpositions
from dlb_graph.comparing.distance import norm, relative_l2
from dlb_graph.comparing.tolerances import FOLDED_TOLERANCE
from dlb_graph.files.model_file import ModelFile
from dlb_graph.pairs.runs import FilePair
from dlb_graph.truth.held import array_of, hold, is_held
from dlb_graph.truth.layout import LAYOUT
from dlb_graph.truth.trace import Trace

__all__ = ["with_constants", "with_shared_constants"]

Array = npt.NDArray[Any]
#: Operators that only arrange numbers, or hold them.
_MOVES = LAYOUT | {
    "Cast", "Concat", "Constant", "ConstantOfShape", "Expand", "Gather", "Slice", "Split", "Tile",
}  # fmt: skip
#: The share of an operator's numbers that another order of roundings changes at the least.
_MANY = 0.05


@dataclass(frozen=True)
class _Match:
    """A constant of the second file, and the nearest of the first.

    Attributes:
        name, other: of the constant, in the second and in the first file.
        array, own: their numbers.
        arranged: those of the first, in the layout of the second.
        distance: relative L2; 0 if they are equal.
    """

    name: str
    other: str
    array: Array
    own: Array
    arranged: Array
    distance: float

    @property
    def is_near(self) -> bool:
        """Whether they may be of one meaning: nowhere further apart than what folding rounds."""
        largest = np.abs(self.arranged).max()
        apart = float(np.abs(self.array - self.arranged).max())
        return self.distance <= FOLDED_TOLERANCE and apart <= FOLDED_TOLERANCE * largest


def with_shared_constants(
    pair: FilePair, traces: Sequence[Trace]
) -> tuple[FilePair, int, float] | None:
    """The pair with one file's constants in both, how many there are, and how far apart the furthest were.

    Constants of one meaning are within :data:`FOLDED_TOLERANCE`, as a whole and at every number, and a file
    still computes one of them by arithmetic. Or both files hold it, and folding changed an operator's matrix,
    or its one number, and at least one in twenty of its numbers: whoever copies weights changes none.

    Args:
        traces: of both files.

    Returns:
        None if no constant has a counterpart that it differs from.
    """
    matches = _matches(*traces)
    readers = _readers(traces[1])
    numbers, apart = Counter[str](), Counter[str]()
    folded: set[str] = set()
    for match in matches:
        reader = readers[match.name]
        numbers[reader] += match.array.size
        apart[reader] += int((match.array != match.arranged).sum())
        if match.distance and (match.array.size == 1 or match.array.squeeze().ndim > 1):
            folded.add(reader)
    changes: tuple[dict[str, Array], dict[str, Array]] = ({}, {})
    shared = []
    for match in matches:
        computed = _is_computed(traces[0], match.other) or _is_computed(traces[1], match.name)
        reader = readers[match.name]
        folds = reader in folded and apart[reader] >= _MANY * numbers[reader]
        if not match.distance or not (computed or folds):
            continue
        shared.append(match)
        if _is_float32(match.array) and not _is_float32(match.arranged):
            changes[0][match.other] = _turned_back(match.array, match.own)
            continue
        # Computed by both files, it is rounded in both.
        changes[1][match.name] = rounded = match.arranged.astype(np.float32).astype(np.float64)
        if not _is_float32(match.arranged):
            changes[0][match.other] = _turned_back(rounded, match.own)
    if not shared:
        return None
    pairs = zip((pair.first, pair.second), changes)
    files = [with_constants(file, change) for file, change in pairs]
    furthest = max(match.distance for match in shared)
    return replace(pair, first=files[0], second=files[1]), len(shared), furthest


def _matches(first: Trace, second: Trace) -> list[_Match]:
    """Each constant of the second file that the first has nearly, or in every number."""
    by_size: dict[int, list[tuple[str, Array, float]]] = defaultdict(list)
    for name, array in _constants(first).items():
        by_size[array.size].append((name, array, norm([array])))
    found = []
    for name, array in _constants(second).items():
        size = norm([array])
        near = [
            _Match(name, other, array, own, turned.reshape(array.shape), distance)
            for other, own, own_size in by_size[array.size]
            if abs(size - own_size) <= 2 * FOLDED_TOLERANCE * size
            for turned in transpositions(own, array)
            if (distance := relative_l2(array.squeeze(), turned)) <= FOLDED_TOLERANCE
        ]
        match = min(near, key=lambda each: each.distance, default=None)
        if match is not None and match.is_near:
            found.append(match)
    return found


def _readers(traced: Trace) -> dict[str, str]:
    """The operator that reads each value first, by an output of it."""
    readers: dict[str, str] = {}
    for node in traced.nodes:
        for name in node.input:
            readers.setdefault(name, node.output[0])
    return readers


def _constants(traced: Trace) -> dict[str, Array]:
    """Real constants that operators read beside a value that depends on the input."""
    found = {}
    for node in traced.nodes:
        if traced.live.isdisjoint(node.input):
            continue
        for place, name in enumerate(node.input):
            array = traced.constant(node, place)
            if array is not None and array.dtype.kind == "f" and np.any(array):
                found[name] = array
    return found


def _turned_back(array: Array, own: Array) -> Array:
    """An array in the layout of the constant that it stands for."""
    return min(
        (turned.reshape(own.shape) for turned in transpositions(array, own)),
        key=lambda turned: relative_l2(turned, own),
    )


def _is_computed(traced: Trace, name: str) -> bool:
    """Whether a file still computes a constant, by more than arranging its numbers."""
    pending = [name]
    while pending:
        node = traced.producers.get(pending.pop())
        if node is not None and node.op_type not in _MOVES:
            return True
        pending += node.input if node is not None else ()
    return False


def _is_float32(array: Array) -> bool:
    with np.errstate(over="ignore"):
        return bool((array.astype(np.float32) == array).all())


def with_constants(file: ModelFile, constants: Mapping[str, Array]) -> ModelFile:
    """The file with other numbers in the place of constants, which it holds or computes."""
    if not constants:
        return file
    model = onnx.ModelProto()
    model.CopyFrom(file.model)
    held, left = [], dict(constants)
    for tensor in model.graph.initializer:
        if tensor.name in left:
            array = np.asarray(left.pop(tensor.name), array_of(tensor).dtype, order="C")
            if is_held(tensor):
                held.append(array)
                tensor.CopyFrom(hold(tensor.name, array))
            else:
                tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))
    for node in model.graph.node:
        for place, name in enumerate(node.output):
            if name in left:
                node.output[place] = f"{name}/computed"
    for name, array in left.items():
        constant = np.asarray(array, np.float32, order="C")
        model.graph.initializer.append(numpy_helper.from_array(constant, name))
    return replace(file, model=model, held=(*file.held, *held))
