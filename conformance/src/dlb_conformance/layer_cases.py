"""A table of models around each layer type, with attributes that defaults and symmetry hide."""

from __future__ import annotations

from dlb_graph import workload as W

from .models import CLASSES, chain, classifier, graph
from .norm_cases import GROUP_NORM, RMS_NORM
from .primitive_cases import (
    BINARY,
    ELEMENTWISE,
    GATHER_ELEMENTS,
    MANY_AXES,
    MASK,
    MATMUL,
    REDUCE,
    RESIZE,
    SCALE,
    SHIFT,
    SOFTMAX,
    TOP_K,
    WHERE,
)
from .slope_cases import PRELU
from .window_cases import FILM, IMAGE, WINDOWS

__all__ = ["BY_LAYER", "CASES", "EVERY_LAYER", "SHARED"]

_BATCH_NORM = {
    "batch_norm-of-maps": classifier(IMAGE, W.BatchNorm()),
    "batch_norm-of-maps-odd-numbers": classifier(IMAGE, W.BatchNorm(epsilon=0.03, momentum=0.7)),
    "batch_norm-of-films": classifier(FILM, W.BatchNorm(epsilon=0.03, momentum=0.7)),
    "batch_norm-of-features": chain((6,), W.BatchNorm(), W.Linear(out_features=CLASSES)),
    "batch_norm-of-features-odd-numbers": chain(
        (6,), W.BatchNorm(epsilon=0.2, momentum=0.25), W.Linear(out_features=CLASSES)
    ),
    "batch_norm-between-conv-and-relu": classifier(
        IMAGE, W.Conv(out_channels=4, kernel=(3, 3), bias=False), W.BatchNorm(), W.ReLU()
    ),
}

_LAYER_NORM = {
    "layer_norm-of-features": chain((6,), W.LayerNorm(), W.Linear(out_features=CLASSES)),
    "layer_norm-of-features-odd-numbers": chain(
        (6,), W.LayerNorm(epsilon=0.2), W.Linear(out_features=CLASSES)
    ),
    "layer_norm-of-a-sequence": chain(
        (4, 6), W.LayerNorm(epsilon=1e-6), W.Linear(out_features=CLASSES)
    ),
    "layer_norm-as-logits": chain((4, CLASSES), W.LayerNorm(epsilon=0.03)),
    "layer_norm-after-flatten": classifier(
        IMAGE, W.Conv(out_channels=4, kernel=(3, 3)), W.Flatten(), W.LayerNorm()
    ),
    "layer_norm-in-a-residual": graph(
        (4, 6),
        ("norm", W.LayerNorm(), ("input",)),
        ("hidden", W.Linear(out_features=6), ("norm",)),
        ("sum", W.Add(), ("hidden", "input")),
        ("last_norm", W.LayerNorm(epsilon=1e-3), ("sum",)),
        ("logits", W.Linear(out_features=CLASSES), ("last_norm",)),
    ),
}

_LRN = {
    "lrn-of-3": classifier((7, 4, 3), W.LRN(size=3, alpha=0.4, beta=0.6, bias=1.7)),
    "lrn-of-5": classifier((7, 4, 3), W.LRN(size=5, alpha=0.9, beta=0.75, bias=2.0)),
    "lrn-wider-than-the-channels": classifier((3, 4, 3), W.LRN(size=5, alpha=0.9)),
    "lrn-of-alexnet": classifier((7, 4, 3), W.LRN(size=5, alpha=1e-4, beta=0.75, bias=1.0)),
    # Eight channels, for a library may keep so many in a layout of its own.
    "lrn-between-convolutions": classifier(
        (3, 6, 5),
        W.Conv(out_channels=8, kernel=(3, 3)),
        W.LRN(size=5, alpha=0.9),
        W.Conv(out_channels=8, kernel=(2, 2)),
    ),
}

_LINEAR = {
    "linear": chain((6,), W.Linear(out_features=CLASSES)),
    "linear-without-bias": chain((6,), W.Linear(out_features=CLASSES, bias=False)),
    "linear-of-a-sequence": chain((4, 6), W.Linear(out_features=CLASSES)),
    "linear-of-a-sequence-without-bias": chain((4, 6), W.Linear(out_features=CLASSES, bias=False)),
}


def _activation(layer: W.Layer) -> dict[str, W.Model]:
    """An activation of features, of maps and of a sequence."""
    kind, logits = W.type_name(layer), W.Linear(out_features=CLASSES)
    return {
        kind: chain((9,), layer, logits),
        f"{kind}-of-maps": classifier(IMAGE, layer),
        f"{kind}-of-a-sequence": chain((4, 6), layer, logits),
    }


_GELU = {
    **_activation(W.GELU()),
    **{
        f"gelu-by-tanh{name.removeprefix('gelu')}": model
        for name, model in _activation(W.GELU(approximate="tanh")).items()
    },
}


def _bounded(layer: W.Layer) -> dict[str, W.Model]:
    """An activation that keeps values within bounds. Those of tests are about 1; eight times as
    large, some of them are beyond 6."""
    kind = W.type_name(layer)
    return _activation(layer) | {
        f"{kind}-of-large-{what}": graph(
            shape,
            ("double", W.Add(), ("input", "input")),
            ("fourfold", W.Add(), ("double", "double")),
            ("eightfold", W.Add(), ("fourfold", "fourfold")),
            (kind, layer, ("eightfold",)),
            ("flat", W.Flatten(), (kind,)),
            ("logits", W.Linear(out_features=CLASSES), ("flat",)),
        )
        for what, shape in (("features", (9,)), ("maps", IMAGE))
    }


