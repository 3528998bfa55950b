"""Two ONNX files side by side.

==================  ===================================================================
module              what it holds
==================  ===================================================================
``compared``        whether two files compute the same, and what differs: ``dlb_graph.compare``
``runs``            both files and their runs in float64
``inputs``          inputs for both: seeded noise, or arrays of a file (``input_arrays``)
``layouts``         the second file with its axes in the order of the first's
``training_mode``   nodes that compute as in training
==================  ===================================================================
"""
