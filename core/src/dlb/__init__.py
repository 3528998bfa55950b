"""dlb proves that deep-learning frameworks ran the same model, and then measures them."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.2.0"
#: The public API. Documents and errors are in dlb.record, dlb.proof.certificate and dlb.errors.
__all__ = [
    "Plan",
    "Reading",
    "__version__",
    "assert_proven",
    "capture",
    "compare",
    "compare_files",
    "make_report",
    "onnx_backend",
    "read_measurement",
    "read_records",
    "run",
    "sweep",
    "verify",
    "verify_port",
]

if TYPE_CHECKING:
    from dlb.api import (
        assert_proven,
        capture,
        compare,
        compare_files,
        make_report,
        read_measurement,
        read_records,
        run,
        sweep,
        verify,
        verify_port,
    )
    from dlb.backend import onnx_backend
    from dlb.execution.measure import Plan
    from dlb.reading import Reading


def __getattr__(name: str) -> Any:
    if name == "onnx_backend":
        return import_module("dlb.backend").onnx_backend
    if name == "Plan":
        return import_module("dlb.execution.measure").Plan
    if name == "Reading":
        return import_module("dlb.reading").Reading
    if name in __all__:
        return getattr(import_module("dlb.api"), name)
    raise AttributeError(f"module 'dlb' has no attribute '{name}'")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
