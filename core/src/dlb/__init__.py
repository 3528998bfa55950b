"""dlb proves that deep-learning frameworks ran the same model, and then measures them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"
__all__ = ["__version__", "hookimpl"]

if TYPE_CHECKING:
    from dlb.hookspecs import hookimpl


def __getattr__(name: str) -> Any:
    if name == "hookimpl":
        from dlb.hookspecs import hookimpl

        return hookimpl
    raise AttributeError(f"module 'dlb' has no attribute '{name}'")
