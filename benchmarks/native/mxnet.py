"""The shipped networks in MXNet (Gluon) as its users write them, with nothing of dlb."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import mxnet as mx
import numpy as np
from mxnet import autograd, gluon
from mxnet.gluon import HybridBlock, nn, rnn
from mxnet.gluon.contrib.nn import HybridConcurrent, Identity

NDArray = mx.nd.NDArray
#: A canonical parameter's name in a normalisation of Gluon.
NORM_NAMES = {"scale": "gamma", "bias": "beta", "mean": "running_mean", "variance": "running_var"}


class Loss:
    """What the log of a training loop reads; an NDArray itself is no number."""

    def __init__(self, array: NDArray) -> None:
        self.array = array

    def __float__(self) -> float:
        return float(self.array.asscalar())


def sequential(*layers: HybridBlock) -> nn.HybridSequential:
    """Layers after one another."""
    made = nn.HybridSequential()
    made.add(*layers)
    return made


class Residual(HybridBlock):
    """relu(body(x) + shortcut(x))."""

    def __init__(self, shortcut: HybridBlock, body: HybridBlock) -> None:
        super().__init__()
        self.shortcut, self.body = shortcut, body

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        return F.Activation(self.body(x) + self.shortcut(x), act_type="relu")


def branches(*layers: HybridBlock) -> HybridConcurrent:
    """What several layers make of the same, one after another along the channels."""
    made = HybridConcurrent(axis=1)
    made.add(*layers)
    return made


class LRN(HybridBlock):
    """Local response normalisation, composed: gradients of MXNet's own are wrong on oneDNN.

    Between convolutions they are 1% off, and no faster. The mean over neighbouring channels is an
    average pooling of [N, 1, C, H, W].
    """

    def __init__(self, size: int, alpha: float = 1e-4) -> None:
        super().__init__()
        self.size, self.alpha = size, alpha

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        squares = F.expand_dims(F.square(x), axis=1)
        around = {"kernel": (self.size, 1, 1), "pad": (self.size // 2, 0, 0)}
        mean = F.squeeze(F.Pooling(squares, pool_type="avg", **around), axis=1)
        return x / (1 + self.alpha * mean) ** 0.75


def conv(made: int, kernel, stride=1, pad=0, groups: int = 1) -> nn.Conv2D:
    """A convolution and its relu."""
    return nn.Conv2D(made, kernel, stride, pad, groups=groups, activation="relu")


def conv_norm(made: int, kernel, stride=1, pad=0, epsilon=1e-5, momentum=0.9, groups=1):
    """A convolution and the batch normalisation after it."""
    return sequential(
        nn.Conv2D(made, kernel, stride, pad, groups=groups, use_bias=False),
        nn.BatchNorm(momentum=momentum, epsilon=epsilon),
    )


def conv_norm_relu(*sizes: Any, **others: Any) -> nn.HybridSequential:
    """Both, and a relu."""
    return sequential(conv_norm(*sizes, **others), nn.Activation("relu"))


def lenet(
    filters: tuple[int, int],
    hidden: int,
    activation: str,
    *,
    kernel: int = 5,
    pads: tuple[int, int] = (0, 0),
    pools: tuple[tuple[int, int, int], tuple[int, int, int]] = ((2, 2, 0), (2, 2, 0)),
    pooled_first: bool = False,
    plain: bool = False,
    drop: bool = False,
) -> nn.HybridSequential:
    """Two convolutions and two dense layers: the small networks of Wu et al., and LeCun's.

    Args:
        pooled_first: the activation comes after the pooling.
        plain: the convolutions have none.
    """
    network = nn.HybridSequential()
    within = None if plain or pooled_first else activation
    for made, pad, pool in zip(filters, pads, pools):
        network.add(nn.Conv2D(made, kernel, padding=pad, activation=within), nn.MaxPool2D(*pool))
        if pooled_first:
            network.add(nn.Activation(activation))
    network.add(nn.Dense(hidden, activation))
    if drop:
        network.add(nn.Dropout(0.5))
    network.add(nn.Dense(10))
    return network


def cifar_quick(*head: HybridBlock, norms: bool = False) -> nn.HybridSequential:
    """Krizhevsky's small network for CIFAR-10."""

    def norm() -> list[HybridBlock]:
        return [LRN(3, 5e-5)] if norms else []

    def average() -> nn.AvgPool2D:
        return nn.AvgPool2D(3, 2, ceil_mode=True, count_include_pad=False)

    return sequential(
        nn.Conv2D(32, 5, padding=2),
        nn.MaxPool2D(3, 2, ceil_mode=True),
        nn.Activation("relu"),
        *norm(),
        conv(32, 5, 1, 2),
        average(),
        *norm(),
        conv(64, 5, 1, 2),
        average(),
        *head,
    )


