"""A detector's outputs in a dictionary: a map, a sequence and a state; ``exchanged`` mixes two up."""

import torch
from torch import nn


class Net(nn.Module):
    def __init__(self, exchanged=False):
        super().__init__()
        self.exchanged = exchanged
        self.conv = nn.Conv2d(3, 6, 3, padding=1)
        self.rnn = nn.LSTM(6, 5, batch_first=True)

    def forward(self, image, scale):
        features = torch.relu(self.conv(image)) * scale[:, :, None, None]
        sequence, (hidden, cell) = self.rnn(features.flatten(2).transpose(1, 2))
        if self.exchanged:
            hidden, cell = cell, hidden
        return {"map": features, "sequence": sequence, "hidden": hidden, "cell": cell}


def make():
    return Net()


def exchanged():
    return Net(exchanged=True)
