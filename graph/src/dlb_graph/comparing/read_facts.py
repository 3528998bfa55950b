"""What was decided in reading an ONNX file or two, and what of it no layer computes, as causes of findings."""

from __future__ import annotations

from typing import Literal, Union

from dlb_graph.comparing.causes import Cause

__all__ = [
    "AssumedValues",
    "FedArrays",
    "FedNoise",
    "InTrainingMode",
    "LossChosen",
    "NarrowValues",
    "NodeIsLoss",
    "PairFact",
    "PairedByOrder",
    "ReadAs",
    "ReadFact",
    "RoundedWeights",
    "SameNumbers",
    "SharedLayers",
    "StraightThrough",
    "TiedWeights",
    "TurnedAxes",
]


Source = Literal["declared", "sizes", "none"]


class FedNoise(Cause, frozen=True, kw_only=True):
    """Both files were run on seeded noise: a fact, not a fault."""

    deviations: tuple[float, ...]


class FedArrays(Cause, frozen=True, kw_only=True):
    """Both files were run on a user's arrays: a fact, not a fault."""

    path: str


class PairedByOrder(Cause, frozen=True, kw_only=True):
    """Inputs or outputs have other names in both files and were paired by order."""

    kind: str
    pairs: tuple[tuple[str, str], ...]


class TurnedAxes(Cause, frozen=True, kw_only=True):
    """An input or output was transposed, since the files have its axes in other orders: a fact, not a fault.

    Attributes:
        axes: of the file's, in the order in which the other file has them.
        source: a user or sizes said so; ``none``: it was not, though with it both compute the same.
        layout: what declares this order: ``b.onnx=NHWC``.
    """

    file: str
    port: str
    axes: tuple[int, ...]
    source: Source
    layout: str


class InTrainingMode(Cause, frozen=True, kw_only=True):
    """Batch normalisations or dropout of a file compute as in training: with the batch's statistics."""

    file: str
    nodes: tuple[str, ...]


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


class RoundedWeights(Cause, frozen=True, kw_only=True):
    """Weights of a file that float32 does not hold, rounded for what is run."""

    aside = "rounding"

    tensors: tuple[str, ...]
    more: int
    total: int


class StraightThrough(Cause, frozen=True, kw_only=True):
    """Roundings of a quantised file whose gradient is that of the identity: a fact.

    Attributes:
        by_sample: scales of dynamic quantisation are those of each sample.
    """

    roundings: int
    by_sample: bool = False


class AssumedValues(Cause, frozen=True, kw_only=True):
    """Inputs of a file that hold one number everywhere, as nobody chose: the output depends on them.

    Attributes:
        values: name and number of each input, or of a value that a node computes.
    """

    values: tuple[tuple[str, float], ...]


class NarrowValues(Cause, frozen=True, kw_only=True):
    """Values that a file rounds to float16 or bfloat16; layers that were read, or the other file, do not.

    Attributes:
        values: names of the first that are rounded; more: how many others.
        distance: of the output from what it is without these roundings; null stands for infinity.
        file: of two, the one that rounds them.
    """

    aside = "rounding"

    values: tuple[str, ...]
    more: int
    distance: float | None
    file: str = ""

    @property
    def count(self) -> int:
        """How many values are rounded."""
        return len(self.values) + self.more


ReadFact = Union[
    ReadAs,
    NodeIsLoss,
    LossChosen,
    TiedWeights,
    SharedLayers,
    SameNumbers,
    RoundedWeights,
    StraightThrough,
    AssumedValues,
    NarrowValues,
]
#: What a comparison of two files rests on.
PairFact = Union[FedArrays, FedNoise, InTrainingMode, PairedByOrder, TurnedAxes]
