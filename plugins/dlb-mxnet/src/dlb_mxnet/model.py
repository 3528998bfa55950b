"""A workload's model as a gluon block, with its loss and optimizer."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from operator import attrgetter
from typing import Any

import mxnet as mx
import numpy as np
from dlb.contract import BuildRequest, Gradients, TrainableModel
from mxnet import autograd, gluon
from mxnet.gluon import HybridBlock, Parameter

from dlb import workload as W
from dlb.workload.shapes import tied_to
from dlb_mxnet.framework import context
from dlb_mxnet.layers import (
    TABLE,
    BatchNormInDouble,
    Concat,
    MaskedDropout,
    Padded,
    Place,
    tied_linear,
)
from dlb_mxnet.optimizers import make_optimizer

#: Numbers whose squares are added up by one operator, which rounds more the more they are.
CHUNK = 1 << 18


class Network(HybridBlock):
    """The workload's graph of blocks, run in order."""

    def __init__(self, model: W.Model, dtype: str, masks: Mapping[str, np.ndarray]) -> None:
        super().__init__(prefix="")
        shapes = W.infer_shapes(model)
        self.source = model.input.name
        self.wiring = [(node.name, node.inputs) for node in model.wired()]
        self.layers = {}
        with self.name_scope():
            for node in model.wired():
                given = shapes[node.inputs[0]]
                if node.name in masks:
                    block = MaskedDropout(node.layer.rate, masks[node.name], dtype)
                elif tied_to(node):
                    block = tied_linear(node.layer, given, dtype, self.layers[tied_to(node)])
                elif isinstance(node.layer, W.Concat):
                    block = Concat(node.layer.axis, [shapes[name] for name in node.inputs])
                else:
                    block = TABLE[type(node.layer)].make(node.layer, given, dtype)
                self.layers[node.name] = block
                self.register_child(block, node.name)

    def hybrid_forward(self, F: Any, inputs: Any) -> Any:
        return self.values(inputs)[self.wiring[-1][0]]

    def values(self, inputs: Any) -> dict[str, Any]:
        """The output of every layer, by name."""
        values = {self.source: inputs}
        for name, sources in self.wiring:
            values[name] = self.layers[name](*[values[source] for source in sources])
        return values


class SmoothedLoss(gluon.HybridBlock):
    """Softmax cross-entropy of smoothed labels, one number a sample as gluon's own."""

    def __init__(self, smoothing: float) -> None:
        super().__init__()
        self.smoothing = smoothing

    def hybrid_forward(self, F: Any, logits: Any, labels: Any) -> Any:
        logarithm = F.log_softmax(logits, axis=-1)
        hit = F.pick(logarithm, labels, axis=-1) * (1 - self.smoothing)
        shared = F.mean(logarithm, axis=-1) * self.smoothing
        return -F.mean(hit + shared, axis=0, exclude=True)


class MeanLoss:
    """The loss of a step, which waits for the device when it is read."""

    def __init__(self, array: mx.nd.NDArray) -> None:
        self.array = array

    def __float__(self) -> float:
        return float(self.array.asscalar())