#: What is added, bounded and divided by is not to be mixed up with what other layers add and scale by.
_HARD_SIGMOID = {
    "hard_sigmoid-between-layers": graph(
        (3, 6, 5),
        ("conv", W.Conv(out_channels=4, kernel=(2, 2)), ("input",)),
        ("after_conv", W.HardSigmoid(), ("conv",)),
        ("again", W.HardSigmoid(), ("after_conv",)),
        ("norm", W.BatchNorm(), ("again",)),
        ("after_norm", W.HardSigmoid(), ("norm",)),
        ("product", W.Mul(), ("after_norm", "conv")),
        ("next_norm", W.BatchNorm(), ("product",)),
        ("swish", W.HardSigmoid(), ("next_norm",)),
        ("swished", W.Mul(), ("swish", "next_norm")),
        ("pooled", W.AveragePool(kernel=(2, 2), stride=(1, 1), pads=(1, 0, 0, 0)), ("swished",)),
        ("after_pool", W.HardSigmoid(), ("pooled",)),
        ("flat", W.Flatten(), ("after_pool",)),
        ("hidden", W.Linear(out_features=6), ("flat",)),
        ("after_linear", W.HardSigmoid(), ("hidden",)),
        ("gelu", W.GELU(), ("after_linear",)),
        ("after_gelu", W.HardSigmoid(), ("gelu",)),
        ("logits", W.Linear(out_features=CLASSES), ("after_gelu",)),
    ),
}

_DROPOUT = {"dropout-at-rate-0": chain((9,), W.Dropout(rate=0.0), W.Linear(out_features=CLASSES))}

_FLATTEN = {
    "flatten-the-input": chain((2, 3, 4), W.Flatten(), W.Linear(out_features=CLASSES)),
    "flatten-dropout-linear": chain(
        (2, 5, 4),
        W.Conv(out_channels=3, kernel=(2, 2)),
        W.Flatten(),
        W.Dropout(rate=0.0),
        W.Linear(out_features=CLASSES),
    ),
    "flatten-relu-linear": chain(
        (2, 5, 4),
        W.Conv(out_channels=3, kernel=(2, 2)),
        W.Flatten(),
        W.ReLU(),
        W.Linear(out_features=CLASSES),
    ),
    "flatten-batch_norm-linear": chain(
        (2, 3, 2),
        W.Conv(out_channels=3, kernel=(2, 1)),
        W.Flatten(),
        W.BatchNorm(),
        W.Linear(out_features=CLASSES),
    ),
    "flatten-flatten-linear": chain(
        (2, 5, 4), W.Flatten(), W.Flatten(), W.Linear(out_features=CLASSES)
    ),
    "logits-straight-from-a-flatten": chain(
        (2, 2, 4), W.Conv(out_channels=3, kernel=(1, 2)), W.Flatten()
    ),
    "two-readers-of-one-flatten": graph(
        (2, 4, 3),
        ("flat", W.Flatten(), ("input",)),
        ("left", W.Linear(out_features=CLASSES), ("flat",)),
        ("squashed", W.Tanh(), ("flat",)),
        ("right", W.Linear(out_features=CLASSES), ("squashed",)),
        ("sum", W.Add(), ("left", "right")),
    ),
    "two-flattens-joined": graph(
        (2, 4, 3),
        ("conv", W.Conv(out_channels=3, kernel=(2, 2)), ("input",)),
        ("one", W.Flatten(), ("conv",)),
        ("other", W.Flatten(), ("input",)),
        ("both", W.Concat(axis=1), ("one", "other")),
        ("logits", W.Linear(out_features=CLASSES), ("both",)),
    ),
    "two-flattens-added": graph(
        (3, 4, 3),
        ("conv", W.Conv(out_channels=3, kernel=(1, 1)), ("input",)),
        ("one", W.Flatten(), ("conv",)),
        ("other", W.Flatten(), ("input",)),
        ("sum", W.Add(), ("one", "other")),
        ("logits", W.Linear(out_features=CLASSES), ("sum",)),
    ),
}


def _joined(axis: int) -> W.Model:
    """Two convolutions of the input whose maps differ along one axis."""
    channels, kernel = (2, (2, 2)), [(1, 1), (1, 1), (2, 1), (1, 2)][axis]
    other = 3 if axis == 1 else channels[0]
    return graph(
        (2, 4, 3),
        ("left", W.Conv(out_channels=channels[0], kernel=(1, 1)), ("input",)),
        ("right", W.Conv(out_channels=other, kernel=kernel), ("input",)),
        ("both", W.Concat(axis=axis), ("left", "right")),
        ("flat", W.Flatten(), ("both",)),
        ("logits", W.Linear(out_features=CLASSES), ("flat",)),
    )


