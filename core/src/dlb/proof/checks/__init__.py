"""The checks, one module for each group: what it computes with a subject, and how it compares the result.

To add a check, write a function that returns :meth:`dlb.proof.engine.Check.result`. Then call it where its
kind of subject is proven: :mod:`dlb.execution` for models that adapters build,
:mod:`dlb.proof.port_proof` for users' models, :mod:`dlb.proof.file_proof` for files.

====================  ===================================================================
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
``structure``         ``file``, ``structure``
``export``            ``export``
``exported_weights``  ``exported weights``
``distributed``       ``distributed``
====================  ===================================================================
"""
