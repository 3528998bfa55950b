"""A workload's model as a torch module, with its loss and optimizer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dlb_torch.compiled import check_inductor, compiled
from dlb_torch.framework import MEMORY_FORMATS
from dlb_torch.modules import MaskedDropout, parameters_of, tied_linear
from dlb_torch.registry import LAYERS
from dlb_worker.contract import BuildRequest, Gradients
from dlb_worker.layers import native_parameters
from dlb_worker.model import Loss, Model, Optimizer
from dlb_worker.native import BuiltModel

#: torch's names for what an optimizer keeps.
SLOTS = {"momentum_buffer": "velocity", "exp_avg": "m", "exp_avg_sq": "v"}


class Network(nn.Module):
    """The workload's graph of modules, run in order."""

    def __init__(self, model: Model, masks: Mapping[str, Tensor]) -> None:
        super().__init__()
        self.source = model.input.name
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
            elif node.tied_to:
                module = tied_linear(node, self.layers[key(node.tied_to)])
            else:
                module = LAYERS[node.kind].build(node)
            self.layers[key(node.name)] = module

    def forward(self, inputs: Tensor) -> Tensor:
        last = self.wiring[-1][0]
        return self.values(inputs, (last,))[last]

    def values(self, inputs: Tensor, wanted: Sequence[str]) -> dict[str, Tensor]:
        """The outputs of these layers, by name."""
        # Looked up once: a module's attribute that is a module costs as much as a small layer's call.
        values, layers = {self.source: inputs}, self.layers
        for name, sources, spent in self.wiring:
            values[name] = layers[key(name)](*[values[source] for source in sources])
            for source in spent:
                if source not in wanted:
                    del values[source]
        return {name: values[name] for name in wanted}


def key(name: str) -> str:
    """What a layer is called among the network's modules."""
    return f"layer_{name}"


class TorchModel(BuiltModel):
    """A :class:`Network` with its optimizer, on its device.

    ``run`` gives the logits, ``values`` the values of layers: the network itself, or compiled,
    with the network's parameters. ``module`` is what steps run: ``run``, or what the strategy has
    made of it.
    """

    def __init__(self, request: BuildRequest, *, compile: str, layout: str) -> None:
        self.workload = request.workload
        self.batch_size = request.batch_size
        self.dtype = request.dtype
        self.type = getattr(torch, request.dtype)
        self.device = torch.device(request.device)
        self.memory_format = MEMORY_FORMATS[layout]
        masks = {name: self._native(mask) for name, mask in request.masks.items()}
        self.network = Network(request.workload.model, masks).to(self.device, self.type)
        self.network.to(memory_format=self.memory_format)
        self.parameters = native_parameters(
            request.workload.model,
            LAYERS,
            lambda node: parameters_of(self.network.layers[key(node.name)]),
        )
        self.load_weights(request.weights)
        self.optimizer = make_optimizer(
            request.workload.optimizer, [p for p in self.network.parameters() if p.requires_grad]
        )
        self.run: nn.Module = self.network
        self.values = self.network.values
        if compile == "inductor":
            check_inductor(self.device)
            self.run, self.values = compiled(self.network), compiled(self.network.values)
        self.module = self.run
        if request.session is not None:
            self.module, self.optimizer = request.session.distribute((self.run, self.optimizer))

    def read(self, native: Tensor) -> np.ndarray:
        return native.detach().cpu().numpy().copy()

    def write(self, native: Tensor, array: np.ndarray) -> None:
        with torch.no_grad():
            native.copy_(torch.from_numpy(array))

    def slots(self, native: Tensor) -> dict[str, np.ndarray]:
        state = self.optimizer.state.get(native, {})
        return {
            SLOTS[each]: self.read(state[each]) for each in SLOTS if state.get(each) is not None
        }

    def forward(
        self, inputs: np.ndarray, *, training: bool = False, layers: Sequence[str] = ()
    ) -> dict[str, np.ndarray]:
        names = (*layers, self.workload.model.last)
        states = self._states()
        self.network.train(training)
        with torch.no_grad():
            native = self._native(inputs)
            values = self.values(native, names) if layers else {names[0]: self.run(native)}
            for tensor, kept in states:
                tensor.copy_(kept)
        self.network.train()
        return {name: values[name].cpu().numpy() for name in names}

    def gradients(self, inputs: np.ndarray, labels: np.ndarray) -> Gradients:
        states = self._states()
        native = self._native(inputs)
        native.requires_grad_(native.is_floating_point())
        self.network.train()
        loss = mean_loss(
            self.run(native), torch.from_numpy(labels).to(self.device), self.workload.loss
        )
        sources = [each.natives[0] for each in self.parameters if each.trained]
        sources += [native] if native.requires_grad else []
        found = dict(zip(map(id, sources), torch.autograd.grad(loss, sources)))
        with torch.no_grad():
            for tensor, kept in states:
                tensor.copy_(kept)
        return Gradients(
            loss=loss.detach().cpu().numpy(),
            parameters=self.gather(lambda tensor: found[id(tensor)].cpu().numpy()),
            inputs=found[id(native)].cpu().numpy() if native.requires_grad else None,
        )

    def set_learning_rate(self, learning_rate: float) -> None:
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate

    def train_step(self, inputs: Tensor, labels: Tensor) -> Tensor:
        loss = mean_loss(self.module(inputs), labels, self.workload.loss)
        self.optimizer.zero_grad()
        loss.backward()
        if self.workload.optimizer.clip_norm:
            clip(self.network, self.workload.optimizer.clip_norm)
        self.optimizer.step()
        return loss.detach()

    def describe_layers(self) -> dict[str, str]:
        return {name: repr(self.network.layers[key(name)]) for name, *_ in self.network.wiring}

    def _native(self, inputs: np.ndarray) -> Tensor:
        native = torch.from_numpy(np.ascontiguousarray(inputs)).to(self.device)
        native = native.to(self.type) if native.is_floating_point() else native
        return native.to(memory_format=self.memory_format) if native.ndim == 4 else native

    def _states(self) -> list[tuple[Tensor, Tensor]]:
        """Tensors that a pass in training mode moves, with their values."""
        return [(tensor, tensor.clone()) for tensor in self.network.buffers()]