def tensorflow_cifar10() -> nn.HybridSequential:
    return sequential(
        conv(64, 5, 1, 2),
        nn.MaxPool2D(3, 2),
        LRN(9, 1e-3),
        conv(64, 5, 1, 2),
        LRN(9, 1e-3),
        nn.MaxPool2D(3, 2),
        nn.Dense(384, "relu"),
        nn.Dense(192, "relu"),
        nn.Dense(10),
    )


def perceptron(*sizes: int) -> nn.HybridSequential:
    """Dense layers with sigmoids between them."""
    return sequential(*(nn.Dense(made, "sigmoid") for made in sizes[:-1]), nn.Dense(sizes[-1]))


def alexnet(drop: bool, *, small: bool) -> nn.HybridSequential:
    """In Caffe's form, or in one tower without normalisation and dropout."""
    groups, pad = (1, 2) if small else (2, 0)

    def norm() -> list[HybridBlock]:
        return [] if small else [LRN(5)]

    def pool() -> nn.MaxPool2D:
        return nn.MaxPool2D(3, 2, ceil_mode=not small)

    def dropped() -> list[HybridBlock]:
        return [nn.Dropout(0.5)] if drop and not small else []

    return sequential(
        conv(96, 11, 4, pad),
        *norm(),
        pool(),
        conv(256, 5, 1, 2, groups),
        *norm(),
        pool(),
        conv(384, 3, 1, 1),
        conv(384, 3, 1, 1, groups),
        conv(256, 3, 1, 1, groups),
        pool(),
        nn.Dense(4096, "relu"),
        *dropped(),
        nn.Dense(4096, "relu"),
        *dropped(),
        nn.Dense(1000),
    )


def vgg19(drop: bool) -> nn.HybridSequential:
    network = nn.HybridSequential()
    for made, times in ((64, 2), (128, 2), (256, 4), (512, 4), (512, 4)):
        network.add(*(conv(made, 3, 1, 1) for _ in range(times)), nn.MaxPool2D(2))
    for _ in range(2):
        network.add(nn.Dense(4096, "relu"), *([nn.Dropout(0.5)] if drop else []))
    network.add(nn.Dense(1000))
    return network


def googlenet(drop: bool) -> nn.HybridSequential:
    def inception(one, reduced3, three, reduced5, five, pooled) -> HybridConcurrent:
        return branches(
            conv(one, 1),
            sequential(conv(reduced3, 1), conv(three, 3, 1, 1)),
            sequential(conv(reduced5, 1), conv(five, 5, 1, 2)),
            sequential(nn.MaxPool2D(3, 1, 1), conv(pooled, 1)),
        )

    def pool() -> nn.MaxPool2D:
        return nn.MaxPool2D(3, 2, ceil_mode=True)

    return sequential(
        conv(64, 7, 2, 3),
        pool(),
        LRN(5),
        conv(64, 1),
        conv(192, 3, 1, 1),
        LRN(5),
        pool(),
        inception(64, 96, 128, 16, 32, 32),
        inception(128, 128, 192, 32, 96, 64),
        pool(),
        inception(192, 96, 208, 16, 48, 64),
        inception(160, 112, 224, 24, 64, 64),
        inception(128, 128, 256, 24, 64, 64),
        inception(112, 144, 288, 32, 64, 64),
        inception(256, 160, 320, 32, 128, 128),
        pool(),
        inception(256, 160, 320, 32, 128, 128),
        inception(384, 192, 384, 48, 128, 128),
        nn.GlobalAvgPool2D(),
        *([nn.Dropout(0.4)] if drop else []),
        nn.Dense(1000),
    )


