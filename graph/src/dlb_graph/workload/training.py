"""The learning-rate schedules."""

from __future__ import annotations

import math
from typing import Literal, Union

import msgspec

from dlb_graph.optimizers import Optimizer

__all__ = [
    "Constant",
    "CosineRestarts",
    "Decay",
    "Inverse",
    "Polynomial",
    "Schedule",
    "Step",
    "WarmupCosine",
    "WarmupLinear",
    "in_steps",
    "learning_rate",
    "schedule_fault",
    "with_epoch",
]


class Part(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="type"):
    """Base class: immutable, compared by value, unknown fields are rejected."""


class Constant(Part, tag="constant", frozen=True):
    """The optimizer's learning rate throughout."""


class _Counted(Part, kw_only=True, frozen=True):
    """A schedule that counts.

    Attributes:
        unit: what its whole numbers count, ``step`` or ``epoch``.
        epoch_steps: the steps of an epoch, where the unit is one. A request fills it in, from its samples and
            its batch; it is no part of what a workload means.
    """

    unit: Literal["step", "epoch"] = "step"
    epoch_steps: int = 0


class Step(_Counted, tag="step", kw_only=True, frozen=True):
    """Multiplies the learning rate by ``gamma`` at each of ``milestones`` (from 0)."""

    milestones: tuple[int, ...]
    gamma: float = 0.1


class Decay(_Counted, tag="decay", kw_only=True, frozen=True):
    """Multiplies the learning rate by ``gamma`` at step ``start`` and every ``every`` steps after it
    (Zaremba et al., arXiv:1409.2329, halve it after each epoch from the fifth on)."""

    start: int
    every: int
    gamma: float = 0.5


class Inverse(Part, tag="inverse", kw_only=True, frozen=True):
    """The learning rate times ``(1 + gamma * step) ** -power``, Caffe's ``inv`` policy."""

    gamma: float
    power: float


class WarmupCosine(_Counted, tag="warmup_cosine", kw_only=True, frozen=True):
    """Linear warm-up, then half a cosine (Loshchilov and Hutter, arXiv:1608.03983, no restarts).

    Over ``warmup`` steps, the rate grows from 1 / ``warmup`` of the learning rate to all of it. It
    then falls to ``end`` times the learning rate at step ``steps``, and stays there.
    """

    warmup: int
    steps: int
    end: float = 0.0


class WarmupLinear(_Counted, tag="warmup_linear", kw_only=True, frozen=True):
    """Linear warm-up, then a straight line down (Devlin et al., arXiv:1810.04805, appendix A.2).

    Over ``warmup`` steps, the rate grows from 1 / ``warmup`` of the learning rate to all of it. It
    then falls to ``end`` times the learning rate at step ``steps``, and stays there.
    """

    warmup: int
    steps: int
    end: float = 0.0


class Polynomial(_Counted, tag="polynomial", kw_only=True, frozen=True):
    """Linear warm-up, then what is left of the steps to a power (torch's PolynomialLR; Chen et al.,
    arXiv:1606.00915, section 4.1.1, the "poly" policy with ``power`` 0.9).

    Over ``warmup`` steps, the rate grows from 1 / ``warmup`` of the learning rate to all of it. It then is
    ``end + (1 - end) * (1 - progress) ** power`` times it, where ``progress`` goes from 0 to 1 at step
    ``steps``, and stays there.
    """

    steps: int
    power: float = 1.0
    warmup: int = 0
    end: float = 0.0


class CosineRestarts(_Counted, tag="cosine_restarts", kw_only=True, frozen=True):
    """Half a cosine again and again (Loshchilov and Hutter, arXiv:1608.03983, equation 5).

    The first half cosine takes ``period`` steps, each further one ``growth`` times as many. In step i of n, the
    rate is ``end`` plus ``1 - end`` times (1 + cos(pi * i / n)) / 2, so that each begins at the whole learning
    rate (torch's CosineAnnealingWarmRestarts, Keras's CosineDecayRestarts without ``m_mul``).
    """

    period: int
    growth: int = 1
    end: float = 0.0


Schedule = Union[
    Constant, Step, Decay, Inverse, WarmupCosine, WarmupLinear, Polynomial, CosineRestarts
]
#: Schedules of a warm-up and a course down, until a last step.
_DOWN = (WarmupCosine, WarmupLinear, Polynomial)
#: Fields that count what a schedule's unit says.
_COUNTS = ("milestones", "start", "every", "warmup", "steps", "period")


