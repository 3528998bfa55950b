"""A study file: what is run, what is published, and the table of both."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Union

import msgspec

from dlb.errors import RequestError
from dlb_graph.toml_files import read_toml
from dlb_graph.workload.decoding import decode_as
from dlb_measure.plan import Plan

__all__ = [
    "HERE",
    "Fact",
    "Part",
    "Published",
    "Quantity",
    "QuantityKind",
    "Run",
    "Study",
    "published_rows",
    "read",
]

_LARGEST_BYTES = 1024 * 1024
#: The label of what was measured here, where the paper names its hardware.
HERE = "here"
Label = Union[str, int, float, bool]
QuantityKind = Literal[
    "seconds_per_batch",
    "samples_per_second",
    "images_per_ms",
    "training_seconds",
    "testing_seconds",
    "epoch_seconds",
    "accuracy_pct",
    "cpu_user_pct",
    "cpu_system_pct",
    "cpu_total_pct",
    "memory_avg_mb",
    "memory_max_mb",
    "speedup",
    "efficiency_pct",
]


class _Part(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base class: immutable; unknown fields are rejected."""


class Quantity(_Part, frozen=True, kw_only=True):
    """A number of the table.

    Attributes:
        name: its column in the published files, and its heading.
        kind: what it is of what was measured here; empty if dlb does not measure it.
        digits: behind the point.
        reason: why dlb does not measure it.
    """

    name: str
    kind: QuantityKind | Literal[""] = ""
    digits: int = 3
    reason: str = ""