def inception_v3(drop: bool) -> nn.HybridSequential:
    across, down = ((1, 7), 1, (0, 3)), ((7, 1), 1, (3, 0))

    def conv(made: int, kernel=1, stride: int = 1, pad=0) -> nn.HybridSequential:
        return conv_norm_relu(made, kernel, stride, pad, 1e-3, 0.9997)

    def line(*convs: tuple) -> nn.HybridSequential:
        """Convolutions after one another: (channels, kernel, stride, padding)."""
        return sequential(*(conv(*each) for each in convs))

    def average(made: int) -> nn.HybridSequential:
        return sequential(nn.AvgPool2D(3, 1, 1, count_include_pad=False), conv(made))

    def block35(pooled: int) -> HybridConcurrent:
        return branches(
            conv(64),
            line((48,), (64, 5, 1, 2)),
            line((64,), (96, 3, 1, 1), (96, 3, 1, 1)),
            average(pooled),
        )

    def block17(wide: int) -> HybridConcurrent:
        return branches(
            conv(192),
            line((wide,), (wide, *across), (192, *down)),
            line((wide,), (wide, *down), (wide, *across), (wide, *down), (192, *across)),
            average(192),
        )

    def fork() -> HybridConcurrent:
        return branches(conv(384, (1, 3), 1, (0, 1)), conv(384, (3, 1), 1, (1, 0)))

    def block8() -> HybridConcurrent:
        return branches(
            conv(320),
            sequential(conv(384), fork()),
            sequential(conv(448), conv(384, 3, 1, 1), fork()),
            average(192),
        )

    return sequential(
        line((32, 3, 2), (32, 3), (64, 3, 1, 1)),
        nn.MaxPool2D(3, 2),
        line((80,), (192, 3)),
        nn.MaxPool2D(3, 2),
        *(block35(pooled) for pooled in (32, 64, 64)),
        branches(conv(384, 3, 2), line((64,), (96, 3, 1, 1), (96, 3, 2)), nn.MaxPool2D(3, 2)),
        *(block17(wide) for wide in (128, 160, 160, 192)),
        branches(
            line((192,), (320, 3, 2)),
            line((192,), (192, *across), (192, *down), (192, 3, 2)),
            nn.MaxPool2D(3, 2),
        ),
        block8(),
        block8(),
        nn.GlobalAvgPool2D(),
        *([nn.Dropout(0.2)] if drop else []),
        nn.Dense(1000),
    )


def resnet56() -> nn.HybridSequential:
    network = sequential(conv_norm_relu(16, 3, 1, 1))
    given = 16
    for made in (16, 32, 64):
        for place in range(9):
            stride = 2 if place == 0 and made > 16 else 1
            body = sequential(conv_norm_relu(made, 3, stride, 1), conv_norm(made, 3, 1, 1))
            network.add(Residual(Identity() if given == made else conv_norm(made, 1, stride), body))
            given = made
    network.add(nn.GlobalAvgPool2D(), nn.Dense(10))
    return network


def resnet50() -> nn.HybridSequential:
    network = sequential(conv_norm_relu(64, 7, 2, 3), nn.MaxPool2D(3, 2, 1))
    for inner, times in ((64, 3), (128, 4), (256, 6), (512, 3)):
        for place in range(times):
            stride = 2 if place == 0 and inner > 64 else 1
            body = sequential(
                conv_norm_relu(inner, 1, stride),
                conv_norm_relu(inner, 3, 1, 1),
                conv_norm(4 * inner, 1),
            )
            network.add(Residual(Identity() if place else conv_norm(4 * inner, 1, stride), body))
    network.add(nn.GlobalAvgPool2D(), nn.Dense(1000))
    return network


def mobilenet() -> nn.HybridSequential:
    network = sequential(conv_norm_relu(32, 3, 2, 1))
    given = 32
    strides = (1, 2, 1, 2, 1, 2, 1, 1, 1, 1, 1, 2, 1)
    widths = (64, 128, 128, 256, 256, 512, 512, 512, 512, 512, 512, 1024, 1024)
    for made, stride in zip(widths, strides):
        network.add(conv_norm_relu(given, 3, stride, 1, groups=given), conv_norm_relu(made, 1))
        given = made
    network.add(nn.GlobalAvgPool2D(), nn.Dense(1000))
    return network


def language(hidden: int) -> nn.HybridSequential:
    """Two LSTM layers between an embedding and a dense layer."""
    return sequential(
        nn.Embedding(10000, hidden),
        rnn.LSTM(hidden, layout="NTC", input_size=hidden),
        rnn.LSTM(hidden, layout="NTC", input_size=hidden),
        nn.Dense(10000, flatten=False),
    )


