"""What people read, made from fields: sentences and tables.

==================  ===================================================================
module              what it makes
==================  ===================================================================
``sentences``       the sentence of any finding, and all sentences of a result
``common``          words for layers, shapes and baselines; findings of checks of every kind
``workload``        sentences of findings about a workload
``audit``           sentences of findings about a timed run
``explanations``    sentences of explanations
``records``         tables and lines of records and certificates
``table``           a table as data
``plain``           texts and numbers from strangers, made safe to show
==================  ===================================================================

No code parses these texts. Code that needs a fact reads the field.
"""
