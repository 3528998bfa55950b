"""Sentences of findings about a workload on adapters."""

from __future__ import annotations

from dlb.proof.findings import Cause, Finding, workload
from dlb.report.common import PLACES, lateness, layer_text, number_of_steps, quoted, renders, says
from dlb_graph.comparing import asynchronous, read_facts, reduction

__all__: list[str] = []


def _distance(value: float | None) -> str:
    return "infinity" if value is None else f"{value:.1e}"


@renders(workload.LayerDiffers)
def _layer_differs(cause: workload.LayerDiffers, finding: Finding, adapter: str) -> str:
    assert finding.layer is not None
    return f"first layer past the tolerance: {layer_text(finding.layer, adapter)}"


@renders(workload.Otherwise)
def otherwise(cause: workload.Otherwise, finding: Finding | None = None, adapter: str = "") -> str:
    """``exactly what is computed with epsilon = 0.001``."""
    fields = [
        f"{name} {value}" if isinstance(value, str) else f"{name} = {_plain(value)}"
        for each in cause.fields
        for name, value in each.items()
    ]
    return f"exactly what is computed with {', or '.join(fields)}"


def _plain(value: object) -> object:
    if isinstance(value, float):
        return f"{value:.10g}"
    return list(value) if isinstance(value, tuple) else value


@renders(workload.Clipping)
def _clipping(cause: workload.Clipping, finding: Finding, adapter: str) -> str:
    acts = "is clipped" if cause.other < cause.norm else "is not clipped"
    what = "whose largest element is" if cause.by_value else "of norm"
    if cause.by_variable:
        what = "whose largest norm of a parameter is"
    return (
        f"a gradient {what} {cause.norm:.2g} {acts} at {cause.other:.2g}; 'update' has the workload's "
        f"limit, {cause.limit:.2g}"
    )


PLACES[workload.GradientsDiffer] = lambda cause: (cause.tensor, "")


@renders(workload.GradientsDiffer)
def _gradients_differ(cause: workload.GradientsDiffer, finding: Finding, adapter: str) -> str:
    if finding.layer is None:
        return f"past the tolerance: {cause.tensor}"
    return (
        f"gradient past the tolerance that is nearest the loss: {cause.tensor}, of "
        f"{layer_text(finding.layer, adapter)}; its backward pass, or that of a layer behind it, is "
        "wrong"
    )


#: What values the extreme weights and inputs lead to, in words.
_EXTREMES = {
    "ties": "exact zeros and ties",
    "large": "values far beyond every bound",
    "offset": "means that are large against their spread",
}


@renders(workload.Extremes)
def _extremes(cause: workload.Extremes, finding: Finding, adapter: str) -> str:
    if not cause.kinds:
        return (
            "the definition has values that are not finite at every extreme, so none was compared"
        )
    return f"compared at {', '.join(_EXTREMES[kind] for kind in cause.kinds)}"


says(
    workload.SmallerBatch,
    "compared on {samples} samples: a step of one worker has {timed}, which take too long in NumPy",
)


@renders(workload.SmallerMaps)
def _smaller_maps(cause: workload.SmallerMaps, finding: Finding, adapter: str) -> str:
    compared, timed = (" x ".join(map(str, each)) for each in (cause.shape, cause.timed))
    return (
        f"compared on samples of {compared} in place of {timed}, which show no more and take longer"
    )


@renders(workload.Float32Baseline)
def _baseline(cause: workload.Float32Baseline, finding: Finding, adapter: str) -> str:
    return f"ONNX Runtime on the canonical graph: {_distance(cause.distance)}"


says(workload.ConstantLogits, "at these weights the logits are the same for every input")


@renders(workload.DifferenceSteps)
def _difference_steps(cause: workload.DifferenceSteps, finding: Finding, adapter: str) -> str:
    steps = ", ".join(f"{step:.1e} along {name}" for name, step in cause.steps.items())
    return f"central differences, step {steps}"


