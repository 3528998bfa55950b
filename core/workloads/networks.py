"""The networks of the papers, and some of today. What a paper leaves open is said in ``source``."""

from __future__ import annotations

import msgspec
from builder import Net

from dlb_graph import workload as W

__all__ = ["WORKLOADS"]

SHAMS = "Shams et al., Evaluation of Deep Learning Frameworks over Different HPC Architectures (ICDCS 2017), Table III"
WU = "Wu et al., A Comparative Measurement Study of Deep Learning as a Service Framework, Tables 2 to 5"
SHI = "Shi et al., Benchmarking State-of-the-Art Deep Learning Software Tools (arXiv:1608.07249v7), Tables 2, 3 and 9"
DLBENCH = "layers as in the paper's code, github.com/hclhkbu/dlbench"
IMAGENET = W.Data(name="imagenet", mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225))
CIFAR = W.Data(name="cifar-10", mean=(0.4914, 0.4822, 0.4465), std=(0.2470, 0.2435, 0.2616))
MNIST = W.Data(name="mnist", mean=(0.1307,), std=(0.3081,))
SYNTHETIC = W.Data(name="synthetic")
TREEBANK = W.Data(name="penn-treebank")


def _fully_connected(shape: tuple[int, ...], hidden: tuple[int, ...], classes: int) -> W.Model:
    net = Net(*shape)
    if len(shape) > 1:
        net.flatten()
    for features in hidden:
        net.linear(features)
        net.add(W.Sigmoid())
    net.linear(classes)
    return net.model


def _alexnet_s() -> W.Model:
    net = Net(3, 224, 224)
    net.conv(96, 11, 4, 2)
    net.relu()
    net.max_pool(3, 2)
    net.conv(256, 5, 1, 2)
    net.relu()
    net.max_pool(3, 2)
    for channels in (384, 384, 256):
        net.conv(channels, 3, 1, 1)
        net.relu()
    net.max_pool(3, 2)
    net.flatten()
    for _ in range(2):
        net.linear(4096)
        net.relu()
    net.linear(1000)
    return net.model


def _alexnet_r() -> W.Model:
    net = Net(3, 32, 32)
    net.conv(32, 5, 1, 2)
    net.max_pool(3, 2, ceil=True)
    net.relu()
    net.conv(32, 5, 1, 2)
    net.relu()
    net.average_pool(3, 2, ceil=True)
    net.conv(64, 5, 1, 2)
    net.relu()
    net.average_pool(3, 2, ceil=True)
    net.flatten()
    net.linear(10)
    return net.model


def _resnet_50() -> W.Model:
    """He et al. 2015, table 1: the stride of a stage is in the first 1 x 1 convolution."""
    net = Net(3, 224, 224)
    net.conv_bn(64, 7, 2, 3)
    before = net.max_pool(3, 2, 1)
    for stage, blocks in enumerate((3, 4, 6, 3)):
        width = 64 * 2**stage
        for block in range(blocks):
            stride = 2 if stage and not block else 1
            shortcut = before
            if not block:
                shortcut = net.conv_bn(4 * width, 1, stride, 0, before, relu=False)
            net.conv_bn(width, 1, stride, 0, before)
            net.conv_bn(width, 3, 1, 1)
            net.conv_bn(4 * width, 1, relu=False)
            net.add(W.Add(), net.last, shortcut)
            before = net.relu()
    net.add(W.GlobalAveragePool())
    net.flatten()
    net.linear(1000)
    return net.model


def _resnet_56() -> W.Model:
    """He et al. 2015, section 4.2, n = 9, with projections (option B) where the width changes."""
    net = Net(3, 32, 32)
    before = net.conv_bn(16, 3, 1, 1)
    for stage in range(3):
        width = 16 * 2**stage
        for block in range(9):
            stride = 2 if stage and not block else 1
            shortcut = before
            if stride == 2:
                shortcut = net.conv_bn(width, 1, 2, 0, before, relu=False)
            net.conv_bn(width, 3, stride, 1, before)
            net.conv_bn(width, 3, 1, 1, relu=False)
            net.add(W.Add(), net.last, shortcut)
            before = net.relu()
    net.add(W.GlobalAveragePool())
    net.flatten()
    net.linear(10)
    return net.model


