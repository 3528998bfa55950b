"""The canonical ONNX graph of a model description: what every framework must have built.

The graph has opset 17 and IR version 8, which ONNX 1.13 and later read.

- The batch axis is symbolic, ``batch``.
- Each layer's value, and the node that computes it, has the layer's name.
- Initialisers are the parameters, with the names and shapes of
  :func:`dlb.workload.shapes.parameter_shapes`. If an operator needs another form, layout operators
  derive it, so that each parameter is one initialiser.
- Names that only connect these start with ``layer/``, which no layer's name can.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper, numpy_helper

from dlb.errors import WorkloadError
from dlb.graph.held import hold
from dlb.graph.layer_nodes import Graph, add_layer
from dlb.graph.losses import LABELS, LOSS, formula
from dlb.workload.losses import (
    CTC,
    Loss,
    SoftmaxCrossEntropy,
    classes_and_places,
    loss_fault,
    target_kind,
)
from dlb.workload.model import Model
from dlb.workload.primitives import Elementwise
from dlb.workload.shapes import Shape, infer_shapes, parameter_shapes

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
Masks = Mapping[str, npt.NDArray[Any]]
_NO_MASKS: Masks = {}
_DEFAULT_LOSS = SoftmaxCrossEntropy()
_ELEMENT_TYPES = {"float32": TensorProto.FLOAT, "float64": TensorProto.DOUBLE}


def canonical_graph(
    model: Model,
    weights: Mapping[str, npt.NDArray[Any]] | None,
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
        held: the weights lie beside the graph (:mod:`dlb.graph.held`); the caller keeps them.

    Returns:
        A model from ``model.input.name`` [batch, ...] (``dtype``, or int64 for an index) to the
        requested outputs.

    Raises:
        WorkloadError: the model contradicts itself, or the weights do not belong to it.
    """
    graph, shapes, element_type = _build_graph(
        model, None if held else weights, dtype, training, masks
    )
    names = [node.name for node in model.nodes] if outputs == "layers" else [model.nodes[-1].name]
    values = [_value_info(name, shapes[name], element_type) for name in names]
    inputs = [_input_info(model, element_type), *_weight_inputs(model, weights, element_type)]
    made = _model(graph, inputs, values + _running_outputs(graph, element_type))
    if held and weights is not None:
        parameters = parameter_shapes(model)
        _check_weights(parameters, weights)
        made.graph.initializer.extend(
            hold(name, weights[name], element_type) for name in parameters
        )
    return made


def layers_graph(
    model: Model,
    weights: Mapping[str, npt.NDArray[Any]] | None,
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
    graph, shapes, element_type = _build_graph(model, weights, dtype, training, masks)
    sources = {source for node in model.wired() for source in node.inputs}
    for node in graph.nodes:
        layer = node.output[0].split("/")[0]
        for index, name in enumerate(node.input):
            if name in sources and name != layer:
                node.input[index] = INPUT_PREFIX + name
    inputs = []
    for name in shapes:
        if name in sources:
            value = _value_info(name, shapes[name], element_type)
            if name == model.input.name:
                value = _input_info(model, element_type)
            value.name = INPUT_PREFIX + name
            inputs.append(value)
    outputs = [_value_info(node.name, shapes[node.name], element_type) for node in model.nodes]
    inputs += _weight_inputs(model, weights, element_type)
    return _model(graph, inputs, outputs + _running_outputs(graph, element_type))


def loss_graph(
    model: Model,
    weights: Mapping[str, npt.NDArray[Any]] | None,
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
    graph, shapes, element_type = _build_graph(model, weights, dtype, training, masks, offsets)
    reserved = {LABELS, LOSS} & set(shapes)
    if reserved:
        raise WorkloadError(
            f"'{sorted(reserved)[0]}' is a reserved name of the loss; rename the layer"
        )
    last = model.nodes[-1].name
    if fault := loss_fault(loss, shapes[last]):
        raise WorkloadError(f"layer '{last}': {fault}")
    formula(loss).add_nodes(graph, last, shapes[last])
    labels = _value_info(LABELS, shapes[last], element_type)
    if isinstance(loss, CTC):
        labels = _value_info(LABELS, (loss.most_labels,), TensorProto.INT64)
    if target_kind(loss) == "class":
        labels = _value_info(LABELS, classes_and_places(shapes[last])[1], TensorProto.INT64)
    loss_output = helper.make_tensor_value_info(LOSS, element_type, [])
    names = [node.name for node in model.nodes] if outputs == "layers" else [last]
    values = [_value_info(name, shapes[name], element_type) for name in names]
    inputs = [
        _input_info(model, element_type),
        labels,
        *_weight_inputs(model, weights, element_type),
    ]
    return _model(graph, inputs, [loss_output, *values, *_running_outputs(graph, element_type)])


def rounding_offsets(model: Model, values: Callable[[], Mapping[str, npt.NDArray[Any]]]) -> Masks:
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


def with_weights(
    graph: onnx.ModelProto, weights: Mapping[str, npt.NDArray[Any]]
) -> onnx.ModelProto:
    """A copy of a canonical graph with other weights, by name, in its own dtype."""
    model = onnx.ModelProto()
    model.CopyFrom(graph)
    for tensor in model.graph.initializer:
        if tensor.name in weights:
            kind = helper.tensor_dtype_to_np_dtype(tensor.data_type)
            array = np.asarray(weights[tensor.name], kind)
            tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))
    return model


