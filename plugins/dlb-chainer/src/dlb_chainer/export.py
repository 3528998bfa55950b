"""ONNX by the exporter that comes with Chainer."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import chainer
import numpy as np
import onnx
import onnx_chainer
from chainer.backends import cuda
from onnx_chainer.functions.converter import FunctionConverterParams
from onnx_chainer.onnx_helper import GraphBuilder, make_node
from onnx_chainer.replace_func import fake_as_funcnode

from dlb.contract import TrainableModel
from dlb.graph.writing import write_model
from dlb_chainer import layers
from dlb_chainer.model import ChainerModel

#: The newest that onnx_chainer writes, and the IR version that came with it.
OPSET, IR_VERSION = 11, 6

#: The module, whose name is also that of the function in it.
exporter = import_module("onnx_chainer.export")

Nodes = tuple[onnx.NodeProto, ...]


def export(model: TrainableModel, path: Path) -> str:
    """Write the network in evaluation mode, weights inside, the batch axis fixed."""
    assert isinstance(model, ChainerModel)
    described = model.workload.model.input
    kind = model.dtype if described.kind == "real" else np.int64
    sample = model.device.send(np.zeros((model.batch_size, *described.shape), kind))
    with (
        warnings.catch_warnings(),
        _sequences_as_one(),
        _without_values(),
        _Kept(),
        _aside() as weights,
    ):
        # It calls converters from outside experimental, and reads what onnx 1.17 takes away.
        warnings.simplefilter("ignore", FutureWarning)
        warnings.simplefilter("ignore", DeprecationWarning)
        exported = onnx_chainer.export(
            model.network,
            [sample],
            export_params=False,
            opset_version=OPSET,
            input_names=["input"],
            output_names=["logits"],
            external_converters=CONVERTERS,
            no_testcase=True,
        )
    # It gives the IR version of whichever onnx is installed.
    exported.ir_version = IR_VERSION
    write_model(path, exported, weights)
    return f"onnx_chainer.export(opset_version={OPSET}) {chainer.__version__}"


class _Kept(chainer.LinkHook):
    """What links return stays until the export has ended.

    The exporter names a value after its Variable, or after its node once the Variable is gone: one
    that Python's collector frees between writer and reader would have two names.
    """

    name = "kept"

    def __init__(self) -> None:
        self.returned: list[Any] = []

    def forward_postprocess(self, args: Any) -> None:
        self.returned.append(args.out)


@contextmanager
def _sequences_as_one() -> Iterator[None]:
    """While exporting, an LSTM over a sequence is one function, as F.n_step_gru is to the exporter."""
    own = layers.lstm_sequence
    layers.lstm_sequence = fake_as_funcnode(own, "lstm_sequence", experimental_warning=False)
    try:
        yield
    finally:
        layers.lstm_sequence = own


@contextmanager
def _without_values() -> Iterator[None]:
    """While exporting, what functions return takes the memory of one number.

    The exporter follows a pass and keeps all of it, of which it reads shapes and types alone.
    """
    own = chainer.FunctionNode.apply

    def apply(function: chainer.FunctionNode, inputs: Any) -> Any:
        returned = own(function, inputs)
        for variable in returned:
            one = variable.array[(slice(1),) * variable.ndim].copy()
            variable.array = variable.xp.broadcast_to(one, variable.shape)
        return returned

    chainer.FunctionNode.apply = apply
    try:
        yield
    finally:
        chainer.FunctionNode.apply = own


@contextmanager
def _aside() -> Iterator[dict[str, Callable[[], np.ndarray]]]:
    """While exporting, weights are put aside by name; the exporter is shown how large they are.

    It copies them several times, even those that it then leaves out.
    """
    weights: dict[str, Callable[[], np.ndarray]] = {}

    def put_aside(weight: Any, context: Any) -> onnx.TensorProto:
        array = weight.array if isinstance(weight, chainer.Variable) else weight
        name = context.get_name(weight)
        weights[name] = partial(cuda.to_cpu, array)
        kind = onnx.helper.np_dtype_to_tensor_dtype(array.dtype)
        return onnx.TensorProto(name=name, dims=array.shape, data_type=kind)

    own = exporter.convert_parameter
    exporter.convert_parameter = put_aside
    try:
        yield weights
    finally:
        exporter.convert_parameter = own


def _linear(called: FunctionConverterParams) -> Nodes:
    """The exporter's own makes up a bias of zeros where there is none, which opset 11 can leave out."""
    return (make_node("Gemm", called.input_names, called.output_names, transB=1),)


def _average_pooling(called: FunctionConverterParams) -> Nodes:
    """The exporter's own always counts the padding."""
    return (
        make_node(
            "AveragePool",
            called.input_names,
            called.output_names,
            kernel_shape=called.func.ksize,
            pads=[*called.func.pad, *called.func.pad],
            strides=called.func.stride,
            count_include_pad=int(called.func.pad_value is not None),
        ),
    )


def _erf(called: FunctionConverterParams) -> Nodes:
    """The exporter has none."""
    return (make_node("Erf", called.input_names, called.output_names),)


def _layer_norm(called: FunctionConverterParams) -> Nodes:
    """The exporter has none, and nor has opset 11."""
    x, scale, bias = called.input_names
    epsilon = called.context.add_const(
        np.array(called.func.eps, called.func.inputs[0].dtype), "eps"
    )
    graph = GraphBuilder()
    moved = graph.op("Sub", [x, graph.op("ReduceMean", [x], axes=[1])])
    variance = graph.op("ReduceMean", [graph.op("Mul", [moved, moved])], axes=[1])
    deviation = graph.op("Sqrt", [graph.op("Add", [variance, epsilon])])
    normal = graph.op("Div", [moved, deviation])
    graph.op("Add", [graph.op("Mul", [normal, scale]), bias])
    return graph.nodes(called.output_names)


def _pad(called: FunctionConverterParams) -> Nodes:
    """The exporter's own gives a float32 value to pad float64 with."""
    add = called.context.add_const
    pads = add(np.asarray(called.func.pad_bw, np.int64).T.ravel(), "pads")
    value = called.func.keywords.get("constant_values", (0,))[0]
    padding = add(np.array(value, called.func.inputs[0].dtype), "padding")
    inputs = [*called.input_names, pads, padding]
    return (make_node("Pad", inputs, called.output_names, mode="constant"),)


def _lstm(called: FunctionConverterParams) -> Nodes:
    """The exporter has none: [N, T, features] to [T, N, features], ONNX LSTM, and back."""
    upward, lateral, bias = [
        layers.one_after_another(cuda.to_cpu(each.array)) for each in called.func.arg_vars[1:]
    ]
    both = np.concatenate([bias, np.zeros_like(bias)])
    weights = [
        called.context.add_param(array[None], name)
        for array, name in ((upward, "W"), (lateral, "R"), (both, "B"))
    ]
    graph = GraphBuilder()
    steps = graph.op("Transpose", called.input_names[:1], perm=[1, 0, 2])
    outputs = graph.op("LSTM", [steps, *weights], hidden_size=lateral.shape[1])
    hidden = graph.op("Squeeze", [outputs], axes=[1])
    graph.op("Transpose", [hidden], perm=[1, 0, 2])
    return graph.nodes(called.output_names)


#: What is given to the exporter where its own converter is missing or says something else.
CONVERTERS = {
    "AveragePoolingND": _average_pooling,
    "Erf": _erf,
    "LayerNormalization": _layer_norm,
    "LinearFunction": _linear,
    "Pad": _pad,
    "lstm_sequence": _lstm,
}
