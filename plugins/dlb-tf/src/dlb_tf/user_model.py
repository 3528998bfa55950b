"""A Keras model that a user wrote: its parameters, its layers' values, its gradients."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from math import prod
from operator import attrgetter
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras import layers as K

from dlb_tf.model import KerasParameters
from dlb_tf.registry import LAYERS, kernel, projection
from dlb_worker.contract import (
    Dropout,
    ForwardPass,
    Gradients,
    Inputs,
    LayerCall,
    UserLayer,
    UserModelRequest,
)
from dlb_worker.errors import UnsupportedError
from dlb_worker.native import tensors, text_attributes
from dlb_worker.parameters import Kinds, Mappings, kind_among, location, stacked
from dlb_worker.user_layers import (
    LayeredUserModel,
    bound,
    first_tensor,
    input_gradients,
    make_model,
    needed_inputs,
    other_tensors,
)

_BIAS = location("bias")
_CONV = {"weight": kernel(), "bias": _BIAS}
_LINEAR = {"weight": location("kernel", np.transpose, np.transpose), "bias": _BIAS}


def _depthwise(layer: K.Layer) -> Mappings:
    """A convolution of as many groups as channels."""
    return {"weight": kernel(layer.kernel.shape[-2]), "bias": _BIAS}


def _separable(layer: K.Layer) -> Mappings:
    """Two convolutions, one of as many groups as channels and one of size 1."""
    groups = layer.depthwise_kernel.shape[-2]
    return {
        "depthwise weight": kernel(groups, "depthwise_kernel"),
        "pointwise weight": kernel(attribute="pointwise_kernel"),
        "pointwise bias": _BIAS,
    }


def _transposed(layer: K.Layer) -> Mappings:
    """Kernels are [..., out, in], and in ONNX [in, out, ...]."""
    weight = location(
        "kernel",
        lambda array: array.transpose(*range(2, array.ndim), 1, 0),
        lambda array: array.transpose(-1, -2, *range(array.ndim - 2)),
    )
    return {"weight": weight, "bias": _BIAS}


def _prelu(layer: K.Layer) -> Mappings:
    """A slope for each channel where the other axes are shared; else one for each value, channels last."""
    shape = tuple(layer.alpha.shape)
    if all(size == 1 for size in shape[:-1]):
        return {"slope": location("alpha", lambda array: array.reshape(shape), np.ravel)}
    return {
        "slope": location(
            "alpha",
            lambda array: np.moveaxis(array, 0, -1),
            lambda array: np.moveaxis(array, -1, 0),
        )
    }


def _gru(layer: K.Layer) -> Mappings:
    """Keras's gates are ONNX's; its two biases are one variable, [2, 3 * units].

    A layer whose reset gate acts before the product has one bias. It is another function.
    """
    return {
        "input_weight": location("cell.kernel", np.transpose, np.transpose),
        "recurrent_weight": location("cell.recurrent_kernel", np.transpose, np.transpose),
        "bias" if layer.reset_after else "reset_before_bias": location("cell.bias"),
    }


def _attention(layer: K.Layer) -> Mappings:
    """Queries, keys and values lie one below the other; maps of several inputs are not known."""
    maps = [f"_{name}_dense" for name in ("query", "key", "value")]
    shapes = [tuple(attrgetter(f"{name}.kernel")(layer).shape) for name in maps]
    if len({shape[0] for shape in shapes}) > 1:
        return {}
    weights, biases = zip(*(projection("", shape[:1], shape[1:]) for shape in shapes))
    output = tuple(layer._output_dense.kernel.shape)
    output_weight, output_bias = projection("_output_dense", output[:-1], output[-1:])
    rows = [prod(shape[1:]) for shape in shapes]
    return {
        "input_weight": stacked([f"{name}.kernel" for name in maps], weights, rows),
        "input_bias": stacked([f"{name}.bias" for name in maps], biases, rows),
        "output_weight": output_weight,
        "output_bias": output_bias,
    }


def _einsum(layer: K.Layer) -> Mappings:
    """A linear map of the last axes, where the kernel has those that are summed before those that are new."""
    read, kernel, made = re.split(",|->", layer.equation)
    summed = "".join(axis for axis in kernel if axis not in made)
    new = kernel[len(summed) :]
    if kernel != summed + new or not (read.endswith(summed) and made.endswith(new)):
        return {}
    if any(axis in read for axis in new):
        return {}
    shape = tuple(layer.kernel.shape)
    weight, bias = projection("", shape[: len(summed)], shape[len(summed) :])
    return {"weight": weight, **({"bias": bias} if layer.bias_axes == new else {})}


KINDS: Kinds = {
    K.Dense: ("linear", _LINEAR),
    K.DepthwiseConv1D: ("conv", _depthwise),
    K.DepthwiseConv2D: ("conv", _depthwise),
    K.SeparableConv1D: ("conv", _separable),
    K.SeparableConv2D: ("conv", _separable),
    K.Conv1DTranspose: ("conv_transpose", _transposed),
    K.Conv2DTranspose: ("conv_transpose", _transposed),
    K.Conv3DTranspose: ("conv_transpose", _transposed),
    K.PReLU: ("prelu", _prelu),
    K.GroupNormalization: ("group_norm", LAYERS["group_norm"].parameters),
    K.Conv1D: ("conv", _CONV),
    K.Conv2D: ("conv", _CONV),
    K.Conv3D: ("conv", _CONV),
    K.BatchNormalization: ("batch_norm", LAYERS["batch_norm"].parameters),
    K.LayerNormalization: ("layer_norm", LAYERS["layer_norm"].parameters),
    K.RMSNormalization: ("rms_norm", LAYERS["rms_norm"].parameters),
    K.Embedding: ("embedding", LAYERS["embedding"].parameters),
    K.LSTM: ("lstm", LAYERS["lstm"].parameters),
    K.GRU: ("gru", _gru),
    K.SimpleRNN: ("rnn", LAYERS["rnn"].parameters),
    K.MultiHeadAttention: ("attention", _attention),
    K.GroupQueryAttention: ("attention", _attention),
    K.EinsumDense: ("linear", _einsum),
}
ATTENTIONS = (K.MultiHeadAttention, K.GroupQueryAttention)
_ACTIVATIONS = (K.Activation, K.ReLU, K.LeakyReLU, K.ELU)
#: Layers that leave the order of axes as it was.
ELEMENTWISE = (*_ACTIVATIONS, K.Dropout, K.Add, K.Subtract, K.Multiply, K.Rescaling)


def _computes_as(layer: K.Layer, known: Any) -> bool:
    """Whether a layer is of a type, or of a class derived from it that leaves ``call`` alone."""
    own: Any = type(layer)
    return own is known or (issubclass(own, known) and own.call is known.call)


#: What is dropped, by type of layer.
DROPOUTS: Mapping[Any, str] = {
    K.Dropout: "elements",
    K.SpatialDropout1D: "channels",
    K.SpatialDropout2D: "channels",
    K.SpatialDropout3D: "channels",
    K.AlphaDropout: "elements, by AlphaDropout",
    K.GaussianDropout: "elements, by GaussianDropout",
}


class UserKerasModel(KerasParameters, LayeredUserModel):
    """A Keras model, in float64."""

    kinds = KINDS
    called = "call"

    def __init__(self, request: UserModelRequest) -> None:
        self.dtype = request.dtype
        # For good, since a forward pass may make tensors of its own.
        keras.config.set_floatx(request.dtype)
        # Keras numbers the names that it makes; they are to be the same whenever it is asked.
        keras.utils.clear_session()
        self.names: dict[K.Layer, str] = {}
        self._kept_rates: dict[K.Layer, dict[str, float]] = {}
        with _low_rank_in(self.dtype):
            self.model = make_model(request, K.Layer, "a Keras model")
            self._shape(request.inputs)
        self.names = dict(_named(self.model))
        for layer, name in self.names.items():
            if layer.compute_dtype != self.dtype:
                raise UnsupportedError(
                    f"layer '{name}' computes in {layer.compute_dtype}, which its code fixes; "
                    f"without a type of its own it would be {self.dtype}, as is needed here"
                )
        self.parameters = self.find_parameters()

    def _shape(self, inputs: Inputs | None) -> None:
        """Let layers that are not built see an input."""
        if not all(layer.built for layer in self.model._flatten_layers()):
            batch = needed_inputs(inputs, "the layers have no shapes")
            self.outputs(self.natives(batch), training=False)

    def own_parameters(self, layer: K.Layer) -> dict[str, keras.Variable]:
        inner = {id(variable) for child in _children(layer) for variable in child.weights}
        own = {id(variable): variable for variable in layer.weights if id(variable) not in inner}
        parameters = {}
        for mapping in self.kind_of(layer)[1].values():
            for attribute in mapping.attributes:
                variable = own.pop(id(_holder(layer, attribute)), None)
                if variable is not None:
                    parameters[attribute] = variable
        others = [variable for variable in own.values() if variable.dtype.startswith("float")]
        return {**parameters, **{variable.path: variable for variable in others}}

    def labels(self, parameters: Mapping[str, keras.Variable]) -> dict[str, str]:
        """A layer's own names for its variables; longer where several have the same."""
        counts = Counter(variable.name for variable in parameters.values())
        return {
            key: each.name if counts[each.name] == 1 else ".".join(each.path.split("/")[-2:])
            for key, each in parameters.items()
        }

    def is_trained(self, native: keras.Variable) -> bool:
        return native.trainable

    def is_frozen(self, native: keras.Variable) -> bool:
        """A layer keeps apart what was made to be trained, and what was not."""
        made = (each for layer in self.names for each in _made_to_be_trained(layer))
        return any(each is native for each in made)

    def attributes(self, layer: K.Layer) -> dict[str, str]:
        """What its configuration says."""
        try:
            config = dict(layer.get_config())
        except NotImplementedError:  # a class that a user wrote need not have one
            return {}
        for name in ("name", "layers", "seed"):
            config.pop(name, None)
        if config.pop("trainable", True):
            return text_attributes(config)
        return {**text_attributes(config), "trainable": "False"}

    def momentum(self, layer: K.Layer) -> float | None:
        return layer.momentum if self.kind_of(layer)[0] == "batch_norm" else None

    def penalties(self, layer: K.Layer) -> dict[str, str]:
        """Regularizers and constraints."""
        return {
            _penalised(name): f"{type(value).__name__}({_arguments(value)})"
            for name, value in {**vars(layer), **vars(getattr(layer, "cell", layer))}.items()
            if isinstance(value, (keras.regularizers.Regularizer, keras.constraints.Constraint))
        }

    def dropout(self, layer: K.Layer) -> Dropout | None:
        rates, of = _rates(layer)
        given = {name: rate for name, rate in rates.items() if rate}
        if not given:
            return None
        return Dropout(max(given.values()), of or " and ".join(given))

    def set_rate(self, layer: K.Layer, rate: float) -> None:
        kept = self._kept_rates.setdefault(layer, _rates(layer)[0])
        owner = _rate_owner(layer)
        for name in kept:
            setattr(owner, name, kept[name] if rate else 0.0)

    def kind_of(self, layer: K.Layer) -> tuple[str, Mappings]:
        return kind_among(KINDS, layer, _computes_as)

    def layers(self) -> list[UserLayer]:
        layers = []
        for described, layer in zip(super().layers(), self.names):
            layers.append(described)
            activation = _activation(layer)
            if activation is not None:
                name = f"{described.name}.activation"
                layers.append(UserLayer(name, activation.__name__, {}))
        return layers

    def input_shape(self) -> tuple[int, ...] | None:
        inputs = getattr(self.model, "inputs", None)
        if not inputs or len(inputs) != 1:
            return None
        return tuple(-1 if size is None else size for size in inputs[0].shape[1:])

    def outputs(self, natives: Mapping[str, tf.Tensor], training: bool) -> dict[str, tf.Tensor]:
        """What the model returns for its inputs, from a fresh state."""
        for layer in self.names:
            if getattr(layer, "stateful", False):
                layer.reset_state()
        declared = [each.name for each in getattr(self.model, "inputs", None) or ()]
        if len(natives) > 1 and declared:
            # A model of layers reads several inputs together, in its own order.
            named = set(declared) == set(natives)
            ordered = [natives[name] for name in declared] if named else list(natives.values())
            found = self.model(
                tf.nest.pack_sequence_as(self.model._inputs_struct, ordered), training=training
            )
        else:
            arguments, by_name = bound(self.model.call, natives)
            found = self.model(*arguments, **by_name, training=training)
        return dict(tensors(found, tf.is_tensor))

    def forward(
        self, inputs: Inputs, *, training: bool = False, layers: Sequence[str] = ()
    ) -> ForwardPass:
        with self.unmoved_states(self.model), _Watch(self, layers) as watch:
            outputs = self.outputs(self.natives(inputs), training)
        arrays = tuple(output.numpy() for output in outputs.values())
        return ForwardPass(arrays, tuple(watch.calls), tuple(outputs))

    def vjp(
        self, inputs: Inputs, cotangents: Sequence[np.ndarray], *, training: bool = False
    ) -> Gradients:
        trained, natives = self.trained_natives(), self.natives(inputs)
        real = {name: each for name, each in natives.items() if each.dtype.is_floating}
        with self.unmoved_states(self.model):
            with tf.GradientTape() as tape:
                tape.watch(list(real.values()))
                pairs = zip(self.outputs(natives, training).values(), cotangents, strict=True)
                total = tf.add_n(
                    [
                        tf.reduce_sum(output * cotangent)
                        for output, cotangent in pairs
                        if output.dtype.is_floating
                    ]
                )
            variables = [variable.value for variable in trained]
            gradients, of_inputs = tape.gradient(
                total, (variables, real), unconnected_gradients=tf.UnconnectedGradients.ZERO
            )
            moved = self.states()
        dense = dict(zip(map(id, trained), map(tf.convert_to_tensor, gradients)))
        return Gradients(
            loss=total.numpy(),
            parameters=self.gather(lambda variable: dense[id(variable)].numpy()),
            **input_gradients({name: of_inputs[name].numpy() for name in real}),
            states=moved,
        )


