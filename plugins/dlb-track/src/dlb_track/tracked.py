"""What is written to an experiment tracker: a run for each record, and one for each cell of a measurement."""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from dlb import documents
from dlb.errors import PackageMissing, RecordError, RequestError
from dlb.printable import printable
from dlb.record import Options, Record, read, series_of
from dlb_measure.results.compared import cell_names, compared_cells
from dlb_measure.results.measurement import Measurement
from dlb_measure.results.measurement import read as read_measurement

__all__ = [
    "Point",
    "Tracked",
    "in_markdown",
    "key",
    "needs",
    "proof_record",
    "text",
    "tracked_runs",
]

Row = Mapping[str, Any]
#: Letters of a name or a value: trackers have limits, and a stranger's may be long.
LONGEST_NAME, LONGEST_VALUE = 200, 500
#: No time is behind this one, which is in the year 5138; no step behind the largest that they take.
LAST_SECOND, LAST_STEP = 1e11, 2**53
#: What Markdown would take for its own; and what it, HTML, a table or a link would, in every dialect.
_MARKS, _SIGNS = re.compile(r"([\\`*_\[\]#])"), re.compile("[<>&|:@~$]")


@dataclass(frozen=True)
class Point:
    """A number of a series.

    Attributes:
        step: the step or the round, from 0.
        seconds: when it was, in seconds since 1970.
    """

    step: int
    value: float
    seconds: float


@dataclass(frozen=True)
class Tracked:
    """A run of a tracker.

    Attributes:
        name: its name: letters, digits, ``.``, ``_`` and ``-`` alone, so that it can be a folder's.
        sha256: of the document, and of the cell's place in it: what is written once.
        started: seconds since 1970.
        settings: what it ran with, by name.
        words: what was found, in words: the proof, and what may be said of its time.
        figures: single numbers, by name; the unit of a time is the second.
        series: numbers by step or round, by name. A loss that is not finite is NaN.
        files: the documents, by file name.
    """

    name: str
    sha256: str
    started: float
    settings: Mapping[str, str | int | float]
    words: Mapping[str, str]
    figures: Mapping[str, float]
    series: Mapping[str, Sequence[Point]] = field(default_factory=dict)
    files: Mapping[str, bytes] = field(default_factory=dict)


def key(name: str) -> str:
    """A name that every tracker takes: letters, digits, ``_``, ``-``, ``.`` and ``/`` within."""
    cleaned = re.sub(r"[^A-Za-z0-9_./-]+", "_", name)
    return re.sub(r"/[./]*", "/", cleaned).strip("./")[:LONGEST_NAME] or "unnamed"


def text(value: object) -> str:
    """A stranger's text as a value: what cannot be seen is escaped, and it has an end."""
    shown = printable(" ".join(str(value).split()))
    return shown if len(shown) <= LONGEST_VALUE else f"{shown[:LONGEST_VALUE]} ..."


def in_markdown(value: object) -> str:
    """A stranger's text as text within Markdown: no mark, no HTML and no link."""
    marked = _MARKS.sub(r"\\\1", text(value)).replace("www.", r"www\.")
    return _SIGNS.sub(lambda sign: f"&#{ord(sign[0])};", marked)


def needs(module: str, extra: str) -> PackageMissing:
    """The error for a library that is not installed."""
    error = PackageMissing(f"dlb results export --format {extra}", f"dlb-track[{extra}]")
    error.message = (
        f"--format {extra} needs {module}; install it with: pip install 'dlb-track[{extra}]'"
    )
    return error


def tracked_runs(folder: Path, rows: Sequence[Row]) -> Iterator[Tracked]:
    """The runs of results, the first first.

    Args:
        folder: the results folder.
        rows: those of its index that were chosen.

    Raises:
        RequestError: nothing was chosen, or a document cannot be read.
    """
    if not rows:
        raise RequestError("no result was chosen; see: dlb results list", path=folder)
    for row in reversed(rows):
        path = folder / row["file"]
        try:
            if row["kind"] == "run":
                yield _of_record(read(path), path)
            else:
                yield from _of_measurement(read_measurement(path), path)
        except (RecordError, OSError) as error:
            raise RequestError(getattr(error, "message", str(error)), path=path) from None


def _folder_name(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9_.-]+", "-", name).strip(".-")[:LONGEST_NAME] or "unnamed"


def _digest(content: bytes, place: str = "") -> str:
    return hashlib.sha256(content + place.encode()).hexdigest()


def _seconds(started: str) -> float:
    try:
        return _moment(datetime.fromisoformat(started).timestamp())
    except (ValueError, OverflowError):
        return 0.0


def _moment(seconds: float) -> float:
    """Seconds since 1970 that every tracker takes as a time; 0 in place of others."""
    return seconds if 0 <= seconds < LAST_SECOND else 0.0


def _settings(options: Options, **more: str) -> dict[str, str | int | float]:
    plain = {
        name: getattr(options, name)
        for name in options.__struct_fields__
        if name not in ("variant", "variables")
    }
    named = {f"variant.{name}": value for name, value in options.variant.items()}
    named |= {f"variable.{name}": value for name, value in options.variables.items()}
    everything = {**more, **plain, **named}
    return {
        key(name): value if isinstance(value, (int, float)) else text(value)
        for name, value in everything.items()
        if value != ""
    }


