"""ONNX, written by the adapter with onnx.helper: Theano has no exporter.

Each layer is written as the operators of opset 17 that the layer is defined by.
"""

import math
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable, Sequence

import numpy as np
import onnx
from onnx import helper

from dlb_worker.model import Node
from dlb_worker.onnx_file import write_model
from dlb_worker.poolings import reaching_pads, rounds_up

if TYPE_CHECKING:
    from dlb_theano.model import TheanoModel

OPSET, IR_VERSION = 17, 8


def export(model: "TheanoModel", path: Path) -> str:
    """Write the network in evaluation mode, weights inside, the batch axis free."""
    graph = Graph(model.dtype)
    described = model.workload.model
    for node in described.nodes:
        WRITERS[node.kind](graph, node)

    def value(name: str, shape: Sequence[Any], dtype: str) -> Any:
        kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
        return helper.make_tensor_value_info(name, kind, shape)

    kind = model.dtype if described.input.kind == "real" else "int64"
    inputs = [value(described.input.name, ("batch",) + described.input.shape, kind)]
    weights = {}  # type: Dict[str, Callable[[], np.ndarray]]
    for each in model.parameters:
        shape = described.parameters[each.name].shape
        inputs.append(value(each.name, shape, model.dtype))
        weights[each.name] = partial(model.canonical, each)
    last = described.nodes[-1]
    outputs = [value(last.name, ("batch",) + last.shape, model.dtype)]
    made = helper.make_graph(graph.nodes, "theano", inputs, outputs, graph.constants)
    opsets = [helper.make_opsetid("", OPSET)]
    written = helper.make_model(
        made, producer_name="dlb-theano", ir_version=IR_VERSION, opset_imports=opsets
    )
    write_model(path, written, weights)
    return "onnx.helper {}, by dlb-theano".format(onnx.__version__)


class Graph:
    """Nodes and constants as they are added."""

    def __init__(self, dtype: str) -> None:
        self.dtype = dtype
        self.nodes = []  # type: list[Any]
        self.constants = []  # type: list[Any]

    def add(self, operator: str, inputs: Sequence[Any], output: str, **attributes: Any) -> str:
        """Add an operator; inputs that are numbers become constants. Returns its output."""
        names = [
            each if isinstance(each, str) else self._constant("{}/{}".format(output, place), each)
            for place, each in enumerate(inputs)
        ]
        self.nodes.append(helper.make_node(operator, names, [output], output, **attributes))
        return output

    def _constant(self, name: str, values: Any) -> str:
        array = np.asarray(values)
        array = array.astype("int64" if array.dtype.kind == "i" else self.dtype)
        self.constants.append(onnx.numpy_helper.from_array(array, name))
        return name


def _plain(operator: str, **attributes: Any) -> Callable[[Graph, Node], Any]:
    return lambda graph, node: graph.add(operator, node.inputs, node.name, **attributes)


def _with(operator: str, *numbers: Callable[[Node], Any]) -> Callable[[Graph, Node], Any]:
    """An operator whose further inputs are constants."""
    return lambda graph, node: graph.add(
        operator, list(node.inputs) + [each(node) for each in numbers], node.name
    )


def _parameters(node: Node, *roles: str) -> Any:
    return list(node.inputs) + [
        node.parameters[each].name for each in roles if each in node.parameters
    ]


def _conv(graph: Graph, node: Node) -> None:
    graph.add(
        "Conv",
        _parameters(node, "weight", "bias"),
        node.name,
        kernel_shape=node.kernel,
        strides=node.stride,
        pads=node.pads,
        dilations=node.dilation,
        group=node.groups,
    )


def _linear(graph: Graph, node: Node) -> None:
    weight = (node.tied_to or node.name) + ".weight"
    bias = [node.name + ".bias"] if node.bias else []
    if len(node.shape) == 1:
        graph.add("Gemm", list(node.inputs) + [weight] + bias, node.name, transB=1)
    else:
        _mapped(graph, node.inputs[0], weight, bias, node.name)


def _mapped(graph: Graph, x: str, weight: str, bias: Sequence[str], output: str) -> str:
    """A linear map of the last axis."""
    turned = graph.add("Transpose", [weight], output + "/weight", perm=[1, 0])
    if not bias:
        return graph.add("MatMul", [x, turned], output)
    return graph.add("Add", [graph.add("MatMul", [x, turned], output + "/product"), *bias], output)


def _pool(graph: Graph, node: Node) -> None:
    up, pads, counted = rounds_up(node), node.pads, node.attributes.get("count_include_pad")
    if up is None:
        # What is counted may reach only as far as the layer's own pads.
        up = bool(counted) and any(far > own for far, own in zip(reaching_pads(node), pads))
        pads = pads if up else reaching_pads(node)
    graph.add(
        "MaxPool" if counted is None else "AveragePool",
        node.inputs,
        node.name,
        kernel_shape=node.kernel,
        strides=node.stride,
        pads=pads,
        ceil_mode=int(up),
        **({} if counted is None else {"count_include_pad": int(counted)}),
    )


def _gelu(graph: Graph, node: Node) -> None:
    (x,), name = node.inputs, node.name
    if node.approximate == "none":
        bent = graph.add(
            "Erf", [graph.add("Div", [x, math.sqrt(2)], name + "/scaled")], name + "/erf"
        )
    else:
        square = graph.add("Mul", [x, x], name + "/square")
        cube = graph.add("Mul", [square, x], name + "/cube")
        both = graph.add(
            "Add", [x, graph.add("Mul", [cube, 0.044715], name + "/part")], name + "/both"
        )
        scaled = graph.add("Mul", [both, math.sqrt(2 / math.pi)], name + "/scaled")
        bent = graph.add("Tanh", [scaled], name + "/tanh")
    raised = graph.add("Add", [bent, 1.0], name + "/raised")
    graph.add("Mul", [graph.add("Mul", [x, 0.5], name + "/half"), raised], name)


