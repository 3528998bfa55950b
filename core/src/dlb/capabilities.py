"""What an adapter can do, as it describes itself, and whether that is enough for a request.

It is checked after the environment described itself and before any worker builds a model.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from dlb.errors import UnsupportedError, WorkerError
from dlb_graph.losses import MAP_AXES
from dlb_graph.workload import SoftmaxCrossEntropy, Workload, type_name
from dlb_graph.workload.shapes import infer_shapes, is_dilated_pool, of_three_axes, tied_to
from dlb_worker.contract import LOSSES, PRECISION

__all__ = [
    "Capabilities",
    "capabilities_of",
    "check_capabilities",
    "check_export",
]


@dataclass(frozen=True)
class Capabilities:
    """An adapter's description of itself.

    None means that the adapter does not describe it. A worker that is not built with dlb may leave it
    out; that worker itself refuses what it cannot do.

    Attributes:
        name, title: the adapter's name and the framework's.
        layers, optimizers, losses, dtypes, devices: what the adapter supports.
        variants: choices, each with its values.
        features: those of :data:`dlb_worker.contract.FEATURES` that it has; empty if it lists none.
        deviations: the differences that the adapter declares.
    """

    name: str
    title: str
    layers: frozenset[str] | None = None
    optimizers: frozenset[str] | None = None
    losses: frozenset[str] = frozenset(LOSSES)
    dtypes: frozenset[str] | None = None
    devices: frozenset[str] | None = None
    variants: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    features: frozenset[str] = frozenset()
    deviations: tuple[str, ...] = ()


def capabilities_of(described: Mapping[str, Any], adapter: str) -> Capabilities:
    """The capabilities of one adapter of an environment.

    Args:
        described: the result of the call ``describe``.
        adapter: the adapter's name.

    Raises:
        WorkerError: the environment describes no such adapter.
    """
    entries = [entry for entry in described["adapters"] if entry["name"] == adapter]
    if not entries:
        names = ", ".join(entry["name"] for entry in described["adapters"]) or "none"
        raise WorkerError(
            f"its environment describes no such adapter, only {names}", adapter=adapter
        )
    entry = entries[0]

    def optional_names(key: str) -> frozenset[str] | None:
        return frozenset(entry[key]) if key in entry else None

    return Capabilities(
        name=adapter,
        title=entry.get("title", adapter),
        layers=optional_names("layers"),
        optimizers=optional_names("optimizers"),
        losses=frozenset(entry.get("losses", LOSSES)),
        dtypes=optional_names("dtypes"),
        devices=optional_names("devices"),
        variants={name: tuple(values) for name, values in entry.get("variants", {}).items()},
        features=frozenset(entry.get("features", ())),
        deviations=tuple(entry.get("deviations", ())),
    )


def check_capabilities(
    adapter: Capabilities,
    workload: Workload,
    *,
    dtype: str,
    device: str,
    variant: Mapping[str, str] | None = None,
    crops: bool = False,
) -> None:
    """Check that an adapter can run a workload.

    Args:
        variant: choices that differ from their default.
        crops: whether images are cropped or mirrored.

    Raises:
        UnsupportedError: it cannot; the error names the adapter, and the layer if one is the reason.
    """

    def unsupported(message: str, layer: str = "") -> UnsupportedError:
        return UnsupportedError(message, adapter=adapter.name, layer=layer)

    shapes = infer_shapes(workload.model)
    for node in workload.model.wired():
        kind = type_name(node.layer)
        if adapter.layers is not None and kind not in adapter.layers:
            raise unsupported(
                f"{adapter.title} cannot build layer '{node.name}': no {kind}", node.name
            )
        if tied_to(node) and "tied_weights" not in adapter.features:
            raise unsupported(
                f"layer '{node.name}' is tied to '{tied_to(node)}', and the adapter does not have the "
                "feature 'tied_weights'",
                node.name,
            )
        if node.weights_of and "shared_layers" not in adapter.features:
            raise unsupported(
                f"layer '{node.name}' computes with the parameters of '{node.weights_of}', and the adapter "
                "does not have the feature 'shared_layers'",
                node.name,
            )
        shape = shapes[node.inputs[0]]
        if of_three_axes(node.layer, shape) and "three_axes" not in adapter.features:
            raise unsupported(
                f"layer '{node.name}' ({kind}) reads [C, D, H, W] = {list(shape)}, and the adapter does "
                "not have the feature 'three_axes'",
                node.name,
            )
        if is_dilated_pool(node.layer) and "dilated_max_pool" not in adapter.features:
            raise unsupported(
                f"layer '{node.name}' has a dilation, and the adapter does not have the feature "
                "'dilated_max_pool'",
                node.name,
            )
    optimizer = type_name(workload.optimizer)
    if adapter.optimizers is not None and optimizer not in adapter.optimizers:
        raise unsupported(f"it has no optimizer {optimizer}")
    loss = workload.loss
    if type_name(loss) not in adapter.losses:
        raise unsupported(
            f"it has no loss {type_name(loss)}; it has {', '.join(sorted(adapter.losses))}"
        )
    smoothing, ignored = 0.0, None
    weights: tuple[float, ...] = ()
    if isinstance(loss, SoftmaxCrossEntropy):
        smoothing, weights, ignored = loss.label_smoothing, loss.class_weights, loss.ignore_index
    outputs = shapes[workload.model.nodes[-1].name]
    amsgrad = getattr(workload.optimizer, "amsgrad", False)
    needed = (
        ("accumulate", workload.optimizer.accumulate > 1, "optimizer.accumulate must be 1"),
        ("amsgrad", amsgrad, "optimizer.amsgrad must be false"),
        ("clip_norm", workload.optimizer.clip_norm, "optimizer.clip_norm must be 0"),
        ("clip_value", workload.optimizer.clip_value, "optimizer.clip_value must be 0"),
        (
            "clip_variable_norm",
            workload.optimizer.clip_variable_norm,
            "optimizer.clip_variable_norm must be 0",
        ),
        (
            "weight_decay_on",
            workload.optimizer.weight_decay and workload.optimizer.weight_decay_on != "all",
            'optimizer.weight_decay_on must be "all"',
        ),
        ("label_smoothing", smoothing, "loss.label_smoothing must be 0"),
        ("class_weights", weights, "loss.class_weights must be left out"),
        ("ignore_index", ignored is not None, "loss.ignore_index must be left out"),
        (
            "losses_of_maps",
            len(outputs) >= MAP_AXES,
            "add a flatten or a reshape as the last layer",
        ),
        ("augmentation", crops, "data.augmentation.pad and flip must be left out"),
    )
    for feature, is_needed, remedy in needed:
        if is_needed and feature not in adapter.features:
            raise unsupported(f"the adapter does not have the feature '{feature}': {remedy}")
    for kind, value, supported in (
        ("dtype", dtype, adapter.dtypes),
        ("device", device, adapter.devices),
    ):
        if supported is not None and value not in supported:
            raise unsupported(f"no {kind} {value}; it has {', '.join(sorted(supported))}")
    if PRECISION in (variant or {}) and dtype != "float32":
        raise unsupported(
            f"a variant '{PRECISION}' keeps weights in float32; leave out --dtype {dtype}, or the variant"
        )
    for name, value in (variant or {}).items():
        if value not in adapter.variants.get(name, ()):
            offered = ", ".join(
                f"{key}={'|'.join(values)}" for key, values in sorted(adapter.variants.items())
            )
            raise unsupported(f"no variant {name}={value}; it offers {offered or 'none'}")


def check_export(adapter: Capabilities) -> None:
    """Check that an adapter can export a model.

    Raises:
        UnsupportedError: it cannot.
    """
    if "export" not in adapter.features:
        raise UnsupportedError(
            "the adapter does not have the feature 'export'; leave out --from for the canonical graph",
            adapter=adapter.name,
        )
