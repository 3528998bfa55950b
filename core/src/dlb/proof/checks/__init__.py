"""The checks, one module for each group: what it computes with a subject, and how it compares the result.

To add a check, write a function that returns :meth:`dlb.proof.engine.Check.result`. Then call it where its
kind of subject is proven: :mod:`dlb.execution` for models that adapters build,
:mod:`dlb.proof.port_proof` for users' models, :mod:`dlb.proof.file_proof` for files.

====================  ===================================================================
module                its checks
====================  ===================================================================
``weights``           ``weights``
``forward``           ``forward``
``dropout``           ``dropout``
``statistics``        ``running statistics``
``layers``            ``isolated layers``, ``layers``
``gradients``         ``gradients by differences``; ``gradients`` of a port
``updates``           ``update``, ``trajectory``
``agreement``         ``gradients`` and ``trajectories``, between adapters
``float32``           ``forward float32``, ``gradients float32``
``float32_updates``   ``update float32``
``structure``         ``file``, ``structure``
``export``            ``export``
``distributed``       ``distributed``
====================  ===================================================================
"""
