"""The shipped networks in torch as its users write them, with nothing of dlb."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib.util import find_spec
from itertools import pairwise

import numpy as np
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

#: A canonical parameter's name in torch, where it is another.
NAMES = {"scale": "weight", "mean": "running_mean", "variance": "running_var"}


class Residual(nn.Module):
    """relu(body(x) + shortcut(x))."""

    def __init__(self, shortcut: nn.Module, body: nn.Module) -> None:
        super().__init__()
        self.shortcut, self.body = shortcut, body

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.body(x) + self.shortcut(x))


class Branches(nn.Module):
    """What several modules make of the same, one after another along the channels."""

    def __init__(self, *branches: nn.Module) -> None:
        super().__init__()
        self.branches = nn.ModuleList(branches)

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([branch(x) for branch in self.branches], 1)


def conv_norm(given: int, made: int, kernel, stride=1, pad=0, epsilon=1e-5, momentum=0.1, groups=1):
    """A convolution and the batch normalisation after it."""
    return nn.Sequential(
        nn.Conv2d(given, made, kernel, stride, pad, groups=groups, bias=False),
        nn.BatchNorm2d(made, epsilon, momentum),
    )


def lenet(
    filters: tuple[int, int],
    hidden: int,
    activation: type[nn.Module],
    *,
    channels: int = 1,
    kernel: int = 5,
    pads: tuple[int, int] = (0, 0),
    pools: tuple[nn.Module, nn.Module],
    pixels: int,
    pooled_first: bool = False,
    plain: bool = False,
    drop: bool = False,
) -> nn.Sequential:
    """Two convolutions and two linear layers: the small networks of Wu et al., and LeCun's.

    Args:
        pooled_first: the activation comes after the pooling.
        plain: the convolutions have none.
        pixels: what is left of an image.
    """
    layers: list[nn.Module] = []
    for given, made, pad, pool in zip((channels, filters[0]), filters, pads, pools):
        parts = [pool] if plain else [activation(), pool]
        layers += [nn.Conv2d(given, made, kernel, padding=pad)]
        layers += parts[::-1] if pooled_first else parts
    layers += [nn.Flatten(), nn.Linear(filters[1] * pixels, hidden), activation()]
    return nn.Sequential(*layers, *([nn.Dropout(0.5)] if drop else []), nn.Linear(hidden, 10))


def cifar_quick(*head: nn.Module, norms: bool = False) -> nn.Sequential:
    """Krizhevsky's small network for CIFAR-10."""

    def norm() -> list[nn.Module]:
        return [nn.LocalResponseNorm(3, alpha=5e-5)] if norms else []

    return nn.Sequential(
        nn.Conv2d(3, 32, 5, padding=2),
        nn.MaxPool2d(3, 2, ceil_mode=True),
        nn.ReLU(),
        *norm(),
        nn.Conv2d(32, 32, 5, padding=2),
        nn.ReLU(),
        nn.AvgPool2d(3, 2, ceil_mode=True),
        *norm(),
        nn.Conv2d(32, 64, 5, padding=2),
        nn.ReLU(),
        nn.AvgPool2d(3, 2, ceil_mode=True),
        nn.Flatten(),
        *head,
    )


def tensorflow_cifar10() -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(3, 64, 5, padding=2),
        nn.ReLU(),
        nn.MaxPool2d(3, 2),
        nn.LocalResponseNorm(9, alpha=1e-3),
        nn.Conv2d(64, 64, 5, padding=2),
        nn.ReLU(),
        nn.LocalResponseNorm(9, alpha=1e-3),
        nn.MaxPool2d(3, 2),
        nn.Flatten(),
        nn.Linear(7 * 7 * 64, 384),
        nn.ReLU(),
        nn.Linear(384, 192),
        nn.ReLU(),
        nn.Linear(192, 10),
    )


def perceptron(*sizes: int) -> nn.Sequential:
    """Linear layers with sigmoids between them."""
    layers: list[nn.Module] = [nn.Flatten()]
    for given, made in pairwise(sizes):
        layers += [nn.Linear(given, made), nn.Sigmoid()]
    return nn.Sequential(*layers[:-1])


