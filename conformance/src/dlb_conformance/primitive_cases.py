"""Cases of layers that are one arithmetic function."""

from __future__ import annotations

from dlb_graph import workload as W

from .models import CLASSES, chain, graph

__all__ = [
    "BINARY",
    "ELEMENTWISE",
    "GATHER_ELEMENTS",
    "MANY_AXES",
    "MASK",
    "MATMUL",
    "REDUCE",
    "RESIZE",
    "SCALE",
    "SHIFT",
    "SOFTMAX",
    "TOP_K",
    "WHERE",
    "WHOLE_FUNCTIONS",
]

_NUMBERS: dict[str, dict[str, float]] = {
    "affine": {"alpha": -0.7, "beta": 1.5},
    "celu": {"alpha": 0.7},
    "clip": {"min": -0.5, "max": 0.8},
    "elu": {"alpha": 1.3},
    "hard_sigmoid": {"alpha": 0.2, "beta": 0.4},
    "leaky_relu": {"alpha": 0.2},
    "pow": {"alpha": -0.75},
}
_ANY_NUMBER = (
    *(
        "abs",
        "affine",
        "asinh",
        "atan",
        "ceil",
        "celu",
        "clip",
        "cos",
        "cosh",
        "elu",
        "erf",
        "exp",
        "floor",
        "hard_sigmoid",
        "hard_swish",
        "leaky_relu",
    ),
    *("mish", "neg", "round", "selu", "sign", "silu", "sin", "sinh", "softplus", "softsign"),
    "straight_through_round",
)
_POSITIVE = ("log", "pow", "reciprocal", "sqrt")
_OF_SHARES = ("acos", "asin", "atanh", "tan")


def _all_joined(
    shape: tuple[int, ...], some: list[tuple[str, W.Layer, tuple[str, ...]]], first: int
) -> W.Model:
    """Layers from the given place on, joined and flattened."""
    return graph(
        shape,
        *some,
        ("all", W.Concat(axis=1), tuple(name for name, _, _ in some[first:])),
        ("flat", W.Flatten(), ("all",)),
        ("logits", W.Linear(out_features=CLASSES), ("flat",)),
    )


def _functions(
    shape: tuple[int, ...],
    any_number: tuple[str, ...],
    positive: tuple[str, ...] = _POSITIVE,
    of_shares: tuple[str, ...] = _OF_SHARES,
) -> W.Model:
    """Functions next to each other; some of them of values above 0, between 0 and 1, and above 1."""
    some: list[tuple[str, W.Layer, tuple[str, ...]]] = [
        ("large", W.Elementwise(function="abs"), ("input",))
    ]
    some.append(("positive", W.Elementwise(function="clip", min=0.25), ("large",)))
    some.append(("shares", W.Sigmoid(), ("input",)))
    some.append(("above", W.Elementwise(function="affine", alpha=1.0, beta=1.0), ("positive",)))
    for source, functions in (
        ("input", any_number),
        ("positive", positive),
        ("shares", of_shares),
        ("above", ("acosh",)),
    ):
        for function in functions:
            layer = W.Elementwise(function=function, **_NUMBERS.get(function, {}))  # type: ignore[arg-type]
            some.append((f"of_{function}", layer, (source,)))
    return _all_joined(shape, some, 4)


#: Functions without attributes that exporters do not write in parts.
WHOLE_FUNCTIONS = _functions(
    (9,),
    ("asinh", "atan", "ceil", "cosh", "floor", "round", "sign", "sinh", "straight_through_round"),
    (),
)
#: Every function of features; of maps some that are composed.
ELEMENTWISE = {
    "elementwise-of-features": _functions((9,), _ANY_NUMBER),
    "elementwise-of-maps": _functions((2, 4, 3), ("affine", "elu", "softplus")),
    # Decibels: an exporter may take the number for 0, and must not.
    "elementwise-of-a-small-addition": chain(
        (3, 6, 6),
        W.Conv(out_channels=4, kernel=(3, 3), bias=False),
        W.Elementwise(function="softplus"),
        W.Elementwise(function="affine", alpha=1.0, beta=1e-10),
        W.Elementwise(function="log"),
        W.Flatten(),
        W.Linear(out_features=CLASSES),
    ),
    # The gradient of these weights is 0: frameworks may have none at all.
    "elementwise-that-ends-gradients": chain(
        (6,),
        W.Linear(out_features=5),
        W.Elementwise(function="floor"),
        W.Linear(out_features=CLASSES),
    ),
}


