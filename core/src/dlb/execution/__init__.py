"""One adapter's part of a run. Data flows one way: each stage returns a result of its own type.

===================  ==================================================================
module               what it does
===================  ==================================================================
``run``              runs every adapter, certifies the results, writes the records
``adapter``          runs the stages of one adapter in order, and collects their results
``workers``          starts the adapter's processes
``models``           builds the models that the stages use
``float64``          proves models in float64: layers, gradients, updates, dropout
``distributed``      trains with several workers and with one worker, and compares
``timing``           builds, trains and times the model that is measured
``quality``          computes losses and the accuracy on the test split
``export``           exports the trained model, and proves the export
``float32``          proves models in float32: gradients, updates, the trajectory
``calibration``      measures the effect of rounding on one adapter that is correct
``across_adapters``  runs the checks that need the results of several adapters
===================  ==================================================================
"""
