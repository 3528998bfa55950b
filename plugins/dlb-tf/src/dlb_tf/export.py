"""ONNX by tf2onnx."""

from __future__ import annotations

import logging
from functools import partial
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf
import tf2onnx

from dlb_tf.layers import EXPORTING
from dlb_tf.model import TFModel
from dlb_worker.onnx_file import write_model

#: The opset of the canonical graph; tf2onnx writes it as asked.
OPSET = 17


def export(model: TFModel, path: Path) -> str:
    """Write the network in evaluation mode, weights inside, the batch axis free.

    Its one transpose, NCHW to NHWC, is in the function that is converted; tf2onnx moves it on to
    where ONNX's operators undo it. It copies constants dozens of times: kernels and tables are
    inputs of that function.
    """
    described, network = model.workload.model.input, model.network.model
    dtype = model.dtype if described.kind == "real" else "int64"
    large = {each.path: each for each in _large(network)}
    signature = [
        tf.TensorSpec([None, *described.shape], dtype, name="input"),
        # TensorFlow, which optimises the function before tf2onnx has it, makes up a value for every
        # input whose size it knows.
        *(
            tf.TensorSpec([*each.shape[:-1], None], each.dtype, name=name)
            for name, each in large.items()
        ),
    ]

    @tf.function(input_signature=signature)
    def evaluate(inputs: tf.Tensor, *weights: tf.Tensor) -> dict[str, tf.Tensor]:
        native = tf.transpose(inputs, [0, 2, 3, 1]) if len(described.shape) == 3 else inputs
        shaped = [
            (each, tf.ensure_shape(w, each.shape)) for each, w in zip(large.values(), weights)
        ]
        with keras.StatelessScope(shaped):
            return {"logits": network(native, training=False)}

    logging.getLogger("tf2onnx").setLevel(logging.ERROR)
    exporting = EXPORTING.set(True)
    try:
        written, _ = tf2onnx.convert.from_function(evaluate, input_signature=signature, opset=OPSET)
    finally:
        EXPORTING.reset(exporting)
    (opset,) = {each.version for each in written.opset_import if each.domain in ("", "ai.onnx")}
    assert opset == OPSET, f"tf2onnx wrote opset {opset}"
    for value in written.graph.input:
        if value.name in large:
            value.type.tensor_type.shape.dim[-1].dim_value = large[value.name].shape[-1]
    write_model(path, written, {name: partial(_array, each) for name, each in large.items()})
    return f"tf2onnx.convert.from_function {tf2onnx.__version__}"


def _array(variable: keras.Variable) -> np.ndarray:
    """Over the variable's own memory; its numpy() makes two copies."""
    return np.asarray(tf.convert_to_tensor(variable.value))


def _large(network: keras.Model) -> list[keras.Variable]:
    """Kernels and tables, but for those of an LSTM, which tf2onnx knows by constants alone."""
    constant = {
        id(variable)
        for layer in network.layers
        if isinstance(layer, keras.layers.RNN)
        for variable in layer.variables
    }
    return [each for each in network.variables if len(each.shape) > 1 and id(each) not in constant]
