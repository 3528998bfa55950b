"""Studies: the tables and figures of papers as files, measured again here.

============  ==================================================================
``study``     what a study file holds; reading and checking it
``catalogue`` studies by name: those shipped with dlb, and those of plugins
``plan``      the cells that a study runs here, and why others are not run
``figures``   quantities, from what was measured
``table``     published numbers and ours, side by side
``runner``    a study from its plan to its table
``command``   ``dlb study``; ``plugin`` adds it to dlb
============  ==================================================================
"""

__version__ = "0.2.0"
