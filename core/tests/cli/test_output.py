"""What goes where: help, tables, JSON, progress; readers that leave; what help loads."""

from __future__ import annotations

import inspect
import os
import pty
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.shell_completion import ShellComplete
from dlb_process import PATIENCE, TESTS, Dlb

import dlb
from dlb.cli import COMMANDS as CLI_COMMANDS
from dlb.cli import FIRST_WORDS, PACKAGES, SECTIONS, plugin_commands
from dlb.cli import dlb as dlb_group
from dlb.cli.output import LazyCommand
from dlb.progress import Rate
from dlb_worker import hookimpl
from dlb_worker.plugins import plugins_of

sys.path.insert(0, str(TESTS.parents[1] / "docs"))
import follow

COMMANDS = [
    "", "run", "verify", "port", "capture", "diff", "tune", "results", "compare", "list", "show", "export",
    "data", "data list", "data fetch", "data path",
    "env", "env create", "env list", "env add", "env remove", "env doctor",
]  # fmt: skip
LISTS = ["adapters", "workloads", "datasets", "strategies", "plugins"]
#: What the command's own start must not load.
HEAVY = {"numpy", "onnx", "onnxruntime", "msgspec", "rich", "psutil", "matplotlib", "scipy"}
FRAMEWORKS = {"torch", "tensorflow", "keras", "mxnet", "chainer", "jax"}


@pytest.mark.parametrize("command", COMMANDS)
def test_help(dlb: Dlb, command: str) -> None:
    full, short = dlb(*command.split(), "--help"), dlb(*command.split(), "-h")
    assert full.status == 0 and full.err == ""
    assert full.out.startswith(f"Usage: dlb {command}".strip()) and full.out == short.out


@pytest.mark.parametrize("what", LISTS)
def test_list(dlb: Dlb, what: str) -> None:
    table, document = dlb("list", what), dlb("list", what, "--json").document
    assert table.status == 0 and list(document) == [what]
    for row in document[what]:
        assert next(iter(row.values())) in table.out


def test_version(dlb: Dlb) -> None:
    assert re.fullmatch(r"dlb, version \d+\.\d+\.\d+\S*\n", dlb("--version").out)


def test_show(dlb: Dlb) -> None:
    workload = TESTS / "workloads" / "mlp.toml"
    assert "25,450 parameters" in dlb("show", workload).out
    document = dlb("show", workload, "--json").document
    assert document["parameters"]["fc2"] == 330 and document["multiply_adds"]["fc2"] == 320
    dlb.run()
    (path,) = dlb.out.glob("*.json")
    assert "proven" in dlb("show", path).out
    assert dlb("show", path, "--json").document["name"] == path.stem
    for kind, what in (("workload", workload), ("record", path)):
        assert dlb("show", kind, what).out == dlb("show", what).out


def test_export(dlb: Dlb) -> None:
    import onnx

    workload = TESTS / "workloads" / "mlp.toml"
    for words in ([], ["--from", "example"]):
        ended = dlb("export", workload, "model.onnx", *words)
        assert ended.status == 0, ended.err
        model = onnx.load(str(dlb.folder / "model.onnx"))
        assert "Gemm" in {node.op_type for node in model.graph.node}


def test_a_loss_that_diverged_keeps_to_its_column(dlb: Dlb) -> None:
    ended = dlb.run("--set", "optimizer.learning_rate=30", "--steps", 12)
    (row,) = (line for line in ended.out.splitlines() if line.startswith(" example"))
    assert re.search(r" \d\.\d\de\+\d+ ", row)
    assert not re.search(r"\d{6}", ended.out + ended.err)


def test_dlb_alone_says_what_one_can_do(dlb: Dlb) -> None:
    ended = dlb()
    assert ended.status == 0 and ended.err == ""
    for _, *commands in FIRST_WORDS:
        for command in commands:
            words = command.split()
            assert command in ended.out and words[1] in {*CLI_COMMANDS, *PACKAGES}


def test_every_command_has_a_section_and_examples_that_are_right() -> None:
    examples = {name: each for section in SECTIONS.values() for name, each in section.items()}
    assert examples.keys() == {*CLI_COMMANDS, *PACKAGES}
    for name, lines in examples.items():
        for line in lines:
            assert line.startswith(f"dlb {name} ")
            command: click.Command | None = dlb_group
            words = line.split()
            while isinstance(command, click.Group) and len(words) > 1:
                command = command.get_command(click.Context(command), words[1])
                words = words[1:]
            assert command is not None
            command.make_context(words[0], words[1:])  # else click.UsageError


