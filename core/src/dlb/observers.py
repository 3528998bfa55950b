"""Observers of a training that run beside it, in this process."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

from dlb_worker.plugins import load_plugins, observer

__all__ = ["observe_processes"]


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
        DlbError: an observer did not start; the message names it.
    """
    observed: dict[str, Any] = {}
    passed = {"framework": adapter, "processes": processes, "device": device}
    with ExitStack() as stack:
        for implementation in load_plugins().hook.dlb_observe_processes.get_hookimpls():
            arguments = {name: passed[name] for name in implementation.argnames}
            generator = implementation.function(**arguments)
            stack.enter_context(observer(implementation.plugin_name, generator, observed))
        yield observed
