"""The tolerances of all checks, with the reason for each."""

from __future__ import annotations

from collections.abc import Mapping

from dlb_graph.comparing.distance import norm
from dlb_graph.layers.numbers import Array

__all__ = [
    "BFLOAT16_LEAST",
    "BFLOAT16_MULTIPLE",
    "CHANGE_LEAST",
    "CHANGE_SEEN",
    "EXPORT_TOLERANCES",
    "EXTREME_SMALL",
    "EXTREME_TOLERANCE",
    "FLOAT32_CONSTANT",
    "FLOAT32_LAYERS",
    "FLOAT32_LEAST",
    "FLOAT32_MOST",
    "FLOAT32_MULTIPLE",
    "FLOAT32_SMALL",
    "FLOAT64_FINER",
    "FLOAT64_TOLERANCE",
    "FOLDED_TOLERANCE",
    "MOST_NARROWED",
    "NOISE",
    "NORMALISED_UNITS",
    "PERTURBED_MULTIPLE",
    "PERTURBED_RUNS",
    "PERTURBED_UNITS",
    "ROUNDED",
    "RUNNING_LEAST",
    "SLOPE_TOLERANCE",
    "SMALL",
    "STEP_SCALE",
    "Tensors",
    "norm_floor",
]

Tensors = Mapping[str, Array]

#: In float64 equal mathematics agrees to about 1e-15. A different meaning gives a far larger distance.
FLOAT64_TOLERANCE = 1e-10
#: How many times finer float64 rounds than float32.
FLOAT64_FINER = 2.0**29
#: Gradients in float64 at values of about 1000. Where a softmax is saturated they are small differences of
#: large numbers, which correct backward passes round differently: a fused attention is 3e-10 from a plain one.
#: What a bound, a clip or an overflow changes is above 1e-3.
EXTREME_TOLERANCE = 1e-8
#: A smaller gradient there is relative to this share of the whole gradient.
EXTREME_SMALL = 0.1
#: The error of a float32 result may be this many times the smallest error of any adapter.
FLOAT32_MULTIPLE = 20.0
#: It may also be this many times the error from perturbed weights (a few units in the last place).
PERTURBED_MULTIPLE = 1.25
#: Runs with perturbed weights, and by how many units in the last place. 4 units move the logits of deep
#: networks as far as float32 does, across as many kinks. Normalisation over a few samples needs 16.
PERTURBED_RUNS, PERTURBED_UNITS, NORMALISED_UNITS = 2, 4, 16
#: The error of a bfloat16 result may be this many times what rounding inputs and weights makes of the same
#: computation. torch's layers of LeNet-5 have 1.0 times that, its gradients 1.5, its logits 1.5.
BFLOAT16_MULTIPLE = 6.0
#: Rounding of bfloat16 itself, at most 2**-8 of a number and half of that on average; a smaller error counts
#: as this.
BFLOAT16_LEAST = 2.0**-9
#: What the roundings of bfloat16 in a whole network may move its output by: some of 2**-8 each.
MOST_NARROWED = 2.0**-4
#: Rounding of float32 itself: a smaller error of the best adapter counts as this.
FLOAT32_LEAST = 1e-6
#: A value that a constant or a result rounded to float32 once or twice has moved is off by up to this.
FLOAT32_CONSTANT = 3e-7
#: A layer of a model in float32 that is this far from the reference in float64 is where a difference begins,
#: once the outputs differ by more than rounding. Rounding alone grows to some 1e-5 over many layers.
FLOAT32_LAYERS = 1e-4
#: A larger error of a float32 forward pass is not rounding.
FLOAT32_MOST = 1e-3
#: An exported model and its origin compute the same sums in another order.
EXPORT_TOLERANCES = {"float32": 1e-5, "float64": FLOAT64_TOLERANCE}
#: Folding a batch normalisation in float32 rounds several times, by 1.2e-7 each.
FOLDED_TOLERANCE = 1e-6
#: Central differences of a piecewise smooth loss; their own error is well below this.
SLOPE_TOLERANCE = 1e-5
#: A gradient this small relative to the whole gradient is rounding.
NOISE = 1e-6
#: Across adapters, the distance of a smaller gradient is relative to this share of the whole gradient.
#: Rounding leaves about 1e-15 of a gradient that is zero, such as that of a bias before a batch
#: normalisation. Two adapters do not round equally.
SMALL = 1e-3
#: The same share in float32, so that the tolerance is at least 5e-6 of the whole gradient. Sums that cancel,
#: as in the backward pass of a batch normalisation, leave up to 3e-6 of it.
FLOAT32_SMALL = 0.25
#: In float64, a gradient this small relative to the whole gradient is zero except for rounding.
ROUNDED = 1e-12
#: Relative increase of the learning rate in a run that measures how rounding errors grow. Gradients that
#: agree this well count as equal.
STEP_SCALE = 1e-12
#: A change this small relative to its weight is rounded to fewer digits than the tolerance needs.
CHANGE_LEAST = 1e-5
#: The same of running statistics. Where a linear convolution follows a batch normalisation, as in MobileNetV2,
#: the next mean is the same for every batch, and the change of a trained one is rounding alone.
RUNNING_LEAST = 1e-4
#: If no change relative to its weight is above this, a change that is a tenth too large would pass.
CHANGE_SEEN = 1e-14


def norm_floor(tensors: Tensors, share: float = NOISE) -> float:
    """The norm below which the distance of a gradient is relative to this norm, not to its own."""
    return share * norm(array for name, array in tensors.items() if name not in ("loss", "input"))
