"""Every check by name: its group, what it needs of a subject, what it compares with, and its tolerance.

Of a model that an adapter built; packages have tables of their own subjects. The table of checks in the
documentation is compared with it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from dlb.proof.certificate import Baseline, BaselineKind, CheckGroup
from dlb.proof.findings import vocabularies

__all__ = ["BUILT", "Ability", "CheckKind", "kind_named"]

#: What a subject, or the run that it is part of, must have for a check.
Ability = Literal[
    "bfloat16",  # it computes matrix products in bfloat16
    "clipping",  # its optimizer clips gradients
    "float32",  # it is timed in float32
    "float64",  # it can run in float64
    "own steps",  # the user gave its training program
    "peers",  # other adapters run the same workload
    "settings",  # it has dropout, regularizers or constraints
    "statistics",  # it has running statistics
    "training",  # it can run in training mode, with given masks
]


@dataclass(frozen=True)
class CheckKind:
    """One row of the table of checks.

    Attributes:
        name: name in certificates; it is part of their format.
        group: group of the check.
        baseline: what a subject is compared with.
        tolerance: the largest distance that passes, in words.
        needs: without these, the check does not apply, or is not run.
        evaluation: of a check in training mode, the same one in evaluation mode.
        shown: in place of the tolerance, where a result has none.
        summary: what the findings of a passed result are shown as; empty if they are not.
        reason: what explains a difference: the group, the mask that a framework draws, that only float32
            shows it, or the finding itself.
    """

    name: str
    group: CheckGroup
    baseline: BaselineKind
    tolerance: str
    needs: frozenset[Ability] = frozenset()
    evaluation: str = ""
    shown: str = "exact"
    summary: str = ""
    reason: Literal["group", "dropout", "float32", "finding"] = "group"

    def against(self, *names: str) -> Baseline:
        """What it compares with.

        Args:
            names: other subjects that it compares with, if any.
        """
        of_subjects = self.baseline == "adapters" or (bool(names) and self.group == "float32")
        return Baseline(kind=self.baseline, names=names, float64=of_subjects)


def kind_named(name: str, baseline: str = "") -> CheckKind | None:
    """The first check of that name, of those with a baseline if one has it; None if there is none, as in
    documents of other versions."""
    tables = [BUILT, *(table for added in vocabularies() for table in added.checks)]
    named = [table[name] for table in tables if name in table]
    return next((each for each in named if each.baseline == baseline), next(iter(named), None))


def _table(*kinds: CheckKind) -> Mapping[str, CheckKind]:
    return {kind.name: kind for kind in kinds}


def _needs(*abilities: Ability) -> frozenset[Ability]:
    return frozenset(abilities)


_T, _T32, _T16 = _needs("training"), _needs("training", "float32"), _needs("training", "bfloat16")
_64, _T64 = _needs("float64"), _needs("training", "float64")
_BITS, _BITS_TYPES = "the same bits", "the same bits, types and shapes"
_K = CheckKind

# fmt: off
#: The checks of a model that an adapter built from a workload.
BUILT = _table(
    _K("file", "file", "onnx_file", "1e-10"),
    _K("weights float64", "weights", "given_weights", _BITS_TYPES),
    _K("forward float64", "forward", "canonical_graph", "1e-10"),
    _K("isolated layers", "layers", "canonical_layers", "1e-10"),
    _K("forward float64, training", "forward", "canonical_graph", "1e-10", _T, "forward float64"),
    _K("isolated layers, training", "layers", "canonical_layers", "1e-10", _T, "isolated layers"),
    _K("gradients float64", "gradients", "canonical_backward", "1e-10", _T),
    _K("gradients by differences", "gradients", "finite_differences", "1e-5", _T),
    _K("isolated layers, extremes", "layers", "canonical_layers", "1e-10, or what rounding makes there", _T),
    _K("gradients float64, extremes", "gradients", "canonical_backward",
       "1e-10 where sums are exact, else 1e-8, or what rounding makes there", _T),
    _K("dropout", "forward", "dropout_definition", "1e-12", reason="dropout"),
    _K("dropout gradients", "gradients", "dropout_definition", "1e-10", reason="dropout"),
    _K("forward float64, timed batch", "forward", "canonical_graph", "1e-10", _T),
    _K("gradients float64, timed batch", "gradients", "canonical_backward", "1e-10", _T),
    _K("update, timed batch", "update", "optimizer_definition", "1e-10", _T),
    _K("update", "update", "optimizer_definition", "1e-10", _T),
    _K("trajectory", "trajectory", "optimizer_definition", "1e-10", _T),
    _K("clipping", "update", "optimizer_definition", "1e-10", _needs("training", "clipping")),
    _K("weights float32", "weights", "given_weights", _BITS_TYPES),
    _K("forward float32", "float32", "canonical_graph", "20 times ONNX Runtime's own error"),
    _K("isolated layers float32", "float32", "canonical_layers",
       "20 times the error of the same layer in NumPy's float32", _T32),
    _K("gradients float32", "float32", "canonical_backward",
       "20 times the error of the same backward pass in NumPy's float32", _T32),
    _K("update float32", "float32", "optimizer_definition",
       "20 times the error of the same steps in NumPy's float32", _T32, reason="float32"),
    _K("gradients", "gradients", "adapters", "1e-10", _needs("training", "peers")),
    _K("trajectories", "trajectory", "adapters", "1e-10", _needs("training", "peers")),
    _K("forward bfloat16", "float32", "canonical_graph",
       "6 times what rounding inputs and weights to bfloat16 makes", _needs("bfloat16")),
    _K("isolated layers bfloat16", "float32", "canonical_layers",
       "6 times the error of the same layer in NumPy with rounded inputs, weights and result", _T16),
    _K("gradients bfloat16", "float32", "canonical_backward",
       "6 times the error of the same backward pass in NumPy from rounded values and weights, with "
       "gradients rounded between layers", _T16),
    _K("dropout float32", "float32", "dropout_definition", "1e-6", reason="dropout"),
    _K("dropout gradients float32", "float32", "dropout_definition", "1e-5", reason="dropout"),
    _K("audit, batches", "audit", "sample_order", _BITS),
    _K("audit, steps", "audit", "step_definition", "each tensor's own", summary="audit"),
    _K("audit, losses", "audit", "step_definition", "2e-5, or the effect of rounding the weights"),
    _K("audit, clock", "audit", "core_clock", "2%", shown="2%"),
    _K("audit, test", "audit", "canonical_graph",
       "1e-5 in float32, or 20 times NumPy's error in it; 1e-10 in float64"),
    _K("structure", "structure", "canonical_structure", "equal, or values decide"),
    _K("exported weights", "export", "trained_weights",
       "the same bits; 1e-6 where a batch normalisation is folded"),
    _K("export", "export", "timed_model", "1e-5 in float32, 1e-10 in float64"),
    _K("distributed", "distributed", "single_worker", "1e-10"),
    _K("distributed, schedule", "distributed", "schedule_in_numpy", "1e-10", summary="schedule"),
)
# fmt: on
