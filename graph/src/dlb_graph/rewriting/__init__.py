"""Rewrites foreign ONNX graphs to graphs that compute the same, of fewer kinds of operators.

A pass is a function from a model to another, or to None where there is nothing to do. It changes no model that
it is given.

=======================  ======================================================================
module                   what it holds
=======================  ======================================================================
``passes``               every pass in the order in which they run; what runs and checks them
``foreign_operators``    the pass of every file that is read, also where two are compared:
``compositions``         - of ONNX's operators, those that are compositions of its own
``contributed``          - ONNX Runtime's
``quantised_operators``  - ONNX Runtime's of quantised numbers
``classical``            - those of classical models (``ai.onnx.ml``)
``fourier``              - Fourier transforms
``grid_sampling``        - sampling along a grid
``control_flow``         branches and loops that every input takes alike; functions
``recurrent_loops``      - loops that are an RNN, a GRU or an LSTM
``recurrent_steps``      recurrent operators, by their steps
``definitions``          operators by their definitions; pairs; constants of their own; norms by
                         numbers that the graph computes
``real_numbers``         truths and integers as real numbers:
``real_rules``           - what each operator of these is in real numbers
``real_parts``           - the nodes that a rule writes, and their constants
``numbers_of_indices``   - integers that look up rows and are computed with as well
``node_writer``          what writes nodes in the place of one
``folding``              what no input decides as constants, for ports
``nominal``              the numbers that are meant, where a file keeps them in float32
=======================  ======================================================================

onnx's own inliner writes out functions and definitions. onnx-ir 0.1.12 also inlines, and removes identities,
unused nodes and equal subexpressions: that renames what messages name, and readers need none of it. It has no
pass for what the passes here do, and does not say which initialiser a folded constant came from, by which
weights are matched. So it would add two packages, and replace the 18 lines of ``keep_needed``.
"""
