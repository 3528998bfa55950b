"""ONNX by the exporter that comes with Chainer."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest.mock import patch

import chainer
import numpy as np
import onnx
import onnx_chainer
from chainer.backends import cuda
from onnx_chainer.functions.converter import FunctionConverterParams
from onnx_chainer.onnx_helper import GraphBuilder, make_node
from onnx_chainer.replace_func import fake_as_funcnode

from dlb_chainer import functions, modules, recurrent
from dlb_chainer.functions import EXPORTING
from dlb_chainer.model import ChainerModel
from dlb_chainer.registry import one_after_another
from dlb_chainer.user_model import UserLink
from dlb_worker.errors import UnsupportedError
from dlb_worker.onnx_file import write_model
from dlb_worker.user_layers import one_example

#: The newest that onnx_chainer writes, and the IR version that came with it.
OPSET, IR_VERSION = 11, 6

#: The module, whose name is also that of the function in it.
exporter = import_module("onnx_chainer.export")

Nodes = tuple[onnx.NodeProto, ...]
Weights = dict[str, Callable[[], np.ndarray]]


def export(model: ChainerModel | UserLink, path: Path) -> str:
    """Write a network in evaluation mode, weights inside, the batch axis fixed.

    Raises:
        UnsupportedError: there is a function that the exporter does not know.
    """
    if isinstance(model, UserLink):
        network, sample = model.model, model.device.send(one_example(model))
    else:
        described, network = model.workload.model.input, model.network
        dtype = model.type if described.kind == "real" else np.int64
        sample = model.device.send(np.zeros((model.batch_size, *described.shape), dtype))
    weights: Weights = {}
    # What is composed is one function to the exporter, as F.n_step_gru is.
    exporting = EXPORTING.set(True)
    with (
        warnings.catch_warnings(),
        _functions(modules, "dilated_max_pooling", "prelu", "rms_normalization"),
        _functions(recurrent, "lstm_sequence", "gru_sequence", "rnn_sequence"),
        _functions(functions, "choose", "elements", "indices_of_largest"),
        patch.dict(functions.FUNCTIONS, _whole_functions()),
        patch.object(chainer.FunctionNode, "apply", _valueless(chainer.FunctionNode.apply)),
        patch.object(exporter, "convert_parameter", _put_aside(weights)),
        _Kept(),
    ):
        # It calls converters from outside experimental, and reads what onnx 1.17 takes away.
        warnings.simplefilter("ignore", FutureWarning)
        warnings.simplefilter("ignore", DeprecationWarning)
        try:
            exported = onnx_chainer.export(
                network,
                [sample],
                export_params=False,
                opset_version=OPSET,
                input_names=["input"],
                output_names=None if isinstance(model, UserLink) else ["logits"],
                external_converters=CONVERTERS,
                no_testcase=True,
            )
        except ValueError as error:  # it names a function that the exporter cannot write
            raise UnsupportedError(f"onnx_chainer cannot export the model: {error}") from error
        finally:
            EXPORTING.reset(exporting)
    # It writes the IR version of whichever onnx is installed.
    exported.ir_version = IR_VERSION
    write_model(path, exported, weights)
    return f"onnx_chainer.export(opset_version={OPSET}) {chainer.__version__}"


def _functions(module: ModuleType, *names: str) -> Any:
    """Functions of a module, each as one that has a converter of its name."""
    functions = {
        name: fake_as_funcnode(getattr(module, name), name, experimental_warning=False)
        for name in names
    }
    return patch.multiple(module, **functions)


def _whole_functions() -> dict[str, Callable[..., Any]]:
    """Functions of numbers that Chainer composes, or computes outside a graph, by their names."""
    return {
        name: fake_as_funcnode(functions.FUNCTIONS[name], name, experimental_warning=False)
        for name in OPERATORS
    }


class _Kept(chainer.LinkHook):
    """Keeps what links return until the export has ended.

    The exporter names a value after its Variable, or after its node once the Variable is gone. A value
    that Python's collector frees between writer and reader would have two names.
    """

    name = "kept"

    def __init__(self) -> None:
        self.returned: list[Any] = []

    def forward_postprocess(self, args: Any) -> None:
        self.returned.append(args.out)


def _valueless(apply: Callable[..., Any]) -> Callable[..., Any]:
    """A ``FunctionNode.apply`` whose results take the memory of one number.

    The exporter keeps all values of a pass, and reads only their shapes and types.
    """

    def apply_valueless(function: chainer.FunctionNode, inputs: Any) -> Any:
        outputs = apply(function, inputs)
        for variable in outputs:
            number = variable.array[(slice(1),) * variable.ndim].copy()
            variable.array = variable.xp.broadcast_to(number, variable.shape)
        return outputs

    return apply_valueless


def _put_aside(weights: Weights) -> Callable[[Any, Any], onnx.TensorProto]:
    """A ``convert_parameter`` that keeps weights by name, and shows only shapes and types.

    The exporter copies weights several times, even those that it then leaves out.
    """

    def convert_parameter(weight: Any, context: Any) -> onnx.TensorProto:
        array = weight.array if isinstance(weight, chainer.Variable) else weight
        name = context.get_name(weight)
        weights[name] = partial(cuda.to_cpu, array)
        kind = onnx.helper.np_dtype_to_tensor_dtype(array.dtype)
        return onnx.TensorProto(name=name, dims=array.shape, data_type=kind)

    return convert_parameter


def _linear(called: FunctionConverterParams) -> Nodes:
    """The exporter's own adds a bias of zeros where there is none; opset 11 needs none."""
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


