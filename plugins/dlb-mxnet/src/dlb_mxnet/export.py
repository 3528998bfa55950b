"""ONNX by MXNet's own exporter."""

from __future__ import annotations

import ast
from functools import partial
from pathlib import Path
from typing import Any

import mxnet as mx
import numpy as np
import onnx
from mxnet import onnx as mx2onnx
from mxnet.gluon import HybridBlock, Parameter
from mxnet.onnx.mx2onnx._export_onnx import MXNetGraph
from mxnet.onnx.mx2onnx._op_translations._op_translations_opset12 import (
    get_input_dtypes,
    get_inputs,
)
from onnx import NodeProto, numpy_helper
from onnx.helper import make_node

from dlb_mxnet import pools, ranking, recurrent
from dlb_mxnet.model import MXNetModel
from dlb_mxnet.modules import EXPORTING
from dlb_mxnet.user_model import UserBlock
from dlb_worker.errors import UnsupportedError
from dlb_worker.native import tensors
from dlb_worker.onnx_file import write_model
from dlb_worker.user_layers import one_example

#: The opset that the operators are of which MXNet 1.9, and the converters here, write.
OPSET = 17

#: The format of the file that came with that opset, in which weights need not be inputs.
IR_VERSION = 8

#: Gates of the recurrent operators that stand for loops.
GATES = {"GRU": 3}

#: How MXNet writes an attribute that is true.
TRUE = ("True", "1")


def export(model: MXNetModel | UserBlock, path: Path) -> str:
    """Write a network in evaluation mode, weights inside, the batch axis fixed.

    The exporter labels the file with the newest opset that the installed onnx knows, whatever
    operators it wrote (those of opset 13, which are the same in 17): the label is corrected here,
    and the model checked against it.

    Raises:
        UnsupportedError: a user's model is no hybrid block.
    """
    if isinstance(model, UserBlock):
        example = one_example(model)
        if not isinstance(model.model, HybridBlock):
            raise UnsupportedError(
                "MXNet exports hybrid blocks only, and this one is a plain Block"
            )
        network, shape = model.model, example.shape
        real = example.dtype.kind == "f"
    else:
        described, network = model.workload.model.input, model.network
        shape, real = (model.batch_size, *described.shape), described.kind == "real"
    exporting = EXPORTING.set(True)
    try:
        outputs = [each for _, each in tensors(network(mx.sym.var("input")), _is_symbol)]
    finally:
        EXPORTING.reset(exporting)
    outputs = [_apart(each, place) for place, each in enumerate(outputs)]
    symbol = outputs[0] if len(outputs) == 1 else mx.sym.Group(outputs)
    names, parameters = symbol.list_inputs(), network.collect_params()
    weights = {name: partial(_array, parameters[name]) for name in names if name in parameters}
    shapes = {name: parameters[name].shape for name in weights}
    types = {name: np.dtype(parameters[name].dtype) for name in weights}
    shapes["input"], types["input"] = shape, np.dtype(model.dtype if real else np.int64)
    # The exporter copies weights ten times over, but no inputs: it sees the weights as inputs.
    mx2onnx.export_model(
        symbol,
        {},
        in_shapes=[shapes[name] for name in names],
        in_types=[types[name] for name in names],
        onnx_file_path=str(path),
    )
    write_model(path, _corrected(onnx.load(path), set(weights)), weights)
    return f"mxnet.onnx.export_model {mx.__version__}"


def _apart(output: Any, place: int) -> Any:
    """An output under a name of its own: calls of one block all have one, and the exporter takes the first."""
    names = output.get_internals().list_outputs()
    if names.count(names[-1]) == 1:
        return output
    return mx.sym.identity(output, name=f"output{place}")


def _operator(operator: str, node: Any, **context: Any) -> list[NodeProto]:
    """One for which MXNet's exporter has none."""
    name, inputs, _ = get_inputs(node, context)
    return [make_node(operator, inputs, [name], name=name)]


#: By MXNet's name. :func:`dlb_mxnet.functions.rounded` puts ``rint`` in its place.
OPERATORS = {
    "arccosh": "Acosh",
    "arcsinh": "Asinh",
    "arctanh": "Atanh",
    "broadcast_maximum": "Max",
    "broadcast_minimum": "Min",
    "cosh": "Cosh",
    "erf": "Erf",
    "rint": "Round",
    "sign": "Sign",
    "sinh": "Sinh",
    "softsign": "Softsign",
}
for name, operator in OPERATORS.items():
    MXNetGraph.register(name)(partial(_operator, operator))