def _lstm(graph: Graph, node: Node) -> None:
    """[N, T, features] to [T, N, features], ONNX LSTM with the bias [bias, 0], and back."""
    name, axis = node.name, np.array([0])
    biases = graph.add(
        "Concat", [name + ".bias", np.zeros(4 * node.hidden)], name + "/biases", axis=0
    )
    weights = [
        graph.add("Unsqueeze", [each, axis], "{}/{}".format(name, operand))
        for each, operand in (
            (name + ".input_weight", "W"),
            (name + ".recurrent_weight", "R"),
            (biases, "B"),
        )
    ]
    steps = graph.add("Transpose", node.inputs, name + "/steps", perm=[1, 0, 2])
    both = graph.add("LSTM", [steps] + weights, name + "/directions", hidden_size=node.hidden)
    hidden = graph.add("Squeeze", [both, np.array([1])], name + "/hidden")
    graph.add("Transpose", [hidden], name, perm=[1, 0, 2])


def _attention(graph: Graph, node: Node) -> None:
    name, (steps, features) = node.name, node.input_shape
    size = features // node.heads

    def mapped(each: str, x: str, output: str) -> str:
        start = "{}.{}_".format(name, each)
        return _mapped(graph, x, start + "weight", [start + "bias"] if node.bias else [], output)

    def divided(each: str, order: Sequence[int]) -> str:
        made = mapped(each, node.inputs[0], "{}/{}".format(name, each))
        parts = graph.add(
            "Reshape", [made, np.array([0, steps, node.heads, size])], made + "/parts"
        )
        return graph.add("Transpose", [parts], made + "/heads", perm=order)

    products = graph.add(
        "MatMul", [divided("query", (0, 2, 1, 3)), divided("key", (0, 2, 3, 1))], name + "/products"
    )
    scores = graph.add("Mul", [products, 1 / math.sqrt(size)], name + "/scores")
    if node.causal:
        above = np.triu(np.full((steps, steps), -np.inf), 1)
        scores = graph.add("Add", [scores, above], name + "/masked")
    shares = graph.add("Softmax", [scores], name + "/shares", axis=-1)
    mixed = graph.add("MatMul", [shares, divided("value", (0, 2, 1, 3))], name + "/mixed")
    turned = graph.add("Transpose", [mixed], name + "/turned", perm=[0, 2, 1, 3])
    joined = graph.add("Reshape", [turned, np.array([0, steps, features])], name + "/joined")
    mapped("output", joined, name)


WRITERS = {
    "conv": _conv,
    "linear": _linear,
    "batch_norm": lambda graph, node: graph.add(
        "BatchNormalization",
        _parameters(node, "scale", "bias", "mean", "variance"),
        node.name,
        epsilon=node.epsilon,
        momentum=node.momentum,
    ),
    "layer_norm": lambda graph, node: graph.add(
        "LayerNormalization", _parameters(node, "scale", "bias"), node.name, epsilon=node.epsilon
    ),
    "lrn": lambda graph, node: graph.add("LRN", node.inputs, node.name, **node.attributes),
    "max_pool": _pool,
    "average_pool": _pool,
    "global_average_pool": _plain("GlobalAveragePool"),
    "relu": _plain("Relu"),
    "relu6": _with("Clip", lambda node: 0.0, lambda node: 6.0),
    "tanh": _plain("Tanh"),
    "sigmoid": _plain("Sigmoid"),
    "hard_sigmoid": _plain("HardSigmoid", alpha=1 / 6, beta=0.5),
    "gelu": _gelu,
    "dropout": _with("Dropout", lambda node: node.rate),
    "add": _plain("Add"),
    "mul": _plain("Mul"),
    "concat": lambda graph, node: graph.add("Concat", node.inputs, node.name, axis=node.axis),
    "flatten": _plain("Flatten"),
    "reshape": _with("Reshape", lambda node: (0,) + node.shape),
    "transpose": lambda graph, node: graph.add(
        "Transpose", node.inputs, node.name, perm=(0,) + node.axes
    ),
    "reduce_mean": lambda graph, node: graph.add(
        "ReduceMean", node.inputs, node.name, axes=[node.axis], keepdims=0
    ),
    "select": lambda graph, node: graph.add(
        "Gather", [node.inputs[0], node.index], node.name, axis=node.axis
    ),
    "pad": _with(
        "Pad",
        lambda node: np.insert(node.pads, (0, len(node.shape)), 0),
        lambda node: float(node.value),
    ),
    "slice": _with(
        "Slice",
        lambda node: [start for start, _, _ in node.ranges],
        lambda node: [stop for _, stop, _ in node.ranges],
        lambda node: range(1, 1 + len(node.ranges)),
        lambda node: [step for _, _, step in node.ranges],
    ),
    "gather": lambda graph, node: graph.add(
        "Gather", [node.inputs[0], node.indices], node.name, axis=node.axis
    ),
    "embedding": lambda graph, node: graph.add(
        "Gather", [node.name + ".weight", *node.inputs], node.name, axis=0
    ),
    "position_embedding": lambda graph, node: graph.add(
        "Add", _parameters(node, "weight"), node.name
    ),
    "lstm": _lstm,
    "attention": _attention,
}
