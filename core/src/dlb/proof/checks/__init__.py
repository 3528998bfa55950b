"""The checks: each takes what was computed and gives a result; none computes models.

A check is added by writing one more such function, and calling it where the models are run.

==================  ===================================================================
module              its checks
==================  ===================================================================
``tolerances``      none: how far apart values may be
``layers``          ``weights``, ``forward``, ``isolated layers``
``dropout``         ``dropout``
``gradients``       ``gradients by differences``, ``gradients float32``
``agreement``       ``gradients`` and ``trajectories``, between adapters
``updates``         ``update``, ``trajectory``, ``update float32``
``exports``         ``file``, ``structure``, ``export``
``distributed``     ``distributed``
==================  ===================================================================
"""
