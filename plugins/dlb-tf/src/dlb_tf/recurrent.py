"""Layers over the steps of a sequence [N, T, features], which an exporter gets as one operator.

tf2onnx knows the loop of an LSTM, and writes that of any other layer as it is.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf
from keras import layers as K

from dlb_tf.modules import EXPORTING
from dlb_worker.errors import UnsupportedError

#: The operation that stands for a recurrent operator. It is never run.
STAND_IN = "PyFuncStateless"
#: Activations of a layer without gates.
ACTIVATIONS = ("tanh", "relu")


class GRU(K.GRU):
    def call(
        self, sequences: Any, initial_state: Any = None, mask: Any = None, training: bool = False
    ) -> Any:
        if EXPORTING.get():
            return stand_in(sequences, self.cell, self.reset_after)
        return super().call(sequences, initial_state, mask, training)


class SimpleRNN(K.SimpleRNN):
    def call(
        self, sequences: Any, initial_state: Any = None, mask: Any = None, training: bool = False
    ) -> Any:
        if EXPORTING.get():
            return stand_in(sequences, self.cell, ACTIVATIONS.index(self.activation.__name__))
        return super().call(sequences, initial_state, mask, training)


def stand_in(sequences: tf.Tensor, cell: Any, option: int) -> tf.Tensor:
    """An operation that reads what ONNX's operator does, and a number for :func:`write`."""
    steps = tf.transpose(sequences, (1, 0, 2))
    weights = [tf.transpose(weight)[None] for weight in (cell.kernel, cell.recurrent_kernel)]
    bias = tf.reshape(tf.convert_to_tensor(cell.bias), (1, -1))
    if bias.shape[1] == weights[0].shape[1]:
        bias = tf.concat([bias, tf.zeros_like(bias)], 1)
    read = [steps, *weights, bias, tf.constant(int(option))]
    every = tf.numpy_function(_never, read, steps.dtype, stateful=False)
    every = tf.ensure_shape(every, (sequences.shape[1], 1, None, cell.units))
    return tf.transpose(tf.squeeze(every, 1), (1, 0, 2))


def _never(*arrays: Any) -> Any:
    raise NotImplementedError("an operation that stands for another one")


def write(context: Any, node: Any, name: str, arguments: list[Any]) -> None:
    """The operator that an operation stands for; a handler of tf2onnx."""
    *read, option = node.input
    if len(read) != 4 or not node.inputs[4].is_const():
        raise UnsupportedError("tf2onnx writes no function of Python, such as tf.numpy_function")
    number = context.get_tensor_value(option)
    rows, hidden = context.get_shape(read[2])[1:]
    operator, attributes = "GRU", {"hidden_size": hidden, "linear_before_reset": number}
    if rows == hidden:  # without gates
        activations = [ACTIVATIONS[number].title()]
        operator, attributes = "RNN", {"hidden_size": hidden, "activations": activations}
    shapes, dtypes = [context.get_shape(node.output[0])], [context.get_dtype(read[0])]
    context.remove_node(node.name)
    context.make_node(
        operator, read, attributes, outputs=node.output, name=name, shapes=shapes, dtypes=dtypes
    )
