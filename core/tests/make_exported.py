"""Makes ``exported/*.onnx``: the models of ``exported_models.py`` as each framework exports them.

Run it in an environment that has the framework, once for each::

    python make_exported.py torch|keras|mxnet|chainer

Every model is written as the framework's users would, without dlb. Weights are random.
"""

# mypy: ignore-errors
from __future__ import annotations

import os
import sys
from pathlib import Path

import numpy as np

FOLDER = Path(__file__).parent / "exported"
SHAPES = {"lenet": (1, 12, 12), "residual": (3, 8, 8), "branches": (3, 9, 9), "tokens": (6,)}


def make_torch() -> None:
    import torch
    from torch import nn
    from torch.nn import functional as F

    class LeNet(nn.Sequential):
        def __init__(self) -> None:
            super().__init__(
                *(nn.Conv2d(1, 4, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2)),
                *(nn.Conv2d(4, 6, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()),
                *(nn.Linear(24, 10), nn.ReLU(), nn.Linear(10, 5)),
            )

    class Residual(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv1 = nn.Conv2d(3, 4, 3, padding=1, bias=False)
            self.conv2 = nn.Conv2d(4, 4, 3, padding=1, bias=False)
            self.conv3 = nn.Conv2d(4, 6, 3, stride=2, padding=1)
            self.bn1, self.bn2, self.bn3 = (nn.BatchNorm2d(4, eps=1e-3) for _ in range(3))
            self.mean, self.fc = nn.AdaptiveAvgPool2d(1), nn.Linear(6, 5)

        def forward(self, x):
            x = F.relu(self.bn1(self.conv1(x)))
            x = F.relu(self.bn2(self.conv2(x)) + x)
            x = self.conv3(F.relu(self.bn3(x)))
            return self.fc(torch.flatten(self.mean(x), 1))

    class Branches(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.pad, self.conv1 = nn.ZeroPad2d((1, 0, 0, 1)), nn.Conv2d(3, 8, 3)
            self.lrn = nn.LocalResponseNorm(5, alpha=1e-2, beta=0.75, k=2.0)
            self.pool1 = nn.AvgPool2d(3, 1, 1)
            self.conv2, self.dropout = nn.Conv2d(8, 4, 1), nn.Dropout(0.4)
            self.pool2, self.fc = nn.AvgPool2d(3, 2), nn.Linear(108, 5)

        def forward(self, x):
            x = self.lrn(F.relu(self.conv1(self.pad(x))))
            x = torch.cat([self.pool1(x), torch.tanh(self.conv2(x))], 1)
            return self.fc(self.pool2(self.dropout(x)).flatten(1))

    class Tokens(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding = nn.Embedding(11, 3)
            self.lstm = nn.LSTM(3, 4, batch_first=True)
            self.fc = nn.Linear(4, 5)

        def forward(self, x):
            return self.fc(self.lstm(self.embedding(x))[0])

    torch.manual_seed(1)
    for name, kind in zip(SHAPES, (LeNet, Residual, Branches, Tokens)):
        model = kind().eval()
        for layer in model.modules():
            if isinstance(layer, nn.BatchNorm2d):
                layer.running_mean.normal_()
                layer.running_var.uniform_(0.5, 2)
        x = torch.zeros(2, *SHAPES[name], dtype=torch.int64 if name == "tokens" else torch.float32)
        names = {"input_names": ["input"], "output_names": ["output"]}
        torch.onnx.export(
            model,
            (x,),
            str(FOLDER / f"torch-{name}.onnx"),
            dynamo=True,
            external_data=False,
            dynamic_shapes=({0: torch.export.Dim("batch")},),
            **names,
        )
        torch.onnx.export(
            model,
            (x,),
            str(FOLDER / f"torch-script-{name}.onnx"),
            dynamo=False,
            dynamic_axes={"input": {0: "batch"}, "output": {0: "batch"}},
            **names,
        )


def make_keras() -> None:
    import keras
    import tensorflow as tf
    import tf2onnx
    from keras import layers as K

    def lrn(x):
        return tf.nn.local_response_normalization(x, 2, bias=2.0, alpha=1e-2 / 5, beta=0.75)

    def lenet(x):
        x = K.MaxPooling2D()(K.Conv2D(4, 5, padding="same", activation="relu")(x))
        x = K.MaxPooling2D()(K.Conv2D(6, 3, activation="relu")(x))
        return K.Dense(5)(K.Dense(10, activation="relu")(K.Flatten()(x)))

    def residual(x):
        x = K.Conv2D(4, 3, padding="same", use_bias=False)(x)
        x = K.ReLU()(K.BatchNormalization(epsilon=1e-3)(x))
        y = K.Conv2D(4, 3, padding="same", use_bias=False)(x)
        x = K.ReLU()(K.Add()([K.BatchNormalization(epsilon=1e-3)(y), x]))
        x = K.ReLU()(K.BatchNormalization(epsilon=1e-3)(x))
        x = K.Conv2D(6, 3, strides=2)(K.ZeroPadding2D(1)(x))
        return K.Dense(5)(K.GlobalAveragePooling2D()(x))

    def branches(x):
        x = K.Conv2D(8, 3, activation="relu")(K.ZeroPadding2D(((0, 1), (1, 0)))(x))
        x = K.Lambda(lrn)(x)
        first = K.AveragePooling2D(3, 1)(K.ZeroPadding2D(1)(x))
        second = K.Conv2D(4, 1, activation="tanh")(x)
        x = K.Dropout(0.4)(K.Concatenate()([first, second]))
        return K.Dense(5)(K.Flatten()(K.AveragePooling2D(3, 2)(x)))

    def tokens(x):
        return K.Dense(5)(K.LSTM(4, return_sequences=True)(K.Embedding(11, 3)(x)))

    keras.utils.set_random_seed(1)
    for name, build in zip(SHAPES, (lenet, residual, branches, tokens)):
        shape = SHAPES[name] if name == "tokens" else (*SHAPES[name][1:], SHAPES[name][0])
        kind = "int64" if name == "tokens" else "float32"
        given = keras.Input(shape, dtype=kind)
        model = keras.Model(given, build(given))
        for weight in model.weights:
            weight.assign(np.random.default_rng(1).uniform(0.1, 1, weight.shape))
        function = tf.function(lambda x, model=model: model(x, training=False))
        signature = [tf.TensorSpec([None, *shape], kind, name="input")]
        tf2onnx.convert.from_function(
            function, signature, opset=17, output_path=str(FOLDER / f"keras-{name}.onnx")
        )


def make_mxnet() -> None:
    np.bool = bool  # MXNet 1.9.1 still asks for it
    import mxnet as mx
    from mxnet.gluon import nn, rnn

    def lenet():
        net = nn.HybridSequential()
        net.add(nn.Conv2D(4, 5, padding=2, activation="relu"), nn.MaxPool2D(2))
        net.add(nn.Conv2D(6, 3, activation="relu"), nn.MaxPool2D(2), nn.Flatten())
        net.add(nn.Dense(10, activation="relu"), nn.Dense(5))
        return net

    class Residual(nn.HybridBlock):
        def __init__(self):
            super().__init__()
            self.conv1 = nn.Conv2D(4, 3, padding=1, use_bias=False)
            self.conv2 = nn.Conv2D(4, 3, padding=1, use_bias=False)
            self.conv3 = nn.Conv2D(6, 3, strides=2, padding=1)
            self.bn1, self.bn2 = nn.BatchNorm(epsilon=1e-3), nn.BatchNorm(epsilon=1e-3)
            self.bn3, self.mean = nn.BatchNorm(epsilon=1e-3), nn.GlobalAvgPool2D()
            self.fc = nn.Dense(5)

        def hybrid_forward(self, F, x):
            x = F.relu(self.bn1(self.conv1(x)))
            x = F.relu(self.bn2(self.conv2(x)) + x)
            return self.fc(self.mean(self.conv3(F.relu(self.bn3(x)))))

    class Branches(nn.HybridBlock):
        def __init__(self):
            super().__init__()
            self.conv1, self.conv2 = nn.Conv2D(8, 3), nn.Conv2D(4, 1, activation="tanh")
            self.pool1, self.pool2 = nn.AvgPool2D(3, 1, 1), nn.AvgPool2D(3, 2)
            self.dropout, self.fc = nn.Dropout(0.4), nn.Dense(5)

        def hybrid_forward(self, F, x):
            x = F.pad(x, mode="constant", pad_width=(0, 0, 0, 0, 0, 1, 1, 0), constant_value=0)
            x = F.LRN(F.relu(self.conv1(x)), nsize=5, alpha=1e-2, beta=0.75, knorm=2.0)
            x = F.concat(self.pool1(x), self.conv2(x), dim=1)
            return self.fc(self.pool2(self.dropout(x)))

    class Tokens(nn.HybridBlock):
        def __init__(self):
            super().__init__()
            self.embedding = nn.Embedding(11, 3)
            self.lstm = rnn.LSTM(4, layout="NTC", input_size=3)
            self.fc = nn.Dense(5, flatten=False)

        def hybrid_forward(self, F, x):
            return self.fc(self.lstm(self.embedding(x)))

    for name, kind in zip(SHAPES, (lenet, Residual, Branches, Tokens)):
        net = kind()
        net.initialize(mx.init.Uniform(1))
        net.hybridize()
        shape = (2, *SHAPES[name])
        net(mx.nd.zeros(shape))
        net.export(str(FOLDER / name))
        symbol, parameters = FOLDER / f"{name}-symbol.json", FOLDER / f"{name}-0000.params"
        try:
            mx.onnx.export_model(
                *(str(symbol), str(parameters), [shape], np.float32),
                str(FOLDER / f"mxnet-{name}.onnx"),
            )
        finally:
            symbol.unlink()
            parameters.unlink()


def make_chainer() -> None:
    import chainer
    import onnx_chainer
    from chainer import functions as F
    from chainer import links as L

    class Net(chainer.Chain):
        def __init__(self, run, **links):
            super().__init__()
            self.run = run
            with self.init_scope():
                for name, link in links.items():
                    setattr(self, name, link)

        def forward(self, x):
            return self.run(self, x)

    def lenet(net, x):
        x = F.max_pooling_2d(F.relu(net.conv1(x)), 2, cover_all=False)
        x = F.max_pooling_2d(F.relu(net.conv2(x)), 2, cover_all=False)
        return net.fc2(F.relu(net.fc1(x)))

    def residual(net, x):
        x = F.relu(net.bn1(net.conv1(x)))
        x = F.relu(net.bn2(net.conv2(x)) + x)
        return net.fc(F.average(net.conv3(F.relu(net.bn3(x))), axis=(2, 3), keepdims=True))

    def branches(net, x):
        x = F.pad(x, ((0, 0), (0, 0), (0, 1), (1, 0)), "constant", constant_values=0)
        x = F.relu(net.conv1(x))
        x = F.local_response_normalization(x, n=5, k=2.0, alpha=1e-2 / 5, beta=0.75)
        x = F.concat([F.average_pooling_2d(x, 3, 1, 1), F.tanh(net.conv2(x))], axis=1)
        return net.fc(F.average_pooling_2d(F.dropout(x, 0.4), 3, 2))

    def conv(*given, **named):
        return L.Convolution2D(*given, **named)

    nets = {
        "lenet": Net(
            lenet,
            conv1=conv(1, 4, 5, pad=2),
            conv2=conv(4, 6, 3),
            fc1=L.Linear(24, 10),
            fc2=L.Linear(10, 5),
        ),
        "residual": Net(
            residual,
            conv1=conv(3, 4, 3, pad=1, nobias=True),
            fc=L.Linear(6, 5),
            conv2=conv(4, 4, 3, pad=1, nobias=True),
            conv3=conv(4, 6, 3, stride=2, pad=1),
            **{f"bn{k}": L.BatchNormalization(4, eps=1e-3) for k in (1, 2, 3)},
        ),
        "branches": Net(branches, conv1=conv(3, 8, 3), conv2=conv(8, 4, 1), fc=L.Linear(108, 5)),
    }
    for name, net in nets.items():
        x = np.zeros((2, *SHAPES[name]), np.float32)
        with chainer.using_config("train", False):
            onnx_chainer.export(
                net, x, filename=str(FOLDER / f"chainer-{name}.onnx"), opset_version=11
            )


if __name__ == "__main__":
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    FOLDER.mkdir(exist_ok=True)
    globals()[f"make_{sys.argv[1]}"]()
