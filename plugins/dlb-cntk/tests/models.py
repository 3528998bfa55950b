"""Small resolved models, as the core would send them. Every layer's shape is written out."""

import math

import numpy as np

from dlb_cntk.plugin import adapter
from dlb_worker.contract import BuildRequest
from dlb_worker.model import Input, Loss, Model, Node, Optimizer, Parameter, Workload

CLASSES = 5
SGD = {
    "learning_rate": 0.1,
    "momentum": 0.0,
    "nesterov": False,
    "weight_decay": 0.0,
    "weight_decay_on": "all",
    "clip_norm": 0.0,
}
ADAM = {
    "learning_rate": 0.01,
    "beta1": 0.9,
    "beta2": 0.999,
    "epsilon": 1e-8,
    "weight_decay": 0.0,
    "weight_decay_on": "all",
    "clip_norm": 0.0,
}


def node(name, kind, inputs, input_shapes, shape, parameters=None, states=None, **attributes):
    """A layer; ``parameters`` and ``states`` are shapes by role."""
    held = {}
    for trained, shapes in ((True, parameters or {}), (False, states or {})):
        for role, each in shapes.items():
            held[role] = Parameter(f"{name}.{role}", each, trained)
    return Node(name, kind, attributes, tuple(inputs), tuple(input_shapes), tuple(shape), held)


def linear(name, source, features, out, bias=True):
    shapes = {"weight": (out, features[-1])}
    if bias:
        shapes["bias"] = (out,)
    shape = features[:-1] + (out,)
    return node(
        name, "linear", [source], [features], shape, shapes, out_features=out, bias=bias, tied_to=""
    )


def conv(name, source, shape, out, kernel, **attributes):
    given = {"stride": (1, 1), "pads": (0, 0, 0, 0), "dilation": (1, 1), "groups": 1, "bias": True}
    given.update(attributes)
    sizes = window_sizes(shape, kernel, given["stride"], given["pads"])
    shapes = {"weight": (out, shape[0] // given["groups"]) + kernel}
    if given["bias"]:
        shapes["bias"] = (out,)
    return node(
        name,
        "conv",
        [source],
        [shape],
        (out,) + sizes,
        shapes,
        kernel=kernel,
        out_channels=out,
        **given,
    )


def pool(name, kind, source, shape, kernel, stride, **attributes):
    given = {"pads": (0, 0, 0, 0), "ceil_mode": False}
    given.update({"count_include_pad": False} if kind == "average_pool" else {})
    given.update(attributes)
    sizes = window_sizes(shape, kernel, stride, given["pads"], given["ceil_mode"])
    return node(
        name, kind, [source], [shape], shape[:1] + sizes, kernel=kernel, stride=stride, **given
    )


def window_sizes(shape, kernel, stride, pads, up=False):
    found = []
    for axis in range(2):
        span = shape[1 + axis] + pads[axis] + pads[2 + axis] - kernel[axis]
        count = (-(-span // stride[axis]) if up else span // stride[axis]) + 1
        # A last window that starts past the input and its first padding is dropped.
        found.append(count - (up and (count - 1) * stride[axis] >= shape[1 + axis] + pads[axis]))
    return tuple(found)


def classifier(*nodes, **given):
    """The nodes, flattened where they end in a map, and a linear layer for logits."""
    shape = nodes[-1].shape
    tail = []
    if len(shape) == 3:
        flat = (int(np.prod(shape)),)
        tail = [node("flat", "flatten", [nodes[-1].name], [shape], flat)]
        shape = flat
    tail.append(linear("logits", (list(nodes) + tail)[-1].name, shape, CLASSES))
    kind = given.get("kind", "real")
    return Model(Input("input", nodes[0].input_shapes[0], kind), tuple(nodes) + tuple(tail))


def workload(model, smoothing=0.0, kind="sgd", **optimizer):
    numbers = dict(SGD if kind == "sgd" else ADAM)
    numbers.update(optimizer)
    loss = Loss("softmax_cross_entropy", {"label_smoothing": smoothing})
    return Workload("test", model, loss, Optimizer(kind, numbers))


def random_weights(model, seed=0):
    """Every parameter and state, float32, none of them at a default."""
    random = np.random.RandomState(seed)
    found = {}
    for name, each in model.parameters.items():
        normal = random.standard_normal(each.shape)
        if name.split(".")[1] in ("scale", "variance"):
            normal = 0.5 + random.random_sample(each.shape) * 1.5
        elif len(each.shape) > 1:
            normal = normal / math.sqrt(np.prod(each.shape[1:]))
        found[name] = normal.astype(np.float32)
    return found


def random_batch(model, samples=4, seed=1):
    random = np.random.RandomState(seed)
    shape = (samples,) + tuple(model.input.shape)
    if model.input.kind == "index":
        entries = min(each.entries for each in model.nodes if each.kind == "embedding")
        inputs = random.randint(0, entries, shape)
    else:
        inputs = random.standard_normal(shape).astype(np.float32).astype(np.float64)
    logits = model.nodes[-1].shape
    return inputs, random.randint(0, logits[-1], (samples,) + tuple(logits[:-1]))


def build(work, weights, dtype="float64", **given):
    request = BuildRequest(
        workload=work, weights=weights, dtype=dtype, device="cpu", batch_size=4, **given
    )
    return adapter.dlb_build_model("cntk", request)


def distance(found, truth):
    """Relative L2 distance."""
    return np.linalg.norm(np.asarray(found, np.float64) - truth) / max(
        np.linalg.norm(truth), 1e-300
    )
