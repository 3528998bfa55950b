"""Sentences of findings about two ONNX files."""

from __future__ import annotations

import math

from dlb.proof.findings import Finding, LayerFacts
from dlb.report.common import attributes_text, quoted, renders, says
from dlb_graph.comparing import read_facts
from dlb_port.findings import files

#: Characters of a node's attributes.
_LONGEST = 160


def node_text(node: LayerFacts) -> str:
    """A node of a file: ``Conv 'y' (kernel_shape=[3, 3])``."""
    text = attributes_text(node)
    text = text if len(text) <= _LONGEST else text[:_LONGEST] + "..."
    return f"{node.kind} '{node.name}'" + (f" ({text})" if text else "")


@renders(read_facts.FedNoise)
def _noise(cause: read_facts.FedNoise, finding: Finding, adapter: str) -> str:
    deviations = " and ".join(f"{deviation:.0f}" for deviation in cause.deviations)
    return f"{len(cause.deviations)} batches of noise, standard deviation {deviations}"


says(read_facts.FedArrays, "inputs of {path}")


@renders(files.Bfloat16Model)
@renders(files.Float16Model)
def _narrow(cause: files.Float16Model, finding: Finding, adapter: str) -> str:
    kind = "bfloat16" if isinstance(cause, files.Bfloat16Model) else "float16"
    weights = "1 weight is that" if cause.weights == 1 else f"{cause.weights} weights are those"
    stored = ", stored in a wider type" if cause.stored else ""
    other = f"'{cause.other}'" if cause.other else "the other file"
    return (
        f"'{cause.file}' is the same model in {kind}: {weights} of {other} rounded to {kind}{stored}, which "
        f"moves the outputs by {cause.distance:.1e}"
    )


says(
    files.RoundedConstants,
    "the same model, but for {constants} constants that exporters rounded at different steps, at "
    "most {furthest:.1e} apart, which moves the outputs by {distance:.1e}; with the constants "
    "of one file in both, both compute the same",
)
says(
    files.QuantisedModel,
    "'{file}' is the same model, quantised: each of {weights} weights is within half a step, "
    "and without rounding both compute the same; it moves the outputs by {distance:.1e}",
)


@renders(read_facts.PairedByOrder)
def _paired(cause: read_facts.PairedByOrder, finding: Finding, adapter: str) -> str:
    pairs = ", ".join(f"'{first}' with '{second}'" for first, second in cause.pairs)
    return f"{cause.kind} paired by order: {pairs}"


@renders(read_facts.TurnedAxes)
def _turned(cause: read_facts.TurnedAxes, finding: Finding, adapter: str) -> str:
    how = {
        "declared": "as --layout says",
        "sizes": "as sizes show",
        "none": f"both compute the same; if that is its layout, --layout {cause.layout} says so",
    }[cause.source]
    return f"'{cause.port}' of '{cause.file}' transposed by {list(cause.axes)}: {how}"


@renders(read_facts.InTrainingMode)
def _training_mode(cause: read_facts.InTrainingMode, finding: Finding, adapter: str) -> str:
    return (
        f"'{cause.file}' was exported in training mode: training_mode=1 at {quoted(cause.nodes)}; export it in "
        "evaluation mode"
    )


@renders(files.NodeHoldsGraph)
def _holds(cause: files.NodeHoldsGraph, finding: Finding, adapter: str) -> str:
    node = f"{cause.node.owner}: {cause.node.kind} '{cause.node.name}'"
    return f"{node} depends on the input and holds a graph or a tensor of its own, which is not compared"


@renders(files.Folded)
def _folded(cause: files.Folded, finding: Finding, adapter: str) -> str:
    nodes = quoted(cause.nodes)
    return f"batch normalisation that {cause.file} has folded or written out: {nodes}"


def _weight(weight: files.WeightFacts) -> str:
    return f"'{weight.name}' {list(weight.shape)} of {weight.operator} '{weight.node}'"


