"""PReLUs: a slope for each channel, and one for all."""

from __future__ import annotations

from dlb_graph import workload as W

from .models import CLASSES, chain, classifier
from .window_cases import FILM, IMAGE

__all__ = ["PRELU"]

PRELU = {
    "prelu": classifier(IMAGE, W.PReLU()),
    "prelu-of-films": classifier(FILM, W.PReLU()),
    "prelu-of-features": chain((9,), W.PReLU(), W.Linear(out_features=CLASSES)),
    "prelu-of-one-slope": classifier(IMAGE, W.PReLU(shared=True)),
    "prelu-of-one-slope-of-features": chain(
        (9,), W.PReLU(shared=True), W.Linear(out_features=CLASSES)
    ),
    "prelu-of-a-sequence": chain((4, 6), W.PReLU(shared=True), W.Linear(out_features=CLASSES)),
    # Eight channels and more a library may keep in a layout of its own.
    "prelu-between-convolutions": classifier(
        (3, 6, 5),
        W.Conv(out_channels=16, kernel=(3, 3)),
        W.PReLU(),
        W.Conv(out_channels=8, kernel=(2, 2)),
        W.BatchNorm(),
        W.PReLU(shared=True),
    ),
}
