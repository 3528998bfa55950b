"""The layers of a model: a class for each kind has all that dlb knows of it, outside adapters and readers.

Each is defined by one or a few ONNX operators with explicit attributes. Nothing depends on a framework's
default: pads, rounding of the output size, whether averages count padding, epsilon and its place, gate order.
Feature maps are [N, C, H, W], films and volumes [N, C, D, H, W], and sequences [N, T, features], whatever
layout a framework computes in. Operators are those of ONNX opset 17, https://onnx.ai/onnx/operators/.

:mod:`dlb_graph.layers.base` says what a kind consists of, and how to add one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Union

import msgspec

from dlb_graph.layers.activation import *
from dlb_graph.layers.arithmetic import *
from dlb_graph.layers.attention import *
from dlb_graph.layers.base import *
from dlb_graph.layers.constants import *
from dlb_graph.layers.conv import *
from dlb_graph.layers.dropout import *
from dlb_graph.layers.elementwise import *
from dlb_graph.layers.embedding import *
from dlb_graph.layers.initializers import *
from dlb_graph.layers.linear import *
from dlb_graph.layers.movement import *
from dlb_graph.layers.norm import *
from dlb_graph.layers.pool import *
from dlb_graph.layers.recurrent import *
from dlb_graph.layers.reduction import *
from dlb_graph.layers.resize import *
from dlb_graph.layers.selection import *
from dlb_graph.layers.windowed import Windowed

#: Every kind by its name in workload files.
LAYERS: Mapping[str, type[Layer]] = kinds_of(Layer, globals())
if TYPE_CHECKING:
    AnyLayer = Layer
else:
    #: Any of them, for msgspec, which chooses by the ``type`` of a document.
    AnyLayer = Union[tuple(LAYERS.values())]


def default_of(part: msgspec.Struct, field: Any) -> Any:
    """The value of a field that is left out, where it may follow from others: a layer's kernel has it.

    Args:
        field: one of ``fields_of(type(part))``.
    """
    if isinstance(part, Windowed) and field.default == ():
        return part.window_defaults()[field.name]
    return field.default
