"""The conformance suite: what every adapter must do, whichever framework it is for.

In the adapter's own environment, from any folder::

    pip install dlb-conformance
    pytest --pyargs dlb_conformance --adapter torch

The truth is the canonical ONNX graph of each model, evaluated in NumPy (``dlb_graph.truth``); no other
framework is needed. A test is skipped only where the adapter's own description says that it has
no such layer, optimizer, dtype or device. ``docs/reference/contract.md`` has the rest.
"""

__version__ = "0.2.0"
