"""What an exported model says of itself, and whether that is so."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import onnx
from onnx import checker, defs

from dlb.errors import DlbError
from dlb.graph.runtime import open_session

__all__ = ["Exported", "check_exported", "with_opset"]


@dataclass(frozen=True)
class Exported:
    """Facts about an exported model.

    Attributes:
        producer: what wrote it, with its version.
        ir_version: of the file format.
        opset: the operator set that the model is labelled with.
        operators: how many of each, by name; those of other domains as ``domain::name``.
        consistent: every operator is written as that operator set has it (``onnx.checker``, shapes
            included). MXNet labels a model with the newest set that the installed onnx has,
            whatever it wrote.
        complaint: why it is not consistent, in one line; empty if it is.
        newest_consistent: the label itself, or else the newest set below it, of those that this
            onnx has, with which the model is consistent; None if there is none.
        refusal: why ONNX Runtime does not load it, in one line; empty if it does.
    """

    producer: str
    ir_version: int
    opset: int
    operators: tuple[tuple[str, int], ...]
    consistent: bool
    complaint: str
    newest_consistent: int | None
    refusal: str


def check_exported(model: onnx.ModelProto) -> Exported:
    """Read what a model says of itself, and try it in ``onnx.checker`` and ONNX Runtime."""
    opset = next((each.version for each in model.opset_import if each.domain in _MAIN), 0)
    complaint = _complaint(model)
    newest: int | None = opset
    if complaint:
        below = range(min(opset - 1, defs.onnx_opset_version()), 6, -1)
        newest = next((each for each in below if not _complaint(with_opset(model, each))), None)
    names = Counter(
        node.op_type if node.domain in _MAIN else f"{node.domain}::{node.op_type}"
        for node in model.graph.node
    )
    refusal = ""
    try:
        open_session(model.SerializeToString())
    except DlbError as error:
        refusal = str(error)
    return Exported(
        producer=f"{model.producer_name} {model.producer_version}".strip(),
        ir_version=model.ir_version,
        opset=opset,
        operators=tuple(sorted(names.items())),
        consistent=not complaint,
        complaint=complaint,
        newest_consistent=newest,
        refusal=refusal,
    )


def with_opset(model: onnx.ModelProto, opset: int) -> onnx.ModelProto:
    """A copy labelled with another operator set; the operators are left as they are written."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    for each in copy.opset_import:
        if each.domain in _MAIN:
            each.version = opset
    return copy


_MAIN = ("", "ai.onnx")


def _complaint(model: onnx.ModelProto) -> str:
    try:
        checker.check_model(model, full_check=True)
    except Exception as error:  # the checker, shape inference and protobuf have each their own
        text = " ".join(str(error).split()) or type(error).__name__
        return text if len(text) <= 300 else text[:300] + "..."
    return ""
