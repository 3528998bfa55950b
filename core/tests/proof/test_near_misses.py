"""What was computed in place of a layer, or given for weights, is found, where one thing explains it."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pytest

from dlb_graph import workload as DLB
from dlb_graph.comparing.near_misses import NARROWER, layer_otherwise, weights_otherwise
from dlb_graph.truth.canonical import canonical_graph
from dlb_graph.truth.evaluate import Evaluator
from dlb_graph.workload.initial import initial_weights

IMAGE = DLB.Input(shape=(3, 6, 6))
NORM = DLB.BatchNorm(epsilon=1e-5, momentum=0.9)
CONV = DLB.Conv(out_channels=3, kernel=(3, 3), pads=(0, 0, 1, 1))
#: A layer, what is otherwise in it, and what is told of that.
LAYERS = {
    "epsilon": (NORM, {"epsilon": 1e-3}, {"epsilon": 1e-3}),
    "pads": (CONV, {"pads": (1, 1, 0, 0)}, {"pads": (1, 1, 0, 0)}),
    "no bias": (CONV, "left out", {"bias": False}),
    "turned": (CONV, "turned", {"weight": "turned"}),
    "a value not tried": (NORM, {"epsilon": 0.0123}, None),
    "nothing": (NORM, {}, None),
}


def computed(layer: Any, weights: dict[str, np.ndarray], inputs: np.ndarray) -> np.ndarray:
    model = DLB.Model(input=IMAGE, nodes=(DLB.Node(name="it", layer=layer),))
    graph = canonical_graph(model, None, dtype="float64")
    return Evaluator(graph).run({"input": inputs, **weights}, ["it"])["it"]


@pytest.mark.parametrize(("layer", "changed", "told"), LAYERS.values(), ids=list(LAYERS))
def test_what_was_computed_in_place_of_a_layer(layer: Any, changed: Any, told: Any) -> None:
    model = DLB.Model(input=IMAGE, nodes=(DLB.Node(name="it", layer=layer),))
    generator = np.random.default_rng(0)
    inputs = generator.standard_normal((4, *IMAGE.shape))
    weights = {
        name: np.abs(generator.standard_normal(array.shape))
        for name, array in initial_weights(model, 0).items()
    }
    other, its = layer, dict(weights)
    if changed == "left out":
        its["it.bias"] = np.zeros_like(its["it.bias"])
    elif changed == "turned":
        its["it.weight"] = its["it.weight"][:, :, ::-1, ::-1]
    else:
        other = msgspec.structs.replace(layer, **changed)
    values = {"input": inputs, **weights, "it": computed(other, its, inputs)}
    found = layer_otherwise(model, "it", values)
    assert _rounded(found) == [told] if told else not found


def _rounded(found: Any) -> list[dict[str, Any]]:
    return [
        {
            name: round(value, 9) if isinstance(value, float) else value
            for name, value in each.items()
        }
        for each in found
    ]


SEQUENCE = DLB.Input(shape=(5, 6))
ATTENTION = DLB.Attention(heads=3)
CAUSAL = DLB.Attention(heads=2, causal=True)
#: A layer, what is computed from its input and parameters in its place, and what is told.
COMPUTED: dict[str, tuple[Any, Any, Any]] = {
    "left out": (DLB.Tanh(), lambda x, right: x, {"layer": "left out but for input"}),
    "another kind": (DLB.Sigmoid(), lambda x, right: np.tanh(x), {"type": "tanh"}),
    "a slope": (
        DLB.ReLU(),
        lambda x, right: np.where(x > 0, x, 1e-3 * x),
        {"slope below zero": 0.001},
    ),
    "a bound": (
        DLB.ReLU(),
        lambda x, right: np.clip(x, 0, 1),
        {"value": "at most 1"},
    ),
    "turned": (DLB.Tanh(), lambda x, right: np.tanh(x[:, ::-1]), {"input": "turned along axis 1"}),
    "a multiple": (DLB.ReduceMean(axis=1), lambda x, right: x.sum(1), {"value": "times 5"}),
    "float32": (
        DLB.Tanh(),
        lambda x, right: right.astype(np.float32).astype(np.float64),
        {"values": "rounded to float32"},
    ),
    "unbiased": (
        DLB.LayerNorm(),
        lambda x, right: (
            (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True, ddof=1) + 1e-5)
        ),
        {"variance": "over n - 1 for n = 6"},
    ),
    "drops": (
        DLB.Tanh(),
        lambda x, right: np.where(np.arange(6) % 2, x / 0.5, 0.0),
        {"dropout": "in it"},
    ),
    "noise": (DLB.Tanh(), lambda x, right: right + 1e-3 * np.cos(37 * x), None),
}


@pytest.mark.parametrize(("layer", "compute", "told"), COMPUTED.values(), ids=list(COMPUTED))
def test_what_no_field_says(layer: Any, compute: Any, told: Any) -> None:
    model = DLB.Model(input=SEQUENCE, nodes=(DLB.Node(name="it", layer=layer),))
    x = np.random.default_rng(0).standard_normal((4, *SEQUENCE.shape))
    weights = initial_weights(model, 0)
    graph = canonical_graph(model, None, dtype="float64")
    right = Evaluator(graph).run({"input": x, **weights}, ["it"])["it"]
    values = {"input": x, **weights, "it": compute(x, right)}
    found = layer_otherwise(model, "it", values)
    assert _rounded(found) == [told] if told else not found


@pytest.mark.parametrize("told", [{"scale": 1.0}, {"mask": "shifted by 1 along axis 0"}], ids=str)
def test_a_constant_that_no_field_sets(told: Any) -> None:
    layer = ATTENTION if "scale" in told else CAUSAL
    model = DLB.Model(input=SEQUENCE, nodes=(DLB.Node(name="it", layer=layer),))
    generator = np.random.default_rng(0)
    x = generator.standard_normal((4, *SEQUENCE.shape))
    weights = {
        name: generator.standard_normal(array.shape)
        for name, array in initial_weights(model, 0).items()
    }
    graph = canonical_graph(model, None, dtype="float64")
    later = np.triu(np.full((5, 5), -np.inf), 2)
    other = {"it/scale": np.float64(1.0)} if "scale" in told else {"it/mask": later}
    value = Evaluator(graph).run({"input": x, **weights, **other}, ["it"])["it"]
    assert _rounded(layer_otherwise(model, "it", {"input": x, **weights, "it": value}))[0] == told


def test_values_that_overflow_are_told_with_where() -> None:
    model = DLB.Model(input=SEQUENCE, nodes=(DLB.Node(name="it", layer=DLB.Sigmoid()),))
    x = 400 * np.random.default_rng(0).standard_normal((4, *SEQUENCE.shape))
    with np.errstate(all="ignore"):
        value = np.exp(x) / (1 + np.exp(x))
    ((told, text),) = layer_otherwise(model, "it", {"input": x, "it": value})[0].items()
    least = x[np.isnan(value)].min()
    assert (told, text) == ("values", f"that overflow where inputs are {least:.2g} or more")


def test_products_in_a_narrower_type() -> None:
    layer = DLB.Linear(out_features=7)
    model = DLB.Model(input=DLB.Input(shape=(6,)), nodes=(DLB.Node(name="it", layer=layer),))
    generator = np.random.default_rng(0)
    x, weight = generator.standard_normal((9, 6)), generator.standard_normal((7, 6))
    narrow = NARROWER["bfloat16"]
    weights = {"it.weight": weight, "it.bias": generator.standard_normal(7)}
    value = narrow(narrow(x) @ narrow(weight).T) + weights["it.bias"]
    found = layer_otherwise(model, "it", {"input": x, **weights, "it": value}, tolerance=1e-4)
    assert found == ({"products of it": "in bfloat16"},)


GIVEN = {"a.weight": np.arange(1.0, 7.0).reshape(2, 3), "b.weight": np.full((2, 3), 0.1)}
#: What is held in place of ``a.weight``, and what is told.
HELD = {
    "another's": (GIVEN["b.weight"], "that of b.weight"),
    "turned": (GIVEN["a.weight"][::-1], "in another order"),
    "one": (GIVEN["a.weight"] + 1e-7 * (GIVEN["a.weight"] == 2), "off in 1 of 6 numbers"),
    "none": (GIVEN["a.weight"] + 0.5, "of numbers that were not given: not loaded, or overwritten"),
    "right": (GIVEN["a.weight"], ""),
}


@pytest.mark.parametrize(("held", "told"), HELD.values(), ids=list(HELD))
def test_what_is_held_in_place_of_weights(held: Any, told: str) -> None:
    found = weights_otherwise({**GIVEN, "a.weight": held}, GIVEN)
    assert found == (({"a.weight": told},) if told else ())
