"""Convolutions with an addition of low rank: of layers, of parameters of one's own, and of a series."""

import torch
from torch import nn


class Layers(nn.Module):
    """A convolution, and one to few channels with one of a pixel after it."""

    def __init__(self, n, m, rank, scale, **window):
        super().__init__()
        self.base = nn.Conv2d(n, m, 3, **window)
        self.base.weight.requires_grad_(False)
        self.lora_a = nn.Conv2d(n, rank, 3, bias=False, **window)
        self.lora_b = nn.Conv2d(rank, m, 1, bias=False)
        nn.init.zeros_(self.lora_b.weight)
        self.scale = scale

    def forward(self, x):
        return self.base(x) + self.scale * self.lora_b(self.lora_a(x))


class Derived(nn.Conv2d):
    """The product of both is added to the weight."""

    def __init__(self, n, m, rank, scale, **window):
        super().__init__(n, m, 3, **window)
        self.weight.requires_grad_(False)
        self.lora_A = nn.Parameter(torch.randn(rank, n, 3, 3) / 4)
        self.lora_B = nn.Parameter(torch.zeros(m, rank))
        self.scale = scale

    def forward(self, x):
        weight = self.weight + self.scale * torch.einsum("mr,rnij->mnij", self.lora_B, self.lora_A)
        return self._conv_forward(x, weight, self.bias)


def net(kind=Layers, scale=4.0):
    return nn.Sequential(
        kind(3, 8, 2, scale, padding=1),
        nn.ReLU(),
        kind(8, 8, 2, scale, stride=2),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(72, 3),
    )


def make():
    return net()


def derived():
    return net(Derived)


def alpha_only():
    return net(scale=8.0)


class OfSeries(nn.Module):
    def __init__(self, n, m, rank, scale, **window):
        super().__init__()
        self.base = nn.Conv1d(n, m, 5, **window)
        self.base.weight.requires_grad_(False)
        self.lora_down, self.lora_up = (
            nn.Conv1d(n, rank, 5, bias=False, **window),
            nn.Conv1d(rank, m, 1, bias=False),
        )
        self.scale = scale

    def forward(self, x):
        return self.base(x) + self.scale * self.lora_up(self.lora_down(x))


def series(scale=4.0, rank=3):
    return nn.Sequential(
        OfSeries(6, 10, rank, scale),
        nn.Tanh(),
        OfSeries(10, 7, rank, scale, dilation=2),
        nn.Tanh(),
        nn.AdaptiveAvgPool1d(1),
        nn.Flatten(),
        nn.Linear(7, 3),
    )


def of_rank_one():
    return series(8.0, 1)
