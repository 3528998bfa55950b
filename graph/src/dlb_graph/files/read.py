"""From an ONNX file to a workload and its weights, or the reason why not."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnx

from dlb_graph.comparing.read_facts import (
    AssumedValues,
    LossChosen,
    NarrowValues,
    ReadAs,
    ReadFact,
    RoundedWeights,
    StraightThrough,
)
from dlb_graph.errors import DataError, DlbError, UnsupportedError
from dlb_graph.files.check import FileComparison, LayersDiffer, compare_with_file, truncate_at
from dlb_graph.files.choices import ASSUMPTIONS, SIZES, Assumption, choose, padding_tests
from dlb_graph.files.logits import find_logits, is_share, loss_of, nodes_after
from dlb_graph.files.model_file import ModelFile, read_model_file, tensors_of
from dlb_graph.files.quantised import by_sample, has_whole_weights, quantises, with_straight_through
from dlb_graph.files.readings import READINGS, Refusal, refusal_of
from dlb_graph.files.tied_weights import tie_weights
from dlb_graph.files.unread import assumed_values_of, check_batch_size, is_judged, narrow_values_of
from dlb_graph.layers.numbers import Array
from dlb_graph.options import AS_IT_IS, Reading
from dlb_graph.reading.einsum import with_matrix_products
from dlb_graph.reading.importer import Importer
from dlb_graph.reading.layers import BlockMisread, InputMisread, UnsupportedNode, unsupported
from dlb_graph.reading.rules import READ_OPERATORS, RULES
from dlb_graph.reading.slices import split_into_slices
from dlb_graph.reading.views import ValueView
from dlb_graph.rewriting.compositions import RULES as COMPOSITIONS
from dlb_graph.rewriting.control_flow import CONTROL_FLOW
from dlb_graph.rewriting.passes import Rewriter, passes_for
from dlb_graph.truth.evaluate import NodeFailed, names_read
from dlb_graph.truth.limits import MOST_NUMBERS
from dlb_graph.truth.liveness import live_names
from dlb_graph.truth.precision import REAL_TYPES
from dlb_graph.truth.recognition import recognise
from dlb_graph.truth.trace import Trace, trace
from dlb_graph.workload import (
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
from dlb_graph.workload.model import SYNTHETIC

__all__ = ["FileLayout", "ImportedModel", "import_file"]


#: Training settings, unless the command line changes them.
BATCH_SIZE = 32
#: Small, since nothing is known about the outputs: those of an encoder are no classes.
LEARNING_RATE = 0.001
#: How often a graph is read whose input or blocks are misread.
_MISREAD = 100
#: How many of the rounded weights are named.
_LISTED = 4


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
        layout: of the file's input and output.
        name: the file's.
        facts: what was chosen, shared, taken for a loss and rounded in reading it.
        comparison: of the canonical graph with the file; they are equal.
        unread: what the file computes that no layer does.
    """

    workload: Workload
    weights: dict[str, npt.NDArray[np.float32]]
    layout: FileLayout
    name: str
    facts: tuple[ReadFact, ...]
    comparison: FileComparison
    unread: tuple[AssumedValues | NarrowValues, ...] = ()

    @property
    def judged(self) -> bool:
        """Whether the comparison shows that the layers are the file, on every input."""
        return all(map(is_judged, self.unread))

    @property
    def read_as(self) -> tuple[ReadAs, ...]:
        """What was chosen of a file that leaves something open."""
        return tuple(fact for fact in self.facts if isinstance(fact, ReadAs))


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
    try:
        with np.errstate(all="ignore"):
            outcome = _search(read_model_file(path, path.name), any_output, reading)
    except DlbError as error:
        error.path = error.path or str(path)
        raise
    if isinstance(outcome, Refusal):
        outcome.error.path = outcome.error.path or str(path)
        raise outcome.error
    return outcome


