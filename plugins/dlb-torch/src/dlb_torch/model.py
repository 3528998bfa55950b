"""A workload's model as a torch module, with its loss and optimizer."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from dlb_torch.compiled import check_inductor, compiled
from dlb_torch.framework import laid_out, local, whole
from dlb_torch.losses import mean_loss
from dlb_torch.modules import MaskedDropout, parameters_of, tied_linear
from dlb_torch.optimizers import make_optimizer, state_of
from dlb_torch.registry import LAYERS
from dlb_worker.contract import BuildRequest, Gradients
from dlb_worker.errors import UnsupportedError
from dlb_worker.layers import native_parameters
from dlb_worker.model import Model
from dlb_worker.native import BuiltModel, NativeModel, last_result
from dlb_worker.parameters import NativeParameter
from dlb_worker.parts import in_parts


class Network(nn.Module):
    """The workload's graph of modules, run in order."""

    def __init__(self, model: Model, masks: Mapping[str, Tensor]) -> None:
        super().__init__()
        self.source = model.input.name
        self.shapes = {self.source: model.input.shape, **{n.name: n.shape for n in model.nodes}}
        last_reader = {source: node.name for node in model.nodes for source in node.inputs}
        self.wiring = [
            (node.name, node.inputs, {s for s in node.inputs if last_reader[s] == node.name})
            for node in model.nodes
        ]
        # A ModuleDict takes no key that is an attribute of its own, such as "double" or "values".
        self.layers = nn.ModuleDict()
        for node in model.nodes:
            if node.name in masks:
                module: nn.Module = MaskedDropout(node.rate, masks[node.name])
            elif node.weights_of:
                module = self.layers[key(node.weights_of)]
            elif node.tied_to:
                module = tied_linear(node, self.layers[key(node.tied_to)])
            else:
                module = LAYERS[node.kind].build(node)
            self.layers[key(node.name)] = module

    def forward(self, inputs: Tensor, requested: Sequence[str] = ()) -> Any:
        """The logits; or the outputs of these layers, by name."""
        last = self.wiring[-1][0]
        values = self.values(inputs, requested or (last,))
        return values if requested else values[last]

    def values(self, inputs: Tensor, requested: Sequence[str]) -> dict[str, Tensor]:
        """The outputs of these layers, by name."""
        # Looked up once: a module's attribute that is a module costs as much as a small layer's call.
        return computed(self.layers, self.wiring, {self.source: inputs}, requested)


def computed(
    layers: nn.ModuleDict,
    wiring: Sequence[tuple[str, Sequence[str], set[str]]],
    values: dict[str, Tensor],
    requested: Sequence[str],
) -> dict[str, Tensor]:
    """Run layers in their order; the requested ones of the values, by name.

    Args:
        wiring: of each layer its name, what it reads, and what of that is read by no later one.
        values: what is there before. They are changed.
    """
    for name, sources, spent in wiring:
        values[name] = layers[key(name)](*[values[source] for source in sources])
        for source in spent:
            if source not in requested:
                del values[source]
    return {name: values[name] for name in requested}


def key(name: str) -> str:
    """What a layer is called among the network's modules."""
    return f"layer_{name}"


class TorchParameters(NativeModel):
    """A model whose parameters and states are tensors of a module."""

    def __init__(self, dtype: str, device: str) -> None:
        self.dtype = dtype
        self.type = getattr(torch, dtype)
        self.device = torch.device(device)

    def read(self, native: Tensor) -> np.ndarray:
        return local(native.detach()).cpu().numpy().copy()

    def write(self, native: Tensor, array: np.ndarray) -> None:
        with torch.no_grad():
            local(native).copy_(torch.from_numpy(array))

    def native(self, array: np.ndarray) -> Tensor:
        native = torch.from_numpy(np.array(array)).to(self.device)
        return native.to(self.type) if native.is_floating_point() else native

    @contextmanager
    def unmoved_states(self, module: nn.Module) -> Iterator[None]:
        """Give a module's states their values back, which a pass in training mode moves."""
        states = [(tensor, tensor.clone()) for tensor in module.buffers()]
        try:
            yield
        finally:
            with torch.no_grad():
                for tensor, before in states:
                    tensor.copy_(before)