class MXNetModel(TrainableModel):
    """A :class:`Network`, compiled unless asked not to, with its trainer, on its device."""

    def __init__(self, request: BuildRequest, *, compile: str) -> None:
        self.workload = request.workload
        self.batch_size = request.batch_size
        self.dtype = request.dtype
        self.context = context(request.device)
        self.network = Network(request.workload.model, request.dtype, request.masks)
        self.network.cast(request.dtype)
        self.network.initialize(mx.init.Zero(), ctx=self.context)
        smoothing = request.workload.loss.label_smoothing
        self.loss = SmoothedLoss(smoothing) if smoothing else gluon.loss.SoftmaxCrossEntropyLoss()
        if compile == "hybrid":
            for block in (self.network, self.loss):
                block.hybridize(static_alloc=True, static_shape=True)
        self.in_double = [
            block for block in self.network.layers.values() if isinstance(block, BatchNormInDouble)
        ]
        self.places = self._places()
        self.load_weights(request.weights)
        self.optimizer = make_optimizer(request.workload.optimizer, request.dtype)
        trained = self._trained_arrays()
        if request.session is not None:
            self.trainer = request.session.distribute((trained, self.optimizer))
        elif trained:
            self.trainer = gluon.Trainer(trained, self.optimizer)
        else:  # A trainer needs something to train.
            self.trainer = None
        # Views: what a step writes into the gradients is seen through them.
        self.gradients_held = [parameter.grad().reshape(-1) for parameter in trained]
        self.pieces = [
            each[at : at + CHUNK]
            for each in self.gradients_held
            for at in range(0, each.size, CHUNK)
        ]
        # Held are sums over samples and workers.
        self.share = self.optimizer.rescale_grad / self.batch_size

    def _places(self) -> dict[str, tuple[Parameter, Place]]:
        """Native parameter and place of every parameter and state, by canonical name."""
        layers = {node.name: node.layer for node in self.workload.model.nodes}
        found = {}
        for name in W.parameter_shapes(self.workload.model):
            layer, parameter = name.split(".")
            block = self.network.layers[layer]
            place = TABLE[type(layers[layer])].places[parameter]
            owner = block.layer if isinstance(block, Padded) else block
            found[name] = (attrgetter(place.attribute)(owner), place)
        return found

    def _trained(self) -> dict[str, tuple[Parameter, Place]]:
        """Native parameter and place of everything that is trained, by canonical name."""
        states = W.state_names(self.workload.model)
        return {name: found for name, found in self.places.items() if name not in states}

    def _trained_arrays(self) -> list[Parameter]:
        """The native parameters that are trained, as the optimizer numbers them.

        MXNet's SGD updates so many neighbours at once, four unless told, in a time that grows with
        the largest's size times how many they are: those of like size belong together, and the few
        that are left over may be the largest or the smallest. Its Adam updates one at a time, and
        takes 1.4 times as long in order of size as in the network's.
        """
        # Once each, though one may hold several of the description's.
        trained = list(dict.fromkeys(parameter for parameter, _ in self._trained().values()))
        at_once = self.optimizer.aggregate_num
        if at_once <= 1:
            return trained
        up = sorted(trained, key=_size)
        return min(up, up[::-1], key=lambda order: _visited(list(map(_size, order)), at_once))

    def weights(self) -> dict[str, np.ndarray]:
        mx.nd.waitall()
        return {
            name: place.to_canonical(place.part(parameter.data()).asnumpy())
            for name, (parameter, place) in self.places.items()
        }

    def load_weights(self, weights: Mapping[str, np.ndarray]) -> None:
        for name, (parameter, place) in self.places.items():
            place.part(parameter.data())[:] = place.to_native(weights[name])

    def optimizer_state(self) -> dict[str, np.ndarray]:
        indices = {parameter: index for index, parameter in enumerate(self._trained_arrays())}
        return {
            f"{name}.{slot}": place.to_canonical(place.part(value).asnumpy())
            for name, (parameter, place) in self._trained().items()
            for slot, value in self.optimizer.slots(indices[parameter]).items()
        }

    def forward(
        self, inputs: np.ndarray, *, training: bool = False, layers: Sequence[str] = ()
    ) -> dict[str, np.ndarray]:
        states = self._states()
        last = self.workload.model.nodes[-1].name
        with autograd.train_mode() if training else autograd.predict_mode():
            given = self._native(inputs)
            values = self.network.values(given) if layers else {last: self.network(given)}
        found = {name: values[name].asnumpy() for name in [*layers, last]}
        self._restore(states)
        return found

    def gradients(self, inputs: np.ndarray, labels: np.ndarray) -> Gradients:
        states = self._states()
        given = self._native(inputs)
        real = self.workload.model.input.kind == "real"
        if real:
            given.attach_grad()
        with autograd.record():
            loss = self.loss(self.network(given), self._native(labels))
        # The loss is one number a sample, so what flows back is the gradient of their sum.
        loss.backward()
        count = len(labels)
        found = Gradients(
            loss=loss.mean().asnumpy().reshape(()),
            parameters={
                name: place.to_canonical(place.part(parameter.grad()).asnumpy() / count)
                for name, (parameter, place) in self._trained().items()
            },
            inputs=given.grad.asnumpy() / count if real else None,
        )
        self._restore(states)
        return found

    def set_learning_rate(self, learning_rate: float) -> None:
        self.trainer.set_learning_rate(learning_rate)

    def train_step(self, inputs: mx.nd.NDArray, labels: mx.nd.NDArray) -> MeanLoss:
        kept = [block.statistics() for block in self.in_double]
        with autograd.record():
            loss = self.loss(self.network(inputs), labels)
        loss.backward()
        for block, before in zip(self.in_double, kept):
            block.settle(before)
        if self.workload.optimizer.clip_norm:
            self.trainer.allreduce_grads()
            limit = self.workload.optimizer.clip_norm
            clip(self.gradients_held, self.pieces, self.share, limit)
            self.trainer.update(self.batch_size)
        else:
            self.trainer.step(self.batch_size)
        return MeanLoss(loss.mean())

    def native_layers(self) -> dict[str, str]:
        return {name: repr(block) for name, block in self.network.layers.items()}

    def _native(self, array: np.ndarray) -> mx.nd.NDArray:
        dtype = self.dtype if array.dtype.kind == "f" else "int64"
        return mx.nd.array(array, ctx=self.context, dtype=dtype)

    def _states(self) -> list[tuple[mx.nd.NDArray, mx.nd.NDArray]]:
        """Arrays that a pass in training mode moves, with their values.

        A backward pass compiled with static_shape moves them behind the engine's back: only what
        waits for everything is sure to come before or after it.
        """
        mx.nd.waitall()
        arrays = [self.places[name][0].data() for name in W.state_names(self.workload.model)]
        states = [(array, array.copy()) for array in arrays]
        mx.nd.waitall()
        return states

    @staticmethod
    def _restore(states: list[tuple[mx.nd.NDArray, mx.nd.NDArray]]) -> None:
        mx.nd.waitall()
        for array, kept in states:
            kept.copyto(array)


def _size(parameter: Parameter) -> int:
    return math.prod(parameter.shape)


def _visited(sizes: Sequence[int], at_once: int) -> int:
    """How many places updates of so many neighbours at once look at."""
    groups = [sizes[at : at + at_once] for at in range(0, len(sizes), at_once)]
    return sum(max(group) * len(group) for group in groups)


def clip(
    gradients: list[mx.nd.NDArray], pieces: list[mx.nd.NDArray], share: float, limit: float
) -> None:
    """Bring gradients [n] down to a norm of ``share`` times them, without waiting for the device.

    gluon's clip_global_norm divides by the norm plus 1e-8, refuses float64, and adds an array's squares
    up at once: in float32, of two million numbers, 3e-6 off.
    """
    squares = mx.nd.add_n(*(mx.nd.dot(each, each) for each in pieces))
    scale = limit / mx.nd.maximum(mx.nd.sqrt(squares) * share, limit)
    for each in gradients:
        mx.nd.broadcast_mul(each, scale, out=each)
