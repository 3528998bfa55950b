"""Explains in one line why uv failed and what to do."""

from __future__ import annotations

import itertools
import re
from difflib import get_close_matches

from dlb.environments.names import KNOWN

__all__ = ["condense", "explain"]

_NETWORK = re.compile(
    r"error sending request|dns error|could not connect|failed to fetch|tcp connect error"
    r"|network is unreachable|network was disabled|network connectivity is disabled"
    r"|operation timed out|connection (refused|reset)",
    re.IGNORECASE,
)
# The user set uv to offline; the network is not the cause.
_OFFLINE = re.compile(r"network (was|connectivity is) disabled", re.IGNORECASE)
# The index was reached, and refused the request.
_ANSWERED = re.compile(r"http status (client|server) error", re.IGNORECASE)
_HOST = re.compile(r"https?://(?:[^/@\s]*@)?([^/:\s)\x60]+)")
#: Where uv finds torch's builds if UV_TORCH_BACKEND is set.
_TORCH_HOST = "download.pytorch.org"
_DOWNLOAD = re.compile(r"failed to download", re.IGNORECASE)
_SPACE = re.compile(r"no space left on device|os error 28|disk quota exceeded", re.IGNORECASE)
_PYTHON = re.compile(
    r"no interpreter found|failed to inspect python|no (python )?download|python downloads"
    r"|invalid version request|no python installation|did not satisfy|requested python version",
    re.IGNORECASE,
)
_UNKNOWN = re.compile(r"was not found in the (package registry|provided package locations)")
_MARKS = re.compile(r"^[\s\xd7│╰├─▶]*(?:(?:error|cause|caused by):\s*)?", re.IGNORECASE)
_LONGEST = 400


def explain(output: str, *, making: bool, python: str, distribution: str) -> tuple[str, str]:
    """The reason why uv failed, and the remedy.

    Args:
        output: the whole output of uv.
        making: whether uv was making the virtual environment (choosing an interpreter) rather than
            installing packages.
        python: the requested interpreter.
        distribution: the adapter's distribution.
    """
    error = "\n".join(_error_lines(output))
    if _SPACE.search(error):
        return (
            "no space left on the device",
            "free some, or set DLB_HOME (environments) and UV_CACHE_DIR (downloads) to folders "
            "with more",
        )
    unreachable = bool(_NETWORK.search(error)) and not _ANSWERED.search(error)
    if making and (unreachable or _PYTHON.search(error) or _DOWNLOAD.search(error)):
        fetch = "; downloading one failed" if unreachable or _DOWNLOAD.search(error) else ""
        return (
            f"no fitting Python ({python}) on this machine{fetch} ({condense(output)})",
            "install such a Python, or name one that fits with --python",
        )
    if unreachable:
        host = _HOST.search(error)
        where = host[1] if host else "the package index"
        first = f"check the connection to {where}"
        if _OFFLINE.search(error):
            first = "unset DLB_OFFLINE and UV_OFFLINE"
        elif where == _TORCH_HOST:
            first += ", or unset UV_TORCH_BACKEND, which takes packages from there"
        return (
            f"no network: could not reach {where}",
            f"{first}, or set PIP_FIND_LINKS or --from to a folder of wheels",
        )
    if _UNKNOWN.search(error) and (distribution in error or "dlb-worker" in error):
        near = get_close_matches(distribution, [f"dlb-{name}" for name in KNOWN], n=1)
        suggestion = f"did you mean '{near[0].removeprefix('dlb-')}'? else " if near else ""
        return (
            condense(output),
            f"{suggestion}check the adapter's name, or give its source with --from",
        )
    return condense(output), "fix that and create it again"


def condense(output: str) -> str:
    """The relevant part of uv's last error, on one line."""
    lines = list(
        itertools.takewhile(lambda line: not line.lower().startswith("hint:"), _error_lines(output))
    )
    if not lines:
        return "no reason was given"
    # A build's own output follows uv's lines; its last line has the error.
    relevant = [*lines[:2], lines[-1]] if lines[0].startswith("Failed to build") else lines[:2]
    text = "; ".join(dict.fromkeys(line.rstrip(".;") for line in relevant))
    return text if len(text) <= _LONGEST else text[: _LONGEST - 3] + "..."


def _error_lines(output: str) -> list[str]:
    """The lines from uv's last error on, without its marks. Warnings come before them."""
    lines = [line.rstrip() for line in output.splitlines()]
    start = 0
    for number, line in enumerate(lines):
        if line.startswith("error:") or line.lstrip().startswith("\xd7"):
            start = number
    stripped = (_MARKS.sub("", line).strip() for line in lines[start:])
    return [line for line in stripped if line and line not in {"[stderr]", "[stdout]"}]
