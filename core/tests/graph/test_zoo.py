"""Our networks and those of the same name in the ONNX model zoo, as docs/workloads.md tells it.

The onnx package has the zoo's without their weights. Structures are of shapes alone, so nothing is
run: what depends on the input, and every weight, is zeros of its shape.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper, shape_inference

from dlb_graph.structure.normal_form import operations_of
from dlb_graph.structure.operation import Operation
from dlb_graph.structure.structure import compare_operations
from dlb_graph.truth.canonical import IR_VERSION, OPSET
from dlb_graph.truth.held import Values
from dlb_graph.truth.layer_nodes import Graph, add_layer
from dlb_graph.truth.trace import Trace
from dlb_graph.workload import Model, files, infer_shapes, parameter_shapes

ZOO = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"
BATCH = 1


def zeros(shape: tuple[int, ...], element: int = TensorProto.FLOAT) -> np.ndarray:
    """Of a shape, in no memory."""
    return np.broadcast_to(np.zeros((), helper.tensor_dtype_to_np_dtype(element)), shape)


def read(
    model: onnx.ModelProto, weights: Mapping[str, np.ndarray] | None = None
) -> list[Operation]:
    """What a model computes; ``weights`` are of its inputs."""
    inferred = shape_inference.infer_shapes(model, data_prop=True).graph
    values = {t.name: numpy_helper.to_array(t) for t in inferred.initializer} | dict(weights or {})
    (given,) = [value for value in inferred.input if value.name not in values]
    for value in (given, *inferred.value_info, *inferred.output):
        kind = value.type.tensor_type
        shape = tuple(dim.dim_value for dim in kind.shape.dim)
        values.setdefault(value.name, zeros(shape, kind.elem_type))
    live = {given.name}
    for node in inferred.node:
        if not live.isdisjoint(node.input):
            live.update(name for name in node.output if name in values)
    traced = Trace(
        nodes=tuple(inferred.node),
        inputs=(given.name,),
        outputs=tuple(value.name for value in inferred.output),
        values=Values(values, {}, {}),
        live=frozenset(live),
        producers={name: node for node in inferred.node for name in node.output},
        batch=BATCH,
        opsets=tuple(model.opset_import),
    )
    return operations_of(traced)


def read_ours(model: Model) -> list[Operation]:
    """What the canonical graph of a model computes, its weights given as inputs."""
    shapes = infer_shapes(model)
    weights = {name: zeros(shape) for name, shape in parameter_shapes(model).items()}
    graph = Graph(np.dtype(np.float32), False, {})
    for node in model.wired():
        add_layer(graph, node, [shapes[name] for name in node.inputs])
    last = model.nodes[-1].name
    inputs = {model.input.name: (BATCH, *model.input.shape)}
    inputs |= {name: each.shape for name, each in weights.items()}
    graph = helper.make_graph(
        graph.nodes,
        "ours",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, s) for name, s in inputs.items()],
        [helper.make_tensor_value_info(last, TensorProto.FLOAT, (BATCH, *shapes[last]))],
        [numpy_helper.from_array(array, name) for name, array in graph.initializers.items()],
    )
    made = helper.make_model(
        graph, ir_version=IR_VERSION, opset_imports=[helper.make_opsetid("", OPSET)]
    )
    return read(made, weights)


def rounded_up(pools: list[str]) -> list[tuple[str, ...]]:
    """Poolings of which ours rounds up, and the conversion down."""
    return [(pool, "pads", "(0, 0, 1, 1)", "(0, 0, 0, 0)") for pool in pools]


def strides(pairs: dict[str, str]) -> list[tuple[str, ...]]:
    """Convolutions of which ours strides the first, and the zoo's the second."""
    return [
        difference
        for first, second in pairs.items()
        for difference in (
            (first, "stride", "(2, 2)", "(1, 1)"),
            (second, "stride", "(1, 1)", "(2, 2)"),
            (second, "pads", "(1, 1, 1, 1)", "(1, 1, 0, 0)"),
        )
    ]


#: Layer, what differs, ours and the zoo's; beside a Softmax, which for dlb is part of the loss.
DIFFERENCES = {
    ("vgg-19", "light_vgg19"): [],
    ("alexnet", "light_bvlc_alexnet"): [
        *rounded_up(["max_pool1"]),
        ("max_pool3", "pads", "(0, 0, 0, 0)", "(0, 0, 1, 1)"),
    ],
    ("googlenet", "light_inception_v1"): [
        *rounded_up(["max_pool1", "max_pool2", "max_pool5", "max_pool11"]),
        ("global_average_pool1", "operator", "GlobalAveragePool", "AveragePool"),
        ("linear1", "operator", "Linear", "AveragePool"),
    ],
    ("resnet-50", "light_resnet50"): strides(
        {"conv13": "conv14", "conv26": "conv27", "conv45": "conv46"}
    ),
}


@pytest.mark.parametrize("ours,theirs", DIFFERENCES)
def test_a_network_differs_from_the_zoos_as_it_is_told(ours: str, theirs: str) -> None:
    zoos = read(onnx.load(str(ZOO / f"{theirs}.onnx")))
    found = compare_operations(read_ours(files.load(ours).model), zoos).differences
    *others, softmax = [(one.layer, one.what, one.expected, one.found) for one in found]
    assert softmax == ("", "operator", "none", "Softmax")
    assert others == DIFFERENCES[ours, theirs]


def test_another_dilation_is_a_difference() -> None:
    """Zeros of the right shapes hide nothing of a structure."""
    model = files.load("resnet-50").model
    nodes = list(model.nodes)
    nodes[0] = msgspec.structs.replace(
        nodes[0], layer=msgspec.structs.replace(nodes[0].layer, dilation=(2, 2), pads=(6, 6, 6, 6))
    )
    changed = read_ours(msgspec.structs.replace(model, nodes=tuple(nodes)))
    found = compare_operations(read_ours(model), changed).differences
    assert {(each.layer, each.what) for each in found} == {
        (nodes[0].name, "dilation"),
        (nodes[0].name, "pads"),
    }
