"""A gluon block that a user wrote: its parameters, its layers' values, its gradients."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import mxnet as mx
import numpy as np
from mxnet import autograd
from mxnet.gluon import Block, HybridBlock, Parameter, nn, rnn

from dlb_mxnet.framework import context
from dlb_mxnet.model import MXNetParameters
from dlb_mxnet.modules import exact_statistics
from dlb_mxnet.registry import LAYERS
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
    AS_IS,
    TRANSPOSED_CONV,
    Kinds,
    Mappings,
    gru_mappings,
    location,
    lstm_gates,
    recurrent_mappings,
    summed,
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
    return _every_layer(
        block,
        lambda start: {
            "input_weight": lstm_gates(f"{start}i2h_weight"),
            "recurrent_weight": lstm_gates(f"{start}h2h_weight"),
            "bias": summed(f"{start}i2h_bias", f"{start}h2h_bias", lstm_gates("")),
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


def _rnn(block: Block) -> Mappings:
    """The two biases as one, as in an LSTM."""
    return _every_layer(
        block,
        lambda start: {
            "input_weight": location(f"{start}i2h_weight"),
            "recurrent_weight": location(f"{start}h2h_weight"),
            "bias": summed(f"{start}i2h_bias", f"{start}h2h_bias", AS_IS),
        },
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
    (nn.Conv1D, nn.Conv2D, nn.Conv3D): ("conv", _conv),
    (nn.Conv1DTranspose, nn.Conv2DTranspose, nn.Conv3DTranspose): (
        "conv_transpose",
        TRANSPOSED_CONV,
    ),
    nn.PReLU: ("prelu", LAYERS["prelu"].parameters),
    nn.GroupNorm: ("group_norm", {"scale": location("gamma"), "bias": location("beta")}),
    nn.BatchNorm: ("batch_norm", _batch_norm),
    nn.LayerNorm: ("layer_norm", LAYERS["layer_norm"].parameters),
    nn.Embedding: ("embedding", LAYERS["embedding"].parameters),
    (rnn.LSTM, rnn.LSTMCell): ("lstm", _lstm),
    (rnn.GRU, rnn.GRUCell): ("gru", _gru),
    (rnn.RNN, rnn.RNNCell): ("rnn", _rnn),
}


class UserBlock(MXNetParameters, LayeredUserModel):
    """A gluon ``Block``, in float64, not hybridized."""

    kinds = KINDS

    def __init__(self, request: UserModelRequest) -> None:
        self.dtype = request.dtype
        self.contexts = [context(request.device)]
        self.model = make_model(request, Block, "a gluon Block")
        self.model.hybridize(False)
        self.model.cast(request.dtype)
        self.names = _names(self.model)
        for block in self.names:
            if isinstance(block, nn.Embedding):  # which keeps the type for its operator
                block._kwargs["dtype"] = request.dtype
        self._shape(request.inputs)
        self.parameters = self.find_parameters()

    def _shape(self, inputs: Inputs | None) -> None:
        """Initialize what is not, and let what has no shape see an input."""
        parameters = self.model.collect_params()
        for parameter in parameters.values():
            if parameter._data is None and not parameter._deferred_init:
                parameter.initialize(ctx=self.context)
        parameters.reset_ctx(self.context)
        deferred = [name for name, parameter in parameters.items() if parameter._data is None]
        if deferred:
            self.outputs(self.natives(needed_inputs(inputs, f"'{deferred[0]}' has no shape")))
            mx.nd.waitall()

    def own_parameters(self, layer: Block) -> dict[str, Parameter]:
        own = dict(layer._reg_params)
        if isinstance(layer, nn.BatchNorm) and not _scales(layer):
            own.pop("gamma", None)
        return own

    def is_trained(self, native: Parameter) -> bool:
        return native.grad_req != "null"

    def is_frozen(self, native: Parameter) -> bool:
        return bool(native._differentiable)

    def attributes(self, layer: Block) -> dict[str, str]:
        """Its operator's arguments, else what it keeps itself."""
        hidden = {"_prefix", "_name", "_empty_prefix", "_active", "_monitor_all", "_flags"}
        kept = getattr(layer, "_kwargs", None) or {
            name: value for name, value in vars(layer).items() if name not in hidden
        }
        return text_attributes(
            {name.lstrip("_"): value for name, value in kept.items() if value not in ([], (), {})}
        )

    def momentum(self, layer: Block) -> float | None:
        return layer._kwargs["momentum"] if isinstance(layer, nn.BatchNorm) else None

    def dropout(self, layer: Block) -> Dropout | None:
        if isinstance(layer, nn.Dropout) and layer._rate:
            axes = tuple(layer._axes or ())
            # Axes along which all is dropped together: of a channel, those after it.
            channels = axes and min(axes) == 2
            other = f"elements, axes {axes}" if axes else "elements"
            return Dropout(layer._rate, "channels" if channels else other)
        several = isinstance(layer, rnn.rnn_layer._RNNLayer) and layer._num_layers > 1
        rate = layer._dropout if several else 0.0
        return Dropout(rate, "outputs between layers") if rate else None

    def set_rate(self, layer: Block, rate: float) -> None:
        setattr(layer, "_rate" if isinstance(layer, nn.Dropout) else "_dropout", rate)

    def outputs(self, natives: Mapping[str, mx.nd.NDArray]) -> dict[str, mx.nd.NDArray]:
        """What the model returns for its inputs."""
        # Gluon reads named inputs only in a block that does not trace itself.
        hybrid = isinstance(self.model, HybridBlock)
        arguments, named = bound(self.model.forward, natives)
        arguments = (*arguments, *named.values()) if hybrid else arguments
        found = self.model(*arguments) if hybrid or not named else self.model.forward(**named)
        return dict(tensors(found, _is_array))

    def host(self, loss: Any) -> Any:
        return loss.mean().asnumpy() if _is_array(loss) else loss

    def forward(
        self, inputs: Inputs, *, training: bool = False, layers: Sequence[str] = ()
    ) -> ForwardPass:
        mode = autograd.train_mode() if training else autograd.predict_mode()
        with self.unmoved_states(), _Watch(self, layers) as watch, mode:
            outputs = self.outputs(self.natives(inputs))
            arrays = tuple(output.asnumpy() for output in outputs.values())
            return ForwardPass(arrays, tuple(watch.calls), tuple(outputs))

    def vjp(
        self, inputs: Inputs, cotangents: Sequence[np.ndarray], *, training: bool = False
    ) -> Gradients:
        natives = self.natives(inputs)
        real = {name: each for name, each in natives.items() if _is_real(each)}
        for native in real.values():
            native.attach_grad()
        for parameter in self.trained_natives():
            parameter.zero_grad()
        norms = [block for block in self.names if isinstance(block, nn.BatchNorm)]
        with self.unmoved_states():
            momentums = {block: block._kwargs["momentum"] for block in norms}
            with _Watch(self, ()) as watch, exact_statistics(momentums):
                with autograd.record(train_mode=training):
                    outputs = self.outputs(natives)
                    total = mx.nd.zeros(1, ctx=self.context, dtype=self.dtype)
                    for output, cotangent in zip(outputs.values(), cotangents):
                        if _is_real(output):
                            total = total + (output * self.native(cotangent)).sum()
                # Its own default is training, whatever was recorded: the batch's statistics instead.
                total.backward(train_mode=training)
            # Of several calls of a batch normalisation, the statistics of one are left.
            counts = Counter(call.layer for call in watch.calls)
            layers = {each.name: each.layer for each in self.parameters}
            moved = self.states()
            return Gradients(
                loss=total.asnumpy().reshape(()),
                parameters=self.gather(lambda each: each.grad(self.context).asnumpy()),
                **input_gradients({name: native.grad.asnumpy() for name, native in real.items()}),
                states={name: moved[name] for name in moved if counts[layers[name]] < 2},
            )


