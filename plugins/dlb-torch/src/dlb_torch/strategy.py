"""torch's distributed strategies, each by torch's own means."""

from __future__ import annotations

import os
import socket
import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from itertools import pairwise
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
import torch.distributed.rpc as rpc
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.weak import WeakTensorKeyDictionary

from dlb_torch.framework import local
from dlb_torch.model import Network
from dlb_torch.plugin import PERIOD
from dlb_worker.errors import UnsupportedError
from dlb_worker.native import StrategySession
from dlb_worker.placement import Placement

#: Longer than the supervisor waits for a dead or stuck peer, so that it is the one to decide.
TIMEOUT = timedelta(minutes=10)
#: Asks Linux for the address of an interface: netdevice(7).
SIOCGIFADDR = 0x8915
#: What workers call the process that holds the weights.
SERVER = "server"


class DDPSession(StrategySession):
    """DistributedDataParallel: https://docs.pytorch.org/docs/stable/notes/ddp.html.

    ``distribute`` takes (module, optimizer) and returns (wrapped module, optimizer).

    DistributedDataParallel averages gradients over workers. The model multiplies its loss by
    ``BuildRequest.share``, so the mean of the workers' means is the global mean.
    """

    def __init__(self, rank: int, workers: int) -> None:
        self.rank, self.workers = rank, workers
        backend = os.environ["DLB_TORCH_BACKEND"]
        if backend == "nccl":
            torch.cuda.set_device(int(os.environ["LOCAL_RANK"]) % torch.cuda.device_count())
        # Otherwise gloo takes the address of the host's name, which other hosts may not reach.
        interface = interface_of(os.environ["DLB_TORCH_ADDRESS"])
        if interface:
            os.environ.setdefault(f"{backend.upper()}_SOCKET_IFNAME", interface)
        dist.init_process_group(
            backend, init_method="env://", rank=rank, world_size=workers, timeout=TIMEOUT
        )

    def distribute(self, native: Any) -> Any:
        module, optimizer = native
        return DistributedDataParallel(module), optimizer

    def gradient_after_reduction(self, native: torch.Tensor) -> np.ndarray:
        gradient = torch.zeros_like(native) if native.grad is None else native.grad
        return local(gradient).cpu().numpy().copy()

    def leave(self) -> None:
        dist.destroy_process_group()


def interface_of(address: str) -> str:
    """The network interface that has an IPv4 address; empty if none has it, or the system does not tell."""
    import fcntl

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        for _, name in socket.if_nameindex():
            # An interface without an address is an error; the answer has it after the name and its family.
            with suppress(OSError):
                answer = fcntl.ioctl(asking, SIOCGIFADDR, name.encode().ljust(256, b"\0"))
                if socket.inet_ntoa(answer[20:24]) == address:
                    return name
    return ""


def check_plain(module: nn.Module, strategy: str) -> None:
    """Raises UnsupportedError if a module is compiled, and its layers are out of sight."""
    # A compiled module has the attributes of that in it.
    if not isinstance(module, Network):
        raise UnsupportedError(
            f"strategy '{strategy}' takes no compiled module; leave out --variant"
        )


class PartsSession(DDPSession):
    """Workers that hold parts of parameters, as DTensors in the place of those of a network."""

    strategy = ""

    def distribute(self, native: Any) -> Any:
        from torch.distributed.device_mesh import init_device_mesh

        module, optimizer = native
        check_plain(module, self.strategy)
        device = "cuda" if os.environ["DLB_TORCH_BACKEND"] == "nccl" else "cpu"
        names = {id(each): name for name, each in module.named_parameters()}
        self.divide(module, init_device_mesh(device, (self.workers,)))
        parts = dict(module.named_parameters())
        for group in optimizer.param_groups:
            group["params"] = [parts[names[id(each)]] for each in group["params"]]
        if optimizer.state:
            raise UnsupportedError(
                f"strategy '{self.strategy}' takes no optimizer that has state before its first step"
            )
        return module, optimizer

    def divide(self, module: torch.nn.Module, mesh: Any) -> None:
        """Put DTensors in the place of parameters."""
        raise NotImplementedError

    def placement(self, native: torch.Tensor) -> Placement | None:
        from torch.distributed.tensor import DTensor, Partial
        from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

        if not isinstance(native, DTensor):
            return None
        sizes, starts = compute_local_shape_and_global_offset(
            native.shape, native.device_mesh, native.placements
        )
        part = tuple(slice(start, start + size) for start, size in zip(starts, sizes))
        partial = any(isinstance(each, Partial) for each in native.placements)
        return Placement(tuple(native.shape), part, partial)


