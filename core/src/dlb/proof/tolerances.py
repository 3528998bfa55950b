"""How far apart values may be, and why the limit is where it is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy.typing as npt

from dlb.proof.distance import norm

__all__ = [
    "CHANGE_LEAST",
    "CHANGE_SEEN",
    "EXPORT_TOLERANCES",
    "FLOAT32_LEAST",
    "FLOAT32_MOST",
    "FLOAT32_MULTIPLE",
    "FLOAT32_SMALL",
    "FLOAT64_TOLERANCE",
    "FOLDED_TOLERANCE",
    "NOISE",
    "NORMALISED_UNITS",
    "PERTURBED_MULTIPLE",
    "PERTURBED_RUNS",
    "PERTURBED_UNITS",
    "ROUNDED",
    "SLOPE_TOLERANCE",
    "SMALL",
    "STEP_SCALE",
    "Tensors",
    "norm_floor",
]

Tensors = Mapping[str, npt.NDArray[Any]]

#: In float64 the same mathematics agrees to about 1e-15; another meaning shows far above this.
FLOAT64_TOLERANCE = 1e-10
#: A float32 result may be this many times as far from the truth as the nearest one is.
FLOAT32_MULTIPLE = 20.0
#: The same of the error that moving the weights by a few units in their last place makes.
PERTURBED_MULTIPLE = 1.25
#: Times that the weights are perturbed, for what that makes of the gradients; and by how many
#: units in the last place: as far as float32 moves the logits of deep networks, and across as many
#: kinks on the way. Normalisation over a few samples moves them further.
PERTURBED_RUNS, PERTURBED_UNITS, NORMALISED_UNITS = 2, 4, 16
#: Rounding of float32 itself; no result is asked to be nearer than some of it.
FLOAT32_LEAST = 1e-6
#: No float32 forward pass of a model worth comparing is further from the truth by rounding.
FLOAT32_MOST = 1e-3
#: An exported model and the object it was exported from compute the same sums in another order.
EXPORT_TOLERANCES = {"float32": 1e-5, "float64": FLOAT64_TOLERANCE}
#: Folding a batch normalisation in float32 rounds several times: some units in the last place, 1.2e-7
#: each.
FOLDED_TOLERANCE = 1e-6
#: Central differences of a piecewise smooth loss; their own error is well below this.
SLOPE_TOLERANCE = 1e-5
#: A gradient this small next to the whole one is rounding.
NOISE = 1e-6
#: Across adapters a gradient this small next to the whole one is judged by the whole: within 1e-13
#: of it. Rounding leaves some 1e-15 of a gradient that is zero (a bias's before a batch
#: normalisation), and nobody can ask two adapters to round alike.
SMALL = 1e-3
#: The same in float32: no result is asked to be nearer than 20 times FLOAT32_LEAST of this, 5e-6 of
#: the whole. Sums that cancel (the backward of a batch normalisation) leave up to 3e-6 of it.
FLOAT32_SMALL = 0.25
#: A gradient this small next to the whole one in float64 is what rounding left of zero.
ROUNDED = 1e-12
#: By what share a perturbed run's steps are longer, to see what rounding may make of a trajectory:
#: gradients that agree so well are the same.
STEP_SCALE = 1e-12
#: A change this small next to the weight it changes is rounded to fewer digits than are asked for.
CHANGE_LEAST = 1e-5
#: Where no change is above this, next to the weight, one a tenth too large would pass.
CHANGE_SEEN = 1e-14


def norm_floor(tensors: Tensors, share: float = NOISE) -> float:
    """The norm below which a gradient among these is too small to be judged by itself."""
    return share * norm(array for name, array in tensors.items() if name not in ("loss", "input"))