class Attention(HybridBlock):
    """Self-attention over [T, N, features]; queries, keys and values of a head lie together."""

    def __init__(self, features: int, heads: int, steps: int, *, causal: bool) -> None:
        super().__init__()
        self.features, self.heads = features, heads
        with self.name_scope():
            for name in ("in_weight", "in_bias", "out_weight", "out_bias"):
                setattr(self, name, self.params.get(name))
            if causal:
                above = np.triu(np.full((1, steps, steps), -1e30, np.float32), 1)
                self.mask = self.params.get_constant("mask", above)
                self.mask.initialize()

    def hybrid_forward(
        self, F: Any, x: Any, in_weight, in_bias, out_weight, out_bias, mask=None
    ) -> Any:
        wide = {"num_hidden": 3 * self.features, "flatten": False}
        mixed = F.FullyConnected(x, in_weight, in_bias, **wide)
        scores = F.contrib.interleaved_matmul_selfatt_qk(mixed, heads=self.heads)
        shares = F.softmax(scores if mask is None else F.broadcast_add(scores, mask))
        found = F.contrib.interleaved_matmul_selfatt_valatt(mixed, shares, heads=self.heads)
        return F.FullyConnected(
            found, out_weight, out_bias, num_hidden=self.features, flatten=False
        )


def gelu_by_tanh(F: Any, x: Any) -> Any:
    """Composed: Gluon has the one by erf alone."""
    scale = math.sqrt(2 / math.pi)
    return 0.5 * x * (1 + F.tanh(x * (scale + scale * 0.044715 * F.square(x))))


class Block(HybridBlock):
    """A pre-norm block of a transformer."""

    def __init__(self, features: int, heads: int, steps: int, rate: float, *, causal: bool) -> None:
        super().__init__()
        self.attention = sequential(
            nn.LayerNorm(epsilon=1e-6),
            Attention(features, heads, steps, causal=causal),
            nn.Dropout(rate),
        )
        self.forward_map = sequential(
            nn.LayerNorm(epsilon=1e-6),
            nn.Dense(4 * features, flatten=False),
            nn.HybridLambda(gelu_by_tanh) if causal else nn.GELU(),
            nn.Dense(features, flatten=False),
            nn.Dropout(rate),
        )

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        x = x + self.attention(x)
        return x + self.forward_map(x)


class Positions(HybridBlock):
    """A table added to every sequence of [T, N, features]."""

    def __init__(self) -> None:
        super().__init__()
        with self.name_scope():
            self.weight = self.params.get("weight")

    def hybrid_forward(self, F: Any, x: Any, weight: Any) -> Any:
        return F.broadcast_add(x, F.expand_dims(weight, axis=1))


class Transformer(HybridBlock):
    """Blocks between an embedding, of words or patches, and a dense layer.

    What attends is [T, N, features], as MXNet's operators of attention want it.
    """

    def __init__(
        self,
        embedding: HybridBlock,
        steps: int,
        features: int,
        blocks: int,
        heads: int,
        classes: int,
        rate: float,
        *,
        causal: bool = False,
    ) -> None:
        super().__init__()
        self.causal, self.embedding = causal, embedding
        self.body = sequential(
            Positions(),
            *(Block(features, heads, steps, rate, causal=causal) for _ in range(blocks)),
            nn.LayerNorm(epsilon=1e-6),
        )
        # A decoder's last layer is its embedding.
        tied = {"use_bias": False, "in_units": features, "params": embedding.params}
        self.last = nn.Dense(classes, flatten=False, **(tied if causal else {}))

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        x = self.body(F.swapaxes(self.embedding(x), 0, 1))
        return self.last(F.swapaxes(x, 0, 1) if self.causal else F.mean(x, axis=0))


class Patches(nn.Conv2D):
    """Patches of 16 x 16 as a sequence."""

    def hybrid_forward(self, F: Any, x: Any, weight: Any, bias: Any) -> Any:
        made = super().hybrid_forward(F, x, weight, bias)
        return F.transpose(F.reshape(made, shape=(0, 0, -1)), axes=(0, 2, 1))


