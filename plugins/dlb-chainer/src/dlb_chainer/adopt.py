"""A link that somebody wrote, taken in as it is: its parameters, its links' values, gradients."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from operator import attrgetter
from typing import Any

import chainer
import chainer.functions as F
import chainer.links as L
import numpy as np
from chainer import Variable
from chainer.backends import cuda

from dlb import workload as W
from dlb.adoption import Held, NativeModel, Way, held, plain, stacked, tensors, words
from dlb.contract import AdoptedLayer, AdoptRequest, Gradients, LayerCall, Trace
from dlb.errors import UnsupportedError
from dlb_chainer.layers import TABLE, Place

Ways = Callable[[chainer.Link], Mapping[str, Way]]
_NORMALISATION = {"scale": plain(Place("gamma")), "bias": plain(Place("beta"))}


def _of(layer: type) -> Ways:
    """Where the parameters of a layer type are, as its table has it."""
    ways = {role: plain(place) for role, place in TABLE[layer].places.items()}
    return lambda link: ways


def _steps_ways(link: chainer.Link) -> Mapping[str, Way]:
    """Of every layer of an NStepLSTM: a matrix and two biases, which are added, for each gate.

    Its gates are input, forget, cell, output, first those of the input, then of the last step.
    """
    found: dict[str, Way] = {}
    for layer in range(link.n_layers):
        start = f"layer {layer} " * (layer > 0)
        ours, theirs = (0, 3, 1, 2), (4, 7, 5, 6)
        found[f"{start}input_weight"] = stacked([f"{layer}.w{gate}" for gate in ours])
        found[f"{start}recurrent_weight"] = stacked([f"{layer}.w{gate}" for gate in theirs])
        found[f"{start}bias"] = _added([f"{layer}.b{gate}" for gate in (*ours, *theirs)])
    return found


def _added(attributes: Sequence[str]) -> Way:
    """Biases of four gates, and four more that are added to them."""

    def canonical(arrays: Sequence[np.ndarray]) -> np.ndarray:
        return np.concatenate(arrays[:4]) + np.concatenate(arrays[4:])

    def native(array: np.ndarray) -> list[np.ndarray]:
        return [*np.split(array, 4), *np.split(np.zeros_like(array), 4)]

    return Way(tuple(attributes), canonical, native, lambda arrays: np.concatenate(arrays[:4]))


#: By the type of a link: the layer type that it is, and where its parameters are.
KNOWN: dict[type[chainer.Link], tuple[str, Ways]] = {
    L.Linear: ("linear", _of(W.Linear)),
    L.Convolution2D: ("conv", _of(W.Conv)),
    L.ConvolutionND: ("conv", _of(W.Conv)),
    L.BatchNormalization: ("batch_norm", _of(W.BatchNorm)),
    L.LayerNormalization: ("layer_norm", lambda link: _NORMALISATION),
    L.EmbedID: ("embedding", _of(W.Embedding)),
    L.LSTM: ("lstm", _of(W.LSTM)),
    L.StatelessLSTM: ("lstm", _of(W.LSTM)),
    L.NStepLSTM: ("lstm", _steps_ways),
}


def known(link: chainer.Link) -> tuple[str, Mapping[str, Way]]:
    """The layer type that a link is, and where its parameters are; "" and none if not known."""
    for kind, (name, ways) in KNOWN.items():
        if isinstance(link, kind):
            return name, ways(link)
    return "", {}


class AdoptedLink(NativeModel):
    """A ``chainer.Link``, in float64."""

    def __init__(self, request: AdoptRequest) -> None:
        self.dtype = request.dtype
        self.type = np.dtype(request.dtype)
        self.device = chainer.get_device("@cupy:0" if request.device == "cuda" else "@numpy")
        # For good, since a forward pass may make arrays of its own.
        chainer.global_config.dtype = self.type
        model = request.make()
        if not isinstance(model, chainer.Link):
            raise UnsupportedError(
                f"its factory gave a {type(model).__name__}; it must give a chainer.Link"
            )
        self.model = model
        model.to_device(self.device)
        self._shape(request.inputs)
        self.names = {link: path.strip("/").replace("/", ".") for path, link in _named(model)}
        self.held = list(self._held())

    def _shape(self, inputs: np.ndarray | None) -> None:
        """Let links without a shape see an input."""
        empty = [path for path, param in self.model.namedparams() if param.array is None]
        if not empty:
            return
        if inputs is None:
            raise UnsupportedError(
                f"'{empty[0]}' has no shape before the model has seen an input; give --input or "
                "--input-shape"
            )
        with self._pass(training=False), chainer.no_backprop_mode():
            self.model(self._native(inputs))

    def _held(self) -> Iterator[Held]:
        seen: set[int] = set()
        for link, name in self.names.items():
            for role, way in known(link)[1].items():
                natives = {attribute: _get(link, attribute) for attribute in way.attributes}
                if any(one is None or id(one) in seen for one in natives.values()):
                    continue  # a link without a bias, or a parameter of another as well
                seen |= {id(native) for native in natives.values()}
                trained = isinstance(natives[way.attributes[0]], chainer.Parameter)
                yield held(name, role, trained, natives, way)
            for attribute in sorted({*link._params, *link._persistent}):
                native = getattr(link, attribute)
                # Other states are counts.
                if _is_array(native) and native.dtype.kind == "f" and id(native) not in seen:
                    seen.add(id(native))
                    trained = isinstance(native, chainer.Parameter)
                    yield held(name, "", trained, {attribute: native})

    def read(self, native: Any) -> np.ndarray:
        return _host(_array(native))

    def write(self, native: Any, array: np.ndarray) -> None:
        _array(native)[...] = self.device.send(array)

    def layers(self) -> list[AdoptedLayer]:
        return [
            AdoptedLayer(
                name,
                type(link).__name__,
                _attributes(link),
                known(link)[0],
                link.decay if isinstance(link, L.BatchNormalization) else None,
            )
            for link, name in self.names.items()
        ]

    def input_shape(self) -> None:
        return None

    def forward(
        self, inputs: np.ndarray, *, training: bool = False, layers: Sequence[str] = ()
    ) -> Trace:
        watch = _Watch(self.names, set(layers))
        functions = _Functions(watch)
        with self._pass(training), chainer.no_backprop_mode(), watch, functions:
            outputs = list(tensors(self.model(self._native(inputs)), _is_array))
        return Trace(tuple(_host(_plain(one)) for one in outputs), tuple(watch.calls))

    def gradients(
        self, inputs: np.ndarray, cotangents: Sequence[np.ndarray], *, training: bool = False
    ) -> Gradients:
        given = self._native(inputs)
        real = given.dtype.kind == "f"
        if real:
            given = Variable(given)
        self.model.cleargrads()
        states = self._states()
        with self._pass(training, moving=True):
            outputs = tensors(self.model(given), _is_array)
            total = sum(
                F.sum(output * self.device.send(cotangent))
                for output, cotangent in zip(outputs, cotangents)
            )
        total.backward()
        found = Gradients(
            loss=_host(total.array),
            parameters=self.gathered(_gradient),
            inputs=(np.zeros_like(inputs) if given.grad is None else _host(given.grad))
            if real
            else None,
            states=self.states(),
        )
        self.model.cleargrads()
        self._restore(states)
        return found

    @contextmanager
    def _pass(self, training: bool, moving: bool = False) -> Iterator[None]:
        """One pass from a fresh state. Chainer's word for one that leaves statistics alone."""
        for link in self.model.links():
            if hasattr(link, "reset_state"):
                link.reset_state()
        recomputing = chainer.using_config("in_recomputing", not moving)
        with chainer.using_config("train", training), recomputing:
            yield

    def _states(self) -> list[tuple[chainer.Link, str, Any]]:
        """What a pass in training mode moves, with its values: arrays, and counts."""
        return [
            (link, name, copy(getattr(link, name)))
            for link in self.model.links()
            for name in link._persistent
        ]

    @staticmethod
    def _restore(states: list[tuple[chainer.Link, str, Any]]) -> None:
        for link, name, kept in states:
            if _is_array(kept):
                getattr(link, name)[...] = kept
            else:
                setattr(link, name, kept)

    def _native(self, inputs: np.ndarray) -> Any:
        kind = self.type if inputs.dtype.kind == "f" else inputs.dtype
        return self.device.send(np.ascontiguousarray(inputs, kind))


