"""What differs, as data: nothing here knows a check, a sentence or an adapter.

====================  =========================================================================
module                what it holds
====================  =========================================================================
``causes``            what findings are made of: distances, layers, the base of every cause
``read_facts``        what was decided in reading an ONNX file, as causes
``distance``          distances between tensors
``tolerances``        which distances pass, with the reason for each
``counterparts``      which values of one graph another has as well
``analytic``          what equal values on a few inputs say about all inputs
``numbers``           numbers of the same operator in the same place that are others
``narrow``            what roundings to float16 and bfloat16 do
====================  =========================================================================

This package imports nothing itself, so that documents are read without NumPy.
"""
