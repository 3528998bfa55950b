"""Reads a graph as layers, whatever operators and layouts an exporter chose.

``importer`` reads node by node, by the ``rules``; ``layers`` is what it makes, and ``views`` say in which order
a value of the file has a layer's numbers. Values with samples first, and maps: ``samples_first``, ``maps``.
"""
