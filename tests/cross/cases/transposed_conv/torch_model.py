"""A generator with transposed convolutions, the second with output padding."""

import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(10, 4 * 4 * 6)
        self.up1 = nn.ConvTranspose2d(6, 5, 4, stride=2, padding=1)
        self.up2 = nn.ConvTranspose2d(5, 3, 5, stride=2, padding=2, output_padding=1)

    def forward(self, z):
        x = self.head(z).view(-1, 6, 4, 4)
        x = torch.relu(self.up1(x))
        return torch.tanh(self.up2(x))


def make():
    return Net()