class _Watch:
    """While it lasts, notes every call of the layers: Keras calls ``layer.call`` for each."""

    def __init__(self, model: UserKerasModel, requested: Sequence[str]) -> None:
        self.names, self.requested = model.names, set(requested)
        self.dropouts = {model.names[layer]: model.dropout(layer) for layer in model.names}
        self.calls: list[LayerCall] = []
        self._arrays: dict[int, tuple[Any, np.ndarray]] = {}
        self._channels_last: dict[int, bool] = {}
        self._before_activation: list[Any] = []

    def __enter__(self) -> _Watch:
        self._activations = {layer: layer.activation for layer in self.names if _activation(layer)}
        for layer, activation in self._activations.items():
            layer.activation = self._watched_activation(activation)
        self._own = {layer: vars(layer).get("call") for layer in self.names}
        for layer in self.names:
            layer.call = self._watched_call(layer, layer.call)
        return self

    def __exit__(self, *error: Any) -> None:
        for layer, own in self._own.items():
            del layer.call  # the class's own shows again
            if own is not None:
                layer.call = own
        for layer, activation in self._activations.items():
            layer.activation = activation

    def _watched_call(self, layer: K.Layer, call: Callable[..., Any]) -> Callable[..., Any]:
        def watched(*arguments: Any, **named: Any) -> Any:
            self._before_activation.append(None)
            output = call(*arguments, **named)
            before = self._before_activation.pop()
            self._note(layer, arguments, first_tensor(output), before)
            return output

        return watched

    def _watched_activation(self, activation: Callable[..., Any]) -> Callable[..., Any]:
        """A layer's activation receives what the layer itself computes."""

        def watched(inputs: Any, *more: Any, **named: Any) -> Any:
            if self._before_activation:
                self._before_activation[-1] = inputs
            return activation(inputs, *more, **named)

        return watched

    def _note(self, layer: K.Layer, arguments: Any, output: Any, before: Any) -> None:
        inputs, others = first_tensor(arguments), filter(tf.is_tensor, other_tensors(arguments))
        name, last = self.names[layer], _channels_last(layer, output)
        if isinstance(layer, ELEMENTWISE):
            last = self._channels_last.get(id(inputs), False)
        for value in (output, before):
            if value is not None:
                self._channels_last[id(value)] = last
        self._append(name, last, inputs, output if before is None else before, *others)
        if before is not None:
            self._append(f"{name}.activation", last, before, output)

    def _append(self, name: str, channels_last: bool, *values: Any) -> None:
        """Note a call, with its first input, its output and its further inputs if it is requested."""
        call = LayerCall(name, None, None, dropout=self.dropouts.get(name))
        if name in self.requested:
            first, output, *others = (self._array(value, channels_last) for value in values)
            call = LayerCall(name, first, output, tuple(others), call.dropout)
        self.calls.append(call)

    def _array(self, tensor: Any, channels_last: bool) -> np.ndarray | None:
        """A tensor's array, with channels on the first axis after the batch."""
        if not tf.is_tensor(tensor) or not hasattr(tensor, "numpy"):
            return None
        if id(tensor) not in self._arrays:  # the tensor is kept, so that its id stays its own
            self._arrays[id(tensor)] = tensor, tensor.numpy()
        array = self._arrays[id(tensor)][1]
        return np.moveaxis(array, -1, 1) if channels_last and array.ndim > 2 else array


