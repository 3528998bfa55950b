"""The example adapter's hooks, each after the chance to go wrong."""

from __future__ import annotations

import dataclasses
import sys
from typing import Any

from dlb_example import plugin as example

from dlb import hookimpl
from dlb_faulty.faults import KIND, strike

NAME = "faulty"
KEPT: list[Any] = []

if KIND == "import-raise":
    raise RuntimeError("no such\nlibrary: libfaulty.so.3")
if KIND == "import-exit":
    sys.exit("cannot go on")
if KIND == "import-print":
    print("welcome to faulty!")


@hookimpl
def dlb_describe() -> Any:
    changes: dict[str, Any] = {"name": NAME, "title": "Faulty", "distribution": "dlb-faulty"}
    if KIND == "contract":
        changes["contract"] = (99, 0)
    if KIND == "older-contract":
        changes["contract"] = (1, 1)
        changes["features"] = ("user_models", "export")
        changes["layers"] = {**example.dlb_describe().layers, "embedding": "native"}
    if KIND == "twice":
        changes["name"] = example.NAME
    if KIND == "no-description":
        return "faulty"
    return dataclasses.replace(example.dlb_describe(), **changes)


@hookimpl
def dlb_strategies() -> Any:
    if KIND == "strategies-raise":
        raise OSError("no network")
    return [dataclasses.replace(one, frameworks=(NAME,)) for one in example.dlb_strategies()]


@hookimpl
def dlb_start(framework: str, request: Any) -> Any:
    if framework != NAME:
        return None
    strike("start")
    return example.dlb_start(example.NAME, request)


@hookimpl
def dlb_build_model(framework: str, request: Any) -> Any:
    if framework != NAME:
        return None
    strike("build")
    if KIND in ("older-contract", "own-masks"):
        request = dataclasses.replace(request, masks={})
    from dlb_faulty.model import FaultyModel

    built = FaultyModel(request)
    if KIND == "keeps-models":
        KEPT.append(built)
    return built


@hookimpl
def dlb_load_data(framework: str, request: Any) -> Any:
    if framework != NAME:
        return None
    strike("load")
    return example.dlb_load_data(example.NAME, request)


@hookimpl
def dlb_clock(framework: str, device: str) -> Any:
    return example.dlb_clock(example.NAME, device) if framework == NAME else None


@hookimpl
def dlb_export_onnx(framework: str, model: Any, path: Any) -> Any:
    if framework != NAME:
        return None
    strike("export")
    if KIND == "export-nothing":
        path.write_bytes(b"this is no model")
        return "none"
    if KIND == "wrong-export":
        model.values["fc1.weight"] = model.values["fc1.weight"] * 1.001
        told = example.dlb_export_onnx(example.NAME, model, path)
        model.values["fc1.weight"] = model.values["fc1.weight"] / 1.001
        return told
    return example.dlb_export_onnx(example.NAME, model, path)


@hookimpl
def dlb_adopt_model(framework: str, request: Any) -> Any:
    if framework != NAME or KIND == "no-adoption":
        return None
    strike("adopt")
    return example.dlb_adopt_model(example.NAME, request)


@hookimpl
def dlb_plan(framework: str, request: Any) -> Any:
    if framework != NAME:
        return None
    strike("plan")
    return example.dlb_plan(example.NAME, request)


@hookimpl
def dlb_join(framework: str, strategy: str, rank: int, workers: int) -> Any:
    if framework != NAME:
        return None
    strike("join")
    session = example.dlb_join(example.NAME, strategy, rank, workers)
    if KIND == "no-averaging":
        session.distribute = lambda native: native
    return session


if KIND == "misspelt-hook":

    @hookimpl
    def dlb_buld_model(framework: str) -> None: ...


if KIND == "unmarked-hook":

    def dlb_serve(framework: str) -> None: ...


if KIND == "unknown-argument":

    @hookimpl
    def dlb_serve(framework: str, colour: str) -> None: ...
