"""Models as ONNX graphs: the canonical one, its evaluation, and what frameworks export.

====================  =========================================================================
module                what it holds
====================  =========================================================================
``canonical``         a model description as an ONNX graph, and with its loss
``evaluate``          an ONNX graph run in NumPy, in float64, which is the truth of a proof
``runtime``           an exported model run by ONNX Runtime
``precision``         a graph in float64 or float32
``structure``         whether an exported graph is the canonical one, layout aside
``exported``          what an exported file says of itself, and whether that is so
====================  =========================================================================

Nothing is imported here, so that ``import dlb.graph`` costs nothing.
"""
