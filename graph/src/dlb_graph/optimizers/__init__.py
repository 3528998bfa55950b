"""The optimizers: a file for each has all that dlb knows of it, outside adapters and readers.

:mod:`dlb_graph.optimizers.base` says what a kind consists of.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Union

from dlb_graph.layers.base import kinds_of
from dlb_graph.optimizers.adadelta import *
from dlb_graph.optimizers.adagrad import *
from dlb_graph.optimizers.adam import *
from dlb_graph.optimizers.adamax import *
from dlb_graph.optimizers.base import *
from dlb_graph.optimizers.rmsprop import *
from dlb_graph.optimizers.sgd import *

#: Every kind by its name in workload files.
OPTIMIZERS: Mapping[str, type[Optimizer]] = kinds_of(Optimizer, globals())
if TYPE_CHECKING:
    AnyOptimizer = Optimizer
else:
    #: Any of them, for msgspec, which chooses by the ``type`` of a document.
    AnyOptimizer = Union[tuple(OPTIMIZERS.values())]
