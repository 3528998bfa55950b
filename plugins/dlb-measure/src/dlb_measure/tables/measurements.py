"""Measurements as tables and lines of text."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from typing import Any

from dlb.proof.checks.audit import AUDIT_RARE, chance
from dlb.report.answers import Answer
from dlb.report.table import Table
from dlb_measure.comparison import Compared, figures_by_round, own_ratio
from dlb_measure.plan import TRIAL_STEPS
from dlb_measure.ratios import Ratio, spread
from dlb_measure.results.compared import batches_differ, cell_names, compared_cells
from dlb_measure.results.measurement import Measurement, TrialResult
from dlb_measure.verdict import verdict_line, verdict_of
from dlb_worker.contract import PHASES

__all__ = [
    "counted_rounds",
    "few_steps",
    "interval_text",
    "measurement_answer",
    "measurement_lines",
    "measurement_table",
    "phases_table",
]

#: The ratio of a cell and itself is wider than this where the machine changes its speed.
CHANGING = 0.1
#: What the cores that were used follow from.
_CPU = ("cpu_user_seconds", "cpu_system_seconds", "seconds")


def measurement_table(measurement: Measurement, baseline: int = 0) -> Table:
    """Cells with ratios, intervals and words."""
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
                *_ratio_cells(compared, baseline),
                ", ".join(_kinds(own)),
                "unproven" if any(trial.unproven for trial in own) else cell.proof,
            ]
        )
    columns = [
        "adapter",
        "median ms",
        "spread",
        "mean ms",
        "samples/s",
        f"times {names[baseline]}" + (", a sample" if batches_differ(measurement) else ""),
    ]
    columns += ["interval", "", "steps", "proof"]
    counted = counted_rounds(measurement.done)
    title = f"{measurement.cells[0].workload_name}: {counted} of new processes, 95% intervals"
    title += " over all looks" if measurement.until == "settled" else ""
    title += ", quick" if measurement.quick else ""
    return Table(columns, rows, title, right=columns[1:6])


def measurement_answer(measurement: Measurement) -> Answer:
    """What the measurement says."""
    return Answer(verdict_line(verdict_of(measurement)), (), (measurement_table(measurement),))


def counted_rounds(rounds: int) -> str:
    """``1 round``, ``2 rounds``."""
    return f"{rounds} round{'' if rounds == 1 else 's'}"


def phases_table(measurement: Measurement) -> Table:
    """What came before steady steps, and what the processes took: medians over trials."""
    columns = ["adapter", "start s", "build s", "first step ms"]
    columns += [*(f"{phase} ms" for phase in PHASES), "waiting ms", "cores", "peak MiB"]
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
            *(
                _middle([each.phases[phase] * 1e3 for each in own if phase in each.phases], 2)
                for phase in PHASES
            ),
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
    title = "Phases and resources, medians of processes"
    if any(trial.phases for trial in measurement.trials):
        title += "; forward, backward and update are timed apart and do not add up to a step"
    return Table(columns, rows, title, right=columns[1:])


def _seen(trial: TrialResult, name: str) -> Any:
    """A number of the observer that comes with dlb; None if it is not there."""
    value = trial.observed.get("resources", {}).get(name)
    return value if isinstance(value, (int, float)) else None


def _middle(values: list[float], digits: int) -> str:
    return f"{statistics.median(values):,.{digits}f}" if values else "-"


def _ratio_cells(compared: Compared, baseline: int) -> list[str]:
    if compared.seconds is None:
        return ["-", "", "not measured"]
    if compared.ratio is None or compared.word is None:
        return ["1" if compared.cell == baseline else "-", "", ""]
    ratio = compared.ratio
    return [f"{ratio.ratio:.3f}", interval_text(ratio), compared.word]


def interval_text(ratio: Ratio) -> str:
    """``0.981 to 1.012``."""
    if not math.isfinite(ratio.high):
        return "of one round: unknown"
    if ratio.high >= 1e4:
        return f"{ratio.low:.2g} to {ratio.high:.2g}"
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


def few_steps(steps: int) -> list[str]:
    """A line if a trial has too few steps."""
    if steps >= TRIAL_STEPS:
        return []
    return [
        f"Only {steps} steps of each process are timed, which says little: time {TRIAL_STEPS} or more, such as "
        "with --steps 200"
    ]


def measurement_lines(measurement: Measurement) -> list[str]:
    """What a reader must know of the trials."""
    lines = []
    own = own_ratio(measurement.trials, len(measurement.cells))
    if own is not None:
        lines.append(
            f"An adapter next to itself, in the same rounds: {own.ratio:.3f}, {interval_text(own)}"
        )
        if measurement.order == "interleaved" and CHANGING < own.width < math.inf:
            lines.append(
                "The speed of this machine changes: --order alternating takes the steps of all in turns, which "
                "has narrower intervals"
            )
    disturbed = sum(trial.disturbed for trial in measurement.trials)
    if disturbed:
        lines.append(
            f"Disturbed by other work: {disturbed} of {len(measurement.trials)} trials, repetitions "
            "included; of each cell and round the last counts"
        )
    lines += _audited(measurement)
    lines += few_steps(min(cell.options.steps for cell in measurement.cells))
    unknown = {
        f"{measurement.cells[trial.cell].adapter}: {trial.phases_unknown}"
        for trial in measurement.trials
        if trial.phases_unknown
    }
    if unknown:
        lines.append(f"Parts of a step that were not timed: {'; '.join(sorted(unknown))}")
    for trial in measurement.trials:
        adapter = cell_names(measurement)[trial.cell]
        if trial.failure is not None:
            lines.append(f"{adapter}, round {trial.round + 1}: not measured: {trial.failure.line}")
        if trial.unproven:
            wrong = [check for check, verdict in trial.checks.items() if verdict != "passed"]
            lines.append(
                f"{adapter}, round {trial.round + 1}: {', '.join(wrong) or 'no check'}: not proven"
            )
    if measurement.ended == "budget":
        widths = [
            math.inf if each.oversubscribed else each.ratio.width
            for each in compared_cells(measurement)
            if each.ratio
        ]
        known = bool(widths) and math.isfinite(max(widths))
        within = f": ratios are known to within {max(widths):.1%}" if known else ""
        lines.append(
            f"The budget ended after {measurement.done} of {measurement.rounds} rounds{within}"
        )
    if measurement.ended == "settled":
        lines.append(
            f"Ended after {measurement.done} of {measurement.rounds} rounds, since every word is settled"
        )
    if measurement.ended == "interrupted":
        lines.append("Interrupted; the same command goes on with it")
    if measurement.order == "alternating":
        lines.append(
            "Trials alternated: steps of all in turns, so that changes of speed hit all alike"
        )
    lines.append(f"Measurement: measurements/{measurement.name}.json")
    return lines
