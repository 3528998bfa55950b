"""A workload's model: shared variables, and functions that are compiled when they are first used."""

import gc
import json
import weakref
from functools import lru_cache
from types import SimpleNamespace
from typing import Any, Dict, Iterator, List, Mapping, Sequence, Tuple

import numpy as np
import theano
import theano.tensor as T
from theano.gof.graph import io_toposort
from theano.sandbox.rng_mrg import MRG_RandomStreams

from dlb_theano.registry import LAYERS, Pass
from dlb_worker.contract import BuildRequest, Gradients
from dlb_worker.errors import UnsupportedError
from dlb_worker.layers import native_parameters
from dlb_worker.model import read_workload
from dlb_worker.native import BuiltModel
from dlb_worker.updates import slots, updated

Array = np.ndarray


class Program:
    """The graph of a workload and its compiled functions, shared by all models of that workload.

    Compiling takes much longer than running a model once. So there is one set of shared variables,
    and the model that is used puts its arrays into them; nothing is copied.

    Args:
        document: the workload, as JSON.
        masked: the dropout layers that have masks.
    """

    def __init__(self, document: str, dtype: str, masked: Tuple[str, ...], seed: int) -> None:
        self.workload, self.dtype = read_workload(json.loads(document)), dtype
        self.seed = seed % (2**31 - 1) + 1
        self.initial: Dict[Any, Array] = {}
        self.functions: Dict[Any, Any] = {}
        self.streams: List[Any] = []
        self.held: Dict[str, SimpleNamespace] = {}
        self.owner: Any = lambda: None
        model = self.workload.model
        for node in model.nodes:
            own = {role: self._shared(len(each.shape)) for role, each in node.parameters.items()}
            if node.tied_to:
                own["weight"] = self.held[node.tied_to].weight
            if node.name in masked:
                own["mask"] = self._shared(1 + len(node.shape))
            self.held[node.name] = SimpleNamespace(**own)
        self.parameters = native_parameters(model, LAYERS, lambda node: self.held[node.name])
        self.slots = {
            each.natives[0]: {
                name: self._shared(each.natives[0].ndim) for name in slots(self.workload.optimizer)
            }
            for each in self.parameters
            if each.trained
        }
        kind = dtype if model.input.kind == "real" else "int64"
        self.input = T.TensorType(kind, (False,) * (1 + len(model.input.shape)))()
        self.labels = T.TensorType("int64", (False,) * len(model.nodes[-1].shape))()
        self.rate, self.step = T.scalar(dtype=dtype), T.scalar(dtype="float64")

    def _shared(self, rank: int) -> Any:
        variable = theano.shared(np.empty((0,) * rank, self.dtype))
        self.initial[variable] = variable.get_value()
        return variable

    def attach(self, model: "TheanoModel") -> None:
        """Let the shared variables hold a model's arrays."""
        owner = self.owner()
        if owner is model:
            return
        if owner is not None:
            owner.arrays = {each: each.get_value(borrow=True) for each in self.initial}
        self._hold(model.arrays)
        self.owner = weakref.ref(model, self._release)

    def _hold(self, arrays: Dict[Any, Array]) -> None:
        for variable, initial in self.initial.items():
            array = arrays.pop(variable, None)
            variable.set_value(initial.copy() if array is None else array, borrow=True)

    def _release(self, owner: Any) -> None:
        """Let a model's memory go with it."""
        if owner is self.owner:
            self._hold({})

    def function(self, kind: str, training: bool = True, layers: Tuple[str, ...] = ()) -> Any:
        """What computes the ``values`` of layers, the ``gradients`` or a ``step``."""
        key = (kind, training, layers)
        if key not in self.functions:
            # Numbers in expressions take this type; they would turn float32 into float64.
            with theano.change_flags(floatX=self.dtype):
                self.functions[key] = self._compile(*key)
            # A function of ResNet-56 is more than a million objects. Python's collector looks at all
            # of them for seconds, in which the worker cannot say that it is alive.
            gc.freeze()
        return self.functions[key]

    def seed_dropout(self, seed: int) -> None:
        """Let every function draw from a seed, those too that are compiled later."""
        self.seed = seed % (2**31 - 1) + 1
        for streams in self.streams:
            streams.seed(self.seed)

    def values(self, run: Pass) -> Dict[str, Any]:
        """The symbolic value of every layer."""
        values = {self.workload.model.input.name: self.input}
        for node in self.workload.model.nodes:
            inputs = [values[name] for name in node.inputs]
            values[node.name] = LAYERS[node.kind].build(node, self.held[node.name], run, *inputs)
        return values

    def _compile(self, kind: str, training: bool, layers: Tuple[str, ...]) -> Any:
        streams = MRG_RandomStreams(self.seed)
        self.streams.append(streams)
        run = Pass(training, streams, [])
        values = self.values(run)
        inputs, outputs, updates = [self.input], [values[name] for name in layers], []
        if kind != "values":
            loss, sources = self._loss(values[self.workload.model.last]), list(self.slots)
            if kind == "gradients" and self.input.dtype == self.dtype:
                sources.append(self.input)
            gradients = T.grad(loss, sources, disconnected_inputs="ignore")
            inputs.append(self.labels)
            outputs = [loss] + gradients * (kind == "gradients")
        if kind == "step":
            inputs += [self.rate, self.step]
            updates = run.updates + self._updates(gradients)
        for state, new, *_ in run.random.state_updates:
            self.initial[state] = state.get_value()
            updates.append((state, new))
        updates = [(state, T.cast(new, state.dtype)) for state, new in updates]
        return theano.function(inputs, outputs, updates=updates, on_unused_input="ignore")

    def _loss(self, logits: Any) -> Any:
        """Mean softmax cross-entropy; logits [N, C], or [N, T, C] with labels [N, T]."""
        smoothing, labels = self.workload.loss.label_smoothing, self.labels.flatten()
        shares = T.nnet.logsoftmax(logits.reshape((-1, self.workload.model.nodes[-1].shape[-1])))
        loss = -shares[T.arange(labels.shape[0]), labels].mean()
        return (1 - smoothing) * loss - smoothing * shares.mean() if smoothing else loss

    def _updates(self, gradients: Sequence[Any]) -> List[Tuple[Any, Any]]:
        optimizer = self.workload.optimizer
        updates: List[Tuple[Any, Any]] = []
        if optimizer.clip_norm:
            norm = T.sqrt(sum(T.sqr(each).sum() for each in gradients))
            scale = optimizer.clip_norm / T.maximum(norm, optimizer.clip_norm)
            gradients = [each * scale for each in gradients]
        for (native, state), gradient in zip(self.slots.items(), gradients):
            # The step is float64: in float32, 1 - 0.999 ** 1 has five digits.
            new = updated(optimizer, native, gradient, state, self.rate, self.step, T.sqrt)
            updates += [(native, new[0])] + [(state[name], new[1][name]) for name in new[1]]
        return updates


