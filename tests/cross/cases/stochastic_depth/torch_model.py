"""Stochastic depth: some samples skip a block in training mode."""

import torch
from torch import nn


class DropPath(nn.Module):
    def __init__(self, drop_prob):
        super().__init__()
        self.drop_prob = drop_prob

    def forward(self, x):
        if not self.training:
            return x
        kept = torch.rand(len(x), *[1] * (x.ndim - 1)) >= self.drop_prob
        return x * kept / (1 - self.drop_prob)


class Net(nn.Module):
    def __init__(self, rate):
        super().__init__()
        self.block = nn.Sequential(nn.Linear(6, 6), nn.ReLU())
        self.drop_path = DropPath(rate)
        self.out = nn.Linear(6, 3)

    def forward(self, x):
        return self.out(x + self.drop_path(self.block(x)))


def make():
    return Net(0.25)


class Batch(DropPath):
    """All samples of a batch share their fate."""

    def forward(self, x):
        if not self.training:
            return x
        kept = torch.rand(1) >= self.drop_prob
        return x * kept / (1 - self.drop_prob)


class Swapped(DropPath):
    """Keeps as many as it should drop."""

    def forward(self, x):
        if not self.training:
            return x
        kept = torch.rand(len(x), *[1] * (x.ndim - 1)) < self.drop_prob
        return x * kept / (1 - self.drop_prob)


def batch():
    net = Net(0.25)
    net.drop_path = Batch(0.25)
    return net


def swapped():
    net = Net(0.25)
    net.drop_path = Swapped(0.25)
    return net


class Deep(nn.Module):
    def __init__(self, rates):
        super().__init__()
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.Linear(6, 6), nn.ReLU(), nn.Dropout(0.1)) for _ in rates
        )
        self.paths = nn.ModuleList(DropPath(r) for r in rates)
        self.out = nn.Linear(6, 3)

    def forward(self, x):
        for block, path in zip(self.blocks, self.paths):
            x = x + path(block(x))
        return self.out(x)


def deep():
    return Deep([0.0, 0.03, 0.06])
