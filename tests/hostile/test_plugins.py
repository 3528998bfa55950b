"""Plugins and packages that are wrong on purpose: each is left out by name, and costs nobody else anything."""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from dlb_process import Dlb
from in_process import Ended, damaged

from dlb import cli, observers
from dlb.errors import PluginError
from dlb_worker import hookimpl, plugins
from dlb_worker.plugins import load_plugins, plugins_of

POINTS = b"[dlb]\nevil = evil_plugin\n"
METADATA = b"Metadata-Version: 2.1\nName: dlb-evil\nVersion: 1.0\n"
#: What metadata rarely have.
ODD = [b"\n", b"\0", b"[dlb]\n", b"=", b"\xff", b":", b"\n ", b"[", b"../"]
#: What the packages of this environment bring, by plugin.
OWN = {"ci", "data", "example", "measure", "port", "report", "resources", "studies"}
EVIL = "dlb: plugin 'evil' of dlb-evil 1.0"


class Evil:
    """A package on this process's path, and commands that meet it."""

    def __init__(self, folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
        self.folder, self._capfd = folder, capfd

    def write(
        self,
        code: str,
        points: bytes = POINTS,
        metadata: bytes | None = METADATA,
        name: str = "dlb_evil",
    ) -> None:
        about = self.folder / f"{name}-1.0.dist-info"
        about.mkdir(exist_ok=True)
        (about / "entry_points.txt").write_bytes(points)
        if metadata is not None:
            (about / "METADATA").write_bytes(metadata)
        (self.folder / "evil_plugin.py").write_text(code)
        sys.modules.pop("evil_plugin", None)
        load_plugins.cache_clear()

    def __call__(self, *words: str) -> Ended:
        return Ended(words, self._capfd)


@pytest.fixture
def evil(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Iterator[Evil]:
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    folder, handlers = (
        Path.cwd(),
        [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)],
    )
    yield Evil(tmp_path, capfd)
    sys.modules.pop("evil_plugin", None)
    load_plugins.cache_clear()
    assert folder == Path.cwd()
    assert handlers == [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)]


def hook(name: str, body: str) -> str:
    """The code of a plugin that answers one hook."""
    head = "import os, sys, click\nfrom dlb_worker import hookimpl\n"
    return f"{head}from dlb.data.description import *\n@hookimpl\ndef {name}:\n    {body}\n"


DATA_SET = "DataSetDescription({!r}, {!r}, '', '', (1,), (), {}, ())"
SPLITS = "(SplitDescription('train', 1), SplitDescription('test', 1))"
ADAPTER = """
from dlb_example.plugin import ExampleAdapter
class Adapter(ExampleAdapter):
    name = {!r}
    def describe(self):
        import dataclasses
        return dataclasses.replace(super().describe(), {})
adapter = Adapter()
"""

