"""Causes that checks of a workload on an adapter find."""

from __future__ import annotations

from typing import Literal

from dlb.proof.findings.base import Cause

__all__ = [
    "AssumedValues",
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
    "GradientsDiffer",
    "LayerDiffers",
    "LossChosen",
    "MixedExport",
    "NarrowValues",
    "NoWeightMoves",
    "NodeIsLoss",
    "ReadAs",
    "RoundedExport",
    "RoundedWeights",
    "RoundingGrows",
    "SameNumbers",
    "SmallerBatch",
    "StraightThrough",
    "TiedWeights",
    "TrainedNotFinite",
    "WorkersCompared",
    "WorkersDisagree",
]


class LayerDiffers(Cause, frozen=True, kw_only=True):
    """The first layer, in the model's order, whose value is past the tolerance."""


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

    samples: int
    timed: int


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


class TrainedNotFinite(Cause, frozen=True, kw_only=True):
    """The trained model outputs NaN or infinity, so its export cannot be compared."""


class Asynchronous(Cause, frozen=True, kw_only=True):
    """The strategy is asynchronous, so it need not end as one worker does."""

    strategy: str


class WorkersCompared(Cause, frozen=True, kw_only=True):
    """How many workers trained, and for how many steps: a fact, not a fault."""

    workers: int
    steps: int


class WorkersDisagree(Cause, frozen=True, kw_only=True):
    """Workers hold other weights than their peers."""

    tensors: tuple[str, ...]


class DropoutShape(Cause, frozen=True, kw_only=True):
    """A dropout's output has another shape than its input."""


class DropoutInEvaluation(Cause, frozen=True, kw_only=True):
    """A dropout is not the identity in evaluation mode."""


class DropoutElement(Cause, frozen=True, kw_only=True):
    """An element is neither 0 nor its input / (1 - rate)."""

    rate: float


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


class NodeIsLoss(Cause, frozen=True, kw_only=True):
    """The last softmax or sigmoid of a file belongs to the loss; the logits are what it reads."""

    node: str
    operator: str


class LossChosen(Cause, frozen=True, kw_only=True):
    """What a file's output is trained by, if it is no logits of classes: a fact.

    Attributes:
        loss: its type, as in a workload.
    """

    output: str
    loss: str


class StraightThrough(Cause, frozen=True, kw_only=True):
    """Roundings of a quantised file whose gradient is that of the identity: a fact.

    Attributes:
        by_sample: scales of dynamic quantisation are those of each sample.
    """

    roundings: int
    by_sample: bool = False


class NarrowValues(Cause, frozen=True, kw_only=True):
    """Values that a file rounds to float16 or bfloat16; layers that were read, or the other file, do not.

    Attributes:
        values: names of the first that are rounded; more: how many others.
        distance: of the output from what it is without these roundings; null stands for infinity.
        file: of two, the one that rounds them.
    """

    values: tuple[str, ...]
    more: int
    distance: float | None
    file: str = ""

    @property
    def count(self) -> int:
        """How many values are rounded."""
        return len(self.values) + self.more


class AssumedValues(Cause, frozen=True, kw_only=True):
    """Inputs of a file that hold one number everywhere, as nobody chose: the output depends on them.

    Attributes:
        values: name and number of each input, or of a value that a node computes.
    """

    values: tuple[tuple[str, float], ...]


class ReadAs(Cause, frozen=True, kw_only=True):
    """What was chosen of a file that leaves sizes open, or has several inputs or outputs: a fact.

    Attributes:
        sizes: of open axes, as given; defaults: those that nobody gave.
        constants: inputs that hold one number everywhere.
        joined: inputs that are read as one, in this order, and the shape of a sample of each.
        dropped: inputs that the output does not depend on.
        output: the one that was chosen; empty if there is one.
        assumed: inputs and values that hold one number everywhere, as nobody chose.
        first_output: whether ``output`` is the file's first of real numbers, as nobody chose.
        one_sample: whether the first axis of the file's input is no batch, but one of a sample.
    """

    sizes: tuple[tuple[str, int], ...]
    defaults: tuple[tuple[str, int], ...]
    constants: tuple[tuple[str, float], ...]
    dropped: tuple[str, ...]
    output: str
    joined: tuple[tuple[str, tuple[int, ...]], ...] = ()
    assumed: tuple[tuple[str, float], ...] = ()
    first_output: bool = False
    one_sample: bool = False


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


class RoundedWeights(Cause, frozen=True, kw_only=True):
    """Weights of a file that float32 does not hold, rounded for what is run."""

    tensors: tuple[str, ...]
    more: int
    total: int


class TiedWeights(Cause, frozen=True, kw_only=True):
    """A layer multiplies by an embedding's table: both were read as tied."""

    layer: str
    owner: str


class SharedLayers(Cause, frozen=True, kw_only=True):
    """Layers are the same in the file, with the same numbers: they were read as one, used several times."""

    layers: tuple[str, ...]
    owner: str


class SameNumbers(Cause, frozen=True, kw_only=True):
    """Weights hold the same numbers in the file, and are trained separately."""

    tensors: tuple[str, ...]