def _language_model(steps: int, hidden: int, init: object) -> W.Model:
    net = Net(steps, kind="index")
    net.add(W.Embedding(entries=10000, features=hidden, init=init))
    for _ in range(2):
        net.add(W.LSTM(hidden=hidden, init=init))
    net.linear(10000, init=init)
    return net.model


def _caffe_lenet() -> W.Model:
    net = Net(1, 28, 28)
    for channels in (20, 50):
        net.conv(channels, 5, init="lecun_uniform")
        net.max_pool(2, 2)
    net.flatten()
    net.linear(500, init="lecun_uniform")
    net.relu()
    net.linear(10, init="lecun_uniform")
    return net.model


def _convnet() -> W.Model:
    """Caffe's cifar10_full, after Krizhevsky's layers-18pct."""
    net = Net(3, 32, 32)
    lrn = W.LRN(size=3, alpha=5e-5, beta=0.75)
    net.conv(32, 5, 1, 2, init=W.Normal(std=1e-4))
    net.max_pool(3, 2, ceil=True)
    net.relu()
    net.add(lrn)
    net.conv(32, 5, 1, 2, init=W.Normal(std=0.01))
    net.relu()
    net.average_pool(3, 2, ceil=True)
    net.add(lrn)
    net.conv(64, 5, 1, 2, init=W.Normal(std=0.01))
    net.relu()
    net.average_pool(3, 2, ceil=True)
    net.flatten()
    net.linear(10, init=W.Normal(std=0.01))
    return net.model


def _alexnet() -> W.Model:
    """Krizhevsky et al. 2012 in Caffe's order; its pooling rounds up."""
    net = Net(3, 224, 224)
    lrn = W.LRN(size=5, alpha=1e-4, beta=0.75)
    small, none = {"init": W.Normal(std=0.01)}, W.Fill(value=0.1)
    net.conv(96, 11, 4, 0, **small)
    net.relu()
    net.add(lrn)
    net.max_pool(3, 2, ceil=True)
    net.conv(256, 5, 1, 2, groups=2, bias_init=none, **small)
    net.relu()
    net.add(lrn)
    net.max_pool(3, 2, ceil=True)
    net.conv(384, 3, 1, 1, **small)
    net.relu()
    net.conv(384, 3, 1, 1, groups=2, bias_init=none, **small)
    net.relu()
    net.conv(256, 3, 1, 1, groups=2, bias_init=none, **small)
    net.relu()
    net.max_pool(3, 2, ceil=True)
    net.flatten()
    for _ in range(2):
        net.linear(4096, init=W.Normal(std=0.005), bias_init=none)
        net.relu()
        net.dropout(0.5)
    net.linear(1000, **small)
    return net.model


def _vgg_19() -> W.Model:
    """Simonyan and Zisserman 2014, configuration E."""
    net = Net(3, 224, 224)
    for channels, count in ((64, 2), (128, 2), (256, 4), (512, 4), (512, 4)):
        for _ in range(count):
            net.conv(channels, 3, 1, 1, init="he_normal")
            net.relu()
        net.max_pool(2, 2)
    net.flatten()
    for _ in range(2):
        net.linear(4096, init=W.Normal(std=0.01))
        net.relu()
        net.dropout(0.5)
    net.linear(1000, init=W.Normal(std=0.01))
    return net.model


