"""Two ONNX files compared with each other, with no framework.

===============  ==============================================================================
module           what it holds
===============  ==============================================================================
``certificate``  a comparison from beginning to end
``checks``       the checks, a function each
``read``         a stranger's file as a model that can be run, or why it cannot be
``inputs``       what both are fed: seeded noise that fits them, or arrays that were given
``arrays``       the arrays of an .npz file
``runs``         both models in float64
``structure``    whether both are made of the same operators
``weights``      which numbers both hold, and which only one
``analytic``     whether agreement where it was tried shows agreement everywhere
``parting``      the first pair of nodes whose values part
===============  ==============================================================================
"""