_MUL = {
    "mul-of-features": graph(
        (6,),
        ("one", W.Linear(out_features=5), ("input",)),
        ("other", W.Linear(out_features=5, bias=False), ("input",)),
        ("product", W.Mul(), ("one", "other")),
        ("logits", W.Linear(out_features=CLASSES), ("product",)),
    ),
    "mul-of-a-value-and-itself": graph(
        (6,),
        ("square", W.Mul(), ("input", "input")),
        ("logits", W.Linear(out_features=CLASSES), ("square",)),
    ),
    "mul-of-a-sequence": graph(
        (4, 6),
        ("hidden", W.Linear(out_features=5), ("input",)),
        ("gate", W.Sigmoid(), ("hidden",)),
        ("silu", W.Mul(), ("hidden", "gate")),
        ("logits", W.Linear(out_features=CLASSES), ("silu",)),
    ),
    "mul-of-maps": graph(
        (3, 5, 4),
        ("conv", W.Conv(out_channels=3, kernel=(3, 3), pads=(1, 1, 1, 1)), ("input",)),
        ("gate", W.Sigmoid(), ("conv",)),
        ("silu", W.Mul(), ("conv", "gate")),
        ("flat", W.Flatten(), ("silu",)),
        ("logits", W.Linear(out_features=CLASSES), ("flat",)),
    ),
    # An optimiser may take the scale of the normalisation for one of a factor's.
    "mul-before-a-normalisation": graph(
        (3, 5, 4),
        ("conv", W.Conv(out_channels=3, kernel=(3, 3)), ("input",)),
        ("gate", W.Sigmoid(), ("conv",)),
        ("silu", W.Mul(), ("conv", "gate")),
        ("norm", W.BatchNorm(), ("silu",)),
        ("flat", W.Flatten(), ("norm",)),
        ("logits", W.Linear(out_features=CLASSES), ("flat",)),
    ),
    "mul-of-channels": graph(
        (3, 5, 4),
        ("conv", W.Conv(out_channels=4, kernel=(3, 3)), ("input",)),
        ("squeezed", W.GlobalAveragePool(), ("conv",)),
        ("narrow", W.Conv(out_channels=2, kernel=(1, 1)), ("squeezed",)),
        ("relu", W.ReLU(), ("narrow",)),
        ("wide", W.Conv(out_channels=4, kernel=(1, 1)), ("relu",)),
        ("gate", W.Sigmoid(), ("wide",)),
        ("excited", W.Mul(), ("conv", "gate")),
        ("flat", W.Flatten(), ("excited",)),
        ("logits", W.Linear(out_features=CLASSES), ("flat",)),
    ),
}

_CONCAT = {
    # Within the 8 or 16 channels that a library may keep together.
    **{
        f"concat-of-{one}-and-{other}-channels": graph(
            (3, 5, 4),
            ("one", W.Conv(out_channels=one, kernel=(2, 2)), ("input",)),
            ("other", W.Conv(out_channels=other, kernel=(2, 2)), ("input",)),
            ("both", W.Concat(axis=1), ("one", "other")),
            ("conv", W.Conv(out_channels=16, kernel=(2, 2)), ("both",)),
            ("flat", W.Flatten(), ("conv",)),
            ("logits", W.Linear(out_features=CLASSES), ("flat",)),
        )
        for one, other in ((8, 8), (24, 8), (1, 15), (16, 16))
    },
    "concat-of-a-value-with-itself": graph(
        (6,),
        ("twice", W.Concat(axis=1), ("input", "input")),
        ("logits", W.Linear(out_features=CLASSES), ("twice",)),
    ),
    # oneDNN has another layout for it, which not every operator after it takes.
    "concat-of-one-feature-and-others": graph(
        (7,),
        ("one", W.Linear(out_features=1), ("input",)),
        ("both", W.Concat(axis=1), ("one", "input")),
        ("norm", W.BatchNorm(), ("both",)),
        ("logits", W.Linear(out_features=CLASSES), ("norm",)),
    ),
    "concat-of-channels": _joined(1),
    "concat-of-rows": _joined(2),
    "concat-of-columns": _joined(3),
    "concat-of-three": graph(
        (2, 4, 3),
        ("one", W.Tanh(), ("input",)),
        ("two", W.ReLU(), ("input",)),
        ("all", W.Concat(axis=1), ("two", "input", "one")),
        ("flat", W.Flatten(), ("all",)),
        ("logits", W.Linear(out_features=CLASSES), ("flat",)),
    ),
    "concat-of-features-of-a-sequence": graph(
        (4, 3),
        ("one", W.Linear(out_features=2), ("input",)),
        ("both", W.Concat(axis=2), ("one", "input")),
        ("logits", W.Linear(out_features=CLASSES), ("both",)),
    ),
    "concat-of-time": graph(
        (4, 3),
        ("one", W.Tanh(), ("input",)),
        ("both", W.Concat(axis=1), ("one", "input")),
        ("logits", W.Linear(out_features=CLASSES), ("both",)),
    ),
}

_ADD = {
    "add-a-value-to-itself": graph(
        (6,),
        ("double", W.Add(), ("input", "input")),
        ("logits", W.Linear(out_features=CLASSES), ("double",)),
    ),
    "residual": graph(
        (3, 5, 4),
        ("conv", W.Conv(out_channels=3, kernel=(3, 3), pads=(1, 1, 1, 1)), ("input",)),
        ("sum", W.Add(), ("conv", "input")),
        ("relu", W.ReLU(), ("sum",)),
        ("flat", W.Flatten(), ("relu",)),
        ("logits", W.Linear(out_features=CLASSES), ("flat",)),
    ),
    "add-features": graph(
        (6,),
        ("one", W.Linear(out_features=CLASSES), ("input",)),
        ("other", W.Linear(out_features=CLASSES, bias=False), ("input",)),
        ("sum", W.Add(), ("one", "other")),
    ),
}