def _numbers(**figures: float | None) -> dict[str, float]:
    return {name: float(value) for name, value in figures.items() if value is not None}


def _of_record(record: Record, path: Path) -> Tracked:
    started, content = _seconds(record.started), path.read_bytes()
    timing, quality = record.timing, record.quality
    figures: dict[str, float] = {}
    series: dict[str, list[Point]] = {}
    ends: list[float] = []
    if timing is not None:
        second = started
        for taken, waited in zip(timing.step_seconds, timing.data_seconds):
            second += taken + waited
            ends.append(_moment(second))
        series["step_seconds"] = _points(timing.step_seconds, ends)
        series["data_seconds"] = _points(timing.data_seconds, ends)
        figures |= _numbers(
            step_median_seconds=timing.median,
            step_lower_quartile_seconds=timing.lower_quartile,
            step_upper_quartile_seconds=timing.upper_quartile,
            samples_per_second=timing.samples_per_second,
            training_seconds=timing.total_seconds,
            memory_bytes=timing.memory_bytes,
        )
    if quality is not None:
        series["loss"] = _points(quality.losses, ends)
        for name in ("accuracy", "loss"):
            tests = [(each.step, getattr(each, name), each.seconds) for each in quality.tests]
            found = [
                Point(min(max(step, 0), LAST_STEP), value, _moment(started + after))
                for step, value, after in tests
                if value is not None
            ]
            if found:
                series[f"test_{name}"] = found
        figures |= _numbers(test_accuracy=quality.test_accuracy, test_loss=quality.test_loss)
    for name, values in series_of(record.observed).items():
        series[f"observed/{key(name)}"] = _points(values.tolist(), ends)
    words = _words(
        proof=record.proof,
        failure=record.failure.line if record.failure else "",
        command=record.command,
        cpu=record.machine.get("cpu", ""),
        dlb=record.core.get("version", ""),
        model_sha256=record.exported.sha256 if record.exported else "",
    )
    return Tracked(
        name=_folder_name(record.name),
        sha256=_digest(content),
        started=started,
        settings=_settings(
            record.options,
            workload=record.workload_name,
            workload_hash=record.workload_hash,
            adapter=record.adapter,
            framework=f"{record.framework} {record.framework_version}",
            data=record.data.get("name", ""),
        ),
        words=words,
        figures=figures,
        series=series,
        files={"record.json": content, **_certificate(record)},
    )


def _points(values: Sequence[float | None], ends: Sequence[float]) -> list[Point]:
    return [
        Point(step, math.nan if value is None else value, ends[step] if step < len(ends) else 0.0)
        for step, value in enumerate(values)
    ]


def _words(**words: object) -> dict[str, str]:
    return {name: text(word) for name, word in words.items() if word}


def _certificate(record: Record | None) -> dict[str, bytes]:
    if record is None or record.certificate is None:
        return {}
    return {"certificate.json": documents.encode(record.certificate)}


def proof_record(folder: Path, name: str) -> Record | None:
    """The record that holds a cell's proof; None if it is not there, or cannot be read."""
    # A name in a document may be a path to anywhere.
    if Path(name).name != name:
        return None
    try:
        return read(folder / f"{name}.json")
    except RecordError:
        return None


def _of_measurement(measurement: Measurement, path: Path) -> Iterator[Tracked]:
    content, names = path.read_bytes(), cell_names(measurement)
    for compared in compared_cells(measurement):
        place, cell = compared.cell, measurement.cells[compared.cell]
        trials = [
            trial for trial in measurement.trials if trial.cell == place and trial.failure is None
        ]
        ratio = compared.ratio
        figures = _numbers(step_median_seconds=compared.seconds)
        if ratio is not None:
            figures |= _numbers(ratio=ratio.ratio, ratio_rounds=ratio.rounds)
            if math.isfinite(ratio.high):
                figures |= _numbers(ratio_low=ratio.low, ratio_high=ratio.high)
        rounds = {
            f"round_{name}": [
                Point(min(max(trial.round, 0), LAST_STEP), value, _seconds(trial.started))
                for trial in trials
                if not trial.again and (value := getattr(trial, field)) is not None
            ]
            for name, field in (
                ("step_seconds", "median"), ("samples_per_second", "samples_per_second"),
            )
        }  # fmt: skip
        unproven = any(each.unproven for each in measurement.trials if each.cell == place)
        yield Tracked(
            name=_folder_name(f"{measurement.name}-{place}-{names[place]}"),
            sha256=_digest(content, str(place)),
            started=_seconds(measurement.started),
            settings=_settings(
                cell.options,
                workload=cell.workload_name,
                workload_hash=cell.workload_hash,
                adapter=cell.adapter,
                framework=cell.framework,
                **{f"varied.{name}": str(value) for name, value in cell.varied.items()},
            ),
            words=_words(
                proof="unproven" if unproven else cell.proof,
                next_to_baseline=compared.word or "",
                baseline="" if ratio is None else names[0],
                measurement=measurement.name,
                cpu=measurement.machine.get("cpu", ""),
                dlb=measurement.core.get("version", ""),
            ),
            figures=figures,
            series={name: points for name, points in rounds.items() if points},
            files={
                "measurement.json": content,
                **_certificate(proof_record(path.parent.parent, cell.record)),
            },
        )
