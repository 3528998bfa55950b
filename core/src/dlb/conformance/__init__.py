"""What every adapter must do, whichever framework it is for.

Run in the adapter's own environment::

    pytest core/src/dlb/conformance --adapter torch

The truth is the canonical ONNX graph of each model, evaluated in NumPy (``dlb.graph``); no other
framework is needed. A test is skipped only where the adapter's own description says that it has
no such layer, optimizer, dtype or device.
"""
