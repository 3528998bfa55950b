"""A report on results: one HTML page that needs nothing else, or the same tables as Markdown or LaTeX.

==================  ===================================================================
module              what it holds
==================  ===================================================================
``sources``         results folders and documents, read as far as they can be
``naming``          names with their status, and their looks
``summary``         what was found, in sentences
``sections``        the sections: summary, comparison, ratios, runs, the list of results
``time_sections``   step times, throughput, training, resources
``proof_sections``  the proof, the audit, provenance
``blocks``          what a section is made of: sentences, tables, charts, files of data
``charts``          charts as data; ``figures``, ``curves`` make them, ``scales`` place them
``html``            the page; ``texts``: Markdown and LaTeX; ``images``: SVG and PNG files
==================  ===================================================================
"""
