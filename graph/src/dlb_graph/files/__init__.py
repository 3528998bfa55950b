"""Reads an ONNX file as a workload: its graph as layers, its initialisers as weights.

===================  ============================================================================
module               what it holds
===================  ============================================================================

===================  ============================================================================

This package imports nothing itself, so that :mod:`dlb_graph.files.model_file` costs no more than it needs.
"""
