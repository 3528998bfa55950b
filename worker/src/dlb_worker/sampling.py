"""Elements drawn from arrays, the same ones wherever a name and a seed are the same."""

import zlib
from typing import Any, Optional

import numpy as np

__all__ = ["drawn"]


def drawn(name: str, array: Any, count: Optional[int], seed: int) -> np.ndarray:
    """``count`` elements of an array, drawn with replacement; all, where it has no more.

    Args:
        name: the parameter's name; an optimizer's state for it, ``optimizer/NAME.SLOT``, has the
            same elements drawn.
        count: None for all elements.
    """
    flat: np.ndarray = np.asarray(array).reshape(-1)
    if count is None or flat.size <= count:
        whole: np.ndarray = flat.copy()
        return whole
    if name.startswith("optimizer/"):
        name = name[len("optimizer/") :].rpartition(".")[0]
    generator = np.random.RandomState([seed, zlib.crc32(name.encode())])
    chosen: np.ndarray = flat[generator.randint(0, flat.size, count)]
    return chosen