#: By workload; told whether dropout is to drop.
NETWORKS: dict[str, Callable[[bool], HybridBlock]] = {
    "lenet5": lambda drop: lenet((32, 64), 512, "relu", pads=(2, 2)),
    "lenet-mnist": lambda drop: lenet((20, 50), 500, "relu", plain=True),
    "caffe-mnist": lambda drop: lenet((20, 50), 500, "relu", plain=True),
    "tensorflow-mnist": lambda drop: lenet((32, 64), 1024, "relu", pads=(2, 2), drop=drop),
    "theano-mnist": lambda drop: lenet((20, 50), 500, "tanh", pooled_first=True),
    "torch-mnist": lambda drop: lenet(
        (32, 64), 200, "tanh", pads=(2, 0), pools=((3, 3, 1), (2, 2, 0))
    ),
    "theano-cifar10": lambda drop: lenet(
        (4, 8), 100, "tanh", kernel=3, pools=((3, 3, 0), (2, 2, 0)), pooled_first=True
    ),
    "torch-cifar10": lambda drop: lenet((16, 256), 128, "tanh"),
    "tensorflow-cifar10": lambda drop: tensorflow_cifar10(),
    "caffe-cifar10": lambda drop: cifar_quick(nn.Dense(64), nn.Dense(10)),
    "cifar-convnet": lambda drop: cifar_quick(nn.Dense(10), norms=True),
    "alexnet-r": lambda drop: cifar_quick(nn.Dense(10)),
    "fcn-r": lambda drop: perceptron(2048, 4096, 1024, 10),
    "fcn-s": lambda drop: perceptron(2048, 2048, 2048, 2048, 26752),
    "alexnet": lambda drop: alexnet(drop, small=False),
    "alexnet-s": lambda drop: alexnet(drop, small=True),
    "vgg-19": vgg19,
    "googlenet": googlenet,
    "inception-v3": inception_v3,
    "resnet-56": lambda drop: resnet56(),
    "resnet-50": lambda drop: resnet50(),
    "mobilenet-v1": lambda drop: mobilenet(),
    "lstm": lambda drop: language(256),
    "ptb-lstm": lambda drop: language(200),
    "transformer": lambda drop: Transformer(
        nn.Embedding(10000, 128), 64, 128, 4, 4, 10000, 0.1 * drop
    ),
    "gpt-small": lambda drop: Transformer(
        nn.Embedding(10000, 128), 64, 128, 4, 4, 10000, 0.1 * drop, causal=True
    ),
    "vit-tiny": lambda drop: Transformer(Patches(192, 16, 16), 196, 192, 12, 3, 1000, 0.1 * drop),
}


def load(network: HybridBlock, weights: dict[str, np.ndarray]) -> None:
    """Give each layer that has parameters, in order, those of the next that is described."""
    described: dict[str, dict[str, np.ndarray]] = {}
    for name, array in weights.items():
        layer, parameter = name.split(".")
        described.setdefault(layer, {})[parameter] = array
    for block, given in zip(built(network), described.values(), strict=True):
        if isinstance(block, rnn.LSTM):
            given = lstm_state(given)
            block.l0_h2h_bias.grad_req = "null"
        elif isinstance(block, Attention):
            given = attention_state(given, block.heads)
        elif "scale" in given:
            given = {NORM_NAMES[name]: array for name, array in given.items()}
        for name, array in given.items():
            parameter = getattr(block, name)
            parameter.shape = array.shape
            parameter.initialize()
            parameter.set_data(mx.nd.array(array))


def built(block: HybridBlock) -> Iterator[HybridBlock]:
    """Layers that have parameters of their own, in order."""
    if block._reg_params and not block.params._shared:
        yield block
    for each in block._children.values():
        yield from built(each)


