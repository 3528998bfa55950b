"""The canonical ONNX graph of a model description: what every framework must have built.

The graph is of opset 17 and IR version 8, so that ONNX 1.13 and everything later reads it.

- The batch axis is symbolic, ``batch``.
- Every layer's value, and the node that computes it, is called by the layer's name.
- Initialisers are the parameters, called and shaped as in
  :func:`dlb.workload.shapes.parameter_shapes`. An operator that wants another form of them gets it
  from explicit layout operators, so that to move a parameter one moves exactly one initialiser.
- Everything that only connects those is called ``layer/...``, which no layer can be called.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper, numpy_helper

from dlb.errors import WorkloadError
from dlb.graph.layer_nodes import GraphBuilder, add_layer
from dlb.workload.model import Model
from dlb.workload.shapes import Shape, infer_shapes, parameter_shapes
from dlb.workload.training import Loss, SoftmaxCrossEntropy

__all__ = [
    "INPUT_PREFIX",
    "IR_VERSION",
    "LABELS",
    "LOSS",
    "OPSET",
    "canonical_graph",
    "layers_graph",
    "loss_graph",
]

OPSET = 17
IR_VERSION = 8
LABELS = "labels"
LOSS = "loss"
#: Before the name of a value that is given to a layer, not computed by another.
INPUT_PREFIX = "given/"

Precision = Literal["float32", "float64"]
Outputs = Literal["logits", "layers"]
Masks = Mapping[str, npt.NDArray[Any]]
_NO_MASKS: Masks = {}
_PLAIN = SoftmaxCrossEntropy()
_ELEMENT_TYPES = {"float32": TensorProto.FLOAT, "float64": TensorProto.DOUBLE}


def canonical_graph(
    model: Model,
    weights: Mapping[str, npt.NDArray[Any]] | None,
    *,
    dtype: Precision = "float32",
    outputs: Outputs = "logits",
    training: bool = False,
    masks: Masks = _NO_MASKS,
) -> onnx.ModelProto:
    """The canonical graph of a model with these weights.

    Args:
        model: the description.
        weights: every parameter and state by ``layer.parameter``, in canonical layout; None for a
            graph that holds none and has them as inputs, called so, after the others.
        dtype: of the real input, the weights and the results.
        outputs: ``logits`` for the last layer's value, ``layers`` for every layer's, in order.
        training: batch normalisation takes the batch's statistics, and the running ones that
            follow are outputs ``layer.mean/running`` and ``layer.variance/running``, after the
            others.
        masks: what dropout multiplies by in training before it scales, [batch, *shape] of zeros
            and ones by layer name; the graph is then of that batch size. A dropout without one is
            at rate 0 in training, since what frameworks draw cannot be matched.

    Returns:
        A model from ``model.input.name`` [batch, ...] (``dtype``, or int64 for an index) to the
        outputs asked for.

    Raises:
        WorkloadError: the model does not hold together, or the weights are not its own.
    """
    pieces, shapes, element = _build(model, weights, dtype, training, masks)
    names = [node.name for node in model.nodes] if outputs == "layers" else [model.nodes[-1].name]
    values = [_value(name, shapes[name], element) for name in names]
    given = [_input(model, element), *_asked(model, weights, element)]
    return _model(pieces, given, values + _running(pieces, element))


def layers_graph(
    model: Model,
    weights: Mapping[str, npt.NDArray[Any]] | None,
    *,
    dtype: Precision = "float64",
    training: bool = False,
    masks: Masks = _NO_MASKS,
) -> onnx.ModelProto:
    """Every layer of the canonical graph by itself, none reading what another computes.

    Its inputs are called :data:`GIVEN` and the name of the layer, or of the model's input, whose
    value is to be given; its outputs are those of :func:`canonical_graph` with every layer's.

    Raises:
        WorkloadError: as :func:`canonical_graph`.
    """
    pieces, shapes, element = _build(model, weights, dtype, training, masks)
    read = {source for node in model.wired() for source in node.inputs}
    for node in pieces.nodes:
        layer = node.output[0].split("/")[0]
        for place, name in enumerate(node.input):
            if name in read and name != layer:
                node.input[place] = INPUT_PREFIX + name
    given = [
        _value(name, shapes[name], element) if name != model.input.name else _input(model, element)
        for name in shapes
        if name in read
    ]
    for value in given:
        value.name = INPUT_PREFIX + value.name
    outputs = [_value(node.name, shapes[node.name], element) for node in model.nodes]
    given += _asked(model, weights, element)
    return _model(pieces, given, outputs + _running(pieces, element))


def loss_graph(
    model: Model,
    weights: Mapping[str, npt.NDArray[Any]] | None,
    *,
    dtype: Precision = "float64",
    outputs: Outputs = "logits",
    training: bool = False,
    masks: Masks = _NO_MASKS,
    loss: Loss = _PLAIN,
) -> onnx.ModelProto:
    """The canonical graph followed by the loss, ONNX SoftmaxCrossEntropyLoss averaged, smoothed
    where ``loss`` is.

    Beside the model's input it reads ``labels``, int64 [batch] for logits [batch, classes] and
    [batch, T] for logits [batch, T, classes]. Its first output is ``loss``, a scalar; those of
    :func:`canonical_graph` follow.

    Raises:
        WorkloadError: as :func:`canonical_graph`; the logits have axes that a loss cannot take; or
            a layer or the input is called ``labels`` or ``loss``.
    """
    pieces, shapes, element = _build(model, weights, dtype, training, masks)
    taken = {LABELS, LOSS} & set(shapes)
    if taken:
        raise WorkloadError(
            f"'{sorted(taken)[0]}' is what the loss calls its own; give the layer another name"
        )
    last = model.nodes[-1].name
    if len(shapes[last]) not in (1, 2):
        raise WorkloadError(
            f"layer '{last}': a loss needs logits [N, classes] or [N, T, classes], not "
            f"{['N', *shapes[last]]}; put a flatten before the last linear layer"
        )
    scores = last
    if len(shapes[last]) == 2:
        scores = pieces.node("Transpose", [last], f"{LOSS}/classes_second", perm=[0, 2, 1])
    _add_loss(pieces, scores, loss.label_smoothing)
    labels = helper.make_tensor_value_info(LABELS, TensorProto.INT64, ["batch", *shapes[last][:-1]])
    lost = helper.make_tensor_value_info(LOSS, element, [])
    names = [node.name for node in model.nodes] if outputs == "layers" else [last]
    values = [_value(name, shapes[name], element) for name in names]
    given = [_input(model, element), labels, *_asked(model, weights, element)]
    return _model(pieces, given, [lost, *values, *_running(pieces, element)])


def _add_loss(pieces: GraphBuilder, scores: str, smoothing: float) -> None:
    operator = partial(
        pieces.node, "SoftmaxCrossEntropyLoss", [scores, LABELS], reduction="mean", name=LOSS
    )
    if not smoothing:
        operator(LOSS)
        return
    hit, logarithm = f"{LOSS}/hit", f"{LOSS}/log_softmax"
    operator([hit, logarithm])
    mean = pieces.node("ReduceMean", [logarithm], f"{LOSS}/mean", keepdims=0)
    shares = [
        pieces.node(
            "Mul", [value, pieces.initializer(f"{value}/share", np.array(share))], f"{value}/part"
        )
        for value, share in ((hit, 1 - smoothing), (mean, smoothing))
    ]
    pieces.node("Sub", shares, LOSS, name=f"{LOSS}/smoothed")


def _build(
    model: Model,
    weights: Mapping[str, npt.NDArray[Any]] | None,
    dtype: Precision,
    training: bool,
    masks: Masks,
) -> tuple[GraphBuilder, dict[str, Shape], int]:
    if dtype not in _ELEMENT_TYPES:
        raise WorkloadError(f"dtype = '{dtype}' must be one of {', '.join(_ELEMENT_TYPES)}")
    shapes = infer_shapes(model)
    pieces = GraphBuilder(np.dtype(dtype), training, masks)
    if weights is not None:
        parameters = parameter_shapes(model)
        _check_weights(parameters, weights)
        for name in parameters:
            pieces.initializer(name, np.asarray(weights[name]))
    for node in model.wired():
        add_layer(pieces, node, [shapes[name] for name in node.inputs])
    return pieces, shapes, _ELEMENT_TYPES[dtype]


def _check_weights(
    parameters: Mapping[str, Shape], weights: Mapping[str, npt.NDArray[Any]]
) -> None:
    missing, unknown = set(parameters) - set(weights), set(weights) - set(parameters)
    if missing or unknown:
        raise WorkloadError(
            f"the weights are not this model's: missing {sorted(missing) or 'none'}, "
            f"unknown {sorted(unknown) or 'none'}"
        )
    for name, shape in parameters.items():
        if tuple(np.shape(weights[name])) != shape:
            raise WorkloadError(
                f"weight '{name}' has shape {list(np.shape(weights[name]))}, "
                f"and the model's is {list(shape)}"
            )


def _input(model: Model, element: int) -> onnx.ValueInfoProto:
    kind = TensorProto.INT64 if model.input.kind == "index" else element
    return _value(model.input.name, model.input.shape, kind)


def _asked(
    model: Model, weights: Mapping[str, npt.NDArray[Any]] | None, element: int
) -> list[onnx.ValueInfoProto]:
    """The weights that a graph which holds none is given."""
    if weights is not None:
        return []
    return [
        helper.make_tensor_value_info(name, element, list(shape))
        for name, shape in parameter_shapes(model).items()
    ]


def _value(name: str, shape: Shape, element: int) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, element, ["batch", *shape])


def _running(pieces: GraphBuilder, element: int) -> list[onnx.ValueInfoProto]:
    return [
        helper.make_tensor_value_info(name, element, list(shape))
        for name, shape in pieces.running.items()
    ]


def _model(
    pieces: GraphBuilder, inputs: list[onnx.ValueInfoProto], outputs: list[onnx.ValueInfoProto]
) -> onnx.ModelProto:
    model = helper.make_model(
        helper.make_graph(pieces.nodes, "canonical", inputs, outputs),
        producer_name="dlb",
        ir_version=IR_VERSION,
        opset_imports=[helper.make_opsetid("", OPSET)],
    )
    for name in list(pieces.initializers):  # one at a time: of a large network they are gigabytes
        array = pieces.initializers.pop(name)
        model.graph.initializer.append(numpy_helper.from_array(array, name))
    return model
