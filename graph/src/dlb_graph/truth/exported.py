"""What an exported model declares about itself, and whether that is correct."""

from __future__ import annotations

from dataclasses import dataclass

import onnx
from onnx import checker, defs

from dlb_graph.errors import DlbError
from dlb_graph.truth.held import weights_as_inputs
from dlb_graph.truth.runtime import open_session

__all__ = ["ExportedFacts", "check_exported", "with_opset"]


@dataclass(frozen=True)
class ExportedFacts:
    """Facts about an exported model.

    Attributes:
        producer: the program that wrote it, with its version.
        opset: the operator set that the model declares.
        consistent: every operator is valid in the declared operator set (``onnx.checker``, shapes
            included). MXNet always declares the newest set that the installed onnx has.
        checker_error: why the model is not consistent, in one line; empty if it is.
        newest_consistent: the declared set, or the newest set below it with which the model is
            consistent; None if the installed onnx has no such set.
        runtime_error: why ONNX Runtime does not load the model, in one line; empty if it does.
    """

    producer: str
    opset: int
    consistent: bool
    checker_error: str
    newest_consistent: int | None
    runtime_error: str


def check_exported(model: onnx.ModelProto) -> ExportedFacts:
    """Read a model's declarations, and test it with ``onnx.checker`` and ONNX Runtime."""
    opset = next((entry.version for entry in model.opset_import if entry.domain in _MAIN), 0)
    # The weights themselves decide nothing here, and both programs copy them.
    model = weights_as_inputs(model)
    content = model.SerializeToString()
    checker_error = _checker_error(content)
    newest: int | None = opset
    if checker_error:
        below = range(min(opset - 1, defs.onnx_opset_version()), 6, -1)
        newest = next(
            (
                older
                for older in below
                if not _checker_error(with_opset(model, older).SerializeToString())
            ),
            None,
        )
    runtime_error = ""
    try:
        # Otherwise it computes constants, however large.
        open_session(content, optimised=False)
    except DlbError as error:
        runtime_error = str(error)
    return ExportedFacts(
        producer=f"{model.producer_name} {model.producer_version}".strip(),
        opset=opset,
        consistent=not checker_error,
        checker_error=checker_error,
        newest_consistent=newest,
        runtime_error=runtime_error,
    )


def with_opset(model: onnx.ModelProto, opset: int) -> onnx.ModelProto:
    """A copy that declares another operator set; the operators are unchanged."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    for entry in copy.opset_import:
        if entry.domain in _MAIN:
            entry.version = opset
    return copy


_MAIN = ("", "ai.onnx")


def _checker_error(model: bytes) -> str:
    try:
        checker.check_model(model, full_check=True)
    except Exception as error:  # the checker, shape inference and protobuf raise different types
        text = " ".join(str(error).split()) or type(error).__name__
        return text if len(text) <= 300 else text[:300] + "..."
    return ""
