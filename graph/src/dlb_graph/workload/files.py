"""Reads and writes workload files (TOML), and finds those that dlb ships."""

from __future__ import annotations

import math
from collections.abc import Iterator
from importlib import resources
from pathlib import Path
from typing import Any

from dlb_graph.errors import RequestError, UnknownNameError, WorkloadError
from dlb_graph.losses import MAP_AXES, SoftmaxCrossEntropy, classes_and_places
from dlb_graph.regular_files import write_atomically
from dlb_graph.toml_files import read_toml
from dlb_graph.workload.decoding import decode
from dlb_graph.workload.model import Augmentation, Workload, without_defaults
from dlb_graph.workload.shapes import infer_shapes, trained_names
from dlb_graph.workload.training import schedule_fault

__all__ = [
    "from_document",
    "load",
    "read",
    "shipped_folder",
    "shipped_names",
    "to_document",
    "write",
]

_LARGEST_BYTES = 1024 * 1024
#: The deepest networks have a few thousand.
_MOST_LAYERS = 10_000


def load(name_or_path: str, plugin_paths: dict[str, Path] | None = None) -> Workload:
    """Read a workload by name or by path.

    Args:
        name_or_path: the name of a workload, or the path of a file.
        plugin_paths: by name, the files of workloads that plugins provide.

    Raises:
        UnknownNameError: there is no workload of that name and no such file.
        WorkloadError: the file is not a valid workload.
    """
    paths = {
        **{name: shipped_folder() / f"{name}.toml" for name in shipped_names()},
        **(plugin_paths or {}),
    }
    if name_or_path in paths:
        return read(Path(str(paths[name_or_path])))
    if name_or_path.endswith(".toml") or "/" in name_or_path:
        return read(Path(name_or_path))
    files = [f"{name_or_path}{end}" for end in (".toml", ".onnx")]
    here = next((name for name in files if Path(name).is_file()), None)
    hint = f"or the file here: {here}" if here else "or give the path of a .toml or .onnx file"
    raise UnknownNameError("workload", name_or_path, paths, hint)


def shipped_names() -> list[str]:
    """The sorted names of the shipped workloads."""
    return sorted(
        item.name[:-5] for item in shipped_folder().iterdir() if item.name.endswith(".toml")
    )


def shipped_folder() -> Any:
    """The folder of the shipped workloads."""
    return resources.files("dlb_graph.workload") / "shipped"


def read(path: Path) -> Workload:
    """Read and check a workload file.

    Raises:
        WorkloadError: the file is unreadable or not TOML, a field is unknown or of the wrong type,
            or shapes do not fit. The message names the file and the field or layer.
    """
    return read_toml(
        path,
        "workload",
        _LARGEST_BYTES,
        WorkloadError,
        lambda document: check(decode(document, "not a workload")),
    )


def check(workload: Workload, path: str = "", *, trained: bool = True) -> Workload:
    """Check the shapes and numbers of a workload; returns the workload.

    Args:
        workload: the workload.
        path: the workload's file, for the error.
        trained: whether training must change every layer's weights.

    Raises:
        WorkloadError: shapes do not fit, or a number is out of range.
    """
    try:
        for place, fault in _faults(workload, trained):
            if fault:
                raise WorkloadError(fault, place.split("."))
    except RequestError as error:
        error.path = path
        raise
    return workload


def _faults(workload: Workload, trained: bool) -> Iterator[tuple[str, str]]:
    """What may be wrong, with the field that it is about; "" if it is right."""
    data, count = workload.data, len(workload.model.nodes)
    many = f"has {count} layers; at most {_MOST_LAYERS} are read"
    yield "model.nodes", many * (count > _MOST_LAYERS)
    for name in ("batch_size", "epochs"):
        value = getattr(workload, name)
        yield name, f"{name} = {value} must be at least 1" * (value < 1)
    yield "optimizer", workload.optimizer.fault()
    yield "schedule", schedule_fault(workload.schedule)
    if len(data.mean) != len(data.std) or min(data.std, default=0) <= 0:
        yield "data.std", "data.mean and data.std need the same number of values, std above 0"
    yield "loss", workload.loss.fault(infer_shapes(workload.model)[workload.model.nodes[-1].name])
    yield "data.augmentation", _augmentation_fault(workload)
    yield "model", _training_fault(workload) if trained else ""


def _augmentation_fault(workload: Workload) -> str:
    """What is wrong with the augmentation for the model's input; "" if nothing is."""
    augmentation, model_input = workload.data.augmentation, workload.model.input
    if augmentation == Augmentation():
        return ""
    if model_input.kind != "real" or len(model_input.shape) != 3:
        return (
            f"data.augmentation is for images [C, H, W]; the model reads {model_input.kind} "
            f"{list(model_input.shape)}: leave it out"
        )
    for name, most in (("area", 1.0), ("aspect", math.inf)):
        least, largest = getattr(augmentation, name)
        if not 0 < least <= largest <= most or math.isinf(largest):
            return (
                f"data.augmentation.{name} = [{least}, {largest}] must be two numbers above 0, the "
                f"smaller first{' and none above 1' if name == 'area' else ''}"
            )
    if len(infer_shapes(workload.model)[workload.model.nodes[-1].name]) >= MAP_AXES:
        return (
            "data.augmentation moves images, and not labels or targets that are maps: leave it out"
        )
    smaller = min(model_input.shape[1:])
    if not 0 <= augmentation.pad < smaller:
        return (
            f"data.augmentation.pad = {augmentation.pad} must be 0 or more and below the smaller "
            f"side of the images, {smaller}"
        )
    return ""


def _training_fault(workload: Workload) -> str:
    """Why training would do nothing, or not what is described; "" if it would."""
    model = workload.model
    read = {name for node in model.wired() for name in node.inputs}
    for node in model.nodes[:-1]:
        if node.name not in read:
            return (
                f"layer '{node.name}': no layer reads its value; remove it, or name it in the inputs of "
                "a later layer"
            )
    if not trained_names(model):
        return "no layer has weights, so there is nothing to train; add a linear layer, for example"
    classes, _ = classes_and_places(infer_shapes(model)[model.nodes[-1].name])
    if classes == 1 and isinstance(workload.loss, SoftmaxCrossEntropy):
        return (
            f"layer '{model.nodes[-1].name}': softmax cross-entropy of one class is always 0, so nothing "
            'is trained; for two classes with one logit, use loss = { type = "binary_cross_entropy" }'
        )
    return ""


def write(workload: Workload, path: Path) -> None:
    """Write a workload as TOML; :func:`read` returns an equal one."""
    import tomli_w

    write_atomically(path, tomli_w.dumps(to_document(workload)).encode())


def to_document(workload: Workload) -> dict[str, Any]:
    """The workload as plain containers, without fields at their default."""
    document = without_defaults(workload)
    assert isinstance(document, dict)
    return document


def from_document(document: dict[str, Any]) -> Workload:
    """The inverse of :func:`to_document`.

    Raises:
        WorkloadError: the document is not a workload.
    """
    workload = decode(document, "workload document")
    return check(workload, f"workload '{workload.name}'")
