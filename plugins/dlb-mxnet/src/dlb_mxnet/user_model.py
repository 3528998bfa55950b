"""A gluon block that a user wrote: its parameters, its layers' values, its gradients."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import mxnet as mx
import numpy as np
from mxnet import autograd
from mxnet.gluon import Block, nn, rnn

from dlb_mxnet.framework import context
from dlb_mxnet.model import BlockParameters
from dlb_mxnet.modules import exact_statistics
from dlb_mxnet.registry import LAYERS
from dlb_worker.contract import ForwardPass, Gradients, LayerCall, UserLayer, UserModelRequest
from dlb_worker.errors import UnsupportedError
from dlb_worker.native import UserModel, tensors, text_attributes
from dlb_worker.parameters import (
    Kinds,
    Mappings,
    NativeParameter,
    gru_mappings,
    kind_among,
    location,
    recurrent_mappings,
    renamed,
    summed,
    user_parameter,
)


def _conv(block: Block) -> Mappings:
    """Weights are [out, in, ...], and [out, ..., in] where the block has channels last."""
    mappings = LAYERS["conv"].parameters
    if not _channels_last(block):
        return mappings
    weight = location(
        "weight", lambda array: np.moveaxis(array, 1, -1), lambda array: np.moveaxis(array, -1, 1)
    )
    return {**mappings, "weight": weight}


def _batch_norm(block: Block) -> Mappings:
    """A block without scale keeps a gamma that it does not use."""
    mappings = LAYERS["batch_norm"].parameters.items()
    return {role: mapping for role, mapping in mappings if role != "scale" or _scales(block)}


def _scales(block: Block) -> bool:
    return not block._kwargs["fix_gamma"]


def _lstm(block: Block) -> Mappings:
    """The two biases, which are added, as one."""
    like = LAYERS["lstm"].parameters
    return _every_layer(
        block,
        lambda start: {
            "input_weight": renamed(f"{start}i2h_weight", like["input_weight"]),
            "recurrent_weight": renamed(f"{start}h2h_weight", like["recurrent_weight"]),
            "bias": summed(f"{start}i2h_bias", f"{start}h2h_bias", like["bias"]),
        },
    )


def _gru(block: Block) -> Mappings:
    """MXNet's gates are reset, update, new; ONNX's update, reset, new. Both biases are needed."""
    return _every_layer(
        block,
        lambda start: gru_mappings(
            (f"{start}i2h_weight", f"{start}h2h_weight"),
            (f"{start}i2h_bias", f"{start}h2h_bias"),
            (1, 0, 2),
        ),
    )


def _every_layer(block: Block, mappings: Callable[[str], Mappings]) -> Mappings:
    """For every layer and direction of a recurrent block, by the start of its attributes' names."""
    if isinstance(block, rnn.RecurrentCell):
        return mappings("")
    return recurrent_mappings(
        block._num_layers, block._dir, lambda layer, backward: mappings(f"{'lr'[backward]}{layer}_")
    )


KINDS: Kinds = {
    nn.Dense: ("linear", LAYERS["linear"].parameters),
    nn.Conv1D: ("conv", _conv),
    nn.Conv2D: ("conv", _conv),
    nn.Conv3D: ("conv", _conv),
    nn.BatchNorm: ("batch_norm", _batch_norm),
    nn.LayerNorm: ("layer_norm", LAYERS["layer_norm"].parameters),
    nn.Embedding: ("embedding", LAYERS["embedding"].parameters),
    rnn.LSTM: ("lstm", _lstm),
    rnn.LSTMCell: ("lstm", _lstm),
    rnn.GRU: ("gru", _gru),
    rnn.GRUCell: ("gru", _gru),
}


def kind_of(block: Block) -> tuple[str, Mappings]:
    """The layer kind that a block is, and where its parameters are; "" and none if not known."""
    return kind_among(KINDS, block)


