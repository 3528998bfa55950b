"""The observer that comes with this package: what the processes of a training take of the machine.

It looks from outside, at all workers and servers and whatever they start, a few times a second, so that no
step waits for it. A record has it under ``resources``:

- ``seconds``, ``samples``: how long and how often it looked; ``processes``: the most at a time.
- ``cpu_user_seconds``, ``cpu_system_seconds``: of all processes.
- ``memory_average_bytes``, ``memory_peak_bytes``: resident sizes of all processes together, as sampled;
  pages that processes share count in each.
- ``voluntary_switches``, ``involuntary_switches``: context switches of all processes.
- ``machine_iowait_seconds``, ``machine_steal_seconds``, ``machine_swapped_bytes``: of the whole machine
  meanwhile; null where the system does not tell.
- ``cpu_energy_joules``: of all processor packages (RAPL), other processes' work included; null with
  ``cpu_energy_reason``.
- ``devices``: of each GPU of the machine, ``name``, ``memory_peak_bytes``, ``use`` (mean share of time in which
  a kernel ran) and ``energy_joules`` (null if it has no counter); ``devices_reason`` if there are none.
- ``own_cpu_seconds``: what looking took.
- ``series``: ``seconds`` since the beginning, ``cores`` (CPU seconds per second) and ``memory_bytes``, at most
  :data:`MOST_POINTS` of each.

Sources: psutil; Linux' powercap interface (Documentation/power/powercap); NVIDIA's management library.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from dlb_worker import hookimpl

__all__ = ["dlb_observe_processes"]

#: Seconds between two looks, and between two looks for processes that were started.
PERIOD_SECONDS, SEARCH_SECONDS = 0.25, 1.0
#: Of a longer series, every second point is dropped.
MOST_POINTS = 512
RAPL = Path("/sys/class/powercap")


@hookimpl
def dlb_observe_processes(
    processes: Callable[[], Sequence[int]], device: str
) -> Iterator[dict[str, Any]]:
    """Look at the processes until the training has ended."""
    seen: dict[str, Any] = {}
    watch = _Watch(processes, device)
    watch.start()
    try:
        yield seen
    finally:
        seen.update(watch.end())


class _Watch(threading.Thread):
    """Looks at processes until it is ended."""

    def __init__(self, processes: Callable[[], Sequence[int]], device: str) -> None:
        super().__init__(daemon=True)
        self._processes = processes
        self._over = threading.Event()
        self._tree = _Tree()
        self._machine, self._energy = _machine_counters(), _PackageEnergy()
        self._devices = _devices(device)
        self._began = self._searched = time.monotonic()
        self._own_seconds = 0.0
        self._stride = 1
        self._memory: list[int] = []
        self._points: list[tuple[float, float, int]] = []
        self._most_processes = 0
        self._tree.search(processes())
        self._look()

    def run(self) -> None:
        began = time.thread_time()
        while not self._over.wait(PERIOD_SECONDS):
            if time.monotonic() > self._searched + SEARCH_SECONDS:
                self._tree.search(self._processes())
                self._searched = time.monotonic()
            self._look()
        self._own_seconds = time.thread_time() - began

    def _look(self) -> None:
        memory = self._tree.look()
        self._devices.look()
        self._memory.append(memory)
        self._most_processes = max(self._most_processes, self._tree.alive)
        if (len(self._memory) - 1) % self._stride:
            return
        self._points.append((time.monotonic() - self._began, self._tree.cpu_seconds, memory))
        if len(self._points) > MOST_POINTS:
            del self._points[1::2]
            self._stride *= 2

    def end(self) -> dict[str, Any]:
        """Look a last time; everything that was seen."""
        self._over.set()
        self.join()
        self._look()
        seconds, after = time.monotonic() - self._began, _machine_counters()
        machine = {
            name: None if before is None or after[name] is None else after[name] - before
            for name, before in self._machine.items()
        }
        return {
            "seconds": seconds,
            "samples": len(self._memory),
            "processes": self._most_processes,
            **self._tree.totals(),
            "memory_average_bytes": round(sum(self._memory) / len(self._memory)),
            "memory_peak_bytes": max(self._memory),
            **machine,
            **self._energy.read(),
            **self._devices.read(),
            "own_cpu_seconds": self._own_seconds,
            "series": self._series(),
        }

    def _series(self) -> dict[str, list[float]]:
        series: dict[str, list[float]] = {"seconds": [], "cores": [], "memory_bytes": []}
        for (began, before, _), (ended, after, memory) in pairwise(self._points):
            series["seconds"].append(ended)
            series["cores"].append((after - before) / max(ended - began, 1e-9))
            series["memory_bytes"].append(memory)
        return series


class _Tree:
    """Processes and all that they started, with what each took since it was first seen."""

    def __init__(self) -> None:
        self._known: dict[int, Any] = {}
        #: By process: what it had taken at first, and at last.
        self._first: dict[int, tuple[float, ...]] = {}
        self._last: dict[int, tuple[float, ...]] = {}

    @property
    def alive(self) -> int:
        return len(self._known)

    @property
    def cpu_seconds(self) -> float:
        return sum(self._taken()[:2])

    def search(self, roots: Sequence[int]) -> None:
        """Find processes that are new. What they took before counts, but for the first search."""
        import psutil

        begun = bool(self._first)
        for pid in roots:
            with contextlib.suppress(psutil.Error):
                root = psutil.Process(pid)
                for each in (root, *root.children(recursive=True)):
                    if each.pid not in self._first:
                        self._known[each.pid] = each
                        self._first[each.pid] = (0.0,) * 4 if begun else _counters(each)
                        self._last[each.pid] = self._first[each.pid]

    def look(self) -> int:
        """Read all counters; the resident bytes of all processes."""
        import psutil

        memory = 0
        for pid, process in list(self._known.items()):
            try:
                with process.oneshot():
                    memory += process.memory_info().rss
                    self._last[pid] = _counters(process)
            except psutil.Error:
                del self._known[pid]
        return memory

    def totals(self) -> dict[str, Any]:
        user, system, voluntary, involuntary = self._taken()
        return {
            "cpu_user_seconds": user,
            "cpu_system_seconds": system,
            "voluntary_switches": round(voluntary),
            "involuntary_switches": round(involuntary),
        }

    def _taken(self) -> list[float]:
        return [
            sum(self._last[pid][place] - self._first[pid][place] for pid in self._last)
            for place in range(4)
        ]


def _counters(process: Any) -> tuple[float, ...]:
    times, switches = process.cpu_times(), process.num_ctx_switches()
    return times.user, times.system, switches.voluntary, switches.involuntary


def _machine_counters() -> dict[str, Any]:
    import psutil

    times, swapped = psutil.cpu_times(), psutil.swap_memory()
    return {
        "machine_iowait_seconds": getattr(times, "iowait", None),
        "machine_steal_seconds": getattr(times, "steal", None),
        "machine_swapped_bytes": swapped.sin + swapped.sout,
    }


class _PackageEnergy:
    """Energy of the processor's packages since its construction, by RAPL."""

    def __init__(self) -> None:
        self._reason, self._before = "", {}
        packages = sorted(RAPL.glob("intel-rapl:?")) if RAPL.is_dir() else []
        if not packages:
            self._reason = "this machine has no RAPL counters"
        try:
            self._before = {each: _number(each / "energy_uj") for each in packages}
        except OSError as error:
            self._reason = f"RAPL counters cannot be read: {error.strerror or error}"

    def read(self) -> dict[str, Any]:
        joules = 0.0
        try:
            for package, before in self._before.items():
                after = _number(package / "energy_uj")
                # The counter begins anew above its range.
                around = _number(package / "max_energy_range_uj") if after < before else 0
                joules += (after - before + around) / 1e6
        except (OSError, ValueError) as error:
            self._reason = f"RAPL counters cannot be read: {error}"
        if self._reason:
            return {"cpu_energy_joules": None, "cpu_energy_reason": self._reason}
        return {"cpu_energy_joules": joules, "cpu_energy_reason": ""}


