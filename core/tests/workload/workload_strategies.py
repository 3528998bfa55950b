"""Random workloads that hold together: each layer is drawn to fit the shape that reaches it."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from dlb_graph import workload as W

__all__ = ["models", "workloads"]

small = st.integers(1, 4)
initializers = st.sampled_from(["zeros", "ones", "glorot_uniform", "he_normal", "lecun_uniform"])
#: Text as people write it: any characters, quotes and backslashes too.
texts = st.text(st.characters(exclude_categories=("Cs",)), max_size=20)


def finite(least: float, most: float) -> Any:
    return st.floats(least, most, allow_nan=False)


def maps_layers(channels: int, size: int) -> Any:
    """A layer that [channels, size, size] can go through."""
    windows = st.integers(1, min(3, size)).flatmap(
        lambda kernel: st.builds(
            dict,
            kernel=st.just((kernel, kernel)),
            stride=st.tuples(small, small),
            pads=st.sampled_from([(0, 0, 0, 0), (kernel - 1,) * 4, (0, 0, kernel - 1, 0)]),
        )
    )
    return st.one_of(
        st.tuples(windows, small, st.booleans(), initializers).map(
            lambda drawn: W.Conv(out_channels=drawn[1], bias=drawn[2], init=drawn[3], **drawn[0])
        ),
        windows.map(lambda window: W.MaxPool(**window)),
        st.tuples(windows, st.booleans(), st.booleans()).map(
            lambda drawn: W.AveragePool(count_include_pad=drawn[1], ceil_mode=drawn[2], **drawn[0])
        ),
        st.builds(W.BatchNorm, epsilon=finite(1e-8, 1e-2), momentum=finite(0, 1)),
        st.builds(W.LRN, size=st.sampled_from([1, 3, 5]), alpha=finite(0, 1)),
        st.sampled_from([W.ReLU(), W.ReLU6(), W.Tanh(), W.Sigmoid(), W.HardSigmoid()]),
        st.builds(W.Dropout, rate=finite(0, 0.9)),
    )


@st.composite
def models(draw: Any) -> W.Model:
    """Maps through a few layers, a sum over a branch, then flatten and linear."""
    shape = (draw(small), *(draw(st.integers(4, 9)),) * 2)
    source = W.Input(name=draw(st.sampled_from(["input", "image"])), shape=shape)
    nodes: list[W.Node] = []
    for number in range(draw(st.integers(0, 4))):
        fitting = W.infer_shapes(W.Model(input=source, nodes=tuple(nodes))) if nodes else {}
        channels, height, width = list(fitting.values())[-1] if fitting else shape
        layer = draw(maps_layers(channels, min(height, width)))
        nodes.append(W.Node(name=f"layer{number}", layer=layer))
    if nodes and draw(st.booleans()):
        last = nodes[-1].name
        nodes.append(W.Node(name="act", layer=W.Tanh(), inputs=(last,)))
        nodes.append(W.Node(name="sum", layer=W.Add(), inputs=(last, "act")))
    nodes.append(W.Node(name="flat", layer=W.Flatten()))
    classes = draw(st.integers(2, 4))
    nodes.append(W.Node(name="out", layer=W.Linear(out_features=classes)))
    return W.Model(input=source, nodes=tuple(nodes))


optimizers = st.one_of(
    st.builds(
        W.SGD,
        learning_rate=finite(1e-6, 1),
        momentum=finite(0, 0.99),
        nesterov=st.booleans(),
        weight_decay=finite(0, 1),
        weight_decay_on=st.sampled_from(["all", "weights"]),
    ),
    st.builds(W.Adam, learning_rate=finite(1e-6, 1), epsilon=finite(1e-12, 1e-3)),
    st.builds(
        W.RMSprop,
        learning_rate=finite(1e-6, 1),
        rho=finite(0, 0.99),
        epsilon_place=st.sampled_from(["outside", "inside"]),
    ),
    st.builds(W.Adagrad, initial_accumulator=finite(0, 1)),
)
losses = st.one_of(
    st.builds(
        W.SoftmaxCrossEntropy,
        label_smoothing=finite(0, 0.9),
        ignore_index=st.none() | st.integers(-100, 255),
    ),
    st.sampled_from([W.BinaryCrossEntropy(), W.SquaredError(), W.AbsoluteError()]),
    st.builds(W.Huber, delta=finite(1e-3, 1e3)),
)
schedules = st.one_of(
    st.just(W.Constant()),
    st.builds(
        W.Step,
        milestones=st.lists(st.integers(0, 10**6), max_size=4).map(lambda s: tuple(sorted(s))),
        gamma=finite(1e-3, 1),
    ),
)


@st.composite
def workloads(draw: Any) -> W.Workload:
    channels, model = draw(st.integers(1, 3)), draw(models())
    augmentation = W.Augmentation()
    if model.input.kind == "real" and len(model.input.shape) == 3:
        pads = st.integers(0, min(model.input.shape[1:]) - 1)
        areas = st.tuples(finite(0.01, 0.5), finite(0.5, 1))
        augmentation = draw(st.builds(W.Augmentation, area=areas, pad=pads, flip=st.booleans()))
    return W.Workload(
        name=draw(texts),
        title=draw(texts),
        source=draw(texts),
        batch_size=draw(st.integers(1, 10**6)),
        epochs=draw(st.integers(1, 1000)),
        data=W.Data(
            name=draw(texts),
            mean=draw(st.tuples(*[finite(-1, 1)] * channels)),
            std=draw(st.tuples(*[finite(1e-3, 10)] * channels)),
            augmentation=augmentation,
        ),
        loss=draw(losses),
        optimizer=draw(optimizers),
        schedule=draw(schedules),
        model=model,
    )