class _Watch(chainer.LinkHook):
    """While it lasts, notes every call of the links."""

    name = "dlb"

    def __init__(self, names: Mapping[chainer.Link, str], wanted: set[str]) -> None:
        self.names, self.wanted = names, wanted
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
        given, output = _values(args.link, [*args.args, *args.kwargs.values()], args.out)
        one, other = (
            self._array(value) if name in self.wanted else None for value in (given, output)
        )
        self.calls.append(LayerCall(name, one, other))

    def _array(self, value: Any) -> np.ndarray | None:
        if isinstance(value, (list, tuple)):  # sequences of a batch, one by one
            arrays = [self._array(one) for one in value]
            shapes = {None if one is None else one.shape for one in arrays}
            return np.stack(arrays) if len(shapes) == 1 and None not in shapes else None  # type: ignore[arg-type]
        if not _is_array(value):
            return None
        array = _plain(value)
        if id(array) not in self._kept:  # the array is kept, so that its id stays its own
            self._kept[id(array)] = array, _host(array)
        return self._kept[id(array)][1]


class _Functions(chainer.FunctionHook):
    """While it lasts, notes functions in the code of links that hold others: ``ReLU()`` in a
    ``forward`` that somebody wrote. Chainer does not tell what they give."""

    name = "dlb functions"

    def __init__(self, watch: _Watch) -> None:
        self.watch = watch

    def forward_postprocess(self, function: Any, in_data: Any) -> None:
        inner = self.watch.active[-1] if self.watch.active else None
        name = self.watch.names.get(inner)
        if name is not None and next(inner.children(), None) is not None and not known(inner)[0]:
            called = f"{name}.{function.label}()".lstrip(".")
            self.watch.calls.append(LayerCall(called, None, None))


