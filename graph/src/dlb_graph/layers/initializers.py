"""How parameters start: the schemes and distributions that layers name."""

from __future__ import annotations

import math
from typing import Literal, Union

import msgspec

__all__ = ["Distribution", "Fill", "Initializer", "Normal", "TruncatedNormal", "Uniform"]


class Distribution(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="type"):
    """Base class of initialisers with a number."""

    def fault(self) -> str:
        """What is wrong with the number; "" if nothing is."""
        (number,) = msgspec.structs.astuple(self)
        negative = number < 0 and not isinstance(self, Fill)
        return (
            "" if math.isfinite(number) and not negative else "needs a finite number, not below 0"
        )


class Normal(Distribution, tag="normal", kw_only=True, frozen=True):
    """Gaussian of mean 0 and standard deviation ``std`` (Caffe's gaussian filler)."""

    std: float


class TruncatedNormal(Distribution, tag="truncated_normal", kw_only=True, frozen=True):
    """Gaussian of mean 0; values beyond two ``std`` are drawn again (tf.random.truncated_normal).

    ``std`` belongs to the Gaussian. The standard deviation after truncation is 0.88 times as large.
    """

    std: float


class Uniform(Distribution, tag="uniform", kw_only=True, frozen=True):
    """Uniform between -``limit`` and ``limit`` (Zaremba et al. 2014: 0.1)."""

    limit: float


class Fill(Distribution, tag="fill", kw_only=True, frozen=True):
    """``value`` everywhere."""

    value: float


#: The spread of the glorot, he and lecun schemes follows from the layer's sizes (Glorot and Bengio 2010;
#: He et al. 2015; LeCun et al. 1998, also Caffe's xavier filler). ``fan_in`` is uniform between
#: -1 / sqrt(fan-in) and 1 / sqrt(fan-in), as in Torch 7; a bias uses the fan-in of its weight.
Initializer = Union[
    Literal[
        "zeros",
        "ones",
        "glorot_uniform",
        "glorot_normal",
        "he_uniform",
        "he_normal",
        "lecun_uniform",
        "lecun_normal",
        "fan_in",
    ],
    Normal,
    TruncatedNormal,
    Uniform,
    Fill,
]
