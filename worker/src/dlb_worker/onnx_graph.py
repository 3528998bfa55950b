"""A resolved model as ONNX, for frameworks that have no exporter of their own.

Each layer is written as the operators of opset 17 that define it. The graph is in evaluation mode;
:func:`dlb_worker.onnx_file.write_model` puts the weights in.
"""

import math
from typing import Any, Callable, Dict, List, Mapping, Sequence

import numpy as np
import onnx
from onnx import helper

from dlb_worker.model import Model, Node
from dlb_worker.poolings import reaching_pads, rounds_up

__all__ = ["onnx_model"]

OPSET, IR_VERSION = 17, 8


def onnx_model(model: Model, dtype: str, producer: str) -> onnx.ModelProto:
    """The model, its weights typed inputs of the graph, the batch axis free.

    Args:
        dtype: of every real number.
        producer: the distribution that writes it.
    """
    graph = Graph(dtype)
    for node in model.nodes:
        WRITERS[node.kind](graph, node)

    def value(name: str, shape: Sequence[Any], kind: str = dtype) -> Any:
        return helper.make_tensor_value_info(
            name, helper.np_dtype_to_tensor_dtype(np.dtype(kind)), shape
        )

    kind = dtype if model.input.kind == "real" else "int64"
    inputs = [value(model.input.name, ("batch",) + model.input.shape, kind)]
    inputs += [value(each.name, each.shape) for each in model.parameters.values()]
    outputs = [value(model.last, ("batch",) + model.nodes[-1].shape)]
    return helper.make_model(
        helper.make_graph(graph.nodes, "model", inputs, outputs, graph.constants),
        producer_name=producer,
        ir_version=IR_VERSION,
        opset_imports=[helper.make_opsetid("", OPSET)],
    )


class Graph:
    """Nodes and constants as they are added."""

    def __init__(self, dtype: str) -> None:
        self.dtype = dtype
        self.nodes: List[Any] = []
        self.constants: List[Any] = []

    def constant(self, array: np.ndarray, name: str) -> str:
        """Add a constant: real numbers in the model's type. Returns its name."""
        array = array.astype("int64" if array.dtype.kind == "i" else self.dtype)
        self.constants.append(onnx.numpy_helper.from_array(array, name))
        return name

    def add(self, operator: str, inputs: Sequence[Any], output: str, **attributes: Any) -> str:
        """Add an operator, whose inputs that are numbers become constants; returns its output."""
        names = []
        for place, each in enumerate(inputs):
            if not isinstance(each, str):
                each = self.constant(np.asarray(each), f"{output}/{place}")
            names.append(each)
        self.nodes.append(helper.make_node(operator, names, [output], output, **attributes))
        return output


def _operator(
    name: str, *more: Any, of: Callable[[Node], Mapping[str, Any]] = lambda node: {}
) -> Callable[[Graph, Node], Any]:
    """A layer that is one operator.

    Args:
        more: inputs after the layer's own: roles of parameters, or functions of the node that
            return constants.
        of: the operator's attributes.
    """

    def write(graph: Graph, node: Node) -> None:
        inputs: List[Any] = list(node.inputs)
        for each in more:
            if callable(each):
                inputs.append(each(node))
            elif each in node.parameters:
                inputs.append(node.parameters[each].name)
        graph.add(name, inputs, node.name, **of(node))

    return write


def _linear(graph: Graph, node: Node) -> None:
    owner = node.weights_of or node.name
    weight = (node.tied_to or owner) + ".weight"
    bias = [owner + ".bias"] if node.bias else []
    if len(node.shape) == 1:
        graph.add("Gemm", [*node.inputs, weight, *bias], node.name, transB=1)
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
    sizes = {
        "kernel_shape": node.kernel,
        "strides": node.stride,
        "pads": pads,
        "ceil_mode": int(up),
    }
    if counted is None:
        if max(node.attributes.get("dilation", (1,))) > 1:
            sizes["dilations"] = node.dilation
        graph.add("MaxPool", node.inputs, node.name, **sizes)
    else:
        graph.add("AveragePool", node.inputs, node.name, count_include_pad=int(counted), **sizes)


def _gelu(graph: Graph, node: Node) -> None:
    (x,), name = node.inputs, node.name
    if node.approximate == "none":
        scaled = graph.add("Div", [x, math.sqrt(2)], name + "/scaled")
        bent = graph.add("Erf", [scaled], name + "/erf")
    else:
        cube = graph.add("Mul", [graph.add("Mul", [x, x], name + "/square"), x], name + "/cube")
        part = graph.add("Mul", [cube, 0.044715], name + "/part")
        both = graph.add("Add", [x, part], name + "/both")
        scaled = graph.add("Mul", [both, math.sqrt(2 / math.pi)], name + "/scaled")
        bent = graph.add("Tanh", [scaled], name + "/tanh")
    raised = graph.add("Add", [bent, 1.0], name + "/raised")
    graph.add("Mul", [graph.add("Mul", [x, 0.5], name + "/half"), raised], name)


