"""The command line. Commands are imported when they are called, so that ``dlb --help`` is fast."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from importlib import import_module
from typing import Any

import click

from dlb import __version__
from dlb.cli.output import Group
from dlb.errors import DlbError
from dlb.printable import printable
from dlb_worker.errors import one_line

__all__ = ["main"]

#: Command name to module of :mod:`dlb.cli` and its one-line help.
COMMANDS = {
    "run": ("run", "Train, time, export and prove a workload on adapters."),
    "verify": ("run", "Prove that adapters build the same model, without timing it."),
    "port": ("port", "Prove that models of your own in several frameworks are the same."),
    "capture": ("capture", "Write what a model of your own computes, to compare ports with."),
    "diff": ("diff", "Prove that two ONNX files compute the same."),
    "sweep": ("sweep", "Measure a workload in every combination of some settings."),
    "scale": ("scale", "Measure several workers next to one: throughput, speed-up, efficiency."),
    "study": ("study", "Tables and figures of papers, measured again here."),
    "tune": ("tune", "Find the fastest way to run a workload on this machine, under proof."),
    "results": ("results", "List, show and export what was run and measured."),
    "compare": ("compare", "Compare what was measured in rounds."),
    "report": ("report", "Write a report on results, as one HTML page or as tables."),
    "list": ("listing", "Adapters, workloads, data sets, strategies, plugins."),
    "env": ("env", "The environments of adapters."),
    "data": ("data", "Data sets: list, fetch, find."),
    "export": ("export", "Write a workload's ONNX graph."),
    "show": ("show", "Show a record or a workload."),
    "explain": (
        "explain",
        "Explain where adapters of a certificate differ, and the likely reason.",
    ),
}
INTERRUPTED = 130


class Commands(Group):
    """dlb's own commands and those that plugins add, by name."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*COMMANDS, *sorted(plugin_commands())]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name in COMMANDS:
            module = import_module(f"dlb.cli.{COMMANDS[cmd_name][0]}")
            command: click.Command = getattr(module, f"{cmd_name}_command")
            return command
        return plugin_commands().get(cmd_name)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        rows = [(name, text) for name, (_, text) in COMMANDS.items()]
        rows += [
            (printable(name), printable(command.get_short_help_str()))
            for name, command in plugin_commands().items()
        ]
        with formatter.section("Commands"):
            formatter.write_dl(rows)


def plugin_commands() -> dict[str, click.Command]:
    """Commands that plugins add, by name; a plugin cannot replace one of dlb's own."""
    from dlb_worker.plugins import load_plugins

    by_plugin = load_plugins().hook.dlb_commands()
    commands = [command for own_commands in by_plugin for command in own_commands]
    return {
        command.name: command
        for command in commands
        if command.name and command.name not in COMMANDS
    }


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
    # SIGTERM must end the workers as Ctrl-C does.
    signal.signal(signal.SIGTERM, _interrupt)
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
        # Otherwise Python would report the error again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(status)


def call(words: list[str]) -> int:
    """Run one command, and return its exit status. Errors become one line on standard error."""
    try:
        status: Any = dlb.main(args=words, prog_name="dlb", standalone_mode=False)
    except DlbError as error:
        return fail(str(error), error.exit_status, words)
    except click.UsageError as error:
        where = error.ctx.command_path if error.ctx else "dlb"
        return fail(f"{error.format_message()} (see: {where} --help)", 2, words)
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
    except Exception as error:
        if os.environ.get("DLB_DEBUG"):
            raise
        return fail(f"a fault of dlb: {one_line(error)}; DLB_DEBUG=1 shows where", 1, words)
    return status if isinstance(status, int) else 0


def fail(message: str, status: int, words: list[str]) -> int:
    """Print an error in one line on standard error; with ``--json`` also as the JSON document."""
    line = " ".join(message.split())
    # If nothing can be written, the exit status still reports the error.
    with contextlib.suppress(OSError):
        click.echo(f"dlb: {printable(line)}", err=True)
    if "--json" in words:
        import json

        with contextlib.suppress(OSError):
            click.echo(json.dumps({"error": line, "exit_status": status}))
    return status


def _interrupt(number: int, frame: Any) -> None:
    raise KeyboardInterrupt


def _ignore_interrupts() -> None:
    """Ignore signals during the short rest of the command, so that a second Ctrl-C does not kill it."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
