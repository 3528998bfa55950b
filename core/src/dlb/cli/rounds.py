"""Options that say how often something is measured."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from dlb.execution.measure import Plan

__all__ = ["ROUNDS", "TEST_EVERY", "plan_of", "share_of", "test_times"]

_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0}

TEST_EVERY = click.option(
    "--test-every",
    metavar="N|TIME",
    help="Test the model every N steps, or every so much time of training, such as 30s; beside the end.",
)

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
        help="Measure until ratios are known to within so much, such as 2%: 5 rounds, then as many as follow "
        "from their spread.",
    ),
    click.option(
        "--budget",
        metavar="TIME",
        help="Begin no round that would end after this time, such as 20m. Default of dlb run without --rounds "
        "and --precision: 3m.",
    ),
    click.option(
        "--order",
        type=click.Choice(["interleaved", "alternating", "isolated"]),
        default="interleaved",
        show_default=True,
        help="Rounds of all adapters, one after the other, or side by side in blocks of steps that alternate; "
        "or all trials of one adapter, then those of the next.",
    ),
    click.option(
        "--margin",
        default="1%",
        show_default=True,
        metavar="SHARE",
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
        type=click.Choice(["found", "after-warmup"]),
        default="found",
        show_default=True,
        help="Which of them count: a steady state that is looked for, or all behind --warmup.",
    ),
    click.option(
        "--repeats",
        type=click.IntRange(0, 100),
        default=2,
        show_default=True,
        metavar="N",
        help="How often a process is repeated that others disturbed, or that had no steady state; none is, "
        "once a whole round was disturbed.",
    ),
)


def plan_of(options: dict[str, Any], plain_seconds: float | None = None) -> Plan | None:
    """The plan that options ask for, which are taken out; None for no rounds.

    Args:
        plain_seconds: budget where neither a number of rounds, a precision nor a budget is asked for.

    Raises:
        click.UsageError: an option has a wrong form, or two exclude each other.
    """
    from dlb.execution.measure import Plan
    from dlb.measure.stopping import PILOT_ROUNDS

    count, precision = options.pop("rounds"), options.pop("precision")
    budget, order, margin = options.pop("budget"), options.pop("order"), options.pop("margin")
    trial_steps, steady = options.pop("trial_steps"), options.pop("steady")
    repeats = options.pop("repeats")
    if count is not None and precision is not None:
        raise click.UsageError("--rounds and --precision exclude each other")
    if order == "isolated" and (precision is not None or budget is not None):
        raise click.UsageError("--order isolated has no rounds to stop after; give --rounds alone")
    if count == 0:
        return None
    seconds = None if budget is None else _seconds("--budget", budget)
    if (count, precision, budget) == (None, None, None) and order != "isolated":
        seconds = plain_seconds
    return Plan(
        rounds=PILOT_ROUNDS if count is None else count,
        precision=None if precision is None else share_of("--precision", precision),
        budget_seconds=seconds,
        order=order,
        margin=share_of("--margin", margin),
        trial_steps=trial_steps,
        steady=steady,
        repeats=repeats,
    )


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


def test_times(text: str | None) -> dict[str, Any]:
    """Fields of a request for ``--test-every``.

    Raises:
        click.UsageError: the text is neither a number of steps nor a time.
    """
    if text is None:
        return {}
    if text.isdecimal() and int(text):
        return {"test_steps": int(text)}
    if not text.strip()[-1:].isalpha():
        raise click.UsageError(f"--test-every {text}: give a number of steps, or a time as 30s")
    return {"test_seconds": _seconds("--test-every", text)}


def _seconds(flag: str, text: str) -> float:
    found = re.fullmatch(r"(\d+(?:\.\d*)?|\.\d+)([smh]?)", text.strip())
    seconds = float(found[1]) * _UNITS[found[2] or "s"] if found else 0.0
    if not 0 < seconds < float("inf"):
        raise click.UsageError(f"{flag} {text}: must be a time above 0, such as 90s, 20m or 2h")
    return seconds
