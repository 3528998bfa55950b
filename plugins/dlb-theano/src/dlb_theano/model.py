"""A workload's model: shared variables, and functions that are compiled when they are first needed."""

import json
import weakref
from functools import lru_cache
from types import SimpleNamespace
from typing import Any, Dict, List, Mapping, Sequence, Tuple

import numpy as np
import theano
import theano.tensor as T
from theano.gof.graph import io_toposort
from theano.sandbox.rng_mrg import MRG_RandomStreams

from dlb_theano.layers import Pass
from dlb_theano.registry import LAYERS
from dlb_worker.contract import BuildRequest, Gradients
from dlb_worker.errors import UnsupportedError
from dlb_worker.layers import native_parameters
from dlb_worker.model import Workload, read_workload
from dlb_worker.native import BuiltModel
from dlb_worker.parameters import NativeParameter
from dlb_worker.updates import slots, updated

Array = np.ndarray


class Program:
    """The graph of a workload and its compiled functions, shared by all models of that workload.

    Compiling takes much longer than running a model once. So a program has one set of shared
    variables, and the model that is used puts its arrays into them; nothing is copied.
    """

    def __init__(self, workload: Workload, dtype: str, masked: Sequence[str], seed: int) -> None:
        self.workload, self.dtype, self.seed = workload, dtype, seed
        self.initial = {}  # type: Dict[Any, Array]
        self.functions = {}  # type: Dict[Any, Any]
        self.owner = lambda: None  # type: Any
        self.held = {}  # type: Dict[str, SimpleNamespace]
        nodes = workload.model.nodes
        for node in nodes:
            own = {role: self._shared(len(each.shape)) for role, each in node.parameters.items()}
            if node.tied_to:
                own["weight"] = self.held[node.tied_to].weight
            if node.name in masked:
                own["mask"] = self._shared(1 + len(node.shape))
            self.held[node.name] = SimpleNamespace(**own)
        self.parameters = native_parameters(
            workload.model, LAYERS, lambda node: self.held[node.name]
        )
        self.trained = [each.natives[0] for each in self.parameters if each.trained]
        self.slots = {
            native: {name: self._shared(native.ndim) for name in slots(workload.optimizer)}
            for native in self.trained
        }
        described = workload.model.input
        kind = dtype if described.kind == "real" else "int64"
        self.input = T.TensorType(kind, (False,) * (1 + len(described.shape)))("input")
        self.labels = T.TensorType("int64", (False,) * len(nodes[-1].shape))("labels")
        self.rate, self.step = T.scalar("rate", dtype), T.scalar("step", "float64")

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
        for each, initial in self.initial.items():
            array = model.arrays.pop(each, None)
            each.set_value(initial.copy() if array is None else array, borrow=True)
        self.owner = weakref.ref(model, self._release)

    def _release(self, owner: Any) -> None:
        """Let a model's memory go with it."""
        if owner is self.owner:
            for each, initial in self.initial.items():
                each.set_value(initial.copy(), borrow=True)

    def function(self, kind: str, training: bool = True, layers: Tuple[str, ...] = ()) -> Any:
        """What computes the values of layers, the ``gradients`` or a ``step``."""
        key = (kind, training, layers)
        if key not in self.functions:
            # Numbers in expressions take this type, and would turn float32 into float64.
            with theano.change_flags(floatX=self.dtype):
                self.functions[key] = self._compile(*key)
        return self.functions[key]

    def values(self, run: Pass) -> Dict[str, Any]:
        """The symbolic value of every layer."""
        found = {self.workload.model.input.name: self.input}
        for node in self.workload.model.nodes:
            inputs = [found[name] for name in node.inputs]
            found[node.name] = LAYERS[node.kind].build(node, inputs, self.held[node.name], run)
        return found

    def _compile(self, kind: str, training: bool, layers: Tuple[str, ...]) -> Any:
        random = MRG_RandomStreams(self.seed % (2**31 - 1) + 1)
        run = Pass(training, random, [])
        values = self.values(run)
        inputs, outputs, updates = [self.input], [values[name] for name in layers], []
        if kind != "values":
            loss = self._loss(values[self.workload.model.last])
            sources = list(self.trained)
            if kind == "gradients" and self.input.dtype == self.dtype:
                sources.append(self.input)
            gradients = T.grad(loss, sources, disconnected_inputs="ignore")
            inputs.append(self.labels)
            outputs = [loss] + (gradients if kind == "gradients" else [])
        if kind == "step":
            inputs += [self.rate, self.step]
            updates = run.updates + self._updates(gradients)
        drawn = [(state, new) for state, new, *_ in random.state_updates]
        for state, _ in drawn:
            self.initial[state] = state.get_value()
        updates = [(state, T.cast(new, state.dtype)) for state, new in updates]
        return theano.function(
            inputs, outputs, updates=updates + drawn, mode="FAST_RUN", on_unused_input="ignore"
        )

    def _loss(self, logits: Any) -> Any:
        """Mean softmax cross-entropy; logits [N, C], or [N, T, C] with labels [N, T]."""
        smoothing, labels = self.workload.loss.label_smoothing, self.labels.flatten()
        shares = T.nnet.logsoftmax(logits.reshape((-1, self.workload.model.nodes[-1].shape[-1])))
        loss = -shares[T.arange(labels.shape[0]), labels].mean()
        return (1 - smoothing) * loss - smoothing * shares.mean() if smoothing else loss

    def _updates(self, gradients: Sequence[Any]) -> List[Tuple[Any, Any]]:
        optimizer = self.workload.optimizer
        if optimizer.clip_norm:
            norm = T.sqrt(sum(T.sqr(each).sum() for each in gradients))
            scale = optimizer.clip_norm / T.maximum(norm, optimizer.clip_norm)
            gradients = [each * scale for each in gradients]
        found = []
        for native, gradient in zip(self.trained, gradients):
            state = self.slots[native]
            # The step is float64: in float32, 1 - 0.999 ** 1 has five digits.
            weight, moved = updated(
                optimizer, native, gradient, state, self.rate, self.step, T.sqrt
            )
            found += [(native, weight)] + [(state[name], moved[name]) for name in moved]
        return found