def test_names_are_completed() -> None:
    def completed(*words: str) -> list[str]:
        shell = ShellComplete(dlb_group, {}, "dlb", "_DLB_COMPLETE")
        return [each.value for each in shell.get_completions(list(words[:-1]), words[-1])]

    assert completed("ver") == ["verify"]
    assert completed("run", "lenet") == ["lenet-mnist", "lenet5"]
    assert completed("verify", "lenet5", "--group", "forw") == ["forward"]
    assert completed("list", "work") == ["workloads"]
    for command in ("run", "verify", "port", "diff", "sweep", "scale", "tune", "compare"):
        assert completed(command, "--verb") == ["--verbose"]
        assert completed(command, "--quie") == ["--quiet"]
    assert completed("run", "./model.o") == ["./model.o"]  # left to the shell, as a file


@pytest.mark.skipif(not Path("/bin/bash").exists(), reason="there is no bash")
def test_bash_completes(dlb: Dlb) -> None:
    program = (
        'source <(_DLB_COMPLETE=bash_source "$0"); COMP_WORDS=(dlb run lenet5 --on e); COMP_CWORD=4; '
        '_dlb_completion "$0"; echo "${COMPREPLY[@]}"'
    )
    words = ["/bin/bash", "-c", program, str(dlb.command)]
    done = subprocess.run(words, env=dlb.environment(), capture_output=True, text=True, timeout=100)
    assert (done.stdout, done.stderr) == ("example\n", "")


def test_a_list_of_workloads_says_which_data_are_here(dlb: Dlb) -> None:
    rows = {
        row["workload"]: row for row in dlb("list", "workloads", "--json").document["workloads"]
    }
    assert rows["lenet5"]["state"] == "here" and rows["lenet5"]["bytes_to_fetch"] == 0
    assert rows["resnet-50"]["state"] == "your own"
    cifar = rows["resnet-56"]
    size = cifar["bytes_to_fetch"]
    assert cifar["state"] == (f"fetch {size / 1e6:,.3g} MB" if size else "in the package dlb-data")


def test_the_doctor_and_the_list_agree(dlb: Dlb) -> None:
    listed = dlb("list", "adapters", "--json").document["adapters"]
    installed = {row["adapter"] for row in listed if row["state"] == "installed"}
    findings = dlb("env", "doctor", "--json").document["findings"]
    assert installed == {row["name"] for row in findings if row["severity"] == "ok"}
    assert "example" in installed and dlb("env", "doctor", "example").status == 0


def test_a_run_says_what_it_will_do_and_what_it_knows(dlb: Dlb) -> None:
    ended = dlb.run("--on", "example", "--on", "faulty", "--rounds", 2, "--repeats", 0)
    plan, *lines = [line for line in ended.err.splitlines() if "other processes" not in line]
    lines.remove(
        "dlb: Only 20 steps of each process are timed, which says little: time 30 or more, such as with "
        "--steps 200"
    )
    assert plan.startswith(
        "dlb: mlp on example, faulty: 2 to prove; then 2 rounds of 3 new processes "
    )
    assert re.fullmatch("adapter 1 of 2: example; about .* left", lines[0])
    assert "example: starting" in lines and "example: training" in lines
    assert any(line.startswith("example: step 20 of 20, loss ") for line in lines)
    # Trials that run side by side on a busy machine share a line.
    assert re.match("trial [46] of 6: ", lines[-1])
    assert "\x1b" not in ended.err + ended.out and "\r" not in ended.err
    shown = ended.out.splitlines()
    assert re.match(r"example: proven; .* ms a step, .*, accuracy .* \(after \d+ s\)", shown[0])
    assert shown[1].startswith("faulty: proven; ")
    texts = ("1 round of new processes", "2 rounds of new processes")
    assert [ended.out.count(text) for text in texts] == [1, 1]
    folded = [
        line for line in shown if re.match(r"(example|faulty): proven, \d+ checks passed; cl", line)
    ]
    assert len(folded) == 2 and "audit, clock" not in ended.out
    places = [ended.out.index(text) for text in (folded[0], *texts)]
    assert places == sorted(places)
    assert re.search(r"(takes? .* time|cannot be told apart) .*; both proven\.$", shown[-1]), shown[
        -1
    ]
    for page in ("README.md", "docs/tutorials/first-benchmark.md"):
        for words, printed in printed_in(page):
            for each in words.split(" | "):
                if not each.startswith(("tf", "mxnet", "chainer")):
                    here = follow.shown(each.replace("torch", "example"), ended.out)
                    there = follow.shown(each, printed).replace("torch", "example")
                    assert what_stays(here) == what_stays(there), (
                        f"run docs/follow.py: {page} is stale"
                    )
    proof, difference = (
        checks(printed) for _, printed in printed_in("docs/tutorials/first-proof.md")
    )
    assert checks(dlb("explain", next(dlb.out.glob("*.json"))).out) == proof
    for name, seed in (("one", 0), ("other", 1)):
        dlb("export", TESTS / "workloads" / "mlp.toml", f"{name}.onnx", "--seed", seed)
    assert checks(dlb("diff", "one.onnx", "other.onnx").out) == difference


