"""A gluon block that somebody wrote, taken in as it is: parameters, layers' values, gradients."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import mxnet as mx
import numpy as np
from dlb.adoption import Held, NativeModel, Way, gru_ways, held, plain, summed, tensors, words
from dlb.contract import AdoptedLayer, AdoptRequest, Gradients, LayerCall, Trace
from mxnet import autograd
from mxnet.gluon import Block, Parameter, nn, rnn

from dlb import workload as W
from dlb.errors import UnsupportedError
from dlb_mxnet.framework import context
from dlb_mxnet.layers import TABLE, Place

Ways = Callable[[Block], Mapping[str, Way]]
_NORMALISATION = {"scale": plain(Place("gamma")), "bias": plain(Place("beta"))}


def _of(layer: type) -> Ways:
    """Where the parameters of a layer type are, as its table has it."""
    ways = {role: plain(place) for role, place in TABLE[layer].places.items()}
    return lambda block: ways


def _conv_ways(block: Block) -> Mapping[str, Way]:
    """Weights are [out, in, ...], and [out, ..., in] where the block has channels last."""
    if not _channels_last(block):
        return _of(W.Conv)(block)
    weight = Place(
        "weight", lambda array: np.moveaxis(array, 1, -1), lambda array: np.moveaxis(array, -1, 1)
    )
    return {**_of(W.Conv)(block), "weight": plain(weight)}


def _batch_norm_ways(block: Block) -> Mapping[str, Way]:
    ways = _of(W.BatchNorm)(block)
    # A block without scale keeps a gamma that it does not use.
    return {role: way for role, way in ways.items() if role != "scale" or _scales(block)}


def _scales(block: Block) -> bool:
    return not block._kwargs["fix_gamma"]


def _lstm_ways(prefix: str) -> Mapping[str, Way]:
    """The two biases, which are added, as one."""
    places = TABLE[W.LSTM].places
    return {
        "input_weight": plain(places["input_weight"], f"{prefix}i2h_weight"),
        "recurrent_weight": plain(places["recurrent_weight"], f"{prefix}h2h_weight"),
        "bias": summed(places["bias"], f"{prefix}i2h_bias", f"{prefix}h2h_bias"),
    }


def _gru_ways(prefix: str) -> Mapping[str, Way]:
    """MXNet's gates are reset, update, new; ONNX' update, reset, new. Both biases are needed."""
    weights = f"{prefix}i2h_weight", f"{prefix}h2h_weight"
    return gru_ways(weights, (f"{prefix}i2h_bias", f"{prefix}h2h_bias"), (1, 0, 2))


def _every_layer(ways: Callable[[str], Mapping[str, Way]]) -> Ways:
    """Of every layer and direction of a recurrent block, by the start of its attributes' names."""

    def of(block: Block) -> Mapping[str, Way]:
        if isinstance(block, rnn.RecurrentCell):
            return ways("")
        found: dict[str, Way] = {}
        for layer in range(block._num_layers):
            for direction in ("l", "r")[: block._dir]:
                start = f"layer {layer} " * (layer > 0) + "backward " * (direction == "r")
                some = ways(f"{direction}{layer}_")
                found.update({f"{start}{role}": way for role, way in some.items()})
        return found

    return of


#: By the type of a block: the layer type that it is, and where its parameters are.
KNOWN: dict[type[Block], tuple[str, Ways]] = {
    nn.Dense: ("linear", _of(W.Linear)),
    nn.Conv1D: ("conv", _conv_ways),
    nn.Conv2D: ("conv", _conv_ways),
    nn.Conv3D: ("conv", _conv_ways),
    nn.BatchNorm: ("batch_norm", _batch_norm_ways),
    nn.LayerNorm: ("layer_norm", lambda block: _NORMALISATION),
    nn.Embedding: ("embedding", _of(W.Embedding)),
    rnn.LSTM: ("lstm", _every_layer(_lstm_ways)),
    rnn.LSTMCell: ("lstm", _every_layer(_lstm_ways)),
    rnn.GRU: ("gru", _every_layer(_gru_ways)),
    rnn.GRUCell: ("gru", _every_layer(_gru_ways)),
}


def known(block: Block) -> tuple[str, Mapping[str, Way]]:
    """The layer type that a block is, and where its parameters are; "" and none if not known."""
    for kind, (name, ways) in KNOWN.items():
        if isinstance(block, kind):
            return name, ways(block)
    return "", {}


