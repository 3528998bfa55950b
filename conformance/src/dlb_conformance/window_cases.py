"""Convolutions and pools: pads, strides, dilation, groups, and sizes that do not divide evenly."""

from __future__ import annotations

from functools import partial
from typing import Any

from dlb_graph import workload as W

from .models import CLASSES, classifier, graph

__all__ = ["FILM", "FILMS", "IMAGE", "WINDOWS"]


def _conv(shape: tuple[int, ...] = (4, 9, 7), /, **attributes: Any) -> W.Model:
    given: dict[str, Any] = {"out_channels": 6, "kernel": (3, 2), **attributes}
    return classifier(shape, W.Conv(**given), W.Tanh())


def _pool(
    kind: type[W.MaxPool | W.AveragePool],
    shape: tuple[int, ...],
    kernel: int | tuple[int, ...],
    stride: int | tuple[int, ...],
    **more: Any,
) -> W.Model:
    kernel, stride = (
        each if isinstance(each, tuple) else (each,) * (len(shape) - 1) for each in (kernel, stride)
    )
    return classifier(shape, kind(kernel=kernel, stride=stride, **more))


_max, _mean = partial(_pool, W.MaxPool), partial(_pool, W.AveragePool)


IMAGE = (3, 8, 7)
#: Channels, pictures, rows and columns.
FILM = (3, 5, 6, 4)

_CONV = {
    "conv": _conv(),
    "conv-without-bias": _conv(bias=False),
    "conv-1x1": _conv(kernel=(1, 1)),
    "conv-even-pads": _conv(pads=(2, 1, 2, 1)),
    "conv-uneven-pads": _conv(pads=(1, 0, 2, 3)),
    "conv-pads-at-the-end-only": _conv(pads=(0, 0, 1, 1), stride=(2, 2)),
    "conv-pads-wider-than-the-kernel": _conv(pads=(4, 4, 4, 4)),
    "conv-uneven-stride": _conv(stride=(3, 2)),
    "conv-stride-that-leaves-rows-over": _conv((4, 10, 10), kernel=(3, 3), stride=(4, 4)),
    "conv-stride-2-with-pads-of-same": _conv(
        (4, 8, 8), kernel=(5, 5), stride=(2, 2), pads=(1, 1, 2, 2)
    ),
    "conv-stride-2-with-even-pads": _conv(
        (4, 8, 8), kernel=(5, 5), stride=(2, 2), pads=(2, 2, 2, 2)
    ),
    "conv-dilation": _conv(dilation=(2, 3)),
    "conv-dilation-uneven-pads": _conv(dilation=(3, 2), pads=(2, 1, 3, 0)),
    "conv-dilation-and-stride": _conv(dilation=(2, 2), stride=(2, 1), pads=(1, 1, 1, 1)),
    "conv-two-groups": _conv(groups=2),
    "conv-two-groups-uneven-pads-stride": _conv(groups=2, pads=(0, 1, 2, 0), stride=(2, 2)),
    "conv-depthwise": _conv(groups=4, out_channels=4),
    "conv-depthwise-with-multiplier": _conv(groups=4, out_channels=8, bias=False),
    "conv-of-one-channel": _conv((1, 9, 7)),
    "conv-as-large-as-its-input": _conv(kernel=(9, 7)),
}


def _film(shape: tuple[int, ...] = (4, 5, 6, 4), /, **attributes: Any) -> W.Model:
    return _conv(shape, **{"kernel": (2, 3, 2), **attributes})


