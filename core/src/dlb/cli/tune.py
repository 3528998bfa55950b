"""``dlb tune``: the fastest way to run a workload on this machine."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dlb.cli import INTERRUPTED
from dlb.cli.options import OUT, SEED, WORKERS, reading_options, with_options
from dlb.cli.output import echo, note, print_json, print_warnings, set_option
from dlb.cli.rounds import ROUNDS, plan_of

if TYPE_CHECKING:
    from dlb.execution.tune import Tuned, Way
    from dlb.reading import Reading

__all__ = ["tune_command"]


@click.command("tune")
@click.argument("workload")
@click.option("--on", "adapter", required=True, metavar="ADAPTER", help="The adapter.")
@set_option
@click.option("--batch-size", type=int, metavar="N", help="Samples a step.")
@click.option(
    "--dtype", type=click.Choice(["float32", "float64"]), default="float32", show_default=True
)
@click.option("--data", metavar="NAME[:PATH]", help="Data set to use instead of the workload's.")
@SEED
@with_options(WORKERS)
@click.option("--steps", type=int, default=60, show_default=True, metavar="N", help="Of a run.")
@with_options(ROUNDS)
@OUT
@reading_options
def tune_command(**options: Any) -> int:
    """Find the fastest way to run WORKLOAD on an adapter: threads, variants, and the allocator.

    Each is tried alone, proven as by dlb run, and measured in rounds next to the default. Then what is
    faster is measured together. A way that is not proven is left out.
    """
    plan = plan_of(options)
    if plan is None:
        raise click.UsageError("--rounds 0 measures nothing")
    return _tune(plan, **options)


def _tune(
    plan: Any,
    *,
    workload: str,
    reading: Reading,
    adapter: str,
    changes: tuple[str, ...],
    batch_size: int | None,
    data: str | None,
    steps: int,
    threads: int | None,
    provision: bool,
    source: Path | None,
    as_json: bool,
    **request_options: Any,
) -> int:
    import platform

    from dlb.adapters import find_adapters
    from dlb.catalogue import load_with_file
    from dlb.cli.measurements import print_measurement
    from dlb.execution.tune import settings_of, tune, ways
    from dlb.progress import make_reporter
    from dlb.provenance import available_cores
    from dlb.request import Request, check
    from dlb.samples import with_data
    from dlb.variants import offers_of
    from dlb.workload.changes import with_changes

    print_warnings()
    described, imported = load_with_file(workload, reading)
    described = with_changes(described, changes, keep_model=imported is not None)
    described = described if data is None else with_data(described, data)
    environments = find_adapters([adapter], provision=provision, source=source, report=note)
    request = Request(
        workload=described,
        environments=environments,
        batch_size=described.batch_size if batch_size is None else batch_size,
        steps=steps,
        warmup=min(10, steps // 10),
        threads=available_cores() if threads is None else threads,
        imported=imported,
        **request_options,
    )
    check(request)
    tried = ways(
        available_cores(), request.threads, offers_of(environments[0]), platform.libc_ver()[0]
    )
    note(f"dlb: {len(tried)} ways next to the default")
    try:
        with make_reporter([adapter]) as reporter:
            tuned = tune(request, tried, plan, reporter)
    except KeyboardInterrupt:
        note("dlb: interrupted; finished records and trials are kept, no process is left")
        return INTERRUPTED
    command = _command(tuned.best, workload, adapter)
    if as_json:
        print_json(
            {
                "best": settings_of(tuned.best),
                "command": command,
                "measurement": tuned.measurement and tuned.measurement.name,
                "final": tuned.final and tuned.final.name,
                "left_out": [
                    {"way": settings_of(way), "reason": reason} for way, reason in tuned.left_out
                ],
            }
        )
    else:
        for measurement in filter(None, (tuned.measurement, tuned.final)):
            print_measurement(measurement)
        _print_end(tuned, command)
    return 0 if tuned.measurement is not None else 1


def _print_end(tuned: Tuned, command: str) -> None:
    for way, reason in tuned.left_out:
        echo(f"Left out: {_text(way)}: {reason}")
    if tuned.measurement is None:
        echo("The default was not proven, so nothing was measured")
    elif _text(tuned.best) == "the default":
        echo("Nothing is faster than the default")
    else:
        echo(f"Fastest: {_text(tuned.best)}")
        echo(f"    {command}")


def _text(way: Way) -> str:
    parts = [] if way.threads is None else [f"{way.threads} threads"]
    parts += [f"{name}={value}" for name, value in way.variant.items()]
    parts += ["allocator that keeps its memory"] if way.variables else []
    return ", ".join(parts) or "the default"


def _command(way: Way, workload: str, adapter: str) -> str:
    words = [f"{name}={value}" for name, value in way.variables.items()]
    words += ["dlb", "run", workload, "--on", adapter]
    words += [] if way.threads is None else ["--threads", str(way.threads)]
    words += [f"--variant={name}={value}" for name, value in way.variant.items()]
    return shlex.join(words)