#: Code of a plugin, and what is said of it.
LEFT_OUT = {
    "an error": ("1 / 0", "ZeroDivisionError: division by zero"),
    "an interrupt": ("raise KeyboardInterrupt", "KeyboardInterrupt"),
    "an exit": ("import sys; sys.exit(77)", "SystemExit: 77"),
    "no exception": ("class E(BaseException): pass\nraise E(1)", "E: 1"),
    "no text": (
        "class E(Exception):\n    def __str__(self): raise BaseException\nraise E",
        "E: its text cannot be made",
    ),
    "a long text": ("raise ValueError('x' * 10**7)", "ValueError: xxx"),
    "many lines": ("raise ValueError('a\\nb\\x1b[2J')", "ValueError: a b\\u001b[2J"),
    "half a letter": ("raise ValueError('\\ud800')", "ValueError: ?"),
    "its own error": (
        "from dlb_worker import PluginError\nraise PluginError(object())",
        "its text cannot be made",
    ),
    "recursion": ("def f(): f()\nf()", "RecursionError"),
    "no memory": ("bytearray(1 << 60)", "MemoryError"),
    "no module": ("import nothing_of_this_name", "ModuleNotFoundError"),
    "no hook": ("", "this module answers no hook"),
    "a misspelt hook": (hook("dlb_workload()", "return {}"), "did you mean 'dlb_workloads'?"),
    "an unknown hook": (hook("dlb_zzz()", "return {}"), "'dlb_zzz' is not a hook of contract"),
    "an unmarked hook": ("def dlb_start(framework): pass", "put @dlb_worker.hookimpl above it"),
    "an unknown argument": (
        hook("dlb_clock(framework, gpu)", "pass"),
        "takes gpu, which the contract does not pass; it passes device, framework",
    ),
    "no description": (hook("dlb_describe()", "return 'evil'"), "a str, not an AdapterDescription"),
    "an async hook": (
        hook("dlb_workloads()", "return {}").replace("def ", "async def "),
        "hook 'dlb_workloads' is asynchronous",
    ),
    "an async observer": (
        hook("dlb_observe_processes()", "yield {}").replace("def ", "async def "),
        "hook 'dlb_observe_processes' is asynchronous",
    ),
    "a wrapper": (
        hook("dlb_workloads()", "yield").replace("hookimpl\ndef", "hookimpl(hookwrapper=True)\ndef"),
        "hook 'dlb_workloads' is a wrapper",
    ),
    "a mark of its own": (
        "def dlb_workloads(): return {}\ndlb_workloads.dlb_impl = 5",
        "TypeError",
    ),
    "a generator": (hook("dlb_workloads()", "yield {}"), "returned a generator, not a mapping"),
    "a hook that raises": (hook("dlb_workloads()", "raise KeyboardInterrupt"), "KeyboardInterrupt"),
    "a hook that exits": (hook("dlb_datasets()", "sys.exit(0)"), "SystemExit: 0"),
    "odd types": ("__dir__ = lambda: 1 / 0", "ZeroDivisionError"),
    **{
        f"{name} {answer[:40]}": (hook(f"{name}()", f"return {answer}"), says)
        for name, answer, says in [
            ("dlb_workloads", "[]", "returned a list, not a mapping"),
            ("dlb_workloads", "{1: 'x.toml'}", "a workload cannot be called 1"),
            ("dlb_workloads", "{'mine': 2}", "returned a wrong entry: 2"),
            ("dlb_workloads", "{'mine': b'x'}", "returned a wrong entry"),
            ("dlb_workloads", "{'mine': 'a\\0b'}", "returned a wrong entry"),
            ("dlb_workloads", "{'a/b': 'x'}", "cannot be called 'a/b'"),
            ("dlb_studies", "()", "returned a tuple, not a mapping"),
            ("dlb_studies", "{1: 2}", "returned a wrong entry: 2"),
            ("dlb_studies", "{'wu-tune': '/nowhere'}", "dlb-studies has a study 'wu-tune' too"),
            ("dlb_executors", "{'mine': 2}", "returned a wrong entry: 2"),
            ("dlb_executors", "{'a b': print}", "an executor cannot be called 'a b'"),
            ("dlb_exports", "{'mine': 2}", "returned a wrong entry: 2"),
            ("dlb_exports", "['mine']", "returned a list, not a mapping"),
            ("dlb_strategies", "['ddp']", "returned a wrong entry: 'ddp'"),
            ("dlb_strategies", "'ddp'", "returned a str, not a list or tuple"),
            ("dlb_datasets", "[1]", "returned a wrong entry: 1"),
            ("dlb_datasets", "None", "returned a NoneType"),
            ("dlb_datasets", f"[{DATA_SET.format('mine', 5, SPLITS)}]", "returned a wrong entry"),
            ("dlb_datasets", f"[{DATA_SET.format('mine', '', '()')}]", "no splits 'train' and 'test'"),
            ("dlb_datasets", f"[{DATA_SET.format('mnist', '', SPLITS)}]", "dlb-data has a data set 'mnist'"),
            ("dlb_commands", "[42]", "returned a wrong entry: 42"),
            ("dlb_commands", "[click.Command('a b')]", "a command cannot be called 'a b'"),
            ("dlb_commands", "[click.Command('mine', help=5)]", "AttributeError"),
            ("dlb_commands", "[click.Command('run')]", "dlb-measure has a command 'run' too"),
        ]
    },
    **{
        f"adapter {name!r:.30} {change}": (ADAPTER.format(name, change), says)
        for name, change, says in [
            *(
                (name, "", "an adapter cannot be called")
                for name in ("../escaped", "a/b", "a" * 65, "", "a\0b", "Evil", "-a", "a b", "a\n", 5, None)
            ),
            ("example", "", "only dlb-example has an adapter 'example'"),
            ("torch", "", "only dlb-torch has an adapter 'torch'"),
            ("evil", "contract=(99, 0)", "it is made for contract 99.0"),
            ("evil", "contract=5", "a wrong 'contract'"),
            ("evil", "variants={'compile': 7}", "a wrong 'variants'"),
            ("evil", "layers='linear'", "a wrong 'layers'"),
            ("evil", "layers={1: 'native'}", "a wrong 'layers'"),
            ("evil", "optimizers=None", "a wrong 'optimizers'"),
            ("evil", "dtypes='float32'", "a wrong 'dtypes'"),
            ("evil", "features=(1,)", "a wrong 'features'"),
            ("evil", "exporter=b''", "a wrong 'exporter'"),
            ("evil", "title='\\ud800'", "a wrong 'title'"),
        ]
    },
}  # fmt: skip


