"""The shipped networks in Keras as its users write them, on TensorFlow or PyTorch, with nothing of dlb."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any, Union

import keras
import numpy as np
from keras import layers, ops

TENSORFLOW = keras.backend.backend() == "tensorflow"
if TENSORFLOW:
    import tensorflow as tf
else:
    from torch.nn.functional import avg_pool2d, local_response_norm


class Line:
    """Layers after one another: called on a symbolic tensor, as one layer is."""

    def __init__(self, *parts: Part) -> None:
        self.layers = parts

    def __call__(self, x: Any) -> Any:
        for layer in self.layers:
            x = layer(x)
        return x


Part = Union[layers.Layer, Line]


class Residual(Line):
    """relu(body(x) + shortcut(x)), of a shortcut and a body."""

    def __call__(self, x: Any) -> Any:
        shortcut, body = self.layers
        return layers.ReLU()(layers.Add()([body(x), shortcut(x)]))


class Fork(Line):
    """What several layers make of the same, as a list."""

    def __call__(self, x: Any) -> list[Any]:
        return [layer(x) for layer in self.layers]


class Branches(Fork):
    """What several layers make of the same, one after another along the channels."""

    def __call__(self, x: Any) -> Any:
        return layers.Concatenate()(keras.tree.flatten(super().__call__(x)))


class GroupedConv2D(layers.Conv2D):
    """On TensorFlow one for each group: a whole one Keras compiles with XLA on a CPU, far slower."""

    def convolution_op(self, inputs: Any, kernel: Any) -> Any:
        if not TENSORFLOW:
            return super().convolution_op(inputs, kernel)
        pairs = zip(tf.split(inputs, self.groups, -1), tf.split(kernel, self.groups, -1))
        padding = self.padding.upper()
        return tf.concat([tf.nn.conv2d(*pair, self.strides, padding) for pair in pairs], -1)


def before(kernel: int, stride: int) -> Part:
    """What a convolution needs before it to be padded by half its kernel on every side.

    With a stride of 2 Keras' ``same`` puts more after the maps than before them. The last zeros,
    which windows do not reach in maps of even size, are left out. A 1 x 1 convolution is given
    every other row and column and no stride: its gradient by the kernel, as TensorFlow 2.21 has it
    from oneDNN, writes past its memory.
    """
    if stride == 1:
        return Line()
    if kernel == 1:
        return layers.Lambda(lambda x: x[:, ::stride, ::stride])
    return layers.ZeroPadding2D([(kernel // 2, kernel // 2 - 1)] * 2)


def conv(made: int, kernel: int = 1) -> layers.Layer:
    """A convolution that leaves the size of its maps, and ReLU."""
    return layers.Conv2D(made, kernel, padding="same", activation="relu")


def conv_norm(made: int, kernel: int, stride: int = 1) -> Line:
    """A convolution, padded alike on every side, and the batch normalisation after it."""
    step, padding = (1, "same") if kernel == 1 or stride == 1 else (stride, "valid")
    return Line(
        before(kernel, stride),
        layers.Conv2D(made, kernel, step, padding, use_bias=False),
        layers.BatchNormalization(momentum=0.9, epsilon=1e-5),
    )


def response_norm(size: int, alpha: float = 1e-4) -> layers.Layer:
    """Local response normalisation; TensorFlow's alpha is of the sum and not of the mean."""
    if TENSORFLOW:
        return layers.Lambda(
            lambda x: tf.nn.local_response_normalization(x, size // 2, 1.0, alpha / size, 0.75)
        )
    return layers.Lambda(
        lambda x: local_response_norm(x.movedim(-1, 1), size, alpha, 0.75, 1.0).movedim(1, -1)
    )


def average_pool() -> layers.Layer:
    """3 x 3, stride 2, sizes rounded up: Keras 3.15 on PyTorch averages repeated edges with them."""
    if TENSORFLOW:
        return layers.AveragePooling2D(3, 2, "same")
    return layers.Lambda(
        lambda x: avg_pool2d(x.movedim(-1, 1), 3, 2, ceil_mode=True).movedim(1, -1)
    )


def dropout(rate: float, drop: bool) -> Part:
    return layers.Dropout(rate) if drop else Line()


def lenet(
    filters: tuple[int, int],
    hidden: int,
    activation: str,
    *,
    kernel: int = 5,
    pads: tuple[str, str] = ("valid", "valid"),
    pools: tuple[int, int] = (2, 2),
    pooled_first: bool = False,
    plain: bool = False,
    drop: bool = False,
) -> Line:
    """Two convolutions and two linear layers: the small networks of Wu et al., and LeCun's.

    Args:
        pooled_first: the activation comes after the pooling.
        plain: the convolutions have none.
    """
    parts: list[Part] = []
    for made, pad, size in zip(filters, pads, pools):
        at_once = None if plain or pooled_first else activation
        parts.append(layers.Conv2D(made, kernel, padding=pad, activation=at_once))
        parts.append(layers.MaxPooling2D(size, padding="same"))
        parts += [layers.Activation(activation)] if pooled_first else []
    parts += [layers.Flatten(), layers.Dense(hidden, activation)]
    return Line(*parts, dropout(0.5, drop), layers.Dense(10))


def cifar_quick(*head: layers.Layer, norms: bool = False) -> Line:
    """Krizhevsky's small network for CIFAR-10; Caffe's sizes rounded up are ``same`` here."""

    def norm() -> Part:
        return response_norm(3, 5e-5) if norms else Line()

    return Line(
        layers.Conv2D(32, 5, padding="same"),
        layers.MaxPooling2D(3, 2, "same"),
        layers.ReLU(),
        norm(),
        conv(32, 5),
        average_pool(),
        norm(),
        conv(64, 5),
        average_pool(),
        layers.Flatten(),
        *head,
    )


def tensorflow_cifar10() -> Line:
    return Line(
        conv(64, 5),
        layers.MaxPooling2D(3, 2),
        response_norm(9, 1e-3),
        conv(64, 5),
        response_norm(9, 1e-3),
        layers.MaxPooling2D(3, 2),
        layers.Flatten(),
        layers.Dense(384, "relu"),
        layers.Dense(192, "relu"),
        layers.Dense(10),
    )


def perceptron(*sizes: int) -> Line:
    """Linear layers with sigmoids between them."""
    hidden = [layers.Dense(size, "sigmoid") for size in sizes[:-1]]
    return Line(layers.Flatten(), *hidden, layers.Dense(sizes[-1]))


def alexnet(drop: bool, *, small: bool) -> Line:
    """In Caffe's form, or in one tower without normalisation and dropout."""

    def split(made: int, kernel: int) -> layers.Layer:
        if small:
            return conv(made, kernel)
        return GroupedConv2D(made, kernel, padding="same", groups=2, activation="relu")

    def norm() -> Part:
        return Line() if small else response_norm(5)

    def dropped() -> Part:
        return dropout(0.5, drop and not small)

    return Line(
        layers.ZeroPadding2D([(2, 1)] * 2) if small else Line(),
        layers.Conv2D(96, 11, 4, activation="relu"),
        norm(),
        # Caffe's 54 rows give 27, rounded up.
        layers.MaxPooling2D(3, 2, "valid" if small else "same"),
        split(256, 5),
        norm(),
        layers.MaxPooling2D(3, 2),
        conv(384, 3),
        split(384, 3),
        split(256, 3),
        layers.MaxPooling2D(3, 2),
        layers.Flatten(),
        layers.Dense(4096, "relu"),
        dropped(),
        layers.Dense(4096, "relu"),
        dropped(),
        layers.Dense(1000),
    )


def vgg19(drop: bool) -> Line:
    parts: list[Part] = []
    for made, times in ((64, 2), (128, 2), (256, 4), (512, 4), (512, 4)):
        parts += [*(conv(made, 3) for _ in range(times)), layers.MaxPooling2D(2)]
    parts.append(layers.Flatten())
    for _ in range(2):
        parts += [layers.Dense(4096, "relu"), dropout(0.5, drop)]
    return Line(*parts, layers.Dense(1000))


def googlenet(drop: bool) -> Line:
    def pool() -> layers.Layer:
        return layers.MaxPooling2D(3, 2, "same")

    def inception(one, reduced3, three, reduced5, five, pooled) -> Branches:
        return Branches(
            conv(one),
            Line(conv(reduced3), conv(three, 3)),
            Line(conv(reduced5), conv(five, 5)),
            Line(layers.MaxPooling2D(3, 1, "same"), conv(pooled)),
        )

    return Line(
        before(7, 2),
        layers.Conv2D(64, 7, 2, activation="relu"),
        pool(),
        response_norm(5),
        conv(64),
        conv(192, 3),
        response_norm(5),
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
        layers.GlobalAveragePooling2D(),
        dropout(0.4, drop),
        layers.Dense(1000),
    )


def inception_v3(drop: bool) -> Line:
    across, down = (1, 7), (7, 1)

    def norm(made: int, kernel=1, stride: int = 1, pad: str = "same") -> Line:
        return Line(
            layers.Conv2D(made, kernel, stride, pad, use_bias=False),
            layers.BatchNormalization(momentum=0.9997, epsilon=1e-3),
            layers.ReLU(),
        )

    def convs(*made: tuple) -> Line:
        """Convolutions after one another: (channels, kernel, stride, padding)."""
        return Line(*(norm(*each) for each in made))

    def average(made: int) -> Line:
        return Line(layers.AveragePooling2D(3, 1, "same"), norm(made))

    def block35(pooled: int) -> Branches:
        return Branches(
            norm(64), convs((48,), (64, 5)), convs((64,), (96, 3), (96, 3)), average(pooled)
        )

    def block17(wide: int) -> Branches:
        return Branches(
            norm(192),
            convs((wide,), (wide, across), (192, down)),
            convs((wide,), (wide, down), (wide, across), (wide, down), (192, across)),
            average(192),
        )

    def fork() -> Fork:
        return Fork(norm(384, (1, 3)), norm(384, (3, 1)))

    def block8() -> Branches:
        return Branches(
            norm(320),
            Line(norm(384), fork()),
            Line(norm(448), norm(384, 3), fork()),
            average(192),
        )

    return Line(
        norm(32, 3, 2, "valid"),
        norm(32, 3, 1, "valid"),
        norm(64, 3),
        layers.MaxPooling2D(3, 2),
        norm(80),
        norm(192, 3, 1, "valid"),
        layers.MaxPooling2D(3, 2),
        block35(32),
        block35(64),
        block35(64),
        Branches(
            norm(384, 3, 2, "valid"),
            convs((64,), (96, 3), (96, 3, 2, "valid")),
            layers.MaxPooling2D(3, 2),
        ),
        block17(128),
        block17(160),
        block17(160),
        block17(192),
        Branches(
            convs((192,), (320, 3, 2, "valid")),
            convs((192,), (192, across), (192, down), (192, 3, 2, "valid")),
            layers.MaxPooling2D(3, 2),
        ),
        block8(),
        block8(),
        layers.GlobalAveragePooling2D(),
        dropout(0.2, drop),
        layers.Dense(1000),
    )


def resnet56() -> Line:
    parts: list[Part] = [conv_norm(16, 3), layers.ReLU()]
    for made in (16, 32, 64):
        for place in range(9):
            stride = 2 if place == 0 and made > 16 else 1
            body = Line(conv_norm(made, 3, stride), layers.ReLU(), conv_norm(made, 3))
            short = Line() if stride == 1 else conv_norm(made, 1, stride)
            parts.append(Residual(short, body))
    return Line(*parts, layers.GlobalAveragePooling2D(), layers.Dense(10))


def resnet50() -> Line:
    parts: list[Part] = [conv_norm(64, 7, 2), layers.ReLU()]
    # Nothing is below zero here, so that zeros around it never win.
    parts += [layers.ZeroPadding2D([(1, 0)] * 2), layers.MaxPooling2D(3, 2)]
    for inner, times in ((64, 3), (128, 4), (256, 6), (512, 3)):
        for place in range(times):
            stride = 2 if place == 0 and inner > 64 else 1
            body = Line(
                conv_norm(inner, 1, stride),
                layers.ReLU(),
                conv_norm(inner, 3),
                layers.ReLU(),
                conv_norm(4 * inner, 1),
            )
            short = Line() if place else conv_norm(4 * inner, 1, stride)
            parts.append(Residual(short, body))
    return Line(*parts, layers.GlobalAveragePooling2D(), layers.Dense(1000))


def mobilenet() -> Line:
    parts: list[Part] = [conv_norm(32, 3, 2), layers.ReLU()]
    strides = (1, 2, 1, 2, 1, 2, 1, 1, 1, 1, 1, 2, 1)
    widths = (64, 128, 128, 256, 256, 512, 512, 512, 512, 512, 512, 1024, 1024)
    for made, stride in zip(widths, strides):
        padding = "same" if stride == 1 else "valid"
        parts += [
            before(3, stride),
            layers.DepthwiseConv2D(3, stride, padding, use_bias=False),
            layers.BatchNormalization(momentum=0.9, epsilon=1e-5),
            layers.ReLU(),
            conv_norm(made, 1),
            layers.ReLU(),
        ]
    return Line(*parts, layers.GlobalAveragePooling2D(), layers.Dense(1000))


def language(hidden: int) -> Line:
    """Two LSTM layers between an embedding and a linear layer."""
    return Line(
        layers.Embedding(10000, hidden),
        layers.LSTM(hidden, return_sequences=True),
        layers.LSTM(hidden, return_sequences=True),
        layers.Dense(10000),
    )


class Block(keras.Model):
    """A pre-norm block of a transformer."""

    def __init__(self, features: int, heads: int, rate: float, *, causal: bool) -> None:
        super().__init__()
        self.norm1 = layers.LayerNormalization(epsilon=1e-6)
        self.attention = layers.MultiHeadAttention(heads, features // heads)
        self.norm2 = layers.LayerNormalization(epsilon=1e-6)
        self.wide = layers.Dense(4 * features)
        self.narrow = layers.Dense(features)
        self.drop1, self.drop2 = layers.Dropout(rate), layers.Dropout(rate)
        self.causal = causal

    def call(self, x: Any) -> Any:
        given = self.norm1(x)
        x = x + self.drop1(self.attention(given, given, use_causal_mask=self.causal))
        made = keras.activations.gelu(self.wide(self.norm2(x)), approximate=self.causal)
        return x + self.drop2(self.narrow(made))


class Positions(layers.Layer):
    """A table added to every sequence."""

    def build(self, shape: tuple[int | None, ...]) -> None:
        self.table = self.add_weight(shape=shape[1:])

    def call(self, x: Any) -> Any:
        return x + self.table


class Transformer(keras.Model):
    """Blocks between an embedding, of words or patches, and a linear layer."""

    def __init__(
        self,
        embedding: layers.Layer,
        features: int,
        blocks: int,
        heads: int,
        classes: int,
        rate: float,
        *,
        causal: bool = False,
    ) -> None:
        super().__init__()
        self.embedding, self.positions = embedding, Positions()
        self.blocks = [Block(features, heads, rate, causal=causal) for _ in range(blocks)]
        self.norm = layers.LayerNormalization(epsilon=1e-6)
        # A decoder's last layer is its embedding.
        self.last = None if causal else layers.Dense(classes)

    def call(self, x: Any) -> Any:
        x = self.positions(self.embedding(x))
        for block in self.blocks:
            x = block(x)
        x = self.norm(x)
        if self.last is None:
            return self.embedding(x, reverse=True)
        return self.last(ops.mean(x, 1))


def patches() -> keras.Sequential:
    """Patches of 16 x 16 as a sequence."""
    return keras.Sequential([layers.Conv2D(192, 16, 16), layers.Reshape((196, 192))])


SAME = ("same", "same")
#: By workload; told whether dropout is to drop.
NETWORKS: dict[str, Callable[[bool], Part]] = {
    "lenet5": lambda drop: lenet((32, 64), 512, "relu", pads=SAME),
    "lenet-mnist": lambda drop: lenet((20, 50), 500, "relu", plain=True),
    "caffe-mnist": lambda drop: lenet((20, 50), 500, "relu", plain=True),
    "tensorflow-mnist": lambda drop: lenet((32, 64), 1024, "relu", pads=SAME, drop=drop),
    "theano-mnist": lambda drop: lenet((20, 50), 500, "tanh", pooled_first=True),
    "torch-mnist": lambda drop: lenet((32, 64), 200, "tanh", pads=("same", "valid"), pools=(3, 2)),
    "theano-cifar10": lambda drop: lenet(
        (4, 8), 100, "tanh", kernel=3, pools=(3, 2), pooled_first=True
    ),
    "torch-cifar10": lambda drop: lenet((16, 256), 128, "tanh"),
    "tensorflow-cifar10": lambda drop: tensorflow_cifar10(),
    "caffe-cifar10": lambda drop: cifar_quick(layers.Dense(64), layers.Dense(10)),
    "cifar-convnet": lambda drop: cifar_quick(layers.Dense(10), norms=True),
    "alexnet-r": lambda drop: cifar_quick(layers.Dense(10)),
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
        layers.Embedding(10000, 128), 128, 4, 4, 10000, 0.1 * drop
    ),
    "gpt-small": lambda drop: Transformer(
        layers.ReversibleEmbedding(10000, 128), 128, 4, 4, 10000, 0.1 * drop, causal=True
    ),
    "vit-tiny": lambda drop: Transformer(patches(), 192, 12, 3, 1000, 0.1 * drop),
}


def load(network: Part, weights: dict[str, np.ndarray]) -> None:
    """Give each layer that has parameters, in order, those of the next that is described."""
    described: dict[str, dict[str, np.ndarray]] = {}
    for name, array in weights.items():
        layer, parameter = name.split(".")
        described.setdefault(layer, {})[parameter] = array
    left, filters, flattened = iter(described.values()), 1, 1
    for layer in leaves(network):
        if isinstance(layer, layers.Flatten):
            flattened = filters
        if layer.weights:
            layer.set_weights(as_kept(layer, next(left), flattened))
            filters, flattened = getattr(layer, "filters", filters), 1
    assert next(left, None) is None


def leaves(part: Part) -> Iterator[layers.Layer]:
    """The layers in a line or a model, and in those in it, in order."""
    if isinstance(part, (Line, keras.Model)):
        for inner in part.layers:
            yield from leaves(inner)
    else:
        yield part


def as_kept(layer: layers.Layer, given: dict[str, np.ndarray], flattened: int) -> list[np.ndarray]:
    """A layer's weights as Keras keeps them.

    Args:
        flattened: channels of the maps that were flattened before the layer, else 1; they come
            last here, and first in what is given.
    """
    if isinstance(layer, layers.LSTM):
        # Gates are described in ONNX's order (iofc); Keras has ifco.
        return [
            np.concatenate([np.split(array, 4)[place] for place in (0, 2, 3, 1)]).T
            for array in (given["input_weight"], given["recurrent_weight"], given["bias"])
        ]
    if isinstance(layer, layers.MultiHeadAttention):
        maps = ("query", "key", "value", "output")
        names = [f"{one}_{kind}" for one in maps for kind in ("weight", "bias")]
        return [given[name].T.reshape(kept.shape) for name, kept in zip(names, layer.weights)]
    first, *rest = given.values()
    if isinstance(layer, layers.DepthwiseConv2D):
        first = first.transpose(2, 3, 0, 1)
    elif isinstance(layer, layers.Conv2D):
        first = first.transpose(2, 3, 1, 0)
    elif isinstance(layer, layers.Dense):
        first = first.reshape(len(first), flattened, -1).T.reshape(-1, len(first))
    return [first, *rest]


def built(
    workload: str,
    weights: dict[str, np.ndarray],
    shape: tuple[int, ...],
    dtype: str,
    batch_size: int,
    *,
    drop: bool,
) -> keras.Model:
    """A network with its weights, for batches of samples of one shape, channels last.

    After ``keras.utils.clear_session()`` layers are numbered from the first, as in a program of its own:
    TensorFlow adds gradients of what several layers read in the order of their names.
    """
    given = keras.Input(shape, batch_size, dtype=dtype)
    network = NETWORKS[workload](drop)
    model = keras.Model(given, network(given))
    load(network, weights)
    return model


class Steps(keras.callbacks.Callback):
    """Seconds of each step of a fit, and the mean loss up to it."""

    def __init__(self) -> None:
        super().__init__()
        self.seconds: list[float] = []
        self.losses: list[float] = []

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        self.began = time.perf_counter()

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.seconds.append(time.perf_counter() - self.began)
        self.losses.append(logs["loss"])


def fitted(
    model: keras.Model, optimizer: Any, *batches: Any, **options: Any
) -> tuple[list[float], list[float]]:
    """Seconds of each step in which Keras' own loop trains on the batches; mean losses up to it."""
    if not model.compiled:
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(optimizer, loss, jit_compile=False)
    steps = Steps()
    model.fit(*batches, verbose=0, shuffle=False, callbacks=[steps], **options)
    return steps.seconds, steps.losses
