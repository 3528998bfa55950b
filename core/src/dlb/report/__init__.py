"""What people read, made from fields: sentences, tables, and the page of a report.

==================  ===================================================================
module              what it makes
==================  ===================================================================
``sentences``       the sentence of any finding, and all sentences of a result
``common``          words for layers, shapes and baselines; findings of checks of every kind
``workload``        sentences of findings about a workload
``port``            sentences of findings about a port
``files``           sentences of findings about two ONNX files
``explanations``    sentences of explanations
``records``         tables and lines of records and certificates
``measurements``    tables and lines of measurements
``table``           a table as data
``plain``           texts and numbers from strangers, made safe to show
``page``            the report: one HTML page, Markdown, LaTeX, charts
==================  ===================================================================

No code parses these texts. Code that needs a fact reads the field.
"""
