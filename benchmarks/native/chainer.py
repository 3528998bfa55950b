"""The shipped networks in Chainer as its users write them, with nothing of dlb."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial
from itertools import pairwise
from typing import Any

import chainer
import chainer.functions as F
import chainer.links as L
import numpy as np
from chainer import Sequential, Variable

#: A canonical parameter's name in Chainer, and in its normalisations.
NAMES = {"weight": "W", "bias": "b"}
NORM_NAMES = {"scale": "gamma", "bias": "beta", "mean": "avg_mean", "variance": "avg_var"}


class Residual(Sequential):
    """relu(body(x) + shortcut(x)), of a shortcut and a body."""

    def forward(self, x: Variable) -> Variable:
        shortcut, body = self
        return F.relu(body(x) + shortcut(x))


class Branches(Sequential):
    """What several links make of the same, one after another along the channels."""

    def forward(self, x: Variable) -> Variable:
        return F.concat([branch(x) for branch in self], 1)


def conv_norm(given: int, made: int, kernel, stride=1, pad=0, eps=1e-5, decay=0.9, groups=1):
    """A convolution and the batch normalisation after it."""
    return Sequential(
        L.Convolution2D(given, made, kernel, stride, pad, nobias=True, groups=groups),
        L.BatchNormalization(made, decay, eps),
    )


def max_pool(size: int, stride: int, pad: int = 0, *, ceil: bool = False) -> Callable:
    return partial(F.max_pooling_2d, ksize=size, stride=stride, pad=pad, cover_all=ceil)


def average_pool(x: Variable) -> Variable:
    """3 x 3 in steps of 2 over an even side, rounded up: the last windows are one short."""
    ratios = np.ones(x.shape[2] // 2, np.float32)
    ratios[-1] = 3 / 2
    padded = F.pad(x, ((0, 0), (0, 0), (0, 1), (0, 1)), "constant")
    return F.average_pooling_2d(padded, 3, 2) * np.outer(ratios, ratios)


def global_average(x: Variable) -> Variable:
    return F.average_pooling_2d(x, x.shape[2:])


def local_norm(size: int, alpha: float = 1e-4) -> Callable:
    """Local response normalisation; Chainer's alpha multiplies the sum of squares, not the mean."""
    return partial(F.local_response_normalization, n=size, k=1, alpha=alpha / size)


def dropout(rate: float) -> Callable:
    return partial(F.dropout, ratio=rate)


def lenet(
    filters: tuple[int, int],
    hidden: int,
    activation: Callable,
    *,
    channels: int = 1,
    kernel: int = 5,
    pads: tuple[int, int] = (0, 0),
    pools: tuple[Callable, Callable] = (max_pool(2, 2), max_pool(2, 2)),
    pixels: int,
    pooled_first: bool = False,
    plain: bool = False,
    drop: bool = False,
) -> Sequential:
    """Two convolutions and two linear layers: the small networks of Wu et al., and LeCun's.

    Args:
        pooled_first: the activation comes after the pooling.
        plain: the convolutions have none.
        pixels: what is left of an image.
    """
    layers: list[Callable] = []
    for given, made, pad, pool in zip((channels, filters[0]), filters, pads, pools):
        parts = [pool] if plain else [activation, pool]
        layers += [L.Convolution2D(given, made, kernel, pad=pad)]
        layers += parts[::-1] if pooled_first else parts
    layers += [L.Linear(filters[1] * pixels, hidden), activation]
    return Sequential(*layers, *([dropout(0.5)] if drop else []), L.Linear(hidden, 10))


def cifar_quick(*head: L.Linear, norms: bool = False) -> Sequential:
    """Krizhevsky's small network for CIFAR-10."""
    norm = [local_norm(3, 5e-5)] if norms else []
    return Sequential(
        L.Convolution2D(3, 32, 5, pad=2),
        max_pool(3, 2, ceil=True),
        F.relu,
        *norm,
        L.Convolution2D(32, 32, 5, pad=2),
        F.relu,
        average_pool,
        *norm,
        L.Convolution2D(32, 64, 5, pad=2),
        F.relu,
        average_pool,
        *head,
    )


