"""An ONNX file read as a workload: its graph as layers, its initialisers as weights.

================  =============================================================================
module            what it holds
================  =============================================================================
``read``          from a path to a workload and its weights, or why there is none
``walk``          the graph walked from its input to its logits: which layer each value is of
``values``        where each number of a value lies in the layer's own value
``rules``         a rule for each operator: the layer that it means, and its weights
``transformers``  normalisations, GELU, attention, position tables, means and places of sequences
``affine``        arithmetic with constants: biases, and what scales channels
``check``         whether the canonical graph of what was read computes what the file computes
================  =============================================================================
"""

from dlb.imported.read import Imported, import_file

__all__ = ["Imported", "import_file"]
