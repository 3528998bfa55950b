"""A module that a user wrote: its parameters, its layers' values, its gradients."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from dlb_torch.registry import LAYERS
from dlb_worker.contract import ForwardPass, Gradients, LayerCall, UserLayer, UserModelRequest
from dlb_worker.errors import UnsupportedError
from dlb_worker.native import UserModel, tensors, text_attributes
from dlb_worker.parameters import (
    Kinds,
    Mappings,
    NativeParameter,
    gru_mappings,
    kind_among,
    location,
    recurrent_mappings,
    renamed,
    summed,
    user_parameter,
)


def _lstm(module: nn.Module) -> Mappings:
    """The two biases, which are added, as one."""
    like = LAYERS["lstm"].parameters
    return _every_layer(
        module,
        lambda end: {
            "input_weight": renamed(f"weight_ih{end}", like["input_weight"]),
            "recurrent_weight": renamed(f"weight_hh{end}", like["recurrent_weight"]),
            "bias": summed(f"bias_ih{end}", f"bias_hh{end}", like["bias"]),
        },
    )


def _gru(module: nn.Module) -> Mappings:
    """torch's gates are reset, update, new; ONNX's update, reset, new. Both biases are needed."""
    return _every_layer(
        module,
        lambda end: gru_mappings(
            (f"weight_ih{end}", f"weight_hh{end}"), (f"bias_ih{end}", f"bias_hh{end}"), (1, 0, 2)
        ),
    )


def _attention(module: nn.Module) -> Mappings:
    """Queries, keys and values lie one below the other; separate ones are not known."""
    if module.in_proj_weight is None or module.bias_k is not None:
        return {}
    return {
        "input_weight": location("in_proj_weight"),
        "input_bias": location("in_proj_bias"),
        "output_weight": location("out_proj.weight"),
        "output_bias": location("out_proj.bias"),
    }


def _every_layer(module: nn.Module, mappings: Callable[[str], Mappings]) -> Mappings:
    """For every layer and direction of a recurrent module, by the end of its attributes' names."""
    if isinstance(module, nn.RNNCellBase):
        return mappings("")
    return recurrent_mappings(
        module.num_layers,
        1 + module.bidirectional,
        lambda layer, backward: mappings(f"_l{layer}" + "_reverse" * backward),
    )


KINDS: Kinds = {
    nn.Linear: ("linear", LAYERS["linear"].parameters),
    nn.Conv1d: ("conv", LAYERS["conv"].parameters),
    nn.Conv2d: ("conv", LAYERS["conv"].parameters),
    nn.Conv3d: ("conv", LAYERS["conv"].parameters),
    nn.BatchNorm1d: ("batch_norm", LAYERS["batch_norm"].parameters),
    nn.BatchNorm2d: ("batch_norm", LAYERS["batch_norm"].parameters),
    nn.BatchNorm3d: ("batch_norm", LAYERS["batch_norm"].parameters),
    nn.LayerNorm: ("layer_norm", LAYERS["layer_norm"].parameters),
    nn.Embedding: ("embedding", LAYERS["embedding"].parameters),
    nn.LSTM: ("lstm", _lstm),
    nn.LSTMCell: ("lstm", _lstm),
    nn.GRU: ("gru", _gru),
    nn.GRUCell: ("gru", _gru),
    nn.MultiheadAttention: ("attention", _attention),
}


def kind_of(module: nn.Module) -> tuple[str, Mappings]:
    """The layer kind that a module is, and where its parameters are; "" and none if not known."""
    return kind_among(KINDS, module)


