"""The state of a machine, as Linux shows it in files; each test writes files of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from dlb import machine_state
from dlb.provenance import core_numbers

#: Jiffies of a processor: user, nice, system, idle, iowait, irq, softirq, steal, guest, guest_nice.
TIMES = "cpu  40 0 10 40 0 0 0 10 0 0\n"


@pytest.fixture
def system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A system that shows everything."""
    cpus = tmp_path / "cpu"
    for core in core_numbers():
        (cpus / f"cpu{core}" / "cpufreq").mkdir(parents=True)
        (cpus / f"cpu{core}" / "cpufreq" / "scaling_governor").write_text("performance\n")
    (cpus / "cpufreq").mkdir()
    (cpus / "cpufreq" / "boost").write_text("1\n")
    files = {
        "HUGE_PAGES": "always [madvise] never\n",
        "CPU_INFO": "model name: one\nflags\t\t: fpu hypervisor avx2\n",
        "STATISTICS": TIMES,
    }
    monkeypatch.setattr(machine_state, "CPUS", cpus)
    for name, text in files.items():
        (tmp_path / name).write_text(text)
        monkeypatch.setattr(machine_state, name, tmp_path / name)
    return tmp_path


def test_everything_that_a_system_shows(system: Path) -> None:
    assert machine_state.machine_state() == {
        "governor": "performance",
        "boost": True,
        "transparent_hugepages": "madvise",
        "virtual": True,
        "steal_share": 0.1,
        "unknown": {},
    }


def test_intel_says_it_the_other_way_round(system: Path) -> None:
    (system / "cpu" / "intel_pstate").mkdir()
    (system / "cpu" / "intel_pstate" / "no_turbo").write_text("1\n")
    assert machine_state.machine_state()["boost"] is False


@pytest.mark.parametrize(
    ("path", "fact"),
    [
        (f"cpu/cpu{core_numbers()[0]}/cpufreq/scaling_governor", "governor"),
        ("cpu/cpufreq/boost", "boost"),
        ("HUGE_PAGES", "transparent_hugepages"),
        ("CPU_INFO", "virtual"),
        ("STATISTICS", "steal_share"),
    ],
)
def test_what_is_not_shown_is_null_with_the_reason(system: Path, path: str, fact: str) -> None:
    (system / path).unlink()
    found = machine_state.machine_state()
    assert found[fact] is None and "No such file" in found["unknown"][fact]
    assert list(found["unknown"]) == [fact]


def test_a_virtual_machine_whose_host_reports_nothing(system: Path) -> None:
    (system / "STATISTICS").write_text(TIMES.replace(" 10 0 0\n", " 0 0 0\n"))
    found = machine_state.machine_state()
    assert found["steal_share"] is None and "host" in found["unknown"]["steal_share"]
    (system / "CPU_INFO").write_text("flags: fpu\n")
    assert machine_state.machine_state()["steal_share"] == 0.0


def test_of_this_machine_every_fact_is_known_or_has_a_reason() -> None:
    found = machine_state.machine_state()
    unknown = found.pop("unknown")
    assert {name for name, value in found.items() if value is None} == set(unknown)
