"""torch's own adapter, but that ``DLB_SEEDED_FAULT`` names the fault of each model that is built."""

from __future__ import annotations

import dataclasses
import os
from typing import Any

from dlb_torch.plugin import TorchAdapter

NAME = "seeded-faults"


class FaultyTorchAdapter(TorchAdapter):
    """PyTorch with one fault."""

    name = NAME
    distribution = "dlb-seeded-faults"
    strategies = ()

    def build_model(self, request: Any, **variant: str) -> Any:
        from dlb_seeded_faults.faults import FAULTS

        model = super().build_model(request, **variant)
        fault = os.environ.get("DLB_SEEDED_FAULT", "")
        if fault:
            FAULTS[fault].apply(model)
        return model

    def load_data(self, request: Any) -> Any:
        if os.environ.get("DLB_SEEDED_FAULT") == "samples out of order":
            request = dataclasses.replace(request, order=request.order[:, ::-1] ^ 1)
        return super().load_data(request)


adapter = FaultyTorchAdapter()
