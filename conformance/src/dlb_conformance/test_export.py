"""The framework's own exporter: one file, and the model that was described, to the last operator."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dlb.errors import UnsupportedError
from dlb_graph import workload as W
from dlb_graph.rewriting.control_flow import straight
from dlb_graph.structure.structure import compare_structure
from dlb_graph.truth.canonical import canonical_graph
from dlb_graph.truth.evaluate import evaluate
from dlb_graph.truth.exported import check_exported
from dlb_graph.truth.runtime import run_model
from dlb_graph.workload.files import load
from dlb_port import compare_files
from dlb_worker.native import BuiltModel

from .closeness import assert_same_bits, distance
from .layer_cases import CASES, EVERY_LAYER, SHARED
from .models import CLASSES, chain, graph, random_batch, random_weights
from .primitive_cases import (
    ELEMENTWISE,
    GATHER_ELEMENTS,
    TOP_K,
    WHERE,
    WHOLE_FUNCTIONS,
)
from .random_models import models
from .subject import BATCH, Adapter

RESIDUAL = graph(
    (3, 10, 8),
    ("stem", W.Conv(out_channels=4, kernel=(3, 3), pads=(1, 1, 1, 1), bias=False), ("input",)),
    ("stem_norm", W.BatchNorm(epsilon=1e-3), ("stem",)),
    ("stem_relu", W.ReLU(), ("stem_norm",)),
    (
        "conv1",
        W.Conv(out_channels=6, kernel=(3, 3), stride=(2, 2), pads=(1, 1, 1, 1), bias=False),
        ("stem_relu",),
    ),
    ("norm1", W.BatchNorm(), ("conv1",)),
    ("relu1", W.ReLU(), ("norm1",)),
    ("conv2", W.Conv(out_channels=6, kernel=(3, 3), pads=(1, 1, 1, 1), bias=False), ("relu1",)),
    ("norm2", W.BatchNorm(), ("conv2",)),
    ("short", W.Conv(out_channels=6, kernel=(1, 1), stride=(2, 2), bias=False), ("stem_relu",)),
    ("short_norm", W.BatchNorm(), ("short",)),
    ("sum", W.Add(), ("norm2", "short_norm")),
    ("relu2", W.ReLU(), ("sum",)),
    ("pooled", W.GlobalAveragePool(), ("relu2",)),
    ("flat", W.Flatten(), ("pooled",)),
    ("logits", W.Linear(out_features=CLASSES), ("flat",)),
)

#: Rounding up would start a window past the end of 14 rows.
LEFT_OUT: dict[str, Any] = {"kernel": (2, 2), "stride": (3, 3), "ceil_mode": True}

MODELS: dict[str, W.Model] = {
    **SHARED,
    "lenet5": load("lenet5").model,
    "residual": RESIDUAL,
    "layers-of-alexnet": chain(
        (3, 15, 15),
        W.Conv(out_channels=6, kernel=(5, 5), stride=(2, 2), pads=(2, 2, 2, 2)),
        W.ReLU(),
        W.LRN(size=5, alpha=0.01, beta=0.75, bias=2.0),
        W.MaxPool(kernel=(3, 3), stride=(2, 2)),
        W.Conv(out_channels=4, kernel=(3, 3), pads=(1, 1, 1, 1), groups=2),
        W.ReLU(),
        W.Flatten(),
        W.Linear(out_features=8),
        W.Tanh(),
        W.Dropout(rate=0.5),
        W.Linear(out_features=CLASSES),
    ),
    "layers-of-a-mobile-network": graph(
        (3, 12, 10),
        (
            "stem",
            W.Conv(out_channels=4, kernel=(3, 3), stride=(2, 2), pads=(1, 1, 1, 1)),
            ("input",),
        ),
        ("stem_norm", W.BatchNorm(), ("stem",)),
        ("stem_relu", W.ReLU(), ("stem_norm",)),
        (
            "deep",
            W.Conv(out_channels=4, kernel=(3, 3), pads=(1, 1, 1, 1), groups=4, bias=False),
            ("stem_relu",),
        ),
        ("norm", W.BatchNorm(), ("deep",)),
        ("relu", W.ReLU(), ("norm",)),
        ("point", W.Conv(out_channels=8, kernel=(1, 1)), ("relu",)),
        (
            "strided",
            W.Conv(out_channels=16, kernel=(3, 3), stride=(2, 2), pads=(1, 1, 1, 1), groups=8),
            ("point",),
        ),
        (
            "dilated",
            W.Conv(out_channels=6, kernel=(3, 3), pads=(2, 2, 2, 2), dilation=(2, 2)),
            ("strided",),
        ),
        (
            "dilated_deep",
            W.Conv(out_channels=6, kernel=(2, 2), pads=(1, 1, 1, 1), dilation=(2, 1), groups=6),
            ("dilated",),
        ),
        ("pooled", W.GlobalAveragePool(), ("dilated_deep",)),
        ("flat", W.Flatten(), ("pooled",)),
        ("logits", W.Linear(out_features=CLASSES), ("flat",)),
    ),
    "uneven-windows": graph(
        (3, 9, 8),
        (
            "conv",
            W.Conv(out_channels=4, kernel=(3, 3), stride=(2, 2), pads=(0, 0, 1, 1)),
            ("input",),
        ),
        ("left", W.MaxPool(kernel=(3, 3), stride=(2, 2), ceil_mode=True), ("conv",)),
        ("right", W.AveragePool(kernel=(2, 2), stride=(2, 2)), ("conv",)),
        ("left_flat", W.Flatten(), ("left",)),
        ("right_flat", W.Flatten(), ("right",)),
        ("both", W.Concat(axis=1), ("left_flat", "right_flat")),
        ("sigmoid", W.Sigmoid(), ("both",)),
        ("logits", W.Linear(out_features=CLASSES), ("sigmoid",)),
    ),
    "films": CASES["films"],
    "film-parts": CASES["film-parts"],
    "windows-of-films": graph(
        (4, 5, 8, 6),
        ("conv", W.Conv(out_channels=8, kernel=(3, 3, 3), pads=(1, 1, 0, 1, 2, 1)), ("input",)),
        ("relu", W.ReLU(), ("conv",)),
        ("left", W.MaxPool(kernel=(3, 3, 3), stride=(2, 2, 2), ceil_mode=True), ("relu",)),
        (
            "right",
            W.AveragePool(kernel=(3, 3, 3), stride=(2, 2, 2), pads=(0, 1, 0, 0, 1, 0)),
            ("relu",),
        ),
        (
            "dilated",
            W.Conv(out_channels=4, kernel=(2, 2, 2), stride=(1, 2, 2), dilation=(2, 2, 1)),
            ("relu",),
        ),
        ("deep", W.Conv(out_channels=8, kernel=(1, 1, 1), stride=(1, 2, 2), groups=8), ("relu",)),
        ("left_flat", W.Flatten(), ("left",)),
        ("right_flat", W.Flatten(), ("right",)),
        ("dilated_flat", W.Flatten(), ("dilated",)),
        ("deep_flat", W.Flatten(), ("deep",)),
        ("all", W.Concat(axis=1), ("left_flat", "right_flat", "dilated_flat", "deep_flat")),
        ("logits", W.Linear(out_features=CLASSES), ("all",)),
    ),
    "dilated-max-pools": graph(
        (4, 4, 9, 8),
        ("relu", W.ReLU(), ("input",)),
        (
            "film",
            W.MaxPool(kernel=(2, 2, 2), stride=(1, 2, 1), pads=(1,) * 6, dilation=(1, 2, 3)),
            ("relu",),
        ),
        ("map", W.Reshape(shape=(16, 9, 8)), ("input",)),
        (
            "max",
            W.MaxPool(kernel=(3, 2), stride=(2, 1), pads=(0, 1, 1, 0), dilation=(2, 3)),
            ("map",),
        ),
        ("left", W.Flatten(), ("film",)),
        ("right", W.Flatten(), ("max",)),
        ("both", W.Concat(axis=1), ("left", "right")),
        ("logits", W.Linear(out_features=CLASSES), ("both",)),
    ),
    "average-of-uneven-windows": chain(
        (3, 9, 8),
        W.AveragePool(kernel=(2, 2), stride=(2, 2), pads=(0, 1, 0, 0)),
        W.Flatten(),
        W.Linear(out_features=CLASSES),
    ),
    "features-with-batch_norm": chain(
        (6,),
        W.Linear(out_features=7),
        W.BatchNorm(epsilon=1e-3),
        W.ReLU(),
        W.Linear(out_features=CLASSES, bias=False),
    ),
    "mobile": graph(
        (3, 9, 8),
        ("stem", W.Conv(out_channels=6, kernel=(3, 3), bias=False), ("input",)),
        ("stem_norm", W.BatchNorm(), ("stem",)),
        ("wide", W.ReLU6(), ("stem_norm",)),
        ("apart", W.Conv(out_channels=6, kernel=(3, 3), groups=6, bias=False), ("wide",)),
        ("norm", W.BatchNorm(), ("apart",)),
        ("shown", W.Sigmoid(), ("norm",)),
        ("silu", W.Mul(), ("norm", "shown")),
        ("hard", W.HardSigmoid(), ("silu",)),
        ("swish", W.Mul(), ("silu", "hard")),
        ("squeezed", W.GlobalAveragePool(), ("swish",)),
        ("narrow", W.Conv(out_channels=2, kernel=(1, 1)), ("squeezed",)),
        ("relu", W.ReLU(), ("narrow",)),
        ("gate", W.Conv(out_channels=6, kernel=(1, 1)), ("relu",)),
        ("sigmoid", W.HardSigmoid(), ("gate",)),
        ("excited", W.Mul(), ("swish", "sigmoid")),
        ("down", W.Conv(out_channels=4, kernel=(1, 1)), ("excited",)),
        ("pooled", W.GlobalAveragePool(), ("down",)),
        ("flat", W.Flatten(), ("pooled",)),
        ("logits", W.Linear(out_features=CLASSES), ("flat",)),
    ),
    "maps-joined-twice": graph(
        (2, 5, 8),
        ("both", W.Concat(axis=3), ("input", "input")),
        ("three", W.Concat(axis=3), ("input", "both")),
        ("conv", W.Conv(out_channels=3, kernel=(3, 2)), ("three",)),
        ("flat", W.Flatten(), ("conv",)),
        ("logits", W.Linear(out_features=CLASSES), ("flat",)),
    ),
    "joined-turned-and-joined": graph(
        (4, 6),
        ("both", W.Concat(axis=1), ("input", "input")),
        ("turned", W.Transpose(axes=(2, 1)), ("both",)),
        ("four", W.Concat(axis=2), ("turned", "turned")),
        ("drop", W.Dropout(rate=0.0), ("four",)),
        ("five", W.Concat(axis=2), ("drop", "turned")),
        ("logits", W.Linear(out_features=CLASSES), ("five",)),
    ),
    "bounds-after-a-normalisation": graph(
        (6,),
        ("norm", W.LayerNorm(epsilon=1e-3), ("input",)),
        ("hard", W.HardSigmoid(), ("norm",)),
        ("relu", W.ReLU6(), ("hard",)),
        ("next_norm", W.BatchNorm(epsilon=0.1), ("relu",)),
        ("logits", W.Linear(out_features=CLASSES), ("next_norm",)),
    ),
    "steps-that-are-placed": graph(
        (4, 3),
        ("hidden", W.LSTM(hidden=2), ("input",)),
        ("placed", W.PositionEmbedding(), ("hidden",)),
        ("some", W.Gather(axis=1, indices=(2, 3, 3)), ("placed",)),
        ("logits", W.Linear(out_features=CLASSES), ("some",)),
    ),
    "bounds-after-bounds": graph(
        (4, 7, 6),
        ("hard", W.HardSigmoid(), ("input",)),
        ("relu", W.ReLU(), ("hard",)),
        ("again", W.ReLU(), ("relu",)),
        ("wide", W.Pad(pads=(0, 2, 2, 0, 1, 1)), ("again",)),
        ("pooled", W.GlobalAveragePool(), ("wide",)),
        ("flat", W.Flatten(), ("pooled",)),
        ("logits", W.Linear(out_features=CLASSES), ("flat",)),
    ),
    "windows-past-the-end": graph(
        (2, 5, 8),
        (
            "pool",
            W.AveragePool(kernel=(3, 3), stride=(3, 3), ceil_mode=True, count_include_pad=True),
            ("input",),
        ),
        ("flat", W.Flatten(), ("pool",)),
        ("logits", W.Linear(out_features=CLASSES), ("flat",)),
    ),
    "windows-left-out": graph(
        (2, 14, 4),
        ("even", W.MaxPool(**LEFT_OUT, pads=(1, 1, 1, 1)), ("input",)),
        ("uneven", W.MaxPool(**LEFT_OUT, pads=(0, 0, 1, 1)), ("input",)),
        ("mean", W.AveragePool(**LEFT_OUT, pads=(1, 1, 1, 1)), ("input",)),
        (
            "counted",
            W.AveragePool(**LEFT_OUT, pads=(1, 1, 1, 1), count_include_pad=True),
            ("input",),
        ),
        ("all", W.Concat(axis=1), ("even", "uneven", "mean", "counted")),
        ("flat", W.Flatten(), ("all",)),
        ("logits", W.Linear(out_features=CLASSES), ("flat",)),
    ),
    "a-map-of-classes": graph(
        (3, 6, 4),
        ("conv", W.Conv(out_channels=4, kernel=(3, 3), pads=(1, 1, 1, 1)), ("input",)),
        ("norm", W.BatchNorm(epsilon=0.1), ("conv",)),
        ("relu", W.ReLU(), ("norm",)),
        ("up", W.ConvTranspose(out_channels=5, kernel=(2, 2), stride=(2, 2)), ("relu",)),
        ("logits", W.Conv(out_channels=CLASSES, kernel=(1, 1)), ("up",)),
    ),
    "steps-of-a-sequence": graph(
        (4, 3),
        ("hidden", W.LSTM(hidden=1), ("input",)),
        ("placed", W.PositionEmbedding(), ("hidden",)),
        ("some", W.Slice(starts=(1, 0), ends=(4, 1)), ("placed",)),
        ("relu", W.ReLU(), ("some",)),
        ("wide", W.Pad(pads=(0, 2, 1, 0), value=0.5), ("relu",)),
        ("last", W.Select(axis=2, index=-1), ("wide",)),
        ("logits", W.Linear(out_features=CLASSES), ("last",)),
    ),
    "a-normalisation-of-one-feature": chain(
        (6,),
        W.Linear(out_features=1, bias=False),
        W.LayerNorm(epsilon=0.1),
        W.Linear(out_features=CLASSES),
    ),
    "a-normalisation-that-is-doubled": graph(
        (6,),
        ("norm", W.LayerNorm(epsilon=1e-3), ("input",)),
        ("twice", W.Add(), ("norm", "norm")),
        ("more", W.Add(), ("twice", "twice")),
        ("logits", W.Linear(out_features=CLASSES), ("more",)),
    ),
    "a-normalisation-that-is-normalised": graph(
        (6,),
        ("norm", W.LayerNorm(epsilon=1e-3), ("input",)),
        ("next_norm", W.BatchNorm(epsilon=0.1), ("norm",)),
        ("both", W.Concat(axis=1), ("next_norm", "norm")),
        ("logits", W.Linear(out_features=CLASSES), ("both",)),
    ),
    "features-that-are-turned": graph(
        (4, 3),
        ("turned", W.Transpose(axes=(2, 1)), ("input",)),
        ("twice", W.Add(), ("turned", "turned")),
        ("bounded", W.ReLU6(), ("twice",)),
        ("sum", W.Add(), ("twice", "bounded")),
        ("gelu", W.GELU(approximate="tanh"), ("sum",)),
        ("hard", W.HardSigmoid(), ("gelu",)),
        ("logits", W.Linear(out_features=CLASSES), ("hard",)),
    ),
    "transposed-convolutions": graph(
        (4, 4, 3),
        (
            "uneven",
            W.ConvTranspose(
                out_channels=6, kernel=(3, 3), stride=(2, 2), pads=(1, 1, 0, 0), groups=2
            ),
            ("input",),
        ),
        ("norm", W.BatchNorm(), ("uneven",)),
        (
            "added",
            W.ConvTranspose(
                out_channels=4, kernel=(3, 2), stride=(3, 2), output_padding=(2, 1), bias=False
            ),
            ("norm",),
        ),
        ("relu", W.ReLU(), ("added",)),
        (
            "cut",
            W.ConvTranspose(out_channels=4, kernel=(3, 3), pads=(0, 4, 3, 1), dilation=(2, 2)),
            ("relu",),
        ),
        ("flat", W.Flatten(), ("cut",)),
        ("logits", W.Linear(out_features=CLASSES), ("flat",)),
    ),
    "transposed-convolutions-of-films": graph(
        (4, 2, 3, 2),
        (
            "uneven",
            W.ConvTranspose(
                out_channels=6,
                kernel=(2, 3, 2),
                stride=(2, 2, 1),
                pads=(1, 1, 0, 0, 0, 0),
                output_padding=(0, 1, 0),
                groups=2,
            ),
            ("input",),
        ),
        ("relu", W.ReLU(), ("uneven",)),
        (
            "dilated",
            W.ConvTranspose(
                out_channels=4, kernel=(2, 1, 3), stride=(1, 2, 1), dilation=(2, 1, 1), bias=False
            ),
            ("relu",),
        ),
        ("flat", W.Flatten(), ("dilated",)),
        ("logits", W.Linear(out_features=CLASSES), ("flat",)),
    ),
    "normalisations-of-groups": graph(
        (3, 6, 5),
        ("conv", W.Conv(out_channels=6, kernel=(2, 2)), ("input",)),
        ("groups", W.GroupNorm(groups=2, epsilon=1e-3), ("conv",)),
        ("relu", W.ReLU(), ("groups",)),
        ("each", W.GroupNorm(groups=6), ("relu",)),
        ("sum", W.Add(), ("each", "groups")),
        ("all", W.GroupNorm(groups=1, epsilon=0.1), ("sum",)),
        ("flat", W.Flatten(), ("all",)),
        ("hidden", W.Linear(out_features=8), ("flat",)),
        ("parts", W.GroupNorm(groups=4), ("hidden",)),
        ("one", W.GroupNorm(groups=1), ("parts",)),
        ("logits", W.Linear(out_features=CLASSES), ("one",)),
    ),
    "normalisations-by-the-root-mean-square": graph(
        (4, 6),
        ("norm", W.RMSNorm(epsilon=1e-3), ("input",)),
        ("up", W.Linear(out_features=8), ("norm",)),
        ("again", W.RMSNorm(), ("up",)),
        ("twice", W.RMSNorm(epsilon=0.1), ("again",)),
        ("down", W.Linear(out_features=6, bias=False), ("twice",)),
        ("sum", W.Add(), ("down", "input")),
        ("mean", W.LayerNorm(), ("sum",)),
        ("placed", W.PositionEmbedding(), ("mean",)),
        ("last", W.RMSNorm(), ("placed",)),
        ("logits", W.Linear(out_features=CLASSES), ("last",)),
    ),
    "slopes-of-channels": graph(
        (3, 6, 5),
        ("conv", W.Conv(out_channels=6, kernel=(2, 2)), ("input",)),
        ("each", W.PReLU(), ("conv",)),
        ("norm", W.BatchNorm(), ("each",)),
        ("one", W.PReLU(shared=True), ("norm",)),
        ("leaky", W.Elementwise(function="leaky_relu", alpha=0.1), ("one",)),
        ("flat", W.Flatten(), ("leaky",)),
        ("hidden", W.Linear(out_features=8), ("flat",)),
        ("of_features", W.PReLU(), ("hidden",)),
        ("of_all", W.PReLU(shared=True), ("of_features",)),
        ("logits", W.Linear(out_features=CLASSES), ("of_all",)),
    ),
    "mul-before-a-normalisation": CASES["mul-before-a-normalisation"],
    "hard_sigmoid-between-layers": CASES["hard_sigmoid-between-layers"],
    "channels-that-are-shuffled": CASES["reshape-shuffled-channels"],
    "features-with-layer_norm": graph(
        (6,),
        ("hidden", W.Linear(out_features=6, bias=False), ("input",)),
        ("norm", W.LayerNorm(epsilon=1e-3), ("hidden",)),
        ("relu", W.ReLU(), ("norm",)),
        ("sum", W.Add(), ("relu", "norm")),
        ("logits", W.Linear(out_features=CLASSES), ("sum",)),
    ),
    "layers-of-a-transformer": graph(
        (4, 6),
        ("norm", W.LayerNorm(), ("input",)),
        ("up", W.Linear(out_features=8), ("norm",)),
        ("gelu", W.GELU(), ("up",)),
        ("down", W.Linear(out_features=6), ("gelu",)),
        ("sum", W.Add(), ("down", "input")),
        ("last_norm", W.LayerNorm(epsilon=1e-6), ("sum",)),
        ("by_tanh", W.GELU(approximate="tanh"), ("last_norm",)),
        ("logits", W.Linear(out_features=CLASSES), ("by_tanh",)),
    ),
    "transformer": CASES["transformer"],
    "attention": CASES["attention"],
    "attention-causal": CASES["attention-causal"],
    "patches": EVERY_LAYER["patches"],
    "features-of-a-sequence": graph(
        (4, 6),
        ("mean", W.ReduceMean(axis=2), ("input",)),
        ("one", W.Select(axis=2, index=3), ("input",)),
        ("both", W.Concat(axis=1), ("mean", "one")),
        ("logits", W.Linear(out_features=CLASSES), ("both",)),
    ),
    "parts": EVERY_LAYER["parts"],
    "parts-of-maps": graph(
        (4, 6, 5),
        ("conv", W.Conv(out_channels=4, kernel=(2, 2)), ("input",)),
        ("part", W.Slice(starts=(1, 0, 1), ends=(4, 5, 4), steps=(1, 2, 1)), ("conv",)),
        ("turned", W.Gather(axis=1, indices=(2, 0, 1)), ("part",)),
        ("rows", W.Gather(axis=2, indices=(-1, 0, 0)), ("turned",)),
        ("relu", W.ReLU(), ("rows",)),
        ("wide", W.Pad(pads=(0, 1, 0, 0, 0, 2)), ("relu",)),
        ("next", W.Conv(out_channels=3, kernel=(3, 3), pads=(1, 1, 1, 0)), ("wide",)),
        ("deep", W.Pad(pads=(1, 0, 1, 2, 0, 0), value=-0.5), ("next",)),
        ("flat", W.Flatten(), ("deep",)),
        ("half", W.Slice(starts=(0,), ends=(50,), steps=(3,)), ("flat",)),
        ("logits", W.Linear(out_features=CLASSES), ("half",)),
    ),
    "features-of-a-tied-table": CASES["embedding-tied-with-a-bias"],
    "features": EVERY_LAYER["features"],
    "sequence": chain((4, 3), W.LSTM(hidden=6), W.Linear(out_features=CLASSES)),
    "language-model": chain(
        (5,),
        W.Embedding(entries=9, features=4),
        W.LSTM(hidden=6),
        W.LSTM(hidden=3),
        W.Linear(out_features=9),
        kind="index",
    ),
    "grus": chain(
        (4, 3),
        W.GRU(hidden=6, linear_before_reset=True),
        W.GRU(hidden=5, linear_before_reset=False),
        W.Linear(out_features=CLASSES),
    ),
    "rnns": chain(
        (4, 3),
        W.RNN(hidden=6),
        W.RNN(hidden=5, activation="relu"),
        W.Linear(out_features=CLASSES),
    ),
    "functions": WHOLE_FUNCTIONS,
    "small-addition": ELEMENTWISE["elementwise-of-a-small-addition"],
    **WHERE,
    **TOP_K,
    **GATHER_ELEMENTS,
}
#: Layers that no framework has as such: what they are composed of is exported.
COMPOSED = ("average-of-uneven-windows",)


def _export(adapter: Adapter, built: BuiltModel, model: W.Model, path: Path) -> str:
    """Export; a refusal is accepted where the description owns up to it.

    That is: ``deviations`` has a sentence that speaks of export and of a layer type of the model.
    """
    try:
        return adapter.export(built, path)
    except UnsupportedError as error:
        kinds = {W.type_name(node.layer) for node in model.nodes}
        for sentence in adapter.described.deviations:
            if "export" in sentence.lower() and any(kind in sentence for kind in kinds):
                pytest.skip(f"adapter '{adapter.name}' describes: {sentence} ({error})")
        raise


@pytest.mark.parametrize("name", MODELS)
def test_the_export_is_the_model(adapter: Adapter, tmp_path: Path, name: str) -> None:
    """Checked once each, since exporters are slow: the file, its validity, its operators in ONNX
    Runtime, its structure, and that exporting left the model as it was."""
    model = MODELS[name]
    adapter.require(model, "float32")
    weights = random_weights(model)
    built = adapter.build(model, weights, "float32")
    path = tmp_path / "model.onnx"
    exporter = _export(adapter, built, model, path)
    assert exporter.strip()
    assert [each.name for each in tmp_path.iterdir()] == ["model.onnx"], "one file"
    _assert_valid(path)
    inputs, labels = random_batch(model, "float32")
    last = model.nodes[-1].name
    own = built.forward(inputs)[last]
    (logits,) = run_model(path, {_input_name(path): inputs})
    away = distance(logits, own)
    assert away <= 1e-5, f"ONNX Runtime's logits are {away:.2g} from the model's own"
    if name not in COMPOSED:
        _assert_structure(model, weights, path)
    twin = adapter.build(model, weights, "float32")
    for key, value in weights.items():
        assert_same_bits(built.weights()[key], value, f"{key} after the export")
    if not any(isinstance(node.layer, W.Dropout) for node in model.nodes):
        batch = adapter.native(inputs, labels)
        assert float(built.train_step(*batch)) == float(twin.train_step(*batch))


#: What exporters have joined, or have written as another's weight.
NEIGHBOURS = {
    "scale-batch-norm": (W.Scale(sizes=(1, 7, 1)), W.BatchNorm()),
    "mask": (W.Mask(sizes=(4, 1, 1), kept="10", value=0.0),),
}


@pytest.mark.parametrize("name", NEIGHBOURS)
def test_neighbours_are_exported_as_they_are(adapter: Adapter, tmp_path: Path, name: str) -> None:
    model = chain((4, 7, 6), *NEIGHBOURS[name], W.Flatten(), W.Linear(out_features=CLASSES))
    adapter.require(model, "float32")
    _assert_exported_as_it_is(adapter, model, 0, tmp_path)


def test_random_models_export_as_they_are(
    adapter: Adapter, tmp_path: Path, pytestconfig: pytest.Config
) -> None:
    """Layers after one another that nobody thought of: exporters join what is next to each other."""
    adapter.require(dtype="float32")
    many = pytestconfig.getoption("--long", default=False)
    # What a resize is composed of has matrices that the canonical graph has not.
    kinds = frozenset(adapter.described.layers) - {"resize"}
    shared = "shared_layers" in adapter.described.features

    @settings(
        max_examples=400 if many else 10,
        derandomize=not many,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(model=models(kinds, shared=shared), seed=st.integers(0, 2**16))
    def run(model: W.Model, seed: int) -> None:
        _assert_exported_as_it_is(adapter, model, seed, tmp_path)

    run()


@pytest.mark.parametrize("name", ["lenet5", "residual"])
def test_a_float64_model_exports_as_exactly(adapter: Adapter, tmp_path: Path, name: str) -> None:
    """Run by the evaluator: ONNX Runtime has no float64 convolutions."""
    model = MODELS[name]
    adapter.require(model, "float64")
    weights = random_weights(model)
    built = adapter.build(model, weights)
    path = tmp_path / "model.onnx"
    _export(adapter, built, model, path)
    inputs, _ = random_batch(model)
    (logits,) = evaluate(onnx.load(str(path)), {_input_name(path): inputs}).values()
    away = distance(logits, built.forward(inputs)[model.nodes[-1].name])
    assert away <= 1e-10, f"the exported logits are {away:.2g} from the model's own"


def test_a_trained_model_exports_as_it_now_is(adapter: Adapter, tmp_path: Path) -> None:
    """Running statistics included, which only evaluation reads."""
    adapter.require(RESIDUAL, "float32")
    built = adapter.build(RESIDUAL, random_weights(RESIDUAL), "float32")
    inputs, labels = random_batch(RESIDUAL, "float32")
    for _ in range(3):
        built.train_step(*adapter.native(inputs, labels))
    path = tmp_path / "model.onnx"
    adapter.export(built, path)
    (logits,) = run_model(path, {_input_name(path): inputs})
    assert distance(logits, built.forward(inputs)["logits"]) <= 1e-5


def _assert_valid(path: Path) -> None:
    facts = check_exported(onnx.load(str(path), load_external_data=False))
    assert facts.consistent, facts.checker_error
    assert not facts.runtime_error, facts.runtime_error


def _input_name(path: Path) -> str:
    """The only input, whose batch axis is free or the built one; and there is one output."""
    made = onnx.load(str(path), load_external_data=False).graph
    held = {tensor.name for tensor in made.initializer}
    inputs = [value for value in made.input if value.name not in held]
    assert len(inputs) == 1, [value.name for value in inputs]
    assert len(made.output) == 1, [value.name for value in made.output]
    batch = inputs[0].type.tensor_type.shape.dim[0]
    assert not batch.HasField("dim_value") or batch.dim_value == BATCH
    return str(inputs[0].name)


def _assert_exported_as_it_is(adapter: Adapter, model: W.Model, seed: int, folder: Path) -> None:
    """The file has the structure of the model, and no check finds it another."""
    weights = random_weights(model, seed)
    path, canonical = folder / "model.onnx", folder / "canonical.onnx"
    _export(adapter, adapter.build(model, weights, "float32"), model, path)
    _assert_structure(model, weights, path)
    canonical.write_bytes(canonical_graph(model, weights).SerializeToString())
    certificate = compare_files(canonical, path)
    # ONNX Runtime refuses some poolings, which leaves files unproven.
    assert certificate.status(path.name) != "deviates", certificate.checks


def _assert_structure(model: W.Model, weights: dict[str, np.ndarray], path: Path) -> None:
    canonical = canonical_graph(model, weights, dtype="float32")
    compared = compare_structure(canonical, straight(onnx.load(str(path))))
    told = "\n".join(str(each) for each in compared.differences)
    assert compared.equal, f"the exported graph is another:\n{told}"