@MXNetGraph.register("where")
def _where(node: Any, **context: Any) -> list[NodeProto]:
    """MXNet's exporter has none, and MXNet chooses by real numbers."""
    name, (kept, *others), _ = get_inputs(node, context)
    return [
        make_node("Cast", [kept], [f"{name}_kept"], to=onnx.TensorProto.BOOL),
        make_node("Where", [f"{name}_kept", *others], [name], name=name),
    ]


@MXNetGraph.register("LayerNorm", OPSET)
def _layer_norm(node: Any, **context: Any) -> list[NodeProto]:
    """The exporter's own writes a ReduceMean that the newest onnx refuses."""
    name, inputs, attributes = get_inputs(node, context)
    epsilon = float(attributes["eps"])
    return [make_node("LayerNormalization", inputs, [name], name=name, axis=-1, epsilon=epsilon)]


@MXNetGraph.register("_linalg_gemm2", OPSET)
def _gemm2(node: Any, **context: Any) -> list[NodeProto]:
    """Of arrays with three axes, the first not transposed, as attention has them.

    The exporter's own goes by way of eight axes, where ONNX Runtime's optimizer fails.
    """
    name, (left, right), attributes = get_inputs(node, context)
    (dtype, _), alpha = get_input_dtypes(node, context), float(attributes.get("alpha", 1))
    nodes = []
    if attributes.get("transpose_b") in TRUE:
        nodes.append(make_node("Transpose", [right], [f"{name}_turned"], perm=(0, 2, 1)))
        right = f"{name}_turned"
    if alpha == 1:
        return [*nodes, make_node("MatMul", [left, right], [name], name=name)]
    scale, product = f"{name}_alpha", f"{name}_product"
    context["initializer"].append(numpy_helper.from_array(np.array([alpha], dtype), scale))
    return [
        *nodes,
        make_node("MatMul", [left, right], [product], name=product),
        make_node("Mul", [product, scale], [name], name=name),
    ]


@MXNetGraph.register("mean", OPSET)
@MXNetGraph.register("max", OPSET)
@MXNetGraph.register("min", OPSET)
def _reduce(node: Any, **context: Any) -> list[NodeProto]:
    """As the newest onnx has it, which the exporter asks; :func:`_corrected` makes an attribute of
    the axes."""
    name, inputs, attributes = get_inputs(node, context)
    axes = np.atleast_1d(ast.literal_eval(attributes["axis"]))
    context["initializer"].append(numpy_helper.from_array(axes, f"{name}_axes"))
    keepdims = int(attributes.get("keepdims") in TRUE)
    operator = f"Reduce{node['op'].title()}"
    return [make_node(operator, [*inputs, f"{name}_axes"], [name], name=name, keepdims=keepdims)]


@MXNetGraph.register("Custom", OPSET)
def _stand_in(node: Any, **context: Any) -> list[NodeProto]:
    """What stands for one operator."""
    op_type = get_inputs(node, context)[2]["op_type"]
    if op_type not in STAND_INS:
        raise UnsupportedError(f"MXNet exports no operator of Python: {op_type}")
    return STAND_INS[op_type](node, context)


def _max_pool(node: Any, context: Any) -> list[NodeProto]:
    """A max pooling with dilation."""
    name, inputs, attributes = get_inputs(node, context)
    kernel, stride, dilation = (
        ast.literal_eval(attributes[key]) for key in ("kernel", "stride", "dilation")
    )
    sizes = {"kernel_shape": kernel, "strides": stride, "dilations": dilation}
    return [make_node("MaxPool", inputs, [name], name=name, **sizes)]


