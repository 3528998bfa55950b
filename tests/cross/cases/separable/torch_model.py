"""A separable convolution as two layers; ``between`` has a ReLU between them."""

import torch.nn.functional as F
from torch import nn


class Net(nn.Module):
    def __init__(self, between=False):
        super().__init__()
        self.between = between
        self.stem = nn.Conv2d(3, 4, 3, padding=1)
        self.depth = nn.Conv2d(4, 8, 3, padding=1, groups=4, bias=False)
        self.point = nn.Conv2d(8, 6, 1)
        self.fc = nn.Linear(6, 3)

    def forward(self, x):
        x = F.relu(self.stem(x))
        x = self.depth(x)
        if self.between:
            x = F.relu(x)
        x = F.relu(self.point(x))
        return self.fc(x.mean((2, 3)))


def make():
    return Net()


def between():
    return Net(True)
