"""The adapter under test, and how its hooks are reached."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dlb_graph import workload as W
from dlb_graph.workload.lower import lower
from dlb_graph.workload.shapes import infer_shapes, is_dilated_pool, of_three_axes, tied_to
from dlb_worker.contract import (
    AdapterDescription,
    BuildRequest,
    Clock,
    DataRequest,
    FrameworkFacts,
    StartRequest,
)
from dlb_worker.errors import PluginError
from dlb_worker.native import BuiltModel
from dlb_worker.plugins import load_plugin, load_plugins

Arrays = Mapping[str, np.ndarray]

#: Odd, so that a batch axis taken for another shows, and no power of two, so that dividing by it
#: in float32 shows.
BATCH = 3

PLAIN = W.SGD(learning_rate=0.05)
PLAIN_LOSS = W.SoftmaxCrossEntropy()


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
        loss=loss or PLAIN_LOSS,
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
        request = StartRequest(threads=threads, device=device, seed=seed)
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
    ) -> BuiltModel:
        """A model that is ready to train, at the optimizer's learning rate."""
        request = BuildRequest(
            workload=lower(
                workload(
                    model, batch_size=batch_size, optimizer=optimizer, schedule=schedule, loss=loss
                )
            ),
            weights=weights,
            dtype=dtype,
            device="cpu",
            batch_size=batch_size,
            variant=variant or {},
            masks=masks or {},
        )
        built = self.hook.dlb_build_model(framework=self.name, request=request)
        assert isinstance(built, BuiltModel), f"dlb_build_model gave {built!r}"
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
        request = DataRequest(
            inputs=inputs,
            labels=labels,
            order=order,
            input_mode=via,
            device="cpu",
            dtype="float64" if np.float64 in (inputs.dtype, labels.dtype) else "float32",
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

    def export(self, model: BuiltModel, path: Path) -> str:
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
        missing = ""
        shapes = infer_shapes(model) if model else {}
        for node in model.wired() if model else ():
            kind = W.type_name(node.layer)
            if kind not in self.described.layers:
                missing = f"no layer {kind}"
            if tied_to(node):
                missing = missing or self._lacks("tied_weights")
            if node.weights_of:
                missing = missing or self._lacks("shared_layers")
            if of_three_axes(node.layer, shapes[node.inputs[0]]):
                missing = missing or self._lacks("three_axes")
            if is_dilated_pool(node.layer):
                missing = missing or self._lacks("dilated_max_pool")
        if dtype and dtype not in self.described.dtypes:
            missing = f"no dtype {dtype}"
        if optimizer and W.type_name(optimizer) not in self.described.optimizers:
            missing = f"no optimizer {W.type_name(optimizer)}"
        if getattr(optimizer, "amsgrad", False):
            missing = missing or self._lacks("amsgrad")
        if optimizer and optimizer.accumulate > 1:
            missing = missing or self._lacks("accumulate")
        if optimizer and optimizer.clip_norm:
            missing = missing or self._lacks("clip_norm")
        if optimizer and optimizer.clip_value:
            missing = missing or self._lacks("clip_value")
        if optimizer and optimizer.clip_variable_norm:
            missing = missing or self._lacks("clip_variable_norm")
        if optimizer and optimizer.weight_decay_on != "all":
            missing = missing or self._lacks("weight_decay_on")
        if loss and W.type_name(loss) not in self.described.losses:
            missing = f"no loss {W.type_name(loss)}"
        if isinstance(loss, W.SoftmaxCrossEntropy) and loss.class_weights:
            missing = missing or self._lacks("class_weights")
        if isinstance(loss, W.SoftmaxCrossEntropy) and loss.label_smoothing:
            missing = missing or self._lacks("label_smoothing")
        if isinstance(loss, W.SoftmaxCrossEntropy) and loss.ignore_index is not None:
            missing = missing or self._lacks("ignore_index")
        if loss and model and len(W.infer_shapes(model)[model.nodes[-1].name]) > 2:
            missing = missing or self._lacks("losses_of_maps")
        if missing:
            pytest.skip(f"adapter '{self.name}' describes {missing}")

    def require_feature(self, feature: str) -> None:
        """Skip the running test where the adapter does not have a feature."""
        if self._lacks(feature):
            pytest.skip(f"adapter '{self.name}' describes {self._lacks(feature)}")

    def _lacks(self, feature: str) -> str:
        return "" if feature in self.described.features else f"no feature {feature}"


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
        return Adapter(name, _module(holder), described, plugins.hook)
    plugins = load_plugin(module)
    if len(plugins.adapters) != 1:
        raise PluginError(f"module {module} describes no adapter; it needs dlb_describe")
    (described,) = plugins.adapters.values()
    if name and described.name != name:
        raise PluginError(f"module {module} is adapter '{described.name}', not '{name}'")
    return Adapter(described.name, module, described, plugins.hook)


def _module(plugin: Any) -> str:
    """Name of the module of a plugin, which is a module or an object."""
    return str(getattr(plugin, "__name__", type(plugin).__module__))
