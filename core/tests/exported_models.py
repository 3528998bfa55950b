"""The small models that ``exported/*.onnx`` were made of, as dlb describes them."""

from __future__ import annotations

from pathlib import Path

from dlb_graph.workload import (
    LRN,
    LSTM,
    Add,
    AveragePool,
    BatchNorm,
    Concat,
    Conv,
    Dropout,
    Embedding,
    Flatten,
    GlobalAveragePool,
    Input,
    Linear,
    MaxPool,
    Model,
    Node,
    ReLU,
    Tanh,
)

#: Where the exported files lie.
EXPORTED_FILES = Path(__file__).parent / "exported"


def _model(shape, *nodes, kind="real") -> Model:
    return Model(
        input=Input(shape=shape, kind=kind),
        nodes=tuple(Node(name=name, layer=layer, inputs=tuple(of)) for name, layer, *of in nodes),
    )


LENET = _model(
    (1, 12, 12),
    ("conv1", Conv(out_channels=4, kernel=(5, 5), pads=(2, 2, 2, 2))),
    ("relu1", ReLU()),
    ("pool1", MaxPool(kernel=(2, 2), stride=(2, 2))),
    ("conv2", Conv(out_channels=6, kernel=(3, 3))),
    ("relu2", ReLU()),
    ("pool2", MaxPool(kernel=(2, 2), stride=(2, 2))),
    ("flatten", Flatten()),
    ("fc1", Linear(out_features=10)),
    ("relu3", ReLU()),
    ("fc2", Linear(out_features=5)),
)

RESIDUAL = _model(
    (3, 8, 8),
    ("conv1", Conv(out_channels=4, kernel=(3, 3), pads=(1, 1, 1, 1), bias=False)),
    ("bn1", BatchNorm(epsilon=1e-3)),
    ("relu1", ReLU()),
    ("conv2", Conv(out_channels=4, kernel=(3, 3), pads=(1, 1, 1, 1), bias=False)),
    ("bn2", BatchNorm(epsilon=1e-3)),
    ("add", Add(), "bn2", "relu1"),
    ("relu2", ReLU()),
    ("bn3", BatchNorm(epsilon=1e-3)),
    ("relu3", ReLU()),
    ("conv3", Conv(out_channels=6, kernel=(3, 3), stride=(2, 2), pads=(1, 1, 1, 1))),
    ("mean", GlobalAveragePool()),
    ("flatten", Flatten()),
    ("fc", Linear(out_features=5)),
)

BRANCHES = _model(
    (3, 9, 9),
    ("conv1", Conv(out_channels=8, kernel=(3, 3), pads=(0, 1, 1, 0))),
    ("relu1", ReLU()),
    ("lrn", LRN(size=5, alpha=1e-2, beta=0.75, bias=2.0)),
    (
        "pool1",
        AveragePool(kernel=(3, 3), stride=(1, 1), pads=(1, 1, 1, 1), count_include_pad=True),
    ),
    ("conv2", Conv(out_channels=4, kernel=(1, 1)), "lrn"),
    ("tanh2", Tanh()),
    ("concat", Concat(), "pool1", "tanh2"),
    ("dropout", Dropout(rate=0.4)),
    ("pool2", AveragePool(kernel=(3, 3), stride=(2, 2))),
    ("flatten", Flatten()),
    ("fc", Linear(out_features=5)),
)

TOKENS = _model(
    (6,),
    ("embedding", Embedding(entries=11, features=3)),
    ("lstm", LSTM(hidden=4)),
    ("fc", Linear(out_features=5)),
    kind="index",
)

MODELS = {"lenet": LENET, "residual": RESIDUAL, "branches": BRANCHES, "tokens": TOKENS}