def _binary(shape: tuple[int, ...], axes: tuple[int, ...]) -> W.Model:
    """Every function of values of one shape, and of a value and its means, in either order."""
    some: list[tuple[str, W.Layer, tuple[str, ...]]] = [
        ("mean", W.Reduce(function="mean", axes=axes, keepdims=True), ("input",)),
        ("some", W.Elementwise(function="exp"), ("mean",)),
        ("positive", W.Elementwise(function="softplus"), ("input",)),
    ]
    for name, first, second in (
        ("same", "input", "positive"),
        ("by_mean", "input", "some"),
        ("of_mean", "some", "positive"),
    ):
        for function in ("add", "sub", "mul", "div", "max", "min"):
            layer = W.Binary(function=function)
            some.append((f"{name}_{function}", layer, (first, second)))
    return _all_joined(shape, some, 3)


BINARY = {
    "binary-of-maps": _binary((2, 4, 3), (2, 3)),
    "binary-of-a-sequence": _binary((4, 6), (1,)),
}


def _where(shape: tuple[int, ...], axes: tuple[int, ...]) -> W.Model:
    """Of values of one shape, and where each of the three is repeated."""
    some: list[tuple[str, W.Layer, tuple[str, ...]]] = [
        ("mean", W.Reduce(function="mean", axes=axes, keepdims=True), ("input",)),
        ("some", W.Elementwise(function="exp"), ("mean",)),
        ("sign", W.Elementwise(function="sign"), ("input",)),
        ("chosen", W.ReLU(), ("sign",)),
        ("means", W.Elementwise(function="sign"), ("mean",)),
        ("chosen_means", W.ReLU(), ("means",)),
        ("wave", W.Elementwise(function="sin"), ("input",)),
        ("same", W.Where(), ("chosen", "input", "wave")),
        ("of_mean", W.Where(), ("chosen", "some", "wave")),
        ("or_mean", W.Where(), ("chosen", "wave", "some")),
        ("by_mean", W.Where(), ("chosen_means", "input", "wave")),
        ("by_any", W.Where(), ("wave", "some", "mean")),
        ("or_number", W.Where(second=0.5), ("chosen", "wave")),
        ("number", W.Where(first=-2.0), ("chosen_means", "wave")),
    ]
    return _all_joined(shape, some, 7)


WHERE = {
    "where-of-maps": _where((2, 4, 3), (2, 3)),
    "where-of-a-sequence": _where((4, 6), (1,)),
}


def _along(shape: tuple[int, ...], *layers: W.Layer) -> W.Model:
    """Layers of the input next to each other, flattened and joined."""
    some: list[tuple[str, W.Layer, tuple[str, ...]]] = []
    for place, layer in enumerate(layers):
        some += [(f"n{place}", layer, ("input",)), (f"flat{place}", W.Flatten(), (f"n{place}",))]
    return graph(
        shape,
        *some,
        ("all", W.Concat(axis=1), tuple(name for name, _, _ in some[1::2])),
        ("logits", W.Linear(out_features=CLASSES), ("all",)),
    )


def _softmaxes(shape: tuple[int, ...]) -> W.Model:
    axes = range(1, len(shape) + 1)
    return _along(shape, *(W.Softmax(axis=axis, log=log) for axis in axes for log in (False, True)))


def _reductions(shape: tuple[int, ...], *several: tuple[int, ...]) -> W.Model:
    options = [(axes, keepdims) for axes in several for keepdims in (False, True)]
    return _along(
        shape,
        *(
            W.Reduce(function=function, axes=axes, keepdims=keepdims)
            for axes, keepdims in options
            if keepdims or len(axes) < len(shape)
            for function in ("mean", "sum", "max", "min")
        ),
    )


SOFTMAX = {
    "softmax-of-maps": _softmaxes((2, 4, 3)),
    "softmax-of-a-sequence": _softmaxes((4, 6)),
}
REDUCE = {
    "reduce-of-maps": _reductions((2, 4, 3), (2,), (2, 3), (1, 3), (1, 2, 3)),
    "reduce-of-a-sequence": _reductions((4, 6), (1,), (1, 2)),
}


