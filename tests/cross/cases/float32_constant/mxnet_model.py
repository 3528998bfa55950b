"""The same: Keras keeps the constants in float32."""

from mxnet.gluon import nn


def build(act):
    net = nn.HybridSequential()
    net.add(nn.Dense(16, in_units=6), act, nn.Dense(3, in_units=16))
    return net


def leaky():
    return build(nn.LeakyReLU(0.1))


def gelu():
    return build(nn.GELU())