class FSDPSession(PartsSession):
    """fully_shard: https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html.

    Each layer is a group of its own, and what several layers share is in the whole network's.
    """

    strategy = "fsdp"

    def divide(self, module: torch.nn.Module, mesh: Any) -> None:
        from torch.distributed.fsdp import fully_shard

        layers = list(module.layers.values())
        owners = owners_of(layers)
        for layer in layers:
            own = [owners[id(each)] for each in layer.parameters()]
            if own and max(own) == 1:
                fully_shard(layer, mesh=mesh)
        # Left whole after a pass, parameters would hide what is written to their parts.
        fully_shard(module, mesh=mesh, reshard_after_forward=True)

        @contextmanager
        def no_sync() -> Iterator[None]:
            module.set_requires_gradient_sync(False)
            try:
                yield
            finally:
                module.set_requires_gradient_sync(True)

        module.no_sync = no_sync


#: What leaves numbers where they are, so that a layer may take part of them.
ELEMENTWISE = (nn.ReLU, nn.Tanh, nn.Sigmoid, nn.GELU, nn.SiLU, nn.ELU, nn.LeakyReLU, nn.Softplus)


class TensorParallelSession(PartsSession):
    """parallelize_module: https://docs.pytorch.org/docs/stable/distributed.tensor.parallel.html.

    Every worker has the whole batch, and a part of the weight of each linear layer. Of two of them with nothing
    but functions of single numbers between, the first computes a part of its outputs and the second takes
    it; any other computes a part, and gathers the whole. Layers that share their weight stay whole.
    """

    strategy = "tensor_parallel"

    def divide(self, module: torch.nn.Module, mesh: Any) -> None:
        from torch.distributed.tensor import Replicate
        from torch.distributed.tensor.parallel import (
            ColwiseParallel,
            RowwiseParallel,
            parallelize_module,
        )

        layers = {name: module.layers[f"layer_{name}"] for name, *_ in module.wiring}
        owners = owners_of(layers.values())
        readers: dict[str, list[str]] = {name: [] for name in (module.source, *layers)}
        for name, sources, _ in module.wiring:
            for source in sources:
                readers[source].append(name)

        def divides(name: str) -> bool:
            layer = layers[name]
            own = [owners[id(each)] for each in layer.parameters()]
            return isinstance(layer, nn.Linear) and max(own) == 1

        styles: dict[str, Any] = {}
        for name in filter(divides, layers):
            if name in styles:
                continue
            after, last = readers[name], ""
            while len(after) == 1 and isinstance(layers[after[0]], ELEMENTWISE):
                after = readers[after[0]]
            if len(after) == 1 and divides(after[0]) and after[0] not in styles:
                last = after[0]
                styles[last] = RowwiseParallel()
            whole = {} if last else {"output_layouts": Replicate()}
            styles[name] = ColwiseParallel(use_local_output=not last, **whole)
        parallelize_module(module, mesh, {f"layers.layer_{n}": s for n, s in styles.items()})


def owners_of(layers: Iterable[nn.Module]) -> Counter[int]:
    """In how many layers each parameter is."""
    return Counter(id(each) for layer in layers for each in layer.parameters())


class PipelineSession(DDPSession):
    """See :mod:`dlb_torch.pipeline`, of which ``distribute`` returns the module.

    Parameters of other stages are left without an element, and without an optimizer.
    """

    def __init__(self, rank: int, workers: int) -> None:
        super().__init__(rank, workers)
        self.shapes = WeakTensorKeyDictionary()

    def distribute(self, native: Any) -> Any:
        from dlb_torch.pipeline import Pipeline

        module, optimizer = native
        check_plain(module, "pipeline")
        if len(module.wiring) < self.workers:
            raise UnsupportedError(
                f"strategy 'pipeline' has no layer for each of {self.workers} workers; take at most "
                f"{len(module.wiring)}"
            )
        pipeline = Pipeline(module, self.rank, self.workers)
        for each, (shape, stages) in pipeline.places.items():
            self.shapes[each] = shape
            if self.rank not in stages:
                optimizer.state.pop(each, None)
        for group in optimizer.param_groups:
            group["params"] = [e for e in group["params"] if self.rank in pipeline.places[e][1]]
        return pipeline, optimizer

    def placement(self, native: torch.Tensor) -> Placement | None:
        shape = self.shapes.get(native)
        if shape is None:
            return None
        return Placement(tuple(shape), () if native.shape == shape else (slice(0),))


