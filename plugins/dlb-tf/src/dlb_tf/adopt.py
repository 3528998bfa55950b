"""A Keras model that somebody wrote, taken in as it is: parameters, layers' values, gradients."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from dlb.adoption import Held, NativeModel, Way, held, plain, stacked, tensors, words
from dlb.contract import AdoptedLayer, AdoptRequest, Gradients, LayerCall, Trace
from keras import layers as K

from dlb import workload as W
from dlb.errors import UnsupportedError
from dlb_tf.layers import TABLE, Given, Place
from dlb_tf.layout import Layout


def _of(layer: type) -> Callable[[K.Layer], Mapping[str, Way]]:
    """Where the parameters of a layer type are, as its table has it."""
    given = Given(shape=(), layout=Layout(), result=Layout(), dtype="float64")
    ways = {role: plain(place) for role, place in TABLE[layer].places(None, given).items()}
    return lambda layer: ways


#: Kernels are [..., in, out]; canonical ones [out, in, ...].
_KERNEL = Place(
    "kernel", lambda w: np.moveaxis(w, (0, 1), (-1, -2)), lambda w: np.moveaxis(w, (-1, -2), (0, 1))
)
_CONV = {"weight": plain(_KERNEL), "bias": plain(Place("bias"))}
_NORMALISATION = {"scale": plain(Place("gamma")), "bias": plain(Place("beta"))}


def _depthwise_ways(layer: K.Layer) -> Mapping[str, Way]:
    """[..., in, multiplier], which is a convolution of ``in`` groups."""

    def canonical(kernel: np.ndarray) -> np.ndarray:
        flat = kernel.reshape(*kernel.shape[:-2], 1, -1)
        return np.moveaxis(flat, (-1, -2), (0, 1))

    def native(weight: np.ndarray) -> np.ndarray:
        return np.moveaxis(weight, (0, 1), (-1, -2)).reshape(layer.kernel.shape)

    return {**_CONV, "weight": plain(Place("kernel", native, canonical))}


def _gru_ways(layer: K.Layer) -> Mapping[str, Way]:
    """Keras' gates are ONNX' own; its two biases are one variable, [2, 3 * units]."""
    if not layer.reset_after:  # the reset gate acts elsewhere
        return {}

    def turned(attribute: str) -> Way:
        return plain(Place(attribute, lambda w: w.T, lambda w: w.T))

    return {
        "input_weight": turned("cell.kernel"),
        "recurrent_weight": turned("cell.recurrent_kernel"),
        "bias": plain(Place("cell.bias")),
    }


def _attention_ways(layer: K.Layer) -> Mapping[str, Way]:
    """The maps of queries, keys and values one below the other; if they are of one size."""
    maps = [f"_{name}_dense" for name in ("query", "key", "value")]
    of_input = [attrgetter(f"{name}.kernel")(layer) for name in maps]
    if len({tuple(kernel.shape) for kernel in of_input}) > 1:
        return {}
    kernel, bias = of_input[0].shape, tuple(of_input[0].shape[1:])
    last = layer._output_dense.kernel.shape
    return {
        "input_weight": stacked(
            [f"{name}.kernel" for name in maps],
            Place("kernel", lambda w: w.T.reshape(kernel), lambda w: w.reshape(len(w), -1).T),
        ),
        "input_bias": stacked(
            [f"{name}.bias" for name in maps],
            Place("bias", lambda b: b.reshape(bias), lambda b: b.ravel()),
        ),
        "output_weight": plain(
            Place(
                "_output_dense.kernel",
                lambda w: w.T.reshape(last),
                lambda w: w.reshape(-1, w.shape[-1]).T,
            )
        ),
        "output_bias": plain(Place("_output_dense.bias")),
    }


#: By the type of a layer: the layer type that it is, and where its parameters are.
KNOWN: dict[type[K.Layer], tuple[str, Callable[[K.Layer], Mapping[str, Way]]]] = {
    K.Dense: ("linear", _of(W.Linear)),
    K.DepthwiseConv1D: ("conv", _depthwise_ways),
    K.DepthwiseConv2D: ("conv", _depthwise_ways),
    K.Conv1D: ("conv", lambda layer: _CONV),
    K.Conv2D: ("conv", lambda layer: _CONV),
    K.Conv3D: ("conv", lambda layer: _CONV),
    K.BatchNormalization: ("batch_norm", _of(W.BatchNorm)),
    K.LayerNormalization: ("layer_norm", lambda layer: _NORMALISATION),
    K.Embedding: ("embedding", _of(W.Embedding)),
    K.LSTM: ("lstm", _of(W.LSTM)),
    K.GRU: ("gru", _gru_ways),
    K.MultiHeadAttention: ("attention", _attention_ways),
}
#: Layers that leave the order of axes as it was.
ELEMENTWISE = (
    K.Activation,
    K.ReLU,
    K.LeakyReLU,
    K.ELU,
    K.Dropout,
    K.Add,
    K.Subtract,
    K.Multiply,
    K.Rescaling,
)


def known(layer: K.Layer) -> tuple[str, Mapping[str, Way]]:
    """The layer type that a layer is, and where its parameters are; "" and none if not known."""
    for kind, (name, ways) in KNOWN.items():
        if type(layer) is kind or (isinstance(layer, kind) and type(layer).call is kind.call):
            return name, ways(layer)
    return "", {}


class AdoptedKeras(NativeModel):
    """A Keras model, in float64."""

    def __init__(self, request: AdoptRequest) -> None:
        self.dtype = request.dtype
        # For good, since a forward pass may make tensors of its own.
        keras.config.set_floatx(request.dtype)
        # Keras numbers the names that it makes; they are to be the same whenever it is asked.
        keras.utils.clear_session()
        model = request.make()
        if not isinstance(model, K.Layer):
            raise UnsupportedError(
                f"its factory gave a {type(model).__name__}; it must give a Keras model"
            )
        self.model = model
        self._shape(request.inputs)
        self.names = dict(_named(model))
        for layer, name in self.names.items():
            if layer.compute_dtype != self.dtype:
                raise UnsupportedError(
                    f"layer '{name}' computes in {layer.compute_dtype}, which its code fixes; "
                    f"without a type of its own it would be {self.dtype}, as is needed here"
                )
        self.held = list(self._held())

    def _shape(self, inputs: np.ndarray | None) -> None:
        """Let layers that are not built see an input."""
        if all(layer.built for layer in self.model._flatten_layers()):
            return
        if inputs is None:
            raise UnsupportedError(
                "its layers have no shapes before the model has seen an input; give --input or "
                "--input-shape"
            )
        self.model(self._native(inputs), training=False)

    def _held(self) -> Iterator[Held]:
        seen: set[int] = set()
        for layer, name in self.names.items():
            inner = {id(variable) for one in _inside(layer) for variable in one.weights}
            own = [v for v in layer.weights if id(v) not in inner and id(v) not in seen]
            seen |= {id(variable) for variable in own}
            often = Counter(variable.name for variable in own)
            called = {
                id(v): v.name if often[v.name] == 1 else ".".join(v.path.split("/")[-2:])
                for v in own
            }
            for role, way in known(layer)[1].items():
                natives = [attrgetter(attribute)(layer) for attribute in way.attributes]
                if {id(native) for native in natives} <= {id(variable) for variable in own}:
                    own = [one for one in own if all(one is not native for native in natives)]
                    named = {called[id(native)]: native for native in natives}
                    yield held(name, role, natives[0].trainable, named, way)
            for variable in own:
                if variable.dtype.startswith("float"):
                    yield held(name, "", variable.trainable, {called[id(variable)]: variable})

    def read(self, native: keras.Variable) -> np.ndarray:
        return np.array(native.numpy())

    def write(self, native: keras.Variable, array: np.ndarray) -> None:
        native.assign(array)

    def layers(self) -> list[AdoptedLayer]:
        found = []
        for layer, name in self.names.items():
            kind = known(layer)[0]
            momentum = layer.momentum if kind == "batch_norm" else None
            attributes = _attributes(layer)
            found.append(AdoptedLayer(name, type(layer).__name__, attributes, kind, momentum))
            if _activation(layer) is not None:
                activation = _activation(layer).__name__
                found.append(AdoptedLayer(f"{name}.activation", activation, {}))
        return found

    def input_shape(self) -> tuple[int, ...] | None:
        inputs = getattr(self.model, "inputs", None)
        if not inputs or len(inputs) != 1:
            return None
        return tuple(-1 if size is None else size for size in inputs[0].shape[1:])

    def forward(
        self, inputs: np.ndarray, *, training: bool = False, layers: Sequence[str] = ()
    ) -> Trace:
        states = self._states()
        with _Watch(self.names, set(layers)) as watch:
            given = self._native(inputs)
            outputs = list(tensors(self.model(given, training=training), tf.is_tensor))
        _restore(states)
        return Trace(tuple(one.numpy() for one in outputs), tuple(watch.calls))

    def gradients(
        self, inputs: np.ndarray, cotangents: Sequence[np.ndarray], *, training: bool = False
    ) -> Gradients:
        states = self._states()
        given = self._native(inputs)
        natives = [native for one in self.held if one.trained for native in one.natives]
        variables = {id(native): native.value for native in natives}
        with tf.GradientTape() as tape:
            tape.watch(given)
            outputs = tensors(self.model(given, training=training), tf.is_tensor)
            total = tf.add_n(
                [tf.reduce_sum(one * cot) for one, cot in zip(outputs, cotangents, strict=True)]
            )
        of = [given] if given.dtype.is_floating else []
        zero = tf.UnconnectedGradients.ZERO
        found, of_input = tape.gradient(total, (variables, of), unconnected_gradients=zero)
        moved = self.states()
        _restore(states)
        return Gradients(
            loss=total.numpy(),
            parameters=self.gathered(lambda one: tf.convert_to_tensor(found[id(one)]).numpy()),
            inputs=of_input[0].numpy() if of else None,
            states=moved,
        )

    def _native(self, inputs: np.ndarray) -> tf.Tensor:
        for layer in self.names if hasattr(self, "names") else ():
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

    def __init__(self, names: Mapping[K.Layer, str], wanted: set[str]) -> None:
        self.names, self.wanted = names, wanted
        self.calls: list[LayerCall] = []
        self._kept: dict[int, tuple[Any, np.ndarray]] = {}
        self._last: dict[int, bool] = {}
        self._before: list[Any] = []
        self._set: list[tuple[K.Layer, str, Any]] = []

    def __enter__(self) -> _Watch:
        for layer in self.names:
            if _activation(layer) is not None:
                self._replace(layer, "activation", self._activated(layer.activation))
            self._replace(layer, "call", self._watched(layer, layer.call))
        return self

    def __exit__(self, *error: object) -> None:
        for layer, attribute, value in reversed(self._set):
            if attribute == "call":
                del layer.call  # the class's own shows again
            else:
                setattr(layer, attribute, value)

    def _replace(self, layer: K.Layer, attribute: str, value: Any) -> None:
        self._set.append((layer, attribute, getattr(layer, attribute)))
        setattr(layer, attribute, value)

    def _watched(self, layer: K.Layer, call: Callable[..., Any]) -> Callable[..., Any]:
        def watched(*arguments: Any, **named: Any) -> Any:
            self._before.append(None)
            output = call(*arguments, **named)
            before = self._before.pop()
            self._note(layer, arguments[0] if arguments else None, _first(output), before)
            return output

        return watched

    def _activated(self, activation: Callable[..., Any]) -> Callable[..., Any]:
        """What a layer's activation is given is what the layer itself computes."""

        def activated(inputs: Any, *more: Any, **named: Any) -> Any:
            if self._before:
                self._before[-1] = inputs
            return activation(inputs, *more, **named)

        return activated

    def _note(self, layer: K.Layer, given: Any, output: Any, before: Any) -> None:
        name = self.names[layer]
        given = _first(given)
        lasts = _channels_last(layer, output)
        if isinstance(layer, ELEMENTWISE):
            lasts = self._last.get(id(given), False)
        for value in (output, before):
            if value is not None:
                self._last[id(value)] = lasts
        result = output if before is None else before
        self._append(name, given, result, lasts)
        if before is not None:
            self._append(f"{name}.activation", before, output, lasts)

    def _append(self, name: str, given: Any, output: Any, lasts: bool) -> None:
        one, other = self._array(given), self._array(output)
        if name not in self.wanted:
            one = other = None
        self.calls.append(LayerCall(name, _first_axis(one, lasts), _first_axis(other, lasts)))

    def _array(self, tensor: Any) -> np.ndarray | None:
        if not tf.is_tensor(tensor) or not hasattr(tensor, "numpy"):
            return None
        if id(tensor) not in self._kept:  # the tensor is kept, so that its id stays its own
            self._kept[id(tensor)] = tensor, tensor.numpy()
        return self._kept[id(tensor)][1]