_RESHAPE = {
    "reshape-features-to-a-sequence": chain(
        (6,), W.Reshape(shape=(2, 3)), W.Linear(out_features=CLASSES)
    ),
    "reshape-features-to-maps": classifier(
        (24,), W.Reshape(shape=(2, 4, 3)), W.Conv(out_channels=3, kernel=(2, 2))
    ),
    "reshape-maps-to-a-sequence": classifier(
        (2, 4, 3), W.Conv(out_channels=4, kernel=(2, 2)), W.Reshape(shape=(4, 6)), W.Tanh()
    ),
    "reshape-maps-to-other-channels": classifier(
        (2, 4, 3), W.Reshape(shape=(4, 2, 3)), W.Conv(out_channels=3, kernel=(2, 2))
    ),
    "reshape-maps-across-channels": classifier(
        (2, 4, 3), W.Conv(out_channels=4, kernel=(2, 2)), W.Reshape(shape=(3, 8))
    ),
    # Eight channels and more a library may keep in a layout of its own.
    "reshape-shuffled-channels": classifier(
        (3, 5, 4),
        W.Conv(out_channels=16, kernel=(2, 2)),
        W.Reshape(shape=(2, 8, 12)),
        W.Transpose(axes=(2, 1, 3)),
        W.Reshape(shape=(16, 4, 3)),
        W.Conv(out_channels=16, kernel=(2, 2)),
    ),
    "reshape-to-a-sequence-and-back": classifier(
        (3, 5, 4),
        W.Conv(out_channels=16, kernel=(2, 2)),
        W.Reshape(shape=(16, 12)),
        W.Transpose(axes=(2, 1)),
        W.LayerNorm(),
        W.Transpose(axes=(2, 1)),
        W.Reshape(shape=(16, 4, 3)),
        W.Conv(out_channels=16, kernel=(2, 2)),
    ),
    "reshape-and-its-reader": graph(
        (2, 4, 3),
        ("pixels", W.Reshape(shape=(2, 12)), ("input",)),
        ("tokens", W.Transpose(axes=(2, 1)), ("pixels",)),
        ("left", W.Linear(out_features=CLASSES), ("tokens",)),
        ("right", W.Linear(out_features=CLASSES), ("pixels",)),
        ("both", W.Concat(axis=1), ("left", "right")),
    ),
}

_TRANSPOSE = {
    "transpose-of-a-sequence": classifier((4, 6), W.Transpose(axes=(2, 1))),
    "transpose-of-maps": classifier(
        (2, 4, 3), W.Transpose(axes=(3, 1, 2)), W.Conv(out_channels=3, kernel=(2, 2))
    ),
    "transpose-rows-and-columns": classifier((2, 4, 3), W.Transpose(axes=(1, 3, 2)), W.Tanh()),
    "transpose-to-the-same": classifier((2, 4, 3), W.Transpose(axes=(1, 2, 3))),
    "patches": classifier(
        (3, 6, 4),
        W.Conv(out_channels=4, kernel=(2, 2), stride=(2, 2)),
        W.Reshape(shape=(4, 6)),
        W.Transpose(axes=(2, 1)),
    ),
}

_REDUCE_MEAN = {
    "reduce_mean-over-time": classifier((4, 6), W.ReduceMean()),
    "reduce_mean-over-features": classifier((4, 6), W.ReduceMean(axis=2)),
    "reduce_mean-after-a-linear": classifier((4, 6), W.Linear(out_features=3), W.ReduceMean()),
}

_SELECT = {
    "select-first": classifier((4, 6), W.Select(index=0)),
    "select-last": classifier((4, 6), W.Tanh(), W.Select(index=-1)),
    "select-a-feature": classifier((4, 6), W.Tanh(), W.Select(axis=2, index=2)),
    "select-the-only": classifier((1, 6), W.Tanh(), W.Select(index=0)),
}

_PAD = {
    "pad-features": chain((6,), W.Pad(pads=(2, 1), value=0.5), W.Linear(out_features=CLASSES)),
    "pad-a-sequence": classifier((4, 6), W.Tanh(), W.Pad(pads=(1, 0, 0, 2))),
    "pad-maps": classifier((2, 4, 3), W.Tanh(), W.Pad(pads=(0, 1, 0, 0, 2, 3), value=-0.25)),
    "pad-channels": classifier(
        (2, 4, 3), W.Pad(pads=(1, 0, 0, 2, 0, 0)), W.Conv(out_channels=3, kernel=(2, 2))
    ),
    "pad-nothing": classifier((2, 4, 3), W.Pad(pads=(0, 0, 0, 0, 0, 0), value=1.0)),
    "pad-before-a-conv-that-pads": classifier(
        (2, 5, 4),
        W.Pad(pads=(0, 1, 0, 0, 0, 2)),
        W.Conv(out_channels=3, kernel=(3, 3), pads=(1, 1, 1, 0)),
    ),
    "pad-before-poolings": graph(
        (2, 4, 3),
        ("relu", W.ReLU(), ("input",)),
        ("padded", W.Pad(pads=(0, 1, 1, 0, 0, 1)), ("relu",)),
        ("max", W.MaxPool(kernel=(2, 2), stride=(2, 2), pads=(0, 1, 1, 0)), ("padded",)),
        ("mean", W.AveragePool(kernel=(2, 2), stride=(1, 1)), ("padded",)),
        ("left", W.Flatten(), ("max",)),
        ("right", W.Flatten(), ("mean",)),
        ("both", W.Concat(axis=1), ("left", "right")),
        ("logits", W.Linear(out_features=CLASSES), ("both",)),
    ),
}

