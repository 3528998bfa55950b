"""What an optimizer is to dlb: the class that every kind derives from.

A kind is one class: fields, what it keeps for each weight, its step in NumPy, and the operations of that step.
:data:`dlb_graph.optimizers.OPTIMIZERS` has them all; an entry in each adapter that has it follows.

Frameworks put epsilon in different places and give the same names to different updates. So each formula is
written out, and where two places are in use, ``epsilon_place`` says which is meant.
"""

from __future__ import annotations

import math
from typing import ClassVar, Literal

import msgspec

from dlb_graph.layers.numbers import Array, np

__all__ = ["DecayOn", "EpsilonPlace", "Optimizer", "over_root"]

#: Where epsilon is added: to the root, or to what the root is taken of. For Adamax: to the maximum, or to
#: the gradient's size before the maximum is taken.
EpsilonPlace = Literal["outside", "inside"]
#: What weight decay acts on: every trained parameter, or those alone whose role ends with ``weight``. The
#: others are biases, and the scales and slopes of normalisations and activations.
DecayOn = Literal["all", "weights"]
#: The fields that limit gradients.
_CLIPS = ("clip_norm", "clip_value", "clip_variable_norm")


class Optimizer(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="type"
):
    """An optimizer: immutable, compared by value, unknown fields are rejected.

    :class:`dlb_graph.optimizers.SGD` says what the fields mean that every kind has.

    Class attributes:
        decouples_decay: weight decay is added to the direction of the step, not to the gradient.
    """

    learning_rate: float
    weight_decay: float = 0.0
    clip_norm: float = 0.0
    clip_value: float = 0.0
    clip_variable_norm: float = 0.0
    weight_decay_on: DecayOn = "all"
    accumulate: int = 1

    decouples_decay: ClassVar[bool] = False

    @property
    def slots(self) -> tuple[str, ...]:
        """What it keeps for each weight."""
        raise NotImplementedError

    @property
    def slot_start(self) -> float:
        """What slots start from."""
        return 0.0

    @property
    def operations(self) -> int:
        """Operations for each weight in a step, without clipping and decay."""
        raise NotImplementedError

    def direction(self, gradient: Array, slots: list[Array], steps: int) -> Array:
        """The direction of a step, which the learning rate multiplies; also updates ``slots`` in place.

        Args:
            gradient: clipped, and decayed where decay is coupled; all is computed in its type.
            slots: in the order of :attr:`slots`, in the gradient's shape.
            steps: taken so far, this one included.
        """
        raise NotImplementedError

    @property
    def clipping(self) -> str:
        """The field that limits gradients; "" if none does."""
        return next((name for name in _CLIPS if getattr(self, name)), "")

    def decays(self, parameter: str) -> bool:
        """Whether weight decay acts on a trained parameter, ``layer.role``."""
        is_weight = parameter.endswith("weight")
        return bool(self.weight_decay) and (self.weight_decay_on == "all" or is_weight)

    def fault(self) -> str:
        """What is wrong with its numbers; "" if nothing is."""
        rate = self.learning_rate
        if self.accumulate < 1:
            return f"optimizer.accumulate = {self.accumulate} must be 1 or more"
        if not 0 < rate < math.inf:
            return f"optimizer.learning_rate = {rate} must be above 0 and finite"
        for name in _CLIPS:
            if not 0 <= (clip := getattr(self, name)) < math.inf:
                return f"optimizer.{name} = {clip} must be 0 (none) or more, and finite"
        if len(limits := [name for name in _CLIPS if getattr(self, name)]) > 1:
            first, second, *_ = limits
            return (
                f"optimizer.{first} and optimizer.{second} are both above 0: set one of them to 0"
            )
        return ""


def over_root(gradient: Array, squares: Array, epsilon: float, place: EpsilonPlace) -> Array:
    """A gradient over the root of what its squares came to."""
    added = gradient.dtype.type(epsilon)
    if place == "inside":
        return np.asarray(gradient / np.sqrt(squares + added))
    return np.asarray(gradient / (np.sqrt(squares) + added))


def rho_fault(rho: float) -> str:
    """What is wrong with the share that a moving average keeps; "" if nothing is."""
    return "" if 0 <= rho < 1 else f"optimizer.rho = {rho} must be 0 or more, and below 1"
