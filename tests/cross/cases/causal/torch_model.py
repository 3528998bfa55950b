"""Dilated causal convolutions, padded before, or padded on both sides and cut; ``centred`` looks ahead."""

import torch
import torch.nn.functional as F
from torch import nn


class Net(nn.Module):
    def __init__(self, how):
        super().__init__()
        self.how = how
        sizes = [3, 8, 8]
        self.conv = nn.ModuleList(
            nn.Conv1d(
                c, 8, 3, dilation=d, padding=2 * d if how == "cut" else d if how == "same" else 0
            )
            for c, d in zip(sizes, (1, 2, 4))
        )
        self.skip = nn.ModuleList(nn.Conv1d(c, 8, 1) for c in sizes)
        self.out = nn.Conv1d(8, 2, 1)

    def forward(self, x):
        for conv, skip in zip(self.conv, self.skip):
            d = conv.dilation[0]
            if self.how == "left":
                y = conv(F.pad(x, (2 * d, 0)))
            elif self.how == "cut":
                y = conv(x)[:, :, : x.shape[2]]
            else:
                y = conv(x)
            x = torch.relu(y) + skip(x)
        return self.out(x)


def make():
    return Net("left")


def cut():
    return Net("cut")


def centred():
    return Net("same")
