"""Keras's optimizers, changed to do what :mod:`dlb_graph.optimizers` defines."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras import ops

from dlb_tf.framework import default_dtype
from dlb_worker import updates
from dlb_worker.model import Optimizer


class Dense:
    """Sums the slices of an embedding's gradient first.

    Keras squares each slice by itself, also where several fall on one row.
    """

    def update_step(self, gradient: Any, variable: Any, learning_rate: Any) -> None:
        dense = tf.convert_to_tensor(gradient)
        super().update_step(dense, variable, learning_rate)  # type: ignore[misc]


class LateEpsilon(Dense):
    """Keras's Adam adds epsilon before the bias correction of ``v``.

    Multiplied by that correction's square root, it is as if added after.
    """

    learning_rate: Any
    iterations: Any
    beta_2: Any

    @property
    def epsilon(self) -> Any:
        rate_type = self.learning_rate.dtype
        step = ops.cast(self.iterations + 1, rate_type)
        beta = ops.convert_to_tensor(self.beta_2, rate_type)
        return self._epsilon * ops.sqrt(1 - ops.power(beta, step))

    @epsilon.setter
    def epsilon(self, value: float) -> None:
        self._epsilon = value


class Adam(LateEpsilon, keras.optimizers.Adam):
    pass


class AdamW(LateEpsilon, keras.optimizers.AdamW):
    pass


class RMSprop(Dense, keras.optimizers.RMSprop):
    pass


class Adagrad(Dense, keras.optimizers.Adagrad):
    pass


class Adadelta(Dense, keras.optimizers.Adadelta):
    pass


class Adamax(Dense, keras.optimizers.Adamax):
    pass


class Composed(keras.optimizers.Optimizer):
    """The workload's formulas, of TensorFlow's operations, where Keras adds epsilon elsewhere.

    Decay is added to the gradients by the model, as for Keras's own optimizers.
    """

    def __init__(self, optimizer: Optimizer, number: Callable[[float], Any]) -> None:
        super().__init__(optimizer.learning_rate)
        numbers = {
            name: number(value) if isinstance(value, float) else value
            for name, value in optimizer.attributes.items()
        }
        self.described = updates.with_decay(Optimizer(optimizer.kind, numbers), 0.0)
        self.start = number(updates.initial_slot(optimizer))
        self.kept: dict[str, list[keras.Variable]] = {}

    def build(self, variables: list[keras.Variable]) -> None:
        if self.built:
            return
        super().build(variables)
        start = keras.initializers.Constant(self.start)
        for slot in updates.slots(self.described):
            self.kept[slot] = self.add_optimizer_variables(variables, slot, initializer=start)

    def update_step(self, gradient: Any, variable: Any, learning_rate: Any) -> None:
        index = self._get_variable_index(variable)
        state = {slot: variables[index] for slot, variables in self.kept.items()}
        weight, moved = updates.updated(
            self.described,
            tf.convert_to_tensor(variable),
            tf.convert_to_tensor(gradient),
            {slot: tf.convert_to_tensor(kept.value) for slot, kept in state.items()},
            tf.cast(learning_rate, variable.dtype),
            tf.cast(self.iterations + 1, variable.dtype),
            tf.sqrt,
            tf.maximum,
        )
        for slot, kept in state.items():
            self.assign(kept, moved[slot])
        self.assign(variable, weight)


def make_optimizer(
    optimizer: Optimizer, dtype: str, undecayed: Sequence[keras.Variable] = ()
) -> keras.optimizers.Optimizer:
    """The workload's optimizer, whose every number is of the model's type.

    Args:
        undecayed: variables that its own decay, which AdamW alone has, leaves out.
    """
    # Keras casts a Python float through float32, and a NumPy one not.
    number = np.float64 if dtype == "float64" else float
    with default_dtype(dtype):
        rate, epsilon = optimizer.learning_rate, optimizer.attributes.get("epsilon", 0.0)
        if optimizer.kind == "sgd":
            return keras.optimizers.SGD(rate, number(optimizer.momentum), optimizer.nesterov)
        if is_composed(optimizer):
            return Composed(optimizer, number)
        if optimizer.kind == "rmsprop":
            return RMSprop(rate, number(optimizer.rho), number(optimizer.momentum), number(epsilon))
        if optimizer.kind == "adagrad":
            return Adagrad(rate, number(optimizer.initial_accumulator), number(epsilon))
        if optimizer.kind == "adadelta":
            # NumPy would multiply a Keras variable itself, which fails in a graph.
            return Adadelta(rate, tf.constant(optimizer.rho, dtype), number(epsilon))
        betas = {"beta_1": number(optimizer.beta1), "beta_2": number(optimizer.beta2)}
        if optimizer.kind == "adamax":
            return Adamax(rate, epsilon=number(epsilon), **betas)
        if optimizer.kind == "adamw":
            decay = number(optimizer.weight_decay)
            adamw = AdamW(
                rate, weight_decay=decay, epsilon=epsilon, amsgrad=optimizer.amsgrad, **betas
            )
            adamw.exclude_from_weight_decay(var_list=undecayed)
            return adamw
        return Adam(rate, epsilon=epsilon, amsgrad=optimizer.amsgrad, **betas)


def is_composed(optimizer: Optimizer) -> bool:
    """Whether Keras's own optimizer adds epsilon in another place."""
    own = {"rmsprop": "inside", "adagrad": "inside", "adamax": "outside"}
    kind = optimizer.kind
    return kind in own and bool(optimizer.epsilon) and optimizer.epsilon_place != own[kind]


def scaled_velocities(
    optimizer: keras.optimizers.Optimizer, described: Optimizer
) -> tuple[list[keras.Variable], int]:
    """The velocities that Keras keeps times the learning rate, and their sign."""
    if described.kind == "sgd":
        return optimizer.momentums, -1
    if isinstance(optimizer, RMSprop):
        return optimizer._momentums, 1
    return [], 1


def state_of(
    optimizer: keras.optimizers.Optimizer,
    described: Optimizer,
    index: int,
    rate: float,
    read: Callable[[keras.Variable], np.ndarray],
) -> dict[str, np.ndarray]:
    """What the optimizer keeps for a variable, by slot, less the learning rate in it."""
    kept: dict[str, list[keras.Variable]] = {}
    if isinstance(optimizer, Composed):
        kept = optimizer.kept
    elif described.kind in ("adam", "adamw"):
        kept = {"m": optimizer._momentums, "v": optimizer._velocities}
        if described.amsgrad:
            kept["v_max"] = optimizer._velocity_hats
    elif described.kind == "rmsprop":
        kept = {"v": optimizer._velocities}
    elif described.kind == "adagrad":
        kept = {"sum": optimizer._accumulators}
    elif described.kind == "adadelta":
        kept = {"v": optimizer._accumulated_grads, "u": optimizer._accumulated_delta_vars}
    elif described.kind == "adamax":
        kept = {"m": optimizer._m, "u": optimizer._u}
    state = {slot: read(variables[index]) for slot, variables in kept.items()}
    velocities, sign = scaled_velocities(optimizer, described)
    if velocities:
        state["velocity"] = read(velocities[index]) / (sign * rate)
    return state
