"""Sections about time and resources: step times, throughput by size, curves of training, what was used."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from dlb.proof.certificate import with_variant
from dlb.report.page.blocks import Block, Lines, Plot, Shown, data_of
from dlb.report.page.charts import Chart
from dlb.report.page.curves import Curve, Point, curves_chart, points_chart
from dlb.report.page.figures import distribution_chart, phases_chart, shares_chart, steps_chart
from dlb.report.page.naming import labelled
from dlb.report.page.scales import thinned
from dlb.report.page.sections import Results, heading_of, heading_of_runs
from dlb.report.page.sources import Array, Measured, Run
from dlb.report.plain import finite, number_text, plain
from dlb.report.table import Table
from dlb.report.work import work_lines, work_table
from dlb.results.measurement import TrialResult
from dlb.results.work import work_of_cells
from dlb_worker.contract import PHASES

__all__ = [
    "peak_section",
    "resources_section",
    "steps_section",
    "throughput_section",
    "training_section",
]

_SECONDS = "seconds of steps and of waiting"
#: Processes of which every step is shown.
MOST_TRIALS = 120
_PERCENTILES = (5, 25, 50, 75, 95, 99)
#: Options over which throughput is drawn, with their titles.
_SIZES = {"batch_size": "batch size", "threads": "threads", "workers": "workers"}
#: What else must be equal for two results to be on one line.
_SAME = (
    "workload", "device", "dtype", "input", "strategy", "cpu", "variant", "batch_size", "threads", "workers",
)  # fmt: skip


# --- steps -----------------------------------------------------------------------------------


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
    charts, rows, points = [], [], []
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
        chart = steps_chart(
            f"steps-{number}-{place + 1}", title, styles[place], trials, results.points
        )
        if chart is not None:
            charts.append(chart)
    legend = {each.style: each for chart in charts for each in chart.legend}
    charts = [replace(chart, legend=list(legend.values())) for chart in charts]
    spread = distribution_chart(f"distribution-{number}", steady, titles, styles)
    if left_out:
        yield Lines(left_out)
    if spread is not None:
        yield Plot([spread], _distribution_table(titles, steady))
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
    remarks += [] if trial.sound else ["not proven"]
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


def _distribution_table(titles: list[str], steady: Mapping[int, list[Array]]) -> Table:
    rows = []
    for place, parts in steady.items():
        values = np.concatenate(parts) if parts else np.zeros(0)
        values = values[np.isfinite(values)] * 1e3
        if len(values):
            found = np.percentile(values, _PERCENTILES)
            cells = [number_text(float(each)) for each in (*found, values.max(), values.mean())]
            rows.append([titles[place], f"{len(values):,}", *cells])
    columns = ["name", "steps", *(f"p{each}" for each in _PERCENTILES), "longest", "mean"]
    return Table(columns, rows, "Times of steady steps, ms", right=columns[1:])


def _run_steps(results: Results, runs: list[Run], number: int) -> Iterator[Block]:
    titles = [results.title(run) for run in runs]
    styles = [results.looks.of(title) for title in titles]
    steady: dict[int, list[Array]] = {}
    curves, points = [], []
    for place, run in enumerate(runs):
        timing = run.record.timing
        assert timing is not None
        seconds = np.array(timing.step_seconds, np.float64)
        steady[place] = [seconds[max(0, run.record.options.warmup) :]]
        steps = np.arange(1, len(seconds) + 1, dtype=np.float64)
        curves.append(Curve(titles[place], styles[place], steps, seconds * 1e3))
        points += [
            [titles[place], int(step) + 1, float(seconds[step])]
            for step in thinned(seconds, results.points)
        ]
    spread = distribution_chart(f"distribution-{number}", steady, titles, styles)
    table = _distribution_table(titles, steady)
    if spread is not None:
        yield Plot([spread], table)
    chart = curves_chart(
        f"steps-{number}", "Step times", curves, "step", "ms a step", results.points
    )
    if chart is not None:
        data = data_of(f"steps-{number}", ["name", "step", "seconds"], points)
        yield Plot([chart], table, data)


# --- parts of a step, and peaks ---------------------------------------------------------------


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


# --- throughput by size ----------------------------------------------------------------------


def throughput_section(results: Results) -> Iterator[Block]:
    """Samples per second by batch size, threads and workers, where results differ in nothing else."""
    rows = list(_figures(results))
    for size, title in _SIZES.items():
        lines: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
        for row in rows:
            same = tuple(row[name] for name in _SAME if name != size)
            lines.setdefault((row["title"], *same), []).append(row)
        varied = {key: own for key, own in lines.items() if len({row[size] for row in own}) > 1}
        if varied:
            yield from _by_size(results, size, title, list(varied.values()))


def _by_size(
    results: Results, size: str, title: str, lines: list[list[dict[str, Any]]]
) -> Iterator[Block]:
    by_workload: dict[str, list[list[dict[str, Any]]]] = {}
    for own in lines:
        by_workload.setdefault(own[0]["workload"], []).append(own)
    for number, (workload, several) in enumerate(list(by_workload.items())[:12], 1):
        differ = [
            name for name in _SAME if name != size and len({own[0][name] for own in several}) > 1
        ]
        points, cells = [], []
        for own in several[:24]:
            what = ", ".join(
                f"{name.replace('_', ' ')} {plain(own[0][name], 20)}" for name in differ
            )
            name = f"{own[0]['title']}, {what}" if what else own[0]["title"]
            grouped: dict[float, list[dict[str, Any]]] = {}
            for row in own:
                grouped.setdefault(row[size], []).append(row)
            for at, rows in sorted(grouped.items()):
                speeds = [row["speed"] for row in rows]
                middle = float(np.median(speeds))
                points.append(Point(name, results.looks.of(name), at, middle))
                statuses = sorted({row["proof"] for row in rows})
                cells.append(
                    [name, f"{at:,.0f}", number_text(middle), number_text(min(speeds))]
                    + [number_text(max(speeds)), str(len(rows)), ", ".join(statuses)]
                )
        chart = points_chart(
            f"{size.replace('_', '-')}-{number}",
            f"{plain(workload, 80)}: samples per second by {title}",
            points,
            title,
            "samples/s",
        )
        columns = ["name", title, "samples/s", "least", "most", "results", "proof"]
        table = Table(columns, cells, f"{plain(workload, 80)}: by {title}", columns[1:6])
        if chart is not None:
            data = data_of(f"{size.replace('_', '-')}-{number}", columns, cells)
            yield Plot([chart], table, data)


def _figures(results: Results) -> Iterator[dict[str, Any]]:
    """Speeds of runs and of cells, with what they depend on; a run that was measured is told by its cell."""
    measured = {
        (each.source, cell.record) for each in results.measured for cell in each.measurement.cells
    }
    for each in results.measured:
        for place, cell in enumerate(each.measurement.cells):
            found = [trial.samples_per_second for trial in each.trials_of(place)]
            speeds = [speed for speed in found if speed is not None]
            if not speeds:
                continue
            others = sorted(set(cell.varied) - set(_SIZES) - set(cell.options.variant))
            names = ("device", "dtype", "input", "strategy", "batch_size", "threads", "workers")
            yield {
                **{name: getattr(cell.options, name) for name in names},
                "title": _line_title(each, place),
                "workload": cell.workload_name,
                "cpu": str(each.measurement.machine.get("cpu", "")),
                "variant": ", ".join(f"{name}={cell.varied[name]}" for name in others),
                "proof": each.proof_of(place),
                "speed": float(np.mean(speeds)),
            }
    for source in results.sources:
        named = source.label if results.several else ""
        for row in source.rows:
            speed = finite(row["samples_per_second"])
            if row["kind"] != "run" or (named, row["name"]) in measured or not speed or speed <= 0:
                continue
            if any(finite(row[size]) is None for size in _SIZES):
                continue
            title = plain(row["framework"] or row["adapter"], 60)
            title = f"{title} ({plain(row['variant'], 40)})" if row["variant"] else title
            title = title if row["proof"] == "proven" else f"{title} ({row['proof']})"
            title = f"{title}, {plain(named, 40)}" if named else title
            yield {
                **{name: row[name] for name in (*_SAME, "proof")},
                "title": title,
                "speed": speed,
            }


def _line_title(measured: Measured, place: int) -> str:
    """A cell without what a sweep varies: all sizes of it are on one line."""
    cell = measured.measurement.cells[place]
    title = labelled(with_variant(cell.framework, cell.options.variant), measured.proof_of(place))
    return plain(f"{title}, {measured.source}" if measured.source else title, 100)


# --- training --------------------------------------------------------------------------------


def training_section(results: Results) -> Iterator[Block]:
    """Loss and accuracy by step and by second."""
    for number, runs in enumerate(results.commands, 1):
        trained = [run for run in runs if run.record.quality is not None]
        if not trained:
            continue
        yield heading_of_runs(runs)
        yield from _training(results, trained, number)


def _training(results: Results, runs: list[Run], number: int) -> Iterator[Block]:
    by_step, by_second, tested, accuracy, accuracy_by_second = [], [], [], [], []
    points, rows = [], []
    for run in runs:
        quality, timing = run.record.quality, run.record.timing
        assert quality is not None
        title = results.title(run)
        style = results.looks.of(title)
        losses = np.array([np.nan if each is None else each for each in quality.losses], np.float64)
        steps = np.arange(1, len(losses) + 1, dtype=np.float64)
        seconds = _seconds(timing, len(losses))
        by_step.append(Curve(title, style, steps, losses))
        if seconds is not None:
            by_second.append(Curve(title, style, seconds, losses))
        tests = [each for each in quality.tests if finite(each.accuracy) is not None]
        if tests:
            at = np.array([each.step for each in tests], np.float64)
            after = np.array([each.seconds for each in tests], np.float64)
            right = np.array([each.accuracy * 100 for each in tests], np.float64)
            test_losses = [np.nan if each.loss is None else each.loss for each in tests]
            tested.append(Curve(title, style, at, np.array(test_losses, np.float64), True))
            accuracy.append(Curve(title, style, at, right, True))
            accuracy_by_second.append(Curve(title, style, after, right, True))
        for place in thinned(losses, results.points):
            moment = None if seconds is None else float(seconds[place])
            points.append([title, "loss", int(place) + 1, moment, float(losses[place]), None])
        points += [
            [title, "test", each.step, each.seconds, each.loss, each.accuracy] for each in tests
        ]
        rows.append(
            [
                title,
                f"{len(losses):,}",
                number_text(losses[0]) if len(losses) else "-",
                number_text(losses[-1]) if len(losses) else "-",
                str(len(tests)),
                number_text(quality.test_accuracy * 100, 3) + "%",
            ]
        )
    wanted = (
        ("loss", "Training loss by step", by_step, "step", "loss"),
        ("loss-by-second", "Training loss by second", by_second, _SECONDS, "loss"),
        ("test-loss", "Test loss by step", tested, "step", "loss"),
        ("accuracy", "Test accuracy by step", accuracy, "step", "%"),
        ("accuracy-by-second", "Test accuracy by second", accuracy_by_second, _SECONDS, "%"),
    )
    charts = [
        curves_chart(f"{name}-{number}", title, curves, x_title, y_title, results.points)
        for name, title, curves, x_title, y_title in wanted
    ]
    columns = ["name", "steps", "first loss", "last loss", "tests", "test accuracy at the end"]
    table = Table(columns, rows, "Quality", right=columns[1:])
    names = ["name", "kind", "step", "seconds", "loss", "accuracy"]
    yield Plot(_there(charts), table, data_of(f"training-{number}", names, points))


def _seconds(timing: Any, steps: int) -> Array | None:
    """Seconds of training after each step; None if the series do not fit."""
    if timing is None or len(timing.step_seconds) != steps or len(timing.data_seconds) != steps:
        return None
    with np.errstate(all="ignore"):
        each = np.array(timing.step_seconds) + np.array(timing.data_seconds)
        found = np.cumsum(np.nan_to_num(each, posinf=0.0, neginf=0.0))
    return found if np.isfinite(found).all() and (found >= 0).all() else None


# --- resources -------------------------------------------------------------------------------

#: Titles, units and factors of the series that dlb's own observer records.
_KNOWN = {
    "resources/cores": ("Cores in use", "cores", 1.0),
    "resources/memory_bytes": ("Memory", "MiB", 2.0**-20),
}
_TOTALS = {
    "cpu_user_seconds": ("user s", 1.0),
    "cpu_system_seconds": ("system s", 1.0),
    "memory_average_bytes": ("average MiB", 2.0**-20),
    "memory_peak_bytes": ("peak MiB", 2.0**-20),
    "involuntary_switches": ("involuntary switches", 1.0),
    "machine_steal_seconds": ("stolen s", 1.0),
    "cpu_energy_joules": ("energy J", 1.0),
}


def resources_section(results: Results) -> Iterator[Block]:
    """Processors, memory, energy and whatever else observers recorded over time."""
    number = 0
    for measured in results.measured:
        number += 1
        titles = results.titles(measured)
        seen, series = [], []
        for place, title in enumerate(titles):
            for trial in [each for each in measured.trials_of(place) if not each.again][-1:]:
                seen.append((title, trial.observed))
                series.append((title, results.series(measured, trial.series)))
        if any(observed for _, observed in seen) or any(own for _, own in series):
            yield heading_of(measured)
            yield Lines(["Of the last process of each"])
            yield from _resources(results, seen, series, number)
    if results.measured:
        return
    for runs in results.commands:
        number += 1
        observed = [(results.title(run), run.record.observed) for run in runs]
        if any(each for _, each in observed):
            yield heading_of_runs(runs)
            own = [(title, _series_of(each)) for title, each in observed]
            yield from _resources(results, observed, own, number)


def _series_of(observed: Mapping[str, Any]) -> dict[str, Array]:
    from dlb.record import series_of

    return series_of(observed)


def _resources(
    results: Results,
    seen: Sequence[tuple[str, Mapping[str, Any]]],
    series: Sequence[tuple[str, Mapping[str, Array]]],
    number: int,
) -> Iterator[Block]:
    rows, reasons = [], []
    for title, observed in seen:
        own = observed.get("resources")
        if not isinstance(own, Mapping):
            continue
        cells = []
        for name, (_, factor) in _TOTALS.items():
            value = own.get(name)
            known = finite(value)
            # Counts stay whole numbers.
            cells.append(number_text(value if factor == 1.0 or known is None else known * factor))
        rows.append([title, *cells, _devices_text(own.get("devices"))])
        if own.get("cpu_energy_reason"):
            reasons.append(f"No energy of processors: {plain(own['cpu_energy_reason'])}")
        if own.get("devices_reason") and own.get("devices_reason") != "the run used none":
            reasons.append(f"No devices: {plain(own['devices_reason'])}")
    columns = ["name", *(title for title, _ in _TOTALS.values()), "devices"]
    table = Table(columns, rows, "Resources of all processes of a training", columns[1:-1])
    charts: list[Chart] = []
    points: list[list[Any]] = []
    names = dict.fromkeys([*_KNOWN, *sorted({name for _, own in series for name in own})])
    for name in names:
        plugin, _, short = name.partition("/")
        if short in ("", "seconds"):
            continue
        title, unit, factor = _KNOWN.get(name, (plain(name, 60), "", 1.0))
        curves = []
        for label, own in series:
            values, moments = own.get(name), own.get(f"{plugin}/seconds")
            if values is None or not len(values):
                continue
            if moments is None or len(moments) != len(values):
                moments = np.arange(len(values), dtype=np.float64)
            with np.errstate(all="ignore"):
                scaled = values * factor
            curves.append(Curve(label, results.looks.of(label), moments, scaled))
            points += [
                [label, name, float(moments[place]), float(values[place])]
                for place in thinned(values, results.points)
            ]
        chart = curves_chart(
            f"resources-{number}-{len(charts) + 1}", f"{title} over time", curves, "seconds", unit,
            results.points, zero=True,
        )  # fmt: skip
        charts += _there([chart])
    data = data_of(f"resources-{number}", ["name", "series", "seconds", "value"], points)
    if charts:
        yield Plot(charts, table if rows else None, data, folded=False)
    elif rows:
        yield Shown(table, main=False)
    if reasons:
        yield Lines(list(dict.fromkeys(reasons))[:20])


def _devices_text(devices: Any) -> str:
    found = []
    for each in devices if isinstance(devices, list) else []:
        if isinstance(each, Mapping):
            use, joules = finite(each.get("use")), finite(each.get("energy_joules"))
            used = "" if use is None else f", used {use:.0%}"
            energy = "" if joules is None else f", {number_text(joules)} J"
            memory = finite(each.get("memory_peak_bytes"))
            held = "" if memory is None else f", {memory / 2**20:,.0f} MiB"
            found.append(f"{plain(each.get('name'), 60)}{used}{held}{energy}")
    return "; ".join(found[:16]) or "-"


def _there(charts: list[Chart | None]) -> list[Chart]:
    return [each for each in charts if each is not None]
