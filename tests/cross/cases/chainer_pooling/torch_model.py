"""A pooling in ceil mode, or not."""

import torch.nn.functional as F
from torch import nn


class Net(nn.Module):
    def __init__(self, ceil=True):
        super().__init__()
        self.ceil = ceil
        self.conv1 = nn.Conv2d(3, 6, 3, padding=1)
        self.bn = nn.BatchNorm2d(6, eps=2e-5)
        self.conv2 = nn.Conv2d(6, 4, 1)
        n = 5 if ceil else 4
        self.fc = nn.Linear(4 * n * n, 3)

    def forward(self, x):
        h = F.relu(self.bn(self.conv1(x)))
        h = F.max_pool2d(h, 2, ceil_mode=self.ceil)
        return self.fc(self.conv2(h).flatten(1))


def make():
    return Net()


def floor_mode():
    return Net(False)
