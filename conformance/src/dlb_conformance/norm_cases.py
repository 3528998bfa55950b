"""Normalisations of groups of channels, and of rows by their root mean square."""

from __future__ import annotations

from dlb_graph import workload as W

from .models import CLASSES, chain, classifier, graph
from .window_cases import FILM, IMAGE

__all__ = ["GROUP_NORM", "RMS_NORM"]

GROUP_NORM = {
    "group_norm": classifier((6, 5, 4), W.GroupNorm(groups=3)),
    "group_norm-odd-numbers": classifier((6, 5, 4), W.GroupNorm(groups=2, epsilon=0.03)),
    "group_norm-of-one-group": classifier(IMAGE, W.GroupNorm(groups=1)),
    "group_norm-of-each-channel": classifier(IMAGE, W.GroupNorm(groups=3, epsilon=0.01)),
    "group_norm-of-single-places": classifier((8, 1, 1), W.GroupNorm(groups=2)),
    "group_norm-of-films": classifier(FILM, W.GroupNorm(groups=1, epsilon=0.01)),
    "group_norm-of-each-channel-of-films": classifier(FILM, W.GroupNorm(groups=3)),
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

RMS_NORM = {
    "rms_norm-of-features": chain((6,), W.RMSNorm(), W.Linear(out_features=CLASSES)),
    "rms_norm-of-features-odd-numbers": chain(
        (6,), W.RMSNorm(epsilon=0.2), W.Linear(out_features=CLASSES)
    ),
    "rms_norm-of-a-sequence": chain(
        (4, 6), W.RMSNorm(epsilon=1e-6), W.Linear(out_features=CLASSES)
    ),
    "rms_norm-as-logits": chain((4, CLASSES), W.RMSNorm(epsilon=0.03)),
    "rms_norm-after-flatten": classifier(
        IMAGE, W.Conv(out_channels=4, kernel=(3, 3)), W.Flatten(), W.RMSNorm()
    ),
    "rms_norm-in-a-residual": graph(
        (4, 6),
        ("norm", W.RMSNorm(), ("input",)),
        ("hidden", W.Linear(out_features=6), ("norm",)),
        ("sum", W.Add(), ("hidden", "input")),
        ("last_norm", W.RMSNorm(epsilon=1e-3), ("sum",)),
        ("logits", W.Linear(out_features=CLASSES), ("last_norm",)),
    ),
}
