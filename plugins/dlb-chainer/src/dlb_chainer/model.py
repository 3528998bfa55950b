"""A workload's model as a chain, with its loss and optimizer."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import chainer
import chainer.functions as F
import numpy as np
from chainer import Variable
from chainer.backends import cuda

from dlb import workload as W
from dlb.contract import BuildRequest, Gradients, TrainableModel
from dlb.workload.shapes import tied_to
from dlb_chainer.layers import TABLE, MaskedDropout, Place, tied_linear, told
from dlb_chainer.optimizers import make_optimizer, set_learning_rate, state_of


class Network(chainer.ChainList):
    """The workload's graph of links and functions, run in order.

    Chainer's linear layers and layer normalisations are over rows [rows, features]. Of sequences
    they are given the rows of all samples, and what works on numbers one by one leaves them so.

    A value is let go of once its last reader has run, as it is in a chain written by hand: Chainer
    keeps what the backward pass needs, and the memory of the rest is used again at once.
    """

    def __init__(self, model: W.Model, masks: Mapping[str, Any]) -> None:
        shapes = W.infer_shapes(model)
        nodes = model.wired()
        self.layers: dict[str, Callable[..., Variable]] = {}
        for node in nodes:
            given = shapes[node.inputs[0]]
            if node.name in masks:
                layer: Any = MaskedDropout(node.layer.rate, masks[node.name])
            elif tied_to(node):
                layer = tied_linear(node.layer, given, self.layers[tied_to(node)])
            else:
                layer = TABLE[type(node.layer)].make(node.layer, given)
            self.layers[node.name] = layer
        super().__init__(*[each for each in self.layers.values() if isinstance(each, chainer.Link)])
        self.source = model.input.name
        last_reader = {source: node.name for node in nodes for source in node.inputs}
        rows = in_rows(nodes, shapes)
        #: Of values in rows, the shape of their samples.
        self.samples = {name: (-1, *shapes[name]) for name in rows}

        def shape(source: str, node: W.Node) -> tuple[int, ...] | None:
            """What a layer takes a value in, where it is not in that."""
            if (source in rows) == (node.name in rows):
                return None
            return (-1, shapes[source][-1]) if node.name in rows else self.samples[source]

        self.wiring = [
            (
                node.name,
                [(source, shape(source, node)) for source in node.inputs],
                {source for source in node.inputs if last_reader[source] == node.name},
            )
            for node in nodes
        ]

    def forward(self, inputs: Any) -> Variable:
        return self.values(inputs)[self.wiring[-1][0]]

    def values(self, inputs: Any, wanted: Collection[str] = ()) -> dict[str, Variable]:
        """The output of the ``wanted`` layers and of the last, by name."""
        values = {self.source: inputs}
        for name, sources, spent in self.wiring:
            given = [_in_shape(values[source], shape) for source, shape in sources]
            values[name] = self.layers[name](*given)
            for source in spent:
                if source not in wanted:
                    del values[source]
        return {name: _in_shape(value, self.samples.get(name)) for name, value in values.items()}


def in_rows(nodes: Sequence[W.Node], shapes: Mapping[str, tuple[int, ...]]) -> set[str]:
    """The layers that take and make the rows of samples with more than one."""
    found: set[str] = set()
    for node in nodes:
        over = TABLE[type(node.layer)].over
        if len(shapes[node.name]) > 1 and (
            over == "rows" or (over == "numbers" and not found.isdisjoint(node.inputs))
        ):
            found.add(node.name)
    return found


def _in_shape(value: Any, shape: tuple[int, ...] | None) -> Any:
    return value if shape is None else F.reshape(value, shape)


class ChainerModel(TrainableModel):
    """A :class:`Network` with its optimizer, on its device."""

    def __init__(self, request: BuildRequest) -> None:
        self.workload = request.workload
        self.batch_size = request.batch_size
        self.dtype = np.dtype(request.dtype)
        self.device = chainer.get_device("@cupy:0" if request.device == "cuda" else "@numpy")
        masks = {name: self._native(mask) for name, mask in request.masks.items()}
        with chainer.using_config("dtype", self.dtype):
            self.network = Network(request.workload.model, masks)
        self.network.to_device(self.device)
        self.places = self._places()
        self.load_weights(request.weights)
        self.optimizer = make_optimizer(request.workload.optimizer, self.network)
        if request.session is not None:
            self.network, self.optimizer = request.session.distribute(
                (self.network, self.optimizer)
            )

    def _places(self) -> dict[str, tuple[chainer.Link, Place]]:
        """Link and place of every parameter and state, by canonical name."""
        layers = {node.name: node.layer for node in self.workload.model.nodes}
        found = {}
        for name in W.parameter_shapes(self.workload.model):
            layer, parameter = name.split(".")
            place = TABLE[type(layers[layer])].places[parameter]
            found[name] = (self.network.layers[layer], place)
        return found

    def weights(self) -> dict[str, np.ndarray]:
        return {
            name: place.to_canonical(_host(place.part(_array(place.of(link)))))
            for name, (link, place) in self.places.items()
        }

    def load_weights(self, weights: Mapping[str, np.ndarray]) -> None:
        for name, (link, place) in self.places.items():
            place.part(_array(place.of(link)))[...] = self.device.send(
                place.to_native(np.asarray(weights[name], self.dtype))
            )

    def optimizer_state(self) -> dict[str, np.ndarray]:
        return {
            f"{name}.{slot}": place.to_canonical(_host(place.part(value)))
            for name, (param, place) in self._trained().items()
            for slot, value in state_of(self.optimizer, param).items()
        }

    def forward(
        self, inputs: np.ndarray, *, training: bool = False, layers: Sequence[str] = ()
    ) -> dict[str, np.ndarray]:
        wanted = [*layers, self.workload.model.nodes[-1].name]
        # Chainer's word for a pass that leaves the running statistics alone.
        with (
            chainer.no_backprop_mode(),
            chainer.using_config("train", training),
            chainer.using_config("in_recomputing", True),
        ):
            values = self.network.values(self._native(inputs), wanted)
        return {name: _host(values[name].array) for name in wanted}

    def gradients(self, inputs: np.ndarray, labels: np.ndarray) -> Gradients:
        given = self._native(inputs)
        real = given.dtype.kind == "f"
        if real:
            given = Variable(given)
        with chainer.using_config("in_recomputing", True):
            loss = mean_loss(
                self.network(given), self.device.send(labels.astype(np.int32)), self.workload.loss
            )
        self.network.cleargrads()
        loss.backward()
        found = Gradients(
            loss=_host(loss.array),
            parameters={
                name: place.to_canonical(_host(place.part(_gradient(param))))
                for name, (param, place) in self._trained().items()
            },
            inputs=_host(given.grad) if real else None,
        )
        self.network.cleargrads()
        return found

    def set_learning_rate(self, learning_rate: float) -> None:
        set_learning_rate(self.optimizer, self.network, learning_rate)

    def train_step(self, inputs: Any, labels: Any) -> Any:
        loss = mean_loss(self.network(inputs), labels, self.workload.loss)
        self.network.cleargrads()
        loss.backward()
        self.optimizer.update()
        # The array, for a variable would keep the whole graph alive through the next step.
        return loss.array

    def native_layers(self) -> dict[str, str]:
        return {name: told(layer) for name, layer in self.network.layers.items()}

    def _native(self, inputs: np.ndarray) -> Any:
        kind = self.dtype if inputs.dtype.kind == "f" else inputs.dtype
        return self.device.send(np.ascontiguousarray(inputs, kind))

    def _trained(self) -> dict[str, tuple[chainer.Parameter, Place]]:
        """Native parameter and place of everything that is trained, by canonical name."""
        native = {name: (place.of(link), place) for name, (link, place) in self.places.items()}
        return {n: pair for n, pair in native.items() if isinstance(pair[0], chainer.Parameter)}


def mean_loss(logits: Variable, labels: Any, loss: W.Loss) -> Variable:
    """Mean softmax cross-entropy; logits [N, C], or [N, T, C] with labels [N, T]."""
    if logits.ndim > 2:
        logits, labels = F.reshape(logits, (-1, logits.shape[-1])), labels.ravel()
    smoothing = loss.label_smoothing
    if not smoothing:
        return F.softmax_cross_entropy(logits, labels)
    logarithm = F.log_softmax(logits)
    hit = F.mean(F.select_item(logarithm, labels))
    return -((1 - smoothing) * hit + smoothing * F.mean(logarithm))


def _array(native: Any) -> Any:
    return native.array if isinstance(native, chainer.Parameter) else native


def _gradient(param: chainer.Parameter) -> Any:
    """A parameter's gradient, zero where the loss does not reach it."""
    return param.xp.zeros_like(param.array) if param.grad is None else param.grad


def _host(array: Any) -> np.ndarray:
    """A copy in host memory."""
    return np.array(cuda.to_cpu(array))
