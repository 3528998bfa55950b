"""Random models that hold together, as hypothesis strategies."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from dlb.errors import ShapeError, WorkloadError
from dlb_graph import workload as W
from dlb_graph.layers import Shape
from dlb_worker.masks import packed

from .models import CLASSES

__all__ = ["models"]

_SMALL = st.integers(1, 3)
_PAIR = st.tuples(_SMALL, _SMALL)
_PADS = st.tuples(*[st.integers(0, 2)] * 4)
_POOL = {
    "kernel": st.tuples(st.integers(2, 3), st.integers(2, 3)),
    "stride": _PAIR,
    "pads": st.tuples(*[st.integers(0, 1)] * 4),
    "ceil_mode": st.booleans(),
}
#: Not smaller: a channel that is nearly constant would have its rounding blown up.
_EPSILON = st.sampled_from([1e-3, 0.1])

#: Layers of one input, by the number of axes of a sample that they take.
_LAYERS: dict[int, list[st.SearchStrategy[W.Layer]]] = {
    3: [
        st.builds(
            W.Conv,
            # Eight or sixteen a library may keep together.
            out_channels=st.sampled_from([2, 4, 16]),
            kernel=_PAIR,
            stride=_PAIR,
            pads=_PADS,
            dilation=_PAIR,
            groups=st.sampled_from([1, 1, 2]),
            bias=st.booleans(),
        ),
        st.builds(
            W.ConvTranspose,
            out_channels=st.sampled_from([2, 4, 16]),
            kernel=_PAIR,
            stride=_PAIR,
            pads=st.tuples(*[st.integers(0, 1)] * 4),
            groups=st.sampled_from([1, 1, 2]),
            bias=st.booleans(),
        ),
        st.builds(W.MaxPool, **_POOL),
        st.builds(W.AveragePool, **_POOL, count_include_pad=st.booleans()),
        st.builds(W.BatchNorm, epsilon=_EPSILON, momentum=st.sampled_from([0.9, 0.3])),
        st.just(W.PReLU()),
        st.builds(W.GroupNorm, groups=st.sampled_from([2, 4]), epsilon=_EPSILON),
        st.builds(
            W.LRN,
            size=st.sampled_from([1, 3, 5]),
            alpha=st.sampled_from([1e-4, 0.5]),
            beta=st.sampled_from([0.75, 0.5]),
            bias=st.sampled_from([1.0, 2.0]),
        ),
        st.just(W.GlobalAveragePool()),
        st.builds(W.Transpose, axes=st.permutations([1, 2, 3]).map(tuple)),
        st.just(W.Flatten()),
    ],
    2: [
        st.builds(W.LSTM, hidden=_SMALL),
        st.builds(W.GRU, hidden=_SMALL, linear_before_reset=st.booleans()),
        st.builds(W.RNN, hidden=_SMALL, activation=st.sampled_from(["tanh", "relu"])),
        st.builds(
            W.Attention, heads=st.sampled_from([1, 2]), causal=st.booleans(), bias=st.booleans()
        ),
        st.just(W.Transpose(axes=(2, 1))),
        st.just(W.PositionEmbedding()),
        st.builds(W.ReduceMean, axis=st.sampled_from([1, 2])),
        st.builds(W.Select, axis=st.sampled_from([1, 2]), index=st.sampled_from([0, -1])),
        st.builds(W.LayerNorm, epsilon=_EPSILON),
        st.builds(W.RMSNorm, epsilon=_EPSILON),
        st.builds(W.Linear, out_features=_SMALL, bias=st.booleans()),
    ],
    1: [
        st.builds(W.Linear, out_features=st.integers(1, 6), bias=st.booleans()),
        st.builds(W.BatchNorm, epsilon=_EPSILON),
        st.builds(W.LayerNorm, epsilon=_EPSILON),
        st.builds(W.RMSNorm, epsilon=_EPSILON),
        st.just(W.Flatten()),
    ],
}
_ANYWHERE: list[st.SearchStrategy[W.Layer]] = [
    st.just(W.ReLU()),
    st.just(W.ReLU6()),
    st.just(W.Tanh()),
    st.just(W.Sigmoid()),
    st.just(W.HardSigmoid()),
    st.builds(W.GELU, approximate=st.sampled_from(["none", "tanh"])),
    st.just(W.Elementwise(function="clip", min=-0.5, max=1.25)),
    st.just(W.Elementwise(function="leaky_relu", alpha=0.2)),
    st.builds(W.Elementwise, function=st.sampled_from(["abs", "sin", "softplus", "softsign"])),
    st.just(W.PReLU(shared=True)),
    st.just(W.Dropout(rate=0.0)),
]


@st.composite
def models(draw: st.DrawFn, types: frozenset[str], *, shared: bool = False) -> W.Model:
    """A model of up to eight layers of these types, with branches, that ends in logits.

    Args:
        shared: whether layers may be used several times.
    """
    shape = draw(st.sampled_from([(4, 7, 6), (4, 7, 6), (2, 5, 8), (4, 3), (6,)]))
    given = W.Input(shape=shape)
    nodes: list[W.Node] = []
    shapes: dict[str, Shape] = {"input": shape}
    if len(shape) == 2 and "embedding" in types and draw(st.booleans()):
        given = W.Input(shape=shape[:1], kind="index")
        table = W.Embedding(entries=draw(st.integers(2, 9)), features=shape[1])
        nodes.append(W.Node(name="table", layer=table))
        shapes = {"table": shape}
    for place in range(draw(st.integers(1, 8))):
        node = draw(_node(shapes, f"n{place}", types))
        own = [each for each in nodes if not each.weights_of]
        if shared and own and draw(st.integers(0, 2)) == 0:
            again = draw(st.sampled_from(own))
            reads = (list(shapes)[-1],)
            node = W.Node(name=node.name, layer=again.layer, inputs=reads, weights_of=again.name)
        grown = _shapes(given, [*nodes, node])
        if grown is not None:
            nodes.append(node)
            shapes = {name: grown[name] for name in [*shapes, node.name]}
    reached = list(shapes)[-1]
    if len(shapes[reached]) == 3:
        nodes.append(W.Node(name="flat", layer=W.Flatten(), inputs=(reached,)))
        reached = "flat"
    nodes.append(W.Node(name="logits", layer=W.Linear(out_features=CLASSES), inputs=(reached,)))
    return W.Model(input=given, nodes=tuple(nodes))


@st.composite
def _node(draw: st.DrawFn, shapes: dict[str, Shape], name: str, types: frozenset[str]) -> W.Node:
    """A layer of the newest value (so that nothing is left unread), or of it and an older one."""
    newest, older = list(shapes)[-1], draw(st.sampled_from(list(shapes)))
    rank = len(shapes[newest])
    joins: list[W.Layer] = [
        W.Add(),
        W.Mul(),
        W.MatMul(),
        *(W.Concat(axis=axis) for axis in range(1, rank + 1)),
    ]
    if draw(st.integers(0, 3)) == 0:
        fitting = [layer for layer in joins if W.type_name(layer) in types]
        if fitting:
            layer = draw(st.sampled_from(fitting))
            return W.Node(
                name=name, layer=layer, inputs=tuple(draw(st.permutations([newest, older])))
            )
    layer = draw(st.one_of(*_LAYERS[rank], *_ANYWHERE, *_of(shapes[newest])))
    if W.type_name(layer) not in types:
        layer = W.ReLU()
    return W.Node(name=name, layer=layer, inputs=(newest,))


def _sizes(shape: Shape) -> st.SearchStrategy[Shape]:
    """Of numbers that all samples share: for each axis its size, or 1."""
    return st.tuples(*(st.sampled_from([1, size]) for size in shape))


def _mask(sizes: Shape) -> st.SearchStrategy[W.Layer]:
    """Of these sizes; one that keeps all or nothing is refused, and so is left out."""
    places = st.lists(st.booleans(), min_size=_size(sizes), max_size=_size(sizes))
    kept = places.map(lambda each: packed(np.array(each)))
    return st.builds(
        W.Mask, sizes=st.just(sizes), kept=kept, value=st.sampled_from([0.0, 0.5, -2.0])
    )


def _of(shape: Shape) -> list[st.SearchStrategy[W.Layer]]:
    """Layers whose attributes are as many as the axes of a shape, or of its sizes."""
    bounds = [
        st.tuples(st.integers(-size, size - 1), st.integers(1, size), st.integers(1, 2))
        for size in shape
    ]
    places = [(axis, st.integers(-size, size - 1)) for axis, size in enumerate(shape, start=1)]
    return [
        st.builds(W.Reshape, shape=st.sampled_from(_split(shape))),
        st.builds(W.Scale, sizes=_sizes(shape)),
        st.builds(W.Shift, sizes=_sizes(shape)),
        _sizes(shape).flatmap(_mask),
        st.builds(
            W.Resize,
            sizes=st.tuples(*(st.integers(1, size + 3) for size in shape)),
            mode=st.sampled_from(["linear", "cubic"]),
            coordinates=st.sampled_from(["half_pixel", "align_corners", "asymmetric"]),
        ),
        st.builds(
            W.Pad,
            pads=st.tuples(*[st.integers(0, 2)] * (2 * len(shape))),
            value=st.sampled_from([0.0, 0.0, 0.5]),
        ),
        st.tuples(*bounds).map(
            lambda drawn: W.Slice(
                starts=tuple(start for start, _, _ in drawn),
                ends=tuple(end for _, end, _ in drawn),
                steps=tuple(step for _, _, step in drawn),
            )
        ),
        *(
            st.builds(
                W.Gather,
                axis=st.just(axis),
                indices=st.lists(place, min_size=1, max_size=4).map(tuple),
            )
            for axis, place in places
        ),
    ]


def _split(shape: Shape) -> list[Shape]:
    """Other shapes of as many numbers: an axis made of two, or two of one that is even."""
    joined = [(*shape[:k], shape[k] * shape[k + 1], *shape[k + 2 :]) for k in range(len(shape) - 1)]
    halved = [
        (*shape[:k], 2, size // 2, *shape[k + 1 :])
        for k, size in enumerate(shape)
        if size % 2 == 0 and len(shape) < 3
    ]
    return [*joined, *halved, shape]


def _shapes(given: W.Input, nodes: list[W.Node]) -> dict[str, Shape] | None:
    """Shapes of a model that holds together and stays small, or None."""
    try:
        found = W.infer_shapes(W.Model(input=given, nodes=tuple(nodes)))
    except (ShapeError, WorkloadError):
        return None
    return found if max(map(_size, found.values())) <= 1000 else None


def _size(shape: Shape) -> int:
    size = 1
    for each in shape:
        size *= each
    return size
