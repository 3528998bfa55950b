"""From an ONNX file to a workload and its weights, or the reason why not."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import onnx

from dlb.errors import DataError, DlbError, UnsupportedError
from dlb.graph.compositions import RULES as COMPOSITIONS
from dlb.graph.control_flow import CONTROL_FLOW
from dlb.graph.evaluate import NodeFailed, names_read
from dlb.graph.liveness import live_names
from dlb.graph.precision import REAL_TYPES
from dlb.graph.recurrent_steps import RECURRENT
from dlb.graph.trace import Trace, attributes_of, trace
from dlb.imported.check import MAX_LISTED, compare_with_file, truncate_at
from dlb.imported.einsum import with_matrix_products
from dlb.imported.forms import NotRun, forms
from dlb.imported.importer import Importer
from dlb.imported.layers import BlockMisread, InputMisread, UnsupportedNode, unsupported
from dlb.imported.logits import find_logits, is_share, loss_of, nodes_after
from dlb.imported.quantised import by_sample, has_whole_weights, quantises, with_straight_through
from dlb.imported.reading import SIZES, choose, padding_tests
from dlb.imported.rules import READ_OPERATORS, RULES
from dlb.imported.slices import split_into_slices
from dlb.imported.tied_weights import tie_weights
from dlb.imported.unread import check_batch_size, with_assumed_values, with_narrow_values
from dlb.imported.views import ValueView
from dlb.proof.certificate import Baseline, CheckResult
from dlb.proof.distance import passes
from dlb.proof.files.inputs import LARGEST_INPUT
from dlb.proof.files.read import ModelFile, read_model_file, tensors_of
from dlb.proof.findings import Finding
from dlb.proof.findings.workload import (
    LossChosen,
    ReadAs,
    RoundedWeights,
    StraightThrough,
)
from dlb.proof.tolerances import FLOAT64_TOLERANCE
from dlb.reading import AS_IT_IS, Reading
from dlb.report.sentences import describe, sentence
from dlb.samples import SYNTHETIC
from dlb.workload import (
    SGD,
    Data,
    Embedding,
    Input,
    Model,
    Node,
    SoftmaxCrossEntropy,
    Workload,
    files,
    type_name,
)

__all__ = ["FileLayout", "ImportedModel", "import_file"]

Array = npt.NDArray[Any]

#: Training settings, unless the command line changes them.
BATCH_SIZE = 32
#: Small, since nothing is known about the outputs: those of an encoder are no classes.
LEARNING_RATE = 0.001
#: How often a graph is read whose input or blocks are misread.
_MISREAD = 100


@dataclass(frozen=True, eq=False)
class FileLayout:
    """How the file's input and output relate to those of the workload.

    Attributes:
        axes: of the file's input, in the order in which the workload reads them.
        index_map: int64 in the shape of the file's value: where each number lies in the logits of
            all samples of the batch that the file was read with.
        postprocessing: a float64 model from that value to the file's output: a last softmax or
            sigmoid, and layout operators. None if the value is the output.
    """

    axes: tuple[int, ...]
    index_map: Array
    postprocessing: onnx.ModelProto | None


@dataclass(frozen=True)
class ImportedModel:
    """An ONNX file as a workload.

    Attributes:
        workload: the layers, trained with plain SGD on synthetic data; ``onnx`` is the file's
            SHA-256.
        weights: float32, by ``layer.parameter``, in canonical layout.
        file_check: the passed check of the canonical graph against the file, without an adapter.
        layout: of the file's input and output.
    """

    workload: Workload
    weights: dict[str, npt.NDArray[np.float32]]
    file_check: CheckResult
    layout: FileLayout

    @property
    def read_as(self) -> tuple[ReadAs, ...]:
        """What was chosen of a file that leaves something open."""
        causes = (finding.cause for finding in self.file_check.findings)
        return tuple(cause for cause in causes if isinstance(cause, ReadAs))


def import_file(
    path: Path, *, any_output: bool = False, reading: Reading = AS_IT_IS
) -> ImportedModel:
    """Read a file as a workload, and compare the layers with the file.

    Args:
        path: of the ``.onnx`` file.
        any_output: nothing is trained: a model without weights is read, too. A file that only reorders its
            input is still refused.
        reading: sizes, constants and output that were chosen.

    Raises:
        DataError: no file, not an ONNX model, or a model that contradicts itself.
        UnsupportedError: no layer matches a part of the model; the message names the node.
        WorkloadError: a layer does not accept an attribute.
        RequestError: a name or a size that was chosen is none of the file's.
    """
    attempts, padding, one_sample = list(SIZES), True, False
    refused: UnsupportedNode | None = None
    try:
        while attempts:
            sizes = attempts.pop(0)
            # What computes an operator for a backend gets every input.
            file, chosen = choose(
                read_model_file(path, path.name),
                reading,
                sizes,
                assume=not any_output,
                padding=padding,
                one_sample=one_sample,
            )
            try:
                with np.errstate(all="ignore"):
                    assumes = padding and bool(padding_tests(file.model.graph))
                    return _import(file, path, any_output, chosen, with_numbers=not assumes)
            except NotRun as error:
                # A window may be larger than an open size that nobody gave.
                open_sizes = any(
                    isinstance(one.cause, ReadAs) and one.cause.defaults for one in chosen
                )
                if not attempts or not open_sizes:
                    raise refused or error from None
            except UnsupportedNode as reason:
                refused = refused or reason
                if any_output:
                    raise
                if padding and padding_tests(file.model.graph):
                    padding, attempts = False, [sizes, *attempts]
                elif not one_sample and _may_be_one_sample(file):
                    one_sample, attempts = True, list(SIZES)
                else:
                    raise refused from None
        raise AssertionError("the last attempt returns or raises")
    except UnsupportedNode as reason:
        raise UnsupportedError(str(reason), path=path) from None
    except DlbError as error:
        if not error.path:
            error.path = str(path)
        raise


def _may_be_one_sample(file: ModelFile) -> bool:
    """Whether a file may read one sample, whose first axis is steps, or rows that are reduced together.

    What is reduced along all axes, such as the loudest of a recording, is no number of a sample.
    """
    (shape,) = (port.shape for port in file.inputs)
    if shape is None or len(shape) < 2:
        return False
    return any(
        node.op_type in RECURRENT or (len(shape) == 2 and _reduces_everything(node))
        for node in file.model.graph.node
    )


def _reduces_everything(node: onnx.NodeProto) -> bool:
    named = len(node.input) > 1 or "axes" in attributes_of(node)
    return node.op_type.startswith("Reduce") and not named


def _import(
    file: ModelFile,
    path: Path,
    any_output: bool,
    chosen: Sequence[Finding],
    *,
    with_numbers: bool,
) -> ImportedModel:
    """Read the operators as they are, and where this fails, in other forms that compute the same.

    Raises the reason why they are not read as they are: its names are the file's own.

    Args:
        with_numbers: an input may be looked up and computed with.
    """
    refused: list[Exception] = []
    for form in forms(file.model, trained=not any_output, with_numbers=with_numbers):
        try:
            own = replace(file, model=form)
            found = _import_graph(own, path, any_output, chosen, file.model)
            break
        except (UnsupportedError, UnsupportedNode) as reason:
            refused.append(reason)
    else:
        # Quantised numbers are in no file that is read as it is.
        raise refused[-1 if quantises(file.model) else 0]
    read = file.model, found.workload.model, found.layout.axes
    check_batch_size(*read)
    assumed = {name: number for cause in found.read_as for name, number in cause.assumed}
    checked = with_assumed_values(found.file_check, *read, assumed)
    return replace(found, file_check=with_narrow_values(checked, *read))


def _import_graph(
    file: ModelFile,
    path: Path,
    any_output: bool,
    chosen: Sequence[Finding],
    source: onnx.ModelProto,
) -> ImportedModel:
    """Read a form of ``source`` as it is."""
    shape = file.inputs[0].shape
    if shape is None or len(shape) < 2:
        raise UnsupportedError(f"input {file.inputs[0]} needs a batch axis and another")
    if math.prod(shape[1:]) > LARGEST_INPUT:  # type: ignore[arg-type]
        raise UnsupportedError(
            f"input {file.inputs[0]} has more than {LARGEST_INPUT} numbers per sample"
        )
    _refuse_at_once(file.model, trained=not any_output)
    traced = with_matrix_products(split_into_slices(_run_once(file.float64)))
    output = file.outputs[0].name
    logits, findings = find_logits(traced, output, file.opset)
    importer, view, has_classes, read = _read_graph(traced, logits, file, any_output)
    if findings and not has_classes and not is_share(findings):
        # What a softmax reads is no logits, so the softmax is a layer.
        logits, findings = output, []
        importer, view, has_classes, read = _read_graph(traced, logits, file, any_output)
    last = view.layer
    nodes, exact_weights, tying_findings = tie_weights(
        *read, {name: layer.shape for name, layer in importer.layers.items()}
    )
    findings = [*chosen, *findings, *tying_findings]
    if quantises(source) and not any_output:
        nodes, count = with_straight_through(nodes)
        if count:
            cause = StraightThrough(roundings=count, by_sample=by_sample(source))
            findings.append(Finding(cause=cause))
    input_layer = importer.layers[importer.input]
    model = Model(
        input=Input(name=importer.input, shape=input_layer.shape[1:], kind=importer.kind),
        nodes=nodes,
    )
    index_map = importer.index_map_of(view).reshape(importer.value_shape(logits))
    layout = FileLayout(importer.axes, index_map, nodes_after(traced, logits))
    loss = loss_of(importer.layers[last].shape, has_classes, is_share(findings))
    if not isinstance(loss, SoftmaxCrossEntropy):
        findings.append(Finding(cause=LossChosen(output=logits, loss=type_name(loss))))
    workload = Workload(
        name=re.sub(r"[^A-Za-z0-9_-]+", "-", path.stem).strip("-") or "model",
        title=f"read from {path.name}",
        source="; ".join(
            [f"{path.name}, {file.description}", *(sentence(finding, "") for finding in findings)]
        ),
        batch_size=BATCH_SIZE,
        data=Data(name=SYNTHETIC),
        optimizer=SGD(learning_rate=LEARNING_RATE),
        loss=loss,
        model=model,
        onnx=file.sha256,
    )
    if importer.kind == "index" and not any(isinstance(node.layer, Embedding) for node in nodes):
        raise UnsupportedNode("its input holds integers that look up no table")
    files.check(workload, str(path), trained=not any_output)
    findings += _rounding_findings(exact_weights)
    batch, truncated = (
        traced.batch,
        truncate_at(file.float64, logits, traced, importer.nominal_values),
    )
    # For a large network, these hold gigabytes, and the next step needs as many.
    del traced, importer
    result = compare_with_file(
        truncated,
        model,
        exact_weights,
        layout.axes,
        batch,
        layout.index_map,
        Baseline(kind="onnx_file", names=(path.name,), sha256=file.sha256, float64=True),
    )
    if result.verdict != "passed":
        distance = result.figures[0].relative_l2
        if distance is None:
            raise UnsupportedError(
                "it outputs NaN or infinity on noise, so the layers cannot be compared with it"
            )
        found = "; ".join(
            text for text in (f"relative distance {distance:.1e}", describe(result)) if text
        )
        if passes(result.figures, FLOAT64_TOLERANCE):
            raise UnsupportedError(
                "the imported layers and the file compute the same on noise, which does not show that "
                f"they do on every input: {found}"
            )
        raise UnsupportedError(
            f"the imported layers and the file compute different outputs: {found}"
        )
    result = msgspec.structs.replace(result, findings=(*findings, *result.findings))
    weights = {
        name: exact_weights.pop(name).astype(np.float32, order="C") for name in list(exact_weights)
    }
    return ImportedModel(workload, weights, result, layout)


def _rounding_findings(exact_weights: Mapping[str, Array]) -> list[Finding]:
    """A finding about the weights that float32 cannot hold exactly.

    Raises:
        DataError: a weight has a NaN or an infinity, at least in float32.
    """
    rounded = []
    for name, array in exact_weights.items():
        narrow = array.astype(np.float32)
        if not np.isfinite(narrow).all():
            raise DataError(f"weight '{name}' has a NaN or an infinity, at least in float32")
        if not np.array_equal(narrow, array):
            rounded.append(name)
    if not rounded:
        return []
    listed, more = tuple(rounded[:MAX_LISTED]), max(0, len(rounded) - MAX_LISTED)
    return [Finding(cause=RoundedWeights(tensors=listed, more=more, total=len(exact_weights)))]


def _refuse_at_once(model: onnx.ModelProto, *, trained: bool) -> None:
    """Refuse, before anything is run, what no rule can read.

    To run a network takes seconds and gigabytes.

    Raises:
        UnsupportedNode: the output depends on an operator that no layer has.
        UnsupportedError: there are no weights, and ``trained`` is true.
    """
    graph = model.graph
    if model.functions:
        from onnx import inliner

        graph = inliner.inline_local_functions(model).graph
    held = {tensor.name for tensor in graph.initializer}
    live = live_names(graph.node, [v.name for v in graph.input if v.name not in held])
    needed = {value.name for value in graph.output}
    for node in reversed(graph.node):
        if not needed.isdisjoint(node.output):
            needed |= names_read(node)
    for node in graph.node:
        names = set(node.output) & live & needed
        # An If may have a constant condition.
        if names and node.op_type not in READ_OPERATORS and node.op_type != "If":
            if node.op_type in CONTROL_FLOW:
                raise unsupported(
                    node,
                    "how often it runs depends on the input, or its rounds are too many to be written out",
                )
            if node.op_type in COMPOSITIONS:
                raise unsupported(node, "dlb does not read it with these attributes or sizes")
            raise unsupported(node, "dlb has no layer for this operator")
    if trained and not (
        has_whole_weights(model)
        or any(
            tensor.data_type in REAL_TYPES and math.prod(tensor.dims) > 1
            for tensor in tensors_of(model)
        )
    ):
        raise UnsupportedError(
            "it holds no weights, so there is nothing to train; `dlb diff` compares such files"
        )


def _run_once(model: onnx.ModelProto) -> Trace:
    """Run the model once.

    Raises:
        NotRun: it cannot be run; the text names the first node that fails.
    """
    try:
        return trace(model)
    except NodeFailed as error:
        raise NotRun(error) from None


def _read_graph(
    traced: Trace, output: str, file: ModelFile, any_output: bool
) -> tuple[Importer, ValueView, bool, tuple[tuple[Node, ...], dict[str, Array]]]:
    """Read the graph, again if something was misread.

    Returns what ``Importer.read`` and ``Importer.nodes`` do, too.
    """
    rank = traced.values[traced.inputs[0]].ndim
    axes, index = tuple(range(rank)), traced.values[traced.inputs[0]].dtype.kind in "iu"
    unread = set[str]()
    for _ in range(_MISREAD):
        importer = Importer(
            traced, RULES, file.opset, axes, "index" if index else "real", frozenset(unread)
        )
        try:
            view, has_classes = importer.read(output, moved=any_output)
            return importer, view, has_classes, importer.nodes(view.layer)
        except InputMisread as misread:
            axes, index = misread.axes or axes, index or misread.index
        except BlockMisread as misread:
            unread.add(misread.output)
    raise UnsupportedNode(f"input {file.inputs[0]} is read with several orders of its axes")