class _Watch:
    """While it lasts, notes every call of the blocks, in the order in which they end."""

    def __init__(self, model: UserBlock, requested: Sequence[str]) -> None:
        self.model, self.names = model, model.names
        self.requested = {*requested, *(f"{name}.act".lstrip(".") for name in requested)}
        self.calls: list[LayerCall] = []
        self._arrays: dict[int, tuple[Any, np.ndarray]] = {}

    def __enter__(self) -> _Watch:
        self._hooks = [block.register_forward_hook(self._note) for block in self.names]
        return self

    def __exit__(self, *error: Any) -> None:
        for hook in self._hooks:
            hook.detach()

    def _note(self, block: Block, inputs: Sequence[Any], output: Any) -> None:
        call = LayerCall(self.names[block], None, None, dropout=self.model.dropout(block))
        # A block that applies an activation has just called it, with what the block itself computes.
        applied = [self.calls.pop()] if getattr(block, "act", None) is not None else []
        if call.layer in self.requested:
            output = applied[0].inputs if applied else self._copy(output)
            others = tuple(map(self._copy, filter(_is_array, other_tensors(inputs))))
            call = LayerCall(call.layer, self._copy(inputs), output, others, call.dropout)
        for each in [call, *applied]:
            arrays = (each.inputs, each.output, *each.others)
            first, output, *more = (_canonical(block, array) for array in arrays)
            self.calls.append(LayerCall(each.layer, first, output, tuple(more), each.dropout))

    def _copy(self, value: Any) -> np.ndarray | None:
        array = first_tensor(value)
        if not _is_array(array):
            return None
        if id(array) not in self._arrays:  # the array is kept, so that its id stays its own
            self._arrays[id(array)] = array, array.asnumpy()
        return self._arrays[id(array)][1]


def _is_array(value: Any) -> bool:
    return isinstance(value, mx.nd.NDArray)


def _is_real(native: mx.nd.NDArray) -> bool:
    return np.dtype(native.dtype).kind == "f"


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
