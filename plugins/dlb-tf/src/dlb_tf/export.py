"""ONNX by tf2onnx."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf
import tf2onnx
from tf2onnx.onnx_opset.nn import ConvOp, ConvTranspose

from dlb_tf import pools, recurrent
from dlb_tf.model import TFModel
from dlb_tf.modules import EXPORTING, to_canonical
from dlb_tf.user_model import UserKerasModel
from dlb_worker.native import tensors
from dlb_worker.onnx_file import write_model
from dlb_worker.user_layers import one_example

#: The opset of the canonical graph; tf2onnx writes it as asked.
OPSET = 17


def export(model: TFModel | UserKerasModel, path: Path) -> str:
    """Write a network in evaluation mode, weights inside.

    The batch axis of a workload's model is free; a user's model has that of its example. The transposes of
    a workload's, NCHW to NHWC and back for a map that it gives, and the same of films, are in the function
    that is converted; tf2onnx moves them to where ONNX's operators undo them. It copies constants dozens of
    times: kernels and tables are inputs of that function. A network of mixed precision is written in the dtype
    of its weights.
    """
    if isinstance(model, UserKerasModel):
        example = one_example(model)
        return _export(model.model, example.shape, model.native(example).dtype, path)
    described, network = model.workload.model.input, model.unmixed()
    gives_maps = model.network.layouts[model.workload.model.last].kind == "maps"
    dtype = tf.as_dtype(model.dtype if described.kind == "real" else "int64")

    def logits(inputs: tf.Tensor) -> dict[str, tf.Tensor]:
        layouts = model.network.layouts
        native = _turned(inputs, layouts[described.name].axes(len(described.shape)))
        outputs = network(native, training=False)
        back = to_canonical(len(outputs.shape) - 1) if gives_maps else ()
        return {"logits": _turned(outputs, back)}

    return _export(network, (None, *described.shape), dtype, path, logits)


def _turned(value: tf.Tensor, axes: tuple[int, ...]) -> tf.Tensor:
    """A value with the axes of a sample in another order, if it is one."""
    return value if axes == tuple(range(1, 1 + len(axes))) else tf.transpose(value, (0, *axes))


def _export(
    network: keras.Layer,
    shape: tuple[int | None, ...],
    dtype: tf.DType,
    path: Path,
    outputs: Callable[[tf.Tensor], Any] | None = None,
) -> str:
    """Write what ``outputs`` makes of the input by the network; by default what the network returns."""
    large = {each.path: each for each in _large(network)}
    signature = [
        tf.TensorSpec(shape, dtype, name="input"),
        # TensorFlow, which optimises the function before tf2onnx has it, makes up a value for every
        # input whose size it knows.
        *(
            tf.TensorSpec([*each.shape[:-1], None], each.dtype, name=name)
            for name, each in large.items()
        ),
    ]

    @tf.function(input_signature=signature)
    def evaluate(inputs: tf.Tensor, *weights: tf.Tensor) -> Any:
        shaped = [
            (each, tf.ensure_shape(w, each.shape)) for each, w in zip(large.values(), weights)
        ]
        with keras.StatelessScope(shaped):
            if outputs is not None:
                return outputs(inputs)
            return [each for _, each in tensors(network(inputs, training=False), tf.is_tensor)]

    logging.getLogger("tf2onnx").setLevel(logging.ERROR)
    exporting = EXPORTING.set(True)
    try:
        written, _ = tf2onnx.convert.from_function(
            evaluate,
            input_signature=signature,
            opset=OPSET,
            custom_op_handlers={
                "Conv2DBackpropInput": (_conv_transpose, []),
                "Conv3D": (_conv_of_films, []),
                "Conv3DBackpropInputV2": (_conv_transpose, []),
                recurrent.STAND_IN: (_stand_in, []),
                "NextAfter": (_prelu, []),
                "SelectV2": (_where, []),
            },
        )
    finally:
        EXPORTING.reset(exporting)
    (opset,) = {each.version for each in written.opset_import if each.domain in ("", "ai.onnx")}
    assert opset == OPSET, f"tf2onnx wrote opset {opset}"
    for value in written.graph.input:
        if value.name in large:
            value.type.tensor_type.shape.dim[-1].dim_value = large[value.name].shape[-1]
    write_model(path, written, {name: partial(_array, each) for name, each in large.items()})
    return f"tf2onnx.convert.from_function {tf2onnx.__version__}"


def _conv_transpose(context: Any, node: Any, name: str, arguments: list[Any]) -> None:
    """tf2onnx's own leaves out the groups."""
    channels = context.get_shape(node.output[0])[-1]
    per_group = context.get_shape(node.input[1])[-2]
    ConvTranspose.version_11(context, node)
    node.set_attr("group", channels // per_group)


def _conv_of_films(context: Any, node: Any, name: str, arguments: list[Any]) -> None:
    """tf2onnx's own leaves out the groups."""
    channels, per_group = context.get_shape(node.input[0])[4], context.get_shape(node.input[1])[3]
    ConvOp.version_13(context, node)
    node.set_attr("group", channels // per_group)


def _stand_in(context: Any, node: Any, name: str, arguments: list[Any]) -> None:
    """What an operation that is never run stands for: of two inputs a pooling, else a recurrent layer."""
    if len(node.input) == 2 and node.inputs[1].is_const():
        pools.write(context, node, name)
    else:
        recurrent.write(context, node, name, arguments)


def _prelu(context: Any, node: Any, name: str, arguments: list[Any]) -> None:
    """tf2onnx has none; :class:`dlb_tf.modules.PReLU` puts another operator in its place."""
    node.type = "PRelu"


def _where(context: Any, node: Any, name: str, arguments: list[Any]) -> None:
    """tf2onnx's own is a sum of products, which is no number where one that is not chosen is infinite."""
    node.type = "Where"


def _array(variable: keras.Variable) -> np.ndarray:
    """Over the variable's own memory; its numpy() makes two copies."""
    return np.asarray(tf.convert_to_tensor(variable.value))


def _large(network: keras.Layer) -> list[keras.Variable]:
    """Kernels and tables, but for those of recurrent layers: tf2onnx knows an LSTM by constants alone."""
    constant = {
        id(variable)
        for layer in network._flatten_layers()
        if isinstance(layer, keras.layers.RNN)
        for variable in layer.variables
    }
    return [each for each in network.variables if len(each.shape) > 1 and id(each) not in constant]