def _places(shape: tuple[int, ...], axis: int, k: int) -> W.Model:
    """The largest and smallest numbers along an axis, and numbers of another value in their places.

    The ReLU makes some numbers equal. Indices are computed, too, with some beyond both ends, and repeated.
    """
    some: list[tuple[str, W.Layer, tuple[str, ...]]] = [
        ("bent", W.ReLU(), ("input",)),
        ("wave", W.Elementwise(function="sin"), ("input",)),
        ("mean", W.Reduce(function="mean", axes=_others(shape, axis), keepdims=True), ("wave",)),
        ("most", W.TopK(axis=axis), ("input",)),
        ("least", W.TopK(axis=axis, largest=False), ("wave",)),
        ("several", W.TopK(axis=axis, k=k), ("bent",)),
        ("fewest", W.TopK(axis=axis, k=k, largest=False), ("bent",)),
        ("of_mean", W.TopK(axis=axis, k=k), ("mean",)),
        ("steep", W.Elementwise(function="affine", alpha=3.0, beta=1.0), ("input",)),
        ("any", W.Elementwise(function="floor"), ("steep",)),
        ("at_most", W.GatherElements(axis=axis), ("wave", "most")),
        ("at_least", W.GatherElements(axis=axis), ("input", "least")),
        ("at_several", W.GatherElements(axis=axis), ("wave", "several")),
        ("at_any", W.GatherElements(axis=axis), ("wave", "any")),
        ("of_few", W.GatherElements(axis=axis), ("mean", "any")),
        ("by_few", W.GatherElements(axis=axis), ("wave", "of_mean")),
    ]
    flat: list[tuple[str, W.Layer, tuple[str, ...]]] = [
        (f"flat_{name}", W.Flatten(), (name,))
        for name in (
            *("at_most", "at_least", "at_several", "at_any", "of_few", "by_few"),
            *("several", "fewest"),
        )
    ]
    return graph(
        shape,
        *some,
        *flat,
        ("all", W.Concat(axis=1), tuple(name for name, _, _ in flat)),
        ("logits", W.Linear(out_features=CLASSES), ("all",)),
    )


def _others(shape: tuple[int, ...], axis: int) -> tuple[int, ...]:
    return tuple(other for other in range(1, len(shape) + 1) if other != axis)


TOP_K = {
    "top-k-of-channels": _places((4, 5, 3), 1, 3),
    "top-k-of-a-sequence": _places((4, 6), 1, 2),
}
GATHER_ELEMENTS = {
    "gather-elements-by-scores": graph(
        (4, 6),
        ("scores", W.Linear(out_features=5), ("input",)),
        ("best", W.TopK(axis=1, k=2), ("scores",)),
        ("wave", W.Linear(out_features=5), ("input",)),
        ("found", W.GatherElements(axis=1), ("wave", "best")),
        ("sign", W.Linear(out_features=5), ("found",)),
        ("truth", W.Elementwise(function="floor"), ("sign",)),
        ("one", W.Where(), ("truth", "found", "best")),
        ("flat", W.Flatten(), ("one",)),
        ("logits", W.Linear(out_features=CLASSES), ("flat",)),
    ),
    "gather-elements-of-maps": _places((2, 4, 3), 3, 2),
    "gather-elements-of-features": _places((4, 6), 2, 4),
}


def _gram(shape: tuple[int, ...], swapped: tuple[int, ...]) -> W.Model:
    """A value by itself, turned: each row with each other; and that by the value again."""
    return graph(
        shape,
        ("turned", W.Transpose(axes=swapped), ("input",)),
        ("products", W.MatMul(), ("input", "turned")),
        ("shares", W.Softmax(axis=len(shape)), ("products",)),
        ("mixed", W.MatMul(), ("shares", "input")),
        ("flat", W.Flatten(), ("mixed",)),
        ("logits", W.Linear(out_features=CLASSES), ("flat",)),
    )


MATMUL = {
    "matmul-of-a-sequence": _gram((4, 6), (2, 1)),
    "matmul-of-maps": _gram((2, 4, 3), (1, 3, 2)),
}
_SIZES: dict[str, tuple[tuple[int, ...], list[tuple[int, ...]]]] = {
    "features": ((7,), [(7,), (1,)]),
    "maps": ((2, 4, 3), [(2, 4, 3), (1, 4, 3), (2, 1, 1), (1, 1, 3), (2, 4, 1)]),
    "a-sequence": ((4, 6), [(4, 6), (4, 1), (1, 6)]),
}


def _scales_and_shifts(name: str) -> dict[str, W.Model]:
    """Both layers next to each other: they read and write the same."""
    shape, several = _SIZES[name]
    layers = (layer(sizes=sizes) for sizes in several for layer in (W.Scale, W.Shift))
    return {f"scale-and-shift-of-{name}": _along(shape, *layers)}


SCALE = _scales_and_shifts("features") | _scales_and_shifts("maps")
SHIFT = _scales_and_shifts("a-sequence")

#: Of two masks that repeat, the first one is the usual one of an attention.
_LOWEST = -3.4028234663852886e38


def _masked(shape: tuple[int, ...], *masks: W.Mask) -> W.Model:
    """Shares of what masks leave, next to each other."""
    some: list[tuple[str, W.Layer, tuple[str, ...]]] = []
    for place, mask in enumerate(masks):
        some += [
            (f"kept{place}", mask, ("input",)),
            (f"shares{place}", W.Softmax(axis=len(shape)), (f"kept{place}",)),
            (f"flat{place}", W.Flatten(), (f"shares{place}",)),
        ]
    return graph(
        shape,
        *some,
        ("all", W.Concat(axis=1), tuple(name for name, _, _ in some[2::3])),
        ("logits", W.Linear(out_features=CLASSES), ("all",)),
    )