@pytest.mark.parametrize(("code", "says"), LEFT_OUT.values(), ids=list(LEFT_OUT))
def test_what_cannot_be_used_is_left_out_alone(code: str, says: str, evil: Evil) -> None:
    evil.write(
        code, POINTS.replace(b"plugin", b"plugin:adapter") if "adapter =" in code else POINTS
    )
    ended = evil("list", "plugins", "--json")
    assert ended.status == 0
    (line,) = ended.lines
    assert line.startswith(f"{EVIL} left out: ") and says in line and len(line) < 700, line
    states = {row["plugin"]: row["state"] for row in json.loads(ended.out)["plugins"]}
    assert states.pop("evil") == "left out"
    assert states.keys() == OWN
    assert set(states.values()) == {"loaded"}


#: Entry points and metadata of a package, and what is said of it; nothing where it is nobody's business.
PACKAGES: dict[str, tuple[bytes, bytes | None, str]] = {
    "no metadata": (POINTS, None, "its metadata cannot be read"),
    "no name": (POINTS, METADATA.replace(b"Name: dlb-evil\n", b""), "cannot be read"),
    "no version": (POINTS, METADATA.replace(b"Version: 1.0\n", b""), "cannot be read"),
    "metadata is no text": (POINTS, METADATA + b"Author: \xff\n", "cannot be read"),
    "a point is no text": (b"[dlb]\nevil = \xff\n", METADATA, "cannot be read"),
    "a point without =": (b"[dlb]\nevil\n", METADATA, "cannot be read"),
    "no module": (b"[dlb]\nevil = ../x:y z\n", METADATA, "left out"),
    "no such module": (b"[dlb]\nevil = nowhere\n", METADATA, "No module named 'nowhere'"),
    "a path": (b"[dlb]\n../evil = evil_plugin\n", METADATA, "cannot be called '../evil'"),
    "a long name": (b"[dlb]\n" + b"e" * 300 + b" = evil_plugin\n", METADATA, "an entry point cannot be called"),
    "no name of a point": (b"[dlb]\n = evil_plugin\n", METADATA, "an entry point cannot be called ''"),
    "zero": (b"[dlb]\ne\0vil = evil_plugin\n", METADATA, "an entry point cannot be called 'e\\x00vil'"),
    "the name of dlb's own": (b"[dlb]\nresources = evil_plugin\n", METADATA, "plugin is called 'resources'"),
    "dlb's own object": (b"[dlb]\nevil = dlb_measure.resources\n", METADATA, "or is the same"),
    "a folded name": (POINTS, METADATA.replace(b"Version", b"Extra: a\n b\nVersion"), ""),
    "another's is no text": (b"[other]\nevil = \xff\n", METADATA, ""),
    "another's without =": (b"[other]\nevil\n", METADATA, ""),
    "another's without metadata": (b"[other]\nevil = x\n", None, ""),
}  # fmt: skip


