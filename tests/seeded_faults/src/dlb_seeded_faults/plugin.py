"""The hooks: torch's own, but that ``DLB_SEEDED_FAULT`` names the fault of each model that is built."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path
from typing import Any

from dlb import hookimpl
from dlb_torch import plugin as torch_plugin

NAME = "seeded-faults"


@hookimpl
def dlb_describe() -> Any:
    return dataclasses.replace(
        torch_plugin.dlb_describe(), name=NAME, distribution="dlb-seeded-faults", deviations=()
    )


@hookimpl
def dlb_start(framework: str, request: Any) -> Any:
    return torch_plugin.dlb_start(torch_plugin.NAME, request) if framework == NAME else None


@hookimpl
def dlb_build_model(framework: str, request: Any) -> Any:
    if framework != NAME:
        return None
    from dlb_seeded_faults.faults import FAULTS

    model = torch_plugin.dlb_build_model(torch_plugin.NAME, request)
    fault = os.environ.get("DLB_SEEDED_FAULT", "")
    if fault:
        FAULTS[fault].apply(model)
    return model


@hookimpl
def dlb_load_data(framework: str, request: Any) -> Any:
    if framework != NAME:
        return None
    if os.environ.get("DLB_SEEDED_FAULT") == "samples out of order":
        request = dataclasses.replace(request, order=request.order[:, ::-1] ^ 1)
    return torch_plugin.dlb_load_data(torch_plugin.NAME, request)


@hookimpl
def dlb_clock(framework: str, device: str) -> Any:
    return torch_plugin.dlb_clock(torch_plugin.NAME, device) if framework == NAME else None


@hookimpl
def dlb_export_onnx(framework: str, model: Any, path: Path) -> Any:
    if framework != NAME:
        return None
    return torch_plugin.dlb_export_onnx(torch_plugin.NAME, model, path)
