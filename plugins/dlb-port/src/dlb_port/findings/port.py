"""Causes that checks of a port find: one model that users wrote in several frameworks."""

from __future__ import annotations

from typing import Literal

from dlb_graph.comparing.causes import Cause, LayerFacts, Part, Shape


class WeightsLeft(Cause, frozen=True, kw_only=True):
    """Parameters that the map leaves as they are: a fact, not a fault."""

    aside = "checked"

    parameters: tuple[str, ...]


class StateDiffers(Cause, frozen=True, kw_only=True):
    """A table or another state that both factories compute and no training moves differs.

    It stays in each model as its factory made it.

    Attributes:
        parameter, model: the reference's.
        other, other_model: its counterpart.
    """

    locates = True

    parameter: str
    model: str
    other: str
    other_model: str


class FrozenDiffers(StateDiffers, frozen=True, kw_only=True):
    """A frozen parameter differs, though each factory makes the same at every call.

    It may be a table that code computes, or a weight that is loaded. It was carried.
    """


class StatesRounded(Cause, frozen=True, kw_only=True):
    """States that both factories compute differ by rounding to float32: a fact. They were carried."""

    aside = "rounding"

    parameters: tuple[str, ...]


class OutputCount(Cause, frozen=True, kw_only=True):
    """The models have other numbers of outputs."""

    found: int
    expected: int


class OutputLayout(Cause, frozen=True, kw_only=True):
    """An output holds the reference's numbers in another order of its axes, which the command can say.

    Attributes:
        layout: that order, as ``--output-layout`` names it.
    """

    model: str
    layout: str


class OtherCalls(Cause, frozen=True, kw_only=True):
    """A layer and its counterpart are called another number of times."""

    layer: str
    calls: int
    other: str
    other_model: str
    other_calls: int


class LayoutUnknown(Cause, frozen=True, kw_only=True):
    """Outputs of a layer and its counterpart cannot be known to have the same layout.

    A shape of null stands for no array.
    """

    layer: str
    shape: Shape | None
    other: str
    other_model: str
    other_shape: Shape | None


class CutDifferently(Cause, frozen=True, kw_only=True):
    """Layers that own matched parameters, whose values the other model has elsewhere: a fact.

    The models cut the same computation into other layers, so these are not compared.
    """

    layers: tuple[str, ...]


class NoCounterparts(Cause, frozen=True, kw_only=True):
    """No layer of one model is the counterpart of a layer of the other."""


class PortLayerDiffers(Cause, frozen=True, kw_only=True):
    """The first layer past the tolerance that owns matched parameters, and its counterpart.

    Attributes:
        reference, other: both layers.
        inputs_known: whether both read the same values; if not, what they read may be the cause.
        shape, other_shape: of their outputs, where these differ in shape.
    """

    locates = True

    reference: LayerFacts
    other: LayerFacts
    inputs_known: bool = True
    shape: Shape | None = None
    other_shape: Shape | None = None


class CodeSpan(Part, frozen=True, kw_only=True, omit_defaults=True):
    """A stretch of one model between two of its layers.

    Attributes:
        model: its adapter.
        layers: the first layers that are called there.
        more: how many further ones there are.
        code_of: the layer whose own code it is, where no layer is called.
    """

    model: str
    layers: tuple[LayerFacts, ...] = ()
    more: int = 0
    code_of: LayerFacts | None = None


class SpanDiffers(Cause, frozen=True, kw_only=True):
    """What differs lies between two layers that own parameters.

    Attributes:
        after: the last layer whose values agree; empty for the input.
        before: the first value that differs; empty for the model's output.
        reference, other: what each model has there.
        distance: of the values of both, if one call of each is to blame; null if that is not known.
    """

    locates = True

    after: str
    before: str
    reference: CodeSpan
    other: CodeSpan
    distance: float | None = None


class Float32Constant(Cause, frozen=True, kw_only=True):
    """What differs is as large as a constant that a framework keeps in float32, at one place.

    Attributes:
        distance: of the values there, though both models read the same.
        allowed: the largest distance of this check's tensors that such a constant can cause.
        reference, other: the layers or functions there; null but in the first check that failed.
    """

    distance: float
    allowed: float
    reference: CodeSpan | None = None
    other: CodeSpan | None = None