def _convolution_nd(called: FunctionConverterParams) -> Nodes:
    """The exporter's own leaves out the dilation."""
    func = called.func
    return (
        make_node(
            "Conv",
            called.input_names,
            called.output_names,
            kernel_shape=func.inputs[1].shape[2:],
            pads=(*func.pad, *func.pad),
            strides=func.stride,
            dilations=func.dilate,
            group=func.groups,
        ),
    )


def _deconvolution(called: FunctionConverterParams) -> Nodes:
    """The exporter's own leaves out the dilation."""
    func, (data, weight) = called.func, called.func.inputs[:2]
    kernel = weight.shape[2:]
    if len(kernel) == 2:
        stride, pads, dilation = (func.sy, func.sx), (func.ph, func.pw), (func.dy, func.dx)
        sizes = (func.outh, func.outw)
    else:
        stride, pads, dilation, sizes = func.stride, func.pad, func.dilate, func.outs
    added = [
        size - ((n - 1) * s + d * (k - 1) + 1 - 2 * p)
        for size, n, s, d, k, p in zip(sizes, data.shape[2:], stride, dilation, kernel, pads)
    ]
    return (
        make_node(
            "ConvTranspose",
            called.input_names,
            called.output_names,
            kernel_shape=kernel,
            strides=stride,
            pads=(*pads, *pads),
            output_padding=added,
            dilations=dilation,
            group=func.groups,
        ),
    )


