"""ONNX by MXNet's own exporter."""

from __future__ import annotations

import ast
from functools import partial
from pathlib import Path
from typing import Any

import mxnet as mx
import numpy as np
import onnx
from dlb.contract import TrainableModel
from dlb.graph.writing import write_model
from mxnet import onnx as mx2onnx
from mxnet.gluon import Parameter
from mxnet.onnx.mx2onnx._export_onnx import MXNetGraph
from mxnet.onnx.mx2onnx._op_translations._op_translations_opset12 import (
    get_input_dtypes,
    get_inputs,
)

from dlb_mxnet.model import MXNetModel

#: The opset that the operators are of which MXNet 1.9, and the converters here, write.
OPSET = 17

#: The format of the file that came with that opset, in which weights need not be inputs.
IR_VERSION = 8


def export(model: TrainableModel, path: Path) -> str:
    """Write the network in evaluation mode, weights inside, the batch axis fixed.

    The exporter labels the file with the newest opset that the installed onnx knows, whatever
    operators it wrote (those of opset 13, which are the same in 17): the label is set right here,
    and the model checked against it.
    """
    assert isinstance(model, MXNetModel)
    described = model.workload.model.input
    symbol = model.network(mx.sym.var("input"))
    held = model.network.collect_params()
    kind = np.dtype(model.dtype if described.kind == "real" else np.int64)
    # The exporter copies weights ten times over; inputs it does not.
    given = {
        name: (held[name].shape, np.dtype(held[name].dtype))
        if name in held
        else ((model.batch_size, *described.shape), kind)
        for name in symbol.list_inputs()
    }
    mx2onnx.export_model(
        symbol,
        {},
        in_shapes=[shape for shape, _ in given.values()],
        in_types=[dtype for _, dtype in given.values()],
        onnx_file_path=str(path),
    )
    weights = {name: partial(_array, held[name]) for name in given if name in held}
    write_model(path, _set_right(onnx.load(path), set(weights)), weights)
    return f"mxnet.onnx.export_model {mx.__version__}"


@MXNetGraph.register("erf")
def _erf(node: Any, **given: Any) -> list[onnx.NodeProto]:
    """MXNet's exporter has none."""
    name, inputs, _ = get_inputs(node, given)
    return [onnx.helper.make_node("Erf", inputs, [name], name=name)]


@MXNetGraph.register("LayerNorm", OPSET)
def _layer_norm(node: Any, **given: Any) -> list[onnx.NodeProto]:
    """The exporter's own writes a ReduceMean that the newest onnx refuses."""
    name, inputs, told = get_inputs(node, given)
    epsilon = float(told["eps"])
    return [
        onnx.helper.make_node(
            "LayerNormalization", inputs, [name], name=name, axis=-1, epsilon=epsilon
        )
    ]


@MXNetGraph.register("_linalg_gemm2", OPSET)
def _gemm2(node: Any, **given: Any) -> list[onnx.NodeProto]:
    """Of arrays with three axes, the first not transposed, as attention has them.

    The exporter's own goes by way of eight axes, where ONNX Runtime's optimizer fails.
    """
    name, (left, right), told = get_inputs(node, given)
    (dtype, _), alpha = get_input_dtypes(node, given), float(told.get("alpha", 1))
    made = []
    if told.get("transpose_b") in ("True", "1"):
        turned = f"{name}_turned"
        made.append(onnx.helper.make_node("Transpose", [right], [turned], perm=(0, 2, 1)))
        right = turned
    if alpha == 1:
        return [*made, onnx.helper.make_node("MatMul", [left, right], [name], name=name)]
    scale, product = f"{name}_alpha", f"{name}_product"
    given["initializer"].append(onnx.numpy_helper.from_array(np.array([alpha], dtype), scale))
    return [
        *made,
        onnx.helper.make_node("MatMul", [left, right], [product], name=product),
        onnx.helper.make_node("Mul", [product, scale], [name], name=name),
    ]


@MXNetGraph.register("mean", OPSET)
def _mean(node: Any, **given: Any) -> list[onnx.NodeProto]:
    """As the newest onnx has it, which the exporter asks; :func:`_set_right` makes an attribute of
    the axes."""
    name, inputs, told = get_inputs(node, given)
    axes = np.atleast_1d(ast.literal_eval(told["axis"]))
    given["initializer"].append(onnx.numpy_helper.from_array(axes, f"{name}_axes"))
    keepdims = int(told.get("keepdims", "False") in ("True", "1"))
    reads = [*inputs, f"{name}_axes"]
    return [onnx.helper.make_node("ReduceMean", reads, [name], name=name, keepdims=keepdims)]


def _set_right(model: onnx.ModelProto, weights: set[str]) -> onnx.ModelProto:
    """The model under its true opset, with no more biases than it has.

    MXNet gives a layer without bias a zero for one.
    """
    del model.opset_import[:]
    model.opset_import.append(onnx.helper.make_opsetid("", OPSET))
    model.ir_version = IR_VERSION
    for node in model.graph.node:
        if node.op_type == "Gemm" and node.input[2] not in weights:
            node.input.pop()
        if node.op_type == "ReduceMean" and len(node.input) == 2:
            axes = node.input.pop()
            (tensor,) = (each for each in model.graph.initializer if each.name == axes)
            listed = onnx.numpy_helper.to_array(tensor).tolist()
            node.attribute.append(onnx.helper.make_attribute("axes", listed))
    return model


def _array(parameter: Parameter) -> np.ndarray:
    return parameter.data().asnumpy()