def alexnet(drop: bool, *, small: bool) -> nn.Sequential:
    """In Caffe's form, or in one tower without normalisation and dropout."""
    groups, pad, side = (1, 2, 6) if small else (2, 0, 6)

    def norm() -> list[nn.Module]:
        return [] if small else [nn.LocalResponseNorm(5)]

    def pool() -> nn.Module:
        return nn.MaxPool2d(3, 2, ceil_mode=not small)

    def dropped() -> list[nn.Module]:
        return [nn.Dropout(0.5)] if drop and not small else []

    return nn.Sequential(
        nn.Conv2d(3, 96, 11, 4, pad),
        nn.ReLU(),
        *norm(),
        pool(),
        nn.Conv2d(96, 256, 5, padding=2, groups=groups),
        nn.ReLU(),
        *norm(),
        pool(),
        nn.Conv2d(256, 384, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(384, 384, 3, padding=1, groups=groups),
        nn.ReLU(),
        nn.Conv2d(384, 256, 3, padding=1, groups=groups),
        nn.ReLU(),
        pool(),
        nn.Flatten(),
        nn.Linear(256 * side * side, 4096),
        nn.ReLU(),
        *dropped(),
        nn.Linear(4096, 4096),
        nn.ReLU(),
        *dropped(),
        nn.Linear(4096, 1000),
    )


def vgg19(drop: bool) -> nn.Sequential:
    layers: list[nn.Module] = []
    given = 3
    for made, times in ((64, 2), (128, 2), (256, 4), (512, 4), (512, 4)):
        for _ in range(times):
            layers += [nn.Conv2d(given, made, 3, padding=1), nn.ReLU()]
            given = made
        layers.append(nn.MaxPool2d(2))
    layers.append(nn.Flatten())
    for wide in (512 * 7 * 7, 4096):
        layers += [nn.Linear(wide, 4096), nn.ReLU(), *([nn.Dropout(0.5)] if drop else [])]
    return nn.Sequential(*layers, nn.Linear(4096, 1000))


def googlenet(drop: bool) -> nn.Sequential:
    def conv(given: int, made: int, kernel: int = 1, stride: int = 1) -> nn.Sequential:
        return nn.Sequential(nn.Conv2d(given, made, kernel, stride, kernel // 2), nn.ReLU())

    def inception(given, one, reduced3, three, reduced5, five, pooled) -> Branches:
        return Branches(
            conv(given, one),
            nn.Sequential(conv(given, reduced3), conv(reduced3, three, 3)),
            nn.Sequential(conv(given, reduced5), conv(reduced5, five, 5)),
            nn.Sequential(nn.MaxPool2d(3, 1, 1), conv(given, pooled)),
        )

    return nn.Sequential(
        conv(3, 64, 7, 2),
        nn.MaxPool2d(3, 2, ceil_mode=True),
        nn.LocalResponseNorm(5),
        conv(64, 64),
        conv(64, 192, 3),
        nn.LocalResponseNorm(5),
        nn.MaxPool2d(3, 2, ceil_mode=True),
        inception(192, 64, 96, 128, 16, 32, 32),
        inception(256, 128, 128, 192, 32, 96, 64),
        nn.MaxPool2d(3, 2, ceil_mode=True),
        inception(480, 192, 96, 208, 16, 48, 64),
        inception(512, 160, 112, 224, 24, 64, 64),
        inception(512, 128, 128, 256, 24, 64, 64),
        inception(512, 112, 144, 288, 32, 64, 64),
        inception(528, 256, 160, 320, 32, 128, 128),
        nn.MaxPool2d(3, 2, ceil_mode=True),
        inception(832, 256, 160, 320, 32, 128, 128),
        inception(832, 384, 192, 384, 48, 128, 128),
        nn.AdaptiveAvgPool2d(1),
        *([nn.Dropout(0.4)] if drop else []),
        nn.Flatten(),
        nn.Linear(1024, 1000),
    )


def inception_v3(drop: bool) -> nn.Sequential:
    def conv(given: int, made: int, kernel=1, stride: int = 1, pad=0) -> nn.Sequential:
        return nn.Sequential(*conv_norm(given, made, kernel, stride, pad, 1e-3, 3e-4), nn.ReLU())

    def line(given: int, *made: tuple) -> nn.Sequential:
        """Convolutions after one another: (channels, kernel, padding)."""
        layers = []
        for channels, kernel, pad in made:
            layers.append(conv(given, channels, kernel, 1, pad))
            given = channels
        return nn.Sequential(*layers)

    def average(given: int, made: int) -> nn.Sequential:
        pool = nn.AvgPool2d(3, 1, 1, count_include_pad=False)
        return nn.Sequential(pool, conv(given, made))

    def block35(given: int, pooled: int) -> Branches:
        return Branches(
            conv(given, 64),
            line(given, (48, 1, 0), (64, 5, 2)),
            line(given, (64, 1, 0), (96, 3, 1), (96, 3, 1)),
            average(given, pooled),
        )

    def block17(wide: int) -> Branches:
        across, down = ((1, 7), (0, 3)), ((7, 1), (3, 0))
        return Branches(
            conv(768, 192),
            line(768, (wide, 1, 0), (wide, *across), (192, *down)),
            line(
                768,
                (wide, 1, 0),
                (wide, *down),
                (wide, *across),
                (wide, *down),
                (192, *across),
            ),
            average(768, 192),
        )

    def fork(given: int) -> Branches:
        return Branches(conv(given, 384, (1, 3), 1, (0, 1)), conv(given, 384, (3, 1), 1, (1, 0)))

    def block8(given: int) -> Branches:
        return Branches(
            conv(given, 320),
            nn.Sequential(conv(given, 384), fork(384)),
            nn.Sequential(conv(given, 448), conv(448, 384, 3, 1, 1), fork(384)),
            average(given, 192),
        )

    across, down = ((1, 7), (0, 3)), ((7, 1), (3, 0))
    return nn.Sequential(
        conv(3, 32, 3, 2),
        conv(32, 32, 3),
        conv(32, 64, 3, 1, 1),
        nn.MaxPool2d(3, 2),
        conv(64, 80),
        conv(80, 192, 3),
        nn.MaxPool2d(3, 2),
        block35(192, 32),
        block35(256, 64),
        block35(288, 64),
        Branches(
            conv(288, 384, 3, 2),
            nn.Sequential(line(288, (64, 1, 0), (96, 3, 1)), conv(96, 96, 3, 2)),
            nn.MaxPool2d(3, 2),
        ),
        block17(128),
        block17(160),
        block17(160),
        block17(192),
        Branches(
            nn.Sequential(conv(768, 192), conv(192, 320, 3, 2)),
            nn.Sequential(
                line(768, (192, 1, 0), (192, *across), (192, *down)), conv(192, 192, 3, 2)
            ),
            nn.MaxPool2d(3, 2),
        ),
        block8(1280),
        block8(2048),
        nn.AdaptiveAvgPool2d(1),
        *([nn.Dropout(0.2)] if drop else []),
        nn.Flatten(),
        nn.Linear(2048, 1000),
    )


def resnet56() -> nn.Sequential:
    layers: list[nn.Module] = [*conv_norm(3, 16, 3, 1, 1), nn.ReLU()]
    given = 16
    for made in (16, 32, 64):
        for place in range(9):
            stride = 2 if place == 0 and made > 16 else 1
            body = nn.Sequential(
                *conv_norm(given, made, 3, stride, 1), nn.ReLU(), *conv_norm(made, made, 3, 1, 1)
            )
            same = given == made
            layers.append(
                Residual(nn.Identity() if same else conv_norm(given, made, 1, stride), body)
            )
            given = made
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10))


def resnet50() -> nn.Sequential:
    layers: list[nn.Module] = [*conv_norm(3, 64, 7, 2, 3), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    given = 64
    for inner, times in ((64, 3), (128, 4), (256, 6), (512, 3)):
        for place in range(times):
            stride = 2 if place == 0 and inner > 64 else 1
            body = nn.Sequential(
                *conv_norm(given, inner, 1, stride),
                nn.ReLU(),
                *conv_norm(inner, inner, 3, 1, 1),
                nn.ReLU(),
                *conv_norm(inner, 4 * inner, 1),
            )
            short = nn.Identity() if place else conv_norm(given, 4 * inner, 1, stride)
            layers.append(Residual(short, body))
            given = 4 * inner
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2048, 1000))


