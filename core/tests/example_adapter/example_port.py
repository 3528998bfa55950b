"""Models as users of the example adapter's framework write them, for the conformance suite's tests of ports."""

import random

from dlb_example.native import Dense, Linear, Mix, Net, ReLU, Tanh


def net():
    return Net(
        (6,),
        first=Dense(6, 5),
        act=Tanh(),
        mix=Mix(5, 4, seed=random.getrandbits(32)),
        out=Linear(4, 3),
    )


def lazy():
    return Net(first=Linear(None, 4), act=ReLU(), out=Dense(4, 3))
