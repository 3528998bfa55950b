"""The losses: a file for each kind has all that dlb knows of it, outside adapters and readers.

:mod:`dlb_graph.losses.base` says what a kind consists of.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Union

from dlb_graph.layers.base import kinds_of
from dlb_graph.losses.absolute_error import *
from dlb_graph.losses.base import *
from dlb_graph.losses.binary_cross_entropy import *
from dlb_graph.losses.ctc import *
from dlb_graph.losses.huber import *
from dlb_graph.losses.softmax_cross_entropy import *
from dlb_graph.losses.squared_error import *

#: Every kind by its name in workload files.
LOSSES: Mapping[str, type[Loss]] = kinds_of(Loss, globals())
if TYPE_CHECKING:
    AnyLoss = Loss
else:
    #: Any of them, for msgspec, which chooses by the ``type`` of a document.
    AnyLoss = Union[tuple(LOSSES.values())]