def _dilated_max_pooling(called: FunctionConverterParams) -> Nodes:
    """The exporter has none of a composed one."""
    return (
        make_node(
            "MaxPool",
            called.input_names,
            called.output_names,
            kernel_shape=called.func.ksize,
            strides=called.func.stride,
            dilations=called.func.dilate,
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


def _group_norm(called: FunctionConverterParams) -> Nodes:
    """The exporter's own adds an epsilon in float32 to a variance of any type."""
    (x, scale, bias), func = called.input_names, called.func
    _, channels, *sizes = func.inputs[0].shape
    dtype, add = func.inputs[0].dtype, called.context.add_const
    split = add(np.array([0, func.groups, -1]), "split")
    shape = add(np.array([0, channels, *sizes]), "shape")
    of_channels = add(np.array([channels, *(1 for _ in sizes)]), "of_channels")
    plain = [
        add(np.ones(func.groups, dtype), "ones"),
        add(np.zeros(func.groups, dtype), "zeros"),
    ]
    graph = GraphBuilder()
    groups = graph.op("Reshape", [x, split])
    normal = graph.op("InstanceNormalization", [groups, *plain], epsilon=func.eps)
    scale, bias = (graph.op("Reshape", [each, of_channels]) for each in (scale, bias))
    scaled = graph.op("Mul", [graph.op("Reshape", [normal, shape]), scale])
    graph.op("Add", [scaled, bias])
    return graph.nodes(called.output_names)


def _rms_norm(called: FunctionConverterParams) -> Nodes:
    """The exporter would write its parts with numbers that are repeated for each row."""
    (x, scale), func = called.input_names, called.func
    epsilon = called.context.add_const(np.array(func.eps, func.inputs[0].dtype), "eps")
    graph = GraphBuilder()
    mean = graph.op("ReduceMean", [graph.op("Mul", [x, x])], axes=[1])
    normal = graph.op("Div", [x, graph.op("Sqrt", [graph.op("Add", [mean, epsilon])])])
    graph.op("Mul", [normal, scale])
    return graph.nodes(called.output_names)


def _pad(called: FunctionConverterParams) -> Nodes:
    """The exporter's own pads float64 with a float32 value."""
    add = called.context.add_const
    pads = add(np.asarray(called.func.pad_bw, np.int64).T.ravel(), "pads")
    value = called.func.keywords.get("constant_values", (0,))[0]
    padding = add(np.array(value, called.func.inputs[0].dtype), "padding")
    inputs = [*called.input_names, pads, padding]
    return (make_node("Pad", inputs, called.output_names, mode="constant"),)


def _prelu(called: FunctionConverterParams) -> Nodes:
    """The exporter has none of a composed one, and ONNX aligns slopes with the last axis."""
    x, slope = called.input_names
    places = len(called.func.inputs[0].shape) - 2
    axes = called.context.add_const(np.array([-1, *(1,) * places]), "axes")
    graph = GraphBuilder()
    graph.op("PRelu", [x, graph.op("Reshape", [slope, axes])])
    return graph.nodes(called.output_names)


def _operator(called: FunctionConverterParams) -> Nodes:
    """A function of numbers for which ONNX has an operator, and the exporter none."""
    operator = OPERATORS[called.func.custom_function_node_name]
    return (make_node(operator, called.input_names, called.output_names),)


def _choose(called: FunctionConverterParams) -> Nodes:
    """The exporter's own takes a condition for a constant."""
    condition, *values = called.input_names
    for place in (1, 2):
        number = getattr(called.func, f"arg{place}", None)
        if number is not None:
            dtype = called.func.inputs[0].dtype
            values.insert(place - 1, called.context.add_const(np.array(number, dtype), "number"))
    graph = GraphBuilder()
    truth = graph.op("Cast", [condition], to=onnx.TensorProto.BOOL)
    graph.op("Where", [truth, *values])
    return graph.nodes(called.output_names)


def _indices_of_largest(called: FunctionConverterParams) -> Nodes:
    """The exporter has none of a function of arrays."""
    k = called.context.add_const(np.array([called.func.k], np.int64), "k")
    graph = GraphBuilder()
    axis, largest = called.func.axis, int(called.func.largest)
    _, indices = graph.op("TopK", [*called.input_names, k], 2, axis=axis, largest=largest)
    dtype = called.func.inputs[0].dtype
    graph.op("Cast", [indices], to=onnx.helper.np_dtype_to_tensor_dtype(dtype))
    return graph.nodes(called.output_names)


def _elements(called: FunctionConverterParams) -> Nodes:
    """The exporter's own takes the indices for constants."""
    value, places = called.input_names
    array, axis = called.func.inputs[0], called.func.axis
    bounds = [
        called.context.add_const(np.array(number, array.dtype), name)
        for name, number in (("first", 0), ("last", array.shape[axis] - 1))
    ]
    graph = GraphBuilder()
    within = graph.op("Clip", [places, *bounds])
    indices = graph.op("Cast", [within], to=onnx.TensorProto.INT64)
    graph.op("GatherElements", [value, indices], axis=axis)
    return graph.nodes(called.output_names)


def _where(called: FunctionConverterParams) -> Nodes:
    """The exporter's own leaves out the condition."""
    kept = called.context.add_param(called.func.condition, "kept")
    return (make_node("Where", [kept, *called.input_names], called.output_names),)


def _lstm(called: FunctionConverterParams) -> Nodes:
    """The exporter has none."""
    upward, lateral, bias = [
        one_after_another(cuda.to_cpu(weight.array)) for weight in called.func.arg_vars[1:]
    ]
    return _recurrent(
        called, "LSTM", [upward, lateral], np.concatenate([bias, np.zeros_like(bias)])
    )


def _gru(called: FunctionConverterParams) -> Nodes:
    """The exporter has none, as of an LSTM."""
    *weights, bias = [cuda.to_cpu(weight.array) for weight in called.func.arg_vars[1:]]
    before = called.func.linear_before_reset
    both = bias.ravel() if before else np.concatenate([bias, np.zeros_like(bias)])
    return _recurrent(called, "GRU", weights, both, linear_before_reset=int(before))


def _rnn(called: FunctionConverterParams) -> Nodes:
    """The exporter has none, as of an LSTM."""
    *weights, bias = [cuda.to_cpu(weight.array) for weight in called.func.arg_vars[1:]]
    both, name = np.concatenate([bias, np.zeros_like(bias)]), called.func.activation.title()
    return _recurrent(called, "RNN", weights, both, activations=[name])


def _recurrent(
    called: FunctionConverterParams,
    operator: str,
    weights: Sequence[np.ndarray],
    bias: np.ndarray,
    **attributes: Any,
) -> Nodes:
    """[N, T, features] to [T, N, features], a recurrent operator, and back."""
    read = [
        called.context.add_param(array[None], name) for array, name in zip((*weights, bias), "WRB")
    ]
    graph = GraphBuilder()
    steps = graph.op("Transpose", called.input_names[:1], perm=[1, 0, 2])
    hidden_size = weights[1].shape[1]
    outputs = graph.op(operator, [steps, *read], hidden_size=hidden_size, **attributes)
    hidden = graph.op("Squeeze", [outputs], axes=[1])
    graph.op("Transpose", [hidden], perm=[1, 0, 2])
    return graph.nodes(called.output_names)


#: What replaces the exporter's own converters that are missing or write something else.
#: By the function's name.
OPERATORS = {
    "acosh": "Acosh",
    "asinh": "Asinh",
    "atanh": "Atanh",
    "ceil": "Ceil",
    "floor": "Floor",
    "round": "Round",
    "sign": "Sign",
    "straight_through_round": "Round",
}
CONVERTERS = {
    **dict.fromkeys(OPERATORS, _operator),
    "AveragePoolingND": _average_pooling,
    "ConvolutionND": _convolution_nd,
    "Deconvolution2DFunction": _deconvolution,
    "DeconvolutionND": _deconvolution,
    "Erf": _erf,
    "GroupNormalization": _group_norm,
    "LayerNormalization": _layer_norm,
    "LinearFunction": _linear,
    "Pad": _pad,
    "Where": _where,
    "choose": _choose,
    "elements": _elements,
    "indices_of_largest": _indices_of_largest,
    "dilated_max_pooling": _dilated_max_pooling,
    "gru_sequence": _gru,
    "lstm_sequence": _lstm,
    "rnn_sequence": _rnn,
    "prelu": _prelu,
    "rms_normalization": _rms_norm,
}