def lstm_state(given: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Gates in ONNX's order (iofc) as MXNet has them (ifco), and one bias that trains."""

    def ordered(array: np.ndarray) -> np.ndarray:
        gates = np.split(array, 4)
        return np.concatenate([gates[place] for place in (0, 2, 3, 1)])

    return {
        "l0_i2h_weight": ordered(given["input_weight"]),
        "l0_h2h_weight": ordered(given["recurrent_weight"]),
        "l0_i2h_bias": ordered(given["bias"]),
        "l0_h2h_bias": np.zeros_like(given["bias"]),
    }


def attention_state(given: dict[str, np.ndarray], heads: int) -> dict[str, np.ndarray]:
    """Queries, keys and values in one matrix, head by head."""

    def joined(kind: str) -> np.ndarray:
        maps = [given[f"{one}_{kind}"] for one in ("query", "key", "value")]
        by_head = np.stack([each.reshape(heads, -1, *each.shape[1:]) for each in maps], 1)
        return by_head.reshape(-1, *maps[0].shape[1:])

    return {
        "in_weight": joined("weight"),
        "in_bias": joined("bias"),
        "out_weight": given["output_weight"],
        "out_bias": given["output_bias"],
    }


class Adam(mx.optimizer.Adam):
    """As published: epsilon comes after the bias correction, which MXNet has in the rate alone.

    Betas are rounded as its operator rounds them, lest the correction be of others than the moments.
    """

    def __init__(self, *, beta1: float, beta2: float, epsilon: float, **others: float) -> None:
        super().__init__(beta1=float(np.float32(beta1)), beta2=float(np.float32(beta2)), **others)
        self.after = epsilon

    def update(self, index: int, weight: NDArray, grad: NDArray, state: Any) -> None:
        step = self._index_update_count.get(index, self.begin_num_update) + 1
        self.epsilon = self.after * math.sqrt(1 - self.beta2**step)
        super().update(index, weight, grad, state)


def join(rank: int, workers: int) -> Any:
    """The store of the processes that ps-lite's variables name."""
    return mx.kvstore.create("dist_sync")


class Native:
    """Training from memory.

    Args:
        workload: its name, one of NETWORKS.
        weights: by canonical name, in the order of the description.
        settings: of the optimizer: learning_rate, weight_decay and clip_norm, and momentum and
            nesterov of SGD (no network here wants the latter), or beta1, beta2 and epsilon of Adam.
        drop: whether dropout is to drop.
        inputs: [N, ...] in canonical layout; labels: [N] or [N, T].
        peers: what :func:`join` gives, to train with them.
    """

    def __init__(
        self,
        workload: str,
        weights: dict[str, np.ndarray],
        batch_size: int,
        settings: dict[str, float],
        inputs: np.ndarray,
        labels: np.ndarray,
        *,
        drop: bool,
        peers: Any = None,
    ) -> None:
        workers = 1 if peers is None else peers.num_workers
        self.batch_size, self.clip_norm = workers * batch_size, settings["clip_norm"]
        self.network = NETWORKS[workload](drop)
        load(self.network, weights)
        self.network.hybridize(static_alloc=True, static_shape=True)
        self.loss = gluon.loss.SoftmaxCrossEntropyLoss()
        self.loss.hybridize(static_alloc=True, static_shape=True)
        names = ("momentum", "beta1", "beta2", "epsilon")
        own = {name: settings[name] for name in names if name in settings}
        rate, decay = settings["learning_rate"], settings["weight_decay"]
        kind = Adam if "beta1" in settings else mx.optimizer.SGD
        parameters = self.network.collect_params()
        shared = {} if peers is None else {"kvstore": peers, "update_on_kvstore": False}
        optimizer = kind(learning_rate=rate, wd=decay, **own)
        self.trainer = gluon.Trainer(parameters, optimizer, **shared)
        if (
            shared
        ):  # else in the first step, where oneDNN has put weights into layouts that are not sent
            self.trainer._init_kvstore()
            self.trainer._init_params()
        self.gradients = [each.grad() for each in parameters.values() if each.grad_req != "null"]
        self.inputs = mx.nd.array(inputs, dtype=inputs.dtype)
        self.labels = mx.nd.array(labels, dtype=labels.dtype)

    def batches(self, order: np.ndarray) -> Iterator[tuple[NDArray, NDArray]]:
        """The samples of each row of the order."""
        for row in mx.nd.array(order, dtype=order.dtype):
            yield mx.nd.take(self.inputs, row), mx.nd.take(self.labels, row)

    def step(self, x: NDArray, y: NDArray) -> Loss:
        """One update; the mean loss."""
        with autograd.record():
            loss = self.loss(self.network(x), y)
        # One number a sample: gradients are those of their sum, and the trainer divides.
        loss.backward()
        if self.clip_norm:
            limit = self.clip_norm * self.batch_size
            gluon.utils.clip_global_norm(self.gradients, limit, check_isfinite=False)
        self.trainer.step(self.batch_size)
        return Loss(loss.mean())

    def synchronise(self) -> None:
        """Operators run behind the caller's back."""
        mx.nd.waitall()