def mobilenet() -> nn.Sequential:
    layers: list[nn.Module] = [*conv_norm(3, 32, 3, 2, 1), nn.ReLU()]
    given = 32
    strides = (1, 2, 1, 2, 1, 2, 1, 1, 1, 1, 1, 2, 1)
    widths = (64, 128, 128, 256, 256, 512, 512, 512, 512, 512, 512, 1024, 1024)
    for made, stride in zip(widths, strides):
        layers += [*conv_norm(given, given, 3, stride, 1, groups=given), nn.ReLU()]
        layers += [*conv_norm(given, made, 1), nn.ReLU()]
        given = made
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(1024, 1000))


class Language(nn.Module):
    """Two LSTM layers between an embedding and a linear layer."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.table = nn.Embedding(10000, hidden)
        self.lower = nn.LSTM(hidden, hidden, batch_first=True)
        self.upper = nn.LSTM(hidden, hidden, batch_first=True)
        self.last = nn.Linear(hidden, 10000)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.upper(self.lower(self.table(x))[0])[0])


class Block(nn.Module):
    """A pre-norm block of a transformer."""

    def __init__(self, features: int, heads: int, rate: float, *, causal: bool, gelu: str) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(features, 1e-6)
        self.attention = nn.MultiheadAttention(features, heads, batch_first=True)
        self.norm2 = nn.LayerNorm(features, 1e-6)
        self.wide = nn.Linear(features, 4 * features)
        self.narrow = nn.Linear(4 * features, features)
        self.drop1, self.drop2 = nn.Dropout(rate), nn.Dropout(rate)
        self.causal, self.gelu = causal, gelu

    def forward(self, x: Tensor) -> Tensor:
        given = self.norm1(x)
        mask = None
        if self.causal:
            mask = nn.Transformer.generate_square_subsequent_mask(x.shape[1])
        found, _ = self.attention(
            given, given, given, need_weights=False, attn_mask=mask, is_causal=self.causal
        )
        x = x + self.drop1(found)
        made = F.gelu(self.wide(self.norm2(x)), approximate=self.gelu)
        return x + self.drop2(self.narrow(made))


class Positions(nn.Module):
    """A table added to every sequence."""

    def __init__(self, steps: int, features: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(steps, features))

    def forward(self, x: Tensor) -> Tensor:
        return x + self.weight


class Transformer(nn.Module):
    """Blocks between an embedding, of words or patches, and a linear layer."""

    def __init__(
        self,
        embedding: nn.Module,
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
        self.embedding, self.positions = embedding, Positions(steps, features)
        gelu = "tanh" if causal else "none"
        self.blocks = nn.Sequential(
            *(Block(features, heads, rate, causal=causal, gelu=gelu) for _ in range(blocks))
        )
        self.norm = nn.LayerNorm(features, 1e-6)
        # A decoder's last layer is its embedding.
        self.last = None if causal else nn.Linear(features, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm(self.blocks(self.positions(self.embedding(x))))
        if self.last is None:
            return F.linear(x, self.embedding.weight)
        return self.last(x.mean(1))


class Patches(nn.Conv2d):
    """Patches of 16 x 16 as a sequence."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x).flatten(2).transpose(1, 2)


