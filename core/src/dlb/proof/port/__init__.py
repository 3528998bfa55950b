"""What :mod:`dlb.proof.port_proof` proves a port by: one model, written by hand in several frameworks.

===================  =====================================================================
module               what it holds
===================  =====================================================================
``inputs``           what the models are fed, and in which order of axes each reads it
``session``          the models and their workers
``model``            a user's model, in canonical layout
``matching``         which parameter is which, found by names, shapes and calls
``weight_map``       the same, said in a file
``reference_model``  what the reference computes, each once
``comparison``       what a model and the reference compute
``layer_events``     calls of layers that are counterparts
``culprit``          the first layer that is wrong
===================  =====================================================================
"""
