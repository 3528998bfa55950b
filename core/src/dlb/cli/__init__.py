"""The command line. Commands are imported when they are called, so that ``dlb --help`` is fast."""

from __future__ import annotations

import contextlib
import os
import signal
import stat
import sys
import threading
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any

import click

from dlb import __version__, interrupts
from dlb.cli.output import INTERRUPTED, Group, LazyCommand, say
from dlb.errors import DlbError, PackageMissing, PluginError, SettingError
from dlb.printable import printable
from dlb_worker.errors import one_line

__all__ = ["main"]

#: Command name to module of :mod:`dlb.cli` and its one-line help.
COMMANDS = {
    "run": ("run", "Train, time, export and prove a workload on adapters."),
    "verify": ("run", "Prove that adapters build the same model, without timing it."),
    "list": ("listing", "Adapters, workloads, data sets, strategies, plugins."),
    "env": ("env", "The environments of adapters."),
    "export": ("export", "Write a workload's ONNX graph."),
    "show": ("show", "Show a record or a workload."),
    "explain": ("explain", "Where adapters of a certificate differ, and the likely reason."),
}
#: Commands of packages of their own, and the package of each. ``run`` is dlb's own where that is not installed.
PACKAGES = {
    "run": "dlb-measure",
    "port": "dlb-port",
    "capture": "dlb-port",
    "diff": "dlb-port",
    "sweep": "dlb-measure",
    "scale": "dlb-measure",
    "study": "dlb-studies",
    "tune": "dlb-measure",
    "results": "dlb-measure",
    "compare": "dlb-measure",
    "data": "dlb-data",
    "changed": "dlb-ci",
    "report": "dlb-report",
}
#: All of them by what they are for, as ``dlb --help`` shows them, each with examples, which end its own help.
SECTIONS: dict[str, dict[str, tuple[str, ...]]] = {
    "Prove": {
        "verify": ("dlb verify lenet5 --on torch --on tf", "dlb verify model.onnx --on torch"),
        "port": ("dlb port torch=net:make tf=knet:make", "dlb port torch=net:make model.onnx"),
        "capture": ("dlb capture reference.safetensors torch=net:make --input-shape 3,32,32",),
        "diff": ("dlb diff one.onnx other.onnx",),
        "changed": ("dlb changed --base origin/main --on torch",),
        "explain": ("dlb explain certificate.json",),
    },
    "Measure": {
        "run": ("dlb run lenet5 --on torch --on tf", "dlb run lenet5 --set batch_size=32"),
        "sweep": ("dlb sweep lenet5 --on torch --vary threads=1,2 --vary batch_size=32,64",),
        "scale": ("dlb scale lenet5 --on torch --strategy ddp --workers 1,2",),
        "tune": ("dlb tune lenet5 --on torch",),
        "study": ("dlb study list",),
    },
    "Look at results": {
        "results": ("dlb results list", "dlb results export --format mlflow"),
        "compare": ("dlb compare dlb-results", "dlb compare before after"),
        "report": ("dlb report dlb-results -o report.html",),
        "show": ("dlb show lenet5", "dlb show dlb-results/NAME.json"),
    },
    "Set up": {
        "list": ("dlb list workloads", "dlb list adapters --json"),
        "env": ("dlb env create torch tf", "dlb env doctor"),
        "data": ("dlb data list", "dlb data fetch mnist"),
        "export": ("dlb export lenet5 lenet5.onnx",),
    },
}
#: How long an exit may take, whatever thread a plugin has started.
EXIT_SECONDS = 2.0
#: Letters of an error that are shown: a part of it may be a stranger's, or a long word of the command.
LONGEST = 4000
#: Exit statuses; a command that is done may have none.
STATUSES = (None, 0, 1, 2, INTERRUPTED)