@renders(workload.NoWeightMoves)
def _no_weight_moves(cause: workload.NoWeightMoves, finding: Finding, adapter: str) -> str:
    return (
        f"in {number_of_steps(cause.steps)} no weight moves by more than its rounding, so a wrong step "
        "would look the same; raise optimizer.learning_rate, or start from other weights"
    )


@renders(workload.RoundingGrows)
def _rounding_grows(cause: workload.RoundingGrows, finding: Finding, adapter: str) -> str:
    grown = "infinitely far" if cause.error_growth is None else f"{cause.error_growth:.0e}"
    text = (
        f"after {cause.steps} of {cause.asked} steps: in {cause.asked}, steps "
        f"{cause.step_scale:.0e} longer end {grown} apart"
    )
    if cause.gradients_apart is not None:
        text += f", and gradients are {cause.gradients_apart:.0e} apart"
    return text


@renders(workload.ErrorMultiple)
def _error_multiple(cause: workload.ErrorMultiple, finding: Finding, adapter: str) -> str:
    tensor = finding.figure.tensor if finding.figure else "any tensor"
    multiple = "infinitely many" if cause.multiple is None else f"{cause.multiple:.1f}"
    unit = {
        "numpy_float32": f"what float32 makes of {tensor} in NumPy",
        "numpy_bfloat16": f"what rounding to bfloat16 makes of {tensor} in NumPy",
        "best_adapter": f"the best error in {tensor}, or a sixteenth of what moving the weights makes",
    }[cause.of]
    return f"{multiple} times {unit}; allowed {cause.allowed:.0f}"


says(workload.FoldedWeights, "batch normalisation folded into: {weights}")
says(workload.TrainedNotFinite, "training ends in NaN or infinity, which cannot be compared")
says(workload.StateOnServer, "the server of '{strategy}' does not tell the optimizer's state")
says(workload.Asynchronous, "'{strategy}' need not end as one worker does")


@renders(workload.WorkersCompared)
def _workers(cause: workload.WorkersCompared, finding: Finding, adapter: str) -> str:
    told = "" if cause.gradients else ", gradients after the reduction are not told"
    return f"{cause.workers} workers, {number_of_steps(cause.steps)}{told}"


@renders(workload.SchedulePlayed)
def _played(cause: workload.SchedulePlayed, finding: Finding, adapter: str) -> str:
    steps = number_of_steps(cause.steps)
    return f"{cause.workers} workers, {steps} each; {lateness(cause.staleness)}"


@renders(asynchronous.PushesDiffer)
def _pushes(cause: asynchronous.PushesDiffer, finding: Finding, adapter: str) -> str:
    which = "pushes" if cause.push is None else f"push {cause.push}"
    whose = f"{which} of rank {cause.rank} {'count' if cause.push is None else 'counts'}"
    return {
        "twice": f"{whose} twice",
        "lost": f"{whose} for nothing",
        "fresh": "gradients are those at the newest weights, not at those that the worker had pulled",
        "staleness": "the workers state another staleness than their schedule has",
        "other": "weights are not those of the schedule in NumPy",
    }[cause.shape]


@renders(reduction.ReductionDiffers)
def _reduction(cause: reduction.ReductionDiffers, finding: Finding, adapter: str) -> str:
    times, workers = cause.factor or 0.0, cause.workers
    because = {
        0.0: ": they are left out",
        1 / workers: ": divided by the number of ranks once more",
        2.0: ": added twice",
        workers: f": added over {workers} ranks and not divided" + ", or twice" * (workers == 2),
    }.get(times, "")
    text = {
        "own": "are not added over the ranks",
        "peer": f"are those of rank {times:.0f}",
        "part": f"are those of the part that rank {times:.0f} holds",
        "masks_of_first": "have the dropout masks of rank 0 on every rank",
        "factor": f"are {times:.3g} times the mean{because}",
        "other": "are not the mean over the ranks",
    }[cause.shape]
    ranks = ", ".join(map(str, cause.ranks))
    where = f"{', '.join(cause.tensors)} on rank {ranks}"
    if not cause.step:
        return f"{where}: gradients {text}"
    text = {
        "part": f"is that of the part that rank {times:.0f} holds",
        "factor": f"is {times:.3g} times that of one worker" if times else "does not move them",
    }.get(cause.shape, "is not that of one worker")
    return f"{where}: the first step {text}"