program = lru_cache(maxsize=8)(Program)


class TheanoModel(BuiltModel):
    """A model's arrays, and the program that computes with them."""

    def __init__(self, request: BuildRequest) -> None:
        if request.session is not None:
            raise UnsupportedError("adapter 'theano' has no distributed strategies")
        self.workload, self.dtype = request.workload, request.dtype
        document = json.dumps(request.workload.document(), sort_keys=True)
        self.program = program(document, self.dtype, tuple(sorted(request.masks)), request.seed)
        self.parameters = self.program.parameters
        self.arrays: Dict[Any, Array] = {}
        self.steps, self.rate = 0, np.zeros((), self.dtype)
        self.load_weights(request.weights)
        for native, states in self.program.slots.items():
            for state in states.values():
                self.write(state, np.zeros_like(self.read(native)))
        self.load_masks(request.masks)

    def read(self, native: Any) -> Array:
        self.program.attach(self)
        return native.get_value()

    def write(self, native: Any, array: Array) -> None:
        self.program.attach(self)
        native.set_value(array)

    def slots(self, native: Any) -> Mapping[str, Array]:
        states = self.program.slots[native] if self.steps else {}
        return {name: self.read(state) for name, state in states.items()}

    def forward(
        self, inputs: Array, *, training: bool = False, layers: Sequence[str] = ()
    ) -> Dict[str, Array]:
        names = tuple(dict.fromkeys([*layers, self.workload.model.last]))
        return dict(zip(names, self._call("values", (training, names), inputs)))

    def gradients(self, inputs: Array, labels: Array) -> Gradients:
        loss, *gradients = self._call("gradients", (), inputs, labels)
        trained = dict(zip(self.program.slots, gradients))
        of_inputs = gradients[-1] if len(gradients) > len(trained) else None
        return Gradients(loss, self.gather(trained.__getitem__), of_inputs)

    def set_learning_rate(self, learning_rate: float) -> None:
        self.rate = np.asarray(learning_rate, self.dtype)

    def train_step(self, inputs: Array, labels: Array) -> Array:
        self.steps += 1
        return self._call("step", (), inputs, labels, self.rate, float(self.steps))[0]

    def step_phases(self, inputs: Array, labels: Array) -> Iterator[Tuple[str, Array]]:
        raise UnsupportedError("a step is one compiled function")

    def load_masks(self, masks: Mapping[str, Array]) -> None:
        for name, mask in masks.items():
            self.write(self.program.held[name].mask, mask.astype(self.dtype))

    def seed_dropout(self, seed: int) -> None:
        self.program.attach(self)
        self.program.seed_dropout(seed)

    def describe_layers(self) -> Dict[str, str]:
        """The operators of each layer in evaluation, in their order."""
        with theano.change_flags(floatX=self.dtype):
            values = self.program.values(Pass(False, None, []))
        operators = {}
        for node in self.workload.model.nodes:
            nodes = io_toposort([values[name] for name in node.inputs], [values[node.name]])
            operators[node.name] = ", ".join(str(each.op) for each in nodes)
        return operators

    def _call(self, kind: str, key: Tuple[Any, ...], inputs: Array, *more: Any) -> List[Array]:
        """Call a function with this model's arrays."""
        self.program.attach(self)
        function = self.program.function(kind, *key)
        return function(np.asarray(inputs, self.program.input.dtype), *more)