_CONV_OF_FILMS = {
    "conv-of-films": _film(),
    "conv-of-films-1x1x1-with-stride": _film(kernel=(1, 1, 1), stride=(2, 2, 2), bias=False),
    "conv-of-films-even-pads": _film(kernel=(3, 3, 3), pads=(1, 1, 1, 1, 1, 1)),
    "conv-of-films-uneven-pads-and-stride": _film(pads=(1, 0, 2, 0, 2, 1), stride=(2, 1, 3)),
    "conv-of-films-over-time-only": _film(kernel=(3, 1, 1), pads=(1, 0, 0, 1, 0, 0)),
    "conv-of-films-dilation": _film(dilation=(2, 1, 3), kernel=(2, 3, 2)),
    "conv-of-films-dilation-and-stride": _film(
        dilation=(1, 2, 2), stride=(2, 2, 1), pads=(1, 1, 1, 0, 1, 1)
    ),
    "conv-of-films-two-groups": _film(groups=2, pads=(0, 1, 1, 0, 1, 0)),
    "conv-of-films-depthwise": _film(groups=4, out_channels=8, stride=(1, 2, 2)),
}


def _conv_transpose(shape: tuple[int, int, int] = (4, 4, 3), /, **attributes: Any) -> W.Model:
    given: dict[str, Any] = {"out_channels": 6, "kernel": (3, 2), **attributes}
    return classifier(shape, W.ConvTranspose(**given), W.Tanh())


def _film_transpose(**attributes: Any) -> W.Model:
    given: dict[str, Any] = {"out_channels": 6, "kernel": (2, 3, 2), **attributes}
    return classifier((4, 3, 2, 3), W.ConvTranspose(**given), W.Tanh())


_CONV_TRANSPOSE = {
    "conv_transpose": _conv_transpose(),
    "conv_transpose-without-bias": _conv_transpose(bias=False),
    "conv_transpose-that-doubles": _conv_transpose(kernel=(2, 2), stride=(2, 2)),
    "conv_transpose-even-pads": _conv_transpose(stride=(2, 2), pads=(1, 1, 1, 1), kernel=(4, 4)),
    "conv_transpose-output-padding": _conv_transpose(
        stride=(3, 2), pads=(1, 0, 1, 0), output_padding=(1, 1), kernel=(3, 3)
    ),
    "conv_transpose-more-output-padding-than-pads": _conv_transpose(
        stride=(3, 2), pads=(0, 1, 0, 0), output_padding=(2, 1), kernel=(3, 3)
    ),
    "conv_transpose-more-pads-at-the-start": _conv_transpose(
        stride=(2, 2), pads=(1, 1, 0, 0), kernel=(3, 3)
    ),
    "conv_transpose-uneven-pads": _conv_transpose(pads=(0, 3, 2, 0), stride=(1, 2), kernel=(3, 5)),
    "conv_transpose-dilation": _conv_transpose(dilation=(2, 3), pads=(1, 1, 1, 1)),
    "conv_transpose-dilation-and-stride": _conv_transpose(dilation=(2, 3), stride=(2, 3)),
    "conv_transpose-two-groups": _conv_transpose(groups=2, stride=(2, 1)),
    "conv_transpose-two-groups-uneven-pads": _conv_transpose(
        groups=2, stride=(2, 2), pads=(0, 1, 1, 0), output_padding=(1, 0), kernel=(3, 3)
    ),
    "conv_transpose-depthwise": _conv_transpose(groups=4, out_channels=4, stride=(2, 2)),
    "conv_transpose-of-one-place": _conv_transpose((4, 1, 1), stride=(2, 2)),
    "conv_transpose-of-films": _film_transpose(),
    "conv_transpose-of-films-that-doubles": _film_transpose(kernel=(2, 2, 2), stride=(2, 2, 2)),
    "conv_transpose-of-films-even-pads": _film_transpose(
        kernel=(3, 3, 3), stride=(2, 1, 2), pads=(1, 1, 1, 1, 1, 1), output_padding=(1, 0, 0)
    ),
    "conv_transpose-of-films-uneven-pads": _film_transpose(
        kernel=(3, 2, 3), stride=(1, 2, 2), pads=(0, 2, 1, 2, 0, 0), output_padding=(0, 0, 1)
    ),
    "conv_transpose-of-films-dilation-and-stride": _film_transpose(
        dilation=(2, 1, 3), stride=(2, 2, 1), bias=False
    ),
    "conv_transpose-of-films-two-groups": _film_transpose(groups=2, stride=(1, 2, 1)),
    "conv_transpose-of-films-of-rows": classifier(
        (4, 18),
        W.Reshape(shape=(4, 3, 2, 3)),
        W.ConvTranspose(out_channels=6, kernel=(2, 3, 2), groups=2),
        W.Tanh(),
    ),
    "conv_transpose-between-norms": classifier(
        (8, 4, 3),
        W.BatchNorm(),
        W.ConvTranspose(out_channels=8, kernel=(3, 3), stride=(2, 2), bias=False),
        W.BatchNorm(),
        W.ReLU(),
        W.Conv(out_channels=8, kernel=(2, 2)),
    ),
}

