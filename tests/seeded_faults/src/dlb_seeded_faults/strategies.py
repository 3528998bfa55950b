"""Faults of a strategy: what each does to one of torch's, and what must be said of it.

They are the shapes of public reports: a wrong divisor, a reduction that is missing or done twice, a parameter
left out, equal random numbers on all ranks, and shares that overlap.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.distributed as dist
import torch.distributed.rpc as rpc
from torch.nn.parallel import DistributedDataParallel

from dlb_torch.framework import local
from dlb_torch.model import norm
from dlb_torch.strategy import (
    SERVER,
    SHARED,
    DDPSession,
    FSDPSession,
    LocalSGDSession,
    ParameterServerSession,
    PipelineSession,
    TensorParallelSession,
)


class StrategyFault(NamedTuple):
    """A fault.

    Attributes:
        case: in which case of a strategy it must be found.
        says: a finding, of three workers.
        strategy: which one has it.
    """

    case: str
    says: str
    strategy: str = "ddp"


_ALL = "fc.weight, fc.bias, logits.weight, logits.bias on rank 0, 1, 2: gradients "
STRATEGY_FAULTS = {
    "divided by the workers again": StrategyFault(
        "equal_shares", f"{_ALL}are 0.333 times the mean: divided by the number of ranks once more"
    ),
    "summed": StrategyFault(
        "equal_shares", f"{_ALL}are 3 times the mean: added over 3 ranks and not divided"
    ),
    "not reduced": StrategyFault("equal_shares", f"{_ALL}are not added over the ranks"),
    "added twice": StrategyFault("equal_shares", f"{_ALL}are 2 times the mean: added twice"),
    "one parameter not reduced": StrategyFault(
        "equal_shares", "fc.bias on rank 0, 1, 2: gradients are not added over the ranks"
    ),
    "rank 0's gradients": StrategyFault(
        "unequal_shares",
        "fc.weight, fc.bias, logits.weight, logits.bias on rank 1, 2: gradients are those of rank 0",
    ),
    "equal masks": StrategyFault(
        "dropout",
        f"{_ALL}have the dropout masks of rank 0 on every rank",
    ),
    "shares overlap": StrategyFault(
        "equal_shares", "step 0: rank 1 trains on samples [1, 3] of the batch; its share is [2, 3]"
    ),
    "a part is not updated": StrategyFault(
        "equal_shares", "fc.weight on rank 1: the first step does not move them", "fsdp"
    ),
    "the part of the next rank": StrategyFault(
        "equal_shares",
        "fc.weight on rank 2: gradients are those of the part that rank 0 holds",
        "fsdp",
    ),
    "parts divided by the workers again": StrategyFault(
        "unequal_shares",
        f"{_ALL}are 0.333 times the mean: divided by the number of ranks once more",
        "fsdp",
    ),
    "one parameter not in parts": StrategyFault(
        "equal_shares", "fc.bias on rank 0, 1, 2: gradients are not added over the ranks", "fsdp"
    ),
    "a whole bias added over the workers": StrategyFault(
        "equal_shares",
        "logits.bias on rank 0, 1, 2: gradients are 3 times the mean: added over 3 ranks and not divided",
        "tensor_parallel",
    ),
    "outputs of parts not added": StrategyFault(
        "equal_shares", f"{_ALL}are not the mean over the ranks", "tensor_parallel"
    ),
    "columns are not updated": StrategyFault(
        "equal_shares",
        "logits.weight on rank 1: the first step does not move them",
        "tensor_parallel",
    ),
    "a share for each worker": StrategyFault(
        "equal_shares",
        "step 0: rank 1 trains on samples [2, 3] of the batch; its share is [0, 1, 2, 3, 4, 5]",
        "tensor_parallel",
    ),
    "micro-batches summed": StrategyFault(
        "equal_shares",
        "fc.weight, fc.bias on rank 0: gradients are 3 times the mean: added over 3 ranks and not divided",
        "pipeline",
    ),
    "the last micro-batch alone": StrategyFault(
        "equal_shares",
        "logits.weight, logits.bias on rank 2: gradients are not the mean over the ranks",
        "pipeline",
    ),
    "a stage is not updated": StrategyFault(
        "equal_shares",
        "logits.weight, logits.bias on rank 2: the first step does not move them",
        "pipeline",
    ),
    "masks of another micro-batch": StrategyFault(
        "dropout",
        "fc.weight, fc.bias on rank 0: gradients are not the mean over the ranks",
        "pipeline",
    ),
    "tied gradients not added": StrategyFault(
        "tied_weights",
        "table.weight on rank 0, 2: gradients are not the mean over the ranks",
        "pipeline",
    ),
    "the norm of the own stage": StrategyFault(
        "clip_binds", "fc.weight, fc.bias on rank 0: gradients are 2.21 times the mean", "pipeline"
    ),
    "averaged from the first step on": StrategyFault(
        "equal_shares", "logits.bias on rank 0 is not that of local SGD: 0.15 off", "local_sgd"
    ),
    "pushed twice": StrategyFault(
        "stale_gradients", "pushes of rank 1 count twice", "parameter_server"
    ),
    "a push is lost": StrategyFault(
        "stale_gradients", "push 0 of rank 2 counts for nothing", "parameter_server"
    ),
    "pulled before each step": StrategyFault(
        "stale_gradients",
        "gradients are those at the newest weights, not at those that the worker had pulled",
        "parameter_server",
    ),
    "the server forgets": StrategyFault(
        "equal_shares", "weights are not those of the schedule in NumPy", "parameter_server"
    ),
    "a free push is lost": StrategyFault(
        "every_push_counts", "fc.weight is not moved by the sum of all pushes", "parameter_server"
    ),
    "the norm of the own parts": StrategyFault(
        "clip_binds",
        "fc.weight, fc.bias, logits.weight, logits.bias on rank 0: gradients are 2.18 times the mean",
        "fsdp",
    ),
}

#: What the gradients are multiplied by after their mean was taken.
FACTORS: dict[str, Callable[[int], float]] = {
    "divided by the workers again": lambda workers: 1 / workers,
    "summed": float,
    "added twice": lambda workers: 2.0,
}


class FaultySession(DDPSession):
    """The session of the faulty adapter."""

    fault = ""

    def distribute(self, native: Any) -> Any:
        module, optimizer = native
        if self.fault == "not reduced":
            return module, optimizer
        if self.fault == "one parameter not reduced":
            DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(
                module, ["layers.layer_fc.bias"]
            )
        module, optimizer = super().distribute((module, optimizer))
        if self.fault in FACTORS or self.fault == "rank 0's gradients":
            # torch reads annotations, which are text here.
            module.register_comm_hook(None, lambda state, bucket: self.reduce(bucket))
        return module, optimizer

    def reduce(self, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
        """A communication hook: https://docs.pytorch.org/docs/stable/ddp_comm_hooks.html."""
        gradients = bucket.buffer()
        if self.fault in FACTORS:
            dist.all_reduce(gradients)
            gradients *= FACTORS[self.fault](self.workers) / self.workers
        else:
            dist.broadcast(gradients, 0)
        reduced: torch.futures.Future[torch.Tensor] = torch.futures.Future()
        reduced.set_result(gradients)
        return reduced


