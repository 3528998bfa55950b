"""A GRU written out; ``outside`` adds the candidate's second bias outside of the reset gate."""

import torch
from torch import nn


class Hand(nn.Module):
    def __init__(self, inside):
        super().__init__()
        self.inside = inside
        self.w = nn.Parameter(torch.randn(18, 5) * 0.3)
        self.u = nn.Parameter(torch.randn(18, 6) * 0.3)
        self.b = nn.Parameter(torch.zeros(2, 18))
        self.out = nn.Linear(6, 2)

    def forward(self, x):
        h = x.new_zeros(x.shape[0], 6)
        wz, wr, wn = self.w.chunk(3)
        uz, ur, un = self.u.chunk(3)
        bz, br, bn = self.b[0].chunk(3)
        cz, cr, cn = self.b[1].chunk(3)
        for t in range(x.shape[1]):
            s = x[:, t]
            z = torch.sigmoid(s @ wz.T + bz + h @ uz.T + cz)
            r = torch.sigmoid(s @ wr.T + br + h @ ur.T + cr)
            if self.inside:
                n = torch.tanh(s @ wn.T + bn + r * (h @ un.T + cn))
            else:
                n = torch.tanh(s @ wn.T + bn + cn + r * (h @ un.T))
            h = (1 - z) * n + z * h
        return self.out(h)


def make():
    return Hand(True)


def outside():
    return Hand(False)
