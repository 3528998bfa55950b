"""Cases of layers that are one arithmetic function."""

from __future__ import annotations

from dlb import workload as W

from .models import CLASSES, graph

__all__ = ["ELEMENTWISE"]

_NUMBERS: dict[str, dict[str, float]] = {
    "celu": {"alpha": 0.7},
    "clip": {"min": -0.5, "max": 0.8},
    "elu": {"alpha": 1.3},
    "hard_sigmoid": {"alpha": 0.2, "beta": 0.4},
    "leaky_relu": {"alpha": 0.2},
}
_ANY_NUMBER = (
    *(
        "abs",
        "celu",
        "clip",
        "cos",
        "elu",
        "erf",
        "exp",
        "hard_sigmoid",
        "hard_swish",
        "leaky_relu",
    ),
    *("mish", "neg", "selu", "silu", "sin", "softplus", "softsign"),
)
_POSITIVE = ("log", "reciprocal", "sqrt")


def _functions(shape: tuple[int, ...]) -> W.Model:
    """Every function next to each other; three of them of values above 0."""
    some = [("large", W.Elementwise(function="abs"), ("input",))]
    some.append(("positive", W.Elementwise(function="clip", min=0.25), ("large",)))
    for source, functions in (("input", _ANY_NUMBER), ("positive", _POSITIVE)):
        for function in functions:
            layer = W.Elementwise(function=function, **_NUMBERS.get(function, {}))  # type: ignore[arg-type]
            some.append((f"of_{function}", layer, (source,)))
    joined = tuple(name for name, _, _ in some[2:])
    return graph(
        shape,
        *some,
        ("all", W.Concat(axis=1), joined),
        ("flat", W.Flatten(), ("all",)),
        ("logits", W.Linear(out_features=CLASSES), ("flat",)),
    )


ELEMENTWISE = {
    "elementwise-of-features": _functions((9,)),
    "elementwise-of-maps": _functions((2, 4, 3)),
    "elementwise-of-a-sequence": _functions((4, 6)),
}
