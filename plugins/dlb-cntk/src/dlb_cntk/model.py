"""A workload's model as CNTK functions, with its loss, its learner and its trainer."""

from contextlib import contextmanager
from typing import Any, Dict, Iterator, List, Mapping, Sequence, Tuple

import cntk as C
import numpy as np

from dlb_cntk.data import value
from dlb_cntk.optimizers import make_learner
from dlb_cntk.registry import LAYERS, Parameters, describe
from dlb_worker.contract import BuildRequest, Gradients
from dlb_worker.errors import UnsupportedError
from dlb_worker.layers import native_parameters
from dlb_worker.model import Loss, Node
from dlb_worker.native import BuiltModel

Array = np.ndarray


class CntkModel(BuiltModel):
    """One graph for both modes: a pass of CNTK is one of training where it keeps values for a
    backward pass.

    Attributes:
        source, labels: the graph's inputs, of real numbers both: CNTK has no others.
        values: the variable of each layer, by name.
        own: the parameters of each layer, by name.
    """

    def __init__(self, request: BuildRequest) -> None:
        model = request.workload.model
        self.workload, self.dtype = request.workload, request.dtype
        self.type = np.dtype(request.dtype).type
        self.masks = dict(request.masks)
        self.factors: Dict[str, Any] = {}
        self.source = C.input_variable(model.input.shape, dtype=self.type, name=model.input.name)
        self.values = {model.input.name: self.source}
        self.own: Dict[str, Parameters] = {}
        for node in model.nodes:
            self.own[node.name] = Parameters(self.type)
            self.values[node.name] = self._build(node).output
        self.norms = [node for node in model.nodes if node.kind == "batch_norm"]
        self.parameters = native_parameters(model, LAYERS, lambda node: self.own[node.name])
        self.load_weights(request.weights)
        self.logits = self.values[model.last]
        self.labels = C.input_variable(self.logits.shape[:-1], dtype=self.type, name="labels")
        self.loss = sample_losses(self.logits, self.labels, request.workload.loss).output
        self.trained = self.trained_natives()
        optimizer = request.workload.optimizer
        undecayed = self.undecayed_natives(optimizer)
        self.learner = make_learner(optimizer, self.trained, undecayed, self.type)
        learner = self.learner.native
        #: Processes like this one, by which its samples are all samples of a step.
        self.processes = 1.0
        if request.session is not None:
            learner = request.session.distribute(learner)
            self.processes = request.session.workers / request.share
        self.trainer = C.Trainer(
            C.combine([self.logits]), (C.combine([self.loss]), None), [learner]
        )
        self._differentiable: Any = None
        self._functions: Dict[Tuple[str, ...], Any] = {}

    def _build(self, node: Node) -> Any:
        inputs = [self.values[name] for name in node.inputs]
        if node.name in self.masks:
            self.factors[node.name] = C.input_variable(node.shape, dtype=self.type)
            return inputs[0] * self.factors[node.name]
        if node.tied_to:
            inputs.append(self.own[node.tied_to].weight)  # type: ignore[attr-defined]
        return LAYERS[node.kind].build(node, self.own[node.name], *inputs)

    def read(self, native: Any) -> Array:
        return np.array(native.value)

    def write(self, native: Any, array: Array) -> None:
        native.value = array

    def read_batch(self, inputs: Any, labels: Any) -> Tuple[Array, Array]:
        kind = "int64" if self.workload.model.input.kind == "index" else self.dtype
        return inputs.data.asarray().astype(kind), labels.data.asarray().astype("int64")

    def slots(self, native: Any) -> Mapping[str, Array]:
        return self.learner.slots(native)

    def forward(
        self, inputs: Array, *, training: bool = False, layers: Sequence[str] = ()
    ) -> Dict[str, Array]:
        names = tuple(dict.fromkeys(list(layers) + [self.workload.model.last]))
        outputs = [self.values[name] for name in names]
        # Kept, since each is compiled, and draws for dropout from the start of its own sequence.
        function = self._functions.setdefault(names, C.combine(outputs))
        arguments = self._factors(len(inputs), training)
        arguments[self.source] = self._value(inputs)
        with self.unmoved_states():
            _, values = function.forward(arguments, outputs, [self.logits] if training else None)
        return {name: np.array(values[self.values[name]]) for name in names}

    def gradients(self, inputs: Array, labels: Array) -> Gradients:
        function, source = self._with_input_gradient()
        arguments = self._factors(len(inputs), training=True)
        arguments.update({source: self._value(inputs), self.labels: self._value(labels)})
        wrt = self.trained + ([source] if source.needs_gradient else [])
        with self.unmoved_states():
            sums, losses = function.grad(arguments, wrt=wrt, outputs=[function.output])
        if len(wrt) == 1:  # CNTK then returns no dictionary
            sums = {wrt[0]: sums}
        # Those of a sum over the batch.
        means = {variable.uid: array / len(inputs) for variable, array in sums.items()}
        return Gradients(
            loss=np.mean(losses),
            parameters=self.gather(lambda native: means[native.uid]),
            inputs=means.get(source.uid),
        )

    def set_learning_rate(self, learning_rate: float) -> None:
        self.learner.set_rate(learning_rate)

    def train_step(self, inputs: Any, labels: Any) -> float:
        samples = inputs.shape[0]
        self.learner.set_samples(round(samples * self.processes))
        before = self._states()
        arguments = self._factors(samples, training=True)
        arguments.update({self.source: inputs, self.labels: labels})
        self.trainer.train_minibatch(arguments)
        self._average(before, samples)
        return self.trainer.previous_minibatch_loss_average

    def step_phases(self, inputs: Any, labels: Any) -> Iterator[Tuple[str, Any]]:
        raise UnsupportedError("a step is one call of CNTK's trainer")

    def describe_layers(self) -> Dict[str, str]:
        return {
            node.name: describe(self.values[node.name], [self.values[name] for name in node.inputs])
            for node in self.workload.model.nodes
        }

    def _value(self, array: Array) -> Any:
        return value(np.asarray(array, self.type))

    def _factors(self, samples: int, training: bool) -> Dict[Any, Any]:
        """What dropout layers with masks multiply by."""
        arguments = {}
        for node in self.workload.model.nodes:
            if node.name in self.factors:
                mask = self.masks[node.name][:samples].astype(self.type)
                factor = mask / (1 - node.rate) if training else np.ones_like(mask)
                arguments[self.factors[node.name]] = value(factor)
        return arguments

    def _with_input_gradient(self) -> Tuple[Any, Any]:
        """The loss as a function of an input that has a gradient, which costs time, and that input."""
        if self.workload.model.input.kind == "index":
            return C.combine([self.loss]), self.source
        if self._differentiable is None:
            source = C.input_variable(self.source.shape, dtype=self.type, needs_gradient=True)
            kept = {each: each for each in [self.labels] + list(self.factors.values())}
            kept[self.source] = source
            loss = C.combine([self.loss]).clone(C.CloneMethod.share, kept)
            self._differentiable = (loss, source)
        return self._differentiable

    def _states(self) -> Dict[Any, Array]:
        """What a pass in training mode moves, with its values."""
        owners: List[Any] = [self.own[node.name] for node in self.norms]
        natives = [native for own in owners for native in (own.mean, own.variance, own.count)]
        return {native: self.read(native) for native in natives}

    @contextmanager
    def unmoved_states(self) -> Iterator[None]:
        """Give states their values back, which a pass in training mode moves."""
        states = self._states()
        try:
            yield
        finally:
            for native, before in states.items():
                native.value = before

    def _average(self, before: Mapping[Any, Array], samples: int) -> None:
        """Running values from those before and those of the last batch: see the registry."""
        for node in self.norms:
            own = self.own[node.name]
            count = samples * int(np.prod(node.input_shape[1:]))
            for native, factor in ((own.mean, 1.0), (own.variance, (count - 1) / count)):  # type: ignore[attr-defined]
                batch = native.value * factor
                moved = node.momentum * before[native] + (1 - node.momentum) * batch
                native.value = moved.astype(self.type)


def sample_losses(logits: Any, labels: Any, loss: Loss) -> Any:
    """Softmax cross-entropy of each sample, averaged over its time steps: logits [C] or [T, C]."""
    axis = len(logits.shape) - 1
    target = C.one_hot(labels, logits.shape[-1])
    losses = C.cross_entropy_with_softmax(logits, target, axis=axis)
    if loss.label_smoothing:
        # -mean(log_softmax) is the logarithm of the sum less the mean of the logits.
        even = C.reduce_log_sum_exp(logits, axis=axis) - C.reduce_mean(logits, axis=axis)
        losses = losses * (1 - loss.label_smoothing) + even * loss.label_smoothing
    return C.reduce_mean(losses, axis=0) if axis else losses
