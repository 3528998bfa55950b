"""Observers of a training that run beside it, in this process."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import msgspec

from dlb.documents import plain
from dlb.errors import PluginError
from dlb_worker.plugins import guarded, load_plugins, observer

__all__ = ["observe_processes"]

#: Bytes of JSON that an observer may yield.
MOST_SEEN = 1 << 24


@contextmanager
def observe_processes(
    adapter: str, processes: Callable[[], Sequence[int]], device: str
) -> Iterator[dict[str, Any]]:
    """Run every plugin's ``dlb_observe_processes`` around the block; what they saw, by plugin, after it.

    Args:
        adapter: what is trained.
        processes: the numbers of its processes.
        device: the device.

    Raises:
        PluginError: an observer did not start, or a record cannot keep what it saw; the message names it.
    """
    observed: dict[str, Any] = {}
    passed = {"framework": adapter, "processes": processes, "device": device}
    with ExitStack() as stack:
        for implementation in load_plugins().hook.dlb_observe_processes.get_hookimpls():
            arguments = {name: passed[name] for name in implementation.argnames}
            start = partial(implementation.function, **arguments)
            stack.enter_context(observer(implementation.plugin_name, start, observed))
        yield observed
    for name, seen in observed.items():
        _check_kept(name, seen)


def _check_kept(name: str, seen: Any) -> None:
    """Raises PluginError unless a record can keep what an observer saw."""
    with guarded(f"reading what observer '{name}' yielded", f"observer '{name}' failed"):
        content = msgspec.json.encode(seen)
        if len(content) > MOST_SEEN:
            raise PluginError(f"it yielded {len(content)} bytes; at most {MOST_SEEN} are kept")
        plain(msgspec.json.decode(content))