def schedule_fault(schedule: Schedule) -> str:
    """What is wrong with a schedule's numbers; "" if nothing is."""
    numbers = {name: getattr(schedule, name) for name in schedule.__struct_fields__}
    if numbers.get("epoch_steps"):
        return "schedule.epoch_steps is what dlb fills in; leave it out"
    period = 1 if numbers.get("unit") == "epoch" else 2
    leasts = {
        "start": 0,
        "every": 1,
        "warmup": 0,
        "gamma": 0,
        "period": period,
        "growth": 1,
        "end": 0,
    }
    for name, least in leasts.items():
        if name in numbers and not least <= numbers[name] < math.inf:
            return f"schedule.{name} = {numbers[name]} must be at least {least} and finite"
    if isinstance(schedule, Inverse) and not math.isfinite(schedule.power):
        return f"schedule.power = {schedule.power} must be finite"
    if isinstance(schedule, Polynomial) and not 0 < schedule.power < math.inf:
        return f"schedule.power = {schedule.power} must be above 0 and finite"
    if isinstance(schedule, _DOWN) and schedule.steps <= schedule.warmup:
        return (
            f"schedule.steps = {schedule.steps} must be above schedule.warmup = {schedule.warmup}"
        )
    return ""


def learning_rate(optimizer: Optimizer, schedule: Schedule, step: int) -> float:
    """The learning rate of one step, counted from 0; a schedule by epochs is one :func:`with_epoch`."""
    return optimizer.learning_rate * _factor(in_steps(schedule), step)


def with_epoch(schedule: Schedule, steps: int) -> Schedule:
    """The schedule, for epochs of so many steps; 0 for those of no request."""
    if isinstance(schedule, _Counted) and schedule.unit == "epoch":
        return msgspec.structs.replace(schedule, epoch_steps=steps)
    return schedule


def in_steps(schedule: Schedule) -> Schedule:
    """The schedule with its counts in steps.

    Raises:
        ValueError: it counts epochs, and how many steps one has is not known.
    """
    if not isinstance(schedule, _Counted) or schedule.unit == "step":
        return schedule
    if not schedule.epoch_steps:
        raise ValueError("a schedule by epochs needs the steps of an epoch")
    counts = {
        name: _times(getattr(schedule, name), schedule.epoch_steps)
        for name in _COUNTS
        if hasattr(schedule, name)
    }
    return msgspec.structs.replace(schedule, unit="step", **counts)


def _times(counts: int | tuple[int, ...], steps: int) -> int | tuple[int, ...]:
    return tuple(c * steps for c in counts) if isinstance(counts, tuple) else counts * steps


def _factor(schedule: Schedule, step: int) -> float:
    if isinstance(schedule, Step):
        return schedule.gamma ** sum(step >= milestone for milestone in schedule.milestones)
    if isinstance(schedule, Decay):
        decays = 0 if step < schedule.start else 1 + (step - schedule.start) // schedule.every
        return schedule.gamma**decays
    if isinstance(schedule, Inverse):
        return float((1.0 + schedule.gamma * step) ** -schedule.power)
    if isinstance(schedule, _DOWN):
        if step < schedule.warmup:
            return (step + 1) / schedule.warmup
        progress = min(1.0, (step - schedule.warmup) / max(1, schedule.steps - schedule.warmup))
        if isinstance(schedule, WarmupLinear):
            return schedule.end + (1.0 - schedule.end) * (1.0 - progress)
        if isinstance(schedule, Polynomial):
            return schedule.end + (1.0 - schedule.end) * float((1.0 - progress) ** schedule.power)
        return _cosine(progress, schedule.end)
    if isinstance(schedule, CosineRestarts):
        begun, length = 0, schedule.period
        if schedule.growth == 1:
            begun = step - step % length
        while step >= begun + length:
            begun, length = begun + length, length * schedule.growth
        return _cosine((step - begun) / length, schedule.end)
    return 1.0


def _cosine(progress: float, end: float) -> float:
    """From 1 to ``end``, by half a cosine, as ``progress`` goes from 0 to 1."""
    return end + (1.0 - end) * (1.0 + math.cos(math.pi * progress)) / 2.0