@renders(files.WeightInOne)
def _in_one(cause: files.WeightInOne, finding: Finding, adapter: str) -> str:
    return f"{_weight(cause.weight)} is in {cause.file} only, or zero in the other"


@renders(files.WeightDiffers)
def _differs(cause: files.WeightDiffers, finding: Finding, adapter: str) -> str:
    count, size = (f"{number:,}" for number in (cause.differing, math.prod(cause.weight.shape)))
    other = "" if cause.other.name == cause.weight.name else f" and '{cause.other.name}'"
    by = "which is not finite" if cause.largest is None else f"by {cause.largest:.2g}"
    few = cause.first != cause.worst and 2 * cause.differing < math.prod(cause.weight.shape)
    first = f", first at {list(cause.first)}" if cause.first and few else ""
    worst = f", worst at {list(cause.worst)}" if cause.worst else ", worst"
    return f"{count} of {size} elements of {_weight(cause.weight)}{other} differ{first}{worst} {by}"


says(files.WeightsNotComparable, "written differently, so these weights cannot be compared")
says(
    files.BothFolded,
    "no further apart than a batch normalisation is rounded where it is folded; if both files have "
    "it folded, compare one that was exported with its normalisations kept",
)


@renders(files.NotFiniteOutputs)
def _not_finite(cause: files.NotFiniteOutputs, finding: Finding, adapter: str) -> str:
    outputs = ", ".join(
        f"{value.file}: '{value.output}'" + (f", batch {value.batch}" if value.batch else "")
        for value in cause.outputs
    )
    return f"a NaN or an infinity in {outputs}: give inputs that both are made for with --input"


@renders(files.FoldedTolerance)
def _tolerance(cause: files.FoldedTolerance, finding: Finding, adapter: str) -> str:
    multiple = f"times {cause.multiple:.0f}"
    return f"the tolerance is what rounding of the folded weights does, {multiple}"


@renders(files.NodesPart)
def _part(cause: files.NodesPart, finding: Finding, adapter: str) -> str:
    node, other = cause.node, cause.other
    if cause.operators_differ:
        return f"{node_text(node)} of {node.owner}, {node_text(other)} of {other.owner}"
    name = f"{node.kind} '{node.name}'"
    if node.name != other.name:
        name += f" of {node.owner}, '{other.name}' of {other.owner}"
    parts = [name]
    for name in cause.attributes:
        values = (f"{each.attributes.get(name, 'none')} in {each.owner}" for each in (node, other))
        parts.append(f"{name} is {' and '.join(values)}")
    for pair in cause.constants:
        names = f"constants '{pair.name}'" + (f" and '{pair.other}'" * (pair.other != pair.name))
        if pair.order is not None:
            order = f"transposed by {list(pair.order)}" if pair.order else "in another order"
            parts.append(f"{names} hold the same numbers, in {other.owner} {order}")
        else:
            parts.append(names + (f" differ by {pair.largest:.2g}" if pair.largest else " differ"))
    if cause.reads or cause.other_reads:
        parts.append(
            f"reads {', '.join(cause.reads)}, and {', '.join(cause.other_reads)} in {other.owner}"
        )
    return ": ".join([parts[0], "; ".join(parts[1:])]) if parts[1:] else parts[0]


says(files.OutputsConstant, "the outputs that differ are inputs or constants")
says(files.RunInFloat32, "{file} is a float64 model and was run in float32")


@renders(files.RuntimeDiffers)
def _runtime(cause: files.RuntimeDiffers, finding: Finding, adapter: str) -> str:
    runtime, own = (
        "infinitely far" if distance is None else f"{distance:.1e}"
        for distance in (cause.distance, cause.own)
    )
    distances = f"in float32 this ONNX Runtime is {runtime} from the truth, dlb's evaluation {own}"
    judged = ", by which the files are judged" if cause.judged else ": too far to judge"
    return f"{distances}{judged}"
