"""The parts of :mod:`dlb.proof.file_proof`, which compares two ONNX files without a framework.

===============  ==============================================================================
module           what it holds
===============  ==============================================================================
``read``         reads a file as a model that can be run, or says why it cannot
``inputs``       makes inputs for both models: seeded noise, or the user's arrays
``runs``         runs both models in float64
``structure``    compares the operators of both models
``weights``      finds the numbers that both models hold, and those that only one holds
``analytic``     decides whether agreement on a few inputs shows agreement on all
``parting``      finds the first pair of nodes whose values differ
===============  ==============================================================================
"""
