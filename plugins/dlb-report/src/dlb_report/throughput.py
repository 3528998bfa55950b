"""The section about throughput by batch size, threads and workers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from dlb.proof.certificate import with_variant
from dlb.report.plain import finite, number_text, plain
from dlb.report.table import Table
from dlb_report.blocks import Block, Plot, data_of
from dlb_report.chosen import Results
from dlb_report.curves import Point, points_chart
from dlb_report.naming import labelled
from dlb_report.sources import Measured

__all__ = ["throughput_section"]

#: Options over which throughput is drawn, with their titles.
_SIZES = {"batch_size": "batch size", "threads": "threads", "workers": "workers"}
#: What else must be equal for two results to be on one line.
_SAME = (
    "workload", "device", "dtype", "input", "strategy", "cpu", "variant", "batch_size", "threads", "workers",
)  # fmt: skip


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
