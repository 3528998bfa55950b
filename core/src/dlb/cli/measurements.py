"""Measurements as tables for people and as documents for programs."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from typing import Any

import click
import msgspec

from dlb.cli.output import print_table
from dlb.cli.work import print_work, work_document
from dlb.measure.comparison import Compared, compare, figures_by_round, own_ratio
from dlb.measure.ratios import Ratio, spread
from dlb.proof.certificate import with_variant
from dlb.proof.checks.audit import AUDIT_RARE, chance
from dlb.results.measurement import Measurement, TrialResult

__all__ = ["cell_names", "measurement_document", "print_measurement"]

#: What the cores that were used follow from.
_CPU = ("cpu_user_seconds", "cpu_system_seconds", "seconds")


def compared_cells(measurement: Measurement, baseline: int = 0) -> list[Compared]:
    """Every cell next to the baseline."""
    return compare(
        measurement.trials,
        len(measurement.cells),
        baseline=baseline,
        margin=measurement.margin,
        pilot=measurement.pilot,
    )


def measurement_document(measurement: Measurement, baseline: int = 0) -> dict[str, Any]:
    """The document of ``--json``: the measurement, and what follows from it."""
    document: dict[str, Any] = msgspec.to_builtins(measurement)
    own = own_ratio(measurement.trials, len(measurement.cells))
    document["compared"] = [
        msgspec.to_builtins(each) for each in compared_cells(measurement, baseline)
    ]
    document["own_ratio"] = None if own is None else msgspec.to_builtins(own)
    document["work"] = work_document(measurement)
    return document


def print_measurement(measurement: Measurement, baseline: int = 0) -> None:
    """Print a table of cells with ratios, intervals and words, and what a reader must know of the trials."""
    if not measurement.trials:
        click.echo("Nothing was measured in rounds")
        return
    rows, names = [], cell_names(measurement)
    for compared in compared_cells(measurement, baseline):
        cell = measurement.cells[compared.cell]
        own = [trial for trial in measurement.trials if trial.cell == compared.cell]
        rows.append(
            [
                names[compared.cell],
                _milliseconds(compared.seconds),
                _apart(measurement, compared.cell),
                _milliseconds(_mean(own)),
                _per_second(own),
                *_ratio_cells(compared),
                ", ".join(_kinds(own)),
                cell.proof if all(trial.sound for trial in own) else "unproven",
            ]
        )
    columns = [
        "adapter",
        "median ms",
        "spread",
        "mean ms",
        "samples/s",
        f"times {names[baseline]}",
    ]
    columns += ["interval", "", "steps", "proof"]
    done = len({trial.round for trial in measurement.trials})
    counted = f"{done} round{'' if done == 1 else 's'}"
    title = f"{measurement.cells[0].workload_name}: {counted} of new processes, 95% intervals"
    print_table(columns, rows, title, right=columns[1:6])
    _print_phases(measurement)
    print_work(measurement, names)
    for line in _lines(measurement, done):
        click.echo(line)


def _print_phases(measurement: Measurement) -> None:
    """Print what came before steady steps, and what the processes took: medians over trials."""
    columns = ["adapter", "start s", "build s", "first step ms", "waiting ms", "cores", "peak MiB"]
    energy = any(_seen(trial, "cpu_energy_joules") is not None for trial in measurement.trials)
    rows, names = [], cell_names(measurement)
    for place, cell in enumerate(measurement.cells):
        own = [each for each in measurement.trials if each.cell == place and each.failure is None]
        if not own:
            continue
        used = [
            (user + system) / seconds
            for each in own
            for user, system, seconds in [[_seen(each, name) for name in _CPU]]
            if None not in (user, system) and seconds
        ]
        peaks = [_seen(each, "memory_peak_bytes") for each in own]
        row = [
            names[place],
            _middle([each.start_seconds for each in own], 1),
            _middle([each.build_seconds for each in own], 2),
            _middle([each.first_step_seconds * 1e3 for each in own], 1),
            _middle([each.waiting * 1e3 for each in own if each.waiting is not None], 2),
            _middle(used, 2),
            _middle([peak / 2**20 for peak in peaks if peak is not None], 0),
        ]
        if energy:
            joules = [_seen(each, "cpu_energy_joules") for each in own]
            steps = cell.options.steps
            row.append(_middle([each / steps for each in joules if each is not None], 2))
        rows.append(row)
    columns += ["joules a step"] if energy else []
    print_table(columns, rows, "Phases and resources, medians of processes", right=columns[1:])


def _seen(trial: TrialResult, name: str) -> Any:
    """A number of the observer that comes with dlb; None if it is not there."""
    value = trial.observed.get("resources", {}).get(name)
    return value if isinstance(value, (int, float)) else None


def _middle(values: list[float], digits: int) -> str:
    return f"{statistics.median(values):,.{digits}f}" if values else "-"


def cell_names(measurement: Measurement) -> list[str]:
    """The adapters of the cells, with what else differs between them."""
    threads = {cell.options.threads for cell in measurement.cells}
    names = []
    for cell in measurement.cells:
        differs = dict(cell.options.variant)
        if len(threads) > 1:
            differs["threads"] = str(cell.options.threads)
        if cell.options.variables:
            differs["environment"] = ", ".join(sorted(cell.options.variables))
        names.append(with_variant(cell.adapter, differs))
    return names


def _ratio_cells(compared: Compared) -> list[str]:
    if compared.ratio is None or compared.word is None:
        return ["1" if compared.seconds is not None else "-", "", ""]
    ratio = compared.ratio
    return [f"{ratio.ratio:.3f}", _interval(ratio), compared.word]


def _interval(ratio: Ratio) -> str:
    if not math.isfinite(ratio.high):
        return "of one round: unknown"
    return f"{ratio.low:.3f} to {ratio.high:.3f}"


def _apart(measurement: Measurement, cell: int) -> str:
    """The standard deviation of the medians of a cell's trials, relative."""
    figures = list(figures_by_round(measurement.trials, cell).values())
    if len(figures) < 2:
        return "-"
    return f"{math.expm1(spread([math.log(each) for each in figures])):.1%}"