def _googlenet() -> W.Model:
    """Szegedy et al. 2014, table 1, without the auxiliary classifiers."""
    net = Net(3, 224, 224)
    lrn = W.LRN(size=5, alpha=1e-4, beta=0.75)

    def conv(channels: int, kernel: int, stride: int, pad: int, *of: str) -> str:
        net.conv(
            channels, kernel, stride, pad, *of, init="lecun_uniform", bias_init=W.Fill(value=0.2)
        )
        return net.relu()

    conv(64, 7, 2, 3)
    net.max_pool(3, 2, ceil=True)
    net.add(lrn)
    conv(64, 1, 1, 0)
    conv(192, 3, 1, 1)
    net.add(lrn)
    net.max_pool(3, 2, ceil=True)
    modules = (
        (64, 96, 128, 16, 32, 32),
        (128, 128, 192, 32, 96, 64),
        None,
        (192, 96, 208, 16, 48, 64),
        (160, 112, 224, 24, 64, 64),
        (128, 128, 256, 24, 64, 64),
        (112, 144, 288, 32, 64, 64),
        (256, 160, 320, 32, 128, 128),
        None,
        (256, 160, 320, 32, 128, 128),
        (384, 192, 384, 48, 128, 128),
    )
    for sizes in modules:
        before = net.last
        if sizes is None:
            net.max_pool(3, 2, ceil=True)
            continue
        one, three_reduce, three, five_reduce, five, pooled = sizes
        branches = [conv(one, 1, 1, 0, before)]
        conv(three_reduce, 1, 1, 0, before)
        branches.append(conv(three, 3, 1, 1))
        conv(five_reduce, 1, 1, 0, before)
        branches.append(conv(five, 5, 1, 2))
        net.max_pool(3, 1, 1, before)
        branches.append(conv(pooled, 1, 1, 0))
        net.add(W.Concat(axis=1), *branches)
    net.add(W.GlobalAveragePool())
    net.dropout(0.4)
    net.flatten()
    net.linear(1000, init="lecun_uniform")
    return net.model


def _tensorflow_mnist() -> W.Model:
    net = Net(1, 28, 28)
    how = {"init": W.TruncatedNormal(std=0.1), "bias_init": W.Fill(value=0.1)}
    for channels in (32, 64):
        net.conv(channels, 5, 1, 2, **how)
        net.relu()
        net.max_pool(2, 2)
    net.flatten()
    net.linear(1024, **how)
    net.relu()
    net.dropout(0.5)
    net.linear(10, **how)
    return net.model


def _torch_mnist() -> W.Model:
    net = Net(1, 28, 28)
    how = {"init": "fan_in", "bias_init": "fan_in"}
    net.conv(32, 5, 1, 2, **how)
    net.tanh()
    net.max_pool(3, 3, 1)
    net.conv(64, 5, **how)
    net.tanh()
    net.max_pool(2, 2)
    net.flatten()
    net.linear(200, **how)
    net.tanh()
    net.linear(10, **how)
    return net.model


def _theano_mnist() -> W.Model:
    """The bounds of a convolution: sqrt(6 / (fan_in + fan_out / 4)), by the area pooled after it."""
    net = Net(1, 28, 28)
    for channels, limit in ((20, 0.2), (50, 0.0859338)):
        net.conv(channels, 5, init=W.Uniform(limit=limit))
        net.max_pool(2, 2)
        net.tanh()
    net.flatten()
    net.linear(500)
    net.tanh()
    net.linear(10, init="zeros")
    return net.model


def _tensorflow_cifar10() -> W.Model:
    net = Net(3, 32, 32)
    lrn = W.LRN(size=9, alpha=0.001, beta=0.75)
    fill = W.Fill(value=0.1)
    net.conv(64, 5, 1, 2, init=W.TruncatedNormal(std=0.05))
    net.relu()
    net.max_pool(3, 2)
    net.add(lrn)
    net.conv(64, 5, 1, 2, init=W.TruncatedNormal(std=0.05), bias_init=fill)
    net.relu()
    net.add(lrn)
    net.max_pool(3, 2)
    net.flatten()
    for features in (384, 192):
        net.linear(features, init=W.TruncatedNormal(std=0.04), bias_init=fill)
        net.relu()
    net.linear(10, init=W.TruncatedNormal(std=1 / 192))
    return net.model