def _first(value: Any) -> Any:
    """The one tensor that is taken for a layer's output or input."""
    while isinstance(value, (list, tuple)) and value:
        value = value[0]
    return value


def _first_axis(array: np.ndarray | None, lasts: bool) -> np.ndarray | None:
    """Channels brought to the first axis after the batch, where the layer has them last."""
    return np.moveaxis(array, -1, 1) if lasts and array is not None and array.ndim > 2 else array


def _channels_last(layer: K.Layer, output: Any) -> bool:
    """Whether a layer says that channels are the last axis of what it is given and gives."""
    axis = getattr(layer, "axis", None)
    if isinstance(layer, K.BatchNormalization) and isinstance(axis, int):
        return axis in (-1, len(getattr(output, "shape", ())) - 1)
    return getattr(layer, "data_format", "") == "channels_last"


def _activation(layer: K.Layer) -> Any:
    """The activation that a layer applies to its result, if it has one."""
    found = getattr(layer, "activation", None)
    if isinstance(layer, (K.Activation, K.RNN)) or not callable(found):
        return None
    return None if found is keras.activations.linear else found


def _inside(layer: K.Layer) -> list[K.Layer]:
    """Layers directly inside a layer; the cell of a recurrent one is the layer itself."""
    if type(layer) in KNOWN:
        return []
    return [
        one
        for one in layer._flatten_layers(include_self=False, recursive=False)
        if one is not layer
    ]


def _named(model: K.Layer) -> Iterator[tuple[K.Layer, str]]:
    """Every layer with its path: attributes of written classes, names in models of layers."""
    seen: set[int] = set()

    def walk(layer: K.Layer, name: str) -> Iterator[tuple[K.Layer, str]]:
        if id(layer) in seen:
            return
        seen.add(id(layer))
        yield layer, name
        for child in _inside(layer):
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
            for number, one in enumerate(value):
                if one is child:
                    return f"{attribute}.{number}"
    return str(child.name)


def _attributes(layer: K.Layer) -> dict[str, str]:
    """What a layer was made with, as its configuration has it."""
    try:
        config = layer.get_config()
    except NotImplementedError:  # a class that somebody wrote need not have one
        return {}
    return words(
        (name, value)
        for name, value in config.items()
        if name not in ("name", "trainable", "layers", "seed")
    )
