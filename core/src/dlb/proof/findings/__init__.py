"""Findings: what a check saw, as fields. :mod:`dlb.report` makes sentences of them."""

from __future__ import annotations

from typing import Union

from dlb.proof.findings import audit, common, files, port, workload
from dlb.proof.findings.base import Cause, Figure, LayerFacts, Part, shape_of

__all__ = ["AnyCause", "Cause", "Figure", "Finding", "LayerFacts", "Part", "shape_of"]

#: Every cause there is, told apart by its code.
AnyCause = Union[
    common.BitsDiffer,
    common.CannotRun,
    common.FeatureMissing,
    common.Missing,
    common.Note,
    common.NotFinite,
    common.ShapeMismatch,
    common.StepsCompared,
    common.StructuresDiffer,
    audit.BatchDiffers,
    audit.ClockDiffers,
    audit.LogitsAudited,
    audit.LogitsDiffer,
    audit.LossDiffers,
    audit.MasksUnknown,
    audit.OtherWhenWatched,
    audit.StateChanged,
    audit.StepDiffers,
    audit.StepsAudited,
    audit.TimeUntold,
    audit.TooFewJudged,
    audit.WorkPending,
    audit.WorkersApart,
    workload.AssumedValues,
    workload.Asynchronous,
    workload.Clipping,
    workload.ConstantLogits,
    workload.DifferenceSteps,
    workload.DropoutBackward,
    workload.DropoutCount,
    workload.DropoutElement,
    workload.DropoutInEvaluation,
    workload.DropoutShape,
    workload.DropoutsCovered,
    workload.ErrorMultiple,
    workload.Extremes,
    workload.FewElements,
    workload.Float32Baseline,
    workload.GradientsDiffer,
    workload.LayerDiffers,
    workload.NarrowValues,
    workload.NoWeightMoves,
    workload.NodeIsLoss,
    workload.LossChosen,
    workload.MixedExport,
    workload.ReadAs,
    workload.RoundedExport,
    workload.RoundedWeights,
    workload.RoundingGrows,
    workload.SameNumbers,
    workload.SharedLayers,
    workload.SmallerBatch,
    workload.StraightThrough,
    workload.TiedWeights,
    workload.TrainedNotFinite,
    workload.WorkersCompared,
    workload.WorkersDisagree,
    port.ConstantBefore,
    port.CutDifferently,
    port.DrawsRandom,
    port.DropoutDiffers,
    port.DropoutSame,
    port.EvaluationMode,
    port.FlattenOrder,
    port.Float32Constant,
    port.KeptPart,
    port.LayoutUnknown,
    port.NoCounterparts,
    port.NotLoaded,
    port.OnlyKeptPart,
    port.OtherCalls,
    port.OutputCount,
    port.PenaltyDiffers,
    port.PortLayerDiffers,
    port.RoundingDecides,
    port.SameAsEvaluation,
    port.SpanDiffers,
    port.TrainedInOne,
    port.VarianceDivisor,
    port.WeightsLeft,
    port.StateDiffers,
    port.FrozenDiffers,
    port.StatesRounded,
    files.BothFolded,
    files.FedArrays,
    files.FedNoise,
    files.Float16Model,
    files.RoundedConstants,
    files.Folded,
    files.FoldedTolerance,
    files.FoldedWeights,
    files.InTrainingMode,
    files.NodeHoldsGraph,
    files.NodesPart,
    files.NotFiniteOutputs,
    files.OutputsConstant,
    files.PairedByOrder,
    files.QuantisedModel,
    files.RunInFloat32,
    files.RuntimeDiffers,
    files.WeightDiffers,
    files.WeightInOne,
    files.WeightsNotComparable,
]


class Finding(Part, frozen=True, kw_only=True, omit_defaults=True):
    """One thing that a check found: a fault, a reason not to run, or a fact about the comparison.

    The check and the adapter are those of the :class:`~dlb.proof.certificate.CheckResult` that holds it.

    Attributes:
        cause: what it is: a code with fields of its own.
        layer: the layer that it is about, as described and as built.
        figure: the distance of the tensor that it is about.
        tolerance: the largest distance of it that passes.
    """

    cause: AnyCause
    layer: LayerFacts | None = None
    figure: Figure | None = None
    tolerance: float | None = None