def _caffe_cifar10() -> W.Model:
    """Caffe's cifar10_quick."""
    net = Net(3, 32, 32)
    net.conv(32, 5, 1, 2, init=W.Normal(std=1e-4))
    net.max_pool(3, 2, ceil=True)
    net.relu()
    for channels in (32, 64):
        net.conv(channels, 5, 1, 2, init=W.Normal(std=0.01))
        net.relu()
        net.average_pool(3, 2, ceil=True)
    net.flatten()
    net.linear(64, init=W.Normal(std=0.1))
    net.linear(10, init=W.Normal(std=0.1))
    return net.model


def _torch_cifar10() -> W.Model:
    net = Net(3, 32, 32)
    how = {"init": "fan_in", "bias_init": "fan_in"}
    for channels in (16, 256):
        net.conv(channels, 5, **how)
        net.tanh()
        net.max_pool(2, 2)
    net.flatten()
    net.linear(128, **how)
    net.tanh()
    net.linear(10, **how)
    return net.model


def _theano_cifar10() -> W.Model:
    net = Net(3, 32, 32)
    for channels, window in ((4, 3), (8, 2)):
        net.conv(channels, 3)
        net.max_pool(window, window)
        net.tanh()
    net.flatten()
    net.linear(100)
    net.tanh()
    net.linear(10)
    return net.model


def _inception_v3() -> W.Model:
    """Szegedy et al., arXiv:1512.00567, without the auxiliary classifier."""
    net = Net(3, 299, 299)

    def conv(
        channels: int, kernel: int | tuple[int, int], stride: int, pad: object, *of: str
    ) -> str:
        how = {"epsilon": 1e-3, "momentum": 0.9997, "init": W.TruncatedNormal(std=0.1)}
        return net.conv_bn(channels, kernel, stride, pad, *of, **how)

    def chain(before: str, *convs: tuple[object, ...]) -> str:
        for channels, kernel, stride, pad in convs:
            before = conv(channels, kernel, stride, pad, before)
        return before

    def pooled(before: str, channels: int) -> str:
        net.average_pool(3, 1, 1, before)
        return conv(channels, 1, 1, 0)

    chain(net.last, (32, 3, 2, 0), (32, 3, 1, 0), (64, 3, 1, 1))
    net.max_pool(3, 2)
    chain(net.last, (80, 1, 1, 0), (192, 3, 1, 0))
    net.max_pool(3, 2)
    for channels in (32, 64, 64):
        before = net.last
        branches = (
            chain(before, (64, 1, 1, 0)),
            chain(before, (48, 1, 1, 0), (64, 5, 1, 2)),
            chain(before, (64, 1, 1, 0), (96, 3, 1, 1), (96, 3, 1, 1)),
            pooled(before, channels),
        )
        net.add(W.Concat(axis=1), *branches)
    before = net.last
    branches = (
        chain(before, (384, 3, 2, 0)),
        chain(before, (64, 1, 1, 0), (96, 3, 1, 1), (96, 3, 2, 0)),
        net.max_pool(3, 2, 0, before),
    )
    net.add(W.Concat(axis=1), *branches)
    wide, high = ((1, 7), 1, (0, 3)), ((7, 1), 1, (3, 0))
    for width in (128, 160, 160, 192):
        before = net.last
        branches = (
            chain(before, (192, 1, 1, 0)),
            chain(before, (width, 1, 1, 0), (width, *wide), (192, *high)),
            chain(
                before,
                (width, 1, 1, 0),
                (width, *high),
                (width, *wide),
                (width, *high),
                (192, *wide),
            ),
            pooled(before, 192),
        )
        net.add(W.Concat(axis=1), *branches)
    before = net.last
    branches = (
        chain(before, (192, 1, 1, 0), (320, 3, 2, 0)),
        chain(before, (192, 1, 1, 0), (192, *wide), (192, *high), (192, 3, 2, 0)),
        net.max_pool(3, 2, 0, before),
    )
    net.add(W.Concat(axis=1), *branches)
    for _ in range(2):
        before = net.last
        one = chain(before, (320, 1, 1, 0))
        split = chain(before, (384, 1, 1, 0))
        three = (conv(384, (1, 3), 1, (0, 1), split), conv(384, (3, 1), 1, (1, 0), split))
        split = chain(before, (448, 1, 1, 0), (384, 3, 1, 1))
        double = (conv(384, (1, 3), 1, (0, 1), split), conv(384, (3, 1), 1, (1, 0), split))
        net.add(W.Concat(axis=1), one, *three, *double, pooled(before, 192))
    net.add(W.GlobalAveragePool())
    net.dropout(0.2)
    net.flatten()
    net.linear(1000, init=W.TruncatedNormal(std=0.1))
    return net.model


