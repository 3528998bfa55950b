"""The truth's backward pass, against central differences of its own loss and against definitions."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from dlb.proof.reference import Reference
from dlb.samples import proof_inputs, proof_labels
from dlb_conformance.gradient_checks import assert_slopes
from dlb_conformance.layer_cases import CASES, EVERY_LAYER
from dlb_conformance.models import random_batch, random_weights
from dlb_conformance.test_losses import (
    BLANKS,
    IGNORED,
    MODELS,
    OF_NUMBERS,
    SMOOTHED,
    SMOOTHINGS,
    TEXTS,
    weighted,
)
from dlb_conformance.truth import gradients
from dlb_graph.workload import (
    CTC,
    GRU,
    RNN,
    AbsoluteError,
    AveragePool,
    BatchNorm,
    BinaryCrossEntropy,
    Conv,
    Flatten,
    GlobalAveragePool,
    GroupNorm,
    Huber,
    Input,
    Layer,
    Linear,
    Loss,
    MaxPool,
    Model,
    Node,
    PReLU,
    ReLU,
    ReLU6,
    RMSNorm,
    SoftmaxCrossEntropy,
    SquaredError,
    type_name,
)
from dlb_graph.workload.files import load, read
from dlb_graph.workload.initial import initial_weights, proof_masks, proof_weights

SEEDED = Path(__file__).parents[3] / "tests" / "seeded_faults" / "workloads"
NETWORKS = Path(__file__).parents[3] / "tests" / "cross" / "workloads"
FILES = sorted([*SEEDED.glob("*.toml"), *NETWORKS.glob("*.toml")])
#: All that the conformance suite asks of adapters, each with a model.
LOSSES: dict[str, tuple[Model, Loss]] = {
    **{f"smoothed-{name}": (model, SMOOTHED) for name, model in {**EVERY_LAYER, **MODELS}.items()},
    **{
        f"{name}-blank-{blank}": (model, CTC(most_labels=3, blank=blank))
        for name, model in TEXTS.items()
        for blank in BLANKS
    },
    **{key: (MODELS[name], by) for key, (name, by, _) in IGNORED.items()},
    **{
        f"weighted-{name}-{smoothing}": (MODELS[name], weighted(name, smoothing))
        for name in ("features", "sequence")
        for smoothing in SMOOTHINGS
    },
    **{
        f"{loss}-{name}": (model, by)
        for loss, by in OF_NUMBERS.items()
        for name, model in MODELS.items()
    },
}


def reference(model: Model, samples: int = 4, smoothing: float = 0.1) -> Reference:
    weights = proof_weights(initial_weights(model, 0), 0)
    inputs, labels = proof_inputs(model, 0, samples), proof_labels(model, 0, samples)
    masks, loss = proof_masks(model, 0, samples), SoftmaxCrossEntropy(label_smoothing=smoothing)
    return Reference(model, weights, inputs, labels, masks, loss)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_gradients_are_the_slopes_of_the_loss(path: Path) -> None:
    assert_slopes_of(read(path).model)


@pytest.mark.parametrize(
    "layer",
    [
        *(GRU(hidden=4, linear_before_reset=last) for last in (False, True)),
        *(RNN(hidden=4, activation=activation) for activation in ("tanh", "relu")),
    ],
    ids=repr,
)
def test_gradients_through_steps_are_the_slopes_of_the_loss(layer: Layer) -> None:
    layers = {"first": layer, "second": layer, "logits": Linear(out_features=3)}
    nodes = tuple(Node(name=name, layer=each) for name, each in layers.items())
    assert_slopes_of(Model(input=Input(shape=(5, 3)), nodes=nodes))


def assert_slopes_of(model: Model) -> None:
    truth = reference(model)
    gradients = truth.gradients(truth.training_layers)
    parameters = {name: g for name, g in gradients.items() if name not in ("loss", "input")}
    for name, slope in truth.slopes(parameters, gradients.get("input"), 0).items():
        assert slope.error < 1e-5, (name, slope)


#: What the conformance suite compares adapters with.
@pytest.mark.parametrize(
    ("model", "loss"),
    [
        *(
            pytest.param(model, SoftmaxCrossEntropy(), id=name)
            for name, model in {**CASES, **EVERY_LAYER}.items()
        ),
        *(pytest.param(*case, id=name) for name, case in LOSSES.items()),
    ],
)
def test_gradients_of_the_conformance_suite_are_the_slopes_of_the_loss(
    model: Model, loss: Loss
) -> None:
    weights, (inputs, labels) = random_weights(model), random_batch(model, loss=loss)
    found = gradients(model, weights, inputs, labels, by=loss)
    assert_slopes(found, model, weights, inputs, labels, by=loss)


@pytest.mark.parametrize("scale", [1, 1000])
@pytest.mark.parametrize(
    "loss", [BinaryCrossEntropy(), SquaredError(), AbsoluteError(), Huber(delta=0.7)], ids=type_name
)
def test_gradients_of_other_losses_are_their_slopes(loss: Loss, scale: float) -> None:
    """At outputs of order 1000, too, where a loss may be a million."""
    nodes = (
        Node(name="hidden", layer=Linear(out_features=6)),
        Node(name="relu", layer=ReLU()),
        Node(name="numbers", layer=Linear(out_features=2)),
    )
    model = Model(input=Input(shape=(3, 7)), nodes=nodes)
    weights = proof_weights(initial_weights(model, 0), 0)
    weights["numbers.weight"] = weights["numbers.weight"] * scale
    inputs, targets = proof_inputs(model, 0, 8), proof_labels(model, 0, 8, loss)
    truth = Reference(model, weights, inputs, targets, loss=loss)
    gradients = truth.gradients(truth.training_layers)
    parameters = {name: g for name, g in gradients.items() if name not in ("loss", "input")}
    for name, slope in truth.slopes(parameters, gradients["input"], 0).items():
        assert slope.error < 1e-5, (name, slope)


@pytest.mark.parametrize("name", ["lenet5", "caffe-mnist"])
def test_float32_is_near_float64(name: str) -> None:
    truth = reference(load(name).model)
    exact = truth.gradients(truth.training_layers)
    rounded = truth.gradients(truth.training_layers, dtype="float32")
    for tensor, array in exact.items():
        apart = np.linalg.norm(rounded[tensor] - array)
        assert 0 < apart < 1e-5 * max(np.linalg.norm(array), 1e-3), tensor


def gradient_of_input(*layers: object, x: np.ndarray) -> np.ndarray:
    """The gradient of the input if that of every output of the layers is 1."""
    from dlb_graph.layers import Pass

    (layer,) = layers
    shape = {MaxPool: (1, 1, 1, 1)}.get(type(layer), x.shape)
    (found,), _ = layer.gradients(Pass((x,), {}), np.ones(shape))
    return found


def test_the_gradient_at_a_bound_is_0() -> None:
    x = np.array([[-1.0, 0.0, 1.0, 6.0, 7.0]])
    assert gradient_of_input(ReLU(), x=x).tolist() == [[0, 0, 1, 1, 1]]
    assert gradient_of_input(ReLU6(), x=x).tolist() == [[0, 0, 1, 0, 0]]


def test_the_gradients_of_groups_and_slopes_are_the_slopes_of_the_loss() -> None:
    layers = (
        Conv(out_channels=6, kernel=(2, 2)),
        GroupNorm(groups=3),
        PReLU(),
        GroupNorm(groups=6),
        PReLU(shared=True),
        Flatten(),
        RMSNorm(),
        Linear(out_features=4),
        GroupNorm(groups=2),
    )
    nodes = tuple(Node(name=f"n{place}", layer=layer) for place, layer in enumerate(layers))
    truth = reference(Model(input=Input(shape=(2, 4, 3)), nodes=nodes))
    gradients = truth.gradients(truth.training_layers)
    parameters = {name: g for name, g in gradients.items() if name not in ("loss", "input")}
    for name, slope in truth.slopes(parameters, gradients.get("input"), 0).items():
        assert slope.error < 1e-5, (name, slope)


FILM = (2, 4, 4, 3)


@pytest.mark.parametrize(
    ("layers", "shape"),
    [
        (
            (Conv(out_channels=4, kernel=(2, 3, 2), stride=(2, 1, 1), pads=(1, 1, 0, 0, 1, 1)),),
            FILM,
        ),
        ((Conv(out_channels=4, kernel=(2, 2, 2), dilation=(2, 1, 2), groups=2),), FILM),
        ((MaxPool(kernel=(2, 2, 2), stride=(1, 2, 1), ceil_mode=True, pads=(0, 1, 0) * 2),), FILM),
        ((AveragePool(kernel=(2, 3, 2), stride=(2, 1, 1), pads=(1, 1, 1, 0, 2, 1)),), FILM),
        ((BatchNorm(), GroupNorm(groups=2), PReLU(), GlobalAveragePool()), FILM),
        ((MaxPool(kernel=(2, 3), stride=(2, 1), pads=(1, 1, 0, 2), dilation=(3, 2)),), (2, 7, 6)),
        ((MaxPool(kernel=(2, 2, 2), stride=(1, 1, 1), dilation=(2, 1, 2)),), FILM),
    ],
    ids=lambda given: "" if isinstance(given[0], int) else "-".join(map(type_name, given)),
)
def test_the_gradients_of_films_and_dilated_windows_are_the_slopes_of_the_loss(
    layers: tuple[Layer, ...], shape: tuple[int, ...]
) -> None:
    whole = (Conv(out_channels=4, kernel=(1,) * (len(shape) - 1)), *layers, Flatten())
    nodes = [Node(name=f"n{place}", layer=layer) for place, layer in enumerate(whole)]
    nodes.append(Node(name="logits", layer=Linear(out_features=4)))
    assert_slopes_of(Model(input=Input(shape=shape), nodes=tuple(nodes)))


def test_the_first_of_tied_elements_of_a_film_has_the_whole_gradient() -> None:
    x = np.array([[[1.0, 5.0], [5.0, 5.0]], [[5.0, 5.0], [5.0, 5.0]]])[None, None]
    found = gradient_of_input(MaxPool(kernel=(2, 2, 2), stride=(1, 1, 1)), x=x)
    assert found.tolist() == [[[[[0, 1], [0, 0]], [[0, 0], [0, 0]]]]]


def test_the_first_of_tied_elements_has_the_whole_gradient() -> None:
    x = np.array([[1.0, 5.0], [5.0, 5.0]])[None, None]
    found = gradient_of_input(MaxPool(kernel=(2, 2), stride=(2, 2)), x=x)
    assert found.tolist() == [[[[0, 1], [0, 0]]]]


def test_a_value_on_the_other_side_of_a_kink_is_the_adapters() -> None:
    """Gradients start from given values, so rounding that crosses a kink is no error."""
    model = Model(
        input=Input(shape=(1, 4, 4)),
        nodes=(
            Node(name="conv", layer=Conv(out_channels=2, kernel=(3, 3))),
            Node(name="relu", layer=ReLU()),
            Node(name="flat", layer=Flatten()),
            Node(name="logits", layer=Linear(out_features=3)),
        ),
    )
    truth = reference(model)
    values = {name: array.copy() for name, array in truth.training_layers.items()}
    before = truth.gradients(values)["conv.bias"]
    place = np.unravel_index(np.argmin(np.abs(values["conv"])), values["conv"].shape)
    values["conv"][place] *= -1
    assert not np.allclose(truth.gradients(values)["conv.bias"], before)