class AdoptedBlock(NativeModel):
    """A gluon ``Block``, in float64, not hybridized."""

    def __init__(self, request: AdoptRequest) -> None:
        self.dtype = request.dtype
        self.context = context(request.device)
        model = request.make()
        if not isinstance(model, Block):
            raise UnsupportedError(
                f"its factory gave a {type(model).__name__}; it must give a gluon Block"
            )
        self.model = model
        model.hybridize(False)
        model.cast(request.dtype)
        self.names = dict(_named(model))
        for block in self.names:
            if isinstance(block, nn.Embedding):  # which keeps the type for its operator
                block._kwargs["dtype"] = request.dtype
        self._shape(request.inputs)
        self.held = list(self._held())

    def _shape(self, inputs: np.ndarray | None) -> None:
        """Initialize what is not, and let what has no shape see an input."""
        parameters = self.model.collect_params()
        for parameter in parameters.values():
            if parameter._data is None and not parameter._deferred_init:
                parameter.initialize(ctx=self.context)
        parameters.reset_ctx(self.context)
        deferred = [one.name for one in parameters.values() if one._data is None]
        if not deferred:
            return
        if inputs is None:
            raise UnsupportedError(
                f"'{deferred[0]}' has no shape before the model has seen an input; give --input or "
                "--input-shape"
            )
        self.model(self._native(inputs))
        mx.nd.waitall()

    def _held(self) -> Iterator[Held]:
        seen: set[int] = set()
        for block, name in self.names.items():
            own = {key: one for key, one in block._reg_params.items() if id(one) not in seen}
            seen |= {id(parameter) for parameter in own.values()}
            for role, way in known(block)[1].items():
                if all(attribute in own for attribute in way.attributes):
                    natives = {attribute: own.pop(attribute) for attribute in way.attributes}
                    trained = natives[way.attributes[0]].grad_req != "null"
                    yield held(name, role, trained, natives, way)
            if isinstance(block, nn.BatchNorm) and not _scales(block):
                own.pop("gamma", None)
            for attribute, parameter in own.items():
                yield held(name, "", parameter.grad_req != "null", {attribute: parameter})

    def read(self, native: Parameter) -> np.ndarray:
        mx.nd.waitall()
        return native.data().asnumpy()

    def write(self, native: Parameter, array: np.ndarray) -> None:
        native.set_data(mx.nd.array(array, ctx=self.context, dtype=self.dtype))

    def layers(self) -> list[AdoptedLayer]:
        return [
            AdoptedLayer(
                name,
                type(block).__name__,
                _attributes(block),
                known(block)[0],
                block._kwargs["momentum"] if isinstance(block, nn.BatchNorm) else None,
            )
            for block, name in self.names.items()
        ]

    def input_shape(self) -> None:
        return None

    def forward(
        self, inputs: np.ndarray, *, training: bool = False, layers: Sequence[str] = ()
    ) -> Trace:
        calls: list[LayerCall] = []
        arrays: dict[int, tuple[Any, np.ndarray]] = {}
        wanted = set(layers)

        def value(array: Any) -> np.ndarray | None:
            if not isinstance(array, mx.nd.NDArray):
                return None
            if id(array) not in arrays:  # the array is kept, so that its id stays its own
                arrays[id(array)] = array, array.asnumpy()
            return arrays[id(array)][1]

        def note(block: Block, given: Sequence[Any], output: Any) -> None:
            name = self.names[block]
            inside = [calls.pop()] if getattr(block, "act", None) is not None else []
            if name in wanted:
                first = _canonical(block, value(_first(given)))
                # What the activation inside was given is what the block itself computes.
                before = inside[0].inputs if inside else value(_first(output))
                calls.append(LayerCall(name, first, _canonical(block, before)))
            else:
                calls.append(LayerCall(name, None, None))
            if inside:
                act = inside[0]
                one, other = _canonical(block, act.inputs), _canonical(block, act.output)
                calls.append(LayerCall(act.layer, one, other))

        wanted |= {f"{name}.act".lstrip(".") for name in layers}
        hooks = [block.register_forward_hook(note) for block in self.names]
        states = self._states()
        try:
            with autograd.train_mode() if training else autograd.predict_mode():
                outputs = list(tensors(self.model(self._native(inputs)), _is_array))
            found = tuple(one.asnumpy() for one in outputs)
        finally:
            for hook in hooks:
                hook.detach()
            self._restore(states)
        return Trace(found, tuple(calls))

    def gradients(
        self, inputs: np.ndarray, cotangents: Sequence[np.ndarray], *, training: bool = False
    ) -> Gradients:
        states = self._states()
        given = self._native(inputs)
        real = inputs.dtype.kind == "f"
        if real:
            given.attach_grad()
        for one in self.held:
            for native in one.natives if one.trained else ():
                native.zero_grad()
        with self._statistics() as called:
            with autograd.record(train_mode=training):
                outputs = tensors(self.model(given), _is_array)
                total = mx.nd.zeros(1, ctx=self.context, dtype=self.dtype)
                for output, cotangent in zip(outputs, cotangents):
                    total = total + (output * self._native(cotangent)).sum()
            # Its own default is training, whatever was recorded: the batch's statistics instead.
            total.backward(train_mode=training)
        layers = {one.name: one.layer for one in self.held}
        moved = {n: array for n, array in self.states().items() if called[layers[n]] < 2}
        found = Gradients(
            loss=total.asnumpy().reshape(()),
            parameters=self.gathered(lambda native: native.grad().asnumpy()),
            inputs=given.grad.asnumpy() if real else None,
            states=moved,
        )
        self._restore(states)
        return found

    @contextmanager
    def _statistics(self) -> Iterator[Counter[str]]:
        """Running statistics moved by array operators; MXNet's keeps its momentum in float32.

        Its momentum is 0 meanwhile, which leaves the batch's own statistics. Gives how often each
        batch normalisation was called: of several calls those of one are left.
        """
        called: Counter[str] = Counter()
        norms = [block for block in self.names if isinstance(block, nn.BatchNorm)]
        hooks = [
            block.register_forward_hook(lambda block, *_: called.update([self.names[block]]))
            for block in norms
        ]
        kept = []
        for block in norms:
            statistics = [one.data() for one in (block.running_mean, block.running_var)]
            kept.append((block._kwargs["momentum"], [(one, one.copy()) for one in statistics]))
            block._kwargs["momentum"] = 0.0
        mx.nd.waitall()
        try:
            yield called
        finally:
            for hook in hooks:
                hook.detach()
            mx.nd.waitall()
            for block, (momentum, statistics) in zip(norms, kept):
                block._kwargs["momentum"] = momentum
                for running, before in statistics:
                    running[:] = momentum * before + (1 - momentum) * running

    def _native(self, array: np.ndarray) -> mx.nd.NDArray:
        dtype = self.dtype if array.dtype.kind == "f" else "int64"
        return mx.nd.array(array, ctx=self.context, dtype=dtype)

    def _states(self) -> list[tuple[mx.nd.NDArray, mx.nd.NDArray]]:
        """Arrays that a pass in training mode moves, with their values."""
        mx.nd.waitall()
        arrays = [n.data() for one in self.held if not one.trained for n in one.natives]
        states = [(array, array.copy()) for array in arrays]
        mx.nd.waitall()
        return states

    @staticmethod
    def _restore(states: list[tuple[mx.nd.NDArray, mx.nd.NDArray]]) -> None:
        mx.nd.waitall()
        for array, kept in states:
            kept.copyto(array)


