"""A user's graph: an object with ``inputs``, ``outputs`` and ``params``, as the README describes it."""

from typing import Any, Dict, List, Mapping, Sequence, Tuple

import numpy as np
import theano
import theano.tensor as T
from theano.compile.sharedvalue import SharedVariable
from theano.gof.graph import ancestors, io_toposort
from theano.tensor.nnet.abstract_conv import AbstractConv2d

from dlb_worker.contract import (
    ForwardPass,
    Gradients,
    Inputs,
    LayerCall,
    UserLayer,
    UserModelRequest,
)
from dlb_worker.errors import UnsupportedError
from dlb_worker.native import UserModel
from dlb_worker.parameters import AS_IS, NativeParameter, location

Array = np.ndarray

_TURNED = location("", lambda array: array.T, lambda array: array.T)
_FLIPPED = location(
    "", lambda array: array[:, :, ::-1, ::-1], lambda array: array[:, :, ::-1, ::-1]
)


class UserGraph(UserModel):
    """Symbolic outputs of one symbolic input; functions are compiled as they are asked for."""

    def __init__(self, request: UserModelRequest) -> None:
        self.dtype = theano.config.floatX = request.dtype
        self.model = model = request.make()
        missing = [name for name in ("inputs", "outputs", "params") if not hasattr(model, name)]
        if missing:
            raise UnsupportedError(
                f"the factory returned a {type(model).__name__} without {', '.join(missing)}; it must "
                "return an object with symbolic inputs and outputs, and params, shared variables"
            )
        (self.input,), outputs = _list(model.inputs), _list(model.outputs)
        self.outputs = (outputs, _list(getattr(model, "training_outputs", outputs)))
        self.updates = dict(getattr(model, "updates", {}))
        self.functions: Dict[Any, Any] = {}
        graph = list(ancestors(self.outputs[0] + self.outputs[1]))
        shared = [*model.params, *self.updates, *graph]
        uses, self.parameters, self.kinds = _uses(self.outputs[0]), [], {"": ""}
        for each in dict.fromkeys(each for each in shared if isinstance(each, SharedVariable)):
            if not str(getattr(each, "dtype", "")).startswith("float"):
                continue
            if not each.name or each.name in [other.name for other in self.parameters]:
                raise UnsupportedError(f"shared variable '{each}' needs a name that no other has")
            layer, (kind, role, mapping) = each.name.rpartition(".")[0], uses.get(each, _UNKNOWN)
            self.kinds[layer] = kind or self.kinds.get(layer, "")
            self.parameters.append(
                NativeParameter(each.name, layer, role, each in model.params, (each,), mapping)
            )
        inner = [each for each in graph if each.owner is not None and each.name]
        self.kinds.update({each.name: "" for each in inner if each.name not in self.kinds})

    def read(self, native: Any) -> Array:
        return native.get_value()

    def write(self, native: Any, array: Array) -> None:
        native.set_value(array)

    def layers(self) -> List[UserLayer]:
        types = {name: kind or "variable" for name, kind in self.kinds.items()}
        types[""] = type(self.model).__name__
        return [UserLayer(name, types[name], {}, kind) for name, kind in self.kinds.items()]

    def forward(
        self, inputs: Inputs, *, training: bool = False, layers: Sequence[str] = ()
    ) -> ForwardPass:
        outputs = self.outputs[training]
        nodes = io_toposort([self.input], outputs)
        named = {each.name: each for node in nodes for each in node.outputs if each.name}
        requested = [name for name in named if name in layers]
        arrays = self._call(
            ("forward", training, *requested), outputs + [named[name] for name in requested], inputs
        )
        values = dict(zip(requested, arrays[len(outputs) :]))
        calls = tuple(LayerCall(name, None, values.get(name)) for name in named)
        return ForwardPass(tuple(arrays[: len(outputs)]), calls)

    def vjp(
        self, inputs: Inputs, cotangents: Sequence[Array], *, training: bool = False
    ) -> Gradients:
        outputs = self.outputs[training]
        weights = [each.type() for each in outputs]
        total = sum(T.sum(output * cotangent) for output, cotangent in zip(outputs, weights))
        sources = [each.natives[0] for each in self.parameters if each.trained]
        sources += [self.input] * self.input.dtype.startswith("float")
        states = [each for each in self.parameters if not each.trained]
        moved = self.updates if training else {}
        gradients = T.grad(total, sources, disconnected_inputs="ignore")
        results = [total, *gradients, *(moved.get(*each.natives * 2) for each in states)]
        loss, *arrays = self._call(("vjp", training), results, inputs, weights, cotangents)
        by_source = dict(zip(sources, arrays))
        return Gradients(
            loss,
            self.gather(by_source.__getitem__),
            by_source.get(self.input),
            {
                each.name: each.mapping.to_canonical([array])
                for each, array in zip(states, arrays[len(sources) :])
            },
        )

    def _call(
        self,
        key: Tuple[Any, ...],
        outputs: List[Any],
        inputs: Inputs,
        variables: Sequence[Any] = (),
        arrays: Sequence[Array] = (),
    ) -> List[Array]:
        if isinstance(inputs, Mapping):
            raise UnsupportedError("this adapter loads user models of one input only")
        if key not in self.functions:
            self.functions[key] = theano.function(
                [self.input, *variables], outputs, on_unused_input="ignore"
            )
        return self.functions[key](np.asarray(inputs, self.input.dtype), *arrays)


_UNKNOWN = ("", "", AS_IS)


def _uses(outputs: List[Any]) -> Dict[Any, Tuple[str, str, Any]]:
    """Layer kind, role and mapping of the variables that operators read as weights and biases."""
    uses: Dict[Any, Tuple[str, str, Any]] = {}
    kinds: Dict[Any, str] = {}
    for node in io_toposort([], outputs):
        first, last = node.inputs[0], _plain(node.inputs[-1])
        if isinstance(node.op, AbstractConv2d):
            flipped = _FLIPPED if node.op.filter_flip else AS_IS
            kind, uses[last] = "conv", ("conv", "weight", flipped)
        elif isinstance(node.op, T.Dot):
            turned = _TURNED if last is node.inputs[-1] else AS_IS
            kind, uses[last] = "linear", ("linear", "weight", turned)
        elif isinstance(node.op, T.AdvancedSubtensor1):
            kind, uses[first] = "embedding", ("embedding", "weight", AS_IS)
        elif node.op == T.add and first in kinds and last.ndim == 1:
            kind, uses[last] = "", (kinds[first], "bias", AS_IS)
        else:
            continue
        kinds[node.outputs[0]] = kind
    return uses


def _plain(variable: Any) -> Any:
    """What a variable was before its axes were moved."""
    moved = variable.owner is not None and isinstance(variable.owner.op, T.DimShuffle)
    return variable.owner.inputs[0] if moved else variable


def _list(value: Any) -> List[Any]:
    return list(value) if isinstance(value, (list, tuple)) else [value]