_MAX_POOL = {
    "max_pool": _max(IMAGE, 2, 2),
    "max_pool-overlapping": _max(IMAGE, 3, 2),
    "max_pool-gaps": _max(IMAGE, 2, 3),
    "max_pool-uneven-kernel": _max(IMAGE, (3, 2), 2),
    "max_pool-even-pads": _max(IMAGE, 3, 2, pads=(1, 1, 1, 1)),
    "max_pool-uneven-pads": _max(IMAGE, 3, 2, pads=(0, 1, 2, 1)),
    "max_pool-ceil": _max(IMAGE, 3, 2, ceil_mode=True),
    "max_pool-ceil-nothing-to-round": _max((3, 7, 7), 3, 2, ceil_mode=True),
    "max_pool-ceil-even-pads": _max((3, 7, 8), 2, 2, pads=(1, 1, 1, 1), ceil_mode=True),
    "max_pool-ceil-uneven-pads": _max(IMAGE, 3, 2, pads=(1, 0, 0, 2), ceil_mode=True),
    "max_pool-ceil-last-window-would-start-past-the-end": _max(
        (3, 5, 6), 2, 3, ceil_mode=True, pads=(1, 0, 1, 1)
    ),
    "max_pool-ceil-last-window-would-start-in-padding": _max(
        (3, 4, 4), 3, 3, ceil_mode=True, pads=(2, 2, 1, 1)
    ),
    "max_pool-dilation": _max(IMAGE, 2, 1, dilation=(2, 3)),
    "max_pool-dilation-stride-and-pads": _max(
        (3, 9, 8), 3, (2, 1), pads=(1, 0, 1, 2), dilation=(2, 1)
    ),
    "max_pool-dilation-ceil": _max((3, 9, 8), 2, 2, dilation=(3, 2), ceil_mode=True),
    "max_pool-dilation-between-convolutions": classifier(
        (3, 9, 8),
        W.Conv(out_channels=8, kernel=(2, 2)),
        W.ReLU(),
        W.MaxPool(kernel=(3, 2), stride=(1, 2), pads=(1, 1, 1, 1), dilation=(2, 2)),
        W.Conv(out_channels=4, kernel=(2, 2)),
    ),
    "max_pool-of-films": _max(FILM, 2, 2),
    "max_pool-of-films-even-pads": _max(FILM, 3, 2, pads=(1, 1, 1, 1, 1, 1)),
    "max_pool-of-films-ceil-uneven-pads": _max(
        FILM, (2, 3, 2), (1, 2, 2), pads=(0, 1, 1, 1, 0, 0), ceil_mode=True
    ),
    "max_pool-of-films-dilation": _max(FILM, 2, (1, 2, 1), dilation=(2, 3, 1)),
    "max_pool-of-films-after-relu": classifier(
        FILM,
        W.Conv(out_channels=4, kernel=(2, 2, 2)),
        W.ReLU(),
        W.MaxPool(kernel=(2, 3, 2), stride=(1, 1, 1)),
    ),
}

