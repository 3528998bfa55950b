"""Convolutions with normalised weights, by torch's present and former function."""

from torch import nn
from torch.nn.utils import weight_norm as old
from torch.nn.utils.parametrizations import weight_norm as new


def build(norm):
    return nn.Sequential(
        norm(nn.Conv1d(4, 6, 3, padding=1)), nn.LeakyReLU(0.25), norm(nn.Conv1d(6, 2, 3, padding=1))
    )


def make():
    return build(new)


def legacy():
    return build(old)


def merged():
    from torch.nn.utils.parametrize import remove_parametrizations

    net = build(new)
    for one in (net[0], net[2]):
        remove_parametrizations(one, "weight")
    return net
