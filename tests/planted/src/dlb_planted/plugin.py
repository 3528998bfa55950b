"""torch's own adapter, but that ``DLB_PLANT`` names what is done to each model that is built."""

from __future__ import annotations

import dataclasses
import os
from typing import Any

from dlb_torch.plugin import TorchAdapter

NAME = "planted"


class PlantedAdapter(TorchAdapter):
    name = NAME
    distribution = "dlb-planted"
    strategies = ()

    def build_model(self, request: Any, **variant: str) -> Any:
        from dlb_planted.plants import PLANTS

        model = super().build_model(request, **variant)
        plant = os.environ.get("DLB_PLANT", "")
        if plant:
            PLANTS[plant].apply(model)
        return model

    def load_data(self, request: Any) -> Any:
        if os.environ.get("DLB_PLANT") == "samples out of order":
            request = dataclasses.replace(request, order=request.order[:, ::-1] ^ 1)
        return super().load_data(request)


adapter = PlantedAdapter()
