"""A Keras model that a user wrote: its parameters, its layers' values, its gradients."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras import layers as K

from dlb_tf.registry import LAYERS, kernel, projection
from dlb_worker.contract import ForwardPass, Gradients, LayerCall, UserLayer, UserModelRequest
from dlb_worker.errors import UnsupportedError
from dlb_worker.native import UserModel, tensors, text_attributes
from dlb_worker.parameters import (
    Kinds,
    Mappings,
    NativeParameter,
    kind_among,
    location,
    stacked,
    user_parameter,
)

_BIAS = location("bias")
_CONV = {"weight": kernel(), "bias": _BIAS}
_LINEAR = {"weight": location("kernel", np.transpose, np.transpose), "bias": _BIAS}


def _depthwise(layer: K.Layer) -> Mappings:
    """A convolution of as many groups as channels."""
    return {"weight": kernel(layer.kernel.shape[-2]), "bias": _BIAS}


def _gru(layer: K.Layer) -> Mappings:
    """Keras's gates are ONNX's; its two biases are one variable, [2, 3 * units]."""
    if not layer.reset_after:  # the reset gate acts elsewhere
        return {}
    return {
        "input_weight": location("cell.kernel", np.transpose, np.transpose),
        "recurrent_weight": location("cell.recurrent_kernel", np.transpose, np.transpose),
        "bias": location("cell.bias"),
    }


def _attention(layer: K.Layer) -> Mappings:
    """Queries, keys and values lie one below the other; maps of several sizes are not known."""
    maps = [f"_{name}_dense" for name in ("query", "key", "value")]
    shapes = {tuple(attrgetter(f"{name}.kernel")(layer).shape) for name in maps}
    if len(shapes) > 1:
        return {}
    (shape,), output = shapes, tuple(layer._output_dense.kernel.shape)
    weight, bias = projection("", shape[:1], shape[1:])
    output_weight, output_bias = projection("_output_dense", output[:-1], output[-1:])
    return {
        "input_weight": stacked([f"{name}.kernel" for name in maps], weight),
        "input_bias": stacked([f"{name}.bias" for name in maps], bias),
        "output_weight": output_weight,
        "output_bias": output_bias,
    }


KINDS: Kinds = {
    K.Dense: ("linear", _LINEAR),
    K.DepthwiseConv1D: ("conv", _depthwise),
    K.DepthwiseConv2D: ("conv", _depthwise),
    K.Conv1D: ("conv", _CONV),
    K.Conv2D: ("conv", _CONV),
    K.Conv3D: ("conv", _CONV),
    K.BatchNormalization: ("batch_norm", LAYERS["batch_norm"].parameters),
    K.LayerNormalization: ("layer_norm", LAYERS["layer_norm"].parameters),
    K.Embedding: ("embedding", LAYERS["embedding"].parameters),
    K.LSTM: ("lstm", LAYERS["lstm"].parameters),
    K.GRU: ("gru", _gru),
    K.MultiHeadAttention: ("attention", _attention),
}
_ACTIVATIONS = (K.Activation, K.ReLU, K.LeakyReLU, K.ELU)
#: Layers that leave the order of axes as it was.
ELEMENTWISE = (*_ACTIVATIONS, K.Dropout, K.Add, K.Subtract, K.Multiply, K.Rescaling)


def kind_of(layer: K.Layer) -> tuple[str, Mappings]:
    """The layer kind that a layer is, and where its parameters are; "" and none if not known."""
    return kind_among(KINDS, layer, _computes_as)


def _computes_as(layer: K.Layer, known: Any) -> bool:
    """Whether a layer is of a type, or of a class derived from it that leaves ``call`` alone."""
    own: Any = type(layer)
    return own is known or (issubclass(own, known) and own.call is known.call)


class UserKerasModel(UserModel):
    """A Keras model, in float64."""

    def __init__(self, request: UserModelRequest) -> None:
        self.dtype = request.dtype
        # For good, since a forward pass may make tensors of its own.
        keras.config.set_floatx(request.dtype)
        # Keras numbers the names that it makes; they are to be the same whenever it is asked.
        keras.utils.clear_session()
        model = request.make()
        if not isinstance(model, K.Layer):
            raise UnsupportedError(
                f"the factory returned a {type(model).__name__}; it must return a Keras model"
            )
        self.model = model
        self.names: dict[K.Layer, str] = {}
        self._shape(request.inputs)
        self.names = dict(_named(model))
        for layer, name in self.names.items():
            if layer.compute_dtype != self.dtype:
                raise UnsupportedError(
                    f"layer '{name}' computes in {layer.compute_dtype}, which its code fixes; "
                    f"without a type of its own it would be {self.dtype}, as is needed here"
                )
        self.parameters = list(self._parameters())

    def _shape(self, inputs: np.ndarray | None) -> None:
        """Let layers that are not built see an input."""
        if all(layer.built for layer in self.model._flatten_layers()):
            return
        if inputs is None:
            raise UnsupportedError(
                "the layers have no shapes before the model has seen an input; give --input or "
                "--input-shape"
            )
        self.model(self.native(inputs), training=False)

    def _parameters(self) -> Iterator[NativeParameter]:
        seen: set[int] = set()
        for layer, name in self.names.items():
            inner = {id(variable) for child in _children(layer) for variable in child.weights}
            own = {id(each): each for each in layer.weights if id(each) not in inner | seen}
            seen |= own.keys()
            names = _variable_names(own)
            for role, mapping in kind_of(layer)[1].items():
                natives = [attrgetter(attribute)(layer) for attribute in mapping.attributes]
                if all(id(native) in own for native in natives):
                    named = {names[id(native)]: own.pop(id(native)) for native in natives}
                    yield user_parameter(name, role, natives[0].trainable, named, mapping)
            for key, variable in own.items():
                if variable.dtype.startswith("float"):
                    yield user_parameter(name, "", variable.trainable, {names[key]: variable})

    def read(self, native: keras.Variable) -> np.ndarray:
        return native.numpy()

    def write(self, native: keras.Variable, array: np.ndarray) -> None:
        native.assign(array)

    def layers(self) -> list[UserLayer]:
        layers = []
        for layer, name in self.names.items():
            kind, activation = kind_of(layer)[0], _activation(layer)
            momentum = layer.momentum if kind == "batch_norm" else None
            attributes = _attributes(layer)
            layers.append(UserLayer(name, type(layer).__name__, attributes, kind, momentum))
            if activation is not None:
                layers.append(UserLayer(f"{name}.activation", activation.__name__, {}))
        return layers

    def input_shape(self) -> tuple[int, ...] | None:
        inputs = getattr(self.model, "inputs", None)
        if not inputs or len(inputs) != 1:
            return None
        return tuple(-1 if size is None else size for size in inputs[0].shape[1:])

    def forward(
        self, inputs: np.ndarray, *, training: bool = False, layers: Sequence[str] = ()
    ) -> ForwardPass:
        states, native = self._states(), self.native(inputs)
        with _Watch(self.names, set(layers)) as watch:
            outputs = list(tensors(self.model(native, training=training), tf.is_tensor))
        _restore(states)
        return ForwardPass(tuple(output.numpy() for output in outputs), tuple(watch.calls))

    def vjp(
        self, inputs: np.ndarray, cotangents: Sequence[np.ndarray], *, training: bool = False
    ) -> Gradients:
        states, native = self._states(), self.native(inputs)
        trained = [
            each for parameter in self.parameters if parameter.trained for each in parameter.natives
        ]
        with tf.GradientTape() as tape:
            tape.watch(native)
            outputs = tensors(self.model(native, training=training), tf.is_tensor)
            pairs = zip(outputs, cotangents, strict=True)
            total = tf.add_n([tf.reduce_sum(output * cotangent) for output, cotangent in pairs])
        sources = [native] if native.dtype.is_floating else []
        variables = [variable.value for variable in trained]
        zero = tf.UnconnectedGradients.ZERO
        gradients, of_inputs = tape.gradient(
            total, (variables, sources), unconnected_gradients=zero
        )
        dense = dict(zip(map(id, trained), map(tf.convert_to_tensor, gradients)))
        moved = self.states()
        _restore(states)
        return Gradients(
            loss=total.numpy(),
            parameters=self.gather(lambda variable: dense[id(variable)].numpy()),
            inputs=of_inputs[0].numpy() if sources else None,
            states=moved,
        )

    def native(self, inputs: np.ndarray) -> tf.Tensor:
        for layer in self.names:
            if getattr(layer, "stateful", False):
                layer.reset_state()
        return tf.constant(inputs, self.dtype if inputs.dtype.kind == "f" else None)

    def _states(self) -> list[tuple[keras.Variable, np.ndarray]]:
        """Variables that a pass in training mode moves, with their values."""
        return [(variable, variable.numpy()) for variable in self.model.non_trainable_weights]


def _restore(states: list[tuple[keras.Variable, np.ndarray]]) -> None:
    for variable, kept in states:
        variable.assign(kept)


class _Watch:
    """While it lasts, notes every call of the layers: Keras calls ``layer.call`` for each."""

    def __init__(self, names: Mapping[K.Layer, str], requested: set[str]) -> None:
        self.names, self.requested = names, requested
        self.calls: list[LayerCall] = []
        self._arrays: dict[int, tuple[Any, np.ndarray]] = {}
        self._channels_last: dict[int, bool] = {}
        self._before_activation: list[Any] = []
        self._replaced: list[tuple[K.Layer, str, Any]] = []

    def __enter__(self) -> _Watch:
        for layer in self.names:
            if _activation(layer) is not None:
                self._replace(layer, "activation", self._watched_activation(layer.activation))
            self._replace(layer, "call", self._watched_call(layer, layer.call))
        return self

    def __exit__(self, *error: object) -> None:
        for layer, attribute, value in reversed(self._replaced):
            if attribute == "call":
                del layer.call  # the class's own shows again
            else:
                setattr(layer, attribute, value)

    def _replace(self, layer: K.Layer, attribute: str, value: Any) -> None:
        self._replaced.append((layer, attribute, getattr(layer, attribute)))
        setattr(layer, attribute, value)

    def _watched_call(self, layer: K.Layer, call: Callable[..., Any]) -> Callable[..., Any]:
        def watched(*arguments: Any, **named: Any) -> Any:
            self._before_activation.append(None)
            output = call(*arguments, **named)
            before = self._before_activation.pop()
            self._note(layer, _first(arguments), _first(output), before)
            return output

        return watched

    def _watched_activation(self, activation: Callable[..., Any]) -> Callable[..., Any]:
        """A layer's activation receives what the layer itself computes."""

        def watched(inputs: Any, *more: Any, **named: Any) -> Any:
            if self._before_activation:
                self._before_activation[-1] = inputs
            return activation(inputs, *more, **named)

        return watched

    def _note(self, layer: K.Layer, inputs: Any, output: Any, before: Any) -> None:
        name, last = self.names[layer], _channels_last(layer, output)
        if isinstance(layer, ELEMENTWISE):
            last = self._channels_last.get(id(inputs), False)
        for value in (output, before):
            if value is not None:
                self._channels_last[id(value)] = last
        self._append(name, inputs, output if before is None else before, last)
        if before is not None:
            self._append(f"{name}.activation", before, output, last)

    def _append(self, name: str, inputs: Any, output: Any, channels_last: bool) -> None:
        arrays = [self._array(value, channels_last) for value in (inputs, output)]
        self.calls.append(LayerCall(name, *(arrays if name in self.requested else (None, None))))

    def _array(self, tensor: Any, channels_last: bool) -> np.ndarray | None:
        """A tensor's array, with channels on the first axis after the batch."""
        if not tf.is_tensor(tensor) or not hasattr(tensor, "numpy"):
            return None
        if id(tensor) not in self._arrays:  # the tensor is kept, so that its id stays its own
            self._arrays[id(tensor)] = tensor, tensor.numpy()
        array = self._arrays[id(tensor)][1]
        return np.moveaxis(array, -1, 1) if channels_last and array.ndim > 2 else array