class UserModule(UserModel):
    """A ``torch.nn.Module``, in float64."""

    def __init__(self, request: UserModelRequest) -> None:
        self.dtype = request.dtype
        self.type = getattr(torch, request.dtype)
        self.device = torch.device(request.device)
        # For good, since a forward pass may make tensors of its own.
        torch.set_default_dtype(self.type)
        model = request.make()
        if not isinstance(model, nn.Module):
            raise UnsupportedError(
                f"the factory returned a {type(model).__name__}; it must return a torch.nn.Module"
            )
        self.model = model.to(self.device, self.type)
        self._shape(request.inputs)
        self.names = {module: name for name, module in model.named_modules()}
        self.parameters = list(self._parameters())

    def _shape(self, inputs: np.ndarray | None) -> None:
        """Let lazy layers see an input."""
        lazy = [
            name
            for name, parameter in self.model.named_parameters()
            if nn.parameter.is_lazy(parameter)
        ]
        if not lazy:
            return
        if inputs is None:
            raise UnsupportedError(
                f"'{lazy[0]}' has no shape before the model has seen an input; give --input or "
                "--input-shape"
            )
        self.model.eval()
        with torch.no_grad():
            self.model(self.native(inputs))
        self.model.to(self.device, self.type)

    def _parameters(self) -> Iterator[NativeParameter]:
        seen: set[int] = set()
        for name, module in self.model.named_modules():
            # The last map of an attention is a module in it, which is not called.
            whole = isinstance(module, nn.MultiheadAttention)
            own = {
                attribute: tensor
                for attribute, tensor in [
                    *module.named_parameters(recurse=whole),
                    *module.named_buffers(recurse=False),
                ]
                if tensor.is_floating_point() and id(tensor) not in seen
            }
            seen |= {id(tensor) for tensor in own.values()}
            for role, mapping in kind_of(module)[1].items():
                if all(attribute in own for attribute in mapping.attributes):
                    natives = {each: own.pop(each) for each in mapping.attributes}
                    trained = natives[mapping.attribute].requires_grad
                    yield user_parameter(name, role, trained, natives, mapping)
            for attribute, tensor in own.items():
                yield user_parameter(name, "", tensor.requires_grad, {attribute: tensor})

    def read(self, native: Tensor) -> np.ndarray:
        return native.detach().cpu().numpy().copy()

    def write(self, native: Tensor, array: np.ndarray) -> None:
        with torch.no_grad():
            native.copy_(torch.from_numpy(array))

    def layers(self) -> list[UserLayer]:
        return [
            UserLayer(
                name,
                type(module).__name__,
                _attributes(module),
                kind_of(module)[0],
                _momentum(module),
            )
            for module, name in self.names.items()
        ]

    def forward(
        self, inputs: np.ndarray, *, training: bool = False, layers: Sequence[str] = ()
    ) -> ForwardPass:
        states = [(tensor, tensor.clone()) for tensor in self.model.buffers()]
        watch = _Watch(self.names, set(layers))
        try:
            self.model.train(training)
            with torch.no_grad(), watch:
                outputs = list(tensors(self.model(self.native(inputs)), torch.is_tensor))
        finally:
            watch.remove()
            self._restore(states)
        return ForwardPass(tuple(self.read(each) for each in outputs), watch.found())

    def vjp(
        self, inputs: np.ndarray, cotangents: Sequence[np.ndarray], *, training: bool = False
    ) -> Gradients:
        states = [(tensor, tensor.clone()) for tensor in self.model.buffers()]
        native = self.native(inputs)
        native.requires_grad_(native.is_floating_point())
        self.model.train(training)
        outputs = tensors(self.model(native), torch.is_tensor)
        total = sum(
            torch.sum(output * torch.from_numpy(cotangent).to(self.device))
            for output, cotangent in zip(outputs, cotangents)
        )
        sources = [tensor for each in self.parameters if each.trained for tensor in each.natives]
        sources += [native] if native.requires_grad else []
        found = torch.autograd.grad(total, sources, allow_unused=True)
        moved = self.states()
        self._restore(states)
        arrays = {
            id(source): np.zeros(source.shape) if gradient is None else gradient.cpu().numpy()
            for source, gradient in zip(sources, found)
        }
        return Gradients(
            loss=total.detach().cpu().numpy(),
            parameters=self.gather(lambda tensor: arrays[id(tensor)]),
            inputs=arrays[id(native)] if native.requires_grad else None,
            states=moved,
        )

    def native(self, inputs: np.ndarray) -> Tensor:
        given = torch.from_numpy(np.array(inputs)).to(self.device)
        return given.to(self.type) if given.is_floating_point() else given

    @staticmethod
    def _restore(states: list[tuple[Tensor, Tensor]]) -> None:
        with torch.no_grad():
            for tensor, kept in states:
                tensor.copy_(kept)