class FaultyParts(FSDPSession):
    """The session of the faulty adapter whose parameters are in parts."""

    fault = ""

    def distribute(self, native: Any) -> Any:
        from torch.distributed import fsdp

        module, optimizer = native
        right = fsdp.fully_shard
        if self.fault == "one parameter not in parts":
            ignored = {module.layers.layer_fc.bias}
            fsdp.fully_shard = partial(right, ignored_params=ignored)
        try:
            module, optimizer = super().distribute(native)
        finally:
            fsdp.fully_shard = right
        weight = module.layers.layer_fc.weight if "layer_fc" in module.layers else None
        if self.fault == "a part is not updated" and self.rank == 1:
            (group,) = optimizer.param_groups
            group["params"] = [each for each in group["params"] if each is not weight]
        elif self.fault == "the part of the next rank":
            weight.register_post_accumulate_grad_hook(self.exchange)
        elif self.fault == "parts divided by the workers again":
            for each in (module.layers.layer_fc, module.layers.layer_logits):
                each.set_gradient_divide_factor(self.workers**2)
        return module, optimizer

    def exchange(self, parameter: torch.Tensor) -> None:
        """Take the part of the next rank's gradient."""
        own = local(parameter.grad)
        parts = [torch.empty_like(own) for _ in range(self.workers)]
        dist.all_gather(parts, own)
        own.copy_(parts[(self.rank + 1) % self.workers])