MASK = {
    "mask-of-features": _along(
        (7,),
        *(
            W.Mask(sizes=(7,), kept=kept, value=value)
            for kept, value in (("a4", 0.75), ("02", -1e4))
        ),
    ),
    "mask-of-maps": _masked(
        (2, 4, 3),
        W.Mask(sizes=(2, 4, 3), kept="d9b2ed", value=_LOWEST),
        W.Mask(sizes=(1, 4, 3), kept="5b60", value=-1e4),
        W.Mask(sizes=(2, 1, 1), kept="40", value=-0.1),
        W.Mask(sizes=(1, 1, 3), kept="60", value=_LOWEST),
    ),
    "mask-of-a-sequence": _masked(
        (4, 4),
        W.Mask(sizes=(4, 4), kept="8cef", value=_LOWEST),
        W.Mask(sizes=(1, 4), kept="70", value=2.5),
    ),
}

RESIZE = {
    "resize-of-maps": _along(
        (2, 4, 3),
        W.Resize(sizes=(2, 8, 6)),
        W.Resize(sizes=(2, 4, 5), coordinates="align_corners"),
        W.Resize(sizes=(2, 6, 3), mode="cubic"),
        W.Resize(sizes=(2, 3, 2), mode="cubic", coordinates="asymmetric", cubic_a=-0.5),
        W.Resize(sizes=(3, 2, 1), coordinates="pytorch_half_pixel"),
    ),
    "resize-by-scales": _along(
        (2, 5, 3),
        W.Resize(sizes=(2, 7, 2), scales=(1.0, 1.5, 0.7)),
        W.Resize(
            sizes=(2, 7, 4),
            mode="cubic",
            scales=(1.0, 1.5, 1.5),
            exclude_outside=True,
            coordinates="half_pixel_symmetric",
        ),
    ),
    "resize-of-a-sequence": _along(
        (4, 6), W.Resize(sizes=(7, 6)), W.Resize(sizes=(4, 9), mode="cubic"), W.Resize(sizes=(3, 4))
    ),
    "resize-of-features": _along((7,), W.Resize(sizes=(11,)), W.Resize(sizes=(4,), mode="cubic")),
    "resize-between-convolutions": graph(
        (3, 5, 4),
        ("conv", W.Conv(out_channels=8, kernel=(3, 3), pads=(1, 1, 1, 1)), ("input",)),
        ("up", W.Resize(sizes=(8, 10, 8)), ("conv",)),
        ("norm", W.BatchNorm(), ("up",)),
        ("next", W.Conv(out_channels=4, kernel=(3, 3)), ("norm",)),
        ("down", W.Resize(sizes=(4, 4, 3), mode="cubic"), ("next",)),
        ("flat", W.Flatten(), ("down",)),
        ("logits", W.Linear(out_features=CLASSES), ("flat",)),
    ),
}

#: Windows of a map next to each other, as some transformers have them: values of up to five axes.
MANY_AXES = {
    "many-axes": graph(
        (4, 4, 6),
        ("windows", W.Reshape(shape=(4, 2, 2, 2, 3)), ("input",)),
        ("first", W.Transpose(axes=(2, 4, 3, 5, 1)), ("windows",)),
        ("part", W.Slice(starts=(0, 0, 0, 0, 1), ends=(2, 2, 2, 3, 4)), ("first",)),
        ("again", W.Gather(axis=4, indices=(2, 0, 0)), ("part",)),
        ("products", W.MatMul(), ("part", "again")),
        ("shares", W.Softmax(axis=4), ("products",)),
        ("masked", W.Mask(sizes=(1, 2, 1, 3, 1), kept="b0", value=-0.25), ("shares",)),
        ("longer", W.Resize(sizes=(2, 2, 2, 4, 3)), ("masked",)),
        ("shorter", W.Resize(sizes=(2, 2, 2, 3, 3), mode="cubic"), ("longer",)),
        ("scaled", W.Scale(sizes=(1, 2, 1, 3, 1)), ("shorter",)),
        ("shifted", W.Shift(sizes=(2, 1, 1, 1, 3)), ("scaled",)),
        ("bent", W.Tanh(), ("shifted",)),
        ("most", W.Reduce(function="max", axes=(4,), keepdims=True), ("bent",)),
        ("less", W.Binary(function="sub"), ("bent", "most")),
        ("sum", W.Add(), ("less", "bent")),
        ("both", W.Concat(axis=2), ("sum", "less")),
        ("means", W.Reduce(function="mean", axes=(2, 5)), ("both",)),
        ("conv", W.Conv(out_channels=3, kernel=(2, 2)), ("means",)),
        ("flat", W.Flatten(), ("both",)),
        ("left", W.Flatten(), ("conv",)),
        ("joined", W.Concat(axis=1), ("left", "flat")),
        ("logits", W.Linear(out_features=CLASSES), ("joined",)),
    )
}
