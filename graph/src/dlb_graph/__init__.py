"""What a model is, and what an ONNX file computes. It knows no framework, no process and no certificate.

==================  ===================================================================
room                what it holds
==================  ===================================================================
``layers``          a class a kind, with all that is known of it; a file a family
``losses``          likewise, a file each; ``optimizers``
``workload``        models, workload files, their hash, training, lowering
``truth``           the canonical graph, its evaluation in float64, gradients
``pairs``           two ONNX files side by side: ``compare``
``files``           an ONNX file of any exporter as a workload; ``options``: what a user chose
``structure``       whether two graphs are the same layers
``reading``         a graph as layers, a rule for each operator
``rewriting``       passes: foreign graphs as graphs that compute the same
``comparing``       distances, tolerances, differences as data
``errors``          what is raised; ``arguments`` are checked; other modules open strangers' files
==================  ===================================================================

Arrows go downwards, in this order: ``pairs``, ``files``, ``structure``, ``reading``, ``rewriting``,
``comparing``, ``truth``, ``workload``, ``losses`` and ``optimizers``, ``layers``.
This package imports nothing itself until :func:`compare` is called.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.2.0"
__all__ = ["__version__", "compare"]

if TYPE_CHECKING:
    from dlb_graph.pairs.compared import compare


def __getattr__(name: str) -> Any:
    if name == "compare":
        from dlb_graph.pairs.compared import compare

        return compare
    raise AttributeError(f"module 'dlb_graph' has no attribute '{name}'")
