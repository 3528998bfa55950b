"""What an adapter can do, as it describes itself, and whether that is enough for a request.

This is asked after the environment described itself and before any worker builds a model.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from dlb.errors import UnsupportedError, WorkerError
from dlb.workload import Workload, type_name
from dlb.workload.shapes import tied_to

__all__ = [
    "FEATURES",
    "Capabilities",
    "capabilities_of",
    "check_capabilities",
    "check_export",
    "check_user_models",
]

#: Features that an adapter may describe, and what each says that it does.
FEATURES = {
    "clip_norm": "it clips gradients by their norm",
    "label_smoothing": "it smooths labels",
    "tied_weights": "it ties the weight of a layer to that of another",
    "augmentation": "it cuts out and mirrors images as the core draws",
    "masks": "it multiplies by given masks in the place of dropout",
    "user_models": "it loads models that users wrote in the framework",
    "export": "it exports models as ONNX",
}


@dataclass(frozen=True)
class Capabilities:
    """What an adapter says of itself.

    None stands for what it does not say: a worker that is not built with dlb may leave it out, and
    refuses by itself what it cannot do.

    Attributes:
        name, title: of the adapter and of the framework.
        layers, optimizers, dtypes, devices: what it has.
        variants: choices, each with its values.
        features: those of :data:`FEATURES` that it has; none where it describes none.
        deviations: what it declares to do differently.
    """

    name: str
    title: str
    layers: frozenset[str] | None = None
    optimizers: frozenset[str] | None = None
    dtypes: frozenset[str] | None = None
    devices: frozenset[str] | None = None
    variants: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    features: frozenset[str] = frozenset()
    deviations: tuple[str, ...] = ()


def capabilities_of(described: Mapping[str, Any], adapter: str) -> Capabilities:
    """The capabilities of one adapter of an environment.

    Args:
        described: what the call ``describe`` returned.

    Raises:
        WorkerError: the environment describes no such adapter.
    """
    found = [entry for entry in described["adapters"] if entry["name"] == adapter]
    if not found:
        names = ", ".join(entry["name"] for entry in described["adapters"]) or "none"
        raise WorkerError(
            f"its environment describes no such adapter, only {names}", adapter=adapter
        )
    entry = found[0]

    def names_of(key: str) -> frozenset[str] | None:
        return frozenset(entry[key]) if key in entry else None

    return Capabilities(
        name=adapter,
        title=entry.get("title", adapter),
        layers=names_of("layers"),
        optimizers=names_of("optimizers"),
        dtypes=names_of("dtypes"),
        devices=names_of("devices"),
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
    """See that an adapter can do what is asked of it.

    Args:
        variant: choices that are not at their default.
        crops: whether images are cut or mirrored.

    Raises:
        UnsupportedError: it cannot; the error names the adapter, and the layer that is to blame.
    """

    def refuse(message: str, layer: str = "") -> UnsupportedError:
        return UnsupportedError(message, adapter=adapter.name, layer=layer)

    for node in workload.model.nodes:
        kind = type_name(node.layer)
        if adapter.layers is not None and kind not in adapter.layers:
            raise refuse(f"{adapter.title} cannot build layer '{node.name}': no {kind}", node.name)
        if tied_to(node) and "tied_weights" not in adapter.features:
            raise refuse(
                f"layer '{node.name}' is tied to '{tied_to(node)}', and the adapter does not have the "
                "feature 'tied_weights'",
                node.name,
            )
    optimizer = type_name(workload.optimizer)
    if adapter.optimizers is not None and optimizer not in adapter.optimizers:
        raise refuse(f"it has no optimizer {optimizer}")
    needed = (
        ("clip_norm", workload.optimizer.clip_norm, "optimizer.clip_norm must be 0"),
        ("label_smoothing", workload.loss.label_smoothing, "loss.label_smoothing must be 0"),
        ("augmentation", crops, "data.augmentation.pad and flip must be left out"),
    )
    for feature, asked, remedy in needed:
        if asked and feature not in adapter.features:
            raise refuse(f"the adapter does not have the feature '{feature}': {remedy}")
    for kind, value, known in (
        ("dtype", dtype, adapter.dtypes),
        ("device", device, adapter.devices),
    ):
        if known is not None and value not in known:
            raise refuse(f"no {kind} {value}; it has {', '.join(sorted(known))}")
    for name, value in (variant or {}).items():
        if value not in adapter.variants.get(name, ()):
            offered = ", ".join(
                f"{key}={'|'.join(values)}" for key, values in sorted(adapter.variants.items())
            )
            raise refuse(f"no variant {name}={value}; it offers {offered or 'none'}")


def check_user_models(adapter: Capabilities) -> None:
    """See that an adapter can load a model that a user wrote.

    Raises:
        UnsupportedError: it cannot.
    """
    if "user_models" not in adapter.features:
        raise UnsupportedError(
            "the adapter does not have the feature 'user_models': it cannot load a model that was "
            "written by hand",
            adapter=adapter.name,
        )


def check_export(adapter: Capabilities) -> None:
    """See that an adapter can export a model.

    Raises:
        UnsupportedError: it cannot.
    """
    if "export" not in adapter.features:
        raise UnsupportedError(
            "the adapter does not have the feature 'export'; leave out --from for the canonical graph",
            adapter=adapter.name,
        )
