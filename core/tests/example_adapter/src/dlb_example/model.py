"""A workload's model in NumPy: a table from layer type to its two passes, and SGD."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from dlb import workload as W
from dlb.contract import BuildRequest, Gradients, TrainableModel
from dlb.errors import UnsupportedError

Array = npt.NDArray[Any]
Arrays = dict[str, Array]


@dataclass(frozen=True)
class Passes:
    """The two passes of a layer type.

    Attributes:
        forward: (parameters, input) to output.
        backward: (parameters, input, output, gradient of the output) to the input's gradient and
            those of the parameters, by parameter.
    """

    forward: Callable[[Arrays, Array], Array]
    backward: Callable[[Arrays, Array, Array, Array], tuple[Array, Arrays]]


def linear(own: Arrays, x: Array) -> Array:
    return x @ own["weight"].T + own["bias"] if "bias" in own else x @ own["weight"].T


def linear_back(own: Arrays, x: Array, y: Array, dy: Array) -> tuple[Array, Arrays]:
    # Over sequences every time step is a row.
    rows, above = x.reshape(-1, x.shape[-1]), dy.reshape(-1, dy.shape[-1])
    found = {"weight": above.T @ rows, "bias": above.sum(axis=0)}
    return dy @ own["weight"], {name: found[name] for name in own}


TABLE: Mapping[type, Passes] = {
    W.Linear: Passes(linear, linear_back),
    W.ReLU: Passes(
        lambda own, x: np.maximum(x, 0),
        lambda own, x, y, dy: (dy * (x > 0), {}),
    ),
    W.Tanh: Passes(
        lambda own, x: np.tanh(x),
        lambda own, x, y, dy: (dy * (1 - y * y), {}),
    ),
    # Its factors are drawn, or taken from its mask, before each pass.
    W.Dropout: Passes(
        lambda own, x: x * own["factors"],
        lambda own, x, y, dy: (dy * own["factors"], {}),
    ),
    W.Flatten: Passes(
        lambda own, x: x.reshape(len(x), -1),
        lambda own, x, y, dy: (dy.reshape(x.shape), {}),
    ),
}


def refuse(request: BuildRequest) -> None:
    """Raises UnsupportedError for what the description does not have."""
    for node in request.workload.model.nodes:
        if type(node.layer) not in TABLE:
            kind = W.type_name(node.layer)
            raise UnsupportedError(f"layer '{node.name}': adapter 'example' has no layer {kind}")
    if not isinstance(request.workload.optimizer, W.SGD):
        kind = W.type_name(request.workload.optimizer)
        raise UnsupportedError(f"adapter 'example' has no optimizer {kind}; take sgd")


class ExampleModel(TrainableModel):
    """The model, its loss and its optimizer. Weights are kept in canonical layout already."""

    def __init__(self, request: BuildRequest, *, layout: str = "rows") -> None:
        refuse(request)
        self.order: Literal["C", "F"] = "C" if layout == "rows" else "F"
        self.workload = request.workload
        self.nodes = request.workload.model.wired()
        self.source = request.workload.model.input.name
        self.shapes = W.infer_shapes(request.workload.model)
        self.dtype = np.dtype(request.dtype)
        self.batch_size = request.batch_size
        self.masks = request.masks
        self.rates = {
            node.name: node.layer.rate for node in self.nodes if isinstance(node.layer, W.Dropout)
        }
        self.generator = np.random.default_rng()
        self.velocity: Arrays = {}
        self.load_weights(request.weights)
        # A strategy is given the function from a batch to its loss and gradients.
        self.step_gradients = self.loss_and_gradients
        if request.session is not None:
            self.step_gradients = request.session.distribute(self.loss_and_gradients)

    def weights(self) -> Arrays:
        return {name: array.copy() for name, array in self.values.items()}

    def load_weights(self, weights: Mapping[str, Array]) -> None:
        self.values = {
            name: array.astype(self.dtype, self.order) for name, array in weights.items()
        }

    def optimizer_state(self) -> Arrays:
        return {f"{name}.velocity": array.copy() for name, array in self.velocity.items()}

    def forward(
        self, inputs: Array, *, training: bool = False, layers: Sequence[str] = ()
    ) -> Arrays:
        found = self.run(inputs, self.factors(len(inputs), training))
        return {name: found[name] for name in [*layers, self.nodes[-1].name]}

    def gradients(self, inputs: Array, labels: Array) -> Gradients:
        loss, found = self.loss_and_gradients(inputs, labels)
        return Gradients(loss=loss, inputs=found.pop(self.source), parameters=found)

    def set_learning_rate(self, learning_rate: float) -> None:
        self.learning_rate = learning_rate

    def train_step(self, inputs: Array, labels: Array) -> Array:
        loss, found = self.step_gradients(inputs, labels)
        sgd = self.workload.optimizer
        assert isinstance(sgd, W.SGD)
        scale = 1.0
        if sgd.clip_norm:
            norm = np.sqrt(sum(np.sum(found[name] ** 2) for name in self.values))
            scale = sgd.clip_norm / max(norm, sgd.clip_norm)
        for name, weight in self.values.items():
            gradient = scale * found[name] + sgd.weight_decay * weight
            if sgd.momentum:
                before = self.velocity.get(name, np.zeros_like(weight))
                velocity = self.velocity[name] = sgd.momentum * before + gradient
                gradient = gradient + sgd.momentum * velocity if sgd.nesterov else velocity
            weight -= self.learning_rate * gradient
        return loss

    def native_layers(self) -> dict[str, str]:
        """What there is of NumPy: arrays and rates."""
        told = {}
        for node in self.nodes:
            held = [f"{name} {array.shape}" for name, array in self.parameters(node.name).items()]
            held += [f"rate {self.rates[node.name]}"] if node.name in self.rates else []
            told[node.name] = " ".join([W.type_name(node.layer), *held])
        return told

    # --- the mathematics -----------------------------------------------------------------

    def parameters(self, layer: str) -> Arrays:
        """A layer's parameters by their own name."""
        marked = f"{layer}."
        return {n.removeprefix(marked): a for n, a in self.values.items() if n.startswith(marked)}

    def factors(self, samples: int, training: bool) -> Arrays:
        """What each dropout multiplies a batch by: its mask or its own draw, scaled, or ones."""
        found = {}
        for name, rate in self.rates.items():
            shape = (samples, *self.shapes[name])
            kept = np.ones(shape, self.dtype)
            if training and name in self.masks:
                kept = self.masks[name][:samples].astype(self.dtype) / (1 - rate)
            elif training:
                kept = (self.generator.random(shape) >= rate) / (1 - rate)
            found[name] = kept.astype(self.dtype)
        return found

    def run(self, inputs: Array, factors: Arrays) -> Arrays:
        """The input's and every layer's value, by name."""
        values = {self.source: inputs.astype(self.dtype, copy=False)}
        for node in self.nodes:
            passes, own = TABLE[type(node.layer)], self.given(node.name, factors)
            values[node.name] = passes.forward(own, values[node.inputs[0]])
        return values

    def given(self, layer: str, factors: Arrays) -> Arrays:
        """What a layer's passes are given beside values."""
        return {"factors": factors[layer]} if layer in factors else self.parameters(layer)

    def loss_and_gradients(self, inputs: Array, labels: Array) -> tuple[Array, Arrays]:
        """The mean loss, and its gradient by every parameter and by the input."""
        factors = self.factors(len(inputs), True)
        values = self.run(inputs, factors)
        last = values[self.nodes[-1].name]
        logits, labels = last.reshape(-1, last.shape[-1]), labels.ravel()
        smoothing, classes = self.workload.loss.label_smoothing, logits.shape[1]
        shares = np.full_like(logits, smoothing / classes)
        shares[np.arange(len(labels)), labels] += 1 - smoothing
        shifted = logits - logits.max(axis=1, keepdims=True)
        total = np.exp(shifted).sum(axis=1, keepdims=True)
        loss = np.mean(np.log(total[:, 0]) - (shares * shifted).sum(axis=1))
        down = np.exp(shifted) / total - shares
        down /= np.asarray(len(labels), self.dtype)
        coming = {self.nodes[-1].name: down.reshape(last.shape)}
        found: Arrays = {}
        for node in reversed(self.nodes):
            source = node.inputs[0]
            given, own = values[source], self.given(node.name, factors)
            # A layer whose value nobody reads has no part in the loss.
            above = coming.get(node.name, np.zeros_like(values[node.name]))
            passes = TABLE[type(node.layer)]
            below, mine = passes.backward(own, given, values[node.name], above)
            coming[source] = coming[source] + below if source in coming else below
            found.update({f"{node.name}.{name}": array for name, array in mine.items()})
        return loss, {**found, self.source: coming[self.source]}
