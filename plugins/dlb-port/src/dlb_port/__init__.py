"""Proves a model that users wrote in several frameworks, and compares ONNX files without a framework.

====================  =====================================================================
module                what it holds
====================  =====================================================================
``words``             factories, layouts and programs as a command names them
``inputs``            makes the input, and converts it to each model's layout
``session``           starts workers, loads models, and matches their parameters
``model``             a user's model, in canonical layout
``stochastic_depth``  layers of unknown types that drop samples
``matching``          matches parameters by names, shapes and calls
``weight_map``        reads and writes matched parameters as a file
``reference_model``   values of the reference, each computed once
``comparison``        values of a model and of the reference, each computed once
``subject``           a user's model as a subject: what it gives for each check
``layer_events``      pairs the calls of layers that are counterparts
``culprit``           finds the first layer that differs
``port_proof``        the proof of ports, and captures; ``port_checks``: its checks, in order
``backend``           an adapter behind ONNX's own backend interface
``files``             parts of ``file_proof``, which compares two files
``cli``               ``dlb port``, ``dlb capture``, ``dlb diff``; ``plugin`` adds them to dlb
====================  =====================================================================
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.2.0"
__all__ = [
    "__version__", "assert_port_proven", "assert_same_file", "capture", "compare_files", "onnx_backend",
    "verify_port",
]  # fmt: skip
#: The module of each name, but those of ``port_proof``.
_FILES = "file_proof"
_MODULES = {"assert_same_file": _FILES, "compare_files": _FILES, "onnx_backend": "backend"}

if TYPE_CHECKING:
    from dlb_port.backend import onnx_backend
    from dlb_port.file_proof import assert_same_file, compare_files
    from dlb_port.port_proof import assert_port_proven, capture, verify_port


def __getattr__(name: str) -> Any:
    if name in __all__:
        module = _MODULES.get(name, "port_proof")
        return getattr(import_module(f"dlb_port.{module}"), name)
    raise AttributeError(f"module 'dlb_port' has no attribute '{name}'")