class Commands(Group):
    """dlb's own commands and those that plugins add, by name."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list({**COMMANDS, **plugin_commands()})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of that name, with its examples."""
        command = self._command(cmd_name)
        for examples in SECTIONS.values():
            if command is not None and cmd_name in examples:
                command.epilog = "\n  ".join(["\b\nExamples:", *examples[cmd_name]])
        return command

    def _command(self, cmd_name: str) -> click.Command | None:
        added = plugin_commands().get(cmd_name)
        if added is not None:
            with _naming(lambda: cmd_name):
                return added.load() if isinstance(added, LazyCommand) else added
        if cmd_name in COMMANDS:
            module = import_module(f"dlb.cli.{COMMANDS[cmd_name][0]}")
            command: click.Command = getattr(module, f"{cmd_name}_command")
            return command
        if cmd_name in PACKAGES:
            raise PackageMissing(f"dlb {cmd_name}", PACKAGES[cmd_name])
        return None

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command."""
        _print_warnings()
        with _naming(lambda: ctx.invoked_subcommand):
            status = super().invoke(ctx)
            if isinstance(status, int) and status not in STATUSES:
                raise SystemExit(status)
        return status

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        texts = {name: text for name, (_, text) in COMMANDS.items()}
        texts |= {
            printable(name): printable(command.get_short_help_str())
            for name, command in plugin_commands().items()
        }
        _print_warnings()
        for title, names in (*SECTIONS.items(), ("Of other packages", [*texts])):
            rows = [(name, texts.pop(name)) for name in names if name in texts]
            if rows:
                with formatter.section(title):
                    formatter.write_dl(rows)


def plugin_commands() -> dict[str, click.Command]:
    """Commands that plugins add, by name, those of dlb's packages first; only these have dlb's names."""
    commands = dict(_used("dlb_commands"))
    known = [name for name in PACKAGES if name in commands]
    return {name: commands[name] for name in [*known, *sorted(commands.keys() - PACKAGES)]}


def _used(hook: str, refused: list[str] | None = None) -> Iterator[tuple[str, Any]]:
    """What plugins bring by a hook, but for names of dlb's own; of these, a line each in ``refused``."""
    from dlb_worker.plugins import ENTRIES, load_plugins

    brought = load_plugins().brought[hook]
    taken: dict[str, str] = {}
    if hook == "dlb_commands":
        taken = {**dict.fromkeys(COMMANDS, "dlb-core"), **PACKAGES}
    elif hook == "dlb_workloads" and brought:
        from dlb_graph.workload.files import shipped_names

        taken = dict.fromkeys(shipped_names(), "dlb-graph")
    elif hook == "dlb_datasets" and brought:
        from dlb.data.subset import FASHION_MNIST_SUBSET

        taken = {FASHION_MNIST_SUBSET.name: "dlb-core"}
    for name, (plugin, entry) in brought.items():
        if taken.get(name, plugin.distribution) == plugin.distribution:
            yield name, entry
        elif refused is not None:
            what = f"{ENTRIES[hook][0]} '{name}'"
            refused.append(f"{plugin}: it has {what}, a name of {taken[name]}, which is not used")


def _print_warnings() -> None:
    """Print the plugins that are left out, and what is left out of the others."""
    from dlb_worker.plugins import load_plugins

    lines = [*map(str, load_plugins().broken)]
    for hook in ("dlb_commands", "dlb_workloads", "dlb_datasets"):
        list(_used(hook, lines))
    for line in lines:
        say(f"dlb: {line}", err=True)


@contextlib.contextmanager
def _naming(command: Callable[[], str | None]) -> Iterator[None]:
    """Name the plugin of a command in whatever the block raises, where it is a stranger's.

    Raises:
        PluginError: the command failed, or ended with a status that is none.
    """
    from dlb_worker.plugins import load_plugins

    try:
        yield
    except (DlbError, click.ClickException, click.Abort, KeyboardInterrupt, BrokenPipeError):
        raise
    except BaseException as error:
        status = getattr(error, "exit_code", getattr(error, "code", None))
        if isinstance(error, (SystemExit, click.exceptions.Exit)) and status in STATUSES:
            raise click.exceptions.Exit(status or 0) from None
        name = command() or ""
        plugin = load_plugins().brought["dlb_commands"].get(name, (None,))[0]
        if (
            plugin is None
            or plugin.distribution in PACKAGES.values()
            or os.environ.get("DLB_DEBUG")
        ):
            raise
        message = f"command '{name}' of {plugin} failed: {one_line(error)}; DLB_DEBUG=1 shows where"
        raise PluginError(message) from error


#: What one can do, and the command that does it: what ``dlb`` alone shows.
FIRST_WORDS = (
    ("see what is here", "dlb list adapters", "dlb list workloads"),
    ("make environments", "dlb env create torch tf"),
    ("prove, train and measure", "dlb run lenet5 --on torch --on tf"),
    ("prove alone", "dlb verify lenet5 --on torch --on tf"),
    ("prove a port of your own", "dlb port torch=net:make tf=knet:make"),
    ("compare two ONNX files", "dlb diff one.onnx other.onnx"),
    ("look at results", "dlb results list", "dlb report dlb-results"),
)


