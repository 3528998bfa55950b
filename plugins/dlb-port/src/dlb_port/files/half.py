"""Two files of which one is the other in float16.

Converters round every weight of a file to the nearest number of float16. Rounded in the same way, the wider
file then is the narrow one, operator by operator and weight by weight.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from onnx import TensorProto

from dlb_graph.pairs.runs import FilePair
from dlb_graph.truth.held import array_of
from dlb_port.files.rounded import with_constants

__all__ = ["narrow_side", "with_rounded_weights"]

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
    wide, _ = pair.sides[1 - narrow]
    arrays = {
        tensor.name: array_of(tensor)
        for tensor in wide.model.graph.initializer
        if tensor.data_type in _WIDE
    }
    with np.errstate(over="ignore"):
        rounded = {name: array.astype(np.float16) for name, array in arrays.items()}
    file = with_constants(wide, rounded)
    return replace(pair, first=file) if narrow == 1 else replace(pair, second=file)
