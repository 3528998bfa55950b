"""Every layer against its definition in NumPy, and its gradients against finite differences."""

import math
import sys

import numpy as np
import onnx
import pytest
from scipy.signal import correlate2d
from scipy.special import erf

from dlb_theano.plugin import adapter
from dlb_worker.contract import BuildRequest
from dlb_worker.model import Input, Loss, Model, Node, Optimizer, Parameter, Workload
from dlb_worker.plugins import plugins_of

SMOOTH = Loss("softmax_cross_entropy", {"label_smoothing": 0.0})
PLAIN = Optimizer(
    "sgd", {"momentum": 0.0, "nesterov": False, "weight_decay": 0.0, "clip_norm": 0.0}
)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def convolved(x, node, weights):
    top, left, bottom, right = node.pads
    x = np.pad(x, ((0, 0), (0, 0), (top, bottom), (left, right)))
    weight = weights["weight"]
    outputs, depth, height, width = weight.shape
    tall = np.zeros(
        (
            outputs,
            depth,
            (height - 1) * node.dilation[0] + 1,
            (width - 1) * node.dilation[1] + 1,
        )
    )
    tall[:, :, :: node.dilation[0], :: node.dilation[1]] = weight
    size = outputs // node.groups
    values = np.array(
        [
            [
                sum(
                    correlate2d(image[out // size * depth + channel], tall[out, channel], "valid")
                    for channel in range(depth)
                )
                for out in range(outputs)
            ]
            for image in x
        ]
    )[:, :, :: node.stride[0], :: node.stride[1]]
    return values + weights["bias"][:, None, None] if node.bias else values


def pooled(x, node, weights):
    """By the definition: windows clipped to the input, or to the input and its pads."""
    counts = node.attributes.get("count_include_pad")
    values = np.empty((len(x),) + node.shape)
    top, left, bottom, right = node.pads
    height, width = x.shape[2:]
    for row in range(node.shape[1]):
        for column in range(node.shape[2]):
            first = row * node.stride[0] - top, column * node.stride[1] - left
            last = first[0] + node.kernel[0], first[1] + node.kernel[1]
            window = x[:, :, max(first[0], 0) : last[0], max(first[1], 0) : last[1]]
            if node.kind == "max_pool":
                values[:, :, row, column] = window.max((2, 3))
                continue
            number = window.shape[2] * window.shape[3]
            if counts:
                number = (min(last[0], height + bottom) - first[0]) * (
                    min(last[1], width + right) - first[1]
                )
            values[:, :, row, column] = window.sum((2, 3)) / number
    return values


def normalised(x, node, weights, axes):
    mean, variance = x.mean(axes, keepdims=True), x.var(axes, keepdims=True)
    shape = (1, -1) + (1,) * (x.ndim - 2) if axes != (-1,) else (-1,)
    scale, bias = weights["scale"].reshape(shape), weights["bias"].reshape(shape)
    return scale * (x - mean) / np.sqrt(variance + node.epsilon) + bias


def local_response(x, node, weights):
    half = node.size // 2
    squares = np.pad(x * x, ((0, 0), (half, half), (0, 0), (0, 0)))
    total = sum(squares[:, start : start + x.shape[1]] for start in range(node.size))
    return x / (node.attributes["bias"] + node.alpha / node.size * total) ** node.beta


def recurrent(x, node, weights):
    h = c = np.zeros((len(x), node.hidden))
    values = []
    for step in range(x.shape[1]):
        gates = x[:, step] @ weights["input_weight"].T + h @ weights["recurrent_weight"].T
        i, o, f, g = np.split(gates + weights["bias"], 4, axis=1)
        c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
        h = sigmoid(o) * np.tanh(c)
        values.append(h)
    return np.stack(values, axis=1)


def attended(x, node, weights):
    def mapped(name, value):
        product = value @ weights[name + "_weight"].T
        return product + weights[name + "_bias"] if node.bias else product

    size = x.shape[2] // node.heads
    query, key, value = (mapped(each, x) for each in ("query", "key", "value"))
    heads = []
    for head in range(node.heads):
        part = slice(head * size, (head + 1) * size)
        scores = query[..., part] @ key[..., part].swapaxes(1, 2) / math.sqrt(size)
        if node.causal:
            scores = np.where(np.tri(x.shape[1], dtype=bool), scores, -np.inf)
        shares = np.exp(scores - scores.max(-1, keepdims=True))
        heads.append(shares / shares.sum(-1, keepdims=True) @ value[..., part])
    return mapped("output", np.concatenate(heads, axis=2))


def gelu(x, node, weights):
    if node.approximate == "none":
        return 0.5 * x * (1 + erf(x / math.sqrt(2)))
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def around(x, node, weights):
    rank = x.ndim - 1
    pads = [(0, 0), *zip(node.pads[:rank], node.pads[rank:])]
    return np.pad(x, pads, constant_values=node.value)


MAP, DEEP, SEQUENCE, VECTOR = (2, 7, 6), (4, 5, 5), (5, 6), (6,)
CONV = {"stride": (1, 1), "pads": (0, 0, 0, 0), "dilation": (1, 1), "groups": 1, "bias": True}
POOL = {"kernel": (2, 2), "stride": (2, 2), "pads": (0, 0, 0, 0), "ceil_mode": False}
MEAN = dict(POOL, count_include_pad=False)


def conv(shape, out, kernel, output, **changed):
    attributes = dict(CONV, out_channels=out, kernel=kernel, **changed)
    roles = {"weight": (out, shape[0] // attributes["groups"]) + kernel}
    if attributes["bias"]:
        roles["bias"] = (out,)
    return ("conv", [shape], (out,) + output, attributes, roles, convolved)


def layer(kind, function, given, output=None, roles=None, /, **attributes):
    shapes = given if isinstance(given, list) else [given]
    return (kind, shapes, output or shapes[0], attributes, roles or {}, function)


def linear(shape, out, bias=True):
    roles = {"weight": (out, shape[-1])}
    if bias:
        roles["bias"] = (out,)
    return layer(
        "linear",
        lambda x, node, w: x @ w["weight"].T + w.get("bias", 0),
        shape,
        shape[:-1] + (out,),
        roles,
        out_features=out,
        bias=bias,
        tied_to="",
    )


def attention(causal, bias):
    names = ("query", "key", "value", "output")
    roles = {name + "_weight": (6, 6) for name in names}
    if bias:
        roles.update({name + "_bias": (6,) for name in names})
    return layer("attention", attended, SEQUENCE, None, roles, heads=2, causal=causal, bias=bias)


#: kind, input shapes, shape, attributes, parameters by role, definition.
CASES = {
    "conv": conv(MAP, 3, (3, 2), (5, 5)),
    "conv, uneven pads": conv(MAP, 3, (3, 3), (8, 7), pads=(1, 2, 2, 1)),
    "conv, stride": conv(MAP, 3, (3, 3), (4, 3), pads=(1, 1, 1, 1), stride=(2, 2)),
    "conv, dilation": conv(MAP, 3, (3, 2), (3, 4), dilation=(2, 2), bias=False),
    "conv, groups": conv((4, 5, 5), 6, (3, 3), (3, 3), groups=2),
    "conv, depthwise": conv((4, 5, 5), 4, (3, 3), (5, 5), groups=4, pads=(1, 1, 1, 1)),
    "linear": linear(VECTOR, 4),
    "linear, of a sequence": linear(SEQUENCE, 4),
    "linear, no bias": linear(VECTOR, 4, bias=False),
    "layer_norm": layer(
        "layer_norm",
        lambda x, node, w: normalised(x, node, w, (-1,)),
        SEQUENCE,
        None,
        {"scale": (6,), "bias": (6,)},
        epsilon=1e-5,
    ),
    "lrn": layer("lrn", local_response, DEEP, size=3, alpha=0.5, beta=0.75, bias=2.0),
    "max_pool": layer("max_pool", pooled, MAP, (2, 3, 3), **POOL),
    "max_pool, overlapping": layer("max_pool", pooled, MAP, (2, 3, 2), **dict(POOL, kernel=(3, 3))),
    "max_pool, pads": layer(
        "max_pool", pooled, MAP, (2, 4, 3), **dict(POOL, kernel=(3, 3), pads=(1, 1, 1, 1))
    ),
    "max_pool, uneven pads": layer(
        "max_pool", pooled, MAP, (2, 4, 3), **dict(POOL, kernel=(3, 3), pads=(0, 1, 2, 0))
    ),
    "max_pool, rounded up": layer("max_pool", pooled, MAP, (2, 4, 3), **dict(POOL, ceil_mode=True)),
    "max_pool, a window left out": layer(
        "max_pool",
        pooled,
        (2, 4, 4),
        (2, 2, 2),
        kernel=(2, 2),
        stride=(3, 3),
        pads=(1, 1, 1, 1),
        ceil_mode=True,
    ),
    "average_pool": layer("average_pool", pooled, MAP, (2, 3, 3), **MEAN),
    "average_pool, pads": layer(
        "average_pool", pooled, MAP, (2, 4, 3), **dict(MEAN, kernel=(3, 3), pads=(1, 1, 1, 1))
    ),
    "average_pool, pads counted": layer(
        "average_pool",
        pooled,
        MAP,
        (2, 4, 3),
        **dict(MEAN, kernel=(3, 3), pads=(1, 1, 1, 1), count_include_pad=True),
    ),
    "average_pool, uneven pads counted": layer(
        "average_pool",
        pooled,
        MAP,
        (2, 4, 3),
        **dict(MEAN, kernel=(3, 3), pads=(0, 1, 2, 0), count_include_pad=True),
    ),
    "average_pool, rounded up": layer(
        "average_pool", pooled, MAP, (2, 4, 3), **dict(MEAN, ceil_mode=True)
    ),
    "average_pool, rounded up, pads counted": layer(
        "average_pool",
        pooled,
        MAP,
        (2, 4, 4),
        **dict(MEAN, kernel=(3, 3), pads=(1, 1, 1, 1), ceil_mode=True, count_include_pad=True),
    ),
    "global_average_pool": layer(
        "global_average_pool", lambda x, node, w: x.mean((2, 3), keepdims=True), MAP, (2, 1, 1)
    ),
    "relu": layer("relu", lambda x, node, w: np.maximum(x, 0), MAP),
    "relu6": layer("relu6", lambda x, node, w: np.clip(x, 0, 6), MAP),
    "tanh": layer("tanh", lambda x, node, w: np.tanh(x), MAP),
    "sigmoid": layer("sigmoid", lambda x, node, w: sigmoid(x), MAP),
    "hard_sigmoid": layer("hard_sigmoid", lambda x, node, w: np.clip(x + 3, 0, 6) / 6, MAP),
    "gelu": layer("gelu", gelu, VECTOR, approximate="none"),
    "gelu, tanh": layer("gelu", gelu, VECTOR, approximate="tanh"),
    "dropout, rate 0": layer("dropout", lambda x, node, w: x, MAP, rate=0.0),
    "add": layer("add", lambda x, y, node, w: x + y, [MAP, MAP]),
    "mul": layer("mul", lambda x, y, node, w: x * y, [MAP, MAP]),
    "mul, by channel": layer("mul", lambda x, y, node, w: x * y, [MAP, (2, 1, 1)], MAP),
    "concat": layer(
        "concat", lambda x, y, node, w: np.concatenate([x, y], 1), [MAP, MAP], (4, 7, 6), axis=1
    ),
    "concat, by width": layer(
        "concat", lambda x, y, node, w: np.concatenate([x, y], 3), [MAP, MAP], (2, 7, 12), axis=3
    ),
    "flatten": layer("flatten", lambda x, node, w: x.reshape(len(x), -1), MAP, (84,)),
    "reshape": layer(
        "reshape", lambda x, node, w: x.reshape(-1, 6, 14), MAP, (6, 14), shape=(6, 14)
    ),
    "transpose": layer(
        "transpose", lambda x, node, w: x.transpose(0, 2, 1), SEQUENCE, (6, 5), axes=(2, 1)
    ),
    "reduce_mean": layer("reduce_mean", lambda x, node, w: x.mean(1), SEQUENCE, (6,), axis=1),
    "select": layer("select", lambda x, node, w: x[:, :, 4], SEQUENCE, (5,), axis=2, index=4),
    "pad": layer("pad", around, MAP, (2, 9, 9), pads=(0, 1, 2, 0, 1, 1), value=0.5),
    "slice": layer(
        "slice",
        lambda x, node, w: x[:, :, 1:6:2, 0:5:3],
        MAP,
        (2, 3, 2),
        ranges=((0, 2, 1), (1, 6, 2), (0, 5, 3)),
    ),
    "gather": layer(
        "gather",
        lambda x, node, w: x[:, [1, 1, 4]],
        SEQUENCE,
        (3, 6),
        axis=1,
        indices=(1, 1, 4),
    ),
    "position_embedding": layer(
        "position_embedding", lambda x, node, w: x + w["weight"], SEQUENCE, None, {"weight": (5, 6)}
    ),
    "lstm": layer(
        "lstm",
        recurrent,
        SEQUENCE,
        (5, 3),
        {"input_weight": (12, 6), "recurrent_weight": (12, 3), "bias": (12,)},
        hidden=3,
    ),
    "lstm, one unit": layer(
        "lstm",
        recurrent,
        SEQUENCE,
        (5, 1),
        {"input_weight": (4, 6), "recurrent_weight": (4, 1), "bias": (4,)},
        hidden=1,
    ),
    "attention": attention(causal=False, bias=True),
    "attention, causal": attention(causal=True, bias=False),
    "batch_norm": layer(
        "batch_norm",
        lambda x, node, w: normalised(x, node, w, (0, 2, 3)),
        MAP,
        None,
        {"scale": (2,), "bias": (2,), "mean": (2,), "variance": (2,)},
        epsilon=1e-3,
        momentum=0.9,
    ),
    "batch_norm, of vectors": layer(
        "batch_norm",
        lambda x, node, w: normalised(x, node, w, (0,)),
        VECTOR,
        None,
        {"scale": (6,), "bias": (6,), "mean": (6,), "variance": (6,)},
        epsilon=1e-5,
        momentum=0.8,
    ),
}


#: What onnx.reference 1.15 computes otherwise than ONNX defines it.
REFERENCE_FAULTS = {
    "lrn": "it loops over as many channels as there are samples",
    "average_pool, rounded up, pads counted": "it counts what only rounding up reaches",
}


def node_of(name, inputs, case):
    kind, shapes, shape, attributes, roles, _ = case
    parameters = {
        role: Parameter(f"{name}.{role}", size, role not in ("mean", "variance"))
        for role, size in roles.items()
    }
    return Node(name, kind, attributes, inputs, tuple(shapes), shape, parameters)


def network(case, optimizer=PLAIN, loss=SMOOTH):
    """The layer, its second input by a ``tanh`` of a slice, and ten or fewer logits after it."""
    shapes = case[1]
    nodes = []
    inputs = ("input",)
    if len(shapes) > 1:
        source = "input"
        if shapes[1] != shapes[0]:
            nodes.append(
                node_of("means", ("input",), layer("global_average_pool", None, MAP, (2, 1, 1)))
            )
            source = "means"
        nodes.append(node_of("other", (source,), layer("tanh", None, shapes[1])))
        inputs = ("input", "other")
    nodes.append(node_of("layer", inputs, case))
    flat = int(np.prod(case[2]))
    nodes.append(
        node_of("flat", ("layer",), layer("reshape", None, case[2], (flat,), shape=(flat,)))
    )
    nodes.append(node_of("logits", ("flat",), linear((flat,), 3)))
    model = Model(Input("input", tuple(shapes[0]), "real"), tuple(nodes))
    return Workload("case", model, loss, optimizer)


def numbers(workload, seed=0):
    draw = np.random.RandomState(seed)
    weights = {
        name: (draw.standard_normal(each.shape) / 2).astype("float32")
        for name, each in workload.model.parameters.items()
    }
    for name in weights:
        if name.endswith("variance"):
            weights[name] = np.abs(weights[name]) + 0.5
    inputs = 2 * draw.standard_normal((3,) + workload.model.input.shape)
    return weights, inputs, draw.randint(0, 3, 3)


def build(workload, weights, dtype="float64", masks=None, seed=0):
    request = BuildRequest(workload, weights, dtype, "cpu", 3, masks=masks or {}, seed=seed)
    return adapter.dlb_build_model("theano", request)


def loss_of(model, inputs, labels, smoothing=0.0):
    logits = model.forward(inputs, training=True)["logits"]
    shares = logits - logits.max(-1, keepdims=True)
    shares = shares - np.log(np.exp(shares).sum(-1, keepdims=True))
    picked = np.take_along_axis(shares, labels[..., None], -1).mean()
    return -(1 - smoothing) * picked - smoothing * shares.mean()


# Each is compiled for seconds: the default run has one of each kind of layer.
@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.long] if ", " in name else []) for name in CASES],
)
def test_value_and_gradients(name, tmp_path):
    case, workload = CASES[name], network(CASES[name])
    weights, inputs, labels = numbers(workload)
    model = build(workload, weights)
    values = model.forward(inputs, training=True, layers=[n.name for n in workload.model.nodes])
    operands = [inputs] + [values["other"] for _ in case[1][1:]]
    node = next(each for each in workload.model.nodes if each.name == "layer")
    own = {role: weights[each.name].astype("float64") for role, each in node.parameters.items()}
    np.testing.assert_allclose(values["layer"], case[5](*operands, node, own), 1e-10, 1e-12)

    found = model.gradients(inputs, labels)
    np.testing.assert_allclose(found.loss, loss_of(model, inputs, labels), 1e-12)
    draw = np.random.RandomState(1)
    direction = draw.standard_normal(inputs.shape)
    step = 1e-6
    ends = [loss_of(model, inputs + sign * step * direction, labels) for sign in (1, -1)]
    assert (ends[0] - ends[1]) / (2 * step) == pytest.approx(
        (found.inputs * direction).sum(), rel=1e-5, abs=1e-8
    )
    before = model.weights()
    for each in workload.model.parameters.values():
        if each.trained:
            direction = draw.standard_normal(each.shape)
            ends = []
            for sign in (1, -1):
                model.load_weights({each.name: before[each.name] + sign * step * direction})
                ends.append(loss_of(model, inputs, labels))
            model.load_weights(before)
            assert (ends[0] - ends[1]) / (2 * step) == pytest.approx(
                (found.parameters[each.name] * direction).sum(), rel=1e-5, abs=1e-8
            )

    path = tmp_path / "model.onnx"
    adapter.export_onnx(model, path)
    onnx.checker.check_model(str(path), full_check=True)
    session = onnx.reference.ReferenceEvaluator(str(path))
    (logits,) = session.run(None, {"input": inputs})
    if name not in REFERENCE_FAULTS:  # attributes of ONNX are float32
        np.testing.assert_allclose(logits, model.forward(inputs)["logits"], 1e-6, 1e-6)


def test_every_kind_of_layer_has_a_case():
    covered = {case[0] for case in CASES.values()} | {"embedding"}  # test_training.py
    assert covered == set(adapter.layers)


def test_the_contract_is_kept_and_theano_not_imported():
    import subprocess

    code = "import sys, dlb_theano.plugin as p; p.adapter.describe(); assert 'theano' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
    assert "theano" in plugins_of(adapter, "theano").adapters


@pytest.mark.parametrize("kind", ["relu", "relu6", "max_pool"])
def test_gradient_at_zero_and_at_ties(kind):
    """0 at 0, and the whole of it to the first of equal values."""
    case = CASES[kind]
    workload = network(case)
    weights, inputs, labels = numbers(workload)
    model = build(workload, weights)
    found = model.gradients(np.zeros_like(inputs), labels).inputs
    if kind != "max_pool":
        assert not found.any()
        return
    assert found[:, :, :6:2, ::2].all()
    found[:, :, :6:2, ::2] = 0
    assert not found.any()
