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

from dlb_tf.model import KerasParameters
from dlb_tf.registry import LAYERS, kernel, projection
from dlb_worker.contract import ForwardPass, Gradients, LayerCall, UserLayer, UserModelRequest
from dlb_worker.errors import UnsupportedError
from dlb_worker.native import tensors, text_attributes
from dlb_worker.parameters import Kinds, Mappings, kind_among, location, stacked
from dlb_worker.user_layers import LayeredUserModel, first_tensor, make_model, needed_inputs

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


def _computes_as(layer: K.Layer, known: Any) -> bool:
    """Whether a layer is of a type, or of a class derived from it that leaves ``call`` alone."""
    own: Any = type(layer)
    return own is known or (issubclass(own, known) and own.call is known.call)


class UserKerasModel(KerasParameters, LayeredUserModel):
    """A Keras model, in float64."""

    kinds = KINDS

    def __init__(self, request: UserModelRequest) -> None:
        self.dtype = request.dtype
        # For good, since a forward pass may make tensors of its own.
        keras.config.set_floatx(request.dtype)
        # Keras numbers the names that it makes; they are to be the same whenever it is asked.
        keras.utils.clear_session()
        self.model = make_model(request, K.Layer, "a Keras model")
        self.names: dict[K.Layer, str] = {}
        self._shape(request.inputs)
        self.names = dict(_named(self.model))
        for layer, name in self.names.items():
            if layer.compute_dtype != self.dtype:
                raise UnsupportedError(
                    f"layer '{name}' computes in {layer.compute_dtype}, which its code fixes; "
                    f"without a type of its own it would be {self.dtype}, as is needed here"
                )
        self.parameters = self.find_parameters()

    def _shape(self, inputs: np.ndarray | None) -> None:
        """Let layers that are not built see an input."""
        if not all(layer.built for layer in self.model._flatten_layers()):
            batch = needed_inputs(inputs, "the layers have no shapes")
            self.model(self.native(batch), training=False)

    def own_parameters(self, layer: K.Layer) -> dict[str, keras.Variable]:
        inner = {id(variable) for child in _children(layer) for variable in child.weights}
        own = {id(variable): variable for variable in layer.weights if id(variable) not in inner}
        parameters = {}
        for mapping in self.kind_of(layer)[1].values():
            for attribute in mapping.attributes:
                variable = own.pop(id(attrgetter(attribute)(layer)), None)
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

    def attributes(self, layer: K.Layer) -> dict[str, str]:
        """What its configuration says."""
        try:
            config = dict(layer.get_config())
        except NotImplementedError:  # a class that a user wrote need not have one
            return {}
        for name in ("name", "trainable", "layers", "seed"):
            config.pop(name, None)
        return text_attributes(config)

    def momentum(self, layer: K.Layer) -> float | None:
        return layer.momentum if self.kind_of(layer)[0] == "batch_norm" else None

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

    def native(self, inputs: np.ndarray) -> tf.Tensor:
        for layer in self.names:
            if getattr(layer, "stateful", False):
                layer.reset_state()
        return super().native(inputs)

    def forward(
        self, inputs: np.ndarray, *, training: bool = False, layers: Sequence[str] = ()
    ) -> ForwardPass:
        with self.unmoved_states(self.model), _Watch(self.names, layers) as watch:
            outputs = self.model(self.native(inputs), training=training)
        arrays = tuple(output.numpy() for output in tensors(outputs, tf.is_tensor))
        return ForwardPass(arrays, tuple(watch.calls))

    def vjp(
        self, inputs: np.ndarray, cotangents: Sequence[np.ndarray], *, training: bool = False
    ) -> Gradients:
        trained = self.trained_natives()
        with self.unmoved_states(self.model):
            native = self.native(inputs)
            with tf.GradientTape() as tape:
                tape.watch(native)
                outputs = tensors(self.model(native, training=training), tf.is_tensor)
                pairs = zip(outputs, cotangents, strict=True)
                total = tf.add_n([tf.reduce_sum(output * cotangent) for output, cotangent in pairs])
            variables = [variable.value for variable in trained]
            sources = [native] if native.dtype.is_floating else []
            gradients, of_inputs = tape.gradient(
                total, (variables, sources), unconnected_gradients=tf.UnconnectedGradients.ZERO
            )
            moved = self.states()
        dense = dict(zip(map(id, trained), map(tf.convert_to_tensor, gradients)))
        return Gradients(
            loss=total.numpy(),
            parameters=self.gather(lambda variable: dense[id(variable)].numpy()),
            inputs=of_inputs[0].numpy() if sources else None,
            states=moved,
        )


class _Watch:
    """While it lasts, notes every call of the layers: Keras calls ``layer.call`` for each."""

    def __init__(self, names: Mapping[K.Layer, str], requested: Sequence[str]) -> None:
        self.names, self.requested = names, set(requested)
        self.calls: list[LayerCall] = []
        self._arrays: dict[int, tuple[Any, np.ndarray]] = {}
        self._channels_last: dict[int, bool] = {}
        self._before_activation: list[Any] = []

    def __enter__(self) -> _Watch:
        self._activations = {layer: layer.activation for layer in self.names if _activation(layer)}
        for layer, activation in self._activations.items():
            layer.activation = self._watched_activation(activation)
        for layer in self.names:
            layer.call = self._watched_call(layer, layer.call)
        return self

    def __exit__(self, *error: Any) -> None:
        for layer in self.names:
            del layer.call  # the class's own shows again
        for layer, activation in self._activations.items():
            layer.activation = activation

    def _watched_call(self, layer: K.Layer, call: Callable[..., Any]) -> Callable[..., Any]:
        def watched(*arguments: Any, **named: Any) -> Any:
            self._before_activation.append(None)
            output = call(*arguments, **named)
            before = self._before_activation.pop()
            self._note(layer, first_tensor(arguments), first_tensor(output), before)
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
