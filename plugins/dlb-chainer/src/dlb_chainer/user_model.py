"""A link that a user wrote: its parameters, its links' values, its gradients."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import replace
from operator import attrgetter
from typing import Any

import chainer
import chainer.functions as F
import chainer.links as L
import numpy as np
from chainer import Variable
from chainer.functions.noise.dropout import Dropout as DropoutFunction
from chainer.links.rnn.n_step_rnn import NStepRNNBase

from dlb_chainer.framework import host_copy
from dlb_chainer.model import ChainerParameters, gradient_of
from dlb_chainer.registry import LAYERS
from dlb_worker.contract import (
    Dropout,
    ForwardPass,
    Gradients,
    Inputs,
    LayerCall,
    UserModelRequest,
)
from dlb_worker.native import tensors, text_attributes
from dlb_worker.parameters import (
    Kinds,
    Mappings,
    ParameterMapping,
    kind_among,
    location,
    recurrent_mappings,
    stacked,
)
from dlb_worker.user_layers import (
    LayeredUserModel,
    bound,
    first_tensor,
    input_gradients,
    make_model,
    needed_inputs,
    other_tensors,
)


def _n_step_lstm(link: chainer.Link) -> Mappings:
    """For every layer, a matrix and two biases, which are added, for each gate.

    The gates are input, forget, cell, output: first those of the input, then of the last step.
    """
    upward, lateral = (0, 3, 1, 2), (4, 7, 5, 6)
    return recurrent_mappings(
        link.n_layers,
        1,
        lambda layer, backward: {
            "input_weight": stacked([f"{layer}.w{gate}" for gate in upward]),
            "recurrent_weight": stacked([f"{layer}.w{gate}" for gate in lateral]),
            "bias": _added([f"{layer}.b{gate}" for gate in (*upward, *lateral)]),
        },
    )


def _added(attributes: Sequence[str]) -> ParameterMapping:
    """Biases of four gates, and four more that are added to them."""
    return ParameterMapping(
        tuple(attributes),
        lambda arrays: np.concatenate(arrays[:4]) + np.concatenate(arrays[4:]),
        lambda array: [*np.split(array, 4), *np.split(np.zeros_like(array), 4)],
        lambda arrays: np.concatenate(arrays[:4]),
    )


KINDS: Kinds = {
    L.Linear: ("linear", LAYERS["linear"].parameters),
    (L.Convolution2D, L.ConvolutionND): ("conv", LAYERS["conv"].parameters),
    (L.Deconvolution2D, L.DeconvolutionND): (
        "conv_transpose",
        {"weight": location("W"), "bias": location("b")},
    ),
    L.PReLU: ("prelu", LAYERS["prelu"].parameters),
    L.GroupNormalization: ("group_norm", LAYERS["group_norm"].parameters),
    L.BatchNormalization: ("batch_norm", LAYERS["batch_norm"].parameters),
    L.LayerNormalization: ("layer_norm", LAYERS["layer_norm"].parameters),
    L.EmbedID: ("embedding", LAYERS["embedding"].parameters),
    (L.LSTM, L.StatelessLSTM): ("lstm", LAYERS["lstm"].parameters),
    L.NStepLSTM: ("lstm", _n_step_lstm),
}


class UserLink(ChainerParameters, LayeredUserModel):
    """A ``chainer.Link``, in float64."""

    kinds = KINDS

    def __init__(self, request: UserModelRequest) -> None:
        super().__init__(request.dtype, request.device)
        # For good, since a forward pass may make arrays of its own.
        chainer.global_config.dtype = self.type
        self.model = make_model(request, chainer.Link, "a chainer.Link")
        self.model.to_device(self.device)
        self._shape(request.inputs)
        self.names = {link: path.strip("/").replace("/", ".") for path, link in _named(self.model)}
        self.parameters = self.find_parameters()

    def _shape(self, inputs: Inputs | None) -> None:
        """Let links without a shape see an input."""
        empty = [path for path, param in self.model.namedparams() if param.array is None]
        if empty:
            batch = needed_inputs(inputs, f"'{empty[0]}' has no shape")
            with self._pass(training=False), chainer.no_backprop_mode():
                self.outputs(self.natives(batch))

    def own_parameters(self, layer: chainer.Link) -> dict[str, Any]:
        mappings = self.kind_of(layer)[1].values()
        natives = {name: _get(layer, name) for mapping in mappings for name in mapping.attributes}
        for attribute in sorted({*layer._params, *layer._persistent}):
            natives[attribute] = getattr(layer, attribute)
        # A link may have no bias, and states that are counts.
        return {
            attribute: native
            for attribute, native in natives.items()
            if _is_array(native) and native.dtype.kind == "f"
        }

    def is_trained(self, native: Any) -> bool:
        return isinstance(native, chainer.Parameter)

    def attributes(self, layer: chainer.Link) -> dict[str, str]:
        """As it shows it or keeps it."""
        kept = {name: value for name, value in vars(layer).items() if name[0] != "_"}
        kept.pop("name", None)
        return text_attributes(dict(layer.printable_specs)) or text_attributes(kept)

    def momentum(self, layer: chainer.Link) -> float | None:
        return layer.decay if isinstance(layer, L.BatchNormalization) else None

    def dropout(self, layer: chainer.Link) -> Dropout | None:
        several = isinstance(layer, NStepRNNBase) and layer.n_layers > 1
        rate = layer.dropout if several else 0.0
        return Dropout(rate, "outputs between layers") if rate else None

    def set_rate(self, layer: chainer.Link, rate: float) -> None:
        layer.dropout = rate

    def outputs(self, natives: Mapping[str, Any]) -> dict[str, Any]:
        """What the model returns for its inputs."""
        arguments, named = bound(self.model.forward, natives)
        return dict(tensors(self.model(*arguments, **named), _is_array))

    @contextmanager
    def training_mode(self) -> Iterator[None]:
        with self._pass(training=True, moving=True):
            yield

    def host(self, loss: Any) -> Any:
        return host_copy(loss.array) if isinstance(loss, Variable) else loss

    def forward(
        self, inputs: Inputs, *, training: bool = False, layers: Sequence[str] = ()
    ) -> ForwardPass:
        watch = _Watch(self, layers)
        with self._pass(training), chainer.no_backprop_mode(), watch, _Functions(watch):
            outputs = self.outputs(self.natives(inputs))
            arrays = tuple(map(self.read, outputs.values()))
            return ForwardPass(arrays, tuple(watch.calls), tuple(outputs))

    def vjp(
        self, inputs: Inputs, cotangents: Sequence[np.ndarray], *, training: bool = False
    ) -> Gradients:
        states = [
            (link, name, copy(getattr(link, name)))
            for link in self.model.links()
            for name in link._persistent  # arrays, and counts
        ]
        natives = {
            name: Variable(each) if each.dtype.kind == "f" else each
            for name, each in self.natives(inputs).items()
        }
        self.model.cleargrads()
        with self._pass(training, moving=True):
            outputs = self.outputs(natives)
            total = sum(
                F.sum(output * self.device.send(cotangent))
                for output, cotangent in zip(outputs.values(), cotangents)
                if output.dtype.kind == "f"
            )
        total.backward()
        found = self._gradients(total, None, self.states())
        real = {
            name: gradient_of(each) for name, each in natives.items() if isinstance(each, Variable)
        }
        gradients = replace(found, **input_gradients(real))
        self.model.cleargrads()
        for link, name, value in states:
            if _is_array(value):
                getattr(link, name)[...] = value
            else:
                setattr(link, name, value)
        return gradients

    @contextmanager
    def _pass(self, training: bool, moving: bool = False) -> Iterator[None]:
        """One pass from a fresh state. Statistics stay, as in a recomputation, unless ``moving``."""
        for link in self.model.links():
            if hasattr(link, "reset_state"):
                link.reset_state()
        recomputing = chainer.using_config("in_recomputing", not moving)
        with chainer.using_config("train", training), recomputing, _dropping(self.drops):
            yield


class _Watch(chainer.LinkHook):
    """While it lasts, notes every call of the links."""

    name = "dlb"

    def __init__(self, model: UserLink, requested: Sequence[str]) -> None:
        self.model, self.names, self.requested = model, model.names, set(requested)
        self.calls: list[LayerCall] = []
        self.active: list[chainer.Link] = []
        self._kept: dict[int, tuple[Any, np.ndarray]] = {}

    def forward_preprocess(self, args: Any) -> None:
        self.active.append(args.link)

    def forward_postprocess(self, args: Any) -> None:
        self.active.pop()
        name = self.names.get(args.link)
        if name is None:
            return
        given = [*args.args, *args.kwargs.values()]
        call = LayerCall(name, None, None, dropout=self.model.dropout(args.link))
        if name in self.requested:
            first, output = map(self._array, _values(args.link, given, args.out))
            others = map(self._array, filter(_is_array, other_tensors(given)))
            call = LayerCall(name, first, output, tuple(others), call.dropout)
        self.calls.append(call)

    def _array(self, value: Any) -> np.ndarray | None:
        if isinstance(value, (list, tuple)):  # sequences of a batch, one by one
            arrays = [self._array(sequence) for sequence in value]
            shapes = {None if array is None else array.shape for array in arrays}
            return np.stack(arrays) if len(shapes) == 1 and None not in shapes else None  # type: ignore[arg-type]
        if not _is_array(value):
            return None
        array = value.array if isinstance(value, Variable) else value
        if id(array) not in self._kept:  # the array is kept, so that its id stays its own
            self._kept[id(array)] = array, host_copy(array)
        return self._kept[id(array)][1]


class _Functions(chainer.FunctionHook):
    """While it lasts, notes functions in the code of links that hold others: ``ReLU()`` in a
    ``forward`` that somebody wrote. Chainer does not say what they return."""

    name = "dlb functions"

    def __init__(self, watch: _Watch) -> None:
        self.watch = watch

    def forward_postprocess(self, function: Any, in_data: Any) -> None:
        inner: Any = self.watch.active[-1] if self.watch.active else None
        name = self.watch.names.get(inner)
        if (
            name is not None
            and next(inner.children(), None) is not None
            and not kind_among(KINDS, inner)[0]
        ):
            called = f"{name}.{function.label}()".lstrip(".")
            rate = function.dropout_ratio if isinstance(function, DropoutFunction) else 0.0
            dropped = Dropout(rate, "elements") if rate else None
            self.watch.calls.append(LayerCall(called, None, None, dropout=dropped))


@contextmanager
def _dropping(active: bool) -> Iterator[None]:
    """Let dropout functions in the code of links act, or drop nothing."""
    make = DropoutFunction.__init__

    def make_idle(function: Any, dropout_ratio: float, *more: Any, **named: Any) -> None:
        make(function, 0.0, *more, **named)

    if not active:
        DropoutFunction.__init__ = make_idle
    try:
        yield
    finally:
        DropoutFunction.__init__ = make


def _values(link: chainer.Link, inputs: Sequence[Any], output: Any) -> tuple[Any, Any]:
    """The values that stand for a link's input and output; a recurrent link's states do not."""
    if isinstance(link, L.NStepLSTM):
        return inputs[2], output[2]
    if isinstance(link, L.StatelessLSTM):
        return inputs[2], output[1]
    return inputs[0] if inputs else None, first_tensor(output)


def _named(model: chainer.Link) -> Iterator[tuple[str, chainer.Link]]:
    """Every link with its path; what is inside a recurrent one is the link itself."""
    whole: list[str] = []
    for path, link in model.namedlinks():
        if not any(path.startswith(start) for start in whole):
            yield path, link
            if kind_among(KINDS, link)[0] == "lstm":
                whole.append(f"{path.rstrip('/')}/")


def _get(link: chainer.Link, attribute: str) -> Any:
    """``upward.W`` of a chain, ``0.w1`` of a list of links."""
    first, _, rest = attribute.partition(".")
    if first.isdigit():
        return getattr(link[int(first)], rest)
    return attrgetter(attribute)(link)


def _is_array(value: Any) -> bool:
    return isinstance(value, (Variable, *chainer.get_array_types()))
