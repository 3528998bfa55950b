"""The framework-neutral description of a training workload: immutable, hashable, read from TOML.

What a workload is described with can be imported from here: layers, losses, optimizers, schedules.
"""

from dlb_graph.layers import *
from dlb_graph.losses import *
from dlb_graph.optimizers import *
from dlb_graph.workload.model import *
from dlb_graph.workload.shapes import *
from dlb_graph.workload.training import *