@pytest.mark.parametrize(("points", "metadata", "says"), PACKAGES.values(), ids=list(PACKAGES))
def test_a_damaged_package_costs_only_itself(
    points: bytes, metadata: bytes | None, says: str, evil: Evil
) -> None:
    evil.write(hook("dlb_workloads()", "return {}"), points, metadata)
    ended = evil("list", "plugins", "--json")
    assert ended.status == 0 and len(ended.lines) == bool(says)
    assert all(says in line and "evil" in line and len(line) < 1500 for line in ended.lines)
    rows = json.loads(ended.out)["plugins"]
    assert ("dlb-measure 0.2.0", "loaded") in {(row["distribution"], row["state"]) for row in rows}


@pytest.mark.parametrize("name", ["METADATA", "entry_points.txt"])
@pytest.mark.parametrize("kind", ["pipe", "device", "folder", "large"])
def test_metadata_that_are_no_file(name: str, kind: str, evil: Evil) -> None:
    evil.write("")
    path = evil.folder / "dlb_evil-1.0.dist-info" / name
    path.unlink()
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "device":
        path.symlink_to("/dev/zero")
    elif kind == "folder":
        path.mkdir()
    else:
        os.truncate(os.open(path, os.O_CREAT | os.O_WRONLY), 1 << 40)
    ended = evil("list", "plugins")
    assert ended.status == 0 and len(ended.lines) == (name == "METADATA")


#: What a plugin brings under a name of dlb's own, and a command that shows dlb's own.
SHIPPED = {
    "a workload": (hook("dlb_workloads()", "return {'lenet5': '/nowhere'}"), "show lenet5"),
    "a data set": (
        hook("dlb_datasets()", f"return [{DATA_SET.format('fashion-mnist-subset', 'Evil', SPLITS)}]"),
        "list datasets",
    ),
    "a command": (hook("dlb_commands()", "return [click.Command('list')]"), "list workloads"),
    "a study": (hook("dlb_studies()", "return {'wu-tune': '/nowhere'}"), "study show wu-tune"),
    "a command of a package": (hook("dlb_commands()", "return [click.Command('data')]"), "data list"),
    "an adapter": (ADAPTER.format("torch", ""), "list adapters"),
}  # fmt: skip


@pytest.mark.parametrize(("code", "command"), SHIPPED.values(), ids=list(SHIPPED))
def test_a_shipped_name_is_never_replaced(code: str, command: str, evil: Evil) -> None:
    before = evil(*command.split())
    evil.write(
        code, POINTS.replace(b"plugin", b"plugin:adapter") if "adapter =" in code else POINTS
    )
    after = evil(*command.split())
    assert (after.status, after.out) == (0, before.out)
    (line,) = after.lines
    assert line.startswith(EVIL)


def test_the_first_of_two_strangers_keeps_its_name(evil: Evil) -> None:
    code = hook("dlb_workloads()", "return {'mine': '/nowhere'}")
    evil.write(code, b"[dlb]\nbad = evil_plugin\n", METADATA.replace(b"evil", b"bad"), "dlb_bad")
    (evil.folder / "worse.py").write_text(code)
    evil.write(code, b"[dlb]\nevil = worse\n")
    ended = evil("list", "workloads")
    assert ended.lines == [
        f"{EVIL} left out: dlb-bad has a workload 'mine' too; uninstall one of them"
    ]
    assert "cannot be read: /nowhere: No such file" in ended.out and "lenet5" in ended.out


#: What a plugin's command does, what is said of it, and the status.
COMMANDS = {
    "raises": ("1 / 0", "failed: ZeroDivisionError: division by zero", 1),
    "has no file": ("open('/nowhere')", "failed: FileNotFoundError", 1),
    "has no memory": ("bytearray(1 << 60)", "failed: MemoryError", 1),
    "raises none": ("class E(BaseException): pass\n    raise E", "failed: E", 1),
    "exits": ("sys.exit(77)", "failed: SystemExit: 77", 1),
    "exits with a word": ("sys.exit('bye')", "failed: SystemExit: bye", 1),
    "returns": ("return 77", "failed: SystemExit: 77", 1),
    "exits as clicks do": ("click.get_current_context().exit(77)", "failed: Exit: 77", 1),
    "is done": ("sys.exit(0)", "", 0),
    "says what it found": ("sys.exit(2)", "", 2),
    "is wrong": ("raise click.UsageError('so')", "dlb: so (see: dlb mine --help)", 2),
    "is interrupted": ("raise KeyboardInterrupt", "dlb: interrupted", 130),
}