def _made_to_be_trained(layer: K.Layer) -> Iterator[keras.Variable]:
    """Variables of a layer, and of parts such as the cell of a recurrent one."""
    for part in layer._flatten_layers():
        yield from part._trainable_variables


def _holder(layer: K.Layer, attribute: str) -> Any:
    """What holds an attribute: ``_kernel`` where ``kernel`` is its sum with an addition of low rank."""
    path, _, name = attribute.rpartition(".")
    owner = attrgetter(path)(layer) if path else layer
    base = getattr(owner, f"_{name}", None)
    return base if isinstance(base, keras.Variable) else getattr(owner, name)


@contextmanager
def _low_rank_in(dtype: str) -> Iterator[None]:
    """While it lasts, kernels of low rank get a type, which Keras makes in float32 whatever the model's is."""
    add = K.Layer.add_weight

    def add_weight(layer: K.Layer, *arguments: Any, **named: Any) -> keras.Variable:
        if re.fullmatch("lora_(kernel|embeddings)_[ab]", str(named.get("name"))):
            named["dtype"] = dtype
        return add(layer, *arguments, **named)

    K.Layer.add_weight = add_weight
    try:
        yield
    finally:
        K.Layer.add_weight = add


def _channels_last(layer: K.Layer, output: Any) -> bool:
    """Whether a layer says that channels are the last axis of its input and its output."""
    axis = getattr(layer, "axis", None)
    if isinstance(layer, K.BatchNormalization) and isinstance(axis, int):
        return axis in (-1, len(getattr(output, "shape", ())) - 1)
    return getattr(layer, "data_format", "") == "channels_last"


