"""A workload's model in NumPy: the passes of its layers, and SGD."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from dlb_example.losses import losses_and_slopes
from dlb_example.registry import LAYERS
from dlb_worker.contract import BuildRequest, Gradients
from dlb_worker.errors import UnsupportedError
from dlb_worker.native import BuiltModel
from dlb_worker.parameters import NativeParameter
from dlb_worker.updates import updated

Array = npt.NDArray[Any]
Arrays = dict[str, Array]


class ExampleModel(BuiltModel):
    """The model, its loss and its optimizer. Weights are kept in canonical layout already."""

    #: Bits of a number that linear layers work with under ``precision=bfloat16``.
    bits = 8

    def __init__(
        self, request: BuildRequest, *, layout: str = "rows", precision: str = "full"
    ) -> None:
        if precision == "bfloat16" and request.dtype != "float32":
            raise UnsupportedError("precision=bfloat16 keeps weights in float32")
        self.rounds = precision == "bfloat16"
        self.order: Literal["C", "F"] = "C" if layout == "rows" else "F"
        self.workload = request.workload
        self.nodes = request.workload.model.nodes
        self.passes = {node.name: LAYERS[node.kind].build(node) for node in self.nodes}
        self.source = request.workload.model.input.name
        self.type = np.dtype(request.dtype)
        self.dtype = request.dtype
        self.batch_size = request.batch_size
        self.masks = request.masks
        self.rates = {node.name: node.rate for node in self.nodes if node.kind == "dropout"}
        self.shapes = {node.name: node.shape for node in self.nodes}
        self.generator = np.random.default_rng(request.seed)
        self.velocity: Arrays = {}
        self.values: Arrays = {}
        # The framework knows a parameter by its name.
        self.parameters = [
            NativeParameter(each.name, node.name, role, each.trained, (each.name,))
            for node in self.nodes
            for role, each in node.parameters.items()
        ]
        self.load_weights(request.weights)
        # A strategy is given the function from a batch to its loss and gradients.
        self.step_gradients = self.loss_and_gradients
        if request.session is not None:
            self.share = request.share
            self.step_gradients = request.session.distribute(self.shared_gradients)

    def read(self, native: str) -> Array:
        return self.values[native].copy()

    def write(self, native: str, array: Array) -> None:
        self.values[native] = array.astype(self.type, self.order)

    def slots(self, native: str) -> Arrays:
        return {"velocity": self.velocity[native].copy()} if native in self.velocity else {}

    def forward(
        self, inputs: Array, *, training: bool = False, layers: Sequence[str] = ()
    ) -> Arrays:
        found = self.run(inputs, self.factors(len(inputs), training))
        return {name: found[name] for name in [*layers, self.nodes[-1].name]}

    def gradients(self, inputs: Array, labels: Array) -> Gradients:
        loss, found = self.loss_and_gradients(inputs, labels)
        return Gradients(loss=loss, inputs=found.pop(self.source), parameters=found)

    def shared_gradients(self, inputs: Array, labels: Array) -> tuple[Array, Arrays]:
        """Loss, and gradients as they count in the mean over workers."""
        loss, found = self.loss_and_gradients(inputs, labels)
        return loss, {name: self.share * found[name] for name in self.values}

    def set_learning_rate(self, learning_rate: float) -> None:
        self.learning_rate = learning_rate

    def train_step(self, inputs: Array, labels: Array) -> Array:
        loss, found = self.step_gradients(inputs, labels)
        self.update(found)
        return loss

    def step_phases(self, inputs: Array, labels: Array) -> Iterator[tuple[str, Array]]:
        if self.step_gradients != self.loss_and_gradients:
            raise UnsupportedError("a strategy wraps forward and backward as one function")
        factors = self.factors(len(inputs), True)
        values = self.run(inputs, factors)
        loss, down = self.loss_of(values, labels)
        yield "forward", loss
        found = self.backward(values, factors, down)
        yield "backward", loss
        self.update(found)
        yield "update", loss

    def update(self, found: Arrays) -> None:
        """Move the weights by a step of SGD."""
        sgd, rate = self.workload.optimizer, self.learning_rate
        scale = 1.0
        if sgd.clip_norm:
            norm = np.sqrt(sum(np.sum(found[name] ** 2) for name in self.values))
            scale = sgd.clip_norm / max(norm, sgd.clip_norm)
        for name, weight in self.values.items():
            state = {"velocity": self.velocity.get(name, np.zeros_like(weight))}
            moved, state = updated(sgd, weight, scale * found[name], state, rate, 1, np.sqrt)
            weight[...] = moved
            if state:
                self.velocity[name] = state["velocity"]

    def load_masks(self, masks: Mapping[str, Array]) -> None:
        self.masks = masks

    def seed_dropout(self, seed: int) -> None:
        self.generator = np.random.default_rng(seed)

    def describe_layers(self) -> dict[str, str]:
        """What there is of NumPy: arrays and rates."""
        described = {}
        for node in self.nodes:
            held = [f"{name} {array.shape}" for name, array in self.held_by(node.name).items()]
            held += [f"rate {self.rates[node.name]}"] if node.name in self.rates else []
            described[node.name] = " ".join([node.kind, *held])
        return described

    # --- the mathematics -----------------------------------------------------------------

    def held_by(self, layer: str) -> Arrays:
        """A layer's parameters by their own name."""
        marked = f"{layer}."
        return {n.removeprefix(marked): a for n, a in self.values.items() if n.startswith(marked)}

    def factors(self, samples: int, training: bool) -> Arrays:
        """What each dropout multiplies a batch by: its mask or its own draw, scaled, or ones."""
        found = {}
        for name, rate in self.rates.items():
            shape = (samples, *self.shapes[name])
            kept = np.ones(shape, self.type)
            if training and name in self.masks:
                kept = self.masks[name][:samples].astype(self.type) / (1 - rate)
            elif training:
                kept = (self.generator.random(shape) >= rate) / (1 - rate)
            found[name] = kept.astype(self.type)
        return found

    def run(self, inputs: Array, factors: Arrays) -> Arrays:
        """The input's and every layer's value, by name."""
        values = {self.source: inputs.astype(self.type, copy=False)}
        for node in self.nodes:
            passes, own = self.passes[node.name], self.given(node.name, factors)
            given = self.rounded(node.kind, values[node.inputs[0]])
            values[node.name] = self.rounded(node.kind, passes.forward(own, given))
        return values

    def given(self, layer: str, factors: Arrays) -> Arrays:
        """What a layer's passes are given beside values."""
        if layer in factors:
            return {"factors": factors[layer]}
        kind = next(node.kind for node in self.nodes if node.name == layer)
        return {name: self.rounded(kind, array) for name, array in self.held_by(layer).items()}

    def rounded(self, kind: str, array: Array) -> Array:
        """An array to be multiplied, rounded to fewer bits (Veltkamp 1968) where the variant says so."""
        if not self.rounds or kind != "linear":
            return array
        scaled = array * self.type.type(2 ** (24 - self.bits) + 1)
        return scaled - (scaled - array)

    def loss_and_gradients(self, inputs: Array, labels: Array) -> tuple[Array, Arrays]:
        """The mean loss, and its gradient by every parameter and by the input."""
        factors = self.factors(len(inputs), True)
        values = self.run(inputs, factors)
        loss, down = self.loss_of(values, labels)
        return loss, self.backward(values, factors, down)

    def loss_of(self, values: Arrays, labels: Array) -> tuple[Array, Array]:
        """The mean loss, and its gradient by the logits."""
        last, described = values[self.nodes[-1].name], self.workload.loss
        if not described.of_classes:
            losses, slopes = losses_and_slopes(last, labels, described)
            return losses.mean(), slopes / self.type.type(slopes.size)
        logits, labels = last.reshape(-1, last.shape[-1]), labels.ravel()
        smoothing, classes = described.label_smoothing, logits.shape[1]
        shares = np.full_like(logits, smoothing / classes)
        shares[np.arange(len(labels)), labels] += 1 - smoothing
        shifted = logits - logits.max(axis=1, keepdims=True)
        total = np.exp(shifted).sum(axis=1, keepdims=True)
        loss = np.mean(np.log(total[:, 0]) - (shares * shifted).sum(axis=1))
        down = np.exp(shifted) / total - shares
        down /= np.asarray(len(labels), self.type)
        return loss, down.reshape(last.shape)

    def backward(self, values: Arrays, factors: Arrays, down: Array) -> Arrays:
        """The gradients by every parameter and by the input, from that by the logits."""
        coming = {self.nodes[-1].name: down}
        found: Arrays = {}
        for node in reversed(self.nodes):
            source = node.inputs[0]
            given, own = self.rounded(node.kind, values[source]), self.given(node.name, factors)
            # A layer whose value nobody reads has no part in the loss.
            above = coming.get(node.name, np.zeros_like(values[node.name]))
            above = self.rounded(node.kind, above)
            passes = self.passes[node.name]
            below, mine = passes.backward(own, given, values[node.name], above)
            coming[source] = coming[source] + below if source in coming else below
            found.update({f"{node.name}.{name}": array for name, array in mine.items()})
        return {**found, self.source: coming[self.source]}