#: Operators of functions of each number whose names are not those of the functions.
_FUNCTION_OPERATORS = {
    "hard_sigmoid": "HardSigmoid",
    "hard_swish": "HardSwish",
    "leaky_relu": "LeakyRelu",
    "straight_through_round": "Round",
}


def _elementwise(graph: Graph, node: Node) -> None:
    (x,), name, function = node.inputs, node.name, node.function
    numbers = {key: value for key, value in node.attributes.items() if key != "function"}
    if function == "affine":
        graph.add("Add", [graph.add("Mul", [x, node.alpha], name + "/scaled"), node.beta], name)
    elif function == "clip":
        graph.add("Clip", [x, numbers.get("min", -np.inf), numbers.get("max", np.inf)], name)
    elif function == "pow":
        graph.add("Pow", [x, node.alpha], name)
    elif function == "silu":
        graph.add("Mul", [x, graph.add("Sigmoid", [x], name + "/gate")], name)
    elif function == "mish":
        gate = graph.add("Tanh", [graph.add("Softplus", [x], name + "/soft")], name + "/gate")
        graph.add("Mul", [x, gate], name)
    else:
        operator = _FUNCTION_OPERATORS.get(function, function.title())
        graph.add(operator, [x], name, **numbers)


def _where(graph: Graph, node: Node) -> None:
    truth = graph.add("Cast", node.inputs[:1], node.name + "/truth", to=onnx.TensorProto.BOOL)
    values = list(node.inputs[1:])  # type: List[Any]
    for place, number in enumerate((node.first, node.second)):
        if number is not None:
            values.insert(place, number)
    graph.add("Where", [truth] + values, node.name)


def _top_k(graph: Graph, node: Node) -> None:
    """The indices, as real numbers."""
    outputs = [node.name + "/values", node.name + "/indices"]
    k = graph.constant(np.array([node.k]), node.name + "/k")
    largest = int(node.largest)
    graph.nodes.append(
        helper.make_node("TopK", [*node.inputs, k], outputs, axis=node.axis, largest=largest)
    )
    real = helper.np_dtype_to_tensor_dtype(np.dtype(graph.dtype))
    graph.add("Cast", outputs[1:], node.name, to=real)


def _gather_elements(graph: Graph, node: Node) -> None:
    """Indices within bounds; both inputs with equal sizes along all other axes."""
    axis, name = node.axis, node.name
    last = float(node.input_shapes[0][axis - 1] - 1)
    within = graph.add("Clip", [node.inputs[1], 0.0, last], name + "/within")
    indices = graph.add("Cast", [within], name + "/indices", to=onnx.TensorProto.INT64)
    both, common = [node.inputs[0], indices], [max(sizes) for sizes in zip(*node.input_shapes)]
    for place, shape in enumerate(node.input_shapes):
        sizes = common[: axis - 1] + [shape[axis - 1]] + common[axis:]
        if list(shape) != sizes:
            both[place] = graph.add("Expand", [both[place], [1] + sizes], both[place] + "/repeated")
    graph.add("GatherElements", both, name, axis=axis)


def _reduce(graph: Graph, node: Node) -> None:
    """Opset 17 has the axes of a sum as an input, and of the others as an attribute."""
    operator, keepdims = "Reduce" + node.function.title(), int(node.keepdims)
    if node.function == "sum":
        graph.add(operator, [*node.inputs, list(node.axes)], node.name, keepdims=keepdims)
    else:
        graph.add(operator, node.inputs, node.name, axes=list(node.axes), keepdims=keepdims)


def _lstm(graph: Graph, node: Node) -> None:
    """[N, T, features] to [T, N, features], ONNX LSTM with the bias [bias, 0], and back."""
    name, own = (
        node.name,
        [node.parameters[each].name for each in ("input_weight", "recurrent_weight")],
    )
    bias = [node.parameters["bias"].name, np.zeros(4 * node.hidden)]
    own.append(graph.add("Concat", bias, name + "/biases", axis=0))
    weights = [graph.add("Unsqueeze", [each, [0]], each + "/first") for each in own]
    steps = graph.add("Transpose", node.inputs, name + "/steps", perm=[1, 0, 2])
    both = graph.add("LSTM", [steps, *weights], name + "/directions", hidden_size=node.hidden)
    hidden = graph.add("Squeeze", [both, [1]], name + "/hidden")
    graph.add("Transpose", [hidden], name, perm=[1, 0, 2])


