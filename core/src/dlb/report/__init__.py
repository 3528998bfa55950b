"""The texts that people read, made from fields: sentences of findings and of explanations.

==================  ===================================================================
module              what it makes
==================  ===================================================================
``sentences``       the sentence of any finding, and all sentences of a result
``common``          words for layers, shapes and baselines; findings of checks of every kind
``workload``        sentences of findings about a workload
``port``            sentences of findings about a port
``files``           sentences of findings about two ONNX files
``explanations``    sentences of explanations
==================  ===================================================================

No code parses these texts. Code that needs a fact reads the field.
"""
