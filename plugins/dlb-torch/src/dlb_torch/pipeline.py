"""A network in stages, of which each worker holds one: torch.distributed.pipelining.

https://docs.pytorch.org/docs/stable/distributed.pipelining.html
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe

from dlb_torch.model import Network, computed, key, norm
from dlb_torch.modules import MaskedDropout

LossFunction = Callable[[Tensor, Tensor], Tensor]


class Stage(nn.Module):
    """Neighbouring layers of a network. Values that later stages read pass through.

    Attributes:
        takes, gives: names of the values that come in, and that go on.
        requested: layers whose values are kept, in ``kept``, by name; a value of each micro-batch.
        row: of the dropout masks, that the next micro-batch begins with; None if each begins with the first.
    """

    def __init__(
        self,
        network: Network,
        dtype: torch.dtype,
        wiring: Sequence[Any],
        takes: Sequence[str],
        gives: Sequence[str],
    ) -> None:
        super().__init__()
        self.source, self.dtype = network.source, dtype
        self.wiring, self.takes, self.gives = wiring, takes, gives
        self.layers = nn.ModuleDict({key(n): network.layers[key(n)] for n, *_ in wiring})
        self.masked = [each for each in self.layers.values() if isinstance(each, MaskedDropout)]
        self.requested: Sequence[str] = ()
        self.kept: dict[str, list[Tensor]] = {}
        self.row: int | None = None

    def forward(self, *inputs: Tensor) -> Any:
        for each in self.masked:
            each.first = self.row or 0
        if self.row is not None:
            self.row += len(inputs[0])
        own = [name for name in self.requested if key(name) in self.layers]
        given = dict(zip(self.takes, inputs))
        values = computed(self.layers, self.wiring, given, (*self.gives, *own))
        for name in own:
            self.kept.setdefault(name, []).append(values[name])
        on = [values[name].contiguous() for name in self.gives]
        # Those of layers are of one type, also under autocast and for a comparison.
        on = [v if n == self.source else v.to(self.dtype) for n, v in zip(self.gives, on)]
        return tuple(on) if len(on) > 1 else on[0]


class Pipeline(nn.Module):
    """The stage of this worker. All workers call its methods at once, with the same batch.

    A step takes its batch in micro-batches of one size: as many as the workload takes parts, or else the
    largest number that divides it and is at most that of the workers. If every worker can be busy with one, the
    schedule is 1F1B, which keeps fewer values than GPipe; torch has it for no smaller number.

    Attributes:
        places: of every parameter and state, its shape and the stages that hold it. Elsewhere it is empty.
        parts: how many parts the workload takes a batch in.
    """

    def __init__(self, network: Network, rank: int, workers: int) -> None:
        super().__init__()
        self.network, self.rank, self.workers, self.parts = network, rank, workers, 1
        first = next(network.parameters(), torch.zeros(0))
        self.dtype, self.device = first.dtype, first.device
        wiring, layers = network.wiring, network.layers
        sizes = [1 + sum(p.numel() for p in layers[key(n)].parameters()) for n, *_ in wiring]
        ends = cut(sizes, workers)
        runs = [wiring[begin:end] for begin, end in zip([0, *ends], [*ends, len(wiring)])]
        #: The stage that computes each value; and the last that reads it.
        self.owners, read = {network.source: -1}, {}
        self.places: dict[Tensor, tuple[torch.Size, list[int]]] = {}
        for stage, run in enumerate(runs):
            for name, sources, _ in run:
                self.owners[name] = stage
                read.update(dict.fromkeys(sources, stage))
                layer = layers[key(name)]
                for each in (*layer.parameters(), *layer.buffers()):
                    stages = self.places.setdefault(each, (each.shape, []))[1]
                    stages += [stage] * (stage not in stages)
        takes = [
            [name for name, owner in self.owners.items() if owner < stage <= read.get(name, -1)]
            for stage in range(workers)
        ]
        takes.append([wiring[-1][0]])
        self.stage = Stage(network, self.dtype, runs[rank], takes[rank], takes[rank + 1])
        for each, (shape, stages) in self.places.items():
            if rank not in stages:
                each.data = each.data.new_empty((0, *shape[1:]))
        #: Parameters of several stages, with the group of those. One of them counts each in a norm.
        self.shared = [
            (each, group_of(*stages))
            for each, (_, stages) in self.places.items()
            if len(stages) > 1 and each.requires_grad
        ]
        self.counted = {p for p, (_, stages) in self.places.items() if stages[0] == rank}
        self._steps: tuple[Any, Any] = ((), None)

    def forward(self, inputs: Tensor) -> Tensor:
        """The logits."""
        last = self.network.wiring[-1][0]
        return self.values(inputs, (last,))[last]

    def values(self, inputs: Tensor, requested: Sequence[str]) -> dict[str, Tensor]:
        """The outputs of these layers, by name; every worker gets all."""
        # A step's micro-batches draw masks of their own.
        draws = any(
            type(e) is nn.Dropout and e.p and e.training for e in self.network.layers.values()
        )
        count = self._micro_batches(len(inputs)) if draws and self.parts == 1 else 1
        stage, names = self.stage, [*dict.fromkeys(requested)]
        stage.requested, stage.kept, stage.row = names, {}, 0
        schedule = ScheduleGPipe(self._stage(inputs, count), count)
        schedule.step(*self._if_first(inputs), return_outputs=False)
        found, stage.requested, stage.kept = stage.kept, (), {}
        values = {}
        for name in names:
            shape = (len(inputs), *self.network.shapes[name])
            whole = torch.empty(shape, dtype=self.dtype, device=self.device)
            if name in found:
                whole.copy_(torch.cat(found[name]))
            dist.broadcast(whole, self.owners[name])
            values[name] = whole
        return values

    def passes(
        self, inputs: Tensor, labels: Tensor, loss: LossFunction, count: int | None = None
    ) -> Tensor:
        """The mean loss of a batch, which every worker gets. Gradients are added to those of parameters.

        Args:
            loss: of outputs and labels, the mean over samples; the same in every call.
            count: of micro-batches; left out, as many as a step takes.
        """
        count = count or self._micro_batches(len(inputs))
        if self._steps[0] != (len(inputs), count):
            kind = Schedule1F1B if count >= self.workers else ScheduleGPipe
            schedule = kind(self._stage(inputs, count), count, loss_fn=loss)
            self._steps = ((len(inputs), count), schedule)
        # Parts of a workload begin with the same masks each.
        self.stage.row = 0 if self.parts == 1 else None
        last, losses = self.workers - 1, list[Tensor]()
        target = labels if self.rank == last else None
        self._steps[1].step(
            *self._if_first(inputs), target=target, losses=losses, return_outputs=False
        )
        mean = torch.zeros((), dtype=self.dtype, device=self.device)
        if self.rank == last:
            mean.copy_(torch.stack(losses).detach().mean())
        dist.broadcast(mean, last)
        for each, group in self.shared:
            if self.rank in self.places[each][1]:
                each.grad = torch.zeros_like(each) if each.grad is None else each.grad
                dist.all_reduce(each.grad, group=group)
        return mean

    def norm(self, parameters: Sequence[Tensor]) -> Tensor:
        """The norm of the gradients of all stages; each counts once."""
        squares = norm([each for each in parameters if each in self.counted]).to(self.dtype) ** 2
        dist.all_reduce(squares)
        return squares.sqrt()

    def whole(self, tensor: Tensor) -> Tensor:
        """A parameter or state of any stage."""
        shape, stages = self.places[tensor]
        found = tensor.detach() if self.rank in stages else tensor.new_empty(shape)
        found = found.clone()
        dist.broadcast(found, stages[0])
        return found

    def _micro_batches(self, samples: int) -> int:
        if self.parts > 1:
            return self.parts
        return max(n for n in range(1, self.workers + 1) if samples % n == 0)

    def _if_first(self, inputs: Tensor) -> tuple[Tensor, ...]:
        return (inputs,) if self.rank == 0 else ()

    def _stage(self, inputs: Tensor, count: int) -> PipelineStage:
        """torch's own. It is told of the values that come and go, so that it runs no layer to see them."""

        def described(names: Sequence[str]) -> tuple[Tensor, ...]:
            found = []
            for name in names:
                dtype = inputs.dtype if name == self.network.source else self.dtype
                shape = (len(inputs) // count, *self.network.shapes[name])
                found.append(torch.empty(shape, dtype=dtype, device="meta"))
                found[-1].requires_grad_(dtype.is_floating_point)
            return tuple(found)

        takes, gives = (described(names) for names in (self.stage.takes, self.stage.gives))
        return PipelineStage(
            self.stage, self.rank, self.workers, self.device, input_args=takes, output_args=gives
        )


@lru_cache
def group_of(*ranks: int) -> dist.ProcessGroup:
    """Some of the workers; all call this."""
    return dist.new_group(list(ranks))


def cut(sizes: Sequence[int], runs: int) -> list[int]:
    """Where to cut a sequence into runs, none of them empty, whose sums are about equal."""
    ends: list[int] = []
    for run in range(1, runs):
        wanted = sum(sizes) * run / runs
        places = range(ends[-1] + 1 if ends else 1, len(sizes) - runs + run + 1)
        ends.append(min(places, key=lambda end: abs(sum(sizes[:end]) - wanted)))
    return ends
