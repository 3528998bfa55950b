"""A workload's model as a chain, with its loss and optimizer."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import chainer
import chainer.functions as F
import numpy as np
from chainer import Variable

from dlb_chainer.framework import get_device, host_copy
from dlb_chainer.losses import mean_loss
from dlb_chainer.modules import Part, TiedLinear, describe, masked_dropout, parameters_of
from dlb_chainer.optimizers import make_optimizer, set_learning_rate, state_of
from dlb_chainer.registry import ELEMENTWISE, LAYERS, ROWWISE
from dlb_worker.contract import BuildRequest, Gradients
from dlb_worker.layers import native_parameters
from dlb_worker.model import Model, Node
from dlb_worker.native import BuiltModel, NativeModel, last_result
from dlb_worker.parts import in_parts

Shape = tuple[int, ...]


class Network(chainer.ChainList):
    """The workload's graph of links and functions, run in order.

    Chainer's linear layers and layer normalisations compute on rows [rows, features]. They receive
    the rows of all samples of sequences, and elementwise layers leave them as rows.

    A value is let go of once its last reader has run, as it is in a chain written by hand: Chainer
    keeps what the backward pass needs, and the memory of the rest is used again at once.
    """

    def __init__(self, model: Model, masks: Mapping[str, Any]) -> None:
        self.source = model.input.name
        self.layers: dict[str, Callable[..., Variable]] = {}
        for node in model.nodes:
            if node.name in masks:
                mask = masks[node.name]
                layer: Any = partial(masked_dropout, ratio=node.rate, mask=mask)
            elif node.weights_of:
                layer = self.layers[node.weights_of]
            elif node.tied_to:
                layer = TiedLinear(node, self.layers[node.tied_to])
            else:
                layer = LAYERS[node.kind].build(node)
            self.layers[node.name] = layer
        links = dict.fromkeys(self.layers.values())
        super().__init__(*[link for link in links if isinstance(link, chainer.Link)])
        last_reader = {source: node.name for node in model.nodes for source in node.inputs}
        rows = _in_rows(model.nodes)
        #: Of values in rows, the shape of their samples.
        self.samples = {node.name: (-1, *node.shape) for node in model.nodes if node.name in rows}

        def read_as(node: Node, source: str, shape: Shape) -> Shape | None:
            """What a layer reads a value as; None for as it is."""
            if (source in rows) == (node.name in rows):
                return None
            return (-1, shape[-1]) if node.name in rows else (-1, *shape)

        self.wiring = [
            (
                node.name,
                [(s, read_as(node, s, shape)) for s, shape in zip(node.inputs, node.input_shapes)],
                {source for source in node.inputs if last_reader[source] == node.name},
            )
            for node in model.nodes
        ]

    def forward(self, inputs: Any) -> Variable:
        return self.values(inputs)[self.wiring[-1][0]]

    def values(self, inputs: Any, requested: Collection[str] = ()) -> dict[str, Variable]:
        """The outputs of the ``requested`` layers and of the last, by name."""
        values = {self.source: inputs}
        for name, sources, spent in self.wiring:
            values[name] = self.layers[name](
                *[_in_shape(values[source], shape) for source, shape in sources]
            )
            for source in spent:
                if source not in requested:
                    del values[source]
        return {name: _in_shape(value, self.samples.get(name)) for name, value in values.items()}


def _in_rows(nodes: Sequence[Node]) -> set[str]:
    """The layers that read and make the rows of samples with more than one."""
    rows: set[str] = set()
    for node in nodes:
        follows = node.kind in ELEMENTWISE and not rows.isdisjoint(node.inputs)
        if len(node.shape) > 1 and (node.kind in ROWWISE or follows):
            rows.add(node.name)
    return rows


def _in_shape(value: Any, shape: Shape | None) -> Any:
    return value if shape is None else F.reshape(value, shape)


class ChainerParameters(NativeModel):
    """A model whose natives are Chainer's parameters, parts of them, and the arrays of states."""

    def __init__(self, dtype: str, device: str) -> None:
        self.dtype = dtype
        self.type = np.dtype(dtype)
        self.device = get_device(device)

    def read(self, native: Any) -> np.ndarray:
        return host_copy(getattr(native, "array", native))

    def write(self, native: Any, array: np.ndarray) -> None:
        getattr(native, "array", native)[...] = self.device.send(array)

    def native(self, inputs: np.ndarray) -> Any:
        dtype = self.type if inputs.dtype.kind == "f" else inputs.dtype
        return self.device.send(np.ascontiguousarray(inputs, dtype))

    def _source(self, inputs: np.ndarray) -> Any:
        """Inputs whose gradient is taken, where they are real."""
        native = self.native(inputs)
        return Variable(native) if native.dtype.kind == "f" else native

    def _gradients(
        self, loss: Variable, inputs: Any, states: Mapping[str, np.ndarray]
    ) -> Gradients:
        """The gradients that a backward pass has left."""
        return Gradients(
            loss=host_copy(loss.array),
            parameters=self.gather(gradient_of),
            inputs=gradient_of(inputs) if isinstance(inputs, Variable) else None,
            states=states,
        )


