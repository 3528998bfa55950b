"""An activation that two branches read."""

import torch
import torch.nn.functional as F
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(5, 6)
        self.b = nn.Linear(12, 4)

    def forward(self, x):
        x = F.leaky_relu(self.a(x), 0.25)
        return self.b(torch.cat([x, F.relu(x)], 1))


def make():
    return Net()
