"""The rungs, a function each. Each takes what was computed and gives verdicts; none computes models.

A rung is added by writing one more such function and calling it in :mod:`dlb.proof.ladder`.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from dlb.proof.certificate import Figure, Rung, Verdict
from dlb.proof.distance import figure, figures, passes, relative_l2, same_bits, worst_first

__all__ = [
    "FLOAT64_GATE",
    "agreement_rungs",
    "distributed_rung",
    "export_rung",
    "forward_rung",
    "not_run",
    "slope_rung",
    "structure_rung",
    "weights_rung",
]

Array = npt.NDArray[Any]
Tensors = Mapping[str, Array]

#: In float64 the same mathematics agrees to about 1e-15; another meaning shows far above this.
FLOAT64_GATE = 1e-10
#: A float32 result may be this many times as far from the truth as ONNX Runtime's is.
FLOAT32_MULTIPLE = 20.0
#: An exported model and the object it was exported from compute the same sums in another order.
EXPORT_GATES = {"float32": 1e-5, "float64": FLOAT64_GATE}
#: Central differences of a piecewise smooth loss; their own error is well below this.
SLOPE_GATE = 1e-5
#: A gradient this small beside the whole one is rounding.
NOISE = 1e-6


def verdict(passed: bool) -> Verdict:
    return "passed" if passed else "failed"


def not_run(name: str, adapter: str, against: str, reason: str) -> Rung:
    """A rung that could not be run, which never counts as passed."""
    return Rung(name=name, adapter=adapter, against=against, verdict="not run", detail=reason)


def weights_rung(adapter: str, dtype: str, found: Tensors, seeded: Tensors) -> Rung:
    """Every parameter after loading, bit for bit."""
    expected = {name: array.astype(dtype) for name, array in seeded.items()}
    wrong = [
        name
        for name in {**expected, **found}
        if name not in found or name not in expected or not same_bits(found[name], expected[name])
    ]
    return Rung(
        name=f"weights {dtype}",
        adapter=adapter,
        against="the workload's seeded weights, bit for bit",
        verdict=verdict(not wrong),
        figures=figures(found, expected),
        detail=f"not the same bits: {', '.join(wrong)}" if wrong else "",
    )


def forward_rung(adapter: str, name: str, found: Tensors, truth: Tensors, gate: float) -> Rung:
    """Values of a forward pass against the canonical graph's in float64.

    ``truth`` is in the order of the layers: the first past the gate is named.
    """
    found_figures = figures(found, truth)
    past = {one.tensor for one in found_figures if not passes((one,), gate)}
    first = next((layer for layer in truth if layer in past), "")
    return Rung(
        name=name,
        adapter=adapter,
        against="canonical graph in float64",
        verdict=verdict(passes(found_figures, gate)),
        gate=gate,
        figures=found_figures,
        detail=f"first layer past the gate: {first}" if first else "",
    )


def slope_rung(adapter: str, slopes: Mapping[str, tuple[float, float, float]]) -> Rung:
    """Directional derivatives: the adapter's gradient against finite differences.

    Args:
        slopes: (by the gradient, by differences of the canonical graph's loss, typical size) by
            direction.
    """
    found = worst_first(
        figure(name, np.array([gradient]), np.array([difference]), typical)
        for name, (gradient, difference, typical) in slopes.items()
    )
    return Rung(
        name="gradients by differences",
        adapter=adapter,
        against="finite differences of the canonical graph's loss in float64",
        verdict=verdict(passes(found, SLOPE_GATE)),
        gate=SLOPE_GATE,
        figures=found,
    )


def agreement_rungs(name: str, found: Mapping[str, Tensors]) -> list[Rung]:
    """Tensors of every adapter against the other adapters', in float64.

    An adapter's figure for a tensor is its median distance to the others, so that one that is
    wrong among three or more does not make the others look wrong.

    Args:
        found: ``loss``, ``input`` and parameter gradients, by adapter.
    """
    rungs = []
    for adapter, own in found.items():
        others = {other: tensors for other, tensors in found.items() if other != adapter}
        collected: list[Figure] = []
        for tensor, array in own.items():
            distances = [
                relative_l2(array, tensors.get(tensor, np.full(1, np.nan)), floor(tensors))
                for tensors in others.values()
            ]
            middle = statistics.median_low(distances)
            nearest = min(
                others, key=lambda other: abs(distances[list(others).index(other)] - middle)
            )
            shown = figure(
                tensor, array, others[nearest].get(tensor, np.full(1, np.nan)), floor(own)
            )
            finite = middle if np.isfinite(middle) else None
            collected.append(Figure(tensor=tensor, relative_l2=finite, largest=shown.largest))
        ordered = worst_first(collected)
        rungs.append(
            Rung(
                name=name,
                adapter=adapter,
                against=f"{', '.join(others)} in float64",
                verdict=verdict(passes(ordered, FLOAT64_GATE)),
                gate=FLOAT64_GATE,
                figures=ordered,
            )
        )
    return rungs


def floor(tensors: Tensors) -> float:
    """The norm below which a gradient among these is only rounding."""
    parameters = [array for name, array in tensors.items() if name not in ("loss", "input")]
    return NOISE * float(np.sqrt(sum(float(np.sum(array**2)) for array in parameters)))


def structure_rung(adapter: str, canonical: Any, exported: Path) -> Rung:
    """The exported graph's operators, attributes, shapes and parameters against the canonical's."""
    import onnx

    from dlb.graph.structure import compare_structure

    found = compare_structure(canonical, onnx.load(str(exported), load_external_data=False))
    return Rung(
        name="structure",
        adapter=adapter,
        against="canonical ONNX graph",
        verdict=verdict(found.equal),
        detail="; ".join(str(difference) for difference in found.differences),
    )


def export_rung(adapter: str, dtype: str, exported: Array, own: Array) -> Rung:
    """The exported model's logits against the timed object's own, after timing."""
    found = figures({"logits": exported}, {"logits": own})
    gate = EXPORT_GATES[dtype]
    return Rung(
        name="export",
        adapter=adapter,
        against="the timed object's own predictions",
        verdict=verdict(passes(found, gate)),
        gate=gate,
        figures=found,
    )


def distributed_rung(
    adapter: str, workers: int, steps: int, found: Sequence[Tensors], alone: Tensors
) -> Rung:
    """Weights of K workers after some steps against one worker's on the same global batches."""
    every = [figures(one, alone) for one in found]
    ordered = worst_first(one for some in every for one in some)
    apart = [
        name for name in alone if any(not same_bits(one[name], found[0][name]) for one in found[1:])
    ]
    detail = f"{workers} workers, {steps} steps"
    if apart:
        detail += f"; workers differ among themselves in {', '.join(apart)}"
    return Rung(
        name="distributed",
        adapter=adapter,
        against="one worker on the same global batches, in float64",
        verdict=verdict(passes(ordered, FLOAT64_GATE)),
        gate=FLOAT64_GATE,
        figures=ordered,
        detail=detail,
    )
