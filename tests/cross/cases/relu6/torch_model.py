"""Two bounded activations after batch normalisations; ``unbounded`` has no bound."""

from torch import nn


def build(act):
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, 2, 1, bias=False),
        nn.BatchNorm2d(8, eps=1e-3, momentum=0.01),
        act(),
        nn.Conv2d(8, 8, 3, 1, 1, groups=8, bias=False),
        nn.BatchNorm2d(8, eps=1e-3, momentum=0.01),
        act(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(8, 5),
    )


def make():
    return build(nn.ReLU6)


def unbounded():
    return build(nn.ReLU)