@pytest.mark.parametrize(("body", "says", "status"), COMMANDS.values(), ids=list(COMMANDS))
def test_a_command_that_fails_names_its_plugin(
    body: str, says: str, status: int, evil: Evil, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cli, "_ignore_interrupts", lambda: None)
    code = f"def mine():\n    {body}\n" + hook(
        "dlb_commands()", "return [click.Command('mine', callback=mine)]"
    )
    evil.write(code)
    ended = evil("mine")
    lines = list(filter(None, ended.lines))
    assert ended.status == status and len(lines) == bool(says)
    named = "dlb: command 'mine' of plugin 'evil' of dlb-evil 1.0 " if status == 1 else ""
    assert all(line.startswith(named + says) for line in lines), lines
    assert evil("--help").out.count("mine") == 1


def test_a_command_that_is_not_there_names_its_plugin(evil: Evil) -> None:
    lazy = "from dlb.cli.output import LazyCommand\n    return [LazyCommand('mine', 'no:x', '')]"
    evil.write(hook("dlb_commands()", lazy))
    assert "of plugin 'evil' of dlb-evil 1.0 failed: ModuleNotFoundError" in evil("mine").lines[-1]


def test_what_a_plugin_prints_is_kept_out_of_the_document(evil: Evil) -> None:
    evil.write(
        "import os\nos.write(1, b'by number\\n')\nprint('by name')\nos.system('echo by another')\n"
        "import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\nos.chdir('/')\n"
    )
    ended = evil("list", "plugins", "--json")
    assert {"by number", "by name", "by another"} < set(ended.lines)
    assert json.loads(ended.out)


def test_strict_plugins_are_fatal(evil: Evil, monkeypatch: pytest.MonkeyPatch) -> None:
    evil.write("1 / 0")
    monkeypatch.setenv("DLB_STRICT_PLUGINS", "1")
    ended = evil("list", "plugins")
    assert ended.status == 1 and f"{EVIL} left out" in ended.lines[0]
    assert "DLB_STRICT_PLUGINS" in ended.lines[0]


def test_a_plugin_that_hangs_is_named(evil: Evil, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plugins, "SLOW_SECONDS", 0.1)
    evil.write("import time; time.sleep(0.5)")
    assert evil("list", "plugins").lines[0] == "dlb: loading plugin 'evil' of dlb-evil 1.0 ..."


def test_a_signal_from_outside_is_no_fault_of_a_plugin(evil: Evil) -> None:
    evil.write("import os, signal, time; os.kill(os.getpid(), signal.SIGINT); time.sleep(5)")
    with pytest.raises(KeyboardInterrupt):
        load_plugins()


# --- observers, in the command's process -----------------------------------------------------------

#: What an observer of processes yields or does, and what is said of it.
OBSERVED = {
    "an object": ("yield {'a': object()}", "TypeError"),
    "a number of 100 bits": ("yield {'a': 10**30}", "ValidationError: an integer"),
    "half a letter": ("yield {'a': '\\ud800'}", "UnicodeEncodeError"),
    "much text": ("yield {'a': 'x' * (1 << 25)}", "at most 16777216 are kept"),
    "20 million values": (
        "yield {'series': {'a': [0] * 20_000_000}}",
        "at most 16777216 are kept",
    ),
    "no mapping": ("yield 5", "TypeError"),
    "two yields": ("yield {}; yield {}", "generator didn't stop"),
    "no yield": ("return; yield", "generator didn't yield"),
    "no generator": ("return {}", "TypeError"),
    "no series": ("yield {'series': {'a': [object()]}}", "TypeError"),
    "itself": ("a = {}; a['a'] = a; yield a", "RecursionError"),
    "an exit at once": ("import sys; sys.exit(3); yield", "SystemExit: 3"),
    "an exit": ("yield {}; import sys; sys.exit(3)", "SystemExit: 3"),
    "an interrupt": ("yield {}; raise KeyboardInterrupt", "KeyboardInterrupt"),
    "an interrupt at once": ("raise KeyboardInterrupt; yield", "KeyboardInterrupt"),
    "no exception": ("yield {}; raise type('E', (BaseException,), {})(1)", "E: 1"),
}


