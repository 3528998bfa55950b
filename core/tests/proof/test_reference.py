"""The truth of a model: which values, and how many of them at a time."""

from __future__ import annotations

import numpy as np

from dlb.proof.reference import Reference
from dlb.samples import random_labels
from dlb_graph.comparing.tolerances import SLOPE_TOLERANCE
from dlb_graph.workload import BatchNorm, Dropout, Elementwise, Input, Linear, Model, Node, ReLU
from dlb_graph.workload.initial import initial_weights
from dlb_graph.workload.noise import noise


def reference(*layers, masks=None) -> Reference:
    nodes = [Node(name=f"layer{place}", layer=layer) for place, layer in enumerate(layers)]
    model = Model(input=Input(shape=(6,)), nodes=tuple(nodes))
    inputs, labels = noise(model, 0, 5), random_labels(model, 0, 5)
    return Reference(model, initial_weights(model, 0), inputs, labels, masks)


def test_each_layer_is_given_the_values_it_would_have_read():
    truth = reference(Linear(out_features=4), BatchNorm(), ReLU(), Linear(out_features=3))
    values = {name: value + 1.0 for name, value in truth.layers.items()}
    isolated = dict(truth.isolated_layers(values))
    assert list(isolated) == list(truth.layers)
    np.testing.assert_array_equal(isolated["layer0"], truth.layers["layer0"])
    np.testing.assert_array_equal(isolated["layer2"], np.maximum(values["layer1"], 0.0))


def test_logits_are_the_last_layers_value():
    truth = reference(Linear(out_features=4), ReLU(), Linear(out_features=3))
    np.testing.assert_array_equal(truth.logits, truth.layers["layer2"])


def test_training_is_another_pass_where_a_layer_does_something_else_in_it():
    plain = reference(Linear(out_features=4), Dropout(), Linear(out_features=3))
    assert plain.training_layers is plain.layers
    normalised = reference(Linear(out_features=4), BatchNorm())
    assert not np.allclose(normalised.training_layers["layer1"], normalised.layers["layer1"])
    mask = {"layer1": np.arange(20.0).reshape(5, 4) % 2}
    dropped = reference(Linear(out_features=4), Dropout(rate=0.5), masks=mask)
    expected = dropped.layers["layer0"] * mask["layer1"] * 2
    np.testing.assert_allclose(dropped.training_layers["layer1"], expected, rtol=1e-15)


def test_slopes_are_those_of_the_straight_through_gradient(monkeypatch):
    """Where most of what is rounded is 0, and no smaller than 0 for a ReLU."""
    through = Elementwise(function="straight_through_round")
    layers = (Linear(out_features=8), through, ReLU(), Linear(out_features=3))
    truth = reference(*layers)
    assert (truth.training_layers["layer1"] == 0).mean() > 0.3
    given = truth.gradients(truth.training_layers)
    parameters = {name: array for name, array in given.items() if name.startswith("layer")}
    slopes = truth.slopes(parameters, given["input"], 0)
    assert max(slope.error for slope in slopes.values()) < SLOPE_TOLERANCE
    wrong = reference(*layers)
    monkeypatch.setattr(
        wrong, "_gradients_off_ties", lambda: {n: 1.01 * g for n, g in given.items()}
    )
    slopes = wrong.slopes(parameters, given["input"], 0)
    assert min(slope.error for slope in slopes.values()) > SLOPE_TOLERANCE