def _milliseconds(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds * 1e3:.2f}"


def _mean(trials: list[TrialResult]) -> float | None:
    means = [trial.mean for trial in trials if trial.mean is not None]
    return sum(means) / len(means) if means else None


def _per_second(trials: list[TrialResult]) -> str:
    found = [each.samples_per_second for each in trials if each.samples_per_second is not None]
    return f"{sum(found) / len(found):,.0f}" if found else "-"


def _kinds(trials: list[TrialResult]) -> list[str]:
    counted = Counter(trial.kind for trial in trials if trial.failure is None)
    if len(counted) == 1:
        return list(counted)
    return [f"{number} {kind}" for kind, number in counted.most_common()]


def _audited(measurement: Measurement) -> list[str]:
    """How much the audits of all trials of an adapter find, of the one for which that is least."""
    found = []
    for place, cell in enumerate(measurement.cells):
        # The first step is always judged; the others were drawn.
        drawn = [max(0, each.judged - 1) for each in measurement.trials if each.cell == place]
        missed = math.prod(1 - chance(cell.options.steps, count) for count in drawn)
        found.append((1 - missed, sum(drawn)))
    probability, count = min(found)
    if not count:
        return []
    return [
        f"Audit: {count} or more steps of each adapter, drawn at random, and the first of each process; a "
        f"fault in 1 of {AUDIT_RARE} steps is found with {probability:.1%}"
    ]


def _lines(measurement: Measurement, done: int) -> list[str]:
    lines = []
    own = own_ratio(measurement.trials, len(measurement.cells))
    if own is not None:
        lines.append(
            f"An adapter next to itself, in the same rounds: {own.ratio:.3f}, {_interval(own)}"
        )
    disturbed = sum(trial.disturbed for trial in measurement.trials)
    if disturbed:
        lines.append(
            f"Disturbed by other work: {disturbed} of {len(measurement.trials)} trials, repetitions "
            "included; of each cell and round the last counts"
        )
    lines += _audited(measurement)
    for trial in measurement.trials:
        adapter = cell_names(measurement)[trial.cell]
        if trial.failure is not None:
            lines.append(f"{adapter}, round {trial.round + 1} failed: {trial.failure.line}")
        elif not trial.sound:
            wrong = [check for check, verdict in trial.checks.items() if verdict != "passed"]
            lines.append(
                f"{adapter}, round {trial.round + 1}: {', '.join(wrong) or 'no check'}: not proven"
            )
    if measurement.ended == "budget":
        widths = [each.ratio.width for each in compared_cells(measurement) if each.ratio]
        within = f": ratios are known to within {max(widths):.1%}" if widths else ""
        lines.append(f"The budget ended after {done} of {measurement.rounds} rounds{within}")
    if measurement.ended == "interrupted":
        lines.append("Interrupted; the same command goes on with it")
    lines.append(f"Measurement: measurements/{measurement.name}.json")
    return lines
