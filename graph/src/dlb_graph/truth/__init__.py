"""Models as ONNX graphs: the canonical graph, its evaluation and gradients, and what graphs compute.

Canonical: ``canonical`` is a model description as an ONNX graph, of ``layer_nodes``, and with its loss.
Evaluation: ``evaluate`` runs a graph in NumPy, in float64 the reference of every proof, by ``operators`` and
``resizing``, within ``limits``. ``precision``: a graph in float64 or float32. ``held``: large weights.
``runtime``: ONNX Runtime. ``exported``: what a file declares about itself, and whether that is correct.
``trace``: every value of one run. ``liveness``: which values depend on the inputs. ``backward``: gradients.

What nodes do: ``layout``, ``merged_windows``, ``copies``, ``bounds``, ``linear_parts``, ``lookups``, ``masks``.
``recognition`` of decomposed layers, by their results: ``blocks``, ``norm_blocks``, ``decomposed_lrn`` and
``elementwise_blocks``, found by ``block_search``; ``recognised`` is what it finds.

This package imports nothing itself, so ``import dlb_graph.truth`` costs nothing.
"""
