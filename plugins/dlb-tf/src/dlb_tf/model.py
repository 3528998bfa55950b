"""A workload's model as a functional Keras model, with its loss and optimizer."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from operator import attrgetter
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf

from dlb_tf.framework import default_dtype
from dlb_tf.layout import layouts
from dlb_tf.losses import mean_loss
from dlb_tf.modules import MaskedDropout, TiedDense, description
from dlb_tf.optimizers import make_optimizer, scaled_velocities, state_of
from dlb_tf.registry import LAYERS, mappings_of
from dlb_worker.contract import BuildRequest, Gradients
from dlb_worker.errors import UnsupportedError
from dlb_worker.model import Model, Node
from dlb_worker.native import BuiltModel, NativeModel
from dlb_worker.parameters import NativeParameter
from dlb_worker.parts import in_parts, shares

#: The gradient of what only a rounding reads, for which a tape has none.
ZEROS = tf.UnconnectedGradients.ZERO
#: By value of the variant ``compile``: what a function is made of that runs the network. XLA
#: compiles it anew for each size of a batch. No function branches on a tensor, so AutoGraph rewrites none.
COMPILERS: dict[str, Callable[[Callable[..., Any]], Callable[..., Any]]] = {
    "graph": partial(tf.function, autograph=False, reduce_retracing=True),
    "xla": partial(tf.function, autograph=False, jit_compile=True),
    "no": lambda function: function,
}


class Network:
    """The workload's graph of Keras layers.

    ``model`` goes from the input to the logits; ``select`` returns models to other layers' values.
    """

    def __init__(
        self, model: Model, dtype: str, masks: Mapping[str, np.ndarray], policy: str = ""
    ) -> None:
        self.source, self.layouts = model.input.name, layouts(model)
        axes = self.layouts[self.source].axes(len(model.input.shape))
        self.input = keras.Input(
            [model.input.shape[axis - 1] for axis in axes],
            dtype=dtype if model.input.kind == "real" else "int64",
            name="input",
        )
        self.layers: dict[str, list[keras.Layer]] = {}
        self.values = {self.source: self.input}
        with default_dtype(dtype, policy):
            for node in model.nodes:
                sources = [self.values[name] for name in node.inputs]
                value = sources if len(sources) > 1 else sources[0]
                self.layers[node.name] = self._build(node, masks)
                for layer in self.layers[node.name]:
                    value = layer(value)
                self.values[node.name] = value
        self.model = self.select([model.last])

    def _build(self, node: Node, masks: Mapping[str, np.ndarray]) -> list[keras.Layer]:
        if node.name in masks:
            mask = self.layouts[node.name].to_native(masks[node.name])
            return [MaskedDropout(node.rate, mask)]
        if node.weights_of:
            return self.layers[node.weights_of]
        if node.tied_to:
            return [TiedDense(self.layers[node.tied_to][-1], node.bias)]
        return LAYERS[node.kind].build(node, self.layouts)

    def parameters(self, model: Model) -> Iterator[NativeParameter]:
        for node in model.nodes:
            if node.weights_of:
                continue
            for role, parameter in node.parameters.items():
                mapping = mappings_of(node, self.layouts)[role]
                variable = attrgetter(mapping.attribute)(self.layers[node.name][-1])
                yield NativeParameter(
                    parameter.name, node.name, role, parameter.trained, (variable,), mapping
                )

    def select(self, names: Sequence[str]) -> keras.Model:
        """The model from the input to these layers' values, in order; a single one is no list."""
        values = [self.values[name] for name in names]
        return keras.Model(self.input, values if len(values) > 1 else values[0])