def _recurrent(node: Any, context: Any) -> list[NodeProto]:
    """What stands for a loop over steps, as one operator; its one bias is [bias, 0]."""
    name, (steps, *weights, bias), attributes = get_inputs(node, context)
    (dtype, *_), hidden = get_input_dtypes(node, context), int(attributes["hidden_size"])
    rows = GATES[attributes["operator"]] * hidden
    numbers = {"first": np.array([0]), "second": np.array([1]), "zeros": np.zeros(rows, dtype)}
    for key, array in numbers.items():
        context["initializer"].append(numpy_helper.from_array(array, f"{name}_{key}"))
    nodes = [make_node("Concat", [bias, f"{name}_zeros"], [f"{name}_biases"], axis=0)]
    read = [f"{name}_W", f"{name}_R", f"{name}_B"]
    nodes += [
        make_node("Unsqueeze", [each, f"{name}_first"], [output])
        for each, output in zip((*weights, f"{name}_biases"), read)
    ]
    every = f"{name}_directions"
    return [
        *nodes,
        make_node(attributes["operator"], [steps, *read], [every], hidden_size=hidden),
        make_node("Squeeze", [every, f"{name}_second"], [name], name=name),
    ]


def _top_k(node: Any, context: Any) -> list[NodeProto]:
    """Indices as real numbers."""
    name, inputs, attributes = get_inputs(node, context)
    (dtype,) = get_input_dtypes(node, context)
    k = np.array([int(attributes["k"])])
    context["initializer"].append(numpy_helper.from_array(k, f"{name}_k"))
    outputs, largest = [f"{name}_values", f"{name}_indices"], int(attributes["largest"] in TRUE)
    return [
        make_node(
            "TopK", [*inputs, f"{name}_k"], outputs, axis=int(attributes["axis"]), largest=largest
        ),
        make_node("Cast", outputs[1:], [name], to=onnx.helper.np_dtype_to_tensor_dtype(dtype)),
    ]


def _gather_elements(node: Any, context: Any) -> list[NodeProto]:
    """Indices within bounds; both inputs with equal sizes along all other axes."""
    name, (value, places), attributes = get_inputs(node, context)
    (dtype, _), axis = get_input_dtypes(node, context), int(attributes["axis"])
    samples = [ast.literal_eval(attributes[key]) for key in ("value_shape", "places_shape")]
    common = [*map(max, *samples)]
    arrays = {"first": np.array(0, dtype), "last": np.array(samples[0][axis - 1] - 1, dtype)}
    nodes = [make_node("Clip", [places, f"{name}_first", f"{name}_last"], [f"{name}_within"])]
    both = {"value": value, "indices": f"{name}_within"}
    for (role, read), shape in zip([*both.items()], samples):
        sizes = [*common[: axis - 1], shape[axis - 1], *common[axis:]]
        if sizes != [*shape]:
            arrays[f"{role}_sizes"] = np.array([1, *sizes])
            both[role] = f"{name}_{role}_repeated"
            nodes.append(make_node("Expand", [read, f"{name}_{role}_sizes"], [both[role]]))
    for key, array in arrays.items():
        context["initializer"].append(numpy_helper.from_array(array, f"{name}_{key}"))
    indices = f"{name}_places"
    return [
        *nodes,
        make_node("Cast", [both["indices"]], [indices], to=onnx.TensorProto.INT64),
        make_node("GatherElements", [both["value"], indices], [name], name=name, axis=axis),
    ]


#: By the operator of Python that stands for it.
STAND_INS = {
    recurrent.STAND_IN: _recurrent,
    pools.STAND_IN: _max_pool,
    ranking.TOP_K: _top_k,
    ranking.GATHER_ELEMENTS: _gather_elements,
}


def _corrected(model: onnx.ModelProto, weights: set[str]) -> onnx.ModelProto:
    """The model under its true opset, with no more biases than it has.

    MXNet gives a layer without bias a zero for one.
    """
    del model.opset_import[:]
    model.opset_import.append(onnx.helper.make_opsetid("", OPSET))
    model.ir_version = IR_VERSION
    constants = {tensor.name: tensor for tensor in model.graph.initializer}
    for node in model.graph.node:
        if node.op_type == "Gemm" and node.input[2] not in weights:
            node.input.pop()
        if node.op_type in ("ReduceMean", "ReduceMax", "ReduceMin") and len(node.input) == 2:
            axes = numpy_helper.to_array(constants[node.input.pop()]).tolist()
            node.attribute.append(onnx.helper.make_attribute("axes", axes))
    return model


def _is_symbol(value: Any) -> bool:
    return isinstance(value, mx.sym.Symbol)


def _array(parameter: Parameter) -> np.ndarray:
    return parameter.data().asnumpy()
