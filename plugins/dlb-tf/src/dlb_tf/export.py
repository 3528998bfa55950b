"""ONNX by tf2onnx."""

from __future__ import annotations

import logging
from pathlib import Path

import tensorflow as tf
import tf2onnx

from dlb.contract import TrainableModel
from dlb_tf.layers import exportable
from dlb_tf.model import TFModel

#: The opset of the canonical graph; tf2onnx writes it as asked.
OPSET = 17


def export(model: TrainableModel, path: Path) -> str:
    """Write the network in evaluation mode, weights inside, the batch axis free.

    Its one transpose, NCHW to NHWC, is in the function that is converted; tf2onnx moves it on to
    where ONNX's operators undo it.
    """
    assert isinstance(model, TFModel)
    described = model.workload.model.input
    dtype = model.dtype if described.kind == "real" else "int64"
    signature = [tf.TensorSpec([None, *described.shape], dtype, name="input")]

    @tf.function(input_signature=signature)
    def evaluate(inputs: tf.Tensor) -> dict[str, tf.Tensor]:
        native = tf.transpose(inputs, [0, 2, 3, 1]) if len(described.shape) == 3 else inputs
        return {"logits": model.network.model(native, training=False)}

    logging.getLogger("tf2onnx").setLevel(logging.ERROR)
    with exportable(model.network.model):
        written, _ = tf2onnx.convert.from_function(
            evaluate, input_signature=signature, opset=OPSET, output_path=str(path)
        )
    (opset,) = {each.version for each in written.opset_import if each.domain in ("", "ai.onnx")}
    assert opset == OPSET, f"tf2onnx wrote opset {opset}"
    return f"tf2onnx.convert.from_function {tf2onnx.__version__}"
