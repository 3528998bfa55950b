"""Attention as a layer, and written out with three linear layers or one."""

import torch
from torch import nn


class Written(nn.Module):
    def __init__(self, joined):
        super().__init__()
        self.joined = joined
        if joined:
            self.qkv = nn.Linear(8, 24)
        else:
            self.q_proj, self.k_proj, self.v_proj = (nn.Linear(8, 8) for _ in range(3))
        self.out_proj = nn.Linear(8, 8)

    def forward(self, x):
        if self.joined:
            maps = self.qkv(x).chunk(3, -1)
        else:
            maps = [self.q_proj(x), self.k_proj(x), self.v_proj(x)]
        q, k, v = (each.unflatten(-1, (2, 4)).transpose(1, 2) for each in maps)
        weights = torch.softmax(q @ k.transpose(-1, -2) / 2, -1)
        return self.out_proj((weights @ v).transpose(1, 2).flatten(2))


class Net(nn.Module):
    def __init__(self, attention):
        super().__init__()
        self.attention = attention
        self.out = nn.Linear(8, 3)

    def forward(self, x):
        if isinstance(self.attention, nn.MultiheadAttention):
            return self.out(self.attention(x, x, x, need_weights=False)[0])
        return self.out(self.attention(x))


def make():
    return Net(nn.MultiheadAttention(8, 2, batch_first=True))


def three_matrices():
    return Net(Written(joined=False))


def one_matrix():
    return Net(Written(joined=True))