@lru_cache(maxsize=8)
def program(document: str, dtype: str, masked: Tuple[str, ...], seed: int) -> Program:
    """The program of a workload, as JSON; the last few are kept."""
    return Program(read_workload(json.loads(document)), dtype, masked, seed)


class TheanoModel(BuiltModel):
    """A model's arrays, and the program that they are computed with."""

    def __init__(self, request: BuildRequest) -> None:
        if request.session is not None:
            raise UnsupportedError("adapter 'theano' has no distributed strategies")
        self.workload, self.dtype = request.workload, request.dtype
        document = json.dumps(request.workload.document(), sort_keys=True)
        self.program = program(document, self.dtype, tuple(sorted(request.masks)), request.seed)
        self.parameters = self.program.parameters
        self.arrays = {}  # type: Dict[Any, Array]
        self.steps, self.rate = 0, 0.0
        self.load_weights(request.weights)
        for native, states in self.program.slots.items():
            for state in states.values():
                self.write(state, np.zeros_like(self.read(native)))
        for name, mask in request.masks.items():
            self.write(self.program.held[name].mask, mask.astype(self.dtype))

    def canonical(self, parameter: NativeParameter) -> Array:
        """A copy of one parameter in canonical layout."""
        return parameter.mapping.to_canonical([self.read(each) for each in parameter.natives])

    def read(self, native: Any) -> Array:
        self.program.attach(self)
        return native.get_value()

    def write(self, native: Any, array: Array) -> None:
        self.program.attach(self)
        native.set_value(array)

    def slots(self, native: Any) -> Mapping[str, Array]:
        if not self.steps:
            return {}
        return {name: self.read(state) for name, state in self.program.slots[native].items()}

    def forward(
        self, inputs: Array, *, training: bool = False, layers: Sequence[str] = ()
    ) -> Dict[str, Array]:
        names = tuple(dict.fromkeys([*layers, self.workload.model.last]))
        function = self._ready("values", training, names)
        return dict(zip(names, function(self._native(inputs))))

    def gradients(self, inputs: Array, labels: Array) -> Gradients:
        loss, *found = self._ready("gradients")(self._native(inputs), labels)
        by_native = dict(zip(self.program.trained, found))
        return Gradients(
            loss=loss,
            parameters=self.gather(by_native.__getitem__),
            inputs=found[-1] if len(found) > len(by_native) else None,
        )

    def set_learning_rate(self, learning_rate: float) -> None:
        self.rate = learning_rate

    def train_step(self, inputs: Array, labels: Array) -> Array:
        self.steps += 1
        rate = np.asarray(self.rate, self.dtype)
        (loss,) = self._ready("step")(inputs, labels, rate, float(self.steps))
        return loss

    def describe_layers(self) -> Dict[str, str]:
        """The operators of each layer in evaluation, in their order."""
        with theano.change_flags(floatX=self.dtype):
            values = self.program.values(Pass(False, None, []))
        return {
            node.name: ", ".join(
                str(each.op)
                for each in io_toposort([values[name] for name in node.inputs], [values[node.name]])
            )
            for node in self.workload.model.nodes
        }

    def _ready(self, kind: str, *key: Any) -> Any:
        """A function that computes with this model's arrays."""
        self.program.attach(self)
        return self.program.function(kind, *key)

    def _native(self, inputs: Array) -> Array:
        return np.asarray(inputs, self.program.input.dtype)
