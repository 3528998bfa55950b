"""The ``dlb`` command as a process, and what must hold however it ends."""

from __future__ import annotations

import atexit
import json
import os
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import psutil

TESTS = Path(__file__).parents[1]


def said(check: dict[str, Any]) -> str:
    """The sentences of a check's result, of the JSON of a certificate."""
    import msgspec

    from dlb.proof.certificate import CheckResult
    from dlb.report.sentences import describe

    return describe(msgspec.convert(check, CheckResult))


def failure_line(document: dict[str, Any]) -> str:
    """The line of a failure, of the JSON of a record or a certificate."""
    import msgspec

    from dlb.failure import Failure

    return msgspec.convert(document, Failure).line


#: A run of the small workload takes a few seconds; this only ends a test that hangs.
PATIENCE = 120.0
#: Within this long of a run's end none of its processes may be left.
GONE_SECONDS = 5.0


@dataclass(frozen=True)
class Ended:
    """A command that has ended."""

    status: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        """The one JSON document on standard output."""
        return json.loads(self.out)

    @property
    def complaint(self) -> str:
        """What it said went wrong: the one line of dlb's own on standard error."""
        lines = [line for line in self.err.splitlines() if line.startswith("dlb: ")]
        assert lines, f"no complaint in: {self.err!r}"
        return lines[-1]


def heed_signals() -> None:
    """In a new process: what ``nohup`` or a shell's ``&`` has ignored for these tests is not ignored."""
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)


class CommandServer:
    """A process of a command's Python that has imported dlb; its children run commands."""

    def __init__(self, command: Path) -> None:
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("DLB_", "PYTHON"))}
        compiled = command.parents[1] / "compiled"
        if compiled.exists():
            kept["PYTHONPYCACHEPREFIX"] = str(compiled)
        self._process = subprocess.Popen(
            [str(command.parent / "python"), str(Path(__file__).with_name("command_server.py"))],
            env=kept,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        atexit.register(self._stop)

    def _stop(self) -> None:
        self._process.kill()
        self._process.wait()

    def run(
        self,
        words: Sequence[object],
        environment: Mapping[str, str],
        folder: Path,
        timeout: float = PATIENCE,
    ) -> Ended:
        """Run a command to its end; its status is minus the signal that ended it, if one did.

        Raises:
            subprocess.TimeoutExpired: it was killed after ``timeout`` seconds.
        """
        with tempfile.TemporaryDirectory() as files:
            out, err = (Path(files) / name for name in ("out", "err"))
            status = self._run(words, environment, folder, out, err, timeout)
            return Ended(status, out.read_bytes().decode(), err.read_bytes().decode())

    def _run(
        self,
        words: Sequence[object],
        environment: Mapping[str, str],
        folder: Path,
        out: Path,
        err: Path,
        timeout: float,
    ) -> int:
        asked = {
            "words": [*map(str, words)],
            "environment": dict(environment),
            "folder": str(folder),
            "out": str(out),
            "err": str(err),
        }
        assert self._process.stdin is not None and self._process.stdout is not None
        print(json.dumps(asked), file=self._process.stdin, flush=True)
        number = int(self._process.stdout.readline())
        late = threading.Timer(timeout, os.kill, (number, signal.SIGKILL))
        late.daemon = True  # Ctrl-C does not wait for it
        late.start()
        try:
            status = int(self._process.stdout.readline())
            if late.finished.is_set():
                raise subprocess.TimeoutExpired([*map(str, words)], timeout)
        finally:
            late.cancel()
        return status


@cache
def server_of(command: Path) -> CommandServer:
    """The server of a command; it lives as long as the tests."""
    return CommandServer(command)


class Dlb:
    """Runs ``dlb`` and looks after its processes, which carry a mark in their environment."""

    def __init__(self, command: Path, folder: Path, home: Path | None = None) -> None:
        self.command = command
        self.folder = folder
        self.mark = f"{folder}-{time.monotonic_ns()}"
        self.out = folder / "results"
        self.home = home or folder / "home"

    def environment(self, fault: str = "", more: Mapping[str, str] | None = None) -> dict[str, str]:
        compiled = self.command.parents[1] / "compiled"
        # Python takes a module of the same size and second for the one that it compiled before.
        shutil.rmtree(compiled / self.folder.relative_to("/"), ignore_errors=True)
        kept = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("DLB_", "PYTHON"))
        }
        return {
            **kept,
            "PYTHONPYCACHEPREFIX": str(compiled),
            "DLB_HOME": str(self.home),
            "PYTEST_DLB_MARK": self.mark,
            "DLB_FAULT": fault,
            "TMPDIR": str(self.folder),
            "COLUMNS": "200",
            **(more or {}),
        }

    def start(
        self, *words: object, fault: str = "", more: Mapping[str, str] | None = None, **options: Any
    ) -> subprocess.Popen[str]:
        """Start a command, its output in pipes, in a process group of its own, with no signal ignored."""
        streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "preexec_fn": heed_signals}
        return subprocess.Popen(
            [str(self.command), *map(str, words)],
            env=self.environment(fault, more),
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
            **{**streams, **options},
        )

    def __call__(self, *words: object, **options: Any) -> Ended:
        """Run a command to its end, in a child of a process that has imported dlb, or in a new one."""
        if not set(options) <= {"fault"} or os.environ.get("COVERAGE_PROCESS_START"):
            return self.finish(self.start(*words, **options))
        ended = server_of(self.command).run(words, self.environment(**options), self.folder)
        return self._checked(ended)

    def finish(self, process: subprocess.Popen[str]) -> Ended:
        """Wait for a command; check what holds for every command, however it ends."""
        said = process.communicate(timeout=PATIENCE)
        return self._checked(Ended(process.returncode, said[0] or "", said[1] or ""))

    def _checked(self, ended: Ended) -> Ended:
        assert "Traceback" not in ended.out + ended.err
        assert self.left() == []
        return ended

    def run(self, *words: object, workload: object = "", **options: Any) -> Ended:
        """``dlb run`` of the small workload, a few steps."""
        return self(*self.run_words(*words, workload=workload), **options)

    def run_words(self, *words: object, workload: object = "") -> Sequence[object]:
        mlp = workload or TESTS / "workloads" / "mlp.toml"
        given = ["run", mlp, "--steps", 20, "--threads", 1, "--out", self.out, *words]
        if not {"--rounds", "--precision"} & set(words):
            given += ["--rounds", 0]
        return given if "--on" in words else [*given, "--on", "example"]

    def left(self) -> list[str]:
        """Processes of this run that live on."""
        deadline = time.monotonic() + GONE_SECONDS
        while (found := self.alive()) and time.monotonic() < deadline:
            time.sleep(0.1)
        return [" ".join(process.cmdline()) for process in found]

    def alive(self) -> list[psutil.Process]:
        """Processes that carry this run's mark."""
        found = []
        for process in psutil.process_iter():
            try:
                marked = process.environ().get("PYTEST_DLB_MARK") == self.mark
                if marked and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
            except psutil.Error:
                continue
        return found

    def records(self) -> dict[str, dict[str, Any]]:
        """Every record by adapter, its certificate and series included; each is whole and valid."""
        import jsonschema
        import msgspec

        from dlb import record

        schema = json.loads(record.schema())
        found = {}
        for path in self.out.glob("*.json"):
            document = json.loads(path.read_bytes())
            jsonschema.validate(document, schema)
            whole = record.read(path)
            assert whole.name == path.stem
            found[document["adapter"]] = json.loads(msgspec.json.encode(whole))
        assert not list(self.out.rglob("*.part"))
        return found
