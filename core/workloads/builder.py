"""Writing a network layer by layer, with names counted for each type."""

from __future__ import annotations

from collections import Counter

from dlb_graph import workload as W

__all__ = ["Net"]


def _pair(size: int | tuple[int, int]) -> tuple[int, int]:
    return size if isinstance(size, tuple) else (size, size)


class Net:
    """Nodes in the order in which they are added. A method adds a layer and returns its name.

    ``of`` is what a layer reads; without it, the layer before.
    """

    def __init__(self, *shape: int, kind: str = "real") -> None:
        self.input = W.Input(shape=shape, kind=kind)
        self.nodes: list[W.Node] = []
        self.counts: Counter[str] = Counter()

    @property
    def last(self) -> str:
        return self.nodes[-1].name if self.nodes else self.input.name

    @property
    def model(self) -> W.Model:
        return W.Model(input=self.input, nodes=tuple(self.nodes))

    def add(self, layer: W.Layer, *of: str, name: str = "") -> str:
        prefix = W.type_name(layer)
        self.counts[prefix] += 1
        name = name or f"{prefix}{self.counts[prefix]}"
        inputs = () if of in ((), (self.last,)) else of
        self.nodes.append(W.Node(name=name, layer=layer, inputs=inputs))
        return name

    def conv(
        self,
        channels: int,
        kernel: int | tuple[int, int],
        stride: int = 1,
        pad: int | tuple[int, int] = 0,
        *of: str,
        name: str = "",
        **more: object,
    ) -> str:
        high, wide = _pair(pad)
        layer = W.Conv(
            out_channels=channels,
            kernel=_pair(kernel),
            stride=(stride, stride),
            pads=(high, wide, high, wide),
            **more,
        )
        return self.add(layer, *of, name=name)

    def max_pool(self, kernel: int, stride: int, pad: int = 0, *of: str, ceil: bool = False) -> str:
        pads = (pad, pad, pad, pad)
        layer = W.MaxPool(kernel=_pair(kernel), stride=_pair(stride), pads=pads, ceil_mode=ceil)
        return self.add(layer, *of)

    def average_pool(
        self, kernel: int, stride: int, pad: int = 0, *of: str, ceil: bool = False
    ) -> str:
        pads = (pad, pad, pad, pad)
        layer = W.AveragePool(kernel=_pair(kernel), stride=_pair(stride), pads=pads, ceil_mode=ceil)
        return self.add(layer, *of)

    def relu(self, *of: str) -> str:
        return self.add(W.ReLU(), *of)

    def tanh(self, *of: str) -> str:
        return self.add(W.Tanh(), *of)

    def linear(self, features: int, *of: str, **more: object) -> str:
        return self.add(W.Linear(out_features=features, **more), *of)

    def flatten(self, *of: str) -> str:
        return self.add(W.Flatten(), *of)

    def dropout(self, rate: float) -> str:
        return self.add(W.Dropout(rate=rate))

    def conv_bn(
        self,
        channels: int,
        kernel: int | tuple[int, int],
        stride: int = 1,
        pad: int | tuple[int, int] = 0,
        *of: str,
        relu: bool = True,
        epsilon: float = 1e-5,
        momentum: float = 0.9,
        **more: object,
    ) -> str:
        """Convolution without a bias, batch normalisation, and a ReLU unless it follows later."""
        self.conv(channels, kernel, stride, pad, *of, bias=False, **{"init": "he_normal", **more})
        self.add(W.BatchNorm(epsilon=epsilon, momentum=momentum))
        return self.relu() if relu else self.last
