"""The section about processors, memory, energy and what else observers recorded."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from dlb.record import series_of
from dlb.report.plain import finite, number_text, plain
from dlb.report.table import Table
from dlb_report.blocks import Block, Lines, Plot, Shown, data_of
from dlb_report.charts import Chart
from dlb_report.chosen import Results, heading_of, heading_of_runs
from dlb_report.curves import Curve, curves_chart
from dlb_report.scales import thinned
from dlb_report.sources import Array

__all__ = ["resources_section"]

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
        if chart is not None:
            charts.append(chart)
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
