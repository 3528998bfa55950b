"""The registry: for each layer kind the sentence, its two passes, and its parameters."""

from __future__ import annotations

from dlb_worker.layers import Layer, LazyModule
from dlb_worker.parameters import location

passes = LazyModule("dlb_example.passes")

#: Each builds the two passes of a layer; parameters are kept by their canonical names.
LAYERS = {
    "linear": Layer(
        "composed: matmul and add",
        lambda node: passes.LINEAR,
        {"weight": location("weight"), "bias": location("bias")},
    ),
    "relu": Layer("native", lambda node: passes.RELU),
    "tanh": Layer("native", lambda node: passes.TANH),
    "dropout": Layer(
        "composed: a mask of NumPy's generator, and a product", lambda node: passes.DROPOUT
    ),
    "flatten": Layer("native: reshape", lambda node: passes.FLATTEN),
}