class TorchModel(TorchParameters, BuiltModel):
    """A :class:`Network` with its optimizer, on its device.

    With ``precision`` bfloat16, passes run under torch.autocast: weights, their gradients and the optimizer
    stay in float32 (https://docs.pytorch.org/docs/stable/amp.html).

    ``run`` returns the logits, and ``values`` the values of layers: the network itself, or compiled,
    with the network's parameters. ``module`` is what steps run: ``run``, or what the strategy has
    made of it. If that has ``passes``, it takes both passes of a step itself, and is ``run`` as well.
    """

    def __init__(
        self, request: BuildRequest, *, compile: str, layout: str, precision: str = "full"
    ) -> None:
        super().__init__(request.dtype, request.device)
        if precision == "bfloat16" and request.dtype != "float32":
            raise UnsupportedError(
                f"precision=bfloat16 keeps weights in float32, not {request.dtype}"
            )
        if precision == "bfloat16" and any(n.kind == "lstm" for n in request.workload.model.nodes):
            check_bfloat16_lstm(self.device)
        # autocast takes microseconds even where it is switched off.
        self.autocast: AbstractContextManager[Any] = nullcontext()
        if precision == "bfloat16":
            self.autocast = torch.autocast(self.device.type, dtype=torch.bfloat16)
        self.workload = request.workload
        self.batch_size = request.batch_size
        self.share = request.share
        self.layout = layout
        self.compile = compile
        masks = {name: self.native(mask) for name, mask in request.masks.items()}
        self.network = Network(request.workload.model, masks).to(self.device, self.type)
        for tensor in (*self.network.parameters(), *self.network.buffers()):
            tensor.data = laid_out(tensor.data, layout)
        self.parameters = self._parameters()
        self.load_weights(request.weights)
        described = request.workload.optimizer
        self.optimizer = make_optimizer(
            described,
            [p for p in self.network.parameters() if p.requires_grad],
            self.undecayed_natives(described),
        )
        for parameter in self._unreached():
            parameter.requires_grad_(False)
        self.run: nn.Module = self.network
        self.values: Any = self.network
        if compile == "inductor":
            check_inductor(self.device)
            self.run, self.values = compiled(self.network), compiled(self.network.values)
        self.module = self.run
        if request.session is not None:
            self.module, self.optimizer = request.session.distribute((self.run, self.optimizer))
            # A strategy may put its own in the place of parameters.
            self.parameters = self._parameters()
        self.is_pipeline = hasattr(self.module, "passes")
        if self.is_pipeline:
            self.run, self.values = self.module, self.module.values
            self.module.parts = described.accumulate
        self.unreached = self._unreached()

    def _parameters(self) -> list[NativeParameter]:
        modules = self.network.layers
        return native_parameters(
            self.workload.model, LAYERS, lambda node: parameters_of(modules[key(node.name)])
        )

    def _unreached(self) -> list[nn.Parameter]:
        """Those that no gradient reaches.

        Without one, a parameter would be left out of weight decay, and DistributedDataParallel would wait.
        """
        modules = (self.network.layers[key(name)] for name in self.workload.model.unreached)
        return [parameter for module in modules for parameter in module.parameters()]

    def native(self, array: np.ndarray) -> Tensor:
        return laid_out(super().native(array), self.layout)

    def real(self, value: Tensor) -> Tensor:
        """A layer's value in the model's dtype; under autocast it may have another."""
        return value.to(self.type) if value.is_floating_point() else value

    def read_batch(self, inputs: Tensor, labels: Tensor) -> tuple[np.ndarray, np.ndarray]:
        return self.read(inputs), self.read(labels)

    def slots(self, native: Tensor) -> dict[str, np.ndarray]:
        state = state_of(self.optimizer, self.workload.optimizer, native)
        return {slot: self.read(tensor) for slot, tensor in state.items()}

    def forward(
        self, inputs: np.ndarray, *, training: bool = False, layers: Sequence[str] = ()
    ) -> dict[str, np.ndarray]:
        names = (*layers, self.workload.model.last)
        self.network.train(training)
        with self.unmoved_states(self.network), torch.no_grad(), self.autocast:
            native = self.native(inputs)
            values = self.values(native, names) if layers else {names[0]: self.run(native)}
        self.network.train()
        return {name: self.real(whole(values[name])).cpu().numpy() for name in names}

    def gradients(self, inputs: np.ndarray, labels: np.ndarray) -> Gradients:
        native = self.native(inputs)
        native.requires_grad_(native.is_floating_point())
        sources = [each for each in self.trained_natives() if each.requires_grad]
        sources += [native] * native.requires_grad
        self.network.train()
        with self.unmoved_states(self.network):
            loss, found = self._differentiate(native, self.native(labels), sources)
        gradients = dict(zip(map(id, sources), found))

        def gradient(native: Tensor) -> np.ndarray:
            return self.read(gradients.get(id(native), torch.zeros_like(native)))

        return Gradients(
            loss=self.read(loss),
            parameters=self.gather(gradient),
            inputs=self.read(gradients[id(native)]) if native.requires_grad else None,
        )

    def _loss(self, outputs: Tensor, labels: Tensor) -> Tensor:
        return mean_loss(outputs, labels, self.workload.loss)

    def _differentiate(
        self, inputs: Tensor, labels: Tensor, sources: Sequence[Tensor]
    ) -> tuple[Tensor, Sequence[Tensor]]:
        """The loss of a batch, and its gradients; 0 where there is none."""
        if not self.is_pipeline:
            with self.autocast:
                loss = self._loss(self.run(inputs), labels)
            if not any(hasattr(each, "to_local") for each in sources):
                return loss, torch.autograd.grad(
                    loss, sources, allow_unused=True, materialize_grads=True
                )
        self.optimizer.zero_grad()
        if self.is_pipeline:
            with self.autocast:
                loss = self.module.passes(inputs, labels, self._loss, count=1)
        else:  # what the loss is computed from are not the parts that this process holds
            loss.backward()
        found = [torch.zeros_like(e) if e.grad is None else e.grad for e in sources]
        self.optimizer.zero_grad()
        return loss, found

    def set_learning_rate(self, learning_rate: float) -> None:
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate

    def train_step(self, inputs: Tensor, labels: Tensor) -> Tensor:
        if not self.is_pipeline:
            return last_result(self.step_phases(inputs, labels))
        self.optimizer.zero_grad()
        with self.autocast:
            loss: Tensor = self.module.passes(inputs, labels, self._loss)
        self._update()
        return loss

    def step_phases(self, inputs: Tensor, labels: Tensor) -> Iterator[tuple[str, Tensor]]:
        if self.is_pipeline:
            raise UnsupportedError("stages of a pipeline are in several phases at once")
        parts = self.workload.optimizer.accumulate
        losses = []
        self.optimizer.zero_grad()
        for number, (part, targets) in enumerate(in_parts(parts, inputs, labels), 1):
            # DistributedDataParallel has the workers exchange gradients once, with the last part.
            waits = getattr(self.module, "no_sync", nullcontext) if number < parts else nullcontext
            with waits():
                with self.autocast:
                    loss = self._loss(self.module(part), targets)
                yield "forward", loss
                weight = self.share / parts
                (loss if weight == 1 else loss * weight).backward()
            yield "backward", loss
            losses.append(loss.detach())
        self._update()
        yield "update", torch.stack(losses).mean() if parts > 1 else losses[0]

    def _update(self) -> None:
        """Limit gradients, and take a step of the optimizer."""
        described = self.workload.optimizer
        for parameter in self.unreached:
            parameter.grad = torch.zeros_like(parameter)
        if described.clip_norm:
            of_stages = {"norm": self.module.norm} if self.is_pipeline else {}
            clip([*self.network.parameters()], described.clip_norm, **of_stages)
        if described.clip_value:
            nn.utils.clip_grad_value_(self.network.parameters(), described.clip_value)
        if described.clip_variable_norm:
            for each in self.parameters:
                if each.trained:
                    clip(each.natives, described.clip_variable_norm)
        self.optimizer.step()

    def load_masks(self, masks: Mapping[str, np.ndarray]) -> None:
        for name, mask in masks.items():
            self.network.layers[key(name)].mask.copy_(self.native(mask))

    def seed_dropout(self, seed: int) -> None:
        if self.compile == "inductor":
            raise UnsupportedError("inductor's dropout draws other masks in a forward pass alone")
        torch.manual_seed(seed)

    def describe_layers(self) -> dict[str, str]:
        return {name: repr(self.network.layers[key(name)]) for name, *_ in self.network.wiring}