def tensorflow_cifar10() -> Sequential:
    return Sequential(
        L.Convolution2D(3, 64, 5, pad=2),
        F.relu,
        max_pool(3, 2),
        local_norm(9, 1e-3),
        L.Convolution2D(64, 64, 5, pad=2),
        F.relu,
        local_norm(9, 1e-3),
        max_pool(3, 2),
        L.Linear(7 * 7 * 64, 384),
        F.relu,
        L.Linear(384, 192),
        F.relu,
        L.Linear(192, 10),
    )


def perceptron(*sizes: int) -> Sequential:
    """Linear layers with sigmoids between them."""
    layers: list[Callable] = []
    for given, made in pairwise(sizes):
        layers += [L.Linear(given, made), F.sigmoid]
    return Sequential(*layers[:-1])


def alexnet(drop: bool, *, small: bool) -> Sequential:
    """In Caffe's form, or in one tower without normalisation and dropout."""
    groups, pad = (1, 2) if small else (2, 0)
    norm = [] if small else [local_norm(5)]
    pool = max_pool(3, 2, ceil=not small)
    dropped = [dropout(0.5)] if drop and not small else []
    return Sequential(
        L.Convolution2D(3, 96, 11, 4, pad),
        F.relu,
        *norm,
        pool,
        L.Convolution2D(96, 256, 5, pad=2, groups=groups),
        F.relu,
        *norm,
        pool,
        L.Convolution2D(256, 384, 3, pad=1),
        F.relu,
        L.Convolution2D(384, 384, 3, pad=1, groups=groups),
        F.relu,
        L.Convolution2D(384, 256, 3, pad=1, groups=groups),
        F.relu,
        pool,
        L.Linear(256 * 6 * 6, 4096),
        F.relu,
        *dropped,
        L.Linear(4096, 4096),
        F.relu,
        *dropped,
        L.Linear(4096, 1000),
    )


def vgg19(drop: bool) -> Sequential:
    layers: list[Callable] = []
    given = 3
    for made, times in ((64, 2), (128, 2), (256, 4), (512, 4), (512, 4)):
        for _ in range(times):
            layers += [L.Convolution2D(given, made, 3, pad=1), F.relu]
            given = made
        layers.append(max_pool(2, 2))
    for wide in (512 * 7 * 7, 4096):
        layers += [L.Linear(wide, 4096), F.relu, *([dropout(0.5)] if drop else [])]
    return Sequential(*layers, L.Linear(4096, 1000))