class LocalSGDSession(DDPSession):
    """Post-local SGD without a warm-up: https://docs.pytorch.org/docs/stable/distributed.algorithms.html.

    Each worker steps by its own gradients. Now and then torch's averager takes the mean of parameters.
    """

    def distribute(self, native: Any) -> Any:
        from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager
        from torch.distributed.optim import PostLocalSGDOptimizer

        module, optimizer = native
        # The averager counts from 0, and would average after the first step.
        averager = PeriodicModelAverager(PERIOD, warmup_steps=PERIOD - 1)
        return module, PostLocalSGDOptimizer(optimizer, averager)


class Shared:
    """A model's weights on the server, with the optimizer that every push moves them by."""

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self.optimizer, self.pushes, self.lock = optimizer, 0, threading.Lock()

    def push(
        self, gradients: Sequence[torch.Tensor | None], rates: Sequence[float]
    ) -> tuple[int, list[torch.Tensor]]:
        """Take a step; how many there were so far, and the weights after it."""
        with self.lock:
            for each, gradient in zip(_parameters(self.optimizer), gradients):
                each.grad = gradient
            for group, rate in zip(self.optimizer.param_groups, rates):
                group["lr"] = rate
            self.optimizer.step()
            self.pushes += 1
            return self.pushes, [each.detach().clone() for each in _parameters(self.optimizer)]


#: On the server, by the number of the model.
SHARED: dict[int, Shared] = {}
_SHARING = threading.Lock()


def share(model: int, optimizer: torch.optim.Optimizer) -> None:
    """Have the server hold a model. All workers ask for it, with the same weights; the first one's are kept."""
    with _SHARING:
        if model not in SHARED:
            SHARED[model] = Shared(optimizer)


def push(model: int, *what: Any) -> tuple[int, list[torch.Tensor]]:
    """See :class:`Shared`."""
    return SHARED[model].push(*what)


def _parameters(optimizer: Any) -> list[torch.Tensor]:
    return [each for group in optimizer.param_groups for each in group["params"]]


def join_rpc(name: str, rank: int, workers: int) -> None:
    """Meet the workers and the server, which has the last rank."""
    interface = interface_of(os.environ["DLB_TORCH_ADDRESS"])
    for carrier in ("TP", "GLOO") if interface else ():
        os.environ.setdefault(f"{carrier}_SOCKET_IFNAME", interface)
    options = rpc.TensorPipeRpcBackendOptions(
        init_method="env://", rpc_timeout=TIMEOUT.total_seconds()
    )
    rpc.init_rpc(name, rank=rank, world_size=workers + 1, rpc_backend_options=options)


def serve_parameters() -> None:
    """Be the server until all workers have left."""
    workers = int(os.environ["DLB_TORCH_WORKERS"])
    join_rpc(SERVER, workers, workers)
    rpc.shutdown()


class PushingOptimizer:
    """An optimizer whose steps the server takes; its state stays there.

    Attributes:
        counts: how many pushes the server had had after each of this worker's.
    """

    def __init__(self, optimizer: torch.optim.Optimizer, model: int) -> None:
        self.param_groups, self.zero_grad = optimizer.param_groups, optimizer.zero_grad
        self.state: dict[Any, Any] = {}
        self.model, self.counts = model, [0]
        rpc.rpc_sync(SERVER, share, (model, optimizer))

    def step(self) -> None:
        parameters = _parameters(self)
        rates = [group["lr"] for group in self.param_groups]
        gradients = [each.grad for each in parameters]
        count, weights = rpc.rpc_sync(SERVER, push, (self.model, gradients, rates))
        self.counts.append(count)
        with torch.no_grad():
            for each, weight in zip(parameters, weights):
                each.copy_(weight)


class ParameterServerSession(DDPSession):
    """Each worker pushes its gradients, and gets the weights after that: https://docs.pytorch.org/docs/stable/rpc.html."""

    def __init__(self, rank: int, workers: int) -> None:
        self.rank, self.workers, self.models = rank, workers, 0
        join_rpc(f"worker{rank}", rank, workers)

    def distribute(self, native: Any) -> Any:
        module, optimizer = native
        self.models += 1
        self.optimizer = PushingOptimizer(optimizer, self.models)
        return module, self.optimizer

    def staleness(self) -> list[int]:
        counts = self.optimizer.counts
        return [after - before - 1 for before, after in pairwise(counts)]

    def leave(self) -> None:
        rpc.shutdown()