_SLICE = {
    "slice-features": chain(
        (7,), W.Slice(starts=(1,), ends=(6,), steps=(2,)), W.Linear(out_features=CLASSES)
    ),
    "slice-a-sequence": classifier((5, 6), W.Tanh(), W.Slice(starts=(-4, 2), ends=(-1, 6))),
    "slice-maps": classifier(
        (4, 6, 5),
        W.Conv(out_channels=4, kernel=(2, 2)),
        W.Slice(starts=(1, 0, 1), ends=(3, 5, 4), steps=(1, 2, 1)),
    ),
    # Within the 8 or 16 channels that a library may keep together.
    "slice-half-the-channels-of-a-convolution": classifier(
        (3, 5, 4),
        W.Conv(out_channels=16, kernel=(2, 2)),
        W.Slice(starts=(0, 0, 0), ends=(8, 4, 3)),
        W.Conv(out_channels=16, kernel=(2, 2)),
    ),
    "slice-odd-channels-of-a-convolution": classifier(
        (3, 5, 4),
        W.Conv(out_channels=16, kernel=(2, 2)),
        W.Slice(starts=(3, 0, 0), ends=(9, 4, 3)),
        W.Conv(out_channels=16, kernel=(2, 2)),
    ),
    "slice-one-of-each": classifier((2, 4, 3), W.Slice(starts=(1, 2, 0), ends=(2, 3, 1))),
    "slice-the-whole": classifier((4, 6), W.Slice(starts=(0, 0), ends=(4, 6))),
    "slice-and-its-other-half": graph(
        (4, 6),
        ("hidden", W.Linear(out_features=6), ("input",)),
        ("left", W.Slice(starts=(0, 0), ends=(4, 3)), ("hidden",)),
        ("right", W.Slice(starts=(0, 3), ends=(4, 6)), ("hidden",)),
        ("sum", W.Add(), ("left", "right")),
        ("logits", W.Linear(out_features=CLASSES), ("sum",)),
    ),
}

_GATHER = {
    "gather-features": chain((6,), W.Gather(indices=(4, 0, 1)), W.Linear(out_features=CLASSES)),
    "gather-twice-the-same": chain(
        (6,), W.Tanh(), W.Gather(indices=(4, -2, 1, 4)), W.Linear(out_features=CLASSES)
    ),
    "gather-steps": classifier((5, 6), W.Tanh(), W.Gather(indices=(-1, 3, 2, 1, 0))),
    "gather-features-of-a-sequence": classifier((5, 6), W.Gather(axis=2, indices=(5, 0, 0))),
    "gather-channels": classifier(
        (4, 5, 3), W.Conv(out_channels=4, kernel=(2, 2)), W.Gather(indices=(2, 0, 3, 1, 2))
    ),
    "gather-columns": classifier((2, 4, 3), W.Tanh(), W.Gather(axis=3, indices=(2, -2, 2))),
    "gather-one": classifier((2, 4, 3), W.Gather(axis=2, indices=(1,))),
}

_POSITION_EMBEDDING = {
    "position_embedding": classifier((4, 6), W.PositionEmbedding()),
    "position_embedding-of-tokens": chain(
        (4,),
        W.Embedding(entries=7, features=3),
        W.PositionEmbedding(),
        W.Linear(out_features=CLASSES),
        kind="index",
    ),
}

_EMBEDDING = {
    "embedding": chain(
        (4,), W.Embedding(entries=7, features=3), W.Linear(out_features=CLASSES), kind="index"
    ),
    "embedding-of-many-entries-most-of-them-unread": chain(
        (4,), W.Embedding(entries=50, features=3), W.Linear(out_features=CLASSES), kind="index"
    ),
    "embedding-tied": graph(
        (4,),
        ("table", W.Embedding(entries=9, features=6), ("input",)),
        ("tanh", W.Tanh(), ("table",)),
        ("logits", W.Linear(out_features=9, tied_to="table", bias=False), ("tanh",)),
        kind="index",
    ),
    "embedding-tied-with-a-bias": graph(
        (4,),
        ("table", W.Embedding(entries=9, features=6), ("input",)),
        ("tanh", W.Tanh(), ("table",)),
        ("last", W.Select(index=-1), ("tanh",)),
        ("logits", W.Linear(out_features=9, tied_to="table"), ("last",)),
        kind="index",
    ),
    "embedding-tied-after-a-flatten": graph(
        (3,),
        ("table", W.Embedding(entries=9, features=8), ("input",)),
        ("maps", W.Reshape(shape=(2, 3, 4)), ("table",)),
        ("conv", W.Conv(out_channels=2, kernel=(2, 1)), ("maps",)),
        ("part", W.Slice(starts=(0, 0, 1), ends=(2, 2, 3)), ("conv",)),
        ("flat", W.Flatten(), ("part",)),
        ("logits", W.Linear(out_features=9, tied_to="table"), ("flat",)),
        kind="index",
    ),
}

_LSTM = {
    "lstm": chain((4, 3), W.LSTM(hidden=6), W.Linear(out_features=CLASSES)),
    "lstm-of-one-step": chain((1, 3), W.LSTM(hidden=6), W.Linear(out_features=CLASSES)),
    "lstm-as-logits": chain((4, 3), W.LSTM(hidden=CLASSES)),
    "two-lstms": chain((4, 3), W.LSTM(hidden=6), W.LSTM(hidden=2), W.Linear(out_features=CLASSES)),
    "language-model": chain(
        (5,),
        W.Embedding(entries=9, features=4),
        W.LSTM(hidden=6),
        W.Dropout(rate=0.0),
        W.LSTM(hidden=3),
        W.Linear(out_features=9),
        kind="index",
    ),
}