def pools(*sizes: tuple[int, int, int]) -> tuple[nn.Module, nn.Module]:
    one, other = (nn.MaxPool2d(*size) for size in sizes)
    return one, other


HALVED = ((2, 2, 0), (2, 2, 0))
#: By workload; told whether dropout is to drop.
NETWORKS: dict[str, Callable[[bool], nn.Module]] = {
    "lenet5": lambda drop: lenet(
        (32, 64), 512, nn.ReLU, pads=(2, 2), pools=pools(*HALVED), pixels=49
    ),
    "lenet-mnist": lambda drop: lenet(
        (20, 50), 500, nn.ReLU, pools=pools(*HALVED), pixels=16, plain=True
    ),
    "caffe-mnist": lambda drop: lenet(
        (20, 50), 500, nn.ReLU, pools=pools(*HALVED), pixels=16, plain=True
    ),
    "tensorflow-mnist": lambda drop: lenet(
        (32, 64), 1024, nn.ReLU, pads=(2, 2), pools=pools(*HALVED), pixels=49, drop=drop
    ),
    "theano-mnist": lambda drop: lenet(
        (20, 50), 500, nn.Tanh, pools=pools(*HALVED), pixels=16, pooled_first=True
    ),
    "torch-mnist": lambda drop: lenet(
        (32, 64), 200, nn.Tanh, pads=(2, 0), pools=pools((3, 3, 1), (2, 2, 0)), pixels=9
    ),
    "theano-cifar10": lambda drop: lenet(
        (4, 8),
        100,
        nn.Tanh,
        channels=3,
        kernel=3,
        pools=pools((3, 3, 0), (2, 2, 0)),
        pixels=16,
        pooled_first=True,
    ),
    "torch-cifar10": lambda drop: lenet(
        (16, 256), 128, nn.Tanh, channels=3, pools=pools(*HALVED), pixels=25
    ),
    "tensorflow-cifar10": lambda drop: tensorflow_cifar10(),
    "caffe-cifar10": lambda drop: cifar_quick(nn.Linear(1024, 64), nn.Linear(64, 10)),
    "cifar-convnet": lambda drop: cifar_quick(nn.Linear(1024, 10), norms=True),
    "alexnet-r": lambda drop: cifar_quick(nn.Linear(1024, 10)),
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
        nn.Embedding(10000, 128), 64, 128, 4, 4, 10000, 0.1 * drop
    ),
    "gpt-small": lambda drop: Transformer(
        nn.Embedding(10000, 128), 64, 128, 4, 4, 10000, 0.1 * drop, causal=True
    ),
    "vit-tiny": lambda drop: Transformer(
        Patches(3, 192, 16, 16), 196, 192, 12, 3, 1000, 0.1 * drop
    ),
}


