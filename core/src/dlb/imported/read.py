"""From an ONNX file to a workload and its weights, or why there is none."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper, numpy_helper

from dlb.errors import DataError, DlbError, UnsupportedError
from dlb.graph.layout import LAYOUT
from dlb.graph.trace import Trace, attributes_of, trace
from dlb.imported.check import LISTED, compare_with_file, cut
from dlb.imported.parts import with_slices
from dlb.imported.rules import RULES
from dlb.imported.shared import tied
from dlb.imported.walk import NotCovered, ReadAnew, Walk, called
from dlb.proof.certificate import Baseline, CheckResult
from dlb.proof.files.inputs import LARGEST_INPUT
from dlb.proof.files.read import ModelFile, read_model_file
from dlb.proof.findings import Finding
from dlb.proof.findings.workload import NodeIsLoss, RoundedWeights
from dlb.report.sentences import describe, sentence
from dlb.samples import SYNTHETIC
from dlb.workload import SGD, Data, Input, Model, Workload, files

__all__ = ["Arrangement", "Imported", "import_file"]

Array = npt.NDArray[Any]

#: How a file is trained unless the command line says otherwise.
BATCH_SIZE, LEARNING_RATE = 32, 0.01
#: Operators after the logits that training has in its loss.
_SOFTMAX = ("Softmax", "LogSoftmax")


@dataclass(frozen=True, eq=False)
class Arrangement:
    """How what the file reads and gives lies in what the workload does.

    Attributes:
        axes: of the file's input, in the order in which the workload reads them.
        places: int64 in the shape of the file's value: the position of each number in the logits of
            all samples, as many as the file was read with.
        after: from that value to the file's output, in float64: a last softmax, and what arranges
            its result. None where the value is the output.
    """

    axes: tuple[int, ...]
    places: Array
    after: onnx.ModelProto | None


@dataclass(frozen=True)
class Imported:
    """What an ONNX file is.

    Attributes:
        workload: its layers, trained with plain SGD on made-up data; ``onnx`` is the file's SHA-256.
        weights: float32, by ``layer.parameter``, in canonical layout.
        file_check: the canonical graph against the file, passed; of no adapter yet.
        arrangement: of its input and output.
    """

    workload: Workload
    weights: dict[str, npt.NDArray[np.float32]]
    file_check: CheckResult
    arrangement: Arrangement


def import_file(path: Path, *, any_output: bool = False) -> Imported:
    """Read a file as a workload, and hold what was read against the file.

    Args:
        any_output: take any value as what the file gives, not logits alone; a map is flattened at
            the end of the workload. What only arranges its input is still refused.

    Raises:
        DataError: no file, not an ONNX model, or one that contradicts itself.
        UnsupportedError: something in it that no layer means; the message names the node.
        WorkloadError: an attribute that the layers do not take.
    """
    file = read_model_file(path, path.name)
    try:
        with np.errstate(all="ignore"):
            return _import(file, path, any_output)
    except NotCovered as reason:
        raise UnsupportedError(str(reason), path=path) from None
    except DlbError as error:
        if not error.path:
            error.path = str(path)
        raise


def _import(file: ModelFile, path: Path, any_output: bool) -> Imported:
    for kind, found in (("inputs", file.inputs), ("outputs", file.outputs)):
        if len(found) != 1:
            names = ", ".join(f"'{port.name}'" for port in found) or "none"
            raise UnsupportedError(f"it has {len(found)} {kind} ({names}); a workload has one")
    shape = file.inputs[0].shape
    opened = [size for size in (shape or ())[1:] if not isinstance(size, int)]
    if shape is None or len(shape) < 2 or opened:
        raise UnsupportedError(
            f"input {file.inputs[0]} needs a batch and every other size fixed; export the model so"
        )
    if math.prod(shape[1:]) > LARGEST_INPUT:  # type: ignore[arg-type]
        raise UnsupportedError(
            f"input {file.inputs[0]} is larger than {LARGEST_INPUT} numbers a sample"
        )
    traced = with_slices(_traced(file.float64))
    logits, findings = _logits(traced, file.outputs[0].name, file.opset)
    walk, last = _walked(traced, logits, file, any_output)
    nodes, exact, shared = tied(*walk.nodes(last))
    findings += shared
    given = walk.made[walk.input]
    model = Model(input=Input(name=walk.input, shape=given.shape[1:], kind=walk.kind), nodes=nodes)
    workload = Workload(
        name=re.sub(r"[^A-Za-z0-9_-]+", "-", path.stem).strip("-") or "model",
        title=f"read from {path.name}",
        source="; ".join(
            [f"{path.name}, {file.description}", *(sentence(one, "") for one in findings)]
        ),
        batch_size=BATCH_SIZE,
        data=Data(name=SYNTHETIC),
        optimizer=SGD(learning_rate=LEARNING_RATE),
        model=model,
        onnx=file.sha256,
    )
    files.check(workload, str(path))
    findings += _rounded(exact)
    arrangement = Arrangement(walk.axes, walk.places(logits), _after(traced, logits))
    batch, theirs = traced.batch, cut(file.float64, logits, traced, walk.meant)
    # Of a large network they hold gigabytes, and so does what follows.
    del traced, walk
    result = compare_with_file(
        theirs,
        model,
        exact,
        arrangement.axes,
        batch,
        arrangement.places,
        Baseline(kind="onnx_file", names=(path.name,), sha256=file.sha256, float64=True),
    )
    if result.verdict != "passed":
        size = result.figures[0].relative_l2
        if size is None:
            raise UnsupportedError(
                "it computes a NaN or an infinity on noise, which proves nothing"
            )
        raise UnsupportedError(
            "the layers that were read compute something else than the file: "
            + "; ".join(part for part in (f"{size:.1e} apart", describe(result)) if part)
        )
    result = msgspec.structs.replace(result, findings=(*findings, *result.findings))
    weights = {name: exact.pop(name).astype(np.float32) for name in list(exact)}
    return Imported(workload, weights, result, arrangement)


def _rounded(exact: Mapping[str, Array]) -> list[Finding]:
    """A finding about the weights that float32 does not hold.

    Raises:
        DataError: one that is a NaN or an infinity, in float32 at least.
    """
    rounded = []
    for name, array in exact.items():
        narrow = array.astype(np.float32)
        if not np.isfinite(narrow).all():
            raise DataError(f"weight '{name}' holds a NaN or an infinity, in float32 at least")
        if not np.array_equal(narrow, array):
            rounded.append(name)
    if not rounded:
        return []
    listed, more = tuple(rounded[:LISTED]), max(0, len(rounded) - LISTED)
    return [Finding(cause=RoundedWeights(tensors=listed, more=more, total=len(exact)))]


def _traced(model: onnx.ModelProto) -> Trace:
    """The model run once; where it cannot be, the first node that is to blame is named."""
    try:
        return trace(model)
    except UnsupportedError as error:
        runs, fails = 0, len(model.graph.node)
        while fails - runs > 1:
            half = (runs + fails) // 2
            part = onnx.ModelProto()
            part.CopyFrom(model)
            del part.graph.node[half:]
            try:
                trace(part)
                runs = half
            except UnsupportedError:
                fails = half
        raise NotCovered(f"{called(model.graph.node[fails - 1])}: {error}") from None


def _walked(traced: Trace, logits: str, file: ModelFile, any_output: bool) -> tuple[Walk, str]:
    """The graph read, once its input is understood."""
    rank = traced.values[traced.inputs[0]].ndim
    axes, index = tuple(range(rank)), traced.values[traced.inputs[0]].dtype.kind in "iu"
    for _ in range(3):
        walk = Walk(traced, RULES, file.opset, axes, "index" if index else "real")
        try:
            return walk, walk.read(logits, any_output=any_output)
        except ReadAnew as anew:
            axes, index = anew.axes or axes, index or anew.index
    raise NotCovered(f"input {file.inputs[0]} is read in several orders of its axes")


def _logits(traced: Trace, output: str, opset: int) -> tuple[str, list[Finding]]:
    """The value before a last softmax over the classes, and a finding if there is one."""
    name, passed = output, []
    while name in traced.producers:
        node = traced.producers[name]
        if node.op_type in _SOFTMAX:
            rank = traced.values[name].ndim
            axis = attributes_of(node).get("axis", -1 if opset >= 13 else 1) % rank
            sizes = traced.values[name].shape
            spread = (axis, *range(axis + 1, rank)) if opset < 13 else (axis,)
            over = [sizes[each] for each in spread if sizes[each] > 1]
            classes = [size for size in sizes[1:] if size > 1][-1:]
            if over != classes:
                raise NotCovered(f"{called(node)}: not over the classes of the last axis")
            name = node.name or node.output[0]
            return node.input[0], [Finding(cause=NodeIsLoss(node=name, operator=node.op_type))]
        if node.op_type not in (*LAYOUT, "Cast"):
            break
        passed.append(node)
        name = node.input[0]
    return output, []


def _after(traced: Trace, logits: str) -> onnx.ModelProto | None:
    """The nodes between the logits and the output; each reads one value beside constants."""
    nodes: list[onnx.NodeProto] = []
    name = traced.outputs[0]
    while name != logits:
        node = traced.producers[name]
        if node.op_type in _SOFTMAX:
            # Over the classes alone, which operator sets before 13 say as that axis and all behind.
            large = [
                axis for axis, size in enumerate(traced.values[name].shape) if axis and size > 1
            ]
            node = helper.make_node(
                node.op_type, node.input, node.output, axis=max(large, default=1)
            )
        nodes.insert(0, node)
        name = node.input[0]
    if not nodes:
        return None
    constants = {each for node in nodes for each in node.input if each not in traced.live}
    graph = helper.make_graph(
        nodes,
        "after",
        [helper.make_tensor_value_info(logits, TensorProto.DOUBLE, None)],
        [helper.make_tensor_value_info(traced.outputs[0], TensorProto.DOUBLE, None)],
        [numpy_helper.from_array(traced.values[each], each) for each in sorted(constants) if each],
    )
    return helper.make_model(graph, opset_imports=traced.opsets)
