"""The adapter under test, and how its hooks are reached."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pluggy
import pytest

from dlb import hookspecs
from dlb import workload as W
from dlb.contract import (
    AdapterDescription,
    BuildRequest,
    Clock,
    FrameworkFacts,
    LoadRequest,
    StartRequest,
    TrainableModel,
)
from dlb.errors import PluginError
from dlb.plugins import check_description, check_hooks, load_plugins
from dlb.workload.shapes import tied_to

Arrays = Mapping[str, np.ndarray]

#: Odd, so that a batch axis taken for another shows, and no power of two, so that dividing by it
#: in float32 shows.
BATCH = 3

PLAIN = W.SGD(learning_rate=0.05)


def workload(
    model: W.Model,
    *,
    batch_size: int = BATCH,
    optimizer: W.Optimizer = PLAIN,
    schedule: W.Schedule | None = None,
    loss: W.Loss | None = None,
) -> W.Workload:
    """A workload around a model; the name of its data plays no part here."""
    return W.Workload(
        name="tested",
        batch_size=batch_size,
        data=W.Data(name="made-up"),
        optimizer=optimizer,
        schedule=schedule or W.Constant(),
        loss=loss or W.SoftmaxCrossEntropy(),
        model=model,
    )


@dataclass(frozen=True)
class Adapter:
    """An adapter and its hooks.

    Attributes:
        name: what ``--on`` calls it.
        module: where its hooks are, as imported.
        described: what it says of itself.
        hook: call hooks here, by keyword.
    """

    name: str
    module: str
    described: AdapterDescription
    hook: Any

    def start(self, threads: int, device: str = "cpu", seed: int = 0) -> FrameworkFacts:
        request = StartRequest(threads=threads, device=device, seed=seed)  # type: ignore[arg-type]
        facts = self.hook.dlb_start(framework=self.name, request=request)
        assert isinstance(facts, FrameworkFacts), f"dlb_start gave {facts!r}"
        return facts

    def build(
        self,
        model: W.Model,
        weights: Arrays,
        dtype: str = "float64",
        *,
        batch_size: int = BATCH,
        optimizer: W.Optimizer = PLAIN,
        schedule: W.Schedule | None = None,
        loss: W.Loss | None = None,
        variant: Mapping[str, str] | None = None,
        masks: Arrays | None = None,
    ) -> TrainableModel:
        """A model that is ready to train, at the optimizer's learning rate."""
        request = BuildRequest(
            workload=workload(
                model, batch_size=batch_size, optimizer=optimizer, schedule=schedule, loss=loss
            ),
            weights=weights,
            dtype=dtype,  # type: ignore[arg-type]
            device="cpu",
            batch_size=batch_size,
            variant=variant or {},
            masks=masks or {},
        )
        built = self.hook.dlb_build_model(framework=self.name, request=request)
        assert isinstance(built, TrainableModel), f"dlb_build_model gave {built!r}"
        built.set_learning_rate(optimizer.learning_rate)
        return built

    def load(
        self,
        inputs: np.ndarray,
        labels: np.ndarray,
        order: np.ndarray,
        via: str = "memory",
        variant: Mapping[str, str] | None = None,
        crops: np.ndarray | None = None,
    ) -> Iterator[tuple[Any, Any]]:
        """Native batches, a row of ``order`` each."""
        request = LoadRequest(
            inputs=inputs,
            labels=labels,
            order=order,
            via=via,  # type: ignore[arg-type]
            device="cpu",
            dtype="float64" if inputs.dtype == np.float64 else "float32",
            variant=variant or {},
            crops=crops,
        )
        batches = self.hook.dlb_load_data(framework=self.name, request=request)
        assert batches is not None, "dlb_load_data gave None"
        return iter(batches)

    def native(self, inputs: np.ndarray, labels: np.ndarray) -> tuple[Any, Any]:
        """One native batch of all these samples, in order."""
        (batch,) = list(self.load(inputs, labels, np.arange(len(inputs))[None]))
        return batch

    def clock(self) -> Clock:
        found = self.hook.dlb_clock(framework=self.name, device="cpu")
        assert isinstance(found, Clock), f"dlb_clock gave {found!r}"
        return found

    def export(self, model: TrainableModel, path: Path) -> str:
        exporter = self.hook.dlb_export_onnx(framework=self.name, model=model, path=path)
        assert isinstance(exporter, str), f"dlb_export_onnx gave {exporter!r}"
        return exporter

    def require(
        self,
        model: W.Model | None = None,
        dtype: str | None = None,
        optimizer: W.Optimizer | None = None,
        loss: W.Loss | None = None,
    ) -> None:
        """Skip the running test where the adapter says that it does not have what it takes."""
        for node in model.nodes if model else ():
            kind = W.type_name(node.layer)
            if kind not in self.described.layers:
                pytest.skip(f"adapter '{self.name}' describes no layer {kind}")
            if tied_to(node) and tuple(self.described.contract) < (1, 4):
                pytest.skip(
                    f"adapter '{self.name}' is made for a contract before 1.4, without tied weights"
                )
        if dtype and dtype not in self.described.dtypes:
            pytest.skip(f"adapter '{self.name}' describes no dtype {dtype}")
        if optimizer and W.type_name(optimizer) not in self.described.optimizers:
            pytest.skip(f"adapter '{self.name}' describes no optimizer {W.type_name(optimizer)}")
        if optimizer and optimizer.clip_norm and tuple(self.described.contract) < (1, 3):
            pytest.skip(
                f"adapter '{self.name}' is made for a contract before 1.3, without clipping"
            )
        if loss and loss.label_smoothing and tuple(self.described.contract) < (1, 4):
            pytest.skip(
                f"adapter '{self.name}' is made for a contract before 1.4, without smoothed labels"
            )


def find(name: str, module: str = "") -> Adapter:
    """The adapter of that name: of the installed plugins, or of the module when one is given.

    A module may go without the name, which it tells.

    Raises:
        UnknownNameError: no installed plugin describes it.
        PluginError: the module cannot be imported, breaks the hook contract, or is another adapter.
    """
    if not module:
        plugins = load_plugins()
        described = plugins.adapter(name)
        (holder,) = [
            plugin
            for plugin in plugins.manager.get_plugins()
            if hasattr(plugin, "dlb_describe") and plugin.dlb_describe().name == name
        ]
        return Adapter(name, holder.__name__, described, plugins.hook)
    try:
        loaded = importlib.import_module(module)
    # Someone else's code, which may raise anything.
    except Exception as error:
        raise PluginError(f"module {module}: {type(error).__name__}: {error}") from error
    check_hooks(loaded)
    manager = pluggy.PluginManager("dlb")
    manager.add_hookspecs(hookspecs)
    manager.register(loaded)
    described = loaded.dlb_describe()
    check_description(described)
    if name and described.name != name:
        raise PluginError(f"module {module} is adapter '{described.name}', not '{name}'")
    return Adapter(described.name, module, described, manager.hook)
