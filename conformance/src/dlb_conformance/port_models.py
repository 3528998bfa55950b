"""The file of models that an adapter's author wrote in its framework, for the tests of ports.

::

    [[port_models]]
    factory = "torch_port:image"
    input = [3, 16, 16]
    trained = 6742

    [[port_models]]
    factory = "torch_port:text"
    input = [7]
    tokens = 50
    trained = 1460

``factory`` is as ``dlb port`` takes it, its module beside the file or installed; ``input``
the shape of one sample as the model reads it, of noise, or of integers below ``tokens``;
``trained`` how many numbers training moves, where two biases that are added count as one.
``exports = false`` is said of one that the framework's exporter cannot write.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from dlb.errors import RequestError
from dlb_worker.user_code import factory

from .expected_failures import toml_of

__all__ = ["PortModel", "read"]

TABLE = "port_models"
#: Odd, and no power of two, as in the suite's other tests.
SAMPLES = 5


class _Fields(msgspec.Struct, forbid_unknown_fields=True):
    factory: str
    input: tuple[int, ...]
    trained: int
    tokens: int = 0
    exports: bool = True


@dataclass(frozen=True)
class PortModel:
    """A model that somebody wrote, and what it reads.

    Attributes:
        name: of the factory, ``module:function``.
        folder: where its module is looked for first.
        shape: of one sample, as the model reads it.
        trained: how many numbers training moves.
        tokens: integers are below this; 0 where noise is read.
        exports: whether the framework's exporter can write it.
    """

    name: str
    folder: Path
    shape: tuple[int, ...]
    trained: int
    tokens: int
    exports: bool

    def make(self) -> Callable[[], Any]:
        """Imports and calls the factory, which then runs in its folder."""
        return factory(self.name, str(self.folder))

    def inputs(self) -> np.ndarray:
        """[samples, ...], float64 or int64, always the same."""
        random, shape = np.random.default_rng(0), (SAMPLES, *self.shape)
        return (
            random.integers(self.tokens, size=shape) if self.tokens else random.normal(size=shape)
        )


def read(path: Path) -> tuple[PortModel, ...]:
    """The models of a file, in its order.

    Raises:
        RequestError: unreadable, not TOML, without a model, or one with a field that is unknown,
            missing or of another type; the message names the file.
    """
    try:
        given = msgspec.convert(toml_of(path, "models of ports"), dict[str, list[_Fields]])
    except msgspec.ValidationError as error:
        raise RequestError(f"{path}: {error}; each model begins with [[{TABLE}]]") from None
    if list(given) != [TABLE] or not given[TABLE]:
        raise RequestError(f"{path}: it holds [[{TABLE}]] entries only, and at least one")
    return tuple(
        PortModel(
            one.factory,
            path.resolve().parent,
            one.input,
            one.trained,
            one.tokens,
            one.exports,
        )
        for one in given[TABLE]
    )