class ComputesInFloat32(Float32Constant, frozen=True, kw_only=True):
    """Layers compute in float32, whatever they read, and what differs is as large as that makes it."""


class ConstantBefore(Cause, frozen=True, kw_only=True):
    """Before the place that is named, values differ as little as a constant in float32 makes them: a fact.

    Attributes:
        reference, other: the layers or functions there.
        distance: of the values there.
        allowed: the tolerance that the place is past: the largest distance that such a constant can cause.
    """

    reference: CodeSpan
    other: CodeSpan
    distance: float
    allowed: float


class FlattenOrder(Cause, frozen=True, kw_only=True):
    """Both layers read the same numbers, flattened in another order; the map can say so.

    Attributes:
        source, target: the parameters of the map's entry.
        reshape, transpose: what the entry needs.
    """

    source: str
    target: str
    reshape: Shape
    transpose: Shape


class DrawsRandom(Cause, frozen=True, kw_only=True):
    """Two passes of a model in training mode differ: it draws random numbers.

    ``layer`` is the first whose values differ; null where it is the model's own code.
    """

    model: str
    layer: LayerFacts | None = None


class DroppedPart(Part, frozen=True, kw_only=True):
    """What a layer or a function of a model drops in training mode.

    Attributes:
        model: its adapter.
        layer: its name.
        rate: the share that is dropped.
        of: what is dropped: ``elements``, ``channels``, or the framework's words.
    """

    model: str
    layer: str
    rate: float
    of: str


class DropoutDiffers(Cause, frozen=True, kw_only=True):
    """The models drop other things at one place; null stands for no dropout there."""

    locates = True

    reference: DroppedPart | None
    other: DroppedPart | None


class DropoutSame(Cause, frozen=True, kw_only=True):
    """Both models drop the same at the same rates: a fact. Other checks are run without dropout."""

    aside = "checked"

    places: int


class PenaltyDiffers(Cause, frozen=True, kw_only=True):
    """The models penalise or constrain a parameter or an output differently; "" is not at all."""

    locates = True

    parameter: str
    model: str
    penalty: str
    other_model: str
    other_penalty: str


class RoundingDecides(Cause, frozen=True, kw_only=True):
    """Rounding alone decides how steps move these tensors, from the first step on; they are not compared."""

    aside = "checked"

    tensors: tuple[str, ...]


class SameAsEvaluation(Cause, frozen=True, kw_only=True):
    """What differs in training mode is what differs in evaluation mode."""


class KeptPart(Cause, frozen=True, kw_only=True):
    """Counterparts keep other parts of their running statistics at a step of training.

    A momentum of null stands for no fixed part.
    """

    layer: str
    model: str
    momentum: float | None
    other: str
    other_model: str
    other_momentum: float | None


class OnlyKeptPart(Cause, frozen=True, kw_only=True):
    """Only the part of the running statistics that a step keeps was compared, and why.

    Attributes:
        because: ``draws_random``, or ``states_not_reported`` where the adapter of ``model`` does not
            report running statistics.
    """

    aside = "checked"

    because: Literal["draws_random", "states_not_reported"]
    model: str = ""


class VarianceDivisor(Cause, frozen=True, kw_only=True):
    """Running variances are moved by the batch's variance over n or n - 1 values.

    They were compared as if both models took the same.
    """

    aside = "checked"

    tensors: tuple[str, ...]
    model: str
    divisor: str
    other_model: str
    other_divisor: str


class TrainedInOne(Cause, frozen=True, kw_only=True):
    """A parameter is trained in one of the models only."""

    parameter: str
    model: str


class NotLoaded(Cause, frozen=True, kw_only=True):
    """The model could not be made in this dtype, as another check says."""

    dtype: str


class EvaluationMode(Cause, frozen=True, kw_only=True):
    """Gradients were compared in evaluation mode, since training mode draws random numbers."""