class KerasParameters(NativeModel):
    """A model whose parameters and states are Keras variables."""

    def read(self, native: keras.Variable) -> np.ndarray:
        return native.numpy()

    def write(self, native: keras.Variable, array: np.ndarray) -> None:
        native.assign(array)

    def native(self, inputs: np.ndarray) -> tf.Tensor:
        return tf.constant(inputs, self.dtype if inputs.dtype.kind == "f" else None)

    @contextmanager
    def unmoved_states(self, model: keras.Layer) -> Iterator[None]:
        """Give a model's states their values back, which a pass in training mode moves."""
        states = [(variable, variable.numpy()) for variable in model.non_trainable_weights]
        try:
            yield
        finally:
            for variable, before in states:
                variable.assign(before)


class Made(NamedTuple):
    """What holds variables, made under a strategy's scope.

    Attributes:
        trained: the variables that are trained.
        decays: the weight decay of each, which is added to its gradient.
    """

    optimizer: keras.Optimizer
    trained: Sequence[keras.Variable]
    decays: Sequence[float]


class TFModel(KerasParameters, BuiltModel):
    """A :class:`Network` with its optimizer, under a strategy: TensorFlow's default one alone.

    With ``precision`` bfloat16, its layers have Keras's policy ``mixed_bfloat16``: weights, their gradients and
    the optimizer stay in float32 (https://keras.io/api/mixed_precision/).
    """

    def __init__(self, request: BuildRequest, *, compile: str, precision: str = "full") -> None:
        if precision == "bfloat16" and request.dtype != "float32":
            raise UnsupportedError(
                f"precision=bfloat16 keeps weights in float32, not {request.dtype}"
            )
        self.policy = "mixed_bfloat16" if precision == "bfloat16" else ""
        self._compiled = COMPILERS[compile]
        if compile != "graph" and request.session is not None:
            raise UnsupportedError(
                f"MultiWorkerMirroredStrategy runs steps as graphs; leave out --variant compile={compile}, "
                "or --strategy"
            )
        self.workload = request.workload
        self.batch_size = request.batch_size
        self.share = request.share
        self.dtype = request.dtype
        #: How many samples of a step each replica of this process has.
        self.sizes = shares(
            request.batch_size,
            getattr(request.session, "replicas", 1),
            request.workload.optimizer.accumulate,
        )
        make = partial(self._make, request)
        if request.session is None:
            make()
            self.strategy = tf.distribute.get_strategy()
            # TensorFlow's variables, as Keras' give rounded copies inside a layer of a rounded network.
            variables = [*self.network.model.variables, *self.optimizer.variables]
            kept = [variable.value for variable in variables]
            weakref.finalize(self, _release, kept).atexit = False
        else:
            _, self.strategy = request.session.distribute(make)
        #: Whether this process's batch is divided among replicas that take a step together.
        self.divided = self.strategy.num_replicas_in_sync == len(self.sizes) > 1
        self.rate = request.workload.optimizer.learning_rate
        self.parts = request.workload.optimizer.accumulate
        self._forwards: dict[tuple[tuple[str, ...], bool], Any] = {}
        self._step = self._compiled(
            lambda inputs, labels: self.strategy.run(self._update, args=(inputs, labels))
        )
        self._differentiate = self._compiled(self._gradients)

    def _make(self, request: BuildRequest) -> Made:
        """Create every variable, which a strategy has to see.

        The optimizer's come last: they take the memory that weights went through.
        """
        self.network = Network(request.workload.model, self.dtype, request.masks, self.policy)
        strategy = tf.distribute.get_strategy()
        together = strategy.num_replicas_in_sync == len(self.sizes) > 1
        for layer in self.network.model.layers if together else ():
            if isinstance(layer, keras.layers.BatchNormalization):
                if isinstance(strategy, tf.distribute.experimental.CentralStorageStrategy):
                    raise UnsupportedError(
                        "CentralStorageStrategy cannot train Keras's BatchNormalization, which does not say "
                        "how replicas' running statistics become one; take --strategy mirrored, or one worker"
                    )
                layer.synchronized = True
            if isinstance(layer, MaskedDropout):
                layer.firsts = np.cumsum((0, *self.sizes[:-1])).tolist()
        if request.session is not None:
            # A strategy gives a new variable the value that worker 0 has; each has masks of its own.
            self.load_masks(request.masks)
        self.parameters = list(self.network.parameters(request.workload.model))
        self.load_weights(request.weights)
        self.trained = self.trained_natives()
        undecayed = self.undecayed_natives(request.workload.optimizer)
        self.undecayed = set(map(id, undecayed))
        self.optimizer = make_optimizer(request.workload.optimizer, self.dtype, undecayed)
        self.optimizer.build(self.trained)
        described = request.workload.optimizer
        decay = 0.0 if described.kind == "adamw" else described.weight_decay
        decays = [0.0 if id(each) in self.undecayed else decay for each in self.trained]
        return Made(self.optimizer, self.trained, decays)

    def native(self, inputs: np.ndarray) -> tf.Tensor:
        return super().native(self.network.layouts[self.network.source].to_native(inputs))

    def real(self, value: np.ndarray) -> np.ndarray:
        """A layer's value in the model's dtype; in mixed precision it has another."""
        return value.astype(self.dtype) if self.policy else value

    def unmixed(self) -> keras.Model:
        """The network with the policy of its dtype, as it is exported: its weights, or copies of them."""
        if not self.policy:
            return self.network.model
        plain = Network(self.workload.model, self.dtype, {}).model
        for variable, own in zip(plain.variables, self.network.model.variables, strict=True):
            variable.assign(own)
        return plain

    def read_batch(self, inputs: tf.Tensor, labels: tf.Tensor) -> tuple[np.ndarray, np.ndarray]:
        layout = self.network.layouts[self.network.source]
        if self.divided:
            inputs, labels = (self._own(self._divided(batch)) for batch in (inputs, labels))
        return layout.to_canonical(inputs.numpy()), labels.numpy()

    def read(self, native: keras.Variable) -> np.ndarray:
        return self._own(native.value).numpy() if self.replica else super().read(native)

    def _own(self, distributed: Any) -> Any:
        """The value of the replica that is read; replicas may have one in common."""
        values = self.strategy.experimental_local_results(distributed)
        return values[self.replica % len(values)]

    def slots(self, native: keras.Variable) -> dict[str, np.ndarray]:
        optimizer, index = self.optimizer, self.optimizer._get_variable_index(native)
        if optimizer.iterations.numpy() == 0:
            return {}
        return state_of(optimizer, self.workload.optimizer, index, self.rate, self.read)

    def forward(
        self, inputs: np.ndarray, *, training: bool = False, layers: Sequence[str] = ()
    ) -> dict[str, np.ndarray]:
        names = tuple(dict.fromkeys([*layers, self.workload.model.last]))
        with self.unmoved_states(self.network.model):
            values = self._forward(names, training)(self.native(inputs))
        return {
            name: self.network.layouts[name].to_canonical(self.real(value.numpy()))
            for name, value in zip(names, values if len(names) > 1 else [values])
        }

    def _forward(self, names: tuple[str, ...], training: bool) -> Any:
        """The function that returns these layers' values, traced once for each shape."""
        if (names, training) not in self._forwards:
            model = self.network.select(names)
            self._forwards[names, training] = self._compiled(
                lambda inputs: model(inputs, training=training)
            )
        return self._forwards[names, training]

    def gradients(self, inputs: np.ndarray, labels: np.ndarray) -> Gradients:
        with self.unmoved_states(self.network.model):
            results = self._differentiate(self.native(inputs), tf.constant(labels))
        loss, gradients, of_inputs = results
        native = dict(zip(map(id, self.trained), gradients))
        layout = self.network.layouts[self.network.source]
        return Gradients(
            loss=loss.numpy(),
            parameters=self.gather(lambda variable: native[id(variable)].numpy()),
            inputs=None if of_inputs is None else layout.to_canonical(of_inputs.numpy()),
        )

    def _gradients(self, inputs: tf.Tensor, labels: tf.Tensor) -> Any:
        """Loss, gradients of what is trained, and of the inputs unless they are integers."""
        with tf.GradientTape() as tape:
            tape.watch(inputs)
            loss = self._loss(inputs, labels)
        sources = [inputs] if inputs.dtype.is_floating else []
        variables = [variable.value for variable in self.trained]
        gradients, of_inputs = tape.gradient(
            loss, (variables, sources), unconnected_gradients=ZEROS
        )
        dense = [tf.convert_to_tensor(gradient) for gradient in gradients]
        return loss, dense, of_inputs[0] if of_inputs else None

    def _loss(self, inputs: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
        """The mean loss; targets that are maps are turned to lie as the outputs do."""
        model, loss = self.workload.model, self.workload.loss
        outputs = self.network.model(inputs, training=True)
        if not loss.of_classes:
            axes = self.network.layouts[model.last].axes(len(outputs.shape) - 1)
            if list(axes) != sorted(axes):
                labels = tf.transpose(labels, [0, *axes])
        return mean_loss(outputs, labels, loss)

    def set_learning_rate(self, learning_rate: float) -> None:
        velocities, _ = scaled_velocities(self.optimizer, self.workload.optimizer)
        if learning_rate != self.rate:
            if velocities and not learning_rate:
                raise UnsupportedError("Keras loses the velocity at a learning rate of 0; raise it")
            for velocity in velocities:
                velocity.assign(velocity.numpy() * (learning_rate / self.rate))
        self.optimizer.learning_rate = np.float64(learning_rate)
        self.rate = learning_rate

    def train_step(self, inputs: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
        if not self.divided:
            return self._step(inputs, labels)
        loss = self._step(self._divided(inputs), self._divided(labels))
        losses = self.strategy.experimental_local_results(loss)
        return sum(each * size for each, size in zip(losses, self.sizes)) / self.batch_size

    def _divided(self, batch: tf.Tensor) -> Any:
        """Each replica's share of a batch."""
        parts = tf.split(batch, self.sizes)
        return self.strategy.experimental_distribute_values_from_function(
            lambda context: parts[context.replica_id_in_sync_group]
        )

    def step_phases(self, inputs: tf.Tensor, labels: tf.Tensor) -> Iterator[tuple[str, tf.Tensor]]:
        if self._compiled is not COMPILERS["no"]:
            raise UnsupportedError("a step is one tf.function")
        losses: list[tf.Tensor] = []
        gradients: list[Any] = []
        for part, targets in in_parts(self.parts, inputs, labels):
            tape, loss, share = self._record(part, targets)
            yield "forward", loss
            found = self._backward(tape, share)
            gradients = [a + b for a, b in zip(gradients, found)] if gradients else found
            yield "backward", loss
            losses.append(loss)
        self._apply(gradients)
        yield "update", tf.add_n(losses) / self.parts if losses[1:] else losses[0]

    def _update(self, inputs: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
        """One worker's step; Keras's optimizer sums gradients over the workers."""
        if self.parts > 1:
            return self._update_in_parts(inputs, labels)
        tape, loss, share = self._record(inputs, labels)
        self._apply(self._backward(tape, share))
        return loss

    def _update_in_parts(self, inputs: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
        """The same with the batch in parts: a loop of the graph, which would else compute them side by side."""
        parts = [
            tf.reshape(batch, [self.parts, batch.shape[0] // self.parts, *batch.shape[1:]])
            for batch in (inputs, labels)
        ]

        def add_part(part: tf.Tensor, total: tf.Tensor, sums: list[tf.Tensor]) -> Any:
            tape, loss, share = self._record(*(batch[part] for batch in parts))
            gradients = zip(sums, self._backward(tape, share))
            return part + 1, total + loss, [a + tf.convert_to_tensor(b) for a, b in gradients]

        none = tf.constant(0, self.dtype), [tf.zeros_like(each.value) for each in self.trained]
        _, total, gradients = tf.while_loop(
            lambda part, *_: part < self.parts,
            add_part,
            (tf.constant(0), *none),
            parallel_iterations=1,
        )
        self._apply(gradients)
        return total / self.parts

    def _record(
        self, inputs: tf.Tensor, labels: tf.Tensor
    ) -> tuple[tf.GradientTape, tf.Tensor, tf.Tensor]:
        """What recorded the pass, the mean loss, and the share of it in that of all workers' parts."""
        whole = self.strategy.num_replicas_in_sync * self.parts / self.share
        if self.divided:
            whole = self.batch_size / inputs.shape[0]
        with tf.GradientTape() as tape:
            loss = self._loss(inputs, labels)
            share = loss / whole if whole != 1 else loss
        return tape, loss, share

    def _backward(self, tape: tf.GradientTape, share: tf.Tensor) -> list[Any]:
        variables = [variable.value for variable in self.trained]
        gradients: list[Any] = tape.gradient(share, variables, unconnected_gradients=ZEROS)
        return gradients

    def _apply(self, gradients: list[Any]) -> None:
        """Clip, decay and move the weights."""
        optimizer = self.workload.optimizer
        if optimizer.clip_norm or optimizer.clip_value or optimizer.clip_variable_norm:
            gradients = self._clip(gradients)
        decay = optimizer.weight_decay / self.strategy.num_replicas_in_sync
        if decay and optimizer.kind != "adamw":
            gradients = [
                g if id(variable) in self.undecayed else g + decay * variable.value
                for g, variable in zip(gradients, self.trained)
            ]
        self.optimizer.apply(gradients, self.trained)

    def _clip(self, gradients: list[Any]) -> list[tf.Tensor]:
        """A worker's part of the sum of all workers' gradients, brought down to a norm or limited.

        Slices of an embedding's gradient that fall on one row have to be summed before.
        """
        dense = [tf.convert_to_tensor(gradient) for gradient in gradients]
        workers = self.strategy.num_replicas_in_sync
        if workers > 1:
            dense = tf.distribute.get_replica_context().all_reduce("sum", dense)
        optimizer = self.workload.optimizer
        if limit := optimizer.clip_value:
            clipped = [tf.clip_by_value(gradient, -limit, limit) for gradient in dense]
        elif limit := optimizer.clip_variable_norm:
            clipped = [tf.clip_by_norm(gradient, limit) for gradient in dense]
        else:
            clipped, _ = tf.clip_by_global_norm(dense, optimizer.clip_norm)
        return [gradient / workers for gradient in clipped] if workers > 1 else clipped

    def load_masks(self, masks: Mapping[str, np.ndarray]) -> None:
        for name, mask in masks.items():
            (layer,) = self.network.layers[name]
            layer.mask.assign(self.network.layouts[name].to_native(mask))

    def seed_dropout(self, seed: int) -> None:
        for number, layer in enumerate(self.network.model.layers):
            if isinstance(layer, keras.layers.Dropout):
                layer.seed_generator.state.assign([seed, number])

    def describe_layers(self) -> dict[str, str]:
        return {
            name: ", ".join(map(description, layers))
            for name, layers in self.network.layers.items()
        }


#: Variables of models that were dropped, whose memory is still to be freed.
_dropped: list[tf.Variable] = []


def build(request: BuildRequest, **variant: str) -> TFModel:
    """The model; a session whose strategy takes steps otherwise has its own class of it."""
    model: TFModel = getattr(request.session, "model", TFModel)(request, **variant)
    return model


def _release(variables: Sequence[tf.Variable]) -> None:
    """Free the memory of variables that nobody needs any more.

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
                resource=variable.handle,
                value=tf.zeros([0], variable.dtype),
                validate_shape=False,
            )