def _build_graph(
    model: Model,
    weights: Mapping[str, npt.NDArray[Any]] | None,
    dtype: Precision,
    training: bool,
    masks: Masks,
    offsets: Masks = _NO_MASKS,
) -> tuple[Graph, dict[str, Shape], int]:
    if dtype not in _ELEMENT_TYPES:
        raise WorkloadError(f"dtype = '{dtype}' must be one of {', '.join(_ELEMENT_TYPES)}")
    shapes = infer_shapes(model)
    graph = Graph(np.dtype(dtype), training, masks, offsets)
    if weights is not None:
        parameters = parameter_shapes(model)
        _check_weights(parameters, weights)
        for name in parameters:
            graph.initializer(name, np.asarray(weights[name]))
    for node in model.wired():
        add_layer(graph, node, [shapes[name] for name in node.inputs])
    return graph, shapes, _ELEMENT_TYPES[dtype]


def _check_weights(
    parameters: Mapping[str, Shape], weights: Mapping[str, npt.NDArray[Any]]
) -> None:
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


def _input_info(model: Model, element_type: int) -> onnx.ValueInfoProto:
    kind = TensorProto.INT64 if model.input.kind == "index" else element_type
    return _value_info(model.input.name, model.input.shape, kind)


def _weight_inputs(
    model: Model, weights: Mapping[str, npt.NDArray[Any]] | None, element_type: int
) -> list[onnx.ValueInfoProto]:
    """The weights as inputs, for a graph without weights."""
    if weights is not None:
        return []
    return [
        helper.make_tensor_value_info(name, element_type, list(shape))
        for name, shape in parameter_shapes(model).items()
    ]


def _value_info(name: str, shape: Shape, element_type: int) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, element_type, ["batch", *shape])


def _running_outputs(graph: Graph, element_type: int) -> list[onnx.ValueInfoProto]:
    return [
        helper.make_tensor_value_info(name, element_type, list(shape))
        for name, shape in graph.running.items()
    ]


def _model(
    graph: Graph, inputs: list[onnx.ValueInfoProto], outputs: list[onnx.ValueInfoProto]
) -> onnx.ModelProto:
    model = helper.make_model(
        helper.make_graph(graph.nodes, "canonical", inputs, outputs),
        producer_name="dlb",
        ir_version=IR_VERSION,
        opset_imports=[helper.make_opsetid("", OPSET)],
    )
    for name in list(graph.initializers):  # one at a time: a large network has gigabytes
        array = graph.initializers.pop(name)
        model.graph.initializer.append(numpy_helper.from_array(array, name))
    return model
