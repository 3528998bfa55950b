"""The optimizers' formulas against the words of the definition, written out again."""

import numpy as np
import pytest

from dlb_worker.model import Optimizer
from dlb_worker.updates import slots, updated

RATES = (0.1, 0.1, 0.02)


def sgd(momentum=0.0, nesterov=False, weight_decay=0.0):
    attributes = {"momentum": momentum, "nesterov": nesterov, "weight_decay": weight_decay}
    return Optimizer("sgd", attributes)


def adam(beta1=0.9, beta2=0.999, epsilon=1e-8, weight_decay=0.0):
    return Optimizer(
        "adam", {"beta1": beta1, "beta2": beta2, "epsilon": epsilon, "weight_decay": weight_decay}
    )


def adaptive(kind, **attributes):
    shared = {"epsilon": 1e-8, "epsilon_place": "outside", "weight_decay": 0.0}
    return Optimizer(kind, dict(shared, **attributes))


def by_the_definition(optimizer, weight, gradients):
    """docs/reference/workloads.md, Optimizers, element by element in Python's own numbers."""
    o, v, m, s = optimizer, 0.0, 0.0, 0.0
    for t, (g, lr) in enumerate(zip(gradients, RATES), 1):
        g = g if o.kind == "adamw" else g + o.weight_decay * weight
        outside = o.kind == "sgd" or o.attributes.get("epsilon_place", "outside") == "outside"
        if o.kind == "adam":
            m = o.beta1 * m + (1 - o.beta1) * g
            s = o.beta2 * s + (1 - o.beta2) * g * g
            over = (s / (1 - o.beta2**t)) ** 0.5 + o.epsilon
            weight = weight - lr * (m / (1 - o.beta1**t)) / over
        elif o.kind == "adamw":
            m = o.beta1 * m + (1 - o.beta1) * g
            s = o.beta2 * s + (1 - o.beta2) * g * g
            over = (s / (1 - o.beta2**t)) ** 0.5 + o.epsilon
            weight = weight - lr * ((m / (1 - o.beta1**t)) / over + o.weight_decay * weight)
        elif o.kind == "adamax":
            m = o.beta1 * m + (1 - o.beta1) * g
            s = np.maximum(o.beta2 * s, abs(g) + (0 if outside else o.epsilon))
            weight = weight - lr / (1 - o.beta1**t) * m / (s + (o.epsilon if outside else 0))
        elif o.kind == "adadelta":
            s = o.rho * s + (1 - o.rho) * g * g
            change = ((v + o.epsilon) / (s + o.epsilon)) ** 0.5 * g
            v = o.rho * v + (1 - o.rho) * change * change
            weight = weight - lr * change
        elif o.kind in ("rmsprop", "adagrad"):
            s = o.rho * s + (1 - o.rho) * g * g if o.kind == "rmsprop" else s + g * g
            over = s**0.5 + o.epsilon if outside else (s + o.epsilon) ** 0.5
            v = o.attributes.get("momentum", 0.0) * v + g / over
            weight = weight - lr * v
        else:
            v = o.momentum * v + g
            weight = weight - lr * (g + o.momentum * v if o.nesterov else v)
    kept = {
        "adamax": {"m": m, "u": s},
        "rmsprop": {"v": s, "velocity": v},
        "adagrad": {"sum": s},
        "adadelta": {"v": s, "u": v},
        "sgd": {"velocity": v},
    }
    return weight, kept.get(o.kind, {"m": m, "v": s})


@pytest.mark.parametrize(
    "optimizer",
    [
        sgd(),
        sgd(weight_decay=0.1),
        sgd(0.9),
        sgd(0.9, weight_decay=0.1),
        sgd(0.9, nesterov=True),
        sgd(0.5, nesterov=True, weight_decay=0.1),
        sgd(nesterov=True),
        adam(),
        adam(0.5, 0.9, 0.01, 0.1),
        adaptive("adamw", beta1=0.5, beta2=0.9, weight_decay=0.1),
        adaptive("adamax", beta1=0.5, beta2=0.9, epsilon=0.1),
        adaptive("adamax", beta1=0.5, beta2=0.9, epsilon=0.1, epsilon_place="inside"),
        adaptive("rmsprop", rho=0.9, momentum=0.0, epsilon=0.1, weight_decay=0.1),
        adaptive("rmsprop", rho=0.9, momentum=0.9, epsilon=0.1, epsilon_place="inside"),
        adaptive("adagrad", initial_accumulator=0.0, epsilon=0.1),
        adaptive("adagrad", initial_accumulator=0.0, epsilon=0.1, epsilon_place="inside"),
        adaptive("adadelta", rho=0.9, epsilon=0.1),
    ],
)
def test_three_steps(optimizer):
    random = np.random.RandomState(0)
    start, gradients = random.standard_normal(5), random.standard_normal((3, 5))
    weight, state = start, {slot: np.zeros(5) for slot in slots(optimizer)}
    for step, rate in enumerate(RATES, 1):
        kept = {slot: array.copy() for slot, array in state.items()}
        before = state
        weight, state = updated(
            optimizer, weight, gradients[step - 1], state, rate, step, np.sqrt, np.maximum
        )
        assert all(np.array_equal(before[slot], kept[slot]) for slot in kept), "nothing is altered"
    for place in range(5):
        truth, slots_truth = by_the_definition(optimizer, start[place], gradients[:, place])
        assert abs(weight[place] - truth) < 1e-15
        assert all(abs(state[slot][place] - slots_truth[slot]) < 1e-15 for slot in state)


def test_the_state_that_each_optimizer_keeps():
    assert slots(sgd()) == () and slots(sgd(0.9)) == ("velocity",) and slots(adam()) == ("m", "v")