class _Watch(TorchFunctionMode):
    """While it lasts, notes every call of the modules, and of functions in the code of those that
    hold others: ``relu()`` in a ``forward`` that somebody wrote."""

    def __init__(self, names: Mapping[nn.Module, str], wanted: set[str]) -> None:
        super().__init__()
        self.names, self.wanted = names, wanted
        self._calls: list[tuple[str, Any, Any, bool]] = []
        self._active: list[nn.Module] = []
        self._noting = False
        self._hooks = [module.register_forward_pre_hook(self._begin) for module in names]
        self._hooks += [module.register_forward_hook(self._end) for module in names]

    def remove(self) -> None:
        for hook in self._hooks:
            hook.remove()

    def _begin(self, module: nn.Module, given: tuple[Any, ...]) -> None:
        self._active.append(module)

    def _end(self, module: nn.Module, given: tuple[Any, ...], output: Any) -> None:
        self._active.pop()
        steps_first = not getattr(module, "batch_first", True)
        self._note(self.names[module], given[0] if given else None, _first(output), steps_first)

    def __torch_function__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        result = function(*args, **(kwargs or {}))
        name = getattr(function, "__name__", "__")
        inner = self._active[-1] if self._active and not self._noting else None
        if inner is not None and not name.startswith("__") and torch.is_tensor(result):
            written = next(inner.children(), None) is not None
            if written and result.is_floating_point():
                layer = self.names[inner]
                called = f"{layer}.{name.strip('_')}()".lstrip(".")
                self._note(called, args[0] if args else None, result, wanted=layer in self.wanted)
        return result

    def _note(
        self,
        name: str,
        given: Any,
        output: Any,
        steps_first: bool = False,
        *,
        wanted: bool | None = None,
    ) -> None:
        wanted = name in self.wanted if wanted is None else wanted
        self._noting = True  # what is called here is not the model's
        inputs, outputs = [
            value.detach().clone() if wanted and torch.is_tensor(value) else None
            for value in (given, output)
        ]
        self._noting = False
        self._calls.append((name, inputs, outputs, steps_first))

    def found(self) -> tuple[LayerCall, ...]:
        """The calls, in the order in which they ended."""
        return tuple(
            LayerCall(name, _array(given, steps_first), _array(output, steps_first))
            for name, given, output, steps_first in self._calls
        )


def _array(tensor: Tensor | None, steps_first: bool) -> np.ndarray | None:
    if tensor is None:
        return None
    array = tensor.cpu().numpy()
    return array.swapaxes(0, 1) if steps_first and array.ndim == 3 else array


def _first(output: Any) -> Any:
    """The one tensor that is taken for a layer's output: an LSTM's sequence, not its states."""
    while isinstance(output, (list, tuple)) and output:
        output = output[0]
    return output


def _momentum(module: nn.Module) -> float | None:
    """torch's is the part that is new; None averages over all batches."""
    if kind_of(module)[0] != "batch_norm" or module.momentum is None:
        return None
    return 1 - module.momentum


def _attributes(module: nn.Module) -> dict[str, str]:
    """What a module was made with, as it keeps it."""
    return text_attributes(
        {
            name: value
            for name, value in vars(module).items()
            if name[0] != "_" and name != "training"
        }
    )