def _attention(graph: Graph, node: Node) -> None:
    name, (steps, features) = node.name, node.input_shape
    size = features // node.heads

    def mapped(each: str, x: str, output: str) -> str:
        start = f"{name}.{each}_"
        return _mapped(graph, x, start + "weight", [start + "bias"] if node.bias else [], output)

    def divided(each: str, order: Sequence[int]) -> str:
        made = mapped(each, node.inputs[0], f"{name}/{each}")
        parts = graph.add("Reshape", [made, [0, steps, node.heads, size]], made + "/parts")
        return graph.add("Transpose", [parts], made + "/heads", perm=order)

    both = [divided("query", (0, 2, 1, 3)), divided("key", (0, 2, 3, 1))]
    products = graph.add("MatMul", both, name + "/products")
    scores = graph.add("Mul", [products, 1 / math.sqrt(size)], name + "/scores")
    if node.causal:
        above = np.triu(np.full((steps, steps), -np.inf), 1)
        scores = graph.add("Add", [scores, above], name + "/masked")
    shares = graph.add("Softmax", [scores], name + "/shares", axis=-1)
    mixed = graph.add("MatMul", [shares, divided("value", (0, 2, 1, 3))], name + "/mixed")
    turned = graph.add("Transpose", [mixed], name + "/turned", perm=[0, 2, 1, 3])
    joined = graph.add("Reshape", [turned, [0, steps, features]], name + "/joined")
    mapped("output", joined, name)


def _along(node: Node) -> Dict[str, Any]:
    return {"axis": node.axis}


WRITERS = {
    "conv": _operator(
        "Conv",
        "weight",
        "bias",
        of=lambda node: {
            "kernel_shape": node.kernel,
            "strides": node.stride,
            "pads": node.pads,
            "dilations": node.dilation,
            "group": node.groups,
        },
    ),
    "linear": _linear,
    "batch_norm": _operator(
        "BatchNormalization", "scale", "bias", "mean", "variance", of=lambda node: node.attributes
    ),
    "layer_norm": _operator("LayerNormalization", "scale", "bias", of=lambda node: node.attributes),
    "lrn": _operator("LRN", of=lambda node: node.attributes),
    "max_pool": _pool,
    "average_pool": _pool,
    "global_average_pool": _operator("GlobalAveragePool"),
    "relu": _operator("Relu"),
    "relu6": _operator("Clip", lambda node: 0.0, lambda node: 6.0),
    "tanh": _operator("Tanh"),
    "sigmoid": _operator("Sigmoid"),
    "hard_sigmoid": _operator("HardSigmoid", of=lambda node: {"alpha": 1 / 6, "beta": 0.5}),
    "gelu": _gelu,
    "elementwise": _elementwise,
    "dropout": _operator("Dropout", lambda node: node.rate),
    "add": _operator("Add"),
    "mul": _operator("Mul"),
    "binary": lambda graph, node: graph.add(node.function.title(), node.inputs, node.name),
    "where": _where,
    "matmul": _operator("MatMul"),
    "scale": _operator("Mul", "scale"),
    "shift": _operator("Add", "bias"),
    "softmax": lambda graph, node: graph.add(
        "LogSoftmax" if node.log else "Softmax", node.inputs, node.name, axis=node.axis
    ),
    "reduce": _reduce,
    "top_k": _top_k,
    "gather_elements": _gather_elements,
    "concat": _operator("Concat", of=_along),
    "flatten": _operator("Flatten"),
    "reshape": _operator("Reshape", lambda node: (0,) + node.shape),
    "transpose": _operator("Transpose", of=lambda node: {"perm": (0,) + node.axes}),
    "reduce_mean": _operator("ReduceMean", of=lambda node: {"axes": [node.axis], "keepdims": 0}),
    "select": _operator("Gather", lambda node: node.index, of=_along),
    "pad": _operator(
        "Pad",
        lambda node: np.insert(node.pads, (0, len(node.shape)), 0),
        lambda node: float(node.value),
    ),
    "slice": _operator(
        "Slice",
        lambda node: [start for start, _, _ in node.ranges],
        lambda node: [stop for _, stop, _ in node.ranges],
        lambda node: range(1, 1 + len(node.ranges)),
        lambda node: [step for _, _, step in node.ranges],
    ),
    "gather": _operator("Gather", lambda node: node.indices, of=_along),
    "embedding": lambda graph, node: graph.add(
        "Gather", [node.parameters["weight"].name, *node.inputs], node.name, axis=0
    ),
    "position_embedding": _operator("Add", "weight"),
    "lstm": _lstm,
    "attention": _attention,
}
