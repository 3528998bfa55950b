"""CNTK's learners, as dlb defines the optimizers."""

import abc
from typing import Any, List, Mapping, Sequence

import cntk as C
import numpy as np

from dlb_worker.model import Optimizer
from dlb_worker.updates import slots, updated

__all__ = ["Learner", "NativeLearner", "UniversalLearner", "make_learner"]

Array = np.ndarray


class Learner(abc.ABC):
    """What a trainer steps with.

    Attributes:
        native: CNTK's learner.
    """

    native: Any

    @abc.abstractmethod
    def set_rate(self, rate: float) -> None:
        """The learning rate from here on."""

    @abc.abstractmethod
    def set_samples(self, samples: int) -> None:
        """How many samples the next step has."""

    @abc.abstractmethod
    def slots(self, parameter: Any) -> Mapping[str, Array]:
        """The state of one parameter, as the workload defines it."""


def make_learner(optimizer: Optimizer, parameters: Sequence[Any], dtype: Any) -> Learner:
    """The learner that computes as the optimizer is defined: CNTK's own, where it does."""
    if optimizer.kind == "sgd" and not optimizer.clip_norm:
        return NativeLearner(optimizer, parameters)
    return UniversalLearner(optimizer, parameters, dtype)


class NativeLearner(Learner):
    """``sgd``, ``momentum_sgd`` and ``nesterov``.

    Without ``unit_gain`` and with rates for a whole batch they are dlb's SGD, but for the velocity,
    which CNTK keeps multiplied by the rate: it is scaled when the rate changes. A rate of 0, which
    would lose it, is one of 1e-20.
    """

    def __init__(self, optimizer: Optimizer, parameters: Sequence[Any]) -> None:
        self.rate = optimizer.learning_rate
        self.momentum = optimizer.momentum
        self.parameters = list(parameters)
        schedule = C.learning_parameter_schedule(self.rate)
        decay = optimizer.weight_decay
        if not self.momentum:
            self.native = C.sgd(self.parameters, schedule, l2_regularization_weight=decay)
            return
        kind = C.nesterov if optimizer.nesterov else C.momentum_sgd
        self.native = kind(
            self.parameters,
            schedule,
            C.momentum_schedule(self.momentum),
            unit_gain=False,
            l2_regularization_weight=decay,
        )

    def set_rate(self, rate: float) -> None:
        rate = rate or 1e-20
        if rate == self.rate:
            return
        if self.momentum and self.native.total_number_of_samples_seen():
            checkpoint = self.native.create_checkpoint()
            scale = rate / self.rate
            checkpoint["smoothed_gradients"] = [
                scale * array for array in checkpoint["smoothed_gradients"]
            ]
            self.native.restore_from_checkpoint(checkpoint)
        self.native.reset_learning_rate(C.learning_parameter_schedule(rate))
        self.rate = rate

    def set_samples(self, samples: int) -> None:
        """CNTK divides by it itself."""

    def slots(self, parameter: Any) -> Mapping[str, Array]:
        if not self.momentum or not self.native.total_number_of_samples_seen():
            return {}
        # A copy of all of it: CNTK gives no other access.
        velocities = self.native.create_checkpoint()["smoothed_gradients"]
        place = [each.uid for each in self.parameters].index(parameter.uid)
        return {"velocity": velocities[place] / self.rate}


class UniversalLearner(Learner):
    """The optimizer's formulas as a CNTK function that assigns to the parameters.

    CNTK's Adam adds epsilon to another term, and its clipping looks at each parameter alone. The
    gradients that such a function is given are sums over the batch.
    """

    def __init__(self, optimizer: Optimizer, parameters: Sequence[Any], dtype: Any) -> None:
        self.optimizer, self.dtype = optimizer, dtype
        self.state = {}  # type: Dict[str, Dict[str, Any]]
        self.rate = self._number(optimizer.learning_rate)
        self.share = self._number(1.0)
        self.step = self._number(0.0)
        self.samples = 1
        self.native = C.universal(lambda own, sums: self._update(own, sums), list(parameters))

    def _number(self, value: float) -> Any:
        return C.constant(np.asarray(value, self.dtype), dtype=self.dtype)

    def _update(self, parameters: Sequence[Any], gradients: Sequence[Any]) -> Any:
        """The function that CNTK runs after each backward pass."""
        optimizer = self.optimizer
        step = C.assign(self.step, self.step + 1)
        means = [gradient * self.share for gradient in gradients]
        if optimizer.clip_norm:
            means = _clipped(means, self._number(optimizer.clip_norm))
        assignments = []  # type: List[Any]
        for parameter, gradient in zip(parameters, means):
            state = {
                slot: C.constant(0, shape=parameter.shape, dtype=self.dtype)
                for slot in slots(optimizer)
            }
            self.state[parameter.uid] = state
            weight, moved = updated(
                optimizer, parameter, gradient, state, self.rate, _Exponent(step), C.sqrt
            )
            assignments += [C.assign(state[slot], moved[slot]) for slot in state]
            assignments.append(C.assign(parameter, weight))
        return C.combine(assignments + [step])

    def set_rate(self, rate: float) -> None:
        self.rate.value = np.asarray(rate, self.dtype)

    def set_samples(self, samples: int) -> None:
        if samples != self.samples:
            self.share.value = np.asarray(1.0 / samples, self.dtype)
            self.samples = samples

    def slots(self, parameter: Any) -> Mapping[str, Array]:
        if not self.step.value:
            return {}
        return {slot: held.value.copy() for slot, held in self.state[parameter.uid].items()}


class _Exponent:
    """The number of the step, as ``beta ** step`` reads it: CNTK's functions have no such operator."""

    def __init__(self, step: Any) -> None:
        self.step = step

    def __rpow__(self, base: float) -> Any:
        return C.pow(base, self.step)


def _clipped(gradients: Sequence[Any], limit: Any) -> List[Any]:
    """Gradients brought down to a norm of all of them together."""
    squares = [C.reduce_sum(C.square(gradient)) for gradient in gradients]
    norm = C.sqrt(sum(squares[1:], squares[0]))
    scale = limit / C.element_max(norm, limit)
    return [gradient * scale for gradient in gradients]
