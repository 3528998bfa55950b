"""Normalisations of groups of channels: of one, of several, of maps and of features."""

from __future__ import annotations

from dlb import workload as W

from .models import CLASSES, chain, classifier
from .window_cases import IMAGE

__all__ = ["GROUP_NORM"]

GROUP_NORM = {
    "group_norm": classifier((6, 5, 4), W.GroupNorm(groups=3)),
    "group_norm-odd-numbers": classifier((6, 5, 4), W.GroupNorm(groups=2, epsilon=0.03)),
    "group_norm-of-one-group": classifier(IMAGE, W.GroupNorm(groups=1)),
    "group_norm-of-each-channel": classifier(IMAGE, W.GroupNorm(groups=3, epsilon=0.01)),
    "group_norm-of-single-places": classifier((6, 1, 1), W.GroupNorm(groups=3)),
    "group_norm-of-features": chain((6,), W.GroupNorm(groups=2), W.Linear(out_features=CLASSES)),
    # Eight channels and more a library may keep in a layout of its own.
    "group_norm-between-convolutions": classifier(
        (3, 6, 5),
        W.Conv(out_channels=16, kernel=(3, 3)),
        W.GroupNorm(groups=4),
        W.ReLU(),
        W.Conv(out_channels=8, kernel=(2, 2)),
        W.GroupNorm(groups=8),
        W.Tanh(),
    ),
}