def _rates(layer: K.Layer) -> tuple[dict[str, float], str]:
    """The attributes of a layer that hold dropout rates, and what is dropped; "" if their names say it."""
    for known, of in DROPOUTS.items():
        if type(layer) is known:
            shape = getattr(layer, "noise_shape", None)
            rates = {"rate": layer.rate}
            if shape is not None and all(size == 1 for size in shape[1:]):
                return rates, "samples"
            return rates, of if shape is None else f"elements, noise_shape {shape}"
    if isinstance(layer, ATTENTIONS) and getattr(layer, "_dropout_layer", None):
        return {"rate": layer._dropout_layer.rate}, "attention weights"
    if isinstance(layer, K.RNN) and hasattr(layer.cell, "recurrent_dropout"):
        return {name: getattr(layer.cell, name) for name in ("dropout", "recurrent_dropout")}, ""
    return {}, ""


def _rate_owner(layer: K.Layer) -> Any:
    """The object whose attributes :func:`_rates` names."""
    if isinstance(layer, ATTENTIONS):
        return layer._dropout_layer
    return layer.cell if isinstance(layer, K.RNN) else layer


def _penalised(attribute: str) -> str:
    """``kernel`` of ``kernel_regularizer``; the output of a layer for its activity."""
    name = attribute.lstrip("_").rpartition("_")[0]
    return "output" if name == "activity" else name


