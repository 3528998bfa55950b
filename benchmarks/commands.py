"""Benchmarks as commands: errors are told in a line, as by ``dlb``, and what was started ends with them."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from dlb.errors import DlbError


class Terminated(KeyboardInterrupt):
    """The benchmark alone was asked to end: a terminal asks what it started, too."""


def told(main: Callable[[], int]) -> int:
    """The exit status of a benchmark; an error's, once it is told, and 130 of an interrupt."""
    name = Path(sys.argv[0]).name
    signal.signal(signal.SIGTERM, _terminated)
    try:
        return main()
    except DlbError as error:
        print(f"{name}: {error}", file=sys.stderr)
        return error.exit_status
    except KeyboardInterrupt:
        print(f"{name}: interrupted", file=sys.stderr)
        return 130


@contextmanager
def started(command: Sequence[str | Path], **more: Any) -> Iterator[subprocess.Popen[str]]:
    """A command that runs; in the end, or when the benchmark is interrupted, it is waited for.

    ``subprocess.run`` kills what does not end within a quarter of a second of an interrupt, and
    ``dlb`` would leave what it has not written yet.
    """
    process = subprocess.Popen([str(word) for word in command], **more)
    try:
        yield process
    except Terminated:
        process.terminate()
        raise
    finally:
        process.wait()


def ran(command: Sequence[str | Path], **more: Any) -> int:
    """The exit status of a command."""
    with started(command, **more) as process:
        return process.wait()


def _terminated(number: int, frame: FrameType | None) -> None:
    raise Terminated
