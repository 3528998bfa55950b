"""Causes that checks of a workload on an adapter find."""

from __future__ import annotations

from typing import Any, Literal

from dlb_graph.comparing.causes import Cause

__all__ = [
    "Asynchronous",
    "Clipping",
    "ConstantLogits",
    "DifferenceSteps",
    "DropoutBackward",
    "DropoutCount",
    "DropoutElement",
    "DropoutInEvaluation",
    "DropoutShape",
    "DropoutsCovered",
    "ErrorMultiple",
    "Extremes",
    "FewElements",
    "Float32Baseline",
    "FoldedWeights",
    "GradientsDiffer",
    "LayerDiffers",
    "MixedExport",
    "NoWeightMoves",
    "Otherwise",
    "RoundedExport",
    "RoundingGrows",
    "SchedulePlayed",
    "SmallerBatch",
    "SmallerMaps",
    "StateOnServer",
    "TrainedNotFinite",
    "WorkersCompared",
    "WorkersDisagree",
]


class LayerDiffers(Cause, frozen=True, kw_only=True):
    """The first layer, in the model's order, whose value is past the tolerance."""


class Otherwise(Cause, frozen=True, kw_only=True):
    """What was computed is, to rounding, what the definition computes with one thing otherwise.

    Attributes:
        fields: what is otherwise: an attribute and its value, or a parameter and what was done with it;
            several if they fit equally well.
    """

    fields: tuple[dict[str, Any], ...]


class Clipping(Cause, frozen=True, kw_only=True):
    """The limits that a gradient was compared with, one below its norm and one above: a fact.

    Attributes:
        norm: of the gradient; or its largest element, or the largest norm of a parameter's, where that is what
            is limited.
        limit: of the workload, which ``update`` has; other: of this check.
    """

    norm: float
    limit: float
    other: float
    by_value: bool = False
    by_variable: bool = False


class GradientsDiffer(Cause, frozen=True, kw_only=True):
    """The gradient past the tolerance that is nearest the loss: its layer, or one behind it, is wrong.

    Attributes:
        tensor: ``loss``, ``input``, or ``layer.parameter``.
    """

    locates = True

    tensor: str


class Extremes(Cause, frozen=True, kw_only=True):
    """The weights and inputs that were compared, or the one at which a layer or a gradient differs.

    Attributes:
        kinds: as in :mod:`dlb.proof.extremes`; none where the definition is not finite at any.
    """

    kinds: tuple[Literal["ties", "large", "offset"], ...]


class SmallerBatch(Cause, frozen=True, kw_only=True):
    """The batch that is timed costs too much in NumPy, so a smaller one was compared: a fact, not a fault.

    Attributes:
        samples: of the batch that was compared.
        timed: of the batch that one worker is timed with.
    """

    aside = "checked"

    samples: int
    timed: int


class SmallerMaps(Cause, frozen=True, kw_only=True):
    """The model was compared on smaller maps, with the same parameters: a fact, not a fault.

    Attributes:
        shape: of a sample of the input that was compared.
        timed: of one that is timed.
    """

    aside = "checked"

    shape: tuple[int, ...]
    timed: tuple[int, ...]


class Float32Baseline(Cause, frozen=True, kw_only=True):
    """How far ONNX Runtime's float32 logits of the canonical graph are from the truth.

    A fact, not a fault. ``distance`` is null where ONNX Runtime refuses the graph.
    """

    distance: float | None


class ConstantLogits(Cause, frozen=True, kw_only=True):
    """At these weights the true logits are the same for every input."""


class DifferenceSteps(Cause, frozen=True, kw_only=True):
    """The steps of central differences, by what is moved: a fact, not a fault."""

    steps: dict[str, float]


class NoWeightMoves(Cause, frozen=True, kw_only=True):
    """No weight moves by more than its rounding, so that a wrong step would look the same."""

    steps: int


class RoundingGrows(Cause, frozen=True, kw_only=True):
    """Rounding grows, so trajectories were compared after fewer steps than were asked for.

    Attributes:
        steps: after which they were compared.
        asked: steps that were trained.
        step_scale: by what share the perturbed run's steps are longer.
        error_growth: the distance that makes after all steps; null stands for infinity.
        gradients_apart: how far gradients that agree are apart, where that grows to more.
    """

    aside = "checked"

    steps: int
    asked: int
    step_scale: float
    error_growth: float | None
    gradients_apart: float | None = None


