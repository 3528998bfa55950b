"""What the layers mean, in NumPy and float64: docs/reference/workloads.md, each as directly as it is written."""

import numpy as np


def conv(node, own, x):
    windows = _windows(_padded(x, node.pads, 0.0), node)
    outputs = np.empty((len(x),) + tuple(node.shape))
    per_group = node.out_channels // node.groups
    channels = node.input_shape[0] // node.groups
    for out in range(node.out_channels):
        first = out // per_group * channels
        part = windows[:, first : first + channels]
        outputs[:, out] = np.einsum("nchwij,cij->nhw", part, own["weight"][out])
    return outputs + own["bias"][:, None, None] if node.bias else outputs


def linear(node, own, x):
    outputs = x.dot(own["weight"].T)
    return outputs + own["bias"] if node.bias else outputs


def batch_norm(node, own, x, training):
    axes = (0,) + tuple(range(2, x.ndim))
    shape = (1, -1) + (1,) * (x.ndim - 2)
    mean, variance = (own[name].reshape(shape) for name in ("mean", "variance"))
    if training:
        mean, variance = x.mean(axes, keepdims=True), x.var(axes, keepdims=True)
    normal = (x - mean) / np.sqrt(variance + node.epsilon)
    return normal * own["scale"].reshape(shape) + own["bias"].reshape(shape)


def layer_norm(node, own, x):
    normal = x - x.mean(-1, keepdims=True)
    normal = normal / np.sqrt(x.var(-1, keepdims=True) + node.epsilon)
    return normal * own["scale"] + own["bias"]


def lrn(node, own, x):
    reach = node.size // 2
    squares = np.pad(x**2, ((0, 0), (reach, reach), (0, 0), (0, 0)), "constant")
    total = sum(squares[:, first : first + x.shape[1]] for first in range(node.size))
    return x / (node.attributes["bias"] + node.alpha / node.size * total) ** node.beta


def max_pool(node, own, x):
    return _pooled(node, x, lambda part, row, column: part.max((2, 3)))


def average_pool(node, own, x):
    def mean(part, row, column):
        count = part.shape[2] * part.shape[3]
        if node.count_include_pad:
            count = 1
            for axis, start in ((0, row), (1, column)):
                last = node.input_shape[1 + axis] + node.pads[2 + axis]
                stop = min(start + node.kernel[axis], last)
                count *= stop - max(start, -node.pads[axis])
        return part.sum((2, 3)) / count

    return _pooled(node, x, mean)


def _pooled(node, x, reduce):
    """Each window of the input's own elements, without padding."""
    outputs = np.empty((len(x),) + tuple(node.shape))
    for row in range(node.shape[1]):
        for column in range(node.shape[2]):
            top = row * node.stride[0] - node.pads[0]
            left = column * node.stride[1] - node.pads[1]
            part = x[:, :, max(top, 0) : top + node.kernel[0], max(left, 0) : left + node.kernel[1]]
            outputs[:, :, row, column] = reduce(part, top, left)
    return outputs


def _padded(x, pads, value):
    top, left, bottom, right = pads
    around = ((0, 0), (0, 0), (top, bottom), (left, right))
    return np.pad(x, around, "constant", constant_values=value)


def _windows(x, node):
    """[N, C, H', W', kernel height, kernel width]."""
    rows, columns = (
        np.arange(count)[:, None] * stride + np.arange(size)
        for count, stride, size in zip(node.shape[1:], node.stride, node.kernel)
    )
    return x[:, :, rows[:, None, :, None], columns[None, :, None, :]]


def pad(node, own, x):
    rank = len(node.input_shape)
    around = [(0, 0)] + list(zip(node.pads[:rank], node.pads[rank:]))
    return np.pad(x, around, "constant", constant_values=node.value)


def embedding(node, own, x):
    return own["weight"][x]


#: By layer kind: the value, of the node, its parameters, and its inputs.
LAYERS = {
    "conv": conv,
    "linear": linear,
    "layer_norm": layer_norm,
    "lrn": lrn,
    "max_pool": max_pool,
    "average_pool": average_pool,
    "global_average_pool": lambda node, own, x: x.mean((2, 3), keepdims=True),
    "relu": lambda node, own, x: np.maximum(x, 0),
    "relu6": lambda node, own, x: np.clip(x, 0, 6),
    "tanh": lambda node, own, x: np.tanh(x),
    "sigmoid": lambda node, own, x: 1 / (1 + np.exp(-x)),
    "hard_sigmoid": lambda node, own, x: np.clip(x + 3, 0, 6) / 6,
    "dropout": lambda node, own, x: x,
    "add": lambda node, own, first, second: first + second,
    "mul": lambda node, own, first, second: first * second,
    "concat": lambda node, own, *inputs: np.concatenate(inputs, node.axis),
    "flatten": lambda node, own, x: x.reshape(len(x), -1),
    "reshape": lambda node, own, x: x.reshape((len(x),) + tuple(node.attributes["shape"])),
    "transpose": lambda node, own, x: x.transpose((0,) + tuple(node.axes)),
    "reduce_mean": lambda node, own, x: x.mean(node.axis),
    "select": lambda node, own, x: x.take(node.index, node.axis),
    "pad": pad,
    "slice": lambda node, own, x: x[(slice(None),) + tuple(slice(*each) for each in node.ranges)],
    "gather": lambda node, own, x: x.take(node.indices, node.axis),
    "embedding": embedding,
    "position_embedding": lambda node, own, x: x + own["weight"],
}


def values(model, weights, inputs, training=False):
    """Every layer's value by name."""
    found = {model.input.name: inputs}
    for node in model.nodes:
        own = {role: weights[each.name] for role, each in node.parameters.items()}
        if node.tied_to:
            own["weight"] = weights[node.tied_to + ".weight"]
        given = [found[name] for name in node.inputs]
        if node.kind == "batch_norm":
            found[node.name] = batch_norm(node, own, given[0], training)
        else:
            found[node.name] = LAYERS[node.kind](node, own, *given)
    return found


def mean_loss(logits, labels, smoothing=0.0):
    """Mean softmax cross-entropy over samples and time steps."""
    shifted = logits - logits.max(-1, keepdims=True)
    log_softmax = shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))
    chosen = np.take_along_axis(log_softmax, labels[..., None], -1)[..., 0]
    return -np.mean((1 - smoothing) * chosen + smoothing * log_softmax.mean(-1))
