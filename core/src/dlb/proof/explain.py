"""What a certificate's differences probably come from: a reader's guide, never a verdict."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import get_args

import msgspec

from dlb.proof.certificate import Certificate, Figure, Level, Rung
from dlb.proof.distance import passes

__all__ = ["Explanation", "explain"]

#: A relative distance of about one rounding to float32.
_FLOAT32_ROUNDING = (1e-9, 3e-7)
#: Figures this near to each other, relative, have one common cause.
_ALIKE = 0.05

#: What a layer of a type is usually taken for, by the type's name.
_LAYERS = {
    "conv": "pads (or their side), stride, dilation, groups, the weight's layout, or a missing bias",
    "linear": "a transposed weight, another order of the flattened inputs, or a missing bias",
    "batch_norm": "epsilon, swapped or unloaded running statistics, or scale and bias left out",
    "layer_norm": "epsilon and its place, the variance (biased or not), or which axes are normalised",
    "lrn": "alpha (divided by the size or not), the constant k, or the window's alignment",
    "max_pool": "ceil mode, pads, or stride",
    "average_pool": "whether padding is counted, ceil mode, pads, or stride",
    "lstm": "the order of the gates, a forget bias, one bias for two, or an activation",
    "attention": "the scale (1 / sqrt(features of a head)), the causal mask and where it begins, how "
    "features are divided into heads, or a bias",
    "position_embedding": "positions that are shifted, or a table that is scaled",
    "embedding": "the table's order, or an index that is shifted or masked",
    "dropout": "dropout that acts in evaluation, or scales where it should not",
    "relu": "a slope below zero, or an upper bound",
    "relu6": "the upper bound left out, or applied before what it bounds",
    "hard_sigmoid": "another slope (1/5 for 1/6), or a bound that is left out",
    "mul": "a sum in its place, or a number for each channel along another axis",
    "gelu": "the exact function for the approximation by tanh, or the other way",
    "reshape": "row-major order, or a transpose that is left out before it",
    "transpose": "the order of the axes, or a reshape in its place",
    "reduce_mean": "a sum for the mean, or the axis",
    "select": "the place (counted from the other end), or the axis",
    "concat": "the order of the inputs, or the axis",
    "flatten": "channels last where channels first is meant",
    "softmax": "the axis",
}
_TRAINING = {
    "batch_norm": "the batch's variance (biased or not), epsilon, or running statistics used in "
    "training",
    "dropout": "the rate taken for the part that is kept, no scaling by 1 / (1 - rate), or a mask "
    "that is drawn anew where one was given",
}
_LEVELS: dict[Level, str] = {
    "weights": "the way of a weight into the framework and back: its layout, its type, or one that "
    "is not loaded at all",
    "forward": "what a layer before it was given, since each layer by itself agrees: the wiring, or "
    "the input",
    "gradients": "the loss (mean or sum, smoothing, a weight), something detached from the graph, or "
    "a backward pass that is not its forward pass's",
    "update": "the optimizer: learning rate, weight decay and what it applies to, clipping and the "
    "norm it goes by, dampening, Nesterov, epsilon, bias correction",
    "trajectory": "what only later steps show, since the first agrees: momentum or other state, the "
    "schedule, running statistics, the order of samples",
    "float32": "less than float32 inside: TF32, bfloat16, fast mathematics, or an algorithm that "
    "loses digits",
    "structure": "what was exported is not what the workload describes",
    "export": "the exporter, or an object that is not the one that was timed",
    "distributed": "gradients summed where they should be averaged (or the other way), shares of the "
    "batch, or statistics of each worker's own",
}


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """The first thing that differs for one adapter.

    Attributes:
        adapter: whose.
        level, rung: the first of the ladder that failed.
        where: the layer or tensor: the first past the gate, or the furthest.
        built: what the framework says of that layer as it built it; empty where it says nothing.
        size: relative L2 distance there; null stands for infinity, or where nothing was measured.
        reason: what it probably is.
        others: further rungs that failed, which usually follow from it.
        not_run: what could not be checked, and why.
    """

    adapter: str
    level: Level
    rung: str
    where: str
    size: float | None
    reason: str
    built: str = ""
    others: tuple[str, ...] = ()
    not_run: tuple[str, ...] = ()


def explain(certificate: Certificate) -> list[Explanation]:
    """An explanation for each adapter that deviates, in the certificate's order."""
    order = {level: place for place, level in enumerate(_climbing())}
    found = []
    for adapter in dict.fromkeys(rung.adapter for rung in certificate.rungs):
        own = certificate.of(adapter)
        failed = sorted(
            (rung for rung in own if rung.verdict == "failed"), key=lambda rung: order[rung.level]
        )
        if not failed:
            continue
        first = failed[0]
        where, built, figure = _place(first)
        found.append(
            Explanation(
                adapter=adapter,
                level=first.level,
                rung=first.name,
                where=where,
                built=built,
                size=figure.relative_l2 if figure else None,
                reason="; ".join(_reasons(first, own, figure)),
                others=tuple(rung.name for rung in failed[1:]),
                not_run=tuple(
                    f"{rung.name}: {rung.detail}" for rung in own if rung.verdict == "not run"
                ),
            )
        )
    return found


