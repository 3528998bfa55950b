"""A linear layer with a low-rank addition, of linear layers and of parameters of one's own."""

import torch
from torch import nn


class Layers(nn.Module):
    def __init__(self, n, m, rank, alpha):
        super().__init__()
        self.base = nn.Linear(n, m)
        self.base.weight.requires_grad_(False)
        self.lora_a, self.lora_b = nn.Linear(n, rank, bias=False), nn.Linear(rank, m, bias=False)
        nn.init.zeros_(self.lora_b.weight)
        self.scale = alpha / rank

    def forward(self, x):
        return self.base(x) + self.scale * self.lora_b(self.lora_a(x))


class Derived(nn.Linear):
    def __init__(self, n, m, rank, alpha):
        super().__init__(n, m)
        self.weight.requires_grad_(False)
        self.lora_A = nn.Parameter(torch.randn(rank, n) / 4)
        self.lora_B = nn.Parameter(torch.zeros(m, rank))
        self.scale = alpha / rank

    def forward(self, x):
        return super().forward(x) + self.scale * x @ self.lora_A.T @ self.lora_B.T


def net(kind=Layers, alpha=8, trained=False):
    made = nn.Sequential(
        kind(8, 8, 2, alpha), nn.ReLU(), kind(8, 8, 2, alpha), nn.ReLU(), nn.Linear(8, 3)
    )
    for part in (made[0], made[2]):
        getattr(part, "base", part).weight.requires_grad_(trained)
    return made


def make():
    return net()


def derived():
    return net(Derived)


def alpha_only():
    """The addition is not divided by its rank."""
    return net(alpha=16)


def trained():
    return net(trained=True)
