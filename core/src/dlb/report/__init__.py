"""What people read, made from fields: sentences of findings, explanations, tables.

==================  ===================================================================
module              what it makes
==================  ===================================================================
``sentences``       a sentence of any finding, and all of a result's
``common``          words for layers, shapes, baselines, and for findings of every kind
``workload``        sentences of findings of a workload
``port``            sentences of findings of a port
``files``           sentences of findings of two ONNX files
``explanations``    sentences of what a difference probably comes from
==================  ===================================================================

Nothing reads these texts back: whoever needs a fact takes the field.
"""
