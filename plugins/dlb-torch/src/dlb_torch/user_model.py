"""A module that a user wrote: its parameters, its layers' values, its gradients."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize
from torch.overrides import TorchFunctionMode

from dlb_torch.model import TorchParameters
from dlb_torch.registry import LAYERS
from dlb_worker.contract import (
    Dropout,
    ForwardPass,
    Gradients,
    Inputs,
    LayerCall,
    UserModelRequest,
)
from dlb_worker.native import tensors, text_attributes
from dlb_worker.parameters import (
    AS_IS,
    TRANSPOSED_CONV,
    Kinds,
    Mappings,
    gru_mappings,
    length_times_direction,
    location,
    lstm_gates,
    recurrent_mappings,
    summed,
)
from dlb_worker.user_layers import (
    LayeredUserModel,
    bound,
    first_tensor,
    input_gradients,
    make_model,
    needed_inputs,
    other_tensors,
)


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


def _rnn(module: nn.Module) -> Mappings:
    """The two biases as one, as in an LSTM."""
    return _every_layer(
        module,
        lambda end: {
            "input_weight": location(f"weight_ih{end}"),
            "recurrent_weight": location(f"weight_hh{end}"),
            "bias": summed(f"bias_ih{end}", f"bias_hh{end}", AS_IS),
        },
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


def _weighted(mappings: Mappings) -> Callable[[nn.Module], Mappings]:
    """Mappings of layers whose weight may be normalised, as length and direction or by its spectral norm."""

    def find(module: nn.Module) -> Mappings:
        parts = _normalised_weight(module)
        if not parts:
            return mappings
        if len(parts) == 1:
            return {**mappings, "weight": location(parts[0])}
        read, (length, direction) = module.get_parameter, parts
        weight = length_times_direction(
            (length, direction), lambda name: read(name).detach().cpu().numpy()
        )
        return {**mappings, "weight": weight}

    return find


def _normalised_weight(module: nn.Module) -> tuple[str, ...]:
    """The parameters of a normalised weight, of torch's present and former functions; none if it is plain.

    They are length and direction, or the weight before its spectral norm is divided out.
    """
    if hasattr(module, "weight_g") and hasattr(module, "weight_v"):
        return "weight_g", "weight_v"
    if hasattr(module, "weight_orig") and hasattr(module, "weight_u"):
        return ("weight_orig",)
    if parametrize.is_parametrized(module, "weight"):
        steps: Any = module.parametrizations.weight
        start = "parametrizations.weight.original"
        names = {"_WeightNorm": (f"{start}0", f"{start}1"), "_SpectralNorm": (start,)}
        if len(steps) == 1:
            return names.get(type(steps[0]).__name__, ())
    return ()


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
    nn.Linear: ("linear", _weighted(LAYERS["linear"].parameters)),
    (nn.Conv1d, nn.Conv2d, nn.Conv3d): ("conv", _weighted(LAYERS["conv"].parameters)),
    (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d): (
        "conv_transpose",
        _weighted(TRANSPOSED_CONV),
    ),
    nn.PReLU: ("prelu", LAYERS["prelu"].parameters),
    nn.GroupNorm: ("group_norm", LAYERS["group_norm"].parameters),
    (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d): (
        "batch_norm",
        LAYERS["batch_norm"].parameters,
    ),
    nn.LayerNorm: ("layer_norm", LAYERS["layer_norm"].parameters),
    nn.RMSNorm: ("rms_norm", LAYERS["rms_norm"].parameters),
    nn.Embedding: ("embedding", LAYERS["embedding"].parameters),
    (nn.LSTM, nn.LSTMCell): ("lstm", _lstm),
    (nn.GRU, nn.GRUCell): ("gru", _gru),
    (nn.RNN, nn.RNNCell): ("rnn", _rnn),
    nn.MultiheadAttention: ("attention", _attention),
}


#: The attribute that holds a dropout rate, and what is dropped, by type.
DROPOUTS: Mapping[Any, tuple[str, str]] = {
    nn.Dropout: ("p", "elements"),
    (nn.Dropout1d, nn.Dropout2d, nn.Dropout3d): ("p", "channels"),
    nn.AlphaDropout: ("p", "elements, by AlphaDropout"),
    nn.FeatureAlphaDropout: ("p", "channels, by AlphaDropout"),
    nn.RNNBase: ("dropout", "outputs between layers"),
    nn.MultiheadAttention: ("dropout", "attention weights"),
}
#: The same of functions, whose argument p is the second.
DROPOUT_FUNCTIONS = {
    "dropout": "elements",
    "dropout1d": "channels",
    "dropout2d": "channels",
    "dropout3d": "channels",
    "alpha_dropout": "elements, by AlphaDropout",
    "feature_alpha_dropout": "channels, by AlphaDropout",
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
        self.model.train()
        self.parameters = self.find_parameters()

    def _shape(self, inputs: Inputs | None) -> None:
        """Let lazy layers see an input."""
        parameters = self.model.named_parameters()
        lazy = [name for name, parameter in parameters if nn.parameter.is_lazy(parameter)]
        if lazy:
            batch = needed_inputs(inputs, f"'{lazy[0]}' has no shape")
            self.model.eval()
            with torch.no_grad():
                self.outputs(self.natives(batch))
            self.model.to(self.device, self.type)

    def own_parameters(self, layer: nn.Module) -> dict[str, Tensor]:
        # The last map of an attention is a module in it, which is not called.
        whole = isinstance(layer, nn.MultiheadAttention)
        own = [*layer.named_parameters(recurse=whole), *layer.named_buffers(recurse=False)]
        own += [(name, layer.get_parameter(name)) for name in _normalised_weight(layer)]
        return {attribute: tensor for attribute, tensor in own if tensor.is_floating_point()}

    def is_trained(self, native: Tensor) -> bool:
        return native.requires_grad

    def is_frozen(self, native: Tensor) -> bool:
        return isinstance(native, nn.Parameter)

    def attributes(self, layer: nn.Module) -> dict[str, str]:
        kept = {name: value for name, value in vars(layer).items() if name[0] != "_"}
        # Shown of a layer that stays in evaluation mode whatever the model is asked for.
        if kept.pop("training", True) or layer is self.model:
            return text_attributes(kept)
        return {**text_attributes(kept), "training": "False"}

    def dropout(self, layer: nn.Module) -> Dropout | None:
        attribute, of = _of_type(DROPOUTS, layer) or ("", "")
        single = isinstance(layer, nn.RNNBase) and layer.num_layers < 2
        rate = getattr(layer, attribute, 0.0)
        return Dropout(rate, of) if rate and not single else None

    def set_rate(self, layer: nn.Module, rate: float) -> None:
        attribute, _ = _of_type(DROPOUTS, layer) or ("", "")
        setattr(layer, attribute, rate)

    def momentum(self, layer: nn.Module) -> float | None:
        """torch's is the part that is new; None averages over all batches."""
        if self.kind_of(layer)[0] != "batch_norm" or layer.momentum is None:
            return None
        return 1 - layer.momentum

    def outputs(self, natives: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """What the model returns for its inputs; packed sequences padded, [N, T, ...]."""
        arguments, named = bound(self.model.forward, natives)
        return dict(tensors(_padded(self.model(*arguments, **named)), torch.is_tensor))

    @contextmanager
    def training_mode(self) -> Iterator[None]:
        self.model.train()
        with _Functions(self):
            yield

    def host(self, loss: Any) -> Any:
        return loss.detach().cpu() if torch.is_tensor(loss) else loss

    def forward(
        self, inputs: Inputs, *, training: bool = False, layers: Sequence[str] = ()
    ) -> ForwardPass:
        self.model.train(training)
        with self.unmoved_states(self.model), torch.no_grad(), _Watch(self, layers) as watch:
            outputs = self.outputs(self.natives(inputs))
        arrays = tuple(map(self.read, outputs.values()))
        return ForwardPass(arrays, tuple(watch.calls), tuple(outputs))

    def vjp(
        self, inputs: Inputs, cotangents: Sequence[np.ndarray], *, training: bool = False
    ) -> Gradients:
        natives = self.natives(inputs)
        real = {name: each for name, each in natives.items() if each.is_floating_point()}
        sources = self.trained_natives() + [each.requires_grad_() for each in real.values()]
        self.model.train(training)
        with self.unmoved_states(self.model), _Functions(self):
            outputs = self.outputs(natives)
            total: Any = sum(
                torch.sum(output * torch.from_numpy(cotangent).to(self.device))
                for output, cotangent in zip(outputs.values(), cotangents)
                if output.is_floating_point()
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
            **input_gradients({name: arrays[id(each)] for name, each in real.items()}),
            states=moved,
        )


class _Functions(TorchFunctionMode):
    """While it lasts, dropout in the code of a model acts or does not, as the model is set."""

    def __init__(self, model: UserModule) -> None:
        super().__init__()
        self.model = model

    def __torch_function__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        if not self.model.drops and getattr(function, "__name__", "") in DROPOUT_FUNCTIONS:
            return args[0]
        return function(*args, **(kwargs or {}))


class _Watch(_Functions):
    """While it lasts, notes every call of the modules, and of functions in the code of those that
    hold others: ``relu()`` in a ``forward`` that somebody wrote."""

    def __init__(self, model: UserModule, requested: Sequence[str]) -> None:
        super().__init__(model)
        self.names, self.requested = model.names, set(requested)
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
        first, name = first_tensor(_padded(output)), self.names[module]
        # Packed sequences are padded with the batch first.
        packed = any(isinstance(each, nn.utils.rnn.PackedSequence) for each in inputs)
        steps_first = not packed and not getattr(module, "batch_first", True)
        self._note(name, name, inputs, first, steps_first, self.model.dropout(module))

    def __torch_function__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        result = super().__torch_function__(function, types, args, kwargs)
        name = getattr(function, "__name__", "__")
        inner = self._active[-1] if self._active and not self._noting else None
        if inner is not None and not name.startswith("__") and torch.is_tensor(result):
            written = next(inner.children(), None) is not None
            if written and result.is_floating_point():
                layer = self.names[inner]
                called = f"{layer}.{name.strip('_')}()".lstrip(".")
                self._note(called, layer, args, result, dropout=_dropped(name, args, kwargs or {}))
        return result

    def _note(
        self,
        name: str,
        layer: str,
        inputs: Any,
        output: Any,
        steps_first: bool = False,
        dropout: Dropout | None = None,
    ) -> None:
        """Note a call, with its values if the layer in whose code it was made is requested."""
        self._noting = True  # what is called here is not the model's
        call = LayerCall(name, None, None, dropout=dropout)
        if layer in self.requested:
            inputs = _padded(inputs)
            first, last = (_array(each, steps_first) for each in (first_tensor(inputs), output))
            others = filter(torch.is_tensor, other_tensors(inputs))
            arrays = tuple(_array(each, steps_first) for each in others)
            call = LayerCall(name, first, last, arrays, dropout)
        self._noting = False
        self.calls.append(call)


def _dropped(name: str, arguments: Sequence[Any], named: Mapping[str, Any]) -> Dropout | None:
    """What a call of a function drops."""
    given = {**dict(zip(("input", "p", "training"), arguments)), **named}
    rate = given.get("p", 0.5)
    acts = name in DROPOUT_FUNCTIONS and given.get("training", True) and rate
    return Dropout(rate, DROPOUT_FUNCTIONS[name]) if acts else None


def _of_type(table: Mapping[Any, Any], layer: nn.Module) -> Any:
    return next((entry for known, entry in table.items() if isinstance(layer, known)), None)


def _padded(value: Any) -> Any:
    """A value with packed sequences as they are with padding, [N, T, ...]."""
    if isinstance(value, nn.utils.rnn.PackedSequence):
        return nn.utils.rnn.pad_packed_sequence(value, batch_first=True)[0]
    if isinstance(value, Mapping):
        return {key: _padded(each) for key, each in value.items()}
    return [_padded(each) for each in value] if isinstance(value, (list, tuple)) else value


def _array(value: Any, steps_first: bool) -> np.ndarray | None:
    if not torch.is_tensor(value):
        return None
    array: np.ndarray = value.detach().cpu().numpy().copy()
    return array.swapaxes(0, 1) if steps_first and array.ndim == 3 else array
