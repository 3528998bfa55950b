"""Causes that checks of two ONNX files find."""

from __future__ import annotations

from dlb_graph.comparing.causes import Cause, LayerFacts, Part, Shape


class Float16Model(Cause, frozen=True, kw_only=True):
    """A file is the same model in float16: its weights are the other's, rounded to the nearest of float16.

    Attributes:
        file, other: the file in float16, and the other one.
        weights: how many weights are rounded.
        stored: whether the file keeps them in a wider type.
        distance: what rounding the weights does to the output that it moves most.
    """

    file: str
    weights: int
    distance: float
    other: str = ""
    stored: bool = False


class Bfloat16Model(Float16Model, frozen=True, kw_only=True):
    """The same in bfloat16."""


class RoundedConstants(Cause, frozen=True, kw_only=True):
    """Two files are the same model, but for constants that were rounded at different steps.

    Attributes:
        constants: how many differ.
        furthest: the largest relative L2 distance of two of one meaning.
        distance: what that does to the output that it moves most.
    """

    constants: int
    furthest: float
    distance: float


class QuantisedModel(Cause, frozen=True, kw_only=True):
    """A file is the same model, quantised: without rounding to steps, both compute the same.

    Attributes:
        file: the quantised file.
        weights: how many weights are integers, each half a step at most from the other file's.
        distance: what quantisation does to the output that it moves most.
    """

    file: str
    weights: int
    distance: float


class NodeHoldsGraph(Cause, frozen=True, kw_only=True):
    """A node depends on the input and holds a graph or tensor, which is not compared."""

    node: LayerFacts


class Folded(Cause, frozen=True, kw_only=True):
    """Batch normalisations that a file has folded or written out as other operators."""

    file: str
    nodes: tuple[str, ...]


class WeightFacts(Part, frozen=True, kw_only=True):
    """A constant that a file computes with, and the operator and node that read it first."""

    name: str
    shape: Shape
    operator: str
    node: str


class WeightInOne(Cause, frozen=True, kw_only=True):
    """A weight has no counterpart in the other file."""

    locates = True

    file: str
    weight: WeightFacts


class WeightDiffers(Cause, frozen=True, kw_only=True):
    """Two weights differ.

    Attributes:
        largest: the largest difference; null where they are not finite.
        differing: how many elements differ; 0 in older certificates.
        first, worst: the indices of the first element that differs and of the one that differs most, in
            the layout of ``weight``; null where the layouts are not known.
    """

    locates = True

    weight: WeightFacts
    other: WeightFacts
    largest: float | None
    differing: int = 0
    first: Shape | None = None
    worst: Shape | None = None


class WeightsNotComparable(Cause, frozen=True, kw_only=True):
    """The files are written differently, so these weights cannot be compared with each other."""


class BothFolded(Cause, frozen=True, kw_only=True):
    """No weight is further apart than folding a batch normalisation rounds it."""


class OutputValue(Part, frozen=True, kw_only=True):
    """An output of a file, of one batch; batches are counted from 1, 0 where there is one."""

    file: str
    output: str
    batch: int


class NotFiniteOutputs(Cause, frozen=True, kw_only=True):
    """Outputs hold a NaN or an infinity."""

    outputs: tuple[OutputValue, ...]


class FoldedTolerance(Cause, frozen=True, kw_only=True):
    """The tolerance is a multiple of what rounding of the folded weights does."""

    aside = "checked"

    multiple: float


class ConstantsDiffer(Part, frozen=True, kw_only=True):
    """Two constants that counterparts read.

    Attributes:
        largest: the largest difference; null where they cannot be subtracted.
        order: of the same numbers, how the first is transposed to be the other, or empty if no transposition
            does it; null of other numbers.
    """

    name: str
    other: str
    largest: float | None
    order: Shape | None = None


class NodesPart(Cause, frozen=True, kw_only=True):
    """The first nodes whose values differ, though what they read does not.

    Attributes:
        node, other: of the first and of the second file.
        operators_differ: whether they are other operators.
        attributes: names of those that differ.
        constants: that differ.
        reads, other_reads: values that they read, where these are what differs.
    """

    locates = True

    node: LayerFacts
    other: LayerFacts
    operators_differ: bool = False
    attributes: tuple[str, ...] = ()
    constants: tuple[ConstantsDiffer, ...] = ()
    reads: tuple[str, ...] = ()
    other_reads: tuple[str, ...] = ()


class OutputsConstant(Cause, frozen=True, kw_only=True):
    """The outputs that differ are inputs or constants, so no node is to blame."""


class RunInFloat32(Cause, frozen=True, kw_only=True):
    """A file of float64 was run in float32."""

    aside = "checked"

    file: str


class RuntimeDiffers(Cause, frozen=True, kw_only=True):
    """ONNX Runtime computes in float32 something else than the truth. Null is infinity.

    Attributes:
        distance: of ONNX Runtime's outputs from the truth.
        own: the same for dlb's own evaluation in float32.
        judged: whether dlb's own evaluation is near enough to judge the files by.
    """

    distance: float | None
    own: float | None
    judged: bool