def _search(file: ModelFile, any_output: bool, reading: Reading) -> ImportedModel | Refusal:
    """Try assumptions about the file's input, each with sizes that nobody gave, until one is not refused.

    The first refusal counts: its node is the file's own.
    """
    first: Refusal | None = None
    chosen, sizes = file, list(SIZES)
    for assumption in ASSUMPTIONS:
        if not assumption.fits(chosen):
            continue
        sizes = list(SIZES) if assumption.one_sample else sizes
        while True:
            # What computes an operator for a backend gets every input.
            chosen, facts = choose(file, reading, sizes[0], assumption, assume=not any_output)
            outcome = _read(chosen, any_output, facts, assumption)
            if not isinstance(outcome, Refusal):
                return outcome
            if outcome.about != "run":
                break
            # A window may be larger than an open size that nobody gave.
            del sizes[0]
            if not sizes or not any(fact.defaults for fact in facts):
                return first or outcome
        if any_output or outcome.about == "file":
            return outcome
        first = first or outcome
    assert first is not None
    return first


def _read(
    file: ModelFile, any_output: bool, chosen: Sequence[ReadAs], assumption: Assumption
) -> ImportedModel | Refusal:
    """Try the readings of a graph, until one is not refused.

    Raises:
        UnsupportedError: a pass writes something else than the file, or the file computes with the size of the
            batch.
    """
    passes = passes_for(
        READ_OPERATORS,
        trained=not any_output,
        # Nothing is computed with tokens that may be padding, but whether they are.
        of_indices=not (assumption.padding and padding_tests(file.model.graph)),
    )
    rewriter, tried, refusals = (
        Rewriter(file.model, passes),
        set[tuple[str, ...]](),
        list[Refusal](),
    )
    for reading in READINGS:
        try:
            model, changed = rewriter.run(reading.without)
        except NodeFailed as error:
            return refusal_of(error, run=True)
        if changed in tried:
            continue
        tried.add(changed)
        found = _read_as(replace(file, model=model), any_output, chosen, file.model)
        if not isinstance(found, Refusal):
            break
        refusals.append(found)
    else:
        # The names of the first are the file's own. Quantised numbers are in no file that is read as it is.
        return refusals[-1 if quantises(file.model) else 0]
    read = file.model, found.workload.model, found.layout.axes
    check_batch_size(*read)
    assumed = {name: number for fact in chosen for name, number in fact.assumed}
    unread = assumed_values_of(*read, assumed), narrow_values_of(*read)
    return replace(found, unread=tuple(fact for fact in unread if fact is not None))


def _read_as(
    file: ModelFile, any_output: bool, chosen: Sequence[ReadAs], source: onnx.ModelProto
) -> ImportedModel | Refusal:
    """Read a rewritten form of ``source``, with a rule for each operator."""
    try:
        _refuse_at_once(file, trained=not any_output)
        return _import_graph(file, any_output, chosen, source)
    except (UnsupportedNode, UnsupportedError) as error:
        return refusal_of(error)


