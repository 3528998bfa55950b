"""Adapter names, and the frameworks whose adapters this project maintains."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from dlb.errors import RequestError
from dlb_worker.plugins import NAME

__all__ = ["KNOWN", "Framework", "adapter_called", "also_known", "check_name", "distribution_of"]


@dataclass(frozen=True)
class Framework:
    """A framework, as it is known before its adapter is installed.

    ``python`` is a version range such as ``>=3.10,<3.12``. ``also`` are other names by which people know it.
    """

    title: str
    home: str
    python: str
    also: tuple[str, ...] = ()


# Only for display, and to choose an interpreter when an adapter comes from an index. Any other name works
# by the same convention.
KNOWN: dict[str, Framework] = {
    "chainer": Framework("Chainer", "https://chainer.org", ">=3.10,<3.12"),
    "cntk": Framework("CNTK", "https://learn.microsoft.com/cognitive-toolkit", ">=3.6,<3.7"),
    "mxnet": Framework("Apache MXNet", "https://mxnet.apache.org", ">=3.10,<3.12"),
    "tf": Framework(
        "TensorFlow", "https://www.tensorflow.org", ">=3.10,<3.14", ("tensorflow", "keras")
    ),
    "theano": Framework("Theano", "https://github.com/Theano/Theano", ">=3.8,<3.9"),
    "torch": Framework("PyTorch", "https://pytorch.org", ">=3.10", ("pytorch",)),
}


def adapter_called(name: str, available: Collection[str] = ()) -> str:
    """The adapter that a user means: ``tf`` for ``tensorflow``; the name itself if it is an adapter's.

    Args:
        available: adapters that are installed, whose names stand for themselves.
    """
    if name in available:
        return name
    return next((known for known, each in KNOWN.items() if name in each.also), name)


def also_known() -> list[str]:
    """The other names of known frameworks."""
    return [name for framework in KNOWN.values() for name in framework.also]


def check_name(name: str) -> str:
    """Check an adapter's name; returns the name.

    Raises:
        RequestError: an adapter cannot have this name.
    """
    if not NAME.fullmatch(name):
        raise RequestError(
            f"{name!r} cannot be an adapter's name: use lower-case letters, digits, '-' and '_' "
            "(at most 64, a letter or digit first and last), such as 'torch'"
        )
    if name == "core":
        raise RequestError(
            "'core' is dlb itself, not an adapter; name a framework, such as 'torch'"
        )
    return name


def distribution_of(name: str) -> str:
    """The distribution that holds adapter ``name``: ``dlb-NAME``, by convention.

    Raises:
        RequestError: the name cannot be an adapter's.
    """
    return f"dlb-{check_name(name)}"
