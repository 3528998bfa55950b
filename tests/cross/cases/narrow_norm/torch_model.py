"""A normalisation by the root of the mean square that computes in float32, as many language models have it."""

import torch
from torch import nn


class Norm(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(size))

    def forward(self, x):
        narrow = x.float()
        narrow = narrow * torch.rsqrt(narrow.pow(2).mean(-1, keepdim=True) + 1e-6)
        return (narrow * (1.0 + self.weight.float())).type_as(x)


def make():
    return nn.Sequential(nn.Linear(10, 16), Norm(16), nn.Tanh(), nn.Linear(16, 4))
