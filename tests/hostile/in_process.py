"""Commands in the process of the tests, and bytes that are damaged in a way that can be repeated."""

from __future__ import annotations

import contextlib
import os
import random
import time
from collections.abc import Sequence

import pytest

from dlb import cli

__all__ = ["Ended", "damaged"]


class Ended:
    """How a command ended, in this process, and the seconds of processor time that it took."""

    def __init__(self, words: tuple[str, ...], capfd: pytest.CaptureFixture[str]) -> None:
        capfd.readouterr()
        started = time.process_time()
        with contextlib.redirect_stdout(os.fdopen(os.dup(1), "w")) as out:
            self.status = cli.call([*words])
            out.close()
        self.seconds = time.process_time() - started
        self.out, err = capfd.readouterr()
        self.lines = err.splitlines()
        assert "Traceback" not in self.out + err and "a fault of dlb" not in err, err[-3000:]


def damaged(content: bytes, draw: random.Random, odd: Sequence[bytes]) -> bytes:
    """The content with some bytes changed, cut out, repeated, or odd ones put in."""
    result = bytearray(content)
    for _ in range(draw.randint(1, 4)):
        start, size = draw.randrange(len(result) + 1), draw.randint(1, 8)
        how = draw.choice(["change", "cut", "repeat", "end", "odd"])
        if how == "change":
            result[start : start + size] = draw.randbytes(size)
        elif how == "cut":
            del result[start : start + size]
        elif how == "repeat":
            result[start:start] = result[start : start + size] * draw.randint(1, 50)
        elif how == "end":
            del result[start:]
        else:
            result[start:start] = draw.choice(odd)
    return bytes(result)