class ChainerModel(ChainerParameters, BuiltModel):
    """A :class:`Network` with its optimizer, on its device."""

    def __init__(self, request: BuildRequest) -> None:
        super().__init__(request.dtype, request.device)
        self.workload = request.workload
        self.batch_size = request.batch_size
        self.share = request.share
        self.masks = {name: self.native(mask) for name, mask in request.masks.items()}
        with chainer.using_config("dtype", self.type):
            self.network = Network(request.workload.model, self.masks)
        self.network.to_device(self.device)
        # Without a gradient, a parameter would be left out of weight decay.
        links: Mapping[str, Any] = self.network.layers
        self.unreached = [
            parameter
            for name in request.workload.model.unreached
            for parameter in links[name].params()
        ]
        self.parameters = native_parameters(
            request.workload.model,
            LAYERS,
            lambda node: parameters_of(self.network.layers[node.name]),
        )
        self.load_weights(request.weights)
        described = request.workload.optimizer
        undecayed = self.undecayed_natives(described)
        self.optimizer = make_optimizer(
            described,
            self.network,
            [each.natives for each in self.parameters if each.trained],
            [native.whole if isinstance(native, Part) else native for native in undecayed],
        )
        if request.session is not None:
            self.network, self.optimizer = request.session.distribute(
                (self.network, self.optimizer)
            )

    def read_batch(self, inputs: Any, labels: Any) -> tuple[np.ndarray, np.ndarray]:
        return self.read(inputs), self.read(labels)

    def slots(self, native: Any) -> dict[str, np.ndarray]:
        whole, rows = (native.whole, native.rows) if isinstance(native, Part) else (native, ...)
        state = state_of(self.optimizer, self.workload.optimizer, whole)
        return {slot: host_copy(array[rows]) for slot, array in state.items()}

    def forward(
        self, inputs: np.ndarray, *, training: bool = False, layers: Sequence[str] = ()
    ) -> dict[str, np.ndarray]:
        names = (*layers, self.workload.model.last)
        # Chainer's word for a pass that leaves the running statistics alone.
        with (
            chainer.no_backprop_mode(),
            chainer.using_config("train", training),
            chainer.using_config("in_recomputing", True),
        ):
            values = self.network.values(self.native(inputs), names)
        return {name: host_copy(values[name].array) for name in names}

    def _targets(self, labels: np.ndarray) -> Any:
        """Labels as the loss reads them; Chainer's own are int32."""
        if self.workload.loss.of_classes:
            return self.device.send(labels.astype(np.int32))
        return self.native(labels)

    def gradients(self, inputs: np.ndarray, labels: np.ndarray) -> Gradients:
        native = self._source(inputs)
        with chainer.using_config("in_recomputing", True):
            loss = mean_loss(self.network(native), self._targets(labels), self.workload.loss)
        self.network.cleargrads()
        loss.backward()
        gradients = self._gradients(loss, native, {})
        self.network.cleargrads()
        return gradients

    def set_learning_rate(self, learning_rate: float) -> None:
        described = self.workload.optimizer
        set_learning_rate(self.optimizer, described, self.network, learning_rate)

    def train_step(self, inputs: Any, labels: Any) -> Any:
        return last_result(self.step_phases(inputs, labels))

    def step_phases(self, inputs: Any, labels: Any) -> Iterator[tuple[str, Any]]:
        parts, losses = self.workload.optimizer.accumulate, []
        self.network.cleargrads()
        for part, targets in in_parts(parts, inputs, labels):
            loss = mean_loss(self.network(part), targets, self.workload.loss)
            yield "forward", loss.array
            weight = self.share / parts
            (loss if weight == 1 else loss * weight).backward()
            yield "backward", loss.array
            # The array, for a variable would keep the whole graph alive through the next part or step.
            losses.append(loss.array)
            del loss
        for parameter in self.unreached:
            parameter.grad = self.device.xp.zeros_like(parameter.array)
        self.optimizer.update()
        yield "update", sum(losses) / parts if parts > 1 else losses[0]

    def load_masks(self, masks: Mapping[str, np.ndarray]) -> None:
        for name, mask in masks.items():
            self.masks[name][...] = self.native(mask)

    def seed_dropout(self, seed: int) -> None:
        self.device.xp.random.seed(seed)

    def describe_layers(self) -> dict[str, str]:
        return {name: describe(layer) for name, layer in self.network.layers.items()}


def gradient_of(native: Any) -> np.ndarray:
    """A parameter's gradient, or that of the inputs; zero where the loss does not depend on it."""
    if native.grad is None:
        return np.zeros_like(host_copy(native.array))
    return host_copy(native.grad)
