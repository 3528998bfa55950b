"""A workload's model as a functional Keras model, with its loss and optimizer."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from operator import attrgetter
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from dlb.contract import BuildRequest, Gradients, TrainableModel

from dlb import workload as W
from dlb.errors import UnsupportedError
from dlb.workload.shapes import tied_to
from dlb_tf.layers import TABLE, Given, MaskedDropout, Place, tied_linear, told
from dlb_tf.layout import Layout, layouts
from dlb_tf.optimizers import make_optimizer

#: By value of the variant ``compile``: what a function is made of that runs the network. XLA
#: compiles it anew for each size of a batch.
COMPILERS: dict[str, Callable[[Callable[..., Any]], Callable[..., Any]]] = {
    "graph": partial(tf.function, reduce_retracing=True),
    "xla": partial(tf.function, jit_compile=True),
    "no": lambda function: function,
}


class Network:
    """The workload's graph of Keras layers.

    ``model`` goes from the input to the logits; ``select`` gives models to other layers' values.
    """

    def __init__(self, model: W.Model, dtype: str, masks: Mapping[str, np.ndarray]) -> None:
        shapes, self.layouts = W.infer_shapes(model), layouts(model)
        self.source, self.last = model.input.name, model.nodes[-1].name
        self.layers: dict[str, list[keras.Layer]] = {}
        self.places: dict[str, tuple[keras.Variable, Place]] = {}
        self.values = {self.source: _input(model.input, self.layouts[self.source], dtype)}
        for node in model.wired():
            first = node.inputs[0]
            given = Given(shapes[first], self.layouts[first], self.layouts[node.name], dtype)
            entry = TABLE[type(node.layer)]
            sources = [self.values[name] for name in node.inputs]
            value: Any = sources if len(sources) > 1 else sources[0]
            if node.name in masks:
                layers = [MaskedDropout(node.layer.rate, masks[node.name], given)]
            elif tied_to(node):
                (table,) = self.layers[tied_to(node)]
                layers = tied_linear(node.layer, given, table)
            else:
                layers = entry.make(node.layer, given)
            self.layers[node.name] = layers
            for layer in layers:
                value = layer(value)
                if layer.variables:
                    self._place(node.name, layer, entry.places(node.layer, given))
            self.values[node.name] = value
        self.model = self.select([self.last])

    def _place(self, name: str, layer: keras.Layer, places: Mapping[str, Place]) -> None:
        for parameter, place in places.items():
            variable = attrgetter(place.attribute)(layer)
            if variable is not None:  # a layer without a bias, or a tied one
                self.places[f"{name}.{parameter}"] = (variable, place)

    def select(self, names: Sequence[str]) -> keras.Model:
        """The model from the input to these layers' values, in order; one alone is no list."""
        values = [self.values[name] for name in names]
        return keras.Model(self.values[self.source], values if len(values) > 1 else values[0])


