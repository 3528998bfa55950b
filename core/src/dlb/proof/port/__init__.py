"""The parts of :mod:`dlb.proof.port_proof`, which proves a model that users wrote in several frameworks.

===================  =====================================================================
module               what it holds
===================  =====================================================================
``inputs``           makes the input, and converts it to each model's layout
``session``          starts workers, loads models, and matches their parameters
``model``            a user's model, in canonical layout
``matching``         matches parameters by names, shapes and calls
``weight_map``       reads and writes matched parameters as a file
``reference_model``  values of the reference, each computed once
``comparison``       values of a model and of the reference, each computed once
``layer_events``     pairs the calls of layers that are counterparts
``culprit``          finds the first layer that differs
===================  =====================================================================
"""
