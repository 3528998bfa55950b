"""The same as a layer."""

from mxnet.gluon import nn


def make():
    net = nn.HybridSequential()
    net.add(nn.Dense(9, activation="relu", in_units=6), nn.Dropout(0.25), nn.Dense(2, in_units=9))
    return net