class UserBlock(BlockParameters, UserModel):
    """A gluon ``Block``, in float64, not hybridized."""

    def __init__(self, request: UserModelRequest) -> None:
        self.dtype = request.dtype
        self.context = context(request.device)
        model = request.make()
        if not isinstance(model, Block):
            raise UnsupportedError(
                f"the factory returned a {type(model).__name__}; it must return a gluon Block"
            )
        self.model = model
        model.hybridize(False)
        model.cast(request.dtype)
        self.names = _names(model)
        for block in self.names:
            if isinstance(block, nn.Embedding):  # which keeps the type for its operator
                block._kwargs["dtype"] = request.dtype
        self._shape(request.inputs)
        self.parameters = list(self._parameters())

    def _shape(self, inputs: np.ndarray | None) -> None:
        """Initialize what is not, and let what has no shape see an input."""
        parameters = self.model.collect_params()
        for parameter in parameters.values():
            if parameter._data is None and not parameter._deferred_init:
                parameter.initialize(ctx=self.context)
        parameters.reset_ctx(self.context)
        deferred = [name for name, parameter in parameters.items() if parameter._data is None]
        if not deferred:
            return
        if inputs is None:
            raise UnsupportedError(
                f"'{deferred[0]}' has no shape before the model has seen an input; give --input or "
                "--input-shape"
            )
        self.model(self.native(inputs))
        mx.nd.waitall()

    def _parameters(self) -> Iterator[NativeParameter]:
        seen: set[int] = set()
        for block, name in self.names.items():
            own = {
                attribute: parameter
                for attribute, parameter in block._reg_params.items()
                if id(parameter) not in seen
            }
            seen |= {id(parameter) for parameter in own.values()}
            for role, mapping in kind_of(block)[1].items():
                if all(attribute in own for attribute in mapping.attributes):
                    natives = {each: own.pop(each) for each in mapping.attributes}
                    trained = natives[mapping.attribute].grad_req != "null"
                    yield user_parameter(name, role, trained, natives, mapping)
            if isinstance(block, nn.BatchNorm) and not _scales(block):
                own.pop("gamma", None)
            for attribute, parameter in own.items():
                trained = parameter.grad_req != "null"
                yield user_parameter(name, "", trained, {attribute: parameter})

    def layers(self) -> list[UserLayer]:
        return [
            UserLayer(
                name,
                type(block).__name__,
                _attributes(block),
                kind_of(block)[0],
                block._kwargs["momentum"] if isinstance(block, nn.BatchNorm) else None,
            )
            for block, name in self.names.items()
        ]

    def forward(
        self, inputs: np.ndarray, *, training: bool = False, layers: Sequence[str] = ()
    ) -> ForwardPass:
        watch = _Watch(self.names, layers)
        mode = autograd.train_mode() if training else autograd.predict_mode()
        with self.unmoved_states(), watch.hooked(), mode:
            outputs = tensors(self.model(self.native(inputs)), _is_array)
            return ForwardPass(tuple(output.asnumpy() for output in outputs), tuple(watch.calls))

    def vjp(
        self, inputs: np.ndarray, cotangents: Sequence[np.ndarray], *, training: bool = False
    ) -> Gradients:
        native = self.native(inputs)
        real = inputs.dtype.kind == "f"
        if real:
            native.attach_grad()
        for each in self.parameters:
            for parameter in each.natives if each.trained else ():
                parameter.zero_grad()
        watch = _Watch(self.names, ())
        norms = [block for block in self.names if isinstance(block, nn.BatchNorm)]
        with self.unmoved_states():
            momentums = {block: block._kwargs["momentum"] for block in norms}
            with watch.hooked(), exact_statistics(momentums):
                with autograd.record(train_mode=training):
                    outputs = tensors(self.model(native), _is_array)
                    total = mx.nd.zeros(1, ctx=self.context, dtype=self.dtype)
                    for output, cotangent in zip(outputs, cotangents):
                        total = total + (output * self.native(cotangent)).sum()
                # Its own default is training, whatever was recorded: the batch's statistics instead.
                total.backward(train_mode=training)
            # Of several calls of a batch normalisation, the statistics of one are left.
            counts = Counter(call.layer for call in watch.calls)
            layers = {each.name: each.layer for each in self.parameters}
            moved = self.states()
            return Gradients(
                loss=total.asnumpy().reshape(()),
                parameters=self.gather(lambda parameter: parameter.grad().asnumpy()),
                inputs=native.grad.asnumpy() if real else None,
                states={name: moved[name] for name in moved if counts[layers[name]] < 2},
            )


class _Watch:
    """While it is hooked, notes every call of the blocks, in the order in which they end."""

    def __init__(self, names: Mapping[Block, str], layers: Sequence[str]) -> None:
        self.names = names
        self.wanted = {*layers, *(f"{name}.act".lstrip(".") for name in layers)}
        self.calls: list[LayerCall] = []
        self._arrays: dict[int, tuple[Any, np.ndarray]] = {}

    @contextmanager
    def hooked(self) -> Iterator[None]:
        hooks = [block.register_forward_hook(self._note) for block in self.names]
        try:
            yield
        finally:
            for hook in hooks:
                hook.detach()

    def _note(self, block: Block, inputs: Sequence[Any], output: Any) -> None:
        name: str = self.names[block]
        values: tuple[Any, Any] = (None, None)
        # A block that applies an activation has just called it, with what the block itself computes.
        applied = [self.calls.pop()] if getattr(block, "act", None) is not None else []
        if name in self.wanted:
            values = self._copy(inputs), applied[0].inputs if applied else self._copy(output)
        self.calls += [
            LayerCall(call.layer, _canonical(block, call.inputs), _canonical(block, call.output))
            for call in [LayerCall(name, *values), *applied]
        ]

    def _copy(self, value: Any) -> np.ndarray | None:
        """The array that a block reads or returns first: an LSTM's sequence, not its states."""
        while isinstance(value, (list, tuple)) and value:
            value = value[0]
        if not _is_array(value):
            return None
        if id(value) not in self._arrays:  # the array is kept, so that its id stays its own
            self._arrays[id(value)] = value, value.asnumpy()
        return self._arrays[id(value)][1]


def _is_array(value: Any) -> bool:
    return isinstance(value, mx.nd.NDArray)


def _names(model: Block) -> dict[Block, str]:
    """Every block with its path of children's names."""
    names: dict[Block, str] = {}

    def walk(block: Block, name: str) -> None:
        if block not in names:
            names[block] = name
            for key, child in block._children.items():
                walk(child, f"{name}.{key}".lstrip("."))

    walk(model, "")
    return names


def _channels_last(block: Block) -> bool:
    """Whether a block says that channels are the last axis of its input and output."""
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
    return text_attributes(
        {name.lstrip("_"): value for name, value in kept.items() if value not in ([], (), {})}
    )