def load(network: nn.Module, weights: dict[str, np.ndarray]) -> None:
    """Give each layer that has parameters, in order, those of the next that is described."""
    described: dict[str, dict[str, Tensor]] = {}
    for name, array in weights.items():
        layer, parameter = name.split(".")
        described.setdefault(layer, {})[parameter] = torch.tensor(array)
    projections = {each.out_proj for each in network.modules() if hasattr(each, "out_proj")}
    built = [each for each in network.modules() if each._parameters and each not in projections]
    for module, given in zip(built, described.values(), strict=True):
        if isinstance(module, nn.LSTM):
            given = lstm_state(given)
            module.bias_hh_l0.requires_grad_(False)
        elif isinstance(module, nn.MultiheadAttention):
            given = attention_state(given)
        state = {NAMES.get(name, name): tensor for name, tensor in given.items()}
        missing, unexpected = module.load_state_dict(state, strict=False)
        assert not unexpected and set(missing) <= {"num_batches_tracked"}, (missing, unexpected)


def lstm_state(given: dict[str, Tensor]) -> dict[str, Tensor]:
    """Gates in ONNX's order (iofc) as torch has them (ifco), and one bias that trains."""

    def ordered(tensor: Tensor) -> Tensor:
        gates = tensor.chunk(4)
        return torch.cat([gates[place] for place in (0, 2, 3, 1)])

    return {
        "weight_ih_l0": ordered(given["input_weight"]),
        "weight_hh_l0": ordered(given["recurrent_weight"]),
        "bias_ih_l0": ordered(given["bias"]),
        "bias_hh_l0": torch.zeros_like(given["bias"]),
    }


def attention_state(given: dict[str, Tensor]) -> dict[str, Tensor]:
    """Queries, keys and values in one matrix."""
    return {
        **{
            f"in_proj_{kind}": torch.cat(
                [given[f"{one}_{kind}"] for one in ("query", "key", "value")]
            )
            for kind in ("weight", "bias")
        },
        "out_proj.weight": given["output_weight"],
        "out_proj.bias": given["output_bias"],
    }


def join(rank: int, workers: int) -> bool:
    """Meet the peers, where torchrun's variables say."""
    dist.init_process_group("gloo", rank=rank, world_size=workers)
    return True


class Native:
    """Training from memory.

    Args:
        workload: its name, one of NETWORKS.
        weights: by canonical name, in the order of the description.
        settings: of the optimizer: learning_rate, weight_decay and clip_norm, and momentum and
            nesterov of SGD, or beta1, beta2 and epsilon of Adam.
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
        peers: bool = False,
    ) -> None:
        self.model = NETWORKS[workload](drop)
        load(self.model, weights)
        if peers:
            self.model = DistributedDataParallel(self.model)
        self.clip_norm = settings["clip_norm"]
        parameters = [each for each in self.model.parameters() if each.requires_grad]
        rate, decay = settings["learning_rate"], settings["weight_decay"]
        if "beta1" in settings:
            betas = (settings["beta1"], settings["beta2"])
            self.optimizer: torch.optim.Optimizer = torch.optim.Adam(
                parameters, rate, betas, settings["epsilon"], decay
            )
        else:
            self.optimizer = torch.optim.SGD(
                parameters,
                rate,
                settings["momentum"],
                weight_decay=decay,
                nesterov=bool(settings["nesterov"]),
            )
        self.inputs, self.labels = torch.tensor(inputs), torch.tensor(labels)

    def batches(self, order: np.ndarray) -> Iterator[tuple[Tensor, Tensor]]:
        """The samples of each row of the order."""
        for row in torch.tensor(order):
            yield self.inputs[row], self.labels[row]

    def step(self, x: Tensor, y: Tensor) -> Tensor:
        """One update; the mean loss."""
        logits = self.model(x)
        loss = F.cross_entropy(logits.flatten(0, -2), y.flatten())
        self.optimizer.zero_grad()
        loss.backward()
        if self.clip_norm:
            nn.utils.clip_grad_norm_(self.model.parameters(), self.clip_norm)
        self.optimizer.step()
        return loss.detach()

    def synchronise(self) -> None:
        """Operators on a CPU return when they are done."""


# Keras' own loop is measured as well where Keras is installed beside torch.
if find_spec("keras"):
    from native.keras_on_torch import Fit as Fit