def _number(path: Path) -> int:
    return int(path.read_text().strip())


class _NoDevices:
    """Stands for GPUs where there are none."""

    def __init__(self, reason: str) -> None:
        self._reason = reason

    def look(self) -> None:
        pass

    def read(self) -> dict[str, Any]:
        return {"devices": [], "devices_reason": self._reason}


class _Devices:
    """NVIDIA GPUs, by their management library."""

    def __init__(self, nvml: Any) -> None:
        self._nvml = nvml
        count = nvml.nvmlDeviceGetCount()
        self._handles = [nvml.nvmlDeviceGetHandleByIndex(place) for place in range(count)]
        self._memory, self._use = [0] * count, [0.0] * count
        self._looks = 0
        self._before = [self._energy(handle) for handle in self._handles]

    def look(self) -> None:
        self._looks += 1
        for place, handle in enumerate(self._handles):
            with contextlib.suppress(self._nvml.NVMLError):  # not told of some devices
                used = self._nvml.nvmlDeviceGetMemoryInfo(handle).used
                self._memory[place] = max(self._memory[place], used)
                self._use[place] += self._nvml.nvmlDeviceGetUtilizationRates(handle).gpu / 100

    def read(self) -> dict[str, Any]:
        found = []
        for place, handle in enumerate(self._handles):
            name, before = self._nvml.nvmlDeviceGetName(handle), self._before[place]
            after = self._energy(handle)
            found.append(
                {
                    "name": name.decode() if isinstance(name, bytes) else name,
                    "memory_peak_bytes": self._memory[place],
                    "use": self._use[place] / max(1, self._looks),
                    "energy_joules": None if None in (before, after) else (after - before) / 1e3,
                }
            )
        return {"devices": found, "devices_reason": ""}

    def _energy(self, handle: Any) -> Any:
        """Millijoules since the driver was loaded; None if the device does not count them."""
        try:
            return self._nvml.nvmlDeviceGetTotalEnergyConsumption(handle)
        except self._nvml.NVMLError:
            return None


def _devices(device: str) -> _Devices | _NoDevices:
    if device == "cpu":
        return _NoDevices("the run used none")
    try:
        import pynvml
    except ImportError:
        return _NoDevices("package nvidia-ml-py is not installed")
    try:
        pynvml.nvmlInit()
        return _Devices(pynvml)
    except pynvml.NVMLError as error:
        return _NoDevices(f"NVIDIA's management library says: {error}")
