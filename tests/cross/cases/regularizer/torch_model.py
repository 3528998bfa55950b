"""Two linear layers."""

from torch import nn


def make():
    return nn.Sequential(nn.Linear(9, 12), nn.ReLU(), nn.Linear(12, 4))
