"""A table of models around each layer type, with attributes that defaults and symmetry hide."""

from __future__ import annotations

from dlb import workload as W

from .models import CLASSES, chain, classifier, graph
from .window_cases import IMAGE, WINDOWS

__all__ = ["CASES", "EVERY_LAYER"]


_NORM = {
    "batch norm of maps": classifier(IMAGE, W.BatchNorm()),
    "batch norm of maps, odd numbers": classifier(IMAGE, W.BatchNorm(epsilon=0.03, momentum=0.7)),
    "batch norm of features": chain((6,), W.BatchNorm(), W.Linear(out_features=CLASSES)),
    "batch norm of features, odd numbers": chain(
        (6,), W.BatchNorm(epsilon=0.2, momentum=0.25), W.Linear(out_features=CLASSES)
    ),
    "batch norm between conv and ReLU": classifier(
        IMAGE, W.Conv(out_channels=4, kernel=(3, 3), bias=False), W.BatchNorm(), W.ReLU()
    ),
    "LRN of 3": classifier((7, 4, 3), W.LRN(size=3, alpha=0.4, beta=0.6, bias=1.7)),
    "LRN of 5": classifier((7, 4, 3), W.LRN(size=5, alpha=0.9, beta=0.75, bias=2.0)),
    "LRN wider than the channels": classifier((3, 4, 3), W.LRN(size=5, alpha=0.9)),
    "LRN of AlexNet": classifier((7, 4, 3), W.LRN(size=5, alpha=1e-4, beta=0.75, bias=1.0)),
}

_PLAIN = {
    "linear": chain((6,), W.Linear(out_features=CLASSES)),
    "linear without bias": chain((6,), W.Linear(out_features=CLASSES, bias=False)),
    "linear of a sequence": chain((4, 6), W.Linear(out_features=CLASSES)),
    "linear of a sequence without bias": chain((4, 6), W.Linear(out_features=CLASSES, bias=False)),
    "ReLU": chain((9,), W.ReLU(), W.Linear(out_features=CLASSES)),
    "tanh": chain((9,), W.Tanh(), W.Linear(out_features=CLASSES)),
    "sigmoid": chain((9,), W.Sigmoid(), W.Linear(out_features=CLASSES)),
    "activations of maps": classifier(IMAGE, W.Tanh(), W.Sigmoid(), W.ReLU()),
    "activations of a sequence": chain(
        (4, 6), W.Tanh(), W.Sigmoid(), W.ReLU(), W.Linear(out_features=CLASSES)
    ),
    "dropout at rate 0": chain((9,), W.Dropout(rate=0.0), W.Linear(out_features=CLASSES)),
}

