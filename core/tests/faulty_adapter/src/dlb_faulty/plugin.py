"""The example adapter, each of its methods after the chance to go wrong."""

from __future__ import annotations

import dataclasses
import multiprocessing
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from typing import Any

from dlb_example.plugin import ExampleAdapter, ExampleSync

from dlb_faulty.faults import KIND, strike
from dlb_worker import hookimpl

NAME = "faulty"
KEPT: list[Any] = []
#: What a machine returns that cannot be trusted, in the form of a cell's results.
FILES = b"\x81\xa5files\xc4\x04evil"

if KIND == "import-raise":
    raise RuntimeError("no such\nlibrary: libfaulty.so.3")


class FaultySync(ExampleSync):
    frameworks = (NAME,)

    if KIND == "no-claims":
        cases = ("equal_shares",)

    def plan(self, request: Any) -> Any:
        strike("plan")
        return super().plan(request)

    def join(self, rank: int, workers: int) -> Any:
        strike("join")
        session = super().join(rank, workers)
        if KIND == "no-averaging":
            session.mean = lambda own: own  # type: ignore[method-assign]
        return session


class Lost(Executor):
    """Loses what is submitted, as a node that goes down."""

    def submit(self, function: Any, /, *arguments: Any, **named: Any) -> Future[Any]:
        future: Future[Any] = Future()
        if KIND == "refuses":
            raise SystemExit(7)
        if KIND == "returns-nothing":
            return None  # type: ignore[return-value]
        if KIND == "returns-files":
            future.set_result(FILES)
        else:
            future.set_exception(OSError("node 3 is\ndown"))
        return future


def another_process(address: str) -> Executor:
    """What runs a cell in a process of its own."""
    if address:
        raise ConnectionError(f"nobody answers at {address}")
    return ProcessPoolExecutor(1, multiprocessing.get_context("spawn"))


class FaultyAdapter(ExampleAdapter):
    name = NAME
    title = "Faulty"
    distribution = "dlb-faulty"
    strategies = (FaultySync(),)

    def describe(self) -> Any:
        changes: dict[str, Any] = {}
        if KIND == "few-features":
            changes["features"] = ("user_models", "export")
            changes["layers"] = {**super().describe().layers, "embedding": "native"}
        if KIND == "no-user-models":
            changes["features"] = ("export", "masks")
        return dataclasses.replace(super().describe(), **changes)

    @hookimpl
    def dlb_executors(self) -> Any:
        return {"process": another_process, "lost": lambda _: Lost(), "none": lambda _: None}

    def start(self, request: Any) -> Any:
        strike("start")
        return super().start(request)

    def build_model(self, request: Any, **variant: str) -> Any:
        strike("build")
        if KIND in ("few-features", "own-masks"):
            request = dataclasses.replace(request, masks={})
        from dlb_faulty.model import FaultyModel

        built = FaultyModel(request, **variant)
        if KIND == "few-bits":
            built.bits = 5
        if KIND == "keeps-models":
            KEPT.append(built)
        return built

    def load_data(self, request: Any) -> Any:
        strike("load")
        return super().load_data(request)

    def peak_work(self, request: Any) -> Any:
        strike("peak")
        return super().peak_work(request)

    def export_onnx(self, model: Any, path: Any) -> Any:
        strike("export")
        if KIND == "export-nothing":
            path.write_bytes(b"this is no model")
            return "none"
        if KIND == "wrong-export":
            model.values["fc1.weight"] = model.values["fc1.weight"] * 1.001
            exporter = super().export_onnx(model, path)
            model.values["fc1.weight"] = model.values["fc1.weight"] / 1.001
            return exporter
        return super().export_onnx(model, path)

    def load_user_model(self, request: Any) -> Any:
        strike("load_user_model")
        return super().load_user_model(request)


adapter = FaultyAdapter()
