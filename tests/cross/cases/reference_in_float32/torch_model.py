"""A model that is right in float64 alone."""

import torch
from torch import nn


class Middle(nn.Module):
    def __init__(self, narrow):
        super().__init__()
        self.narrow = narrow

    def forward(self, x):
        return self.narrow(x) if x.dtype == torch.float32 else x


def net(*middle):
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), *middle, nn.Linear(8, 3))


def refuse(x):
    raise RuntimeError("this kernel has no float32")


def make():
    return net()


def coarse():
    return net(Middle(lambda x: x.half().float()))


def failing():
    return net(Middle(refuse))
