"""Attention whose heads share keys and values, by torch's function and written out."""

from torch import nn
from torch.nn import functional as F


class Attention(nn.Module):
    def __init__(self, repeat):
        super().__init__()
        self.q_proj, self.o_proj = nn.Linear(12, 16), nn.Linear(16, 12)
        self.k_proj, self.v_proj = nn.Linear(12, 8), nn.Linear(12, 8)
        self.repeat = repeat

    def forward(self, x):
        q, k, v = (
            proj(x).unflatten(-1, (-1, 4)).transpose(1, 2)
            for proj in (self.q_proj, self.k_proj, self.v_proj)
        )
        if self.repeat is None:
            y = F.scaled_dot_product_attention(q, k, v, enable_gqa=True)
        else:
            y = F.scaled_dot_product_attention(q, self.repeat(k), self.repeat(v))
        return self.o_proj(y.transpose(1, 2).flatten(2))


class Net(nn.Module):
    def __init__(self, repeat=None):
        super().__init__()
        self.norm = nn.LayerNorm(12, eps=1e-3)
        self.attention = Attention(repeat)
        self.out = nn.Linear(12, 3)

    def forward(self, x):
        return self.out(x + self.attention(self.norm(x)))


def make():
    return Net()


def repeated():
    return Net(lambda heads: heads.repeat_interleave(2, 1))


def tiled():
    return Net(lambda heads: heads.repeat(1, 2, 1, 1))
