"""dlb proves that deep-learning frameworks ran the same model, and then measures them."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.2.0"
__all__ = ["__version__", "assert_proven", "onnx_backend", "verify"]

if TYPE_CHECKING:
    from dlb.api import assert_proven, verify
    from dlb.backend import onnx_backend

_HOME = {
    "assert_proven": "dlb.api",
    "onnx_backend": "dlb.backend",
    "verify": "dlb.api",
}


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    raise AttributeError(f"module 'dlb' has no attribute '{name}'")
