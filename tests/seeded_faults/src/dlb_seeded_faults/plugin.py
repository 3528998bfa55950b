"""torch's own adapter with a fault seeded in it.

``DLB_SEEDED_FAULT`` names a fault of every model; the variant ``timed`` one of the timed run alone.
"""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path
from typing import Any

from dlb_torch.plugin import DDP, TorchAdapter

NAME = "seeded-faults"
#: Known without torch.
TIMED_NAMES = tuple((Path(__file__).parent / "timed.txt").read_text(encoding="utf-8").splitlines())


class FaultyDDP(DDP):
    """DistributedDataParallel for the faulty adapter."""

    frameworks = (NAME,)


class FaultyTorchAdapter(TorchAdapter):
    """PyTorch with one fault."""

    name = NAME
    distribution = "dlb-seeded-faults"
    strategies = (FaultyDDP(),)
    variants = {**TorchAdapter.variants, "timed": ("right", *TIMED_NAMES)}
    timed: Any = None

    def build_model(self, request: Any, **variant: str) -> Any:
        from dlb_seeded_faults.catalogue import FAULTS
        from dlb_seeded_faults.not_found import NOT_FOUND
        from dlb_seeded_faults.timed import TIMED

        self.timed = TIMED.get(variant.pop("timed"))
        model = super().build_model(request, **variant)
        fault = os.environ.get("DLB_SEEDED_FAULT", "")
        if fault:
            (FAULTS | NOT_FOUND)[fault].apply(model)
        # What is timed draws its own masks, and is in float32.
        if self.timed and self.timed.model and request.dtype == "float32" and not request.masks:
            self.timed.model(model)
        return model

    def load_data(self, request: Any) -> Any:
        if os.environ.get("DLB_SEEDED_FAULT") == "samples out of order":
            request = dataclasses.replace(request, order=request.order[:, ::-1] ^ 1)
        if os.environ.get("DLB_SEEDED_FAULT") == "the last sample of a large batch left out":
            from dlb_seeded_faults.beyond_noise import without_the_last

            request = without_the_last(request)
        batches, timed = super().load_data(request), self.timed
        if timed and timed.batches and len(request.order) > 1:  # of a run, not of a proof's step
            return timed.batches(request, batches)
        return batches

    def clock(self, device: str) -> Any:
        clock, timed = super().clock(device), self.timed
        return timed.clock(clock) if timed and timed.clock else clock


adapter = FaultyTorchAdapter()