def googlenet(drop: bool) -> Sequential:
    def conv(given: int, made: int, kernel: int = 1, stride: int = 1) -> Sequential:
        return Sequential(L.Convolution2D(given, made, kernel, stride, kernel // 2), F.relu)

    def inception(given, one, reduced3, three, reduced5, five, pooled) -> Branches:
        return Branches(
            conv(given, one),
            Sequential(conv(given, reduced3), conv(reduced3, three, 3)),
            Sequential(conv(given, reduced5), conv(reduced5, five, 5)),
            Sequential(max_pool(3, 1, 1), conv(given, pooled)),
        )

    return Sequential(
        conv(3, 64, 7, 2),
        max_pool(3, 2, ceil=True),
        local_norm(5),
        conv(64, 64),
        conv(64, 192, 3),
        local_norm(5),
        max_pool(3, 2, ceil=True),
        inception(192, 64, 96, 128, 16, 32, 32),
        inception(256, 128, 128, 192, 32, 96, 64),
        max_pool(3, 2, ceil=True),
        inception(480, 192, 96, 208, 16, 48, 64),
        inception(512, 160, 112, 224, 24, 64, 64),
        inception(512, 128, 128, 256, 24, 64, 64),
        inception(512, 112, 144, 288, 32, 64, 64),
        inception(528, 256, 160, 320, 32, 128, 128),
        max_pool(3, 2, ceil=True),
        inception(832, 256, 160, 320, 32, 128, 128),
        inception(832, 384, 192, 384, 48, 128, 128),
        global_average,
        *([dropout(0.4)] if drop else []),
        L.Linear(1024, 1000),
    )


def inception_v3(drop: bool) -> Sequential:
    across, down = ((1, 7), (0, 3)), ((7, 1), (3, 0))

    def conv(given: int, made: int, kernel=1, stride: int = 1, pad=0) -> Sequential:
        return Sequential(*conv_norm(given, made, kernel, stride, pad, 1e-3, 0.9997), F.relu)

    def line(given: int, *made: tuple) -> Sequential:
        """Convolutions after one another: (channels, kernel, padding)."""
        layers = []
        for channels, kernel, pad in made:
            layers.append(conv(given, channels, kernel, 1, pad))
            given = channels
        return Sequential(*layers)

    def average(given: int, made: int) -> Sequential:
        pool = partial(F.average_pooling_nd, ksize=3, stride=1, pad=1, pad_value=None)
        return Sequential(pool, conv(given, made))

    def block35(given: int, pooled: int) -> Branches:
        return Branches(
            conv(given, 64),
            line(given, (48, 1, 0), (64, 5, 2)),
            line(given, (64, 1, 0), (96, 3, 1), (96, 3, 1)),
            average(given, pooled),
        )

    def block17(wide: int) -> Branches:
        one, other = (wide, *down), (wide, *across)
        return Branches(
            conv(768, 192),
            line(768, (wide, 1, 0), other, (192, *down)),
            line(768, (wide, 1, 0), one, other, one, (192, *across)),
            average(768, 192),
        )

    def fork(given: int) -> Branches:
        return Branches(conv(given, 384, (1, 3), 1, (0, 1)), conv(given, 384, (3, 1), 1, (1, 0)))

    def block8(given: int) -> Branches:
        return Branches(
            conv(given, 320),
            Sequential(conv(given, 384), fork(384)),
            Sequential(conv(given, 448), conv(448, 384, 3, 1, 1), fork(384)),
            average(given, 192),
        )

    return Sequential(
        conv(3, 32, 3, 2),
        conv(32, 32, 3),
        conv(32, 64, 3, 1, 1),
        max_pool(3, 2),
        conv(64, 80),
        conv(80, 192, 3),
        max_pool(3, 2),
        block35(192, 32),
        block35(256, 64),
        block35(288, 64),
        Branches(
            conv(288, 384, 3, 2),
            Sequential(line(288, (64, 1, 0), (96, 3, 1)), conv(96, 96, 3, 2)),
            max_pool(3, 2),
        ),
        block17(128),
        block17(160),
        block17(160),
        block17(192),
        Branches(
            Sequential(conv(768, 192), conv(192, 320, 3, 2)),
            Sequential(line(768, (192, 1, 0), (192, *across), (192, *down)), conv(192, 192, 3, 2)),
            max_pool(3, 2),
        ),
        block8(1280),
        block8(2048),
        global_average,
        *([dropout(0.2)] if drop else []),
        L.Linear(2048, 1000),
    )


def resnet56() -> Sequential:
    layers: list[Callable] = [*conv_norm(3, 16, 3, 1, 1), F.relu]
    given = 16
    for made in (16, 32, 64):
        for place in range(9):
            stride = 2 if place == 0 and made > 16 else 1
            body = Sequential(
                *conv_norm(given, made, 3, stride, 1), F.relu, *conv_norm(made, made, 3, 1, 1)
            )
            same = given == made
            layers.append(Residual(F.identity if same else conv_norm(given, made, 1, stride), body))
            given = made
    return Sequential(*layers, global_average, L.Linear(64, 10))


def resnet50() -> Sequential:
    layers: list[Callable] = [*conv_norm(3, 64, 7, 2, 3), F.relu, max_pool(3, 2, 1)]
    given = 64
    for inner, times in ((64, 3), (128, 4), (256, 6), (512, 3)):
        for place in range(times):
            stride = 2 if place == 0 and inner > 64 else 1
            body = Sequential(
                *conv_norm(given, inner, 1, stride),
                F.relu,
                *conv_norm(inner, inner, 3, 1, 1),
                F.relu,
                *conv_norm(inner, 4 * inner, 1),
            )
            short = F.identity if place else conv_norm(given, 4 * inner, 1, stride)
            layers.append(Residual(short, body))
            given = 4 * inner
    return Sequential(*layers, global_average, L.Linear(2048, 1000))


def mobilenet() -> Sequential:
    layers: list[Callable] = [*conv_norm(3, 32, 3, 2, 1), F.relu]
    given = 32
    strides = (1, 2, 1, 2, 1, 2, 1, 1, 1, 1, 1, 2, 1)
    widths = (64, 128, 128, 256, 256, 512, 512, 512, 512, 512, 512, 1024, 1024)
    for made, stride in zip(widths, strides):
        layers += [*conv_norm(given, given, 3, stride, 1, groups=given), F.relu]
        layers += [*conv_norm(given, made, 1), F.relu]
        given = made
    return Sequential(*layers, global_average, L.Linear(1024, 1000))


class LSTM(L.StatelessLSTM):
    """An LSTM over sequences [N, T, features], with one product for the inputs of all steps."""

    def forward(self, x: Variable) -> Variable:
        cell = np.zeros((len(x), self.state_size), np.float32)
        hidden: list[Variable] = []
        for gates in F.separate(self.upward(x, n_batch_axes=2), 1):
            if hidden:
                gates += self.lateral(hidden[-1])
            cell, made = F.lstm(cell, gates)
            hidden.append(made)
        return F.stack(hidden, 1)


class Language(chainer.ChainList):
    """Two LSTM layers between an embedding and a linear layer."""

    def __init__(self, hidden: int) -> None:
        super().__init__(
            L.EmbedID(10000, hidden),
            LSTM(hidden, hidden),
            LSTM(hidden, hidden),
            L.Linear(hidden, 10000),
        )

    def forward(self, x: np.ndarray) -> Variable:
        table, lower, upper, last = self
        x = upper(lower(table(x)))
        return last(F.reshape(x, (-1, x.shape[2])))


def gelu(x: Variable) -> Variable:
    return 0.5 * x * (1 + F.erf(x / math.sqrt(2)))


def gelu_by_tanh(x: Variable) -> Variable:
    # numpy is slow with x**3.
    return 0.5 * x * (1 + F.tanh(math.sqrt(2 / math.pi) * x * (1 + 0.044715 * x**2)))


class Attention(chainer.Chain):
    """Self-attention over rows [N * T, features]; causal, a step sees no later one."""

    def __init__(self, steps: int, features: int, heads: int, *, causal: bool) -> None:
        super().__init__()
        self.shape = (-1, steps, heads, features // heads)
        self.later = np.triu(np.full((steps, steps), -1e30, np.float32), 1) if causal else None
        with self.init_scope():
            self.given = L.Linear(features, 3 * features)
            self.made = L.Linear(features, features)

    def forward(self, x: Variable) -> Variable:
        queries, keys, values = (
            F.transpose(F.reshape(rows, self.shape), (0, 2, 1, 3))
            for rows in F.split_axis(self.given(x), 3, 1)
        )
        scores = F.matmul(queries, keys, transb=True) / math.sqrt(self.shape[3])
        if self.later is not None:
            scores += self.later
        mixed = F.matmul(F.softmax(scores, 3), values)
        return self.made(F.reshape(F.transpose(mixed, (0, 2, 1, 3)), x.shape))


class Block(chainer.ChainList):
    """A pre-norm block of a transformer, over rows, as Chainer's layer normalisation takes them."""

    def __init__(self, steps: int, features: int, heads: int, rate: float, *, causal: bool) -> None:
        super().__init__(
            L.LayerNormalization(features, 1e-6),
            Attention(steps, features, heads, causal=causal),
            L.LayerNormalization(features, 1e-6),
            L.Linear(features, 4 * features),
            L.Linear(4 * features, features),
        )
        self.rate, self.gelu = rate, gelu_by_tanh if causal else gelu

    def forward(self, x: Variable) -> Variable:
        norm1, attention, norm2, wide, narrow = self
        x += F.dropout(attention(norm1(x)), self.rate)
        return x + F.dropout(narrow(self.gelu(wide(norm2(x)))), self.rate)


class Transformer(chainer.ChainList):
    """Blocks between an embedding, of words or patches, and a linear layer."""

    def __init__(
        self,
        embedding: chainer.Link,
        steps: int,
        features: int,
        blocks: int,
        heads: int,
        classes: int,
        rate: float,
        *,
        causal: bool = False,
    ) -> None:
        super().__init__(
            embedding,
            L.Parameter(np.zeros((steps, features), np.float32)),
            Sequential(
                *(Block(steps, features, heads, rate, causal=causal) for _ in range(blocks))
            ),
            L.LayerNormalization(features, 1e-6),
            # A decoder's last layer is its embedding.
            *([] if causal else [L.Linear(features, classes)]),
        )

    def forward(self, x: np.ndarray) -> Variable:
        embedding, positions, blocks, norm, *last = self
        x = embedding(x) + positions.W
        rows = norm(blocks(F.reshape(x, (-1, x.shape[2]))))
        if not last:
            return F.linear(rows, embedding.W)
        return last[0](F.mean(F.reshape(rows, x.shape), 1))


class Patches(L.Convolution2D):
    """Patches of 16 x 16 as a sequence."""

    def forward(self, x: np.ndarray) -> Variable:
        x = super().forward(x)
        return F.transpose(F.reshape(x, (*x.shape[:2], -1)), (0, 2, 1))


#: By workload; told whether dropout is to drop.
NETWORKS: dict[str, Callable[[bool], chainer.ChainList]] = {
    "lenet5": lambda drop: lenet((32, 64), 512, F.relu, pads=(2, 2), pixels=49),
    "lenet-mnist": lambda drop: lenet((20, 50), 500, F.relu, pixels=16, plain=True),
    "caffe-mnist": lambda drop: lenet((20, 50), 500, F.relu, pixels=16, plain=True),
    "tensorflow-mnist": lambda drop: lenet(
        (32, 64), 1024, F.relu, pads=(2, 2), pixels=49, drop=drop
    ),
    "theano-mnist": lambda drop: lenet((20, 50), 500, F.tanh, pixels=16, pooled_first=True),
    "torch-mnist": lambda drop: lenet(
        (32, 64), 200, F.tanh, pads=(2, 0), pools=(max_pool(3, 3, 1), max_pool(2, 2)), pixels=9
    ),
    "theano-cifar10": lambda drop: lenet(
        (4, 8),
        100,
        F.tanh,
        channels=3,
        kernel=3,
        pools=(max_pool(3, 3), max_pool(2, 2)),
        pixels=16,
        pooled_first=True,
    ),
    "torch-cifar10": lambda drop: lenet((16, 256), 128, F.tanh, channels=3, pixels=25),
    "tensorflow-cifar10": lambda drop: tensorflow_cifar10(),
    "caffe-cifar10": lambda drop: cifar_quick(L.Linear(1024, 64), L.Linear(64, 10)),
    "cifar-convnet": lambda drop: cifar_quick(L.Linear(1024, 10), norms=True),
    "alexnet-r": lambda drop: cifar_quick(L.Linear(1024, 10)),
    "fcn-r": lambda drop: perceptron(784, 2048, 4096, 1024, 10),
    "fcn-s": lambda drop: perceptron(26752, 2048, 2048, 2048, 2048, 26752),
    "alexnet": lambda drop: alexnet(drop, small=False),
    "alexnet-s": lambda drop: alexnet(drop, small=True),
    "vgg-19": vgg19,
    "googlenet": googlenet,
    "inception-v3": inception_v3,
    "resnet-56": lambda drop: resnet56(),
    "resnet-50": lambda drop: resnet50(),
    "mobilenet-v1": lambda drop: mobilenet(),
    "lstm": lambda drop: Language(256),
    "ptb-lstm": lambda drop: Language(200),
    "transformer": lambda drop: Transformer(
        L.EmbedID(10000, 128), 64, 128, 4, 4, 10000, 0.1 * drop
    ),
    "gpt-small": lambda drop: Transformer(
        L.EmbedID(10000, 128), 64, 128, 4, 4, 10000, 0.1 * drop, causal=True
    ),
    "vit-tiny": lambda drop: Transformer(
        Patches(3, 192, 16, 16), 196, 192, 12, 3, 1000, 0.1 * drop
    ),
}


def load(network: chainer.ChainList, weights: dict[str, np.ndarray]) -> None:
    """Give each layer that has parameters, in order, those of the next that is described."""
    described: dict[str, dict[str, np.ndarray]] = {}
    for name, array in weights.items():
        layer, parameter = name.split(".")
        described.setdefault(layer, {})[parameter] = array
    for link, given in zip(layers_of(network), described.values(), strict=True):
        if isinstance(link, LSTM):
            state = lstm_state(given)
        elif isinstance(link, Attention):
            state = attention_state(given)
        else:
            names = NORM_NAMES if "scale" in given else NAMES
            state = {names[name]: array for name, array in given.items()}
        for path, parameter in link.namedparams():
            parameter.array[...] = state.pop(path[1:])
        for name, array in state.items():
            getattr(link, name)[...] = array


def layers_of(link: Callable) -> Iterator[chainer.Link]:
    """The links that a list holds, and the lists in it, in the order they run.

    That is the order of a Sequential's items; its children() have another.
    """
    if isinstance(link, chainer.ChainList):
        for each in link:
            yield from layers_of(each)
    elif isinstance(link, chainer.Link):
        yield link


def lstm_state(given: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """ONNX has the gates one after another (iofc); Chainer a unit's side by side (cifo)."""

    def ordered(array: np.ndarray) -> np.ndarray:
        gates = np.split(array, 4)
        return np.stack([gates[place] for place in (3, 0, 2, 1)], 1).reshape(array.shape)

    return {
        "upward/W": ordered(given["input_weight"]),
        "upward/b": ordered(given["bias"]),
        "lateral/W": ordered(given["recurrent_weight"]),
    }


def attention_state(given: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Queries, keys and values in one matrix."""
    state = {"made/W": given["output_weight"], "made/b": given["output_bias"]}
    for name, kind in NAMES.items():
        parts = [given[f"{one}_{name}"] for one in ("query", "key", "value")]
        state[f"given/{kind}"] = np.concatenate(parts)
    return state


def late_epsilon(epsilon: float) -> Callable:
    """A hook by which Adam adds epsilon after the bias correction; Chainer's adds it before."""

    def hook(optimizer: chainer.optimizers.Adam) -> None:
        optimizer.eps = epsilon * math.sqrt(1 - optimizer.beta2 ** (optimizer.t + 1))

    return hook


def join(rank: int, workers: int) -> Any:
    """The communicator of the processes that mpiexec has started."""
    import chainermn

    return chainermn.create_communicator("naive")


class Native:
    """Training from memory.

    Args:
        workload: its name, one of NETWORKS.
        weights: by canonical name, in the order of the description.
        settings: of the optimizer: learning_rate, weight_decay and clip_norm, and momentum of
            SGD, or beta1, beta2 and epsilon of Adam.
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
        self.model = NETWORKS[workload](drop)
        load(self.model, weights)
        rate, optimizers = settings["learning_rate"], chainer.optimizers
        if "beta1" in settings:
            optimizer = optimizers.Adam(rate, settings["beta1"], settings["beta2"])
        elif settings["momentum"]:
            # No workload asks for Nesterov's, of which Chainer's is another form.
            assert not settings["nesterov"]
            optimizer = optimizers.MomentumSGD(rate, settings["momentum"])
        else:
            optimizer = optimizers.SGD(rate)
        self.optimizer: chainer.optimizer.GradientMethod = optimizer.setup(self.model)
        if "epsilon" in settings:
            optimizer.add_hook(late_epsilon(settings["epsilon"]), "late_epsilon")
        if settings["clip_norm"]:
            optimizer.add_hook(chainer.optimizer_hooks.GradientClipping(settings["clip_norm"]))
        if settings["weight_decay"]:
            optimizer.add_hook(chainer.optimizer_hooks.WeightDecay(settings["weight_decay"]))
        if peers is not None:
            import chainermn

            self.optimizer = chainermn.create_multi_node_optimizer(self.optimizer, peers)
            self.optimizer.update()  # the first only gives all the weights of rank 0
        self.inputs = inputs if inputs.dtype == np.float32 else inputs.astype(np.int32)
        self.labels = labels.astype(np.int32)

    def batches(self, order: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """The samples of each row of the order."""
        for row in order:
            yield self.inputs[row], self.labels[row]

    def step(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        """One update; the mean loss."""
        loss = F.softmax_cross_entropy(self.model(x), y.ravel())
        self.model.cleargrads()
        loss.backward()
        self.optimizer.update()
        return loss.array

    def synchronise(self) -> None:
        """Operators on a CPU return when they are done."""
