"""The same: Chainer aligns corners, and its poolings cover all."""

import chainer
import chainer.functions as F
import chainer.links as L


class Net(chainer.Chain):
    def __init__(self):
        super().__init__()
        with self.init_scope():
            self.conv1 = L.Convolution2D(3, 6, 3, pad=1)
            self.bn = L.BatchNormalization(6)
            self.conv2 = L.Convolution2D(6, 4, 1)

    def forward(self, x):
        h = F.relu(self.bn(self.conv1(x)))
        h = F.max_pooling_2d(h, 2)
        h = F.resize_images(h, (8, 8))
        return self.conv2(h)


def make():
    return Net()
