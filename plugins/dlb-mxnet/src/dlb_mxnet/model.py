"""A workload's model as a gluon block, with its loss and optimizer."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain
from typing import Any

import mxnet as mx
import numpy as np
from mxnet import autograd, gluon
from mxnet.gluon import HybridBlock, Parameter

from dlb_mxnet.framework import context
from dlb_mxnet.losses import make_loss
from dlb_mxnet.modules import (
    BatchNormInDouble,
    MaskedDropout,
    Part,
    exact_statistics,
    parameters_of,
    tied_linear,
)
from dlb_mxnet.optimizers import make_optimizer
from dlb_mxnet.registry import LAYERS
from dlb_worker.contract import BuildRequest, Gradients
from dlb_worker.layers import native_parameters
from dlb_worker.model import Model
from dlb_worker.native import BuiltModel, NativeModel, last_result
from dlb_worker.parts import in_parts, shares

#: Numbers whose squares are added up by one operator, which rounds more the more they are.
CHUNK = 1 << 18


class Network(HybridBlock):
    """The workload's graph of blocks, run in order."""

    def __init__(self, model: Model, dtype: str, masks: Mapping[str, np.ndarray]) -> None:
        super().__init__(prefix="")
        self.source = model.input.name
        self.wiring = [(node.name, node.inputs) for node in model.nodes]
        self.layers: dict[str, HybridBlock] = {}
        with self.name_scope():
            for node in model.nodes:
                if node.name in masks:
                    block = MaskedDropout(node.rate, masks[node.name], dtype)
                elif node.weights_of:
                    block = self.layers[node.weights_of]
                elif node.tied_to:
                    block = tied_linear(node, self.layers[node.tied_to], dtype)
                else:
                    block = LAYERS[node.kind].build(node, dtype)
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


class MeanLoss:
    """The loss of a step, which waits for the device when it is read."""

    def __init__(self, array: mx.nd.NDArray) -> None:
        self.array = array

    def __float__(self) -> float:
        return float(self.array.asscalar())


class MXNetParameters(NativeModel):
    """A model that is a gluon block: its parameters are read and written, its states can be kept."""

    contexts: Sequence[mx.Context]

    @property
    def context(self) -> mx.Context:
        """That of the replica that is read."""
        return self.contexts[self.replica]

    def read(self, native: Parameter | Part) -> np.ndarray:
        mx.nd.waitall()
        return native.data(self.context).asnumpy()

    def write(self, native: Parameter | Part, array: np.ndarray) -> None:
        for each in self.contexts:
            _copy(array, native.data(each))

    def native(self, array: np.ndarray) -> mx.nd.NDArray:
        dtype = self.dtype if array.dtype.kind == "f" else "int64"
        return mx.nd.array(array, ctx=self.context, dtype=dtype)

    @contextmanager
    def unmoved_states(self) -> Iterator[None]:
        """Give states their values back, which a pass in training mode moves.

        A backward pass compiled with static_shape moves them without the engine's knowledge. Only
        after a wait for everything is it sure to be over.
        """
        mx.nd.waitall()
        arrays = [
            native.data(self.context)
            for each in self.parameters
            if not each.trained
            for native in each.natives
        ]
        copies = [array.copy() for array in arrays]
        mx.nd.waitall()
        try:
            yield
        finally:
            mx.nd.waitall()
            for array, copy in zip(arrays, copies):
                copy.copyto(array)