def _gru(hidden: int, last: bool) -> W.GRU:
    return W.GRU(hidden=hidden, linear_before_reset=last)


_GRU = {
    "gru": chain((4, 3), _gru(6, True), W.Linear(out_features=CLASSES)),
    "gru-reset-first": chain((4, 3), _gru(6, False), W.Linear(out_features=CLASSES)),
    "gru-of-one-step-as-logits": chain((1, 3), _gru(6, True), _gru(CLASSES, False)),
}

_RNN = {
    "rnn": chain(
        (4, 3), W.RNN(hidden=6), W.RNN(hidden=5, activation="relu"), W.Linear(out_features=CLASSES)
    ),
    "rnn-of-one-step-as-logits": chain(
        (1, 3), W.RNN(hidden=6, activation="relu"), W.RNN(hidden=CLASSES)
    ),
}

_ATTENTION = {
    "attention": classifier((4, 6), W.Attention(heads=2)),
    "attention-of-one-head": classifier((4, 6), W.Attention(heads=1)),
    "attention-of-heads-of-one": classifier((3, 4), W.Attention(heads=4)),
    "attention-without-bias": classifier((4, 6), W.Attention(heads=3, bias=False)),
    "attention-causal": classifier((5, 6), W.Attention(heads=2, causal=True)),
    "attention-of-one-step": classifier((1, 6), W.Attention(heads=2, causal=True)),
    "transformer": graph(
        (4, 6),
        ("norm", W.LayerNorm(), ("input",)),
        ("attention", W.Attention(heads=2, causal=True, bias=False), ("norm",)),
        ("sum", W.Add(), ("input", "attention")),
        ("next_norm", W.LayerNorm(), ("sum",)),
        ("up", W.Linear(out_features=9), ("next_norm",)),
        ("gelu", W.GELU(), ("up",)),
        ("down", W.Linear(out_features=6), ("gelu",)),
        ("next_sum", W.Add(), ("sum", "down")),
        ("last", W.Select(index=-1), ("next_sum",)),
        ("logits", W.Linear(out_features=CLASSES), ("last",)),
    ),
}

