"""From an ONNX file to a workload and its weights, or the reason why not."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper, numpy_helper

from dlb.errors import DataError, DlbError, UnsupportedError
from dlb.graph.blocks import BLOCK_OPERATORS
from dlb.graph.control_flow import CONTROL_FLOW, without_control_flow
from dlb.graph.copies import COPY_OPERATORS
from dlb.graph.evaluate import Evaluator, NodeFailed, names_read
from dlb.graph.layout import LAYOUT
from dlb.graph.live_statistics import with_live_statistics
from dlb.graph.liveness import live_names
from dlb.graph.precision import REAL_TYPES, in_precision
from dlb.graph.recurrent_steps import RECURRENT, with_steps
from dlb.graph.trace import Trace, attributes_of, default_inputs, trace
from dlb.imported.bodies import pair, part_constants, with_bodies
from dlb.imported.check import MAX_LISTED, compare_with_file, truncate_at
from dlb.imported.einsum import with_matrix_products
from dlb.imported.importer import Importer
from dlb.imported.layers import BlockMisread, InputMisread, UnsupportedNode, unsupported
from dlb.imported.quantised import by_sample, has_whole_weights, quantises, with_straight_through
from dlb.imported.reading import SIZES, choose, padding_tests
from dlb.imported.real_numbers import as_real_numbers
from dlb.imported.real_rules import DYNAMIC
from dlb.imported.rules import RULES
from dlb.imported.slices import split_into_slices
from dlb.imported.tied_weights import tie_weights
from dlb.imported.views import ValueView
from dlb.proof.certificate import Baseline, CheckResult
from dlb.proof.distance import figures, passes
from dlb.proof.files.inputs import LARGEST_INPUT
from dlb.proof.files.read import ModelFile, read_model_file, tensors_of
from dlb.proof.findings import Finding
from dlb.proof.findings.workload import (
    LossChosen,
    NodeIsLoss,
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
    BinaryCrossEntropy,
    Data,
    Embedding,
    Input,
    Loss,
    Model,
    Node,
    SoftmaxCrossEntropy,
    SquaredError,
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
#: Operators after the logits that are part of the loss in training: of classes, and of shares.
_SOFTMAX, _SIGMOID = ("Softmax", "LogSoftmax"), "Sigmoid"
_COPIES = ("Cast", "Identity")
#: Operators of which some are written out where no layer is what they compute.
_WRITTEN_OUT = RECURRENT | {"BatchNormalization"}


#: How often a graph is read whose input or blocks are misread.
_MISREAD = 100


class NotRun(UnsupportedNode):
    """A node cannot be run."""

    def __init__(self, error: NodeFailed) -> None:
        super().__init__(str(unsupported(error.node, f"{error}")))


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
    plain = _written_out(file)
    for model in (plain, _more_written_out(plain)):
        if model is None:
            continue
        for form in _forms(model, trained=not any_output, with_numbers=with_numbers):
            try:
                own = replace(file, model=form)
                return _import_graph(own, path, any_output, chosen, file.model)
            except (UnsupportedError, UnsupportedNode) as reason:
                refused.append(reason)
    # Quantised numbers are in no file that is read as it is.
    raise refused[-1 if quantises(file.model) else 0]


def _more_written_out(plain: onnx.ModelProto) -> onnx.ModelProto | None:
    """The model with operators written out that no layer is, which are recurrent or normalise; None without.

    Raises:
        UnsupportedError: what is written out computes something else.
    """
    if _WRITTEN_OUT.isdisjoint(node.op_type for node in plain.graph.node):
        return None
    try:
        traced = trace(plain)
    except NodeFailed:
        return None
    written = with_steps(with_live_statistics(plain, traced), traced)
    if written is plain:
        return None
    _check_written_out("operators", plain, written)
    return written


def _written_out(file: ModelFile) -> onnx.ModelProto:
    """The file's model without the loops and branches that every input takes alike.

    Raises:
        NotRun: it cannot be run.
        UnsupportedError: what is written out computes something else.
    """
    model = file.model
    if model.functions:
        model = onnx.inliner.inline_local_functions(model)
    if CONTROL_FLOW.isdisjoint(node.op_type for node in model.graph.node):
        return file.model
    feed, batch = default_inputs(model)
    try:
        straight = without_control_flow(model, feed, one_sample=batch == 1)
        if straight is model:
            return file.model
    except NodeFailed as error:
        raise NotRun(error) from None
    _check_written_out("loops", model, straight)
    return straight


def _check_written_out(
    what: str, model: onnx.ModelProto, written: onnx.ModelProto, *, one_sample: bool = False
) -> None:
    """Run both on noise: on one sample of a batch, or on all.

    Raises:
        NotRun: one cannot be run.
        UnsupportedError: they compute different outputs.
    """
    drawn, (feed, _) = np.random.default_rng(0), default_inputs(model)
    if one_sample:
        feed = {name: value[:1] for name, value in feed.items()}
    feed = {
        name: value if value.dtype.kind in "biu" else drawn.normal(size=value.shape)
        for name, value in feed.items()
    }
    try:
        expected, computed = (
            Evaluator(in_precision(one, TensorProto.DOUBLE)).run(feed) for one in (model, written)
        )
    except NodeFailed as error:
        raise NotRun(error) from None
    if not passes(figures(computed, expected), FLOAT64_TOLERANCE):
        raise UnsupportedError(f"its {what}, written out, compute something else than the file")


def _forms(
    model: onnx.ModelProto, *, trained: bool, with_numbers: bool
) -> Iterator[onnx.ModelProto]:
    """The model, with operators that ONNX defines by others as those, and with real numbers for truths.

    Where something is trained, dynamic quantisation is that of each sample.

    Raises:
        UnsupportedError: the real numbers are others.
    """
    dynamic = {DYNAMIC} if trained else set()
    plain = with_bodies(pair(model), _READ | dynamic)
    inner = with_bodies(plain, dynamic)
    for form in (plain, inner) if inner is not plain else (plain,):
        yield part_constants(form)
        by_samples = any(node.op_type == DYNAMIC for node in form.graph.node)
        if by_samples and not trained:  # an older onnx has not written it out
            continue
        try:
            real = as_real_numbers(form, of_indices=with_numbers)
        except UnsupportedError:
            continue
        if real is not None:
            if by_samples:
                _check_written_out("dynamic quantisation", form, real, one_sample=True)
            yield part_constants(real)


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
    logits, findings = _find_logits(traced, output, file.opset)
    importer, view, has_classes, read = _read_graph(traced, logits, file, any_output)
    if findings and not has_classes and not _is_share(findings):
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
    layout = FileLayout(importer.axes, index_map, _nodes_after(traced, logits))
    loss = _loss(importer.layers[last].shape, has_classes, _is_share(findings))
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


def _loss(shape: tuple[int, ...], has_classes: bool, is_share: bool) -> Loss:
    """What a file, which says nothing about it, is trained by.

    What a sigmoid reads is trained to be a share, as a single output of each sample or step is. Numbers for
    classes are logits, and all others are numbers.
    """
    if is_share or (has_classes and shape[-1] == 1):
        return BinaryCrossEntropy()
    return SoftmaxCrossEntropy() if has_classes else SquaredError()


def _is_share(findings: Sequence[Finding]) -> bool:
    """Whether the loss begins with a sigmoid."""
    return any(getattr(finding.cause, "operator", "") == _SIGMOID for finding in findings)


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


#: Operators that a rule may read, or that may be part of what one reads.
_READ = (
    (RULES.keys() - {"Attention"})
    | LAYOUT
    | BLOCK_OPERATORS
    | COPY_OPERATORS
    | {"ArgMax", "Shape", "Size"}
)


def _refuse_at_once(model: onnx.ModelProto, *, trained: bool) -> None:
    """Refuse, before anything is run, what no rule can read.

    To run a network takes seconds and gigabytes.

    Raises:
        UnsupportedNode: the output depends on an operator that no layer has.
        UnsupportedError: there are no weights, and ``trained`` is true.
    """
    graph = onnx.inliner.inline_local_functions(model).graph if model.functions else model.graph
    held = {tensor.name for tensor in graph.initializer}
    live = live_names(graph.node, [v.name for v in graph.input if v.name not in held])
    needed = {value.name for value in graph.output}
    for node in reversed(graph.node):
        if not needed.isdisjoint(node.output):
            needed |= names_read(node)
    for node in graph.node:
        names = set(node.output) & live & needed
        # An If may have a constant condition.
        if names and node.op_type not in _READ and node.op_type != "If":
            if node.op_type in CONTROL_FLOW:
                raise unsupported(
                    node,
                    "how often it runs depends on the input, or its rounds are too many to be written out",
                )
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


def _find_logits(traced: Trace, output: str, opset: int) -> tuple[str, list[Finding]]:
    """The value before a last softmax over the classes, the choice of the largest, or a last sigmoid.

    There is a finding for each.
    """
    name, found = output, list[Finding]()
    while name in traced.producers:
        node = traced.producers[name]
        shape = traced.values[name].shape
        if node.op_type == "ArgMax" and not found and shape:
            read = traced.values[node.input[0]].shape
            axis = attributes_of(node).get("axis", 0) % len(read)
            if [axis] == [place for place in range(1, len(read)) if read[place] > 1][-1:]:
                found, output, name = [_is_loss(node)], node.input[0], node.input[0]
                continue
        if node.op_type in _SOFTMAX:
            axis = attributes_of(node).get("axis", -1 if opset >= 13 else 1) % len(shape)
            axes = (axis, *range(axis + 1, len(shape))) if opset < 13 else (axis,)
            large = [axis for axis in range(1, len(shape)) if shape[axis] > 1]
            classes = [axis for axis in axes if axis in large]
            if axis > 0 and classes == large[-1:] and len(large) < 3:
                return node.input[0], [*found, _is_loss(node)]
        elif node.op_type == _SIGMOID and len(shape) > 1:
            return node.input[0], [_is_loss(node)]
        elif share := _share_of_pair(traced, node):
            return share.input[0], [*found, _is_loss(share)]
        if node.op_type not in (*LAYOUT, "Cast"):
            break
        name = node.input[0]
    return output, found


def _share_of_pair(traced: Trace, node: onnx.NodeProto) -> onnx.NodeProto | None:
    """The sigmoid of two classes whose probabilities a node joins, 1 - p and p; None if it does not."""
    if node.op_type != "Concat" or len(node.input) != 2:
        return None
    shape = traced.values[node.output[0]].shape
    other, share = (_without_copies(traced, name) for name in node.input)
    difference, sigmoid = traced.producers.get(other), traced.producers.get(share)
    if difference is None or sigmoid is None or shape[-1] != 2 or len(shape) != 2:
        return None
    if difference.op_type != "Sub" or sigmoid.op_type != _SIGMOID:
        return None
    ones = traced.constant(difference, 0)
    is_rest = _without_copies(traced, difference.input[1]) == share
    return sigmoid if ones is not None and is_rest and bool((ones == 1).all()) else None


def _without_copies(traced: Trace, name: str) -> str:
    """The value that a value is, past nodes that only pass it on."""
    while (node := traced.producers.get(name)) is not None and node.op_type in _COPIES:
        name = node.input[0]
    return name


def _is_loss(node: onnx.NodeProto) -> Finding:
    return Finding(cause=NodeIsLoss(node=node.name or node.output[0], operator=node.op_type))


def _nodes_after(traced: Trace, logits: str) -> onnx.ModelProto | None:
    """A model of the nodes between the logits and the output; None if there are none."""
    nodes: list[onnx.NodeProto] = []
    needed = {traced.outputs[0]}
    for node in reversed(traced.nodes):
        if needed.isdisjoint(node.output) or logits in node.output:
            continue
        needed |= {name for name in node.input if name in traced.live} - {logits}
        if node.op_type in _SOFTMAX:
            # Operator sets before 13 apply the softmax to the axis and to all axes after it.
            shape = traced.values[node.output[0]].shape
            large_axes = [axis for axis, size in enumerate(shape) if axis and size > 1]
            node = helper.make_node(
                node.op_type, node.input, node.output, axis=max(large_axes, default=1)
            )
        nodes.insert(0, node)
    if not nodes:
        return None
    constants = {name for node in nodes for name in node.input if name not in traced.live}
    graph = helper.make_graph(
        nodes,
        "after",
        [helper.make_tensor_value_info(logits, TensorProto.DOUBLE, None)],
        [helper.make_tensor_value_info(traced.outputs[0], TensorProto.DOUBLE, None)],
        [numpy_helper.from_array(traced.values[name], name) for name in sorted(constants) if name],
    )
    return helper.make_model(graph, opset_imports=traced.opsets)