class TFModel(TrainableModel):
    """A :class:`Network` with its optimizer, under a strategy: TensorFlow's default one alone."""

    def __init__(self, request: BuildRequest, *, compile: str) -> None:
        self._compiled = COMPILERS[compile]
        if compile != "graph" and request.session is not None:
            raise UnsupportedError(
                f"MultiWorkerMirroredStrategy runs steps as graphs; leave out --variant compile={compile}, "
                "or --strategy"
            )
        self.workload = request.workload
        self.batch_size = request.batch_size
        self.dtype = request.dtype
        self.masks = request.masks
        make = partial(self._make, request.weights)
        if request.session is None:
            make()
            self.strategy = tf.distribute.get_strategy()
            held = [*self.network.model.variables, *self.optimizer.variables]
            weakref.finalize(self, _release, held).atexit = False
        else:
            _, self.strategy = request.session.distribute(make)
        self.rate = request.workload.optimizer.learning_rate
        self._forwards: dict[tuple[tuple[str, ...], bool], Any] = {}
        self._step = self._compiled(
            lambda inputs, labels: self.strategy.run(self._update, args=(inputs, labels))
        )
        self._differentiate = self._compiled(self._gradients)

    def _make(self, weights: Mapping[str, np.ndarray]) -> None:
        """Create every variable, which a strategy has to see.

        The optimizer's come last: they take the memory that weights went through.
        """
        self.network = Network(self.workload.model, self.dtype, self.masks)
        self.places = self.network.places
        self.load_weights(weights)
        self.trained = {
            name: variable for name, (variable, _) in self.places.items() if variable.trainable
        }
        self.optimizer = make_optimizer(self.workload.optimizer, self.dtype)
        self.optimizer.build(list(self.trained.values()))

    def weights(self) -> dict[str, np.ndarray]:
        return {
            name: place.to_canonical(variable.numpy())
            for name, (variable, place) in self.places.items()
        }

    def load_weights(self, weights: Mapping[str, np.ndarray]) -> None:
        for name, (variable, place) in self.places.items():
            variable.assign(place.to_native(weights[name]).astype(self.dtype, copy=False))

    def optimizer_state(self) -> dict[str, np.ndarray]:
        if self.optimizer.iterations.numpy() == 0:
            return {}
        return {
            f"{name}.{slot}": self.places[name][1].to_canonical(value)
            for slot, values in self._slots().items()
            for name, value in zip(self.trained, values)
        }

    def _slots(self) -> dict[str, Iterator[np.ndarray]]:
        """Values of the optimizer's variables, in the order of those it trains."""
        if isinstance(self.workload.optimizer, W.Adam):
            kept = {"m": self.optimizer._momentums, "v": self.optimizer._velocities}
            return {slot: (each.numpy() for each in held) for slot, held in kept.items()}
        return {"velocity": (each.numpy() / -self.rate for each in self.optimizer.momentums)}

    def forward(
        self, inputs: np.ndarray, *, training: bool = False, layers: Sequence[str] = ()
    ) -> dict[str, np.ndarray]:
        names = tuple(dict.fromkeys([*layers, self.network.last]))
        states = self._states()
        values = self._forward(names, training)(self._native(inputs))
        _restore(states)
        return {
            name: self.network.layouts[name].to_canonical(value.numpy())
            for name, value in zip(names, values if len(names) > 1 else [values])
        }

    def _forward(self, names: tuple[str, ...], training: bool) -> Any:
        """The function that gives these layers' values, traced once for each shape."""
        if (names, training) not in self._forwards:
            model = self.network.select(names)
            self._forwards[names, training] = self._compiled(
                lambda inputs: model(inputs, training=training)
            )
        return self._forwards[names, training]

    def gradients(self, inputs: np.ndarray, labels: np.ndarray) -> Gradients:
        states = self._states()
        given = self._native(inputs)
        loss, parameters, of_inputs = self._differentiate(given, tf.constant(labels))
        _restore(states)
        layout = self.network.layouts[self.network.source]
        return Gradients(
            loss=loss.numpy(),
            parameters={
                name: self.places[name][1].to_canonical(gradient.numpy())
                for name, gradient in parameters.items()
            },
            inputs=None if of_inputs is None else layout.to_canonical(of_inputs.numpy()),
        )

    def _gradients(self, inputs: tf.Tensor, labels: tf.Tensor) -> Any:
        """Loss, gradients by name, and of the inputs unless they are integers."""
        with tf.GradientTape() as tape:
            tape.watch(inputs)
            loss = mean_loss(self.network.model(inputs, training=True), labels, self.workload.loss)
        of = [inputs] if inputs.dtype.is_floating else []
        variables = {name: variable.value for name, variable in self.trained.items()}
        parameters, found = tape.gradient(loss, (variables, of))
        dense = {name: tf.convert_to_tensor(gradient) for name, gradient in parameters.items()}
        return loss, dense, found[0] if found else None

    def set_learning_rate(self, learning_rate: float) -> None:
        if isinstance(self.workload.optimizer, W.SGD) and learning_rate != self.rate:
            # Keras' velocity is -rate * v.
            if self.optimizer.momentums and not learning_rate:
                raise UnsupportedError("Keras loses the velocity at a learning rate of 0; raise it")
            for velocity in self.optimizer.momentums:
                velocity.assign(velocity.numpy() * (learning_rate / self.rate))
        self.optimizer.learning_rate = np.float64(learning_rate)
        self.rate = learning_rate

    def train_step(self, inputs: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
        return self._step(inputs, labels)

    def _update(self, inputs: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
        """One worker's step; Keras' optimizer sums gradients over the workers."""
        workers = self.strategy.num_replicas_in_sync
        variables = list(self.trained.values())
        with tf.GradientTape() as tape:
            loss = mean_loss(self.network.model(inputs, training=True), labels, self.workload.loss)
            share = loss / workers if workers > 1 else loss
        gradients = tape.gradient(share, [variable.value for variable in variables])
        if self.workload.optimizer.clip_norm:
            gradients = self._clip(gradients)
        decay = self.workload.optimizer.weight_decay / workers
        if decay:
            gradients = [g + decay * variable.value for g, variable in zip(gradients, variables)]
        self.optimizer.apply(gradients, variables)
        return loss

    def _clip(self, gradients: list[Any]) -> list[tf.Tensor]:
        """A worker's share of the sum of all workers' gradients, brought down to a norm.

        Of slices of an embedding's gradient the norm is another one: those of one row have to be
        summed before.
        """
        dense = [tf.convert_to_tensor(gradient) for gradient in gradients]
        workers = self.strategy.num_replicas_in_sync
        if workers > 1:
            dense = tf.distribute.get_replica_context().all_reduce("sum", dense)
        clipped, _ = tf.clip_by_global_norm(dense, self.workload.optimizer.clip_norm)
        return [gradient / workers for gradient in clipped] if workers > 1 else clipped

    def native_layers(self) -> dict[str, str]:
        return {
            name: ", ".join(told(layer) for layer in layers)
            for name, layers in self.network.layers.items()
        }

    def _native(self, inputs: np.ndarray) -> tf.Tensor:
        native = self.network.layouts[self.network.source].to_native(inputs)
        return tf.constant(native, self.dtype if native.dtype.kind == "f" else None)

    def _states(self) -> list[tuple[keras.Variable, np.ndarray]]:
        """Variables that a pass in training mode moves, with their values."""
        moved = self.network.model.non_trainable_weights  # not the seeds of dropout
        return [(variable, variable.numpy()) for variable in moved]


def mean_loss(logits: tf.Tensor, labels: tf.Tensor, loss: W.Loss) -> tf.Tensor:
    """Mean softmax cross-entropy; logits [N, C], or [N, T, C] with labels [N, T]."""
    smoothing, classes = loss.label_smoothing, logits.shape[-1]
    if not smoothing:
        return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits))
    other = smoothing / classes
    shares = tf.one_hot(labels, classes, 1 - smoothing + other, other, dtype=logits.dtype)
    return tf.reduce_mean(tf.nn.softmax_cross_entropy_with_logits(shares, logits))


#: Variables of models that were dropped, whose memory is still to be given back.
_dropped: list[keras.Variable] = []


def _release(variables: Sequence[keras.Variable]) -> None:
    """Give back the memory of variables that nobody needs any more.

    TensorFlow never forgets the graph of a step, and with it all variables in it: Keras sums
    gradients over replicas, and graphs register that operation's gradient for good.
    """
    _dropped.extend(variables)
    # Python may collect a model at any time: a function's graph that is being made is left for this,
    # another graph, as exporters make them, cannot be, and then the next model's end will do.
    with tf.init_scope():
        while _dropped and tf.executing_eagerly():
            variable = _dropped.pop()
            tf.raw_ops.AssignVariableOp(
                resource=variable.value.handle,
                value=tf.zeros([0], variable.value.dtype),
                validate_shape=False,
            )


def _input(described: W.Input, layout: Layout, dtype: str) -> Any:
    shape = layout.to_native(np.empty((1, *described.shape), bool)).shape[1:]
    return keras.Input(shape, dtype=dtype if described.kind == "real" else "int64", name="input")


def _restore(states: list[tuple[keras.Variable, np.ndarray]]) -> None:
    for variable, kept in states:
        variable.assign(kept)