#: What is tested, by the layer type that it tells about and by what is odd about it; first the one
#: that needs the fewest other types. The names are ids of tests, which files of expected failures
#: have: renaming one is a change for their authors.
BY_LAYER: dict[str, dict[str, W.Model]] = {
    **WINDOWS,
    "batch_norm": _BATCH_NORM,
    "layer_norm": _LAYER_NORM,
    "group_norm": GROUP_NORM,
    "rms_norm": RMS_NORM,
    "lrn": _LRN,
    "linear": _LINEAR,
    "relu": _activation(W.ReLU()),
    "relu6": _bounded(W.ReLU6()),
    "tanh": _activation(W.Tanh()),
    "sigmoid": _activation(W.Sigmoid()),
    "hard_sigmoid": _bounded(W.HardSigmoid()) | _HARD_SIGMOID,
    "gelu": _GELU,
    "elementwise": ELEMENTWISE,
    "prelu": PRELU,
    "dropout": _DROPOUT,
    "flatten": _FLATTEN,
    "reshape": _RESHAPE | MANY_AXES,
    "transpose": _TRANSPOSE,
    "reduce_mean": _REDUCE_MEAN,
    "select": _SELECT,
    "pad": _PAD,
    "slice": _SLICE,
    "gather": _GATHER,
    "concat": _CONCAT,
    "add": _ADD,
    "mul": _MUL,
    "binary": BINARY,
    "where": WHERE,
    "matmul": MATMUL,
    "scale": SCALE,
    "shift": SHIFT,
    "mask": MASK,
    "resize": RESIZE,
    "softmax": SOFTMAX,
    "reduce": REDUCE,
    "top_k": TOP_K,
    "gather_elements": GATHER_ELEMENTS,
    "embedding": _EMBEDDING,
    "position_embedding": _POSITION_EMBEDDING,
    "lstm": _LSTM,
    "gru": _GRU,
    "rnn": _RNN,
    "attention": _ATTENTION,
}
#: Layers that are used several times.
SHARED = {
    "shared-linear": graph(
        (6,),
        ("first", W.Linear(out_features=6), ("input",)),
        ("tanh", W.Tanh(), ("first",)),
        ("second", "first", ("tanh",)),
        ("wave", W.Elementwise(function="sin"), ("second",)),
        ("third", "first", ("wave",)),
        ("logits", W.Linear(out_features=CLASSES), ("third",)),
    ),
    "shared-logits": graph(
        (CLASSES,),
        ("hidden", W.Linear(out_features=CLASSES), ("input",)),
        ("tanh", W.Tanh(), ("hidden",)),
        ("logits", "hidden", ("tanh",)),
    ),
    "shared-conv-of-two-branches": graph(
        (4, 5, 5),
        ("one", W.Slice(starts=(0, 0, 0), ends=(2, 5, 5)), ("input",)),
        ("other", W.Slice(starts=(2, 0, 0), ends=(4, 5, 5)), ("input",)),
        ("conv", W.Conv(out_channels=3, kernel=(2, 3)), ("one",)),
        ("conv_again", "conv", ("other",)),
        ("norm", W.GroupNorm(groups=1), ("conv",)),
        ("norm_again", "norm", ("conv_again",)),
        ("flat", W.Flatten(), ("norm",)),
        ("flat_again", W.Flatten(), ("norm_again",)),
        ("hidden", W.Linear(out_features=4), ("flat",)),
        ("hidden_again", "hidden", ("flat_again",)),
        ("both", W.Binary(function="sub"), ("hidden", "hidden_again")),
        ("logits", W.Linear(out_features=CLASSES), ("both",)),
    ),
    # As a detector's head reads the maps of a pyramid.
    "shared-conv-of-two-sizes": graph(
        (3, 9, 8),
        ("conv", W.Conv(out_channels=4, kernel=(3, 2), pads=(0, 1, 1, 0)), ("input",)),
        ("pool", W.MaxPool(kernel=(2, 2), stride=(2, 2)), ("conv",)),
        (
            "head",
            W.Conv(out_channels=4, kernel=(2, 3), stride=(1, 2), pads=(1, 1, 0, 1)),
            ("conv",),
        ),
        ("norm", W.GroupNorm(groups=2), ("head",)),
        ("slopes", W.PReLU(), ("norm",)),
        ("head_again", "head", ("pool",)),
        ("norm_again", "norm", ("head_again",)),
        ("slopes_again", "slopes", ("norm_again",)),
        ("mean", W.GlobalAveragePool(), ("slopes",)),
        ("mean_again", W.GlobalAveragePool(), ("slopes_again",)),
        ("flat", W.Flatten(), ("mean",)),
        ("flat_again", W.Flatten(), ("mean_again",)),
        ("both", W.Concat(axis=1), ("flat", "flat_again")),
        ("logits", W.Linear(out_features=CLASSES), ("both",)),
    ),
    "shared-sequences-of-two-lengths": graph(
        (5, 6),
        ("half", W.Slice(starts=(0, 0), ends=(3, 6)), ("input",)),
        ("linear", W.Linear(out_features=6), ("input",)),
        ("norm", W.LayerNorm(), ("linear",)),
        ("lstm", W.LSTM(hidden=4), ("norm",)),
        ("linear_again", "linear", ("half",)),
        ("norm_again", "norm", ("linear_again",)),
        ("lstm_again", "lstm", ("norm_again",)),
        ("mean", W.ReduceMean(), ("lstm",)),
        ("mean_again", W.ReduceMean(), ("lstm_again",)),
        ("both", W.Concat(axis=1), ("mean", "mean_again")),
        ("logits", W.Linear(out_features=CLASSES), ("both",)),
    ),
    "shared-recurrences": graph(
        (4, 5),
        ("lstm", W.LSTM(hidden=5), ("input",)),
        ("lstm_again", "lstm", ("lstm",)),
        ("gru", _gru(5, True), ("lstm_again",)),
        ("gru_again", "gru", ("gru",)),
        ("rnn", W.RNN(hidden=5), ("gru_again",)),
        ("rnn_again", "rnn", ("rnn",)),
        ("mean", W.ReduceMean(), ("rnn_again",)),
        ("logits", W.Linear(out_features=CLASSES), ("mean",)),
    ),
    "shared-blocks": graph(
        (5,),
        ("table", W.Embedding(entries=9, features=6), ("input",)),
        ("places", W.PositionEmbedding(), ("table",)),
        ("attention", W.Attention(heads=2), ("places",)),
        ("sum", W.Add(), ("places", "attention")),
        ("norm", W.LayerNorm(), ("sum",)),
        ("linear", W.Linear(out_features=6), ("norm",)),
        ("attention_again", "attention", ("linear",)),
        ("sum_again", W.Add(), ("linear", "attention_again")),
        ("norm_again", "norm", ("sum_again",)),
        ("linear_again", "linear", ("norm_again",)),
        ("mean", W.ReduceMean(), ("linear_again",)),
        ("logits", W.Linear(out_features=CLASSES), ("mean",)),
        kind="index",
    ),
    "shared-scales": graph(
        (6,),
        ("scale", W.Scale(sizes=(6,)), ("input",)),
        ("shift", W.Shift(sizes=(6,)), ("scale",)),
        ("slopes", W.PReLU(), ("shift",)),
        ("scale_again", "scale", ("slopes",)),
        ("shift_again", "shift", ("scale_again",)),
        ("slopes_again", "slopes", ("shift_again",)),
        ("logits", W.Linear(out_features=CLASSES), ("slopes_again",)),
    ),
}
#: All of them by name.
CASES: dict[str, W.Model] = {
    name: model for models in (*BY_LAYER.values(), SHARED) for name, model in models.items()
}

