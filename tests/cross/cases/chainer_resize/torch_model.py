"""An image made larger after a pooling in ceil mode."""

import torch.nn.functional as F
from torch import nn


class Net(nn.Module):
    def __init__(self, corners=True, ceil=True):
        super().__init__()
        self.corners, self.ceil = corners, ceil
        self.conv1 = nn.Conv2d(3, 6, 3, padding=1)
        self.bn = nn.BatchNorm2d(6, eps=2e-5)
        self.conv2 = nn.Conv2d(6, 4, 1)

    def forward(self, x):
        h = F.relu(self.bn(self.conv1(x)))
        h = F.max_pool2d(h, 2, ceil_mode=self.ceil)
        h = F.interpolate(h, size=(8, 8), mode="bilinear", align_corners=self.corners)
        return self.conv2(h)


def make():
    return Net()


def pixel_centres():
    return Net(False)


def floor_mode():
    return Net(ceil=False)