class MXNetModel(MXNetParameters, BuiltModel):
    """A :class:`Network`, compiled unless asked not to, with its trainer, on its device or on several."""

    def __init__(self, request: BuildRequest, *, compile: str) -> None:
        self.workload = request.workload
        self.batch_size = request.batch_size
        self.dtype = request.dtype
        self.contexts = getattr(request.session, "contexts", None) or [context(request.device)]
        #: How many samples of a step each replica has.
        self.sizes = shares(
            request.batch_size, len(self.contexts), request.workload.optimizer.accumulate
        )
        self.network = Network(request.workload.model, request.dtype, request.masks)
        self.network.cast(request.dtype)
        self.network.initialize(mx.init.Zero(), ctx=self.contexts)
        outputs = request.workload.model.nodes[-1].shape
        self.loss = make_loss(request.workload.loss, request.dtype, outputs)
        self.loss.initialize(ctx=self.contexts)
        if compile == "hybrid":
            for block in (self.network, self.loss):
                block.hybridize(static_alloc=True, static_shape=True)
        self.momentums = {
            block: block.exact_momentum
            for block in self.network.layers.values()
            if isinstance(block, BatchNormInDouble)
        }
        self.parameters = native_parameters(
            request.workload.model,
            LAYERS,
            lambda node: parameters_of(self.network.layers[node.name]),
        )
        self.load_weights(request.weights)
        if len(self.contexts) > 1:
            self.load_masks(request.masks)
        self.optimizer = make_optimizer(request.workload.optimizer, request.dtype)
        # Gradients are sums over samples.
        self.optimizer.rescale_grad = request.share / request.batch_size
        trained = self._trained()
        for native in self.undecayed_natives(request.workload.optimizer):
            _part(native).parameter.wd_mult = 0.0
        self.indices = {parameter: index for index, parameter in enumerate(trained)}
        if request.workload.optimizer.accumulate > 1:
            for parameter in trained:
                parameter.grad_req = "add"
        if request.session is not None:
            self.trainer = request.session.distribute((trained, self.optimizer))
        elif trained:
            self.trainer = gluon.Trainer(trained, self.optimizer)
        # Views, which show the gradients of every step. Each replica has the same ones then.
        self.clipped = [
            [parameter.grad(each).reshape(-1) for parameter in trained] for each in self.contexts
        ]
        if request.workload.optimizer.clip_variable_norm:
            self.clipped = [
                [_part(native).grad(ctx).reshape(-1) for native in each.natives]
                for ctx in self.contexts
                for each in self.parameters
                if each.trained
            ]
        self.pieces = [list(_pieces(gradients)) for gradients in self.clipped]

    def _trained(self) -> list[Parameter]:
        """The native parameters that are trained, as the optimizer numbers them.

        MXNet's SGD updates several neighbours at once, four by default. That takes a time that
        grows with their number times the size of the largest, so parameters of like size are put
        together. The last group is smaller: it may have the largest or the smallest. MXNet's Adam
        updates one at a time. In order of size it takes 1.4 times as long as in the network's.
        """
        # Attention keeps several parameters in one.
        natives = self.trained_natives()
        trained = list(dict.fromkeys(_part(native).parameter for native in natives))
        at_once = self.optimizer.aggregate_num
        if at_once <= 1:
            return trained
        up = sorted(trained, key=_size)
        return min(up, up[::-1], key=lambda order: _visited(list(map(_size, order)), at_once))

    def slots(self, native: Parameter | Part) -> dict[str, np.ndarray]:
        part = _part(native)
        arrays = self.optimizer.slots((self.indices[part.parameter], self.context))
        return {slot: part.view(array).asnumpy() for slot, array in arrays.items()}

    def forward(
        self, inputs: np.ndarray, *, training: bool = False, layers: Sequence[str] = ()
    ) -> dict[str, np.ndarray]:
        last = self.workload.model.last
        with self.unmoved_states(), autograd.train_mode() if training else autograd.predict_mode():
            native = self.native(inputs)
            values = self.network.values(native) if layers else {last: self.network(native)}
            return {name: values[name].asnumpy() for name in (*layers, last)}

    def gradients(self, inputs: np.ndarray, labels: np.ndarray) -> Gradients:
        native, count = self.native(inputs), len(labels)
        real = self.workload.model.input.kind == "real"
        if real:
            native.attach_grad()
        with self.unmoved_states():
            self._clear_sums()
            with autograd.record():
                loss = self.loss(self.network(native), self.native(labels))
            # The loss is one number a sample, so what flows back is the gradient of their sum.
            loss.backward()
            return Gradients(
                loss=loss.mean().asnumpy().reshape(()),
                parameters=self.gather(lambda each: each.grad(self.context).asnumpy() / count),
                inputs=native.grad.asnumpy() / count if real else None,
            )

    def set_learning_rate(self, learning_rate: float) -> None:
        self.trainer.set_learning_rate(learning_rate)

    def train_step(self, inputs: mx.nd.NDArray, labels: mx.nd.NDArray) -> MeanLoss:
        return last_result(self.step_phases(inputs, labels))

    def step_phases(
        self, inputs: mx.nd.NDArray, labels: mx.nd.NDArray
    ) -> Iterator[tuple[str, Any]]:
        optimizer = self.workload.optimizer
        self._clear_sums()
        losses = []
        by_replica = zip(self._divided(inputs), self._divided(labels))
        parts = chain.from_iterable(in_parts(optimizer.accumulate, *own) for own in by_replica)
        # The engine computes those of several contexts at once.
        for part, targets in parts:
            with exact_statistics(self.momentums):
                with autograd.record():
                    loss = self.loss(self.network(part), targets)
                yield "forward", loss
                loss.backward()
                yield "backward", loss
            losses.append(loss.mean())
        to_norm = optimizer.clip_norm or optimizer.clip_variable_norm
        if to_norm or optimizer.clip_value:
            self.trainer.allreduce_grads()
            if to_norm:
                self._clip(to_norm)
            else:
                self._limit(optimizer.clip_value / self.optimizer.rescale_grad)
            self.trainer.update(1)
        else:
            self.trainer.step(1)
        yield "update", MeanLoss(self._mean(losses) if losses[1:] else losses[0])

    def _divided(self, batch: mx.nd.NDArray) -> list[mx.nd.NDArray]:
        """Each replica's share of a batch, on its context."""
        if len(self.sizes) == 1:
            return [batch]
        ends = np.cumsum(self.sizes).tolist()
        parts = [batch[end - size : end] for end, size in zip(ends, self.sizes)]
        return [part.as_in_context(each) for part, each in zip(parts, self.contexts)]

    def _mean(self, losses: Sequence[mx.nd.NDArray]) -> mx.nd.NDArray:
        """Over all samples, of the mean losses of each replica's parts, which are equal."""
        replicas = len(self.sizes)
        if replicas > 1:
            sizes = np.repeat(self.sizes, len(losses) // replicas) * (replicas / self.batch_size)
            losses = [
                loss.as_in_context(self.contexts[0]) * size for loss, size in zip(losses, sizes)
            ]
        return mx.nd.add_n(*losses) / len(losses)

    def _clear_sums(self) -> None:
        """Let the sum of gradients begin anew, where passes add to it."""
        if self.workload.optimizer.accumulate > 1:
            for parameter in self.indices:
                parameter.zero_grad()

    def _clip(self, limit: float) -> None:
        """Bring gradients down to a norm, all or each parameter's, without waiting for the device.

        gluon's clip_global_norm divides by the norm plus 1e-8, refuses float64, and adds an array's
        squares up at once: in float32, of two million numbers, 3e-6 off.
        """
        for gradients, pieces in zip(self.clipped, self.pieces):
            squares = mx.nd.add_n(*(mx.nd.dot(piece, piece) for piece in pieces))
            norm = mx.nd.sqrt(squares) * self.optimizer.rescale_grad
            scale = limit / mx.nd.maximum(norm, limit)
            for gradient in gradients:
                mx.nd.broadcast_mul(gradient, scale, out=gradient)

    def _limit(self, limit: float) -> None:
        """Limit every element of the gradients. mx.nd.clip has its limits in float32."""
        for gradient in chain(*self.clipped):
            mx.nd.maximum(mx.nd.minimum(gradient, limit), -limit).copyto(gradient)

    def read_batch(
        self, inputs: mx.nd.NDArray, labels: mx.nd.NDArray
    ) -> tuple[np.ndarray, np.ndarray]:
        own, targets = (self._divided(batch)[self.replica] for batch in (inputs, labels))
        return own.asnumpy(), targets.asnumpy()

    def load_masks(self, masks: Mapping[str, np.ndarray]) -> None:
        firsts = np.cumsum((0, *self.sizes[:-1]))
        for name, mask in masks.items():
            for first, held in zip(firsts, self.network.layers[name].mask.list_data()):
                _copy(np.roll(mask, -first, 0), held)

    def seed_dropout(self, seed: int) -> None:
        # Contexts of one processor draw from one generator, a replica's passes after those of the one before.
        if not self.replica:
            mx.random.seed(seed)

    def describe_layers(self) -> dict[str, str]:
        return {name: repr(block) for name, block in self.network.layers.items()}


def _part(native: Parameter | Part) -> Part:
    return native if isinstance(native, Part) else Part(native)


def _copy(array: np.ndarray, held: mx.nd.NDArray) -> None:
    """A plain copy into a parameter's memory: oneDNN may keep it in a layout of its own."""
    # Back to MXNet's own layout, for the copy cannot write oneDNN's of five axes.
    if held.ndim == 5:
        held[:] = 0
    mx.nd.array(array, ctx=held.context, dtype=held.dtype).copyto(held)


def _pieces(gradients: Sequence[mx.nd.NDArray]) -> Iterator[mx.nd.NDArray]:
    for gradient in gradients:
        for start in range(0, gradient.size, CHUNK):
            yield gradient[start : start + CHUNK]


def _size(parameter: Parameter) -> int:
    return math.prod(parameter.shape)


def _visited(sizes: Sequence[int], at_once: int) -> int:
    """How many elements SGD visits when it updates so many neighbours at once."""
    groups = [sizes[start : start + at_once] for start in range(0, len(sizes), at_once)]
    return sum(max(group) * len(group) for group in groups)
