"""A module that a user wrote: its parameters, its layers' values, its gradients."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from dlb_torch.model import TorchParameters
from dlb_torch.registry import LAYERS
from dlb_worker.contract import ForwardPass, Gradients, LayerCall, UserModelRequest
from dlb_worker.native import tensors, text_attributes
from dlb_worker.parameters import (
    Kinds,
    Mappings,
    gru_mappings,
    location,
    lstm_gates,
    recurrent_mappings,
    summed,
)
from dlb_worker.user_layers import LayeredUserModel, first_tensor, make_model, needed_inputs


def _lstm(module: nn.Module) -> Mappings:
    """The two biases, which are added, as one."""
    return _every_layer(
        module,
        lambda end: {
            "input_weight": lstm_gates(f"weight_ih{end}"),
            "recurrent_weight": lstm_gates(f"weight_hh{end}"),
            "bias": summed(f"bias_ih{end}", f"bias_hh{end}", lstm_gates("")),
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
    (nn.Conv1d, nn.Conv2d, nn.Conv3d): ("conv", LAYERS["conv"].parameters),
    (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d): (
        "batch_norm",
        LAYERS["batch_norm"].parameters,
    ),
    nn.LayerNorm: ("layer_norm", LAYERS["layer_norm"].parameters),
    nn.Embedding: ("embedding", LAYERS["embedding"].parameters),
    (nn.LSTM, nn.LSTMCell): ("lstm", _lstm),
    (nn.GRU, nn.GRUCell): ("gru", _gru),
    nn.MultiheadAttention: ("attention", _attention),
}


class UserModule(TorchParameters, LayeredUserModel):
    """A ``torch.nn.Module``, in float64."""

    kinds = KINDS

    def __init__(self, request: UserModelRequest) -> None:
        super().__init__(request.dtype, request.device)
        # For good, since a forward pass may make tensors of its own.
        torch.set_default_dtype(self.type)
        model = make_model(request, nn.Module, "a torch.nn.Module")
        self.model = model.to(self.device, self.type)
        self._shape(request.inputs)
        self.names = {module: name for name, module in self.model.named_modules()}
        self.parameters = self.find_parameters()

    def _shape(self, inputs: np.ndarray | None) -> None:
        """Let lazy layers see an input."""
        parameters = self.model.named_parameters()
        lazy = [name for name, parameter in parameters if nn.parameter.is_lazy(parameter)]
        if lazy:
            batch = needed_inputs(inputs, f"'{lazy[0]}' has no shape")
            self.model.eval()
            with torch.no_grad():
                self.model(self.native(batch))
            self.model.to(self.device, self.type)

    def own_parameters(self, layer: nn.Module) -> dict[str, Tensor]:
        # The last map of an attention is a module in it, which is not called.
        whole = isinstance(layer, nn.MultiheadAttention)
        own = [*layer.named_parameters(recurse=whole), *layer.named_buffers(recurse=False)]
        return {attribute: tensor for attribute, tensor in own if tensor.is_floating_point()}

    def is_trained(self, native: Tensor) -> bool:
        return native.requires_grad

    def attributes(self, layer: nn.Module) -> dict[str, str]:
        kept = {name: value for name, value in vars(layer).items() if name[0] != "_"}
        kept.pop("training", None)
        return text_attributes(kept)

    def momentum(self, layer: nn.Module) -> float | None:
        """torch's is the part that is new; None averages over all batches."""
        if self.kind_of(layer)[0] != "batch_norm" or layer.momentum is None:
            return None
        return 1 - layer.momentum

    def forward(
        self, inputs: np.ndarray, *, training: bool = False, layers: Sequence[str] = ()
    ) -> ForwardPass:
        self.model.train(training)
        with self.unmoved_states(self.model), torch.no_grad(), _Watch(self.names, layers) as watch:
            outputs = list(tensors(self.model(self.native(inputs)), torch.is_tensor))
        return ForwardPass(tuple(map(self.read, outputs)), tuple(watch.calls))

    def vjp(
        self, inputs: np.ndarray, cotangents: Sequence[np.ndarray], *, training: bool = False
    ) -> Gradients:
        native = self.native(inputs)
        native.requires_grad_(native.is_floating_point())
        sources = self.trained_natives() + [native] * native.requires_grad
        self.model.train(training)
        with self.unmoved_states(self.model):
            outputs = tensors(self.model(native), torch.is_tensor)
            total: Any = sum(
                torch.sum(output * torch.from_numpy(cotangent).to(self.device))
                for output, cotangent in zip(outputs, cotangents)
            )
            gradients = torch.autograd.grad(total, sources, allow_unused=True)
            moved = self.states()
        arrays = {
            id(source): np.zeros(source.shape) if gradient is None else gradient.cpu().numpy()
            for source, gradient in zip(sources, gradients)
        }
        return Gradients(
            loss=self.read(total),
            parameters=self.gather(lambda tensor: arrays[id(tensor)]),
            inputs=arrays[id(native)] if native.requires_grad else None,
            states=moved,
        )


class _Watch(TorchFunctionMode):
    """While it lasts, notes every call of the modules, and of functions in the code of those that
    hold others: ``relu()`` in a ``forward`` that somebody wrote."""

    def __init__(self, names: Mapping[nn.Module, str], requested: Sequence[str]) -> None:
        super().__init__()
        self.names, self.requested = names, set(requested)
        self.calls: list[LayerCall] = []
        self._active: list[nn.Module] = []
        self._noting = False

    def __enter__(self) -> _Watch:
        self._hooks = [module.register_forward_pre_hook(self._begin) for module in self.names]
        self._hooks += [module.register_forward_hook(self._end) for module in self.names]
        return super().__enter__()

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        for hook in self._hooks:
            hook.remove()

    def _begin(self, module: nn.Module, inputs: tuple[Any, ...]) -> None:
        self._active.append(module)

    def _end(self, module: nn.Module, inputs: tuple[Any, ...], output: Any) -> None:
        self._active.pop()
        name, steps_first = self.names[module], not getattr(module, "batch_first", True)
        self._note(name, name, inputs, first_tensor(output), steps_first)

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
                self._note(f"{layer}.{name.strip('_')}()".lstrip("."), layer, args, result)
        return result

    def _note(
        self, name: str, layer: str, inputs: Any, output: Any, steps_first: bool = False
    ) -> None:
        """Note a call, with its values if the layer in whose code it was made is requested."""
        values: list[Any] = [inputs[0] if inputs else None, output]
        self._noting = True  # what is called here is not the model's
        arrays = [_array(each, steps_first) if layer in self.requested else None for each in values]
        self._noting = False
        self.calls.append(LayerCall(name, *arrays))


def _array(value: Any, steps_first: bool) -> np.ndarray | None:
    if not torch.is_tensor(value):
        return None
    array: np.ndarray = value.detach().cpu().numpy().copy()
    return array.swapaxes(0, 1) if steps_first and array.ndim == 3 else array