def _climbing() -> tuple[Level, ...]:
    """Levels by how near to a cause they point: a layer by itself before all that follows it."""
    levels: tuple[Level, ...] = get_args(Level)
    near: tuple[Level, ...] = ("weights", "layers")
    return near + tuple(level for level in levels if level not in near)


def _place(rung: Rung) -> tuple[str, str, Figure | None]:
    """Where a rung failed first, what was built there, and how far apart it is."""
    named = re.search(
        r"first layer past the gate: ([^,]+), (.+?)(?:; in [\w-]+: (.+))?$", rung.detail
    )
    if named:
        figure = next((one for one in rung.figures if one.tensor == named[1]), rung.worst)
        if rung.name == "dropout" and figure and passes((figure,), rung.gate or 0):
            figure = None  # what was dropped is wrong by count, what was kept is right
        return f"layer {named[1]}, {named[2]}", named[3] or "", figure
    between = re.match(r"first past the gate: (what is [^;]+)", rung.detail)
    if between:  # of a port, where no layer with parameters is to blame
        return between[1], "", rung.worst
    if rung.worst is not None:
        return rung.worst.tensor, "", rung.worst
    return rung.detail, "", None


def _reasons(rung: Rung, own: Sequence[Rung], figure: Figure | None) -> Iterator[str]:
    size = figure.relative_l2 if figure else None
    if figure is not None and size is None:
        yield "a value is missing, of another shape, or not a number"
    if size is not None and _FLOAT32_ROUNDING[0] < size < _FLOAT32_ROUNDING[1]:
        yield "as large as one rounding to float32: something is kept or computed in float32"
    kind = re.search(r"first layer past the gate: [^,]+, (\w+)\(", rung.detail)
    if rung.name == "dropout":
        yield f"{rung.detail.split(': first layer')[0]}, where the framework itself draws"
        return
    if rung.level in ("layers", "forward") and kind:
        training = "training" in rung.name
        passes_else = any(
            other.verdict == "passed" and other.level == rung.level for other in own if training
        )
        if training and passes_else:
            yield (
                f"evaluation agrees, so: {_TRAINING.get(kind[1], 'what only training mode does')}"
            )
            return
        if rung.level == "layers" and kind[1] in _LAYERS:
            yield f"with {kind[1]} it is mostly {_LAYERS[kind[1]]}"
            return
    if rung.name == "update float32":
        yield f"in float32 alone: {_LEVELS['update']}"
        return
    if rung.level == "update":
        yield from _of_update(rung)
    if rung.level in _LEVELS:
        yield _LEVELS[rung.level]


def _of_update(rung: Rung) -> Iterator[str]:
    """What the pattern over the tensors tells."""
    weights = [one for one in rung.figures if one.tensor.count(".") == 1]
    past = [one for one in weights if one.relative_l2 is None or one.relative_l2 > (rung.gate or 0)]
    sizes = [one.relative_l2 for one in past if one.relative_l2]
    every = 1 < len(past) == len(weights) == len(sizes)
    if every and max(sizes) - min(sizes) <= _ALIKE * max(sizes):
        yield f"every change is off by the same factor, 1 ± {max(sizes):.2g}"
    kinds = {one.tensor.split(".")[1] for one in past}
    if past and len(past) < len(weights) and len(kinds) == 1:
        yield f"only tensors called {kinds.pop()} are off"
    if not past:
        yield "the weights agree; only the optimizer's state differs, by a convention of its scale"
