"""Two ONNX files held against each other, with no framework.

===============  ==============================================================================
module           what it holds
===============  ==============================================================================
``certificate``  the rungs, and what they amount to
``read``         a stranger's file as a model that can be run, or why it cannot be
``inputs``       what both are fed: seeded noise that fits them, or arrays that were given
``weights``      which numbers both hold, and which only one
``parting``      the first pair of nodes whose values part
===============  ==============================================================================
"""