def mean_loss(logits: Tensor, labels: Tensor, loss: Loss) -> Tensor:
    """Mean softmax cross-entropy; logits [N, C], or [N, T, C] with labels [N, T]."""
    return F.cross_entropy(
        logits.flatten(0, -2), labels.flatten(), label_smoothing=loss.label_smoothing
    )


def clip(network: nn.Module, limit: float) -> None:
    """Bring gradients down to a norm.

    torch's clip_grad_norm_ divides by the norm plus 1e-6, and adds the squares of a tensor up at once:
    in float32, of an embedding's gradient of a million numbers, 1e-4 off. By rows it is 1e-6.
    """
    gradients = [each.grad for each in network.parameters() if each.grad is not None]
    rows = [
        torch.linalg.vector_norm(each.flatten(1), dim=1) if each.ndim > 1 else each
        for each in gradients
    ]
    scale = limit / torch.linalg.vector_norm(torch.cat(rows)).clamp(min=limit)
    for gradient in gradients:
        gradient.mul_(scale)


def make_optimizer(optimizer: Optimizer, parameters: list[Tensor]) -> torch.optim.Optimizer:
    """torch's optimizers are as the workload defines them: see dlb.workload.SGD.

    A group may be empty, where torch refuses an empty list: a model may have nothing to train.
    """
    groups = [{"params": parameters}]
    if optimizer.kind == "adam":
        return torch.optim.Adam(
            groups,
            lr=optimizer.learning_rate,
            betas=(optimizer.beta1, optimizer.beta2),
            eps=optimizer.epsilon,
            weight_decay=optimizer.weight_decay,
        )
    return torch.optim.SGD(
        groups,
        lr=optimizer.learning_rate,
        momentum=optimizer.momentum,
        # Without momentum the two are one, and torch refuses the second name for it.
        nesterov=optimizer.nesterov and optimizer.momentum > 0,
        weight_decay=optimizer.weight_decay,
    )