_AVERAGE_POOL = {
    "average_pool": _mean(IMAGE, 2, 2),
    "average_pool-overlapping": _mean(IMAGE, 3, 2),
    "average_pool-even-pads": _mean(IMAGE, 3, 2, pads=(1, 1, 1, 1)),
    "average_pool-even-pads-counted": _mean(IMAGE, 3, 2, pads=(1, 1, 1, 1), count_include_pad=True),
    "average_pool-uneven-pads": _mean(IMAGE, (3, 2), 2, pads=(0, 1, 2, 0)),
    "average_pool-uneven-pads-counted": _mean(
        IMAGE, (3, 2), 2, pads=(0, 1, 2, 0), count_include_pad=True
    ),
    "average_pool-ceil": _mean(IMAGE, 3, 2, ceil_mode=True),
    "average_pool-ceil-counted": _mean(IMAGE, 3, 2, ceil_mode=True, count_include_pad=True),
    "average_pool-ceil-even-pads": _mean((3, 6, 8), 3, 2, pads=(1, 1, 1, 1), ceil_mode=True),
    "average_pool-ceil-even-pads-counted": _mean(
        (3, 6, 8), 3, 2, pads=(1, 1, 1, 1), ceil_mode=True, count_include_pad=True
    ),
    "average_pool-ceil-uneven-pads": _mean((3, 8, 7), 3, 2, pads=(1, 0, 0, 2), ceil_mode=True),
    "average_pool-ceil-uneven-pads-counted": _mean(
        (3, 8, 7), 3, 2, pads=(1, 0, 0, 2), ceil_mode=True, count_include_pad=True
    ),
    "average_pool-ceil-last-window-would-start-in-padding": _mean(
        (3, 4, 4), 3, 3, ceil_mode=True, pads=(2, 2, 1, 1)
    ),
    "average_pool-ceil-last-window-would-start-in-padding-counted": _mean(
        (3, 4, 4), 3, 3, ceil_mode=True, pads=(2, 2, 1, 1), count_include_pad=True
    ),
    "average_pool-of-films": _mean(FILM, 2, 2),
    "average_pool-of-films-even-pads": _mean(FILM, 3, 2, pads=(1, 1, 1, 1, 1, 1)),
    "average_pool-of-films-even-pads-counted": _mean(
        FILM, 3, 2, pads=(1, 1, 1, 1, 1, 1), count_include_pad=True
    ),
    "average_pool-of-films-ceil-uneven-pads": _mean(
        FILM, (2, 3, 2), (1, 2, 2), pads=(0, 1, 1, 1, 0, 0), ceil_mode=True
    ),
}

_GLOBAL_AVERAGE_POOL = {
    "global_average_pool": classifier(IMAGE, W.GlobalAveragePool()),
    "global_average_pool-after-conv": classifier(
        IMAGE, W.Conv(out_channels=6, kernel=(3, 3)), W.ReLU(), W.GlobalAveragePool()
    ),
    "global_average_pool-of-films": classifier(
        FILM, W.Conv(out_channels=6, kernel=(2, 3, 2)), W.ReLU(), W.GlobalAveragePool()
    ),
}

