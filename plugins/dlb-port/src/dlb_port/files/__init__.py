"""The parts of :mod:`dlb_port.file_proof`, which compares two ONNX files without a framework.

===============  ==============================================================================
module           what it holds
===============  ==============================================================================
``subject``      a file as a subject: what it gives for each check
``structure``    compares the operators of both models
``weights``      finds the numbers that both models hold, and those that only one holds
``parting``      finds the first pair of nodes whose values differ
===============  ==============================================================================
"""