class Run(Plan, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How much is run: a plan of rounds, and the rule of steps.

    Attributes:
        steps: of a run; 0 for as many as the paper has (``iterations`` of a part), or the workload's epochs.
        warmup: first steps that do not count; -1 for the default.
    """

    steps: int = 0
    warmup: int = -1


class Part(_Part, frozen=True, kw_only=True):
    """Some cells of a study: a workload on adapters.

    Attributes:
        workload: its name.
        adapters: the only ones; every one that is here if empty.
        labels: of its cells, as the published files have them.
        settings: settings and fields of the workload, as ``dlb sweep --vary`` names them.
        vary: the same with several values each; the values are labels too.
        workers: numbers of workers next to one, with every strategy that the adapter has.
        strategies: only these.
        threads: of each worker, where ``workers`` is given; 0 for all cores divided by the most workers.
        iterations: steps that the paper trains.
        samples: training samples that the paper's epoch has.
        quick: whether it belongs to the quick form.
        quick_settings, quick_vary: what the quick form has in place of these values.
    """

    workload: str
    adapters: tuple[str, ...] = ()
    labels: dict[str, Label] = {}
    settings: dict[str, Any] = {}
    vary: dict[str, tuple[Any, ...]] = {}
    workers: tuple[int, ...] = ()
    strategies: tuple[str, ...] = ()
    threads: int = 0
    iterations: int = 0
    samples: int = 0
    quick: bool = True
    quick_settings: dict[str, Any] = {}
    quick_vary: dict[str, tuple[Any, ...]] = {}


class Published(_Part, frozen=True, kw_only=True):
    """A file of published numbers.

    Attributes:
        file: a CSV file, in the folder ``published`` beside the study or in that of dlb.
        columns: by label or quantity, the file's column where it has another name.
        where: only the rows with these values.
        labels: values that all rows have.
    """

    file: str
    columns: dict[str, str] = {}
    where: dict[str, tuple[str, ...]] = {}
    labels: dict[str, str] = {}


class Fact(_Part, frozen=True, kw_only=True):
    """A row of a table about what frameworks can do, read off the adapters.

    Attributes:
        row: its first cell, as published.
        of: what the adapters report: their strategies, the back ends of these, or their ONNX exporter; empty
            for nothing.
        reason: why nothing.
    """

    row: str
    of: Literal["strategies", "backends", "onnx", ""]
    reason: str = ""


class Study(_Part, frozen=True, kw_only=True):
    """A study.

    Attributes:
        name: the name on the command line.
        title, source: text for people; the source names the paper and the table.
        notes: what a reader of the table must know.
        quantities: the numbers of the table.
        split: labels by whose values the table is cut into several.
        rows, columns: labels of its rows and columns.
        tool: the label that names the framework.
        tools: the paper's name of each adapter's framework.
        hardware: the label that names the hardware; what was measured here has the value ``here``.
        parts: what is run.
        published: files of published numbers.
        facts: rows that are read off the adapters, in place of parts.
        run, quick: how much is run.
    """

    name: str
    title: str
    source: str
    notes: tuple[str, ...] = ()
    quantities: tuple[Quantity, ...] = ()
    split: tuple[str, ...] = ()
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    tool: str = "tool"
    tools: dict[str, str] = {}
    hardware: str = "hardware"
    parts: tuple[Part, ...] = ()
    published: tuple[Published, ...] = ()
    facts: tuple[Fact, ...] = ()
    run: Run = Run()
    quick: Run = Run(steps=20, rounds=2, repeats=0)


def read(path: Path) -> Study:
    """Read and check a study file.

    Raises:
        RequestError: it cannot be read, is not a study, or its published files are not there.
    """
    study = read_toml(
        path,
        "study",
        _LARGEST_BYTES,
        RequestError,
        lambda document: decode_as(document, "not a study", Study),
    )
    if fault := _fault(study):
        raise RequestError(f"not a study: {fault}", path=path)
    for published in study.published:
        published_rows(study, published, path)
    return study


def _fault(study: Study) -> str:
    """What is wrong with a study; "" if nothing is."""
    if not study.rows:
        return "rows names no label"
    if bool(study.parts) == bool(study.facts):
        return "give parts to run, or facts, and not both"
    if study.parts and not study.quantities:
        return "quantities is empty"
    labels = [*study.split, *study.rows, *study.columns]
    for name in labels:
        if labels.count(name) > 1:
            return f"label '{name}' is in split, rows and columns more than once"
    for quantity in study.quantities:
        if not quantity.kind and not quantity.reason:
            return f"quantity '{quantity.name}' has no kind; give one, or a reason why it is not measured"
        if quantity.name in labels:
            return f"'{quantity.name}' is both a label and a quantity"
    for run in (study.run, study.quick):
        if run.steps < 0 or run.warmup < -1:
            return "run and quick have no number below 0"
        if {run.precision, run.budget_seconds} != {None} and run.order == "isolated":
            return "run, quick: isolated takes rounds alone"
    for part in study.parts:
        if (
            any(count < 1 for count in part.workers)
            or min(part.iterations, part.samples, part.threads) < 0
        ):
            return f"part '{part.workload}': workers, iterations, samples and threads are 1 or more"
        if any(not values for values in (*part.vary.values(), *part.quick_vary.values())):
            return f"part '{part.workload}': a setting that varies has no value"
    return ""


def published_rows(study: Study, published: Published, path: Path) -> list[dict[str, str]]:
    """The rows of a file of published numbers that a study shows, by label and quantity.

    Each has a ``doubt``, with where the number is from if the file says so; empty if there is none.

    Args:
        path: the study's file.

    Raises:
        RequestError: the file cannot be read, or has no column of a name that the study uses.
    """
    if Path(published.file).name != published.file:
        raise RequestError(
            f"published file '{published.file}': give its name alone; it lies in 'published'",
            path=path,
        )
    file = _published_path(published.file, path)
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not a text"
        raise RequestError(f"published file '{published.file}': {reason}", path=path) from None
    reader = csv.DictReader(io.StringIO(text, newline=""))
    known = set(reader.fieldnames or ())
    wanted = {*published.columns.values(), *published.where}
    for name in sorted(wanted - known):
        raise RequestError(
            f"published file '{published.file}' has no column '{name}'; it has {', '.join(sorted(known))}",
            path=path,
        )
    names = [*study.split, *study.rows, *study.columns, *(each.name for each in study.quantities)]
    rows = []
    for line in reader:
        if any(line[name] not in values for name, values in published.where.items()):
            continue
        row = {
            name: line.get(published.columns.get(name, name)) or ""
            for name in names
            if published.columns.get(name, name) in known
        }
        doubt = ": ".join(filter(None, [line.get("doubt"), line.get("from")]))
        rows.append({**row, **published.labels, "doubt": doubt if line.get("doubt") else ""})
    return rows


def _published_path(name: str, study: Path) -> Path:
    own = study.parent / "published" / name
    return own if own.is_file() else Path(__file__).parent / "published" / name


def label_text(value: Label | Sequence[Any] | Mapping[str, Any] | None) -> str:
    """A label as a published file writes it."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) else str(value)
