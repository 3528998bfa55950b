"""Compares what two graphs compute: both are read as layers, and these brought to one form.

====================  =========================================================================
module                what it holds
====================  =========================================================================
``structure``         whether two graphs compute the same, layout aside
``graph_reader``      reads every node of a graph, as an opaque layer if no rule reads it
``normal_form``       layers as operations, with the attributes that affect what is computed
``operation``         one computation of a graph
``alignment``         names the layers in which two graphs differ
====================  =========================================================================
"""