def _mobilenet() -> W.Model:
    """Howard et al., arXiv:1704.04861, table 1."""
    net = Net(3, 224, 224)
    net.conv_bn(32, 3, 2, 1)
    given = 32
    widths = ((64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2))
    widths += ((512, 1),) * 5 + ((1024, 2), (1024, 1))
    for width, stride in widths:
        net.conv_bn(given, 3, stride, 1, groups=given)
        net.conv_bn(width, 1)
        given = width
    net.add(W.GlobalAveragePool())
    net.flatten()
    net.linear(1000)
    return net.model


def _blocks(net: Net, count: int, features: int, heads: int, *, causal: bool, gelu: str) -> None:
    """Pre-norm transformer blocks (Xiong et al., arXiv:2002.04745), and the norm after the last."""
    small = {"init": W.Normal(std=0.02)}
    for _ in range(count):
        before = net.last
        net.add(W.LayerNorm(epsilon=1e-6))
        net.add(W.Attention(heads=heads, causal=causal, **small))
        net.dropout(0.1)
        before = net.add(W.Add(), net.last, before)
        net.add(W.LayerNorm(epsilon=1e-6))
        net.linear(4 * features, **small)
        net.add(W.GELU(approximate=gelu))
        net.linear(features, **small)
        net.dropout(0.1)
        net.add(W.Add(), net.last, before)
    net.add(W.LayerNorm(epsilon=1e-6))


def _words(steps: int, features: int) -> Net:
    net = Net(steps, kind="index")
    net.add(W.Embedding(entries=10000, features=features, init=W.Normal(std=0.02)))
    net.add(W.PositionEmbedding(init=W.Normal(std=0.02)))
    return net


def _transformer() -> W.Model:
    net = _words(64, 128)
    _blocks(net, 4, 128, 4, causal=False, gelu="none")
    net.add(W.ReduceMean(axis=1))
    net.linear(10000, init=W.Normal(std=0.02))
    return net.model


def _gpt() -> W.Model:
    net = _words(64, 128)
    _blocks(net, 4, 128, 4, causal=True, gelu="tanh")
    net.linear(10000, bias=False, tied_to=net.nodes[0].name)
    return net.model


def _vit_tiny() -> W.Model:
    net = Net(3, 224, 224)
    net.conv(192, 16, 16, init="lecun_normal")
    net.add(W.Reshape(shape=(192, 196)))
    net.add(W.Transpose(axes=(2, 1)))
    net.add(W.PositionEmbedding(init=W.Normal(std=0.02)))
    _blocks(net, 12, 192, 3, causal=False, gelu="none")
    net.add(W.ReduceMean(axis=1))
    net.linear(1000, init=W.Normal(std=0.02))
    return net.model


def _sgd(rate: float, momentum: float = 0.0, decay: float = 0.0) -> W.SGD:
    return W.SGD(learning_rate=rate, momentum=momentum, weight_decay=decay)


