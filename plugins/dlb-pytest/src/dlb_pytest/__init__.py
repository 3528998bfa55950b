"""Proves workloads, ports and pairs of ONNX files in users' tests: a fixture and a marker of pytest."""

from __future__ import annotations

from dlb_pytest.plugin import Prover

__version__ = "0.2.0"
__all__ = ["Prover", "__version__"]
