"""CNTK's learners, as dlb defines the optimizers. Each has ``native``, CNTK's own object."""

from typing import Any, Dict, List, Mapping, Sequence, Union

import cntk as C
import numpy as np

from dlb_worker.model import Optimizer
from dlb_worker.updates import slots, updated, with_decay

Array = np.ndarray


class NativeLearner:
    """``sgd``, ``momentum_sgd`` and ``nesterov``.

    Without ``unit_gain`` and with rates for a whole batch they are dlb's SGD, but for the velocity,
    which CNTK keeps multiplied by the rate: it is scaled when the rate changes. A rate of 0, which
    would lose it, is one of 1e-20.
    """

    def __init__(self, optimizer: Optimizer, parameters: Sequence[Any]) -> None:
        self.rate, self.momentum = optimizer.learning_rate, optimizer.momentum
        self.places = {each.uid: place for place, each in enumerate(parameters)}
        arguments = [list(parameters), C.learning_parameter_schedule(self.rate)]
        options = {"l2_regularization_weight": optimizer.weight_decay}
        kind = C.sgd
        if self.momentum:
            kind = C.nesterov if optimizer.nesterov else C.momentum_sgd
            arguments.append(C.momentum_schedule(self.momentum))
            options["unit_gain"] = False
        self.native = kind(*arguments, **options)

    def set_rate(self, rate: float) -> None:
        rate = rate or 1e-20
        if rate == self.rate:
            return
        if self._has_velocity():
            kept = self.native.create_checkpoint()
            scaled = [rate / self.rate * array for array in kept["smoothed_gradients"]]
            kept["smoothed_gradients"] = scaled
            self.native.restore_from_checkpoint(kept)
        self.native.reset_learning_rate(C.learning_parameter_schedule(rate))
        self.rate = rate

    def set_samples(self, samples: int) -> None:
        """CNTK divides by it itself."""

    def slots(self, parameter: Any) -> Mapping[str, Array]:
        if not self._has_velocity():
            return {}
        # A copy of every parameter's: CNTK gives no other access.
        velocities = self.native.create_checkpoint()["smoothed_gradients"]
        return {"velocity": velocities[self.places[parameter.uid]] / self.rate}

    def _has_velocity(self) -> bool:
        return bool(self.momentum and self.native.total_number_of_samples_seen())


class UniversalLearner:
    """The optimizer's formulas as a CNTK function that assigns to the parameters.

    CNTK's Adam adds epsilon to another term, its clipping looks at each parameter alone, and its
    weight decay at all. The gradients that such a function receives are sums over the batch.
    """

    def __init__(
        self, optimizer: Optimizer, parameters: Sequence[Any], undecayed: Sequence[Any], dtype: Any
    ) -> None:
        self.optimizer, self.dtype = optimizer, dtype
        self.undecayed = {each.uid for each in undecayed}
        self.state: Dict[str, Dict[str, Any]] = {}
        self.rate = self._constant(optimizer.learning_rate)
        self.samples, self.share, self.step = 1, self._constant(1.0), self._constant(0.0)
        self.native = C.universal(lambda own, sums: self._update(own, sums), list(parameters))

    def _constant(self, value: float, *shape: int) -> Any:
        return C.constant(np.full(shape, value, self.dtype), dtype=self.dtype)

    def _update(self, parameters: Sequence[Any], sums: Sequence[Any]) -> Any:
        """The function that CNTK runs after each backward pass."""
        optimizer = self.optimizer
        step = C.assign(self.step, self.step + 1)
        gradients = [each * self.share for each in sums]
        if optimizer.clip_norm:
            limit = self._constant(optimizer.clip_norm)
            norm = C.sqrt(sum(C.reduce_sum(C.square(each)) for each in gradients))
            gradients = [each * (limit / C.element_max(norm, limit)) for each in gradients]
        assignments: List[Any] = [step]
        for parameter, gradient in zip(parameters, gradients):
            state = {slot: self._constant(0.0, *parameter.shape) for slot in slots(optimizer)}
            self.state[parameter.uid] = state
            own = with_decay(optimizer, 0.0) if parameter.uid in self.undecayed else optimizer
            weight, moved = updated(
                own, parameter, gradient, state, self.rate, _Exponent(step), C.sqrt
            )
            assignments += [C.assign(state[slot], moved[slot]) for slot in state]
            assignments.append(C.assign(parameter, weight))
        return C.combine(assignments)

    def set_rate(self, rate: float) -> None:
        self.rate.value = np.asarray(rate, self.dtype)

    def set_samples(self, samples: int) -> None:
        if samples != self.samples:
            self.samples, self.share.value = samples, np.asarray(1.0 / samples, self.dtype)

    def slots(self, parameter: Any) -> Mapping[str, Array]:
        state = self.state[parameter.uid] if self.step.value else {}
        return {slot: np.array(held.value) for slot, held in state.items()}


class _Exponent:
    """The number of the step, as ``beta ** step`` reads it: CNTK's functions have no such operator."""

    def __init__(self, step: Any) -> None:
        self.step = step

    def __rpow__(self, base: float) -> Any:
        return C.pow(base, self.step)


def make_learner(
    optimizer: Optimizer, parameters: Sequence[Any], undecayed: Sequence[Any], dtype: Any
) -> Union[NativeLearner, UniversalLearner]:
    """The learner that computes as the optimizer is defined: CNTK's own, where it does."""
    decays_some = optimizer.weight_decay and undecayed
    if optimizer.kind == "sgd" and not optimizer.clip_norm and not decays_some:
        return NativeLearner(optimizer, parameters)
    return UniversalLearner(optimizer, parameters, undecayed, dtype)