WORKLOADS = (
    W.Workload(
        name="fcn-s",
        title="FCN-S, four hidden layers of 2,048 units, on made-up data",
        source=f"{SHI}; {DLBENCH}. 55 million parameters there; it has 122 million: 55 million is one of its two large matrices",
        batch_size=64,
        data=SYNTHETIC,
        optimizer=_sgd(0.05),
        model=_fully_connected((26752,), (2048,) * 4, 26752),
    ),
    W.Workload(
        name="fcn-r",
        title="FCN-R on MNIST",
        source=f"{SHI}; {DLBENCH}. About 13 million parameters there; it has 14.2 million",
        batch_size=1024,
        epochs=40,
        data=MNIST,
        optimizer=_sgd(0.05),
        model=_fully_connected((1, 28, 28), (2048, 4096, 1024), 10),
    ),
    W.Workload(
        name="alexnet-s",
        title="AlexNet-S: AlexNet in one tower without normalisation and dropout, on made-up data",
        source=f"{SHI}; layers of the paper's Torch code (github.com/hclhkbu/dlbench), whose MXNet code leaves out four of them. About 61 million parameters there; it has 62.4 million",
        batch_size=16,
        data=SYNTHETIC,
        optimizer=_sgd(0.01),
        model=_alexnet_s(),
    ),
    W.Workload(
        name="alexnet-r",
        title="AlexNet-R: Krizhevsky's small network for CIFAR-10, without normalisation",
        source=f"{SHI}; Krizhevsky's layers-18pct without its LRN, as in Caffe. About 81 thousand parameters there; it has 89,578",
        batch_size=128,
        epochs=40,
        data=CIFAR,
        optimizer=_sgd(0.05),
        model=_alexnet_r(),
    ),
    W.Workload(
        name="resnet-50",
        title="ResNet-50",
        source=f"{SHI}; He et al., arXiv:1512.03385, table 1. 3.8 billion parameters there, which is its multiply-adds; it has 25.6 million parameters",
        batch_size=16,
        epochs=90,
        data=IMAGENET,
        optimizer=_sgd(0.1, 0.9, 1e-4),
        model=_resnet_50(),
    ),
    W.Workload(
        name="resnet-56",
        title="ResNet-56 on CIFAR-10",
        source=f"{SHI}; He et al., arXiv:1512.03385, section 4.2, with projections (option B) in two shortcuts, and its augmentation",
        batch_size=128,
        epochs=164,
        data=msgspec.structs.replace(CIFAR, augmentation=W.Augmentation(pad=4, flip=True)),
        optimizer=_sgd(0.1, 0.9, 1e-4),
        schedule=W.Step(milestones=(32000, 48000)),
        model=_resnet_56(),
    ),
    W.Workload(
        name="lstm",
        title="Two LSTM layers of 256 units, 32 steps, on Penn Treebank",
        source=f"{SHI}; sizes of the paper's code (github.com/hclhkbu/dlbench). About 13 million parameters there, as with words one-hot into the LSTM; with an embedding it has 6.2 million",
        batch_size=256,
        epochs=25,
        data=TREEBANK,
        optimizer=_sgd(0.01, 0.0, 1e-5),
        model=_language_model(32, 256, W.Uniform(limit=0.1)),
    ),
    W.Workload(
        name="lenet-mnist",
        title="LeNet on MNIST, Caffe's",
        source=f"{SHAMS}; LeCun et al. 1998 in Caffe's form. The paper gives no hyper-parameters: these are Caffe's, at a constant learning rate",
        epochs=10,
        data=MNIST,
        model=_caffe_lenet(),
        batch_size=64,
        optimizer=_sgd(0.01, 0.9, 5e-4),
    ),
    W.Workload(
        name="cifar-convnet",
        title="ConvNet on CIFAR-10, with response normalisation",
        source=f"{SHAMS}; Krizhevsky's layers-18pct in Caffe's form (cifar10_full), whose hyper-parameters these are",
        batch_size=100,
        epochs=140,
        data=CIFAR,
        optimizer=_sgd(0.001, 0.9, 0.004),
        schedule=W.Step(milestones=(60000, 65000)),
        model=_convnet(),
    ),
    W.Workload(
        name="alexnet",
        title="AlexNet with grouped convolutions and response normalisation",
        source=f"{SHAMS}; Krizhevsky et al. 2012 in Caffe's form, images of 224 x 224; batch size of its Table IV",
        batch_size=256,
        epochs=90,
        data=IMAGENET,
        optimizer=_sgd(0.01, 0.9, 5e-4),
        schedule=W.Step(milestones=(100000, 200000, 300000, 400000)),
        model=_alexnet(),
    ),
    W.Workload(
        name="vgg-19",
        title="VGG-19",
        source=f"{SHAMS}; Simonyan and Zisserman, arXiv:1409.1556, configuration E",
        batch_size=32,
        epochs=74,
        data=IMAGENET,
        optimizer=_sgd(0.01, 0.9, 5e-4),
        model=_vgg_19(),
    ),
    W.Workload(
        name="googlenet",
        title="GoogLeNet (Inception v1)",
        source=f"{SHAMS}; Szegedy et al., arXiv:1409.4842, table 1, without the auxiliary classifiers",
        batch_size=32,
        epochs=60,
        data=IMAGENET,
        optimizer=_sgd(0.01, 0.9, 2e-4),
        model=_googlenet(),
    ),
    W.Workload(
        name="tensorflow-mnist",
        title="TensorFlow's default network for MNIST",
        source=f"{WU}; dropout and initial weights of TensorFlow's tutorial. 20,000 steps there",
        batch_size=50,
        epochs=17,
        data=MNIST,
        optimizer=W.Adam(learning_rate=1e-4),
        model=_tensorflow_mnist(),
    ),
    W.Workload(
        name="caffe-mnist",
        title="Caffe's default network for MNIST",
        source=f"{WU}; initial weights and schedule of Caffe's example. 10,000 steps there",
        epochs=11,
        data=MNIST,
        model=_caffe_lenet(),
        batch_size=64,
        optimizer=_sgd(0.01, 0.9, 5e-4),
        schedule=W.Inverse(gamma=1e-4, power=0.75),
    ),
    W.Workload(
        name="torch-mnist",
        title="Torch's default network for MNIST",
        source=f"{WU}; Torch's demo, whose images are padded to 32 x 32: here the first convolution pads. Table 4 has the second pooling at 3 x 3, but 3 x 3 x 64 values after it take the demo's 2 x 2",
        batch_size=10,
        epochs=12,
        data=MNIST,
        optimizer=_sgd(0.05),
        model=_torch_mnist(),
    ),
    W.Workload(
        name="theano-mnist",
        title="Theano's default network for MNIST",
        source=f"{WU}; activations, initial weights and pixels from 0 to 1 of the Theano tutorial's LeNet, which trains on 50,000 of the images and stops by the others: here on all, to the end",
        batch_size=500,
        epochs=200,
        data=W.Data(name="mnist"),
        optimizer=_sgd(0.1),
        model=_theano_mnist(),
    ),
    W.Workload(
        name="tensorflow-cifar10",
        title="TensorFlow's default network for CIFAR-10",
        source=f"{WU}; initial weights of TensorFlow's tutorial. Table 5 has 7 x 7 x 64 values after the second pooling, which whole images give and the tutorial's crops of 24 x 24 do not. Its decay of 0.004 on two layers only is left out",
        batch_size=128,
        epochs=2560,
        data=CIFAR,
        optimizer=_sgd(0.1),
        schedule=W.Decay(start=136500, every=136500, gamma=0.1),
        model=_tensorflow_cifar10(),
    ),
    W.Workload(
        name="caffe-cifar10",
        title="Caffe's default network for CIFAR-10",
        source=f"{WU}; initial weights, momentum and decay of Caffe's cifar10_quick",
        batch_size=100,
        epochs=10,
        data=CIFAR,
        optimizer=_sgd(0.001, 0.9, 0.004),
        schedule=W.Step(milestones=(4000,)),
        model=_caffe_cifar10(),
    ),
    W.Workload(
        name="torch-cifar10",
        title="Torch's default network for CIFAR-10",
        source=f"{WU}; 45 epochs in 2,250,000 steps are batches of one",
        batch_size=1,
        epochs=45,
        data=CIFAR,
        optimizer=_sgd(0.001),
        model=_torch_cifar10(),
    ),
    W.Workload(
        name="theano-cifar10",
        title="A Theano network for CIFAR-10",
        source=f"{WU}; activations are not given and are taken to be the Theano tutorial's",
        batch_size=50,
        epochs=50,
        data=CIFAR,
        optimizer=_sgd(0.01),
        model=_theano_cifar10(),
    ),
    W.Workload(
        name="inception-v3",
        title="Inception-v3",
        source="Wu et al., A Comparative Measurement Study of Deep Learning as a Service Framework, Table 8; Szegedy et al., arXiv:1512.00567, without the auxiliary classifier, layers as in TensorFlow's slim",
        batch_size=32,
        epochs=100,
        data=IMAGENET,
        optimizer=_sgd(0.045, 0.9, 4e-5),
        model=_inception_v3(),
    ),
    W.Workload(
        name="ptb-lstm",
        title="Zaremba's small language model on Penn Treebank",
        source="Jäger et al., Parallelized Training of Deep NN (DIDL 2018); Zaremba et al., arXiv:1409.2329: 2 layers of 200 units, 20 steps, learning rate 1 halved after each epoch from the fifth on, gradients clipped to a norm of 5",
        batch_size=20,
        epochs=13,
        data=TREEBANK,
        optimizer=W.SGD(learning_rate=1.0, clip_norm=5.0),
        schedule=W.Decay(start=9292, every=2323, gamma=0.5),
        model=_language_model(20, 200, W.Uniform(limit=0.1)),
    ),
    W.Workload(
        name="mobilenet-v1",
        title="MobileNet with depthwise convolutions",
        source="Howard et al., arXiv:1704.04861, table 1",
        batch_size=32,
        epochs=100,
        data=IMAGENET,
        optimizer=_sgd(0.05, 0.9, 4e-5),
        schedule=W.WarmupCosine(warmup=1000, steps=4000000),
        model=_mobilenet(),
    ),
    W.Workload(
        name="transformer",
        title="A pre-norm transformer encoder that classifies 64 words by the word that follows",
        source="Vaswani et al., arXiv:1706.03762; Xiong et al., arXiv:2002.04745: 4 blocks of 128 features and 4 heads",
        batch_size=32,
        epochs=10,
        data=TREEBANK,
        optimizer=W.Adam(learning_rate=3e-4, clip_norm=1.0),
        schedule=W.WarmupCosine(warmup=200, steps=4530, end=0.1),
        model=_transformer(),
    ),
    W.Workload(
        name="gpt-small",
        title="A small decoder in the style of GPT on Penn Treebank",
        source="Radford et al., Language Models are Unsupervised Multitask Learners (2019): 4 blocks of 128 features and 4 heads, 64 words; the last layer is tied to the embedding",
        batch_size=32,
        epochs=10,
        data=TREEBANK,
        optimizer=W.Adam(learning_rate=3e-4, beta2=0.95, clip_norm=1.0),
        schedule=W.WarmupCosine(warmup=200, steps=4530, end=0.1),
        model=_gpt(),
    ),
    W.Workload(
        name="vit-tiny",
        title="ViT-Tiny with the mean of all patches",
        source="Dosovitskiy et al., arXiv:2010.11929; Touvron et al., arXiv:2012.12877, table 1 (DeiT-Ti): 12 blocks of 192 features and 3 heads, without a class token, as Zhai et al., arXiv:2106.04560",
        batch_size=32,
        epochs=300,
        data=IMAGENET,
        optimizer=W.Adam(learning_rate=1e-3, clip_norm=1.0),
        schedule=W.WarmupCosine(warmup=10000, steps=12000000),
        model=_vit_tiny(),
    ),
)