def _arguments(value: Any) -> str:
    return ", ".join(f"{name}={each:.6g}" for name, each in value.get_config().items() if each)


def _activation(layer: K.Layer) -> Any:
    """The activation that a layer applies to its result, if it has one."""
    activation = getattr(layer, "activation", None)
    if isinstance(layer, (K.Activation, K.RNN)) or not callable(activation):
        return None
    return None if activation is keras.activations.linear else activation


def _children(layer: K.Layer) -> list[K.Layer]:
    """Layers directly inside a layer; the cell of a recurrent one is the layer itself."""
    if type(layer) in KINDS:
        return []
    inside = layer._flatten_layers(include_self=False, recursive=False)
    return [child for child in inside if child is not layer]


def _named(model: K.Layer) -> Iterator[tuple[K.Layer, str]]:
    """Every layer with its path: attributes of written classes, names in models of layers."""
    seen: set[int] = set()

    def walk(layer: K.Layer, name: str) -> Iterator[tuple[K.Layer, str]]:
        if id(layer) in seen:
            return
        seen.add(id(layer))
        yield layer, name
        for child in _children(layer):
            yield from walk(child, f"{name}.{_child_name(layer, child)}".lstrip("."))

    return walk(model, "")


def _child_name(parent: K.Layer, child: K.Layer) -> str:
    if isinstance(parent, (keras.Sequential, keras.Model)) and getattr(parent, "inputs", None):
        return str(child.name)
    for attribute, value in vars(parent).items():
        if attribute.startswith("_"):
            continue
        if value is child:
            return attribute
        if isinstance(value, (list, tuple)):
            for number, element in enumerate(value):
                if element is child:
                    return f"{attribute}.{number}"
    return str(child.name)
