"""Sentences of findings about two ONNX files."""

from __future__ import annotations

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
says(
    files.Float16Model,
    "'{file}' is the same model in float16: each of {weights} weights is within half a unit "
    "in the last place of float16, which moves the outputs by {distance:.1e}",
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
    return f"{_weight(cause.weight)} is in {cause.file} only"


@renders(files.WeightDiffers)
def _differs(cause: files.WeightDiffers, finding: Finding, adapter: str) -> str:
    by = "are not finite" if cause.largest is None else f"differ by up to {cause.largest:.1e}"
    return f"{_weight(cause.weight)} and {_weight(cause.other)} {by}"


says(
    files.WeightsNotComparable,
    "written differently, so that these weights cannot be compared with each other",
)
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
    text = f"first apart: {node_text(cause.node)} of {cause.node.owner}, "
    text += f"{node_text(cause.other)} of {cause.other.owner}"
    if cause.operators_differ:
        text += "; operators"
    if cause.attributes:
        text += f"; attributes: {', '.join(cause.attributes)}"
    for pair in cause.constants:
        text += f"; constants: '{pair.name}' and '{pair.other}'"
        text += "" if pair.largest is None else f", largest difference {pair.largest:.1e}"
    if cause.reads or cause.other_reads:
        text += f"; inputs: reads {', '.join(cause.reads)} and {', '.join(cause.other_reads)}"
    return text


says(files.OutputsConstant, "the outputs that differ are inputs or constants")
says(files.RunInFloat32, "{file} is a float64 model and was run in float32")


@renders(files.RuntimeDiffers)
def _runtime(cause: files.RuntimeDiffers, finding: Finding, adapter: str) -> str:
    runtime, own = (
        "infinitely far" if distance is None else f"{distance:.1e}"
        for distance in (cause.distance, cause.own)
    )
    distances = f"in float32 this ONNX Runtime is {runtime} from the truth, dlb's evaluation {own}"
    return (
        f"{distances}, by which the files are judged"
        if cause.judged
        else f"{distances}: too far to judge"
    )
