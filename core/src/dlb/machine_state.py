"""The state of a machine that moves figures and may change from run to run.

Each fact is null where it cannot be known, and ``unknown`` has the reason. Sources: Linux'
Documentation/admin-guide/pm/cpufreq.rst, intel_pstate.rst, mm/transhuge.rst and filesystems/proc.rst.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from dlb.provenance import core_numbers

__all__ = ["machine_state"]

CPUS = Path("/sys/devices/system/cpu")
HUGE_PAGES = Path("/sys/kernel/mm/transparent_hugepage/enabled")
CPU_INFO, STATISTICS = Path("/proc/cpuinfo"), Path("/proc/stat")


class _Unknown(Exception):
    """Why a fact is not known."""


def machine_state() -> dict[str, Any]:
    """Facts by name.

    - ``governor``: of the cores that this process may use, what chooses their frequency.
    - ``boost``: whether frequencies above the nominal one are allowed.
    - ``transparent_hugepages``: ``always``, ``madvise`` or ``never``.
    - ``virtual``: whether a hypervisor runs the machine.
    - ``steal_share``: since the start of the system, the share of time that a virtual machine's host took.
    - ``unknown``: reasons, by name.
    """
    facts: dict[str, Any] = {}
    reasons: dict[str, str] = {}
    for name, read in _FACTS.items():
        try:
            facts[name] = read()
        except _Unknown as reason:
            facts[name], reasons[name] = None, str(reason)
    return {**facts, "unknown": reasons}


def _governor() -> str:
    found = {_text(CPUS / f"cpu{core}" / "cpufreq" / "scaling_governor") for core in core_numbers()}
    return ", ".join(sorted(found))


def _boost() -> bool:
    if (CPUS / "intel_pstate" / "no_turbo").exists():
        return _text(CPUS / "intel_pstate" / "no_turbo") == "0"
    return _text(CPUS / "cpufreq" / "boost") == "1"


def _huge_pages() -> str:
    _, _, chosen = _text(HUGE_PAGES).partition("[")
    return chosen.partition("]")[0]


def _virtual() -> bool:
    # The flag is that of x86 processors.
    flags = [line for line in _text(CPU_INFO).splitlines() if line.startswith("flags")]
    if not flags:
        raise _Unknown(f"{CPU_INFO} lists no flags of the processor")
    return "hypervisor" in flags[0].split()


def _steal_share() -> float:
    times = [int(word) for word in _text(STATISTICS).splitlines()[0].split()[1:]]
    if len(times) < 8:
        raise _Unknown(f"{STATISTICS} has no stolen time")
    # Times of guests are part of those of users. The eighth is stolen.
    share = round(times[7] / max(1, sum(times[:8])), 4)
    if not share and _is_virtual():
        raise _Unknown("the host of this virtual machine reports no stolen time, or took none")
    return share


def _is_virtual() -> bool:
    try:
        return _virtual()
    except _Unknown:
        return False


def _text(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError as error:
        raise _Unknown(f"{path}: {error.strerror or error}") from None


_FACTS: dict[str, Callable[[], Any]] = {
    "governor": _governor,
    "boost": _boost,
    "transparent_hugepages": _huge_pages,
    "virtual": _virtual,
    "steal_share": _steal_share,
}