@lru_cache
def check_bfloat16_lstm(device: torch.device) -> None:
    """Run a small LSTM in bfloat16.

    Raises:
        UnsupportedError: there is no kernel for it, as of oneDNN on most processors.
    """
    try:
        with torch.autocast(device.type, dtype=torch.bfloat16), torch.no_grad():
            nn.LSTM(4, 4, batch_first=True, device=device)(torch.zeros(1, 2, 4, device=device))
    except RuntimeError as error:
        raise UnsupportedError(
            f"torch has no LSTM in bfloat16 on this {device.type} ({str(error).splitlines()[0][:80]}); leave "
            "out --variant precision=bfloat16"
        ) from error


def norm(parameters: Sequence[Tensor]) -> Tensor:
    """The norm of the gradients of parameters together; 0 if there are none."""
    gradients = [each.grad for each in parameters if each.grad is not None]
    rows = [
        whole(torch.linalg.vector_norm(each.flatten(1), dim=1) if each.ndim > 1 else each)
        for each in gradients
    ]
    return torch.linalg.vector_norm(torch.cat(rows)) if rows else torch.zeros(())


def clip(
    parameters: Sequence[Tensor],
    limit: float,
    norm: Callable[[Sequence[Tensor]], Tensor] = norm,
) -> None:
    """Bring the gradients of parameters down to a norm of all together.

    torch's clip_grad_norm_ divides by the norm plus 1e-6, and adds the squares of a tensor up at once:
    in float32, of an embedding's gradient of a million numbers, 1e-4 off. By rows it is 1e-6.
    """
    scale = limit / norm(parameters).clamp(min=limit)
    for each in parameters:
        if each.grad is not None:
            local(each.grad).mul_(scale)
