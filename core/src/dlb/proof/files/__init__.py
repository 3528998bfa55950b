"""What :mod:`dlb.proof.file_proof` compares two ONNX files by, with no framework.

===============  ==============================================================================
module           what it holds
===============  ==============================================================================
``read``         a stranger's file as a model that can be run, or why it cannot be
``inputs``       what both are fed: seeded noise that fits them, or arrays that were given
``runs``         both models in float64
``structure``    whether both are made of the same operators
``weights``      which numbers both hold, and which only one
``analytic``     whether agreement where it was tried shows agreement everywhere
``parting``      the first pair of nodes whose values part
===============  ==============================================================================
"""