_FLATTEN = {
    "flatten the input": chain((2, 3, 4), W.Flatten(), W.Linear(out_features=CLASSES)),
    "flatten, dropout, linear": chain(
        (2, 5, 4),
        W.Conv(out_channels=3, kernel=(2, 2)),
        W.Flatten(),
        W.Dropout(rate=0.0),
        W.Linear(out_features=CLASSES),
    ),
    "flatten, ReLU, linear": chain(
        (2, 5, 4),
        W.Conv(out_channels=3, kernel=(2, 2)),
        W.Flatten(),
        W.ReLU(),
        W.Linear(out_features=CLASSES),
    ),
    "flatten, batch norm, linear": chain(
        (2, 3, 2),
        W.Conv(out_channels=3, kernel=(2, 1)),
        W.Flatten(),
        W.BatchNorm(),
        W.Linear(out_features=CLASSES),
    ),
    "flatten, flatten, linear": chain(
        (2, 5, 4), W.Flatten(), W.Flatten(), W.Linear(out_features=CLASSES)
    ),
    "logits straight from a flatten": chain(
        (2, 2, 4), W.Conv(out_channels=3, kernel=(1, 2)), W.Flatten()
    ),
    "two readers of one flatten": graph(
        (2, 4, 3),
        ("flat", W.Flatten(), ("input",)),
        ("left", W.Linear(out_features=CLASSES), ("flat",)),
        ("squashed", W.Tanh(), ("flat",)),
        ("right", W.Linear(out_features=CLASSES), ("squashed",)),
        ("sum", W.Add(), ("left", "right")),
    ),
    "two flattens joined": graph(
        (2, 4, 3),
        ("conv", W.Conv(out_channels=3, kernel=(2, 2)), ("input",)),
        ("one", W.Flatten(), ("conv",)),
        ("other", W.Flatten(), ("input",)),
        ("both", W.Concat(axis=1), ("one", "other")),
        ("logits", W.Linear(out_features=CLASSES), ("both",)),
    ),
    "two flattens added": graph(
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


_BRANCHES = {
    "concat of channels": _joined(1),
    "concat of rows": _joined(2),
    "concat of columns": _joined(3),
    "concat of three": graph(
        (2, 4, 3),
        ("one", W.Tanh(), ("input",)),
        ("two", W.ReLU(), ("input",)),
        ("all", W.Concat(axis=1), ("two", "input", "one")),
        ("flat", W.Flatten(), ("all",)),
        ("logits", W.Linear(out_features=CLASSES), ("flat",)),
    ),
    "concat of a value with itself": graph(
        (6,),
        ("twice", W.Concat(axis=1), ("input", "input")),
        ("logits", W.Linear(out_features=CLASSES), ("twice",)),
    ),
    "concat of features of a sequence": graph(
        (4, 3),
        ("one", W.Linear(out_features=2), ("input",)),
        ("both", W.Concat(axis=2), ("one", "input")),
        ("logits", W.Linear(out_features=CLASSES), ("both",)),
    ),
    "concat of time": graph(
        (4, 3),
        ("one", W.Tanh(), ("input",)),
        ("both", W.Concat(axis=1), ("one", "input")),
        ("logits", W.Linear(out_features=CLASSES), ("both",)),
    ),
    "residual": graph(
        (3, 5, 4),
        ("conv", W.Conv(out_channels=3, kernel=(3, 3), pads=(1, 1, 1, 1)), ("input",)),
        ("sum", W.Add(), ("conv", "input")),
        ("relu", W.ReLU(), ("sum",)),
        ("flat", W.Flatten(), ("relu",)),
        ("logits", W.Linear(out_features=CLASSES), ("flat",)),
    ),
    "add a value to itself": graph(
        (6,),
        ("double", W.Add(), ("input", "input")),
        ("logits", W.Linear(out_features=CLASSES), ("double",)),
    ),
    "add features": graph(
        (6,),
        ("one", W.Linear(out_features=CLASSES), ("input",)),
        ("other", W.Linear(out_features=CLASSES, bias=False), ("input",)),
        ("sum", W.Add(), ("one", "other")),
    ),
}

_SEQUENCE = {
    "LSTM": chain((4, 3), W.LSTM(hidden=6), W.Linear(out_features=CLASSES)),
    "LSTM of one step": chain((1, 3), W.LSTM(hidden=6), W.Linear(out_features=CLASSES)),
    "LSTM as logits": chain((4, 3), W.LSTM(hidden=CLASSES)),
    "two LSTMs": chain((4, 3), W.LSTM(hidden=6), W.LSTM(hidden=2), W.Linear(out_features=CLASSES)),
    "embedding": chain(
        (4,), W.Embedding(entries=7, features=3), W.Linear(out_features=CLASSES), kind="index"
    ),
    "embedding of many entries, most of them unread": chain(
        (4,), W.Embedding(entries=50, features=3), W.Linear(out_features=CLASSES), kind="index"
    ),
    "language model": chain(
        (5,),
        W.Embedding(entries=9, features=4),
        W.LSTM(hidden=6),
        W.Dropout(rate=0.0),
        W.LSTM(hidden=3),
        W.Linear(out_features=9),
        kind="index",
    ),
}

#: What is tested, by what is odd about it.
CASES: dict[str, W.Model] = {**WINDOWS, **_NORM, **_PLAIN, **_FLATTEN, **_BRANCHES, **_SEQUENCE}

#: Two models that together have a layer of every type.
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
        ("mean", W.AveragePool(kernel=(2, 2), stride=(1, 1)), ("both",)),
        ("left", W.Flatten(), ("mean",)),
        ("hidden", W.Linear(out_features=7), ("left",)),
        ("hidden_norm", W.BatchNorm(), ("hidden",)),
        ("sigmoid", W.Sigmoid(), ("hidden_norm",)),
        ("drop", W.Dropout(rate=0.0), ("sigmoid",)),
        ("pooled", W.GlobalAveragePool(), ("both",)),
        ("right", W.Flatten(), ("pooled",)),
        ("joined", W.Concat(axis=1), ("drop", "right")),
        ("logits", W.Linear(out_features=CLASSES), ("joined",)),
    ),
    "sequence": _SEQUENCE["language model"],
}