def _import_graph(
    file: ModelFile, any_output: bool, chosen: Sequence[ReadAs], source: onnx.ModelProto
) -> ImportedModel | Refusal:
    """The layers of a graph, compared with it."""
    try:
        traced = with_matrix_products(split_into_slices(trace(file.float64)))
    except NodeFailed as error:
        return refusal_of(error, run=True)
    output = file.outputs[0].name
    logits, losses = find_logits(traced, output, file.opset)
    importer, view, has_classes, read = _read_graph(traced, logits, file, any_output)
    if losses and not has_classes and not is_share(losses):
        # What a softmax reads is no logits, so the softmax is a layer.
        logits, losses = output, []
        importer, view, has_classes, read = _read_graph(traced, logits, file, any_output)
    last = view.layer
    nodes, exact_weights, shared = tie_weights(
        *read, {name: layer.shape for name, layer in importer.layers.items()}
    )
    facts: list[ReadFact] = [*chosen, *losses, *shared]
    if quantises(source) and not any_output:
        nodes, count = with_straight_through(nodes)
        if count:
            facts.append(StraightThrough(roundings=count, by_sample=by_sample(source)))
    input_layer = importer.layers[importer.input]
    model = Model(
        input=Input(name=importer.input, shape=input_layer.shape[1:], kind=importer.kind),
        nodes=nodes,
    )
    index_map = importer.index_map_of(view).reshape(importer.value_shape(logits))
    layout = FileLayout(importer.axes, index_map, nodes_after(traced, logits))
    loss = loss_of(importer.layers[last].shape, has_classes, is_share(losses))
    if not isinstance(loss, SoftmaxCrossEntropy):
        facts.append(LossChosen(output=logits, loss=type_name(loss)))
    workload = Workload(
        name=re.sub(r"[^A-Za-z0-9_-]+", "-", Path(file.label).stem).strip("-") or "model",
        title=f"read from {file.label}",
        source=f"{file.label}, {file.description}",
        batch_size=BATCH_SIZE,
        data=Data(name=SYNTHETIC),
        optimizer=SGD(learning_rate=LEARNING_RATE),
        loss=loss,
        model=model,
        onnx=file.sha256,
    )
    if importer.kind == "index" and not any(isinstance(node.layer, Embedding) for node in nodes):
        raise UnsupportedNode("its input holds integers that look up no table")
    files.check(workload, trained=not any_output)
    facts += _rounded_weights(exact_weights)
    batch, truncated = (
        traced.batch,
        truncate_at(file.float64, logits, traced, importer.nominal_values),
    )
    # For a large network, these hold gigabytes, and the next step needs as many.
    del traced, importer
    comparison = compare_with_file(
        truncated, model, exact_weights, layout.axes, batch, layout.index_map
    )
    if not comparison.equal:
        distance = comparison.figures[0].relative_l2
        if distance is None:
            raise UnsupportedError(
                "it outputs NaN or infinity on noise, so the layers cannot be compared with it"
            )
        if comparison.values_agree:
            raise LayersDiffer(
                "the imported layers and the file compute the same on noise, which does not show that "
                "they do on every input",
                comparison,
            )
        raise LayersDiffer("the imported layers and the file compute different outputs", comparison)
    weights = {
        name: exact_weights.pop(name).astype(np.float32, order="C") for name in list(exact_weights)
    }
    return ImportedModel(workload, weights, layout, file.label, tuple(facts), comparison)


def _rounded_weights(exact_weights: Mapping[str, Array]) -> list[RoundedWeights]:
    """The fact about the weights that float32 cannot hold exactly.

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
    listed, more = tuple(rounded[:_LISTED]), max(0, len(rounded) - _LISTED)
    return [RoundedWeights(tensors=listed, more=more, total=len(exact_weights))]


def _refuse_at_once(file: ModelFile, *, trained: bool) -> None:
    """Refuse, before anything is run, what no rule can read.

    To run a network takes seconds and gigabytes.

    Raises:
        UnsupportedNode: the output depends on an operator that no layer has.
        UnsupportedError: there are no weights, and ``trained`` is true; or the input is no batch, or too large.
    """
    shape = file.inputs[0].shape
    if shape is None or len(shape) < 2:
        raise UnsupportedError(f"input {file.inputs[0]} needs a batch axis and another")
    if math.prod(shape[1:]) > MOST_NUMBERS:  # type: ignore[arg-type]
        raise UnsupportedError(
            f"input {file.inputs[0]} has more than {MOST_NUMBERS} numbers per sample"
        )
    model, graph = file.model, file.model.graph
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


def _read_graph(
    traced: Trace, output: str, file: ModelFile, any_output: bool
) -> tuple[Importer, ValueView, bool, tuple[tuple[Node, ...], dict[str, Array]]]:
    """Read the graph, again if something was misread.

    Returns what ``Importer.read`` and ``Importer.nodes`` do, too.
    """
    rank = traced.values[traced.inputs[0]].ndim
    axes, index = tuple(range(rank)), traced.values[traced.inputs[0]].dtype.kind in "iu"
    known, unread = recognise(traced), set[str]()
    for _ in range(_MISREAD):
        importer = Importer(
            known, RULES, file.opset, axes, "index" if index else "real", frozenset(unread)
        )
        try:
            view, has_classes = importer.read(output, moved=any_output)
            return importer, view, has_classes, importer.nodes(view.layer)
        except InputMisread as misread:
            axes, index = misread.axes or axes, index or misread.index
        except BlockMisread as misread:
            unread.add(misread.output)
    raise UnsupportedNode(f"input {file.inputs[0]} is read with several orders of its axes")
