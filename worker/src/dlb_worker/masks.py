"""Places that a mask keeps: bits in row-major order, eight to a byte, as hexadecimal text."""

from typing import TYPE_CHECKING, Tuple

from dlb_worker.model import Node

if TYPE_CHECKING:  # a description is checked without NumPy
    import numpy as np

__all__ = ["bits_of", "kept_places", "packed"]


def packed(kept: "np.ndarray") -> str:
    """The text of a mask, whose places that stay are true; zeros up to a whole byte."""
    import numpy as np

    return np.packbits(np.asarray(kept, bool).ravel()).tobytes().hex()


def bits_of(text: str) -> "np.ndarray":
    """The bits of a text, bool, eight for each two digits.

    Raises:
        ValueError: it is no hexadecimal text.
    """
    import numpy as np

    return np.unpackbits(np.frombuffer(bytes.fromhex(text), np.uint8)).astype(bool)


def kept_places(node: Node) -> "np.ndarray":
    """The places that a mask keeps, bool [*sizes]."""
    import numpy as np

    sizes: Tuple[int, ...] = tuple(node.sizes)
    return bits_of(node.kept)[: int(np.prod(sizes))].reshape(sizes)
