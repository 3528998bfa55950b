"""NumPy, imported when something of it is first used: a description is read and checked without it.

Modules that describe layers, losses and optimizers say ``from dlb_graph.layers.numbers import np``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Any

    import numpy as np
    import numpy.typing as npt

    Array = npt.NDArray[Any]
else:
    import importlib

    class _Module:
        """A module whose names are looked up when they are asked for."""

        def __init__(self, name):
            self._name = name

        def __getattr__(self, name):
            value = getattr(importlib.import_module(self._name), name)
            setattr(self, name, value)
            return value

    np = _Module("numpy")
    Array = "numpy.ndarray"

__all__ = ["Array", "np"]
