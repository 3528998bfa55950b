"""A bidirectional LSTM; written out as two passes, with the backward one's steps put back in order or not."""

import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(5, 8, bidirectional=True, batch_first=True)
        self.fc = nn.Linear(16, 3)

    def forward(self, x):
        y, _ = self.lstm(x)
        return self.fc(y)


class TwoPasses(nn.Module):
    def __init__(self, flip):
        super().__init__()
        self.flip = flip
        self.ahead = nn.LSTM(5, 8, batch_first=True)
        self.back = nn.LSTM(5, 8, batch_first=True)
        self.fc = nn.Linear(16, 3)

    def forward(self, x):
        a, _ = self.ahead(x)
        b, _ = self.back(x.flip(1))
        if self.flip:
            b = b.flip(1)
        return self.fc(torch.cat([a, b], -1))


def make():
    return Net()


def two_passes():
    return TwoPasses(True)


def not_put_back():
    return TwoPasses(False)