def printed_in(page: str) -> list[tuple[str, str]]:
    """What a page shows as printed, each with what it is chosen by."""
    text = (TESTS.parents[1] / page).read_text(encoding="utf-8")
    return [(block[1], block[2]) for block in follow.PRINTED.finditer(text)]


def checks(output: str) -> list[str]:
    """The names of the checks in the first table that an output has of them."""
    table = next(table for table in follow.tables(output) if follow.begins(table[0], "check"))
    return [re.split(r" {2,}", row.strip())[0] for row in table[2:]]


def what_stays(printed: str) -> list[str]:
    """Of a line or a table, what another machine and other adapters print too: words, and names of columns."""
    line = re.sub(r"\d[\d,.]*", "N", printed.splitlines()[0].strip())
    return re.split(r" {2,}", re.sub(r"after N (s|min)", "after N", line))


def test_verify_shows_each_adapter_when_it_is_proven(dlb: Dlb) -> None:
    words = ("verify", TESTS / "workloads" / "mlp.toml", "--on", "example", "--group", "weights")
    lines = dlb(*words).err.splitlines()
    assert lines[-2:] == ["example: done", "example: unproven"]


def test_quiet_shows_the_answer_and_what_failed(dlb: Dlb) -> None:
    words = ("verify", TESTS / "workloads" / "mlp.toml", "--on", "example", "--group", "weights")
    ended = dlb(*words, "-q")
    assert (ended.status, ended.out, ended.err) == (0, "mlp: example unproven\n", "")
    ended = dlb.run("--on", "faulty", "--quiet", fault="raise@build")
    assert ended.status == 1 and ended.err == "" and ended.out.startswith("faulty failed: ")
    assert ended.out.splitlines()[1:] == ["mlp: faulty unproven; not measured in rounds"]


def test_verbose_shows_phases_and_checks(dlb: Dlb) -> None:
    words = ("verify", TESTS / "workloads" / "mlp.toml", "--on", "example", "--group", "weights")
    plain, details, more = (dlb(*words, *shown) for shown in ((), ("--details",), ("-v",)))
    assert "weights float64" not in plain.out and "weights float64" in details.out == more.out
    ended = dlb("sweep", words[1], "--on", "example", "--vary", "seed=1", "--rounds", 0, "-v")
    assert "example: training" in ended.err and "weights float64" in ended.out


def commands(group: click.Group, name: str) -> Iterator[tuple[str, click.Command]]:
    """Every command that has no commands itself, by its whole name."""
    for each in group.list_commands(click.Context(group)):
        command = group.get_command(click.Context(group), each)
        assert command is not None
        if isinstance(command, click.Group):
            yield from commands(command, f"{name} {each}")
        else:
            yield f"{name} {each}", command


def test_what_prints_a_table_has_a_document_too() -> None:
    prints = {
        name: bool(re.search(r"(print|show)_\w+\(", inspect.getsource(inspect.unwrap(code))))
        for name, command in commands(dlb_group, "dlb")
        if (code := command.callback) and "as_json" not in {each.name for each in command.params}
    }
    assert not [name for name, printed in prints.items() if printed]
    assert prints.keys() == {
        "dlb export", "dlb report", "dlb results export", "dlb data fetch", "dlb data path",
        "dlb env create", "dlb env add", "dlb env remove",
    }  # fmt: skip


def test_progress_is_live_on_a_terminal(dlb: Dlb) -> None:
    ours, theirs = pty.openpty()
    process = dlb.start(
        *dlb.run_words("--on", "faulty", "--json"),
        fault="slow@train",
        stderr=theirs,
        more={"TERM": "xterm-256color", "NO_COLOR": ""},
    )
    os.close(theirs)
    shown = b""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        try:
            piece = os.read(ours, 65536)
        except OSError:  # the other end has closed
            break
        if not piece:
            break
        shown += piece
    os.close(ours)
    ended = dlb.finish(process)
    assert ended.status == 0 and ended.document["proven"]
    assert b"\x1b[" in shown and b" of 20" in shown
    assert b"adapter 1 of 1: faulty" in shown and b" left" in shown


@pytest.mark.parametrize("what", ["list adapters", "list adapters --json", "--help"])
def test_reader_that_leaves(dlb: Dlb, what: str) -> None:
    shell = f"{dlb.command} {what} | head -0"
    done = subprocess.run(
        ["bash", "-c", shell], env=dlb.environment(), capture_output=True, text=True
    )
    assert done.stderr == ""


