"""Two files of which one is the other with weights rounded to float16 or bfloat16.

Converters round weights to the nearest number of a narrower type, and may store that in a wider one. Rounded in
the same way, the other file then is the narrow one, operator by operator and weight by weight.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
from onnx import TensorProto

from dlb.proof.rounding import to_bfloat16
from dlb_graph.files.model_file import ModelFile
from dlb_graph.pairs.runs import FilePair
from dlb_graph.truth.held import array_of
from dlb_port.files.rounded import with_constants
from dlb_port.findings.files import Bfloat16Model, Float16Model

__all__ = ["Narrowed", "narrowed"]

Array = npt.NDArray[Any]
_REAL = (TensorProto.DOUBLE, TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16)


def _to_float16(array: Array) -> Array:
    with np.errstate(over="ignore"):
        return array.astype(np.float16).astype(np.float64)


#: Numbers of bfloat16 that are not far from 1 are those of float16, too.
_TYPES: Mapping[type[Float16Model], Callable[[Array], Array]] = {
    Bfloat16Model: to_bfloat16,
    Float16Model: _to_float16,
}


@dataclass(frozen=True)
class Narrowed:
    """A pair of files, with weights of the wider one rounded.

    Attributes:
        side: the place of the file whose weights are rounded already.
        kind: what says so, by the type.
        stored: whether that file keeps them in a wider type.
        weights: how many are rounded.
    """

    pair: FilePair
    side: int
    kind: type[Float16Model]
    stored: bool
    weights: int


def narrowed(pair: FilePair) -> Iterator[Narrowed]:
    """By type, the pair with the weights of one file rounded, but for those that the other has as they are.

    The other is the one that has more weights of numbers of that type.
    """
    files = pair.first, pair.second
    arrays = [dict(_weights(file)) for file in files]
    for kind, rounded in _TYPES.items():
        changed = [
            {
                name: near
                for name, own in each.items()
                if (near := rounded(own)).tobytes() != own.tobytes()
            }
            for each in arrays
        ]
        if len(changed[0]) == len(changed[1]):
            continue
        side = int(len(changed[0]) > len(changed[1]))
        wide, held = arrays[1 - side], {_numbers(own) for own in arrays[side].values()}
        for name in [name for name in changed[1 - side] if _numbers(wide[name]) in held]:
            del changed[1 - side][name]
        file = with_constants(files[1 - side], changed[1 - side])
        other = replace(pair, first=file) if side else replace(pair, second=file)
        types = {tensor.data_type for tensor in files[side].model.graph.initializer}
        yield Narrowed(other, side, kind, types.isdisjoint(_REAL[2:]), len(changed[1 - side]))


def _weights(file: ModelFile) -> Iterator[tuple[str, Array]]:
    for tensor in file.model.graph.initializer:
        if tensor.data_type in _REAL:
            yield tensor.name, array_of(tensor).astype(np.float64)


def _numbers(array: Array) -> int:
    """The same of two arrays with the same numbers in any layout."""
    return hash(np.sort(array + 0.0, axis=None).tobytes())