@click.group(
    cls=Commands,
    context_settings={"help_option_names": ["-h", "--help"]},
    invoke_without_command=True,
)
@click.version_option(__version__, prog_name="dlb")
@click.pass_context
def dlb(context: click.Context) -> None:
    """Prove that deep-learning frameworks ran the same model, and measure them.

    Exit status: 0 done and proven; 1 ran, and something differs or failed; 2 the request was
    wrong; 130 interrupted.
    """
    if context.invoked_subcommand is not None:
        return
    click.echo(
        f"dlb {__version__}: proves that frameworks ran the same model, then measures them\n"
    )
    for what, *commands in FIRST_WORDS:
        for command in commands:
            click.echo(f"  {what:26}{command}")
            what = ""
    click.echo("\nAll commands: dlb --help; one command: dlb run --help")


def main(arguments: list[str] | None = None) -> None:
    """Run the command line and exit with its status."""
    # Each must end the workers as Ctrl-C does; nohup has one of them ignored.
    for number in interrupts.SIGNALS:
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, _interrupt)
    words = sys.argv[1:] if arguments is None else arguments
    try:
        status = call(words)
        _ignore_interrupts()
    except KeyboardInterrupt:  # a second one, while the first was being reported
        _ignore_interrupts()
        status = INTERRUPTED
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError as error:
        if not isinstance(error, BrokenPipeError):
            status = fail(f"standard output: {error.strerror or error}", 1, [])
    # Python would report the error again at exit, and what plugins left there prints and takes its time.
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    late = threading.Timer(EXIT_SECONDS, os._exit, [status])
    late.daemon = True
    late.start()
    sys.exit(status)


def call(words: list[str]) -> int:
    """Run one command, and return its exit status. Errors become one line on standard error."""
    try:
        status: Any = dlb.main(args=words, prog_name="dlb", standalone_mode=False)
    except DlbError as error:
        return fail(_line_of(error), error.exit_status, words)
    except click.UsageError as error:
        where = error.ctx.command_path if error.ctx else "dlb"
        message = error.format_message()
        name = where.rpartition(" ")[2]
        if isinstance(error, click.NoSuchOption) and name in PACKAGES.keys() - plugin_commands():
            message = f"{message.rstrip('.')}. Without the package {PACKAGES[name]}, {where} has fewer options"
        return fail(f"{message} (see: {where} --help)", 2, words)
    except click.ClickException as error:
        return fail(error.format_message(), 2, words)
    except (KeyboardInterrupt, click.Abort) as error:
        # click takes an end of file, wherever it is raised, for an end of the input.
        if isinstance(error.__cause__, EOFError):
            return fail(
                f"a fault of dlb: {one_line(error.__cause__)}; DLB_DEBUG=1 shows where", 1, words
            )
        _ignore_interrupts()
        return fail(
            "interrupted; finished records are kept, no process is left", INTERRUPTED, words
        )
    except BrokenPipeError:
        return 1
    except OSError as error:
        return fail(f"{error.filename or ''}: {error.strerror or error}".lstrip(": "), 1, words)
    except MemoryError as error:
        return fail(f"out of memory: {error}".rstrip(": "), 1, words)
    except BaseException as error:
        # click exits so when the reader of the output is gone.
        # Completion in a shell ends so too.
        if isinstance(error, SystemExit) and error.code in (0, 1):
            return int(error.code)
        if os.environ.get("DLB_DEBUG"):
            raise
        return fail(f"a fault of dlb: {one_line(error)}; DLB_DEBUG=1 shows where", 1, words)
    return status if isinstance(status, int) else 0


def _line_of(error: DlbError) -> str:
    """An error in one line, which names settings as the command line does."""
    if isinstance(error, SettingError):
        from dlb.settings import in_command

        error.message = error.sentence(in_command)
    return str(error)


def fail(message: str, status: int, words: list[str]) -> int:
    """Print an error in one line on standard error; with ``--json`` also as the JSON document."""
    line = " ".join(message.split())
    line = line if len(line) <= LONGEST else f"{line[:LONGEST]} ..."
    # If nothing can be written, the exit status still reports the error.
    with contextlib.suppress(OSError):
        click.echo(f"dlb: {printable(line)}", err=True)
    if "--json" in words:
        import json

        with contextlib.suppress(OSError):
            click.echo(json.dumps({"error": line, "exit_status": status}))
    return status


def _interrupt(number: int, frame: Any) -> None:
    if number == signal.SIGHUP:  # the terminal has closed, and what is written to it fails
        for descriptor in (1, 2):
            with contextlib.suppress(OSError):
                if stat.S_ISCHR(os.fstat(descriptor).st_mode):
                    os.dup2(os.open(os.devnull, os.O_WRONLY), descriptor)
    raise KeyboardInterrupt


def _ignore_interrupts() -> None:
    """Ignore signals during the short rest of the command, so that a second Ctrl-C does not kill it."""
    for number in interrupts.SIGNALS:
        signal.signal(number, signal.SIG_IGN)
