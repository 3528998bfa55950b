"""Sections about step times, and what of the machine steps use."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np

from dlb.report.plain import finite, number_text, plain
from dlb.report.table import Table
from dlb_measure.results.compared import compared_cells
from dlb_measure.results.measurement import TrialResult
from dlb_measure.results.work import work_of_cells
from dlb_measure.tables.work import work_lines, work_table
from dlb_report.blocks import Block, Lines, Plot, Shown, data_of
from dlb_report.chosen import Results, heading_of, heading_of_runs
from dlb_report.curves import Curve, curves_chart
from dlb_report.figures import (
    distribution_chart,
    phases_chart,
    shares_chart,
    steps_chart,
    steps_scale,
)
from dlb_report.scales import thinned
from dlb_report.sources import Array, Measured, Run
from dlb_worker.contract import PHASES

__all__ = ["peak_section", "steps_section"]

#: Processes of which every step is shown.
MOST_TRIALS = 120
#: The median is not among them: it is that of each process, averaged, as in every other table.
_PERCENTILES = (5, 25, 75, 95, 99)


def steps_section(results: Results) -> Iterator[Block]:
    """Distributions of step times, and steps in the order in which they ran."""
    for number, measured in enumerate(results.measured, 1):
        yield heading_of(measured)
        yield from _phases(results, measured, number)
        yield from _measured_steps(results, measured, number)
    if results.measured:
        return
    for number, runs in enumerate(results.commands, 1):
        timed = [run for run in runs if run.record.timing is not None]
        if timed:
            yield heading_of_runs(runs)
            yield from _run_steps(results, timed, number)


def _measured_steps(results: Results, measured: Measured, number: int) -> Iterator[Block]:
    titles, styles = results.titles(measured), results.styles(measured)
    steady: dict[int, list[Array]] = {}
    charts, rows, points, shown = [], [], [], []
    left_out: list[str] = []
    for place, title in enumerate(titles):
        trials = []
        every = measured.trials_of(place)
        if len(every) > MOST_TRIALS:
            left_out.append(f"{title}: the last {MOST_TRIALS} of {len(every):,} processes")
        # Those that the ratio is of: of each round the last attempt.
        steady_ones = [each for each in every if not each.again and each.median is not None]
        counted = list({each.round: each for each in steady_ones}.values())
        for trial in every[-MOST_TRIALS:]:
            seconds = results.series(measured, trial.series).get("step_seconds", np.zeros(0))
            trials.append((trial, seconds))
            if trial in counted:
                steady.setdefault(place, []).append(seconds[max(0, trial.first_steady) :])
            rows.append(_trial_row(title, trial, seconds))
            for step in thinned(seconds, results.points):
                points.append([title, trial.round + 1, int(trial.again), trial.attempt, int(step)])
                points[-1] += [float(seconds[step]), int(step >= trial.first_steady)]
                points[-1] += [int(trial.disturbed)]
        shown.append(trials)
    scale = steps_scale([seconds for trials in shown for _, seconds in trials])
    for place, trials in enumerate(shown):
        chart = steps_chart(
            f"steps-{number}-{place + 1}",
            titles[place],
            styles[place],
            trials,
            scale,
            results.points,
        )
        if chart is not None:
            charts.append(chart)
    legend = {each.style: each for chart in charts for each in chart.legend}
    charts = [replace(chart, legend=list(legend.values())) for chart in charts]
    medians = {
        each.cell: each.seconds
        for each in compared_cells(measured.measurement, results.place_of_baseline(measured))
        if each.seconds is not None
    }
    spread = distribution_chart(f"distribution-{number}", steady, medians, titles, styles)
    if left_out:
        yield Lines(left_out)
    if spread is not None:
        yield Plot([spread], _distribution_table(titles, steady, medians))
    if charts:
        columns = [
            "name",
            "process",
            "steps",
            "kind",
            "left out",
            "median ms",
            "p95 ms",
            "longest ms",
        ]
        columns += ["remarks"]
        table = Table(columns, rows, "Processes, in the order in which they ran", columns[4:8])
        names = ["name", "round", "again", "attempt", "step", "seconds", "steady", "disturbed"]
        yield Plot(charts, table, data_of(f"steps-{number}", names, points))


def _trial_row(title: str, trial: TrialResult, seconds: Array) -> list[str]:
    remarks = ["second of its round"] if trial.again else []
    remarks += ["disturbed"] if trial.disturbed else []
    remarks += [f"repetition {trial.attempt}"] if trial.attempt else []
    remarks += ["not measured"] if trial.failure else []
    remarks += ["not proven"] if trial.unproven else []
    longest = seconds[np.isfinite(seconds)].max() * 1e3 if np.isfinite(seconds).any() else None
    return [
        title,
        f"round {trial.round + 1}",
        f"{len(seconds):,}",
        trial.kind,
        f"{max(0, trial.first_steady):,}",
        number_text(None if trial.median is None else trial.median * 1e3),
        number_text(None if trial.p95 is None else trial.p95 * 1e3),
        number_text(longest),
        ", ".join(remarks),
    ]


def _distribution_table(
    titles: list[str], steady: Mapping[int, list[Array]], medians: Mapping[int, float]
) -> Table:
    rows = []
    for place, parts in steady.items():
        values = np.concatenate(parts) if parts else np.zeros(0)
        values = values[np.isfinite(values)] * 1e3
        if len(values):
            found = np.percentile(values, _PERCENTILES)
            figures = (*found, values.max(), values.mean())
            cells = [f"{medians[place] * 1e3:.2f}", *(number_text(float(each)) for each in figures)]
            rows.append([titles[place], f"{len(values):,}", *cells])
    columns = ["name", "steps", "median", *(f"p{each}" for each in _PERCENTILES), "longest", "mean"]
    return Table(columns, rows, "Times of steady steps, ms", right=columns[1:])


def _run_steps(results: Results, runs: list[Run], number: int) -> Iterator[Block]:
    titles = [results.title(run) for run in runs]
    styles = [results.looks.of(title) for title in titles]
    steady: dict[int, list[Array]] = {}
    medians: dict[int, float] = {}
    curves, points = [], []
    for place, run in enumerate(runs):
        timing = run.record.timing
        assert timing is not None
        seconds = np.array(timing.step_seconds, np.float64)
        steady[place] = [seconds[max(0, run.record.options.warmup) :]]
        medians[place] = timing.median
        steps = np.arange(1, len(seconds) + 1, dtype=np.float64)
        curves.append(Curve(titles[place], styles[place], steps, seconds * 1e3))
        points += [
            [titles[place], int(step) + 1, float(seconds[step])]
            for step in thinned(seconds, results.points)
        ]
    spread = distribution_chart(f"distribution-{number}", steady, medians, titles, styles)
    table = _distribution_table(titles, steady, medians)
    if spread is not None:
        yield Plot([spread], table)
    chart = curves_chart(
        f"steps-{number}", "Step times", curves, "step", "ms a step", results.points
    )
    if chart is not None:
        data = data_of(f"steps-{number}", ["name", "step", "seconds"], points)
        yield Plot([chart], table, data)


def _phases(results: Results, measured: Measured, number: int) -> Iterator[Block]:
    """The parts of a step, where adapters divide it."""
    medians: dict[int, dict[str, float]] = {}
    for place in range(len(measured.measurement.cells)):
        own = [trial.phases for trial in measured.trials_of(place) if trial.phases]
        for part in PHASES:
            found = [finite(each[part]) for each in own if part in each]
            seconds = [each for each in found if each is not None and each >= 0]
            if seconds:
                medians.setdefault(place, {})[part] = float(np.median(seconds))
    chart = phases_chart(f"phases-{number}", medians, results.titles(measured), PHASES)
    if chart is not None:
        yield Plot([chart])


def peak_section(results: Results) -> Iterator[Block]:
    """Operations and bytes by the second, as shares of what this machine does at most."""
    for number, measured in enumerate(results.measured, 1):
        table = work_table(measured.measurement)
        if table is None:
            continue
        yield heading_of(measured)
        found = work_of_cells(measured.measurement)
        shares = {each.cell: (each.share_of_product, each.share_of_copy) for each in found}
        what = ("the fastest matrix product", "the fastest copy")
        chart = shares_chart(f"peak-{number}", shares, results.titles(measured), what)
        if chart is not None:
            yield Plot([chart])
        titles = results.titles(measured)
        rows = [
            [titles[each.cell], each.operations_per_second, each.share_of_product]
            + [each.bytes_per_second, each.share_of_copy]
            for each in found
        ]
        columns = ["name", "operations_per_second", "share_of_product"]
        data = data_of(f"peak-{number}", [*columns, "bytes_per_second", "share_of_copy"], rows)
        yield Shown(table, data)
        lines = [plain(line, 400) for line in work_lines(measured.measurement)]
        if lines:
            yield Lines(lines)
