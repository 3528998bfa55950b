"""What checks of models that adapters build compute, and how their results compare; a module for each group.

module                its checks
====================  ===================================================================
``weights``           ``weights``
``forward``           ``forward``
``dropout``           ``dropout``, ``dropout float32``
``dropout_gradients`` ``dropout gradients``, also in float32
``statistics``        ``running statistics``
``layers``            ``isolated layers``, ``layers``
``extremes``          ``isolated layers, extremes``, ``gradients float64, extremes``
``backward``          ``gradients float64``
``gradients``         ``gradients by differences``; ``gradients`` of a port
``updates``           ``update``, ``trajectory``
``agreement``         ``gradients`` and ``trajectories``, between adapters
``float32``           ``forward float32``; ``gradients float32`` of a port
``float32_layers``    ``isolated layers float32``, ``gradients float32``
``float32_updates``   ``update float32``
``file``              ``file``
``structure``         ``structure``
``export``            ``export``
``exported_weights``  ``exported weights``
``distributed``       ``distributed``
====================  ===================================================================
=======
:mod:`dlb.proof.check_table` has the names. Users' models (:mod:`dlb_port.subject`) and files
(:mod:`dlb_port.files.subject`) are subjects of their own.
"""