def _first(value: Any) -> Any:
    """The one tensor that is taken for a layer's output or input."""
    while isinstance(value, (list, tuple)) and value:
        value = value[0]
    return value


def _channels_last(layer: K.Layer, output: Any) -> bool:
    """Whether a layer says that channels are the last axis of its input and its output."""
    axis = getattr(layer, "axis", None)
    if isinstance(layer, K.BatchNormalization) and isinstance(axis, int):
        return axis in (-1, len(getattr(output, "shape", ())) - 1)
    return getattr(layer, "data_format", "") == "channels_last"


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


def _variable_names(variables: Mapping[int, keras.Variable]) -> dict[int, str]:
    """A layer's own names for its variables, by key; longer where several have the same."""
    counts = Counter(variable.name for variable in variables.values())
    return {
        key: each.name if counts[each.name] == 1 else ".".join(each.path.split("/")[-2:])
        for key, each in variables.items()
    }


def _attributes(layer: K.Layer) -> dict[str, str]:
    """What a layer was made with, as its configuration has it."""
    try:
        config = layer.get_config()
    except NotImplementedError:  # a class that a user wrote need not have one
        return {}
    return text_attributes(
        {
            name: value
            for name, value in config.items()
            if name not in ("name", "trainable", "layers", "seed")
        }
    )
