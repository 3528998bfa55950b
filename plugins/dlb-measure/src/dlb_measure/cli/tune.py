"""``dlb tune``: the fastest way to run a workload on this machine."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any

import click

from dlb.cli.options import OUT, Asked, with_options, workload_argument, workload_options
from dlb.cli.output import echo, interrupted, line_writer, note, print_answer, print_json
from dlb_measure.cli.rounds import ROUNDS, plan_of

if TYPE_CHECKING:
    from dlb_measure.plan import Plan
    from dlb_measure.tune import Tuned, Way

__all__ = ["tune_command"]


def _alone(context: click.Context, parameter: click.Parameter, name: str) -> tuple[str]:
    return (name,)


@click.command("tune")
@workload_argument()
@workload_options(
    "tune",
    click.option(
        "--on", "adapters", required=True, metavar="ADAPTER", callback=_alone, help="The adapter."
    ),
    steps={"default": 60, "help": "Of a run."},
)
@with_options(ROUNDS)
@OUT
def tune_command(asked: Asked, as_json: bool, **options: Any) -> int:
    """Find the fastest way to run WORKLOAD on an adapter: threads, variants, and the allocator.

    Each is tried alone, proven as by dlb run, and measured in rounds next to the default. Then what is
    faster is measured together. A way that is not proven is left out.
    """
    plan = plan_of(options)
    if plan is None:
        raise click.UsageError("--rounds 0 measures nothing")
    return _tune(plan, asked, as_json)


def _tune(plan: Plan, asked: Asked, as_json: bool) -> int:
    import platform

    from dlb.progress import make_reporter
    from dlb.provenance import available_cores
    from dlb.variants import offers_of
    from dlb_measure.cli.measurements import print_measurement
    from dlb_measure.tune import settings_of, tune, ways

    request = asked.resolver(trial_steps=None if plan is None else plan.trial_steps).resolve(
        asked.settings, asked.find
    )
    (adapter,) = asked.adapters
    tried = ways(
        available_cores(),
        request.threads,
        offers_of(request.environments[0]),
        platform.libc_ver()[0],
    )
    note(f"dlb: {len(tried)} ways next to the default")
    try:
        with make_reporter([adapter], line_writer()) as reporter:
            tuned = tune(request, tried, plan, reporter)
    except KeyboardInterrupt:
        return interrupted("finished records and trials are kept")
    command = _command(tuned.best, asked.workload, adapter)
    if as_json:
        print_json(
            {
                "answer": _answer(tuned, command),
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
        for way, reason in tuned.left_out:
            echo(f"Left out: {_text(way)}: {reason}")
        print_answer(_answer(tuned, command))
    return 0 if tuned.measurement is not None else 1


def _answer(tuned: Tuned, command: str) -> str:
    if tuned.measurement is None:
        return "The default was not proven, so nothing was measured"
    if _text(tuned.best) == "the default":
        return "Nothing is faster than the default"
    return f"Fastest: {_text(tuned.best)}\n    {command}"


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
