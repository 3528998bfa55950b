"""One adapter's part of a run. Data flows one way: each stage returns a result of its own type.

==================  ===================================================================
module              what it does
==================  ===================================================================
``adapter``         the stages in order, and what came of them
``workers``         the adapter's processes, and their output that is kept
``models``          the models that the stages build
``float64``         proves models in float64: layers, gradients, updates, dropout
``distributed``     trains with several workers and with one, for the comparison
``timed``           builds, trains and times the model that is measured
``tested``          what it reached on the test split
``exported``        exports it, and proves the export
``float32``         proves float32: gradients, updates, the trajectory
``calibration``     what rounding alone may do, measured on one right adapter
``between``         what takes several adapters to judge
==================  ===================================================================
"""
