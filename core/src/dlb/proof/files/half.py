"""Two files of which one is the other in float16.

Converters round every weight of a file to the nearest number of float16. Rounded in the same way, the wider
file then is the narrow one, operator by operator and weight by weight.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, numpy_helper

from dlb.graph.held import array_of, hold, is_held
from dlb.proof.files.read import ModelFile
from dlb.proof.files.runs import FilePair

__all__ = ["narrow_side", "with_rounded_weights"]

Array = npt.NDArray[Any]
_WIDE = (TensorProto.FLOAT, TensorProto.DOUBLE)


def narrow_side(pair: FilePair) -> int | None:
    """0 or 1 if only that file keeps weights in float16; None if neither or both do."""
    narrow = [
        any(tensor.data_type == TensorProto.FLOAT16 for tensor in file.model.graph.initializer)
        for file in (pair.first, pair.second)
    ]
    return narrow.index(True) if sum(narrow) == 1 else None


def with_rounded_weights(pair: FilePair, narrow: int) -> FilePair:
    """The pair, with the weights of the wider file rounded to float16.

    Args:
        narrow: the place of the file that is in float16.
    """
    if narrow == 1:
        return replace(pair, first=_rounded(pair.first))
    return replace(pair, second=_rounded(pair.second))


def _rounded(file: ModelFile) -> ModelFile:
    model = onnx.ModelProto()
    model.CopyFrom(file.model)
    held = []
    for tensor in model.graph.initializer:
        if tensor.data_type in _WIDE:
            array = array_of(tensor)
            with np.errstate(over="ignore"):
                narrow = array.astype(np.float16).astype(array.dtype)
            if is_held(tensor):
                held.append(narrow)
                tensor.CopyFrom(hold(tensor.name, narrow))
            else:
                tensor.CopyFrom(numpy_helper.from_array(narrow, tensor.name))
    return replace(file, model=model, held=(*file.held, *held))
