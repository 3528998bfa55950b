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


def by_the_definition(optimizer, weight, gradients):
    """docs/reference/workloads.md, Optimizers, element by element in Python's own numbers."""
    o, v, m, s = optimizer, 0.0, 0.0, 0.0
    for t, (g, lr) in enumerate(zip(gradients, RATES), 1):
        g = g + o.weight_decay * weight
        if o.kind == "adam":
            m = o.beta1 * m + (1 - o.beta1) * g
            s = o.beta2 * s + (1 - o.beta2) * g * g
            over = (s / (1 - o.beta2**t)) ** 0.5 + o.epsilon
            weight = weight - lr * (m / (1 - o.beta1**t)) / over
        else:
            v = o.momentum * v + g
            weight = weight - lr * (g + o.momentum * v if o.nesterov else v)
    return weight, {"m": m, "v": s} if o.kind == "adam" else {"velocity": v}


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
    ],
)
def test_three_steps(optimizer):
    random = np.random.RandomState(0)
    start, gradients = random.standard_normal(5), random.standard_normal((3, 5))
    weight, state = start, {slot: np.zeros(5) for slot in slots(optimizer)}
    for step, rate in enumerate(RATES, 1):
        kept = {slot: array.copy() for slot, array in state.items()}
        before = state
        weight, state = updated(optimizer, weight, gradients[step - 1], state, rate, step, np.sqrt)
        assert all(np.array_equal(before[slot], kept[slot]) for slot in kept), "nothing is altered"
    for place in range(5):
        truth, slots_truth = by_the_definition(optimizer, start[place], gradients[:, place])
        assert abs(weight[place] - truth) < 1e-15
        assert all(abs(state[slot][place] - slots_truth[slot]) < 1e-15 for slot in state)


def test_the_state_that_each_optimizer_keeps():
    assert slots(sgd()) == () and slots(sgd(0.9)) == ("velocity",) and slots(adam()) == ("m", "v")