def _values(link: chainer.Link, given: Sequence[Any], output: Any) -> tuple[Any, Any]:
    """What is taken for a link's input and output: of a recurrent one not its states."""
    if isinstance(link, L.NStepLSTM):
        return given[2], output[2]
    if isinstance(link, L.StatelessLSTM):
        return given[2], output[1]
    while isinstance(output, (list, tuple)) and output:
        output = output[0]
    return given[0] if given else None, output


def _named(model: chainer.Link) -> Iterator[tuple[str, chainer.Link]]:
    """Every link with its path; what is inside a recurrent one is the link itself."""
    whole: list[str] = []
    for path, link in model.namedlinks():
        if not any(path.startswith(start) for start in whole):
            yield path, link
            if known(link)[0] == "lstm":
                whole.append(f"{path.rstrip('/')}/")


def _get(link: chainer.Link, attribute: str) -> Any:
    """``upward.W`` of a chain, ``0.w1`` of a list of links."""
    first, _, rest = attribute.partition(".")
    if first.isdigit():
        return getattr(link[int(first)], rest)
    return attrgetter(attribute)(link)


def _is_array(value: Any) -> bool:
    return isinstance(value, (Variable, *chainer.get_array_types()))


def _plain(value: Any) -> Any:
    return value.array if isinstance(value, Variable) else value


def _array(native: Any) -> Any:
    return native.array if isinstance(native, chainer.Parameter) else native


def _gradient(native: chainer.Parameter) -> np.ndarray:
    """A parameter's gradient, zero where no output depends on it."""
    return np.zeros(native.shape) if native.grad is None else _host(native.grad)


def _host(array: Any) -> np.ndarray:
    """A copy in host memory."""
    return np.array(cuda.to_cpu(array))


def _attributes(link: chainer.Link) -> dict[str, str]:
    """What a link was made with, as it shows it or keeps it."""
    own = vars(link).items()
    return words(link.printable_specs) or words(
        (name, value) for name, value in own if name[0] != "_" and name != "name"
    )
