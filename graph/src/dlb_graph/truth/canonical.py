"""The canonical ONNX graph of a model description: what every framework must have built.

The graph has opset 17 and IR version 8, which ONNX 1.13 and later read.

- The batch axis is symbolic, ``batch``.
- Each layer's value, and the node that computes it, has the layer's name.
- Initialisers are the parameters, with the names and shapes of
  :func:`dlb_graph.workload.shapes.parameter_shapes`. If an operator needs another form, layout operators
  derive it, so that each parameter is one initialiser.
- Names that only connect these start with ``layer/``, which no layer's name can.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from dlb_graph.errors import WorkloadError
from dlb_graph.layers import Elementwise, Shape
from dlb_graph.layers.numbers import Array
from dlb_graph.losses import LABELS, LOSS, Loss, SoftmaxCrossEntropy
from dlb_graph.truth.held import hold
from dlb_graph.truth.layer_nodes import Graph, add_layer
from dlb_graph.workload.model import Model
from dlb_graph.workload.shapes import infer_shapes, parameter_shapes

__all__ = [
    "INPUT_PREFIX",
    "IR_VERSION",
    "LABELS",
    "LOSS",
    "OPSET",
    "canonical_graph",
    "layers_graph",
    "loss_graph",
    "rounding_offsets",
    "with_weights",
]

OPSET = 17
IR_VERSION = 8
#: Prefix of a layer's input that the caller supplies in place of another layer's value.
INPUT_PREFIX = "given/"

Precision = Literal["float32", "float64"]
Outputs = Literal["logits", "layers"]
Masks = Mapping[str, Array]
_NO_MASKS: Masks = {}
_DEFAULT_LOSS = SoftmaxCrossEntropy()
_ELEMENT_TYPES = {"float32": TensorProto.FLOAT, "float64": TensorProto.DOUBLE}


def canonical_graph(
    model: Model,
    weights: Mapping[str, Array] | None,
    *,
    dtype: Precision = "float32",
    outputs: Outputs = "logits",
    training: bool = False,
    masks: Masks = _NO_MASKS,
    held: bool = False,
) -> onnx.ModelProto:
    """The canonical graph of a model with these weights.

    Args:
        model: the description.
        weights: every parameter and state by ``layer.parameter``, in canonical layout. With None,
            the weights become inputs of these names, after the other inputs.
        dtype: of the real input, the weights and the results.
        outputs: ``logits`` for the last layer's value, ``layers`` for every layer's, in order.
        training: batch normalisation uses the batch's statistics. The updated running statistics
            are outputs ``layer.mean/running`` and ``layer.variance/running``, after the others.
        masks: by layer name, what dropout multiplies by in training before it scales: zeros and
            ones [batch, *shape], which fix the graph's batch size. A dropout without a mask has
            rate 0 in training, since frameworks' random draws cannot be matched.
        held: the weights lie beside the graph (:mod:`dlb_graph.truth.held`); the caller keeps them.

    Returns:
        A model from ``model.input.name`` [batch, ...] (``dtype``, or int64 for an index) to the
        requested outputs.

    Raises:
        WorkloadError: the model contradicts itself, or the weights do not belong to it.
    """
    build = _Builder(model, weights, dtype, training, masks, held=held)
    return build.finish([build.value(model.input.name)], build.values(outputs))


def layers_graph(
    model: Model,
    weights: Mapping[str, Array] | None,
    *,
    dtype: Precision = "float64",
    training: bool = False,
    masks: Masks = _NO_MASKS,
) -> onnx.ModelProto:
    """All layers of the canonical graph in isolation: no layer reads what another computes.

    An input has :data:`INPUT_PREFIX` before the name of the layer, or the model's input, that it
    replaces. The outputs are those of :func:`canonical_graph` with ``outputs="layers"``.

    Raises:
        WorkloadError: as :func:`canonical_graph`.
    """
    build = _Builder(model, weights, dtype, training, masks)
    sources = {source for node in model.wired() for source in node.inputs}
    for node in build.graph.nodes:
        layer = node.output[0].split("/")[0]
        for index, name in enumerate(node.input):
            if name in sources and name != layer:
                node.input[index] = INPUT_PREFIX + name
    inputs = [build.value(name) for name in build.shapes if name in sources]
    for value in inputs:
        value.name = INPUT_PREFIX + value.name
    return build.finish(inputs, build.values("layers"))


def loss_graph(
    model: Model,
    weights: Mapping[str, Array] | None,
    *,
    dtype: Precision = "float64",
    outputs: Outputs = "logits",
    training: bool = False,
    masks: Masks = _NO_MASKS,
    offsets: Masks = _NO_MASKS,
    loss: Loss = _DEFAULT_LOSS,
) -> onnx.ModelProto:
    """The canonical graph followed by the loss.

    The graph also reads ``labels``. For a cross-entropy of classes they are int64 [batch] for logits [batch,
    classes], [batch, T] for logits [batch, T, classes], and [batch, H, W] for logits [batch, classes, H, W];
    else they are targets of the last value's shape, in the graph's ``dtype``. The first output is ``loss``, a
    scalar. Those of :func:`canonical_graph` follow.

    Args:
        offsets: by layer name, what a straight-through rounding adds instead of rounding, [batch, *shape]:
            those of :func:`rounding_offsets` make the derivative of the loss the straight-through gradient.

    Raises:
        WorkloadError: as :func:`canonical_graph`; the loss does not accept the logits' shape; or a
            layer or the input is called ``labels`` or ``loss``.
    """
    build = _Builder(model, weights, dtype, training, masks, offsets=offsets)
    reserved = {LABELS, LOSS} & set(build.shapes)
    if reserved:
        raise WorkloadError(
            f"'{sorted(reserved)[0]}' is a reserved name of the loss; rename the layer"
        )
    last = model.nodes[-1].name
    shape = build.shapes[last]
    if fault := loss.fault(shape):
        raise WorkloadError(f"layer '{last}': {fault}")
    loss.add_nodes(build.graph, last, shape)
    kind = TensorProto.INT64 if loss.reads_integers else build.element
    labels = _declared(LABELS, loss.target_shape(shape), kind)
    loss_output = helper.make_tensor_value_info(LOSS, build.element, [])
    inputs = [build.value(model.input.name), labels]
    return build.finish(inputs, [loss_output, *build.values(outputs)])


def rounding_offsets(model: Model, values: Callable[[], Mapping[str, Array]]) -> Masks:
    """How far each straight-through rounding is from what it reads, by layer name.

    Args:
        values: gives every layer's value and the model's input, by name; called if there is such a rounding.
    """
    roundings = [
        node
        for node in model.wired()
        if isinstance(node.layer, Elementwise) and node.layer.function == "straight_through_round"
    ]
    if not roundings:
        return {}
    found = values()
    return {node.name: found[node.name] - found[node.inputs[0]] for node in roundings}


def with_weights(graph: onnx.ModelProto, weights: Mapping[str, Array]) -> onnx.ModelProto:
    """A copy of a canonical graph with other weights, by name, in its own dtype."""
    model = onnx.ModelProto()
    model.CopyFrom(graph)
    for tensor in model.graph.initializer:
        if tensor.name in weights:
            kind = helper.tensor_dtype_to_np_dtype(tensor.data_type)
            array = np.asarray(weights[tensor.name], kind)
            tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))
    return model


class _Builder:
    """A canonical graph under construction.

    Attributes:
        graph: its nodes, at first those of all layers.
        shapes: of the model's input and of each layer's value.
        element: the type of its real numbers.
    """

    def __init__(
        self,
        model: Model,
        weights: Mapping[str, Array] | None,
        dtype: Precision,
        training: bool,
        masks: Masks,
        *,
        offsets: Masks = _NO_MASKS,
        held: bool = False,
    ) -> None:
        if dtype not in _ELEMENT_TYPES:
            raise WorkloadError(f"dtype = '{dtype}' must be one of {', '.join(_ELEMENT_TYPES)}")
        self.element = _ELEMENT_TYPES[dtype]
        self.shapes, self._parameters = infer_shapes(model), parameter_shapes(model)
        self.graph = Graph(np.dtype(dtype), training, masks, offsets)
        self._model, self._weights, self._held = model, weights, held
        if weights is not None:
            _check_weights(self._parameters, weights)
            for name in () if held else self._parameters:
                self.graph.initializer(name, np.asarray(weights[name]))
        for node in model.wired():
            add_layer(self.graph, node, [self.shapes[name] for name in node.inputs])

    def value(self, name: str) -> onnx.ValueInfoProto:
        """The declaration of the model's input, or of a layer's value."""
        read = self._model.input
        index = name == read.name and read.kind == "index"
        return _declared(name, self.shapes[name], TensorProto.INT64 if index else self.element)

    def values(self, outputs: Outputs) -> list[onnx.ValueInfoProto]:
        """The declarations of the last layer's value, or of every layer's."""
        nodes = self._model.nodes if outputs == "layers" else self._model.nodes[-1:]
        return [self.value(node.name) for node in nodes]

    def finish(
        self, inputs: list[onnx.ValueInfoProto], outputs: list[onnx.ValueInfoProto]
    ) -> onnx.ModelProto:
        """The model; after these follow weights as inputs, if it has none, and running statistics."""
        weights, running = (
            [
                helper.make_tensor_value_info(name, self.element, list(shape))
                for name, shape in shapes.items()
            ]
            for shapes in (self._parameters if self._weights is None else {}, self.graph.running)
        )
        model = helper.make_model(
            helper.make_graph(
                self.graph.nodes, "canonical", [*inputs, *weights], [*outputs, *running]
            ),
            producer_name="dlb",
            ir_version=IR_VERSION,
            opset_imports=[helper.make_opsetid("", OPSET)],
        )
        tensors = model.graph.initializer
        for name in list(self.graph.initializers):  # one at a time: a large network has gigabytes
            tensors.append(numpy_helper.from_array(self.graph.initializers.pop(name), name))
        if self._held and self._weights is not None:
            tensors.extend(
                hold(name, self._weights[name], self.element) for name in self._parameters
            )
        return model


def _declared(name: str, shape: Shape, element: int) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, element, ["batch", *shape])


def _check_weights(parameters: Mapping[str, Shape], weights: Mapping[str, Array]) -> None:
    missing, unknown = set(parameters) - set(weights), set(weights) - set(parameters)
    if missing or unknown:
        raise WorkloadError(
            f"the weights do not belong to this model: missing {sorted(missing) or 'none'}, "
            f"unknown {sorted(unknown) or 'none'}"
        )
    for name, shape in parameters.items():
        if tuple(np.shape(weights[name])) != shape:
            raise WorkloadError(
                f"weight '{name}' has shape {list(np.shape(weights[name]))}, "
                f"but the model expects {list(shape)}"
            )
