"""Models as ONNX graphs: the canonical graph, its evaluation, and graphs that frameworks export.

====================  =========================================================================
module                what it holds
====================  =========================================================================
``canonical``         a model description as an ONNX graph, and with its loss
``evaluate``          runs an ONNX graph in NumPy: in float64, the reference of every proof
``runtime``           runs an exported model in ONNX Runtime
``precision``         a graph in float64 or float32
``structure``         whether an exported graph is the canonical one, except for its layout
``exported``          what an exported file declares about itself, and whether that is correct
====================  =========================================================================

This package imports nothing itself, so ``import dlb.graph`` costs nothing.
"""