@renders(reduction.SharesDiffer)
def _shares(cause: reduction.SharesDiffer, finding: Finding, adapter: str) -> str:
    return (
        f"step {cause.step}: rank {cause.rank} trains on samples {list(cause.samples)} of the batch; its "
        f"share is {list(cause.expected)}"
    )


says(workload.WorkersDisagree, "workers differ from each other in {tensors}")


@renders(workload.DropoutShape)
@renders(workload.DropoutInEvaluation)
@renders(workload.DropoutElement)
@renders(workload.DropoutBackward)
@renders(workload.DropoutCount)
def _dropout(cause: Cause, finding: Finding, adapter: str) -> str:
    fault = dropout_text(cause)
    return f"{fault}: {layer_text(finding.layer, adapter)}" if finding.layer else fault


@renders(workload.DropoutsCovered)
def _covered(cause: workload.DropoutsCovered, finding: Finding, adapter: str) -> str:
    text = f"masks of the backward pass: {', '.join(cause.layers)}"
    return text + (f"; not seen in {', '.join(cause.left)}" if cause.left else "")


def dropout_text(cause: object) -> str:
    """The fault of a dropout, without its layer."""
    if isinstance(cause, workload.DropoutShape):
        return "another shape than its input's"
    if isinstance(cause, workload.DropoutInEvaluation):
        return "evaluation is not the identity"
    if isinstance(cause, workload.DropoutBackward):
        return "the backward pass uses another mask than the forward pass"
    if isinstance(cause, workload.DropoutElement):
        if cause.factor is None or cause.share is None:
            return f"an element is neither 0 nor its input / (1 - {cause.rate:g})"
        dropped = f"{cause.share:.2g} of the elements are" if cause.share else "no element is"
        return (
            f"{dropped} 0, the others are {cause.factor:.4g} times their input, which should be "
            f"{1 / (1 - cause.rate):.4g} times at the rate {cause.rate:g}"
        )
    assert isinstance(cause, workload.DropoutCount)
    event = {
        "dropped": "dropped",
        "passes_alike": "two passes treat an element alike",
        "neighbours_alike": "neighbouring "
        + ("samples" if cause.axis == 0 else f"elements along axis {cause.axis}")
        + " are treated alike",
    }[cause.event]
    return f"{event} {cause.share:.4g} of the time, and should be {cause.expected:.4g}"


says(workload.FewElements, "too few elements reach {layers} to tell how many are dropped")


@renders(read_facts.NodeIsLoss)
def _loss(cause: read_facts.NodeIsLoss, finding: Finding, adapter: str) -> str:
    node = f"node '{cause.node}' ({cause.operator})"
    if cause.operator == "ArgMax":
        return f"{node} chooses a class: the logits are what it reads"
    return f"{node} is what the loss begins with: the logits are what it reads"


@renders(read_facts.LossChosen)
def _loss_chosen(cause: read_facts.LossChosen, finding: Finding, adapter: str) -> str:
    return f"'{cause.output}' is trained by {cause.loss.replace('_', ' ')} (--set loss.type gives another)"


@renders(read_facts.StraightThrough)
def _straight_through(cause: read_facts.StraightThrough, finding: Finding, adapter: str) -> str:
    count = f"{cause.roundings} rounding{'s' if cause.roundings > 1 else ''}"
    by_sample = (
        "; each sample has scales of its own, as in a batch of one" if cause.by_sample else ""
    )
    return f"{count} of quantised numbers: the gradient is that of the identity (straight-through){by_sample}"


