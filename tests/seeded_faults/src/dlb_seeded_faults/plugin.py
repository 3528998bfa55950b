"""torch's own adapter with a fault seeded in it.

The file ``DLB_SEEDED_FAULT`` has the name of a fault of every model, or is empty; the variant ``timed`` is a
fault of the timed run alone.
"""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path
from typing import Any

from dlb_torch.plugin import (
    DDP,
    FSDP,
    LocalSGD,
    ParameterServer,
    Pipeline,
    TensorParallel,
    TorchAdapter,
)

NAME = "seeded-faults"
#: Known without torch.
TIMED_NAMES = tuple((Path(__file__).parent / "timed.txt").read_text(encoding="utf-8").splitlines())


def seeded() -> str:
    """The name of the fault, which is read for each model: a worker serves one fault after another."""
    file = os.environ.get("DLB_SEEDED_FAULT")
    return Path(file).read_text(encoding="utf-8") if file else ""


class FaultyDDP(DDP):
    """DistributedDataParallel for the faulty adapter."""

    frameworks = (NAME,)

    def join(self, rank: int, workers: int) -> Any:
        from dlb_seeded_faults.strategies import FaultySession

        return FaultySession(rank, workers)


class FaultyFSDP(FSDP):
    """fully_shard for the faulty adapter."""

    frameworks = (NAME,)

    def join(self, rank: int, workers: int) -> Any:
        from dlb_seeded_faults.strategies import FaultyParts

        return FaultyParts(rank, workers)


class FaultyTensorParallel(TensorParallel):
    """Tensor parallelism for the faulty adapter."""

    frameworks = (NAME,)

    def join(self, rank: int, workers: int) -> Any:
        from dlb_seeded_faults.strategies import FaultyTensors

        return FaultyTensors(rank, workers)


class FaultyPipeline(Pipeline):
    """Pipeline parallelism for the faulty adapter."""

    frameworks = (NAME,)

    def join(self, rank: int, workers: int) -> Any:
        from dlb_seeded_faults.strategies import FaultyPipeline

        return FaultyPipeline(rank, workers)


class FaultyLocalSGD(LocalSGD):
    """Local SGD for the faulty adapter."""

    frameworks = (NAME,)

    def join(self, rank: int, workers: int) -> Any:
        from dlb_seeded_faults.strategies import FaultyAverages

        return FaultyAverages(rank, workers)


class FaultyServer(ParameterServer):
    """A parameter server for the faulty adapter."""

    frameworks = (NAME,)

    def join(self, rank: int, workers: int) -> Any:
        from dlb_seeded_faults.strategies import FaultyPushes

        return FaultyPushes(rank, workers)


class FaultyTorchAdapter(TorchAdapter):
    """PyTorch with one fault."""

    name = NAME
    distribution = "dlb-seeded-faults"
    strategies = (
        FaultyDDP(),
        FaultyFSDP(),
        FaultyTensorParallel(),
        FaultyPipeline(),
        FaultyLocalSGD(),
        FaultyServer(),
    )
    variants = {**TorchAdapter.variants, "timed": ("right", *TIMED_NAMES)}
    timed: Any = None
    #: The fault of the models before, and what their module had before some replaced functions of it.
    fault = ""
    right: dict[str, Any] | None = None

    def build_model(self, request: Any, **variant: str) -> Any:
        from dlb_seeded_faults.catalogue import FAULTS
        from dlb_seeded_faults.not_found import NOT_FOUND
        from dlb_seeded_faults.strategies import STRATEGY_FAULTS, with_equal_masks
        from dlb_seeded_faults.timed import TIMED
        from dlb_torch import model as torch_model

        self.timed = TIMED.get(variant.pop("timed"))
        fault, module = seeded(), vars(torch_model)
        if self.right is None:
            self.right = dict(module)
        if fault != self.fault:
            module.update(self.right)
            self.fault = fault
        if request.session is not None:
            request.session.fault = fault
            request = with_equal_masks(request) if fault == "equal masks" else request
            if fault == "the norm of the own parts":
                module["whole"] = module["local"]
        model = super().build_model(request, **variant)
        if fault and fault not in STRATEGY_FAULTS:
            (FAULTS | NOT_FOUND)[fault].apply(model)
        # What is timed draws its own masks, and is in float32.
        if self.timed and self.timed.model and request.dtype == "float32" and not request.masks:
            self.timed.model(model)
        return model

    def load_data(self, request: Any) -> Any:
        if self.fault == "samples out of order":
            request = dataclasses.replace(request, order=request.order[:, ::-1] ^ 1)
        if self.fault == "the last sample of a large batch left out":
            from dlb_seeded_faults.beyond_noise import without_the_last

            request = without_the_last(request)
        if self.fault == "shares overlap":
            from dlb_seeded_faults.strategies import with_overlap

            request = with_overlap(request, int(os.environ["DLB_RANK"]))
        if self.fault == "a share for each worker":
            from dlb_seeded_faults.strategies import with_own_share

            request = with_own_share(request, int(os.environ["DLB_RANK"]))
        batches, timed = super().load_data(request), self.timed
        if timed and timed.batches and len(request.order) > 1:  # of a run, not of a proof's step
            return timed.batches(request, batches)
        return batches

    def clock(self, device: str) -> Any:
        clock, timed = super().clock(device), self.timed
        return timed.clock(clock) if timed and timed.clock else clock


adapter = FaultyTorchAdapter()
