"""Dropout of whole channels."""

from torch import nn


def build(drop):
    return nn.Sequential(
        nn.Conv2d(1, 6, 3), nn.ReLU(), drop, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(6, 3)
    )


def make():
    return build(nn.Dropout2d(0.2))