#: Networks of films, with layers that know no windows between.
FILMS = {
    "films": graph(
        FILM,
        ("conv", W.Conv(out_channels=8, kernel=(3, 3, 3), pads=(1,) * 6, bias=False), ("input",)),
        ("norm", W.BatchNorm(), ("conv",)),
        ("relu", W.ReLU(), ("norm",)),
        ("again", W.Conv(out_channels=8, kernel=(1, 3, 3), pads=(0, 1, 1, 0, 1, 1)), ("relu",)),
        ("groups", W.GroupNorm(groups=2), ("again",)),
        ("sum", W.Add(), ("groups", "relu")),
        ("slopes", W.PReLU(), ("sum",)),
        ("curve", W.GELU(), ("slopes",)),
        ("pooled", W.GlobalAveragePool(), ("curve",)),
        ("gate", W.Sigmoid(), ("pooled",)),
        ("gated", W.Mul(), ("curve", "gate")),
        ("both", W.Concat(axis=1), ("gated", "relu")),
        ("half", W.MaxPool(kernel=(2, 2, 2), stride=(1, 2, 2)), ("both",)),
        (
            "mean",
            W.AveragePool(kernel=(2, 2, 2), stride=(1, 1, 1), pads=(0, 1, 0, 0, 1, 0)),
            ("half",),
        ),
        ("drop", W.Dropout(rate=0.0), ("mean",)),
        ("flat", W.Flatten(), ("drop",)),
        ("logits", W.Linear(out_features=CLASSES), ("flat",)),
    ),
    "film-parts": graph(
        (4, 4, 5, 3),
        ("conv", W.Conv(out_channels=8, kernel=(2, 2, 2)), ("input",)),
        ("part", W.Slice(starts=(1, 0, 0, 1), ends=(4, 3, 4, 2), steps=(2, 1, 1, 1)), ("conv",)),
        ("turned", W.Transpose(axes=(2, 1, 4, 3)), ("part",)),
        ("gathered", W.Gather(axis=4, indices=(3, 0, 0)), ("turned",)),
        ("shares", W.Softmax(axis=1), ("gathered",)),
        ("scaled", W.Scale(sizes=(3, 1, 1, 3)), ("shares",)),
        ("most", W.Reduce(function="max", axes=(1, 4), keepdims=True), ("scaled",)),
        ("less", W.Binary(function="sub"), ("scaled", "most")),
        ("mean", W.Reduce(function="mean", axes=(3,)), ("less",)),
        ("map", W.Conv(out_channels=3, kernel=(1, 2)), ("mean",)),
        ("film", W.Reshape(shape=(3, 2, 2, 1)), ("map",)),
        ("last", W.Conv(out_channels=2, kernel=(2, 2, 1)), ("film",)),
        ("flat", W.Flatten(), ("last",)),
        ("logits", W.Linear(out_features=CLASSES), ("flat",)),
    ),
    # Eight channels and more a library may keep in a layout of its own.
    "film-layouts": graph(
        FILM,
        ("conv", W.Conv(out_channels=16, kernel=(2, 2, 2)), ("input",)),
        ("steps", W.Reshape(shape=(16, 60)), ("conv",)),
        ("rows", W.Transpose(axes=(2, 1)), ("steps",)),
        ("hidden", W.Linear(out_features=16), ("rows",)),
        ("back", W.Transpose(axes=(2, 1)), ("hidden",)),
        ("film", W.Reshape(shape=(16, 4, 5, 3)), ("back",)),
        ("sum", W.Add(), ("film", "conv")),
        ("again", W.Conv(out_channels=16, kernel=(2, 2, 2)), ("sum",)),
        ("turned", W.Transpose(axes=(1, 3, 2, 4)), ("again",)),
        ("last", W.Conv(out_channels=8, kernel=(2, 2, 2)), ("turned",)),
        ("slopes", W.PReLU(), ("last",)),
        ("one", W.Gather(axis=2, indices=(1, 0)), ("slopes",)),
        ("shares", W.Softmax(axis=1), ("one",)),
        ("mean", W.Reduce(function="mean", axes=(2, 3)), ("shares",)),
        ("flat", W.Flatten(), ("mean",)),
        ("logits", W.Linear(out_features=CLASSES), ("flat",)),
    ),
    "film-of-pictures": graph(
        (3, 6, 5),
        ("map", W.Conv(out_channels=4, kernel=(3, 2)), ("input",)),
        ("film", W.Reshape(shape=(2, 2, 4, 4)), ("map",)),
        ("norm", W.BatchNorm(epsilon=0.03, momentum=0.7), ("film",)),
        ("drop", W.Dropout(rate=0.0), ("norm",)),
        ("maps", W.Reshape(shape=(4, 4, 4)), ("drop",)),
        ("pooled", W.MaxPool(kernel=(2, 2), stride=(2, 2)), ("maps",)),
        ("flat", W.Flatten(), ("pooled",)),
        ("logits", W.Linear(out_features=CLASSES), ("flat",)),
    ),
}

#: By layer type, and by what is odd about it.
WINDOWS: dict[str, dict[str, W.Model]] = {
    "conv": _CONV | _CONV_OF_FILMS | FILMS,
    "conv_transpose": _CONV_TRANSPOSE,
    "max_pool": _MAX_POOL,
    "average_pool": _AVERAGE_POOL,
    "global_average_pool": _GLOBAL_AVERAGE_POOL,
}