def observing(body: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The observer of a plugin, around a training of nothing."""
    names: dict[str, Any] = {}
    exec(f"def observe(framework):\n    {body}", names)
    module = ModuleType("evil_plugin")
    vars(module).update(dlb_observe_processes=hookimpl(names["observe"]))
    monkeypatch.setattr(observers, "load_plugins", lambda: plugins_of(module, "evil"))
    return observers.observe_processes("example", list, "cpu")


@pytest.mark.parametrize(("body", "says"), OBSERVED.values(), ids=list(OBSERVED))
def test_an_observer_that_fails_is_named(
    body: str, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(PluginError, match=f"^observer 'evil' failed: .*{says}") as caught:
        with observing(body, monkeypatch):
            pass
    assert len(str(caught.value).splitlines()) == 1


@pytest.mark.parametrize("error", [OSError, KeyboardInterrupt])
def test_what_fails_while_an_observer_fails_is_said(
    error: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(error), observing("yield {}; 1 / 0", monkeypatch):
        raise error


# --- any bytes -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["METADATA", "entry_points.txt"])
def test_damaged_metadata_cost_nobody_else_anything(name: str, evil: Evil) -> None:
    """200 packages, each damaged in another way, 20 at a time."""
    draw = random.Random(f"packages: {name}")
    for _ in range(10):
        for number in range(20):
            about = {
                "METADATA": METADATA.replace(b"evil", b"evil-%d" % number),
                "entry_points.txt": POINTS.replace(b"evil =", b"evil%d =" % number),
            }
            about[name] = damaged(about[name], draw, ODD)
            evil.write("1 / 0", about["entry_points.txt"], about["METADATA"], f"dlb_evil_{number}")
        started = time.process_time()
        found = load_plugins()
        assert time.process_time() - started < 10
        assert {each.name for each in found.loaded} == OWN
        lines = [str(each) for each in found.broken]
        assert all(len(line) < 1500 and len(line.splitlines()) == 1 for line in lines)
        assert len(lines) > 5
    assert {each.name.partition("_")[0] for each in evil.folder.iterdir()} == {"dlb", "evil"}


# --- real processes --------------------------------------------------------------------------------


@pytest.fixture
def installed(dlb: Dlb) -> Iterator[Callable[[str], Dlb]]:
    """A plugin in the environment of the real command and of its workers."""
    site = next(dlb.command.parents[1].glob("lib/python*/site-packages"))
    about, module = site / "dlb_evil-1.0.dist-info", site / "evil_plugin.py"
    about.mkdir()
    (about / "METADATA").write_bytes(METADATA)
    (about / "entry_points.txt").write_bytes(POINTS + b"worse = nowhere\n")

    def install(code: str) -> Dlb:
        module.write_text(code)
        return dlb

    yield install
    for path in (*about.iterdir(), module):
        path.unlink()
    about.rmdir()


def test_an_adapter_that_is_left_out_is_asked_for(dlb: Dlb) -> None:
    ended = dlb.run("--on", "faulty", fault="import-raise")
    assert ended.status == 1
    assert "adapter 'faulty' cannot be used" in ended.complaint
    assert "RuntimeError: no such library: libfaulty.so.3" in ended.complaint


def test_a_thread_that_never_ends_and_an_exit_that_prints(
    installed: Callable[[str], Dlb],
) -> None:
    dlb = installed(
        "import atexit, threading, time\natexit.register(print, 'goodbye')\n"
        "threading.Thread(target=time.sleep, args=(10**6,)).start()\n"
    )
    ended = dlb("list", "plugins", "--json")
    assert ended.status == 0 and ended.document and "goodbye" not in ended.err


def test_an_observer_that_fails_costs_its_run_and_no_record(
    installed: Callable[[str], Dlb],
) -> None:
    body = "if framework == 'faulty': raise KeyboardInterrupt\n    yield {}"
    dlb = installed(hook("dlb_observe_processes(framework)", body))
    ended = dlb.run("--on", "faulty", "--on", "example")
    assert ended.status == 1 and "observer 'evil' failed: KeyboardInterrupt" in ended.out
    assert "dlb: plugin 'worse' of dlb-evil 1.0 left out: ModuleNotFoundError" in ended.err
    assert not dlb.records()["example"]["failure"] and dlb.records()["faulty"]["failure"]
