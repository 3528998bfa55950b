"""Measurement: what is timed how often, and what may be said of it.

The unit is a trial: a new process that trains a new model. A cell is what is measured: a workload on an
adapter with its options. Rounds, each with one trial of every cell, are compared as pairs.

==============  ================================================================
``schedule``    the rounds: every cell once and one twice, in random order
``steady``      where the steps of a trial are steady
``ratios``      two cells as a ratio with its interval, and the word for it
``stopping``    how many rounds a precision needs
``measure``     trials in rounds; ``sweeping``, ``scale``, ``tune``: several cells
``estimate``    how long that takes; ``executors``: cells elsewhere, as ``remote_cell``
``matrix``      the cells of a sweep; ``peaks``: what the machine does at most
``results``     measurements, sweeps and the index, as documents
``tables``      what people see of them; ``frames``: data frames
``api``         measuring from Python
``cli``         the commands; ``plugin`` adds them to dlb
==============  ================================================================
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.2.0"
__all__ = ["Plan", "__version__", "compare", "read_measurement", "run", "sweep"]

if TYPE_CHECKING:
    from dlb_measure.api import compare, read_measurement, run, sweep
    from dlb_measure.plan import Plan


def __getattr__(name: str) -> Any:
    if name in __all__:
        return getattr(import_module(f"dlb_measure.{'plan' if name == 'Plan' else 'api'}"), name)
    raise AttributeError(f"module 'dlb_measure' has no attribute '{name}'")
