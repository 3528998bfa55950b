"""Attention with additions of low rank to its maps: written out, as Keras adds them, and torch's own."""

import torch
from torch import nn
from torch.nn import functional as F


class Low(nn.Module):
    def __init__(self, n, m, rank, scale):
        super().__init__()
        self.base = nn.Linear(n, m)
        self.base.weight.requires_grad_(False)
        self.lora_a, self.lora_b = nn.Linear(n, rank, bias=False), nn.Linear(rank, m, bias=False)
        nn.init.zeros_(self.lora_b.weight)
        self.scale = scale

    def forward(self, x):
        return self.base(x) + self.scale * self.lora_b(self.lora_a(x))


class Heads(nn.Module):
    """As Keras adds to the map of a MultiHeadAttention: [in, heads, rank] and [rank, size]."""

    def __init__(self, n, heads, size, rank, scale):
        super().__init__()
        self.base = nn.Linear(n, heads * size)
        self.base.weight.requires_grad_(False)
        self.lora_a = nn.Parameter(torch.randn(n, heads, rank) / 4)
        self.lora_b = nn.Parameter(torch.zeros(rank, size))
        self.scale = scale

    def forward(self, x):
        return self.base(x) + self.scale * (
            torch.einsum("btn,nhr->bthr", x, self.lora_a) @ self.lora_b
        ).flatten(2)


class Attention(nn.Module):
    def __init__(self, low):
        super().__init__()
        self.q_proj, self.v_proj = low(), low()
        self.k_proj, self.o_proj = nn.Linear(12, 12), nn.Linear(12, 12)

    def forward(self, x):
        q, k, v = (
            p(x).unflatten(-1, (3, 4)).transpose(1, 2)
            for p in (self.q_proj, self.k_proj, self.v_proj)
        )
        return self.o_proj(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))


class Net(nn.Module):
    def __init__(self, low):
        super().__init__()
        self.norm, self.attention, self.out = (
            nn.LayerNorm(12, eps=1e-3),
            Attention(low),
            nn.Linear(12, 3),
        )

    def forward(self, x):
        return self.out(x + self.attention(self.norm(x)))


def make(scale=4.0):
    return Net(lambda: Low(12, 12, 2, scale))


def alpha_only():
    return make(8.0)


def heads(scale=4.0):
    return Net(lambda: Heads(12, 3, 4, 2, scale))


def heads_alpha_only():
    return heads(8.0)


class Packed(nn.Module):
    """torch's own attention, to whose joined matrix the products are added."""

    def __init__(self, scale):
        super().__init__()
        self.mha = nn.MultiheadAttention(12, 3, batch_first=True)
        self.mha.in_proj_weight.requires_grad_(False)
        for name in ("q", "v"):
            setattr(self, f"{name}_lora_a", nn.Linear(12, 2, bias=False))
            setattr(self, f"{name}_lora_b", nn.Linear(2, 12, bias=False))
        self.scale = scale

    def forward(self, x):
        q, v = (
            b.weight @ a.weight * self.scale
            for a, b in ((self.q_lora_a, self.q_lora_b), (self.v_lora_a, self.v_lora_b))
        )
        m = self.mha
        weight = m.in_proj_weight + torch.cat([q, torch.zeros_like(q), v])
        x = x.transpose(0, 1)
        y, _ = F.multi_head_attention_forward(
            x,
            x,
            x,
            12,
            3,
            weight,
            m.in_proj_bias,
            None,
            None,
            False,
            0.0,
            m.out_proj.weight,
            m.out_proj.bias,
            training=self.training,
            need_weights=False,
        )
        return y.transpose(0, 1)


def packed(scale=4.0):
    net = Net(lambda: nn.Linear(12, 12))
    net.attention = Packed(scale)
    return net


class All(Attention):
    def __init__(self, scale):
        super().__init__(lambda: Heads(12, 3, 4, 2, scale))
        self.o_proj = Low(12, 12, 2, scale)


def every(scale=4.0):
    net = Net(lambda: nn.Linear(12, 12))
    net.attention = All(scale)
    return net


def every_other_scale():
    return every(2.0)