#: Models that together have a layer of every type; the first case of a type that no other model has is added.
#: The last is for adapters that have few.
EVERY_LAYER: dict[str, W.Model] = {
    "maps": graph(
        (3, 9, 8),
        ("conv", W.Conv(out_channels=4, kernel=(3, 3), pads=(0, 1, 1, 2)), ("input",)),
        ("norm", W.BatchNorm(momentum=0.8), ("conv",)),
        ("relu", W.ReLU(), ("norm",)),
        ("lrn", W.LRN(size=3, alpha=0.1), ("relu",)),
        ("max", W.MaxPool(kernel=(3, 3), stride=(2, 2), ceil_mode=True), ("lrn",)),
        ("grouped", W.Conv(out_channels=4, kernel=(1, 1), groups=2, bias=False), ("max",)),
        ("sum", W.Add(), ("grouped", "max")),
        ("tanh", W.Tanh(), ("sum",)),
        ("both", W.Concat(axis=1), ("tanh", "sum")),
        ("pooled", W.GlobalAveragePool(), ("both",)),
        ("gated", W.Mul(), ("both", "pooled")),
        ("mean", W.AveragePool(kernel=(2, 2), stride=(1, 1)), ("gated",)),
        ("bounded", W.ReLU6(), ("mean",)),
        ("hard", W.HardSigmoid(), ("bounded",)),
        ("left", W.Flatten(), ("hard",)),
        ("hidden", W.Linear(out_features=7), ("left",)),
        ("hidden_norm", W.BatchNorm(), ("hidden",)),
        ("sigmoid", W.Sigmoid(), ("hidden_norm",)),
        ("drop", W.Dropout(rate=0.0), ("sigmoid",)),
        ("right", W.Flatten(), ("pooled",)),
        ("joined", W.Concat(axis=1), ("drop", "right")),
        ("logits", W.Linear(out_features=CLASSES), ("joined",)),
    ),
    "sequence": CASES["language-model"],
    "patches": graph(
        (3, 6, 4),
        ("conv", W.Conv(out_channels=6, kernel=(2, 2), stride=(2, 2)), ("input",)),
        ("rows", W.Reshape(shape=(6, 6)), ("conv",)),
        ("tokens", W.Transpose(axes=(2, 1)), ("rows",)),
        ("placed", W.PositionEmbedding(), ("tokens",)),
        ("norm", W.LayerNorm(), ("placed",)),
        ("attention", W.Attention(heads=2), ("norm",)),
        ("gelu", W.GELU(), ("attention",)),
        ("curve", W.Elementwise(function="softplus"), ("gelu",)),
        ("sum", W.Add(), ("curve", "placed")),
        ("shares", W.Softmax(axis=2), ("sum",)),
        ("most", W.Reduce(function="max", axes=(1,), keepdims=True), ("sum",)),
        ("less", W.Binary(function="sub"), ("shares", "most")),
        ("turned", W.Transpose(axes=(2, 1)), ("less",)),
        ("products", W.MatMul(), ("shares", "turned")),
        ("masked", W.Mask(sizes=(1, 6), kept="b4", value=-1e4), ("products",)),
        ("shares_of_kept", W.Softmax(axis=2), ("masked",)),
        ("longer", W.Resize(sizes=(9, 6)), ("shares_of_kept",)),
        ("as_long", W.Resize(sizes=(6, 6), mode="cubic"), ("longer",)),
        ("scaled", W.Scale(sizes=(1, 6)), ("as_long",)),
        ("shifted", W.Shift(sizes=(6, 1)), ("scaled",)),
        ("rough", W.Elementwise(function="round"), ("shifted",)),
        ("chosen", W.Where(), ("rough", "shifted", "shares")),
        ("ranked", W.TopK(axis=2, k=4), ("shifted",)),
        ("found", W.GatherElements(axis=2), ("chosen", "ranked")),
        ("mean", W.ReduceMean(), ("found",)),
        ("gated", _gru(5, True), ("sum",)),
        ("units", W.RNN(hidden=6), ("gated",)),
        ("last", W.Select(index=-1), ("units",)),
        ("both", W.Concat(axis=1), ("mean", "last")),
        ("logits", W.Linear(out_features=CLASSES), ("both",)),
    ),
    "parts": graph(
        (5,),
        ("table", W.Embedding(entries=9, features=6), ("input",)),
        ("padded", W.Pad(pads=(1, 0, 2, 0), value=0.5), ("table",)),
        ("part", W.Slice(starts=(0, 0), ends=(8, 6), steps=(2, 1)), ("padded",)),
        ("again", W.Gather(axis=1, indices=(2, 0, -1, 2)), ("part",)),
        ("logits", W.Linear(out_features=9, tied_to="table"), ("again",)),
        kind="index",
    ),
    "enlarged-maps": graph(
        (3, 4, 3),
        (
            "doubled",
            W.ConvTranspose(
                out_channels=4,
                kernel=(3, 3),
                stride=(2, 2),
                pads=(1, 1, 1, 1),
                output_padding=(1, 1),
            ),
            ("input",),
        ),
        ("relu", W.ReLU(), ("doubled",)),
        ("flat", W.Flatten(), ("relu",)),
        ("logits", W.Linear(out_features=CLASSES), ("flat",)),
    ),
    "normalised-groups": graph(
        (4, 4, 3),
        ("groups", W.GroupNorm(groups=2), ("input",)),
        ("slopes", W.PReLU(), ("groups",)),
        ("flat", W.Flatten(), ("slopes",)),
        ("norm", W.RMSNorm(), ("flat",)),
        ("logits", W.Linear(out_features=CLASSES), ("norm",)),
    ),
}
_HAD = {W.type_name(node.layer) for model in EVERY_LAYER.values() for node in model.nodes}
EVERY_LAYER |= {
    kind: next(iter(models.values())) for kind, models in BY_LAYER.items() if kind not in _HAD
}
EVERY_LAYER["features"] = graph(
    (6,),
    ("hidden", W.Linear(out_features=7), ("input",)),
    ("relu", W.ReLU(), ("hidden",)),
    ("logits", W.Linear(out_features=CLASSES), ("relu",)),
)
