"""dlb proves that deep-learning frameworks ran the same model, and then measures them."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.2.0"
#: The public API. Documents and errors are in dlb.record, dlb.proof.certificate and dlb.errors.
__all__ = [
    "Reading",
    "__version__",
    "assert_proven",
    "read_records",
    "run",
    "verify",
]

if TYPE_CHECKING:
    from dlb.api import (
        assert_proven,
        read_records,
        run,
        verify,
    )
    from dlb_graph.options import Reading


def __getattr__(name: str) -> Any:
    if name == "Reading":
        return import_module("dlb_graph.options").Reading
    if name in __all__:
        return getattr(import_module("dlb.api"), name)
    raise AttributeError(f"module 'dlb' has no attribute '{name}'")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