@renders(read_facts.NarrowValues)
def _narrow_values(cause: read_facts.NarrowValues, finding: Finding, adapter: str) -> str:
    more = f" and {cause.more} more" if cause.more else ""
    values = f"{quoted(cause.values)}{more}" if cause.values else "values inside its nodes"
    apart = "not finite" if cause.distance is None else f"moved by {cause.distance:.1e}"
    file, other = (f"'{cause.file}'", "the other file") if cause.file else ("the file", "no layer")
    return (
        f"{file} rounds {values} to float16 or bfloat16, which {other} does{' not' if cause.file else ''}; "
        f"with these roundings its output is {apart}"
    )


@renders(read_facts.AssumedValues)
def _assumed_values(cause: read_facts.AssumedValues, finding: Finding, adapter: str) -> str:
    names = quoted(name for name, _ in cause.values)
    chosen = " ".join(f"--constant {name}={value:g}" for name, value in cause.values)
    return (
        f"the output depends on {names}, which no layer reads; say that it is meant so by {chosen}"
    )


@renders(read_facts.ReadAs)
def _read_as(cause: read_facts.ReadAs, finding: Finding, adapter: str) -> str:
    parts = [f"{name} = {size}" for name, size in cause.sizes]
    parts += [
        f"{name} = {size} (open in the file, --size gives another)" for name, size in cause.defaults
    ]
    parts += [f"'{name}' is {value:g} everywhere" for name, value in cause.constants]
    parts += [
        f"'{name}' is {value:g} everywhere (as nobody chose, --constant gives another)"
        for name, value in cause.assumed
    ]
    parts += ["the first axis of its input as one of a sample"] if cause.one_sample else []
    if cause.joined:
        listed = ", ".join(f"'{name}' {list(shape)}" for name, shape in cause.joined)
        parts.append(f"the numbers of {listed} one after the other as one input")
    parts += [f"without input {quoted(cause.dropped)}, which is not read"] if cause.dropped else []
    if cause.output:
        chosen = " (the first of real numbers, --output-name chooses)" if cause.first_output else ""
        parts.append(f"output '{cause.output}' alone{chosen}")
    return f"read with {'; '.join(parts)}"


says(
    workload.RoundedExport,
    "compared in float64, since float32 rounding makes an error of {rounding:.1e} in this file; "
    "in ONNX Runtime it is {error:.1e}",
)
says(
    workload.MixedExport,
    "the file is compared in float64; the model itself, which rounds more, has an error of "
    "{error:.1e}, where rounding weights and inputs makes {rounding:.1e}",
)


@renders(read_facts.RoundedWeights)
def _rounded(cause: read_facts.RoundedWeights, finding: Finding, adapter: str) -> str:
    more = f" and {cause.more} more of {cause.total}" if cause.more else ""
    return f"rounded to float32 for what is run: {', '.join(cause.tensors)}{more}"


@renders(read_facts.TiedWeights)
def _tied(cause: read_facts.TiedWeights, finding: Finding, adapter: str) -> str:
    return (
        f"{quoted([cause.layer])} multiplies by the table of {quoted([cause.owner])}: they are tied"
    )


#: Layers that share the parameters of one and are named.
_LISTED_LAYERS = 4


@renders(read_facts.SharedLayers)
def _shared(cause: read_facts.SharedLayers, finding: Finding, adapter: str) -> str:
    more = len(cause.layers) - _LISTED_LAYERS
    return (
        f"computed with the parameters of {quoted([cause.owner])}, which they share: "
        f"{quoted(cause.layers[:_LISTED_LAYERS])}{f' and {more} more' if more > 0 else ''}"
    )


@renders(read_facts.SameNumbers)
def _same(cause: read_facts.SameNumbers, finding: Finding, adapter: str) -> str:
    first, *rest_of_tensors = cause.tensors
    return f"{first} and {', '.join(rest_of_tensors)} are the same numbers, trained apart"