def _is_array(value: Any) -> bool:
    return isinstance(value, mx.nd.NDArray)


def _first(value: Any) -> Any:
    """The one array that is taken for a block's output or input."""
    while isinstance(value, (list, tuple)) and value:
        value = value[0]
    return value


def _named(model: Block) -> Iterator[tuple[Block, str]]:
    """Every block with its path of children's names."""
    seen: set[int] = set()

    def walk(block: Block, name: str) -> Iterator[tuple[Block, str]]:
        if id(block) not in seen:
            seen.add(id(block))
            yield block, name
            for key, child in block._children.items():
                yield from walk(child, f"{name}.{key}".lstrip("."))

    return walk(model, "")


def _channels_last(block: Block) -> bool:
    """Whether a block says that channels are the last axis of what it is given and gives."""
    layout = getattr(block, "_kwargs", {}).get("layout", "")
    return layout.startswith("N") and layout.endswith("C") and len(layout) > 2


def _canonical(block: Block, array: np.ndarray | None) -> np.ndarray | None:
    """A value in canonical layout, where the block says how it lies."""
    if array is None or array.ndim < 3:
        return array
    axis = block._kwargs["axis"] if isinstance(block, nn.BatchNorm) else 1
    if _channels_last(block) or axis in (-1, array.ndim - 1):
        return np.moveaxis(array, -1, 1)
    if getattr(block, "_layout", "") == "TNC":
        return array.swapaxes(0, 1)
    return array


def _attributes(block: Block) -> dict[str, str]:
    """What a block was made with: its operator's arguments, else what it keeps itself."""
    hidden = {"_prefix", "_name", "_empty_prefix", "_active", "_monitor_all", "_flags"}
    kept = getattr(block, "_kwargs", None) or {
        name: value for name, value in vars(block).items() if name not in hidden
    }
    return words(
        (name.lstrip("_"), value) for name, value in kept.items() if value not in ([], (), {})
    )
