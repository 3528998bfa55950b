"""Making that is interrupted, killed, too slow, or done twice at once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from dlb import environments
from dlb.environments import record
from dlb.errors import ProvisionError

PROGRAM = """
import sys
from pathlib import Path
from dlb import environments
made = environments.create("mini", source=Path(sys.argv[1]), report=lambda s: print(s, flush=True))
print("created", made.created)
"""
# The same next to one that fails at once, since its source is not there.
PROGRAM_OF_TWO = """
import sys
from pathlib import Path
from dlb import environments

def make(name, report, source):
    return environments.create(name, source=source / "no" if name == "other" else source, report=report)

environments.make_each(make, ["other", "mini"], print, source=Path(sys.argv[1]))
"""
SECONDS = 120.0
# A build that never ends, and says that it began and which process it is.
ENDLESS = """
import os, time
from pathlib import Path
def build_wheel(*_, **__):
    Path(__file__).with_name("began").write_text(str(os.getpid()))
    time.sleep(10_000)
"""


@pytest.fixture
def endless(checkout: Path) -> Path:
    mini = checkout / "plugins" / "dlb-mini"
    (mini / "endless.py").write_text(ENDLESS)
    text = (mini / "pyproject.toml").read_text()
    text = text.replace('requires = ["hatchling>=1.24"]', "requires = []\nbackend-path = ['.']")
    (mini / "pyproject.toml").write_text(text.replace("hatchling.build", "endless"))
    return checkout


def began(checkout: Path) -> int:
    """The process of the build, once it has begun."""
    path = checkout / "plugins" / "dlb-mini" / "began"
    deadline = time.monotonic() + SECONDS
    while not (path.exists() and path.read_text()):
        assert time.monotonic() < deadline, "the build did not begin"
        time.sleep(0.05)
    return int(path.read_text())


def running(pid: int) -> bool:
    import psutil

    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def ended(pid: int) -> bool:
    deadline = time.monotonic() + 20
    while running(pid) and time.monotonic() < deadline:
        time.sleep(0.05)
    return not running(pid)


@pytest.fixture
def maker(endless: Path, request: pytest.FixtureRequest) -> Iterator[subprocess.Popen[str]]:
    """A process in the middle of a create."""
    process = subprocess.Popen(
        [sys.executable, "-c", getattr(request, "param", PROGRAM), str(endless)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    yield process
    process.kill()
    process.wait()
    assert process.stdout is not None
    process.stdout.close()


def mend(checkout: Path) -> None:
    """Make the checkout buildable again."""
    mini = checkout / "plugins" / "dlb-mini"
    text = (mini / "pyproject.toml").read_text()
    text = text.replace("requires = []\nbackend-path = ['.']", 'requires = ["hatchling>=1.24"]')
    (mini / "pyproject.toml").write_text(text.replace("endless", "hatchling.build"))


@pytest.mark.parametrize("maker", [PROGRAM, PROGRAM_OF_TWO], ids=["one", "two"], indirect=True)
def test_control_c(endless: Path, maker: subprocess.Popen[str], home: Path) -> None:
    build = began(endless)
    assert environments.find("mini") is None
    os.kill(maker.pid, signal.SIGINT)
    assert maker.wait(SECONDS) != 0
    assert ended(build)
    assert not (home / "environments" / "mini").exists()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a child of its parent's end")
@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_killed(
    how: signal.Signals, endless: Path, maker: subprocess.Popen[str], home: Path
) -> None:
    import psutil

    build = began(endless)
    (uv,) = [p for p in psutil.Process(maker.pid).children(recursive=True) if p.name() == "uv"]
    os.kill(maker.pid, how)
    maker.wait(SECONDS)
    assert ended(uv.pid) and ended(build)
    folder = home / "environments" / "mini"
    assert record.is_unfinished(folder)
    assert environments.find("mini") is None
    assert "unfinished" in environments.doctor("mini")[0].what

    mend(endless)
    said: list[str] = []
    environments.create("mini", source=endless, report=said.append)
    # The last threads of a killed process may hold the lock for a moment after it counts as ended.
    first = next(line for line in said if not line.startswith("waiting for another dlb"))
    assert first == f"deleting an unfinished environment in {folder}"
    assert {f.severity for f in environments.doctor("mini")} == {"ok"}


def test_killed_while_replacing(checkout: Path, home: Path) -> None:
    made = environments.create("mini", source=checkout)
    # As a process killed in the middle of making it again leaves it.
    made.folder.rename(made.folder.with_name(".mini.replaced"))
    made.folder.mkdir()
    (made.folder / record.UNFINISHED).touch()
    assert environments.find("mini") is None
    assert environments.list_all() == [made]
    assert environments.ensure("mini", source=checkout) == made
    assert {f.severity for f in environments.doctor("mini")} == {"ok"}
    environments.remove("mini")
    assert [p.name for p in (home / "environments").iterdir()] == [".mini.lock"]


def test_too_slow(endless: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DLB_PROVISION_TIMEOUT", "15")
    with pytest.raises(ProvisionError, match="DLB_PROVISION_TIMEOUT"):
        environments.create("mini", source=endless)
    assert ended(began(endless))
    assert not (home / "environments" / "mini").exists()


def test_waiting_is_bounded(
    endless: Path, maker: subprocess.Popen[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    build = began(endless)
    monkeypatch.setenv("DLB_PROVISION_TIMEOUT", "0.5")
    said: list[str] = []
    with pytest.raises(ProvisionError, match="another dlb"):
        environments.create("mini", source=endless, report=said.append)
    assert said == ["waiting for another dlb process that is using 'mini'"]
    os.kill(maker.pid, signal.SIGINT)
    maker.wait(SECONDS)
    assert ended(build)


def test_two_at_once(checkout: Path) -> None:
    command = [sys.executable, "-c", PROGRAM, str(checkout)]
    both = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    outputs = [process.communicate(timeout=SECONDS)[0] for process in both]
    assert [process.returncode for process in both] == [0, 0]
    lasts = {output.splitlines()[-1] for output in outputs}
    assert len(lasts) == 1, "the second made its own instead of taking the first's"
    assert sum("waiting for another dlb" in output for output in outputs) == 1
    assert {f.severity for f in environments.doctor("mini")} == {"ok"}
