"""Options that say how often something is measured."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, get_args

import click

from dlb.cli.options import seconds_of
from dlb_measure.plan import Order, Plan, SteadyRule, Until

__all__ = ["QUICK", "ROUNDS", "plan_of", "share_of"]

_DEFAULT = Plan()


def _read_by(read: Callable[[str, str], float]) -> Callable[..., float | None]:
    """What makes a number of an option's text."""
    return lambda context, option, text: None if text is None else read(option.opts[0], text)


def share_of(flag: str, text: str) -> float:
    """A share, such as 2% or 0.02.

    Raises:
        click.UsageError: the text is none.
    """
    found = re.fullmatch(r"(\d+(?:\.\d*)?|\.\d+)(%?)", text.strip())
    share = float(found[1]) / (100 if found[2] else 1) if found else 0.0
    if not 0 < share < 1:
        raise click.UsageError(f"{flag} {text}: must be above 0 and below 100%, such as 2%")
    return share


#: An option for each field of a plan.
ROUNDS = (
    click.option(
        "--rounds",
        type=click.IntRange(0, 10_000),
        metavar="N",
        help="Then measure in N rounds, each with a new process of every adapter, and of one twice; 0 for "
        "none. Default: 5.",
    ),
    click.option(
        "--precision",
        metavar="SHARE",
        callback=_read_by(share_of),
        help="Measure until ratios are known to within so much, such as 2%: 5 rounds, then as many as follow "
        "from their spread.",
    ),
    click.option(
        "--budget",
        "budget_seconds",
        metavar="TIME",
        callback=_read_by(seconds_of),
        help="Begin no round that would end after this time, such as 20m. Default of dlb run without --rounds "
        "and --precision: 3m.",
    ),
    click.option(
        "--order",
        type=click.Choice(get_args(Order)),
        help="Rounds of all adapters, one after the other, or side by side in blocks of steps that alternate; "
        "or all trials of one adapter, then those of the next. Default: alternating if the speed changed "
        "during the runs before, else interleaved.",
    ),
    click.option(
        "--margin",
        default=f"{_DEFAULT.margin:.0%}",
        show_default=True,
        metavar="SHARE",
        callback=_read_by(share_of),
        help="Adapters that differ by less count as the same.",
    ),
    click.option(
        "--trial-steps",
        type=click.IntRange(2, 10_000_000),
        metavar="N",
        help="Steps of each process of a round. Default: those of some seconds, at most the run's.",
    ),
    click.option(
        "--steady",
        type=click.Choice(get_args(SteadyRule)),
        default=_DEFAULT.steady,
        show_default=True,
        help="Which of them count: a steady state that is looked for, or all behind --warmup.",
    ),
    click.option(
        "--repeats",
        type=click.IntRange(0, 100),
        default=_DEFAULT.repeats,
        show_default=True,
        metavar="N",
        help="How often a process is repeated that others disturbed, or that had no steady state; none is, "
        "once a whole round was disturbed.",
    ),
    click.option(
        "--until",
        type=click.Choice(get_args(Until)),
        help="End rounds after all, or once each word (faster, slower, same) is settled, by looks after 3, 5, "
        "8, ... rounds that keep the intervals at 95%. Default of dlb run without --rounds and --precision: "
        "settled; else all.",
    ),
)
#: Of ``dlb run`` alone.
QUICK = click.option(
    "--quick",
    is_flag=True,
    help="A first answer: 3 processes of each adapter side by side, of few steps; without --on, of the first "
    "two adapters. Only what is about the timed model is proven, unless a whole proof was kept.",
)
#: Rounds of a quick run, all of which are done at once.
QUICK_ROUNDS = 3


def plan_of(options: dict[str, Any], plain_seconds: float | None = None) -> Plan | None:
    """The plan that options ask for, which are taken out; None for no rounds.

    Args:
        plain_seconds: budget where neither a number of rounds, a precision nor a budget is asked for.

    Raises:
        click.UsageError: an option has a wrong form, or two exclude each other.
    """
    plan = {name: options.pop(name, getattr(_DEFAULT, name)) for name in Plan.__struct_fields__}
    count, precision, budget = plan["rounds"], plan["precision"], plan["budget_seconds"]
    if count is not None and precision is not None:
        raise click.UsageError("--rounds and --precision exclude each other")
    for flag, value in (
        ("--precision", precision),
        ("--budget", budget and plan["quick"]),
        ("--rounds 0", count == 0),
        (f"--order {plan['order']}", plan["order"] not in (None, "alternating")),
    ):
        if value and plan["until"] == "settled" and flag != "--order interleaved":
            raise click.UsageError(f"--until settled and {flag} exclude each other")
        if value and plan["quick"]:
            raise click.UsageError(f"--quick and {flag} exclude each other")
    if plan["order"] == "isolated" and (precision is not None or budget is not None):
        raise click.UsageError("--order isolated has no rounds to stop after; give --rounds alone")
    if count == 0:
        return None
    if count is None:
        plan["rounds"] = QUICK_ROUNDS if plan["quick"] else _DEFAULT.rounds
    if plan["quick"]:
        plan["order"] = "alternating"
    elif plain_seconds and plan["order"] != "isolated" and count is None and precision is None:
        plan["budget_seconds"] = budget or plain_seconds
        plan["until"] = plan["until"] or "settled"
    plan["until"] = plan["until"] or _DEFAULT.until
    return Plan(**plan)