class ErrorMultiple(Cause, frozen=True, kw_only=True):
    """An error as a multiple of what counts as unavoidable: a fact, or a fault where it is more.

    Attributes:
        of: ``numpy_float32``, what float32 makes of the tensor in NumPy, and ``numpy_bfloat16`` likewise; or
            ``best_adapter``, the smallest error of any adapter, or a share of what perturbed weights make.
        multiple: null stands for infinity.
        allowed: the largest multiple that passes.
    """

    of: Literal["numpy_float32", "numpy_bfloat16", "best_adapter"]
    multiple: float | None
    allowed: float


class FoldedWeights(Cause, frozen=True, kw_only=True):
    """Batch normalisations are folded into these weights of a file."""

    weights: tuple[str, ...]


class TrainedNotFinite(Cause, frozen=True, kw_only=True):
    """The trained model outputs NaN or infinity, so its export cannot be compared."""


class Asynchronous(Cause, frozen=True, kw_only=True):
    """The strategy is asynchronous, so it need not end as one worker does."""

    strategy: str


class StateOnServer(Cause, frozen=True, kw_only=True):
    """The optimizer's state is with the strategy's server, which does not tell it."""

    strategy: str


class SchedulePlayed(Cause, frozen=True, kw_only=True):
    """How asynchronous workers took a schedule of pulls and pushes: a fact, not a fault.

    Attributes:
        staleness: how many pushes had no other between their worker's pull and themselves, how many had one,
            and so on.
    """

    workers: int
    steps: int
    staleness: tuple[int, ...]


class WorkersCompared(Cause, frozen=True, kw_only=True):
    """How many workers trained, and for how many steps: a fact, not a fault.

    Attributes:
        gradients: whether the strategy tells the gradients after the reduction.
    """

    workers: int
    steps: int
    gradients: bool = False


class WorkersDisagree(Cause, frozen=True, kw_only=True):
    """Workers hold other weights than their peers."""

    tensors: tuple[str, ...]


class DropoutShape(Cause, frozen=True, kw_only=True):
    """A dropout's output has another shape than its input."""


class DropoutInEvaluation(Cause, frozen=True, kw_only=True):
    """A dropout is not the identity in evaluation mode."""


class DropoutElement(Cause, frozen=True, kw_only=True):
    """An element is neither 0 nor its input / (1 - rate).

    Attributes:
        factor: what every element that is not 0 is of its input; null if they are not one multiple.
        share: of elements that are 0.
    """

    rate: float
    factor: float | None = None
    share: float | None = None


class DropoutCount(Cause, frozen=True, kw_only=True):
    """An event that should happen with a known probability happens more or less often.

    Attributes:
        event: ``dropped``; ``passes_alike``, two passes treat an element alike; ``neighbours_alike``,
            neighbouring elements along an axis are treated alike.
        axis: of neighbours; the first is the batch.
        share: how often it happened; expected: how often it should.
    """

    event: Literal["dropped", "passes_alike", "neighbours_alike"]
    share: float
    expected: float
    axis: int | None = None


class DropoutBackward(Cause, frozen=True, kw_only=True):
    """The backward pass of a dropout uses another mask than its forward pass."""


class DropoutsCovered(Cause, frozen=True, kw_only=True):
    """Dropouts whose backward masks the gradients around them show, and those where they do not: a fact."""

    layers: tuple[str, ...]
    left: tuple[str, ...] = ()


class FewElements(Cause, frozen=True, kw_only=True):
    """Too few elements reach some dropouts to tell how many are dropped."""

    layers: tuple[str, ...]


class RoundedExport(Cause, frozen=True, kw_only=True):
    """An exported file's outputs, which only float32 rounding sets apart from the model's.

    Attributes:
        error: of the file's outputs in float32, relative to those in float64.
        rounding: the same when dlb evaluates the file in float32.
    """

    error: float
    rounding: float


class MixedExport(Cause, frozen=True, kw_only=True):
    """An exported file that computes what the graph does; its model rounds more than its weights.

    Attributes:
        error: of the model's outputs, relative to those in float64.
        rounding: what rounding weights and inputs to the model's type makes of them.
    """

    error: float
    rounding: float