class FaultyTensors(TensorParallelSession):
    """The session of the faulty adapter whose workers hold parts of linear layers."""

    fault = ""

    def divide(self, module: torch.nn.Module, mesh: Any) -> None:
        from torch.distributed.tensor.parallel import RowwiseParallel

        right = RowwiseParallel._prepare_output_fn
        if self.fault == "outputs of parts not added":

            def alone(layouts: Any, local_output: Any, module: Any, outputs: Any, mesh: Any) -> Any:
                return outputs.to_local()

            RowwiseParallel._prepare_output_fn = staticmethod(alone)
        try:
            super().divide(module, mesh)
        finally:
            RowwiseParallel._prepare_output_fn = staticmethod(right)

    def distribute(self, native: Any) -> Any:
        module, optimizer = super().distribute(native)
        logits = module.layers.layer_logits
        if self.fault == "a whole bias added over the workers":
            logits.bias.register_post_accumulate_grad_hook(
                lambda each: dist.all_reduce(local(each.grad))
            )
        elif self.fault == "columns are not updated" and self.rank == 1:
            (group,) = optimizer.param_groups
            group["params"] = [each for each in group["params"] if each is not logits.weight]
        return module, optimizer


class FaultyPipeline(PipelineSession):
    """The session of the faulty adapter whose workers hold stages."""

    fault = ""

    def distribute(self, native: Any) -> Any:
        pipeline, optimizer = super().distribute(native)
        right = pipeline._stage

        def stage(*described: Any) -> Any:
            made = right(*described)
            backward = made.backward_one_chunk

            def alone(*chunk: Any, **options: Any) -> None:
                for each in pipeline.stage.parameters():
                    each.grad = None
                backward(*chunk, **options)

            if self.fault == "micro-batches summed":
                made.scale_grads = lambda number: None
            elif self.fault == "the last micro-batch alone":
                made.backward_one_chunk = alone
            return made

        def swap(dropout: Any, inputs: Any) -> None:
            """Of three micro-batches of two samples, the first and the last one."""
            dropout.first = 4 - dropout.first

        pipeline._stage = stage
        if self.fault == "a stage is not updated" and self.rank == 2:
            for group in optimizer.param_groups:
                group["params"] = []
        elif self.fault == "masks of another micro-batch":
            for each in pipeline.stage.masked:
                each.register_forward_pre_hook(swap)
        elif self.fault == "tied gradients not added":
            pipeline.shared = []
        elif self.fault == "the norm of the own stage":
            pipeline.norm = norm
        return pipeline, optimizer


class FaultyAverages(LocalSGDSession):
    """The session of the faulty adapter whose workers average their parameters now and then."""

    fault = ""

    def distribute(self, native: Any) -> Any:
        module, optimizer = super().distribute(native)
        if self.fault == "averaged from the first step on":
            optimizer.averager.warmup_steps = 0
        return module, optimizer


def forget(model: int) -> None:
    """On the server, lose the optimizer's state."""
    SHARED[model].optimizer.state.clear()


class FaultyPushes(ParameterServerSession):
    """The session of the faulty adapter whose weights are on a server."""

    fault = ""

    def distribute(self, native: Any) -> Any:
        module, optimizer = super().distribute(native)
        right, first = optimizer.step, iter([True])

        def pull() -> None:
            """Get the weights, and push nothing."""
            kept = [each.grad for each in self.parameters]
            for each in self.parameters:
                each.grad = None
            right()
            for each, gradient in zip(self.parameters, kept):
                each.grad = gradient

        def step() -> None:
            lost = self.fault in ("a push is lost", "a free push is lost") and self.rank == 2
            (pull if lost and next(first, False) else right)()
            if self.fault == "pushed twice" and self.rank == 1:
                right()
            if self.fault == "the server forgets":
                rpc.rpc_sync(SERVER, forget, (self.models,))

        self.parameters = [each for group in optimizer.param_groups for each in group["params"]]
        optimizer.step = step
        if self.fault == "pulled before each step":
            module.register_forward_pre_hook(lambda module, inputs: pull())
        return module, optimizer


def with_equal_masks(request: Any) -> Any:
    """Each worker's masks begin with those of the first sample of all."""
    first = request.session.rank * request.batch_size
    masks = {name: np.roll(mask, first, 0) for name, mask in request.masks.items()}
    return dataclasses.replace(request, masks=masks)


def with_own_share(request: Any, rank: int) -> Any:
    """Each of three workers, which all need the whole batch, has a third of it."""
    return dataclasses.replace(request, order=np.array_split(request.order, 3, axis=1)[rank])


def with_overlap(request: Any, rank: int) -> Any:
    """Each worker's first sample is the last one of the worker before."""
    order = request.order.copy()
    order[:, 0] -= rank > 0
    return dataclasses.replace(request, order=order)