@pytest.mark.parametrize("what", ["list adapters", "list plugins --json", "--help"])
@pytest.mark.parametrize("redirected", [">&-", "2>&-", ">/dev/full"])
def test_output_that_goes_nowhere(dlb: Dlb, what: str, redirected: str) -> None:
    done = subprocess.run(
        ["bash", "-c", f"{dlb.command} {what} {redirected}"],
        env=dlb.environment(),
        capture_output=True,
        text=True,
    )
    assert "Traceback" not in done.stderr and "Exception" not in done.stderr
    if redirected == ">/dev/full":
        assert done.returncode == 1 and "No space left" in done.stderr


def loaded(code: str) -> set[str]:
    """Top-level modules that some code loads."""
    told = f"{code}\nimport sys\nprint('LOADED', *{{n.partition('.')[0] for n in sys.modules}})"
    done = subprocess.run([sys.executable, "-c", told], capture_output=True, text=True, check=True)
    return set(done.stdout.rpartition("LOADED")[2].split())


@pytest.mark.parametrize(
    "code",
    [
        "import dlb",
        "from dlb_worker import Adapter, hookimpl",
        "from dlb.cli import call; call(['--help'])",
    ],
)
def test_light(code: str) -> None:
    assert not loaded(code) & (HEAVY | FRAMEWORKS)


def test_the_public_surface() -> None:
    """Whoever adds a name here makes a promise."""
    assert dlb.__all__ == [
        "Reading",
        "__version__",
        "assert_proven",
        "read_records",
        "run",
        "verify",
    ]
    for name in set(dlb.__all__) - {"__version__"}:
        assert callable(getattr(dlb, name)) and inspect.getdoc(getattr(dlb, name))
    assert {name for name in dir(dlb) if not name.startswith("_")} >= set(dlb.__all__) - {
        "__version__"
    }
    # A module of the name of a function would hide it once it is imported.
    folder = Path(dlb.__file__).parent
    assert not [name for name in dlb.__all__ if (folder / f"{name}.py").exists()]
    assert not [name for name in dlb.__all__ if (folder / name).is_dir()]


def test_importing_the_contract_imports_no_framework() -> None:
    modules = ("contract", "hookspecs", "plugins", "adapter", "layers", "parameters")
    code = "\n".join(f"import dlb_worker.{module}" for module in modules)
    found = loaded(f"import dlb_graph.workload, dlb.errors\n{code}")
    assert not found & ({"onnx", "onnxruntime", "numpy"} | FRAMEWORKS)


def test_help_loads_little() -> None:
    """Help starts as quickly as what it loads: beside Python's own, the parser and the plugins' finder."""
    found = loaded("from dlb.cli import call; call(['--help'])")
    finder = {"pluggy", "importlib_metadata", "lazy_importer", "typing_extensions", "zipp"}
    ours = {"click", *(name for name in found if name.split("_")[0] == "dlb")}
    assert found - loaded("pass") - set(sys.stdlib_module_names) <= ours | finder
    # The finder reads the metadata of distributions that have plugins, as e-mail: with urllib.parse.
    assert not found & {"asyncio", "http", "ssl", "urllib.request"}


def test_nothing_is_written_beside_the_records(dlb: Dlb) -> None:
    dlb.run()
    made = {path.name for path in dlb.folder.iterdir() if not path.name.startswith(".")}
    assert made <= {"results", "home"}
    assert Path(dlb.out / "models").is_dir()


def test_a_speed_is_of_steps_after_the_first_that_were_heard_of() -> None:
    """A run whose steps are all told at once had some millions a second."""
    rate = Rate()
    assert rate.update("tf", 30, 100.0) == 0.0
    assert rate.update("tf", 30, 100.001) == 0.0
    assert rate.update("torch", 10, 101.0) == 0.0
    assert rate.update("torch", 30, 103.0) == 10.0
    # Another process of the same adapter starts again.
    assert rate.update("torch", 2, 200.0) == 0.0
    assert rate.update("torch", 22, 202.0) == 10.0


def test_a_plugin_has_no_command_of_dlbs_own_names(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither one of the core nor one of dlb's packages, none of which is installed next to it."""

    class Stranger:
        @hookimpl
        def dlb_commands(self) -> list[click.Command]:
            names = ("verify", "run", "report", "port", "theirs")
            lazy = LazyCommand("diff", "stranger:diff_command", "")
            return [*(click.Command(name) for name in names), lazy]

    alone = plugins_of(Stranger(), "stranger")
    monkeypatch.setattr("dlb_worker.plugins.load_plugins", lambda: alone)
    assert plugin_commands().keys() == {"theirs"}
