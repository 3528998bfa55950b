"""What a page is made of: results folders, or single documents, read as far as they can be."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from dlb import contents
from dlb.errors import RecordError, RequestError
from dlb.proof.certificate import ProofStatus
from dlb.record import Record, read_header
from dlb.record import read as read_record
from dlb_measure.results.index import open_index
from dlb_measure.results.measurement import Cell, Measurement, TrialResult
from dlb_measure.results.measurement import read as read_measurement

__all__ = ["Measured", "Run", "Source", "read_sources"]

Array = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Measured:
    """A measurement, and the folder that holds its series.

    Attributes:
        source: the label of its results folder, if there are several.
    """

    measurement: Measurement
    folder: Path
    source: str

    def trials_of(self, place: int) -> list[TrialResult]:
        """The trials of a cell that did not fail, in the order of their rounds."""
        found = [each for each in self.measurement.trials if each.cell == place]
        return [each for each in found if each.failure is None]

    def proof_of(self, place: int) -> ProofStatus:
        """The status of a cell: that of its proof, if every trial passed its own checks."""
        cell: Cell = self.measurement.cells[place]
        own = [each for each in self.measurement.trials if each.cell == place]
        return "unproven" if any(each.unproven for each in own) else cell.proof

    def series_of(self, trial: TrialResult) -> dict[str, Array]:
        """The series of a trial; empty if they are not there.

        Raises:
            RecordError: the file was altered, or is not there.
        """
        return contents.read_arrays(self.folder, trial.series) if trial.series else {}


@dataclass(frozen=True)
class Run:
    """A record with all that belongs to it.

    Attributes:
        certificate: SHA-256 of its certificate; runs of one command have the same.
    """

    record: Record
    certificate: str
    source: str


@dataclass
class Source:
    """One results folder, or one document.

    Attributes:
        label: its name in the page; ``path`` is its whole path.
        measurements, runs: those that are shown in detail, the last first.
        rows: everything that was chosen, as :data:`dlb_measure.results.index.COLUMNS`, the last first.
        skipped: files that cannot be read, with the reason.
    """

    label: str
    path: Path
    measurements: list[Measured] = field(default_factory=list)
    runs: list[Run] = field(default_factory=list)
    rows: list[dict[str, Any]] = field(default_factory=list)
    skipped: dict[str, str] = field(default_factory=dict)


def read_sources(paths: Sequence[Path], condition: str, limit: int) -> list[Source]:
    """Read results folders and documents.

    Args:
        paths: folders, or files of measurements or records.
        condition: which results of folders, as ``dlb results --filter``.
        limit: so many last measurements and runs of each are read whole.

    Raises:
        RequestError: there is no such file or folder, or the condition has a wrong form.
    """
    if len({os.path.realpath(path) for path in paths}) < len(paths):
        raise RequestError("the same results twice; give each folder or file once")
    sources = []
    for path, label in zip(paths, _labels(paths)):
        named = label if len(paths) > 1 else ""
        if path.is_dir():
            sources.append(_read_folder(path, label, named, condition, limit))
        elif path.is_file():
            sources.append(_read_file(path, label, named))
        else:
            raise RequestError("no results folder, and no file of a measurement", path=path)
    return sources


def _labels(paths: Sequence[Path]) -> list[str]:
    """The shortest ends of paths that tell them apart."""
    parts = [Path(os.path.realpath(path)).parts for path in paths]
    for length in range(1, max(map(len, parts)) + 1):
        names = ["/".join(each[-length:]) for each in parts]
        if len(set(names)) == len(names):
            return names
    return [str(path) for path in paths]


def _read_folder(path: Path, label: str, named: str, condition: str, limit: int) -> Source:
    source = Source(label, path)
    with open_index(path) as index:
        source.rows = index.rows(condition)
        source.skipped.update(index.broken)
    proofs: list[str] = []
    for row in [row for row in source.rows if row["kind"] == "measurement"][:limit]:
        try:
            measurement = read_measurement(path / row["file"])
        except RecordError as error:
            source.skipped[row["file"]] = error.message
            continue
        source.measurements.append(Measured(measurement, path, named))
        proofs += [f"{cell.record}.json" for cell in measurement.cells]
    last = [row["file"] for row in source.rows if row["kind"] == "run"][:limit]
    _read_runs(source, path, named, [*last, *proofs])
    return source


def _read_file(path: Path, label: str, named: str) -> Source:
    """One document, with the records that hold its proof if it is in a results folder."""
    source = Source(label, path)
    try:
        measurement = read_measurement(path)
    except RecordError as reason:
        try:
            _read_run(source, path.parent, named, path.name)
        except RecordError as error:
            # What a document is, its folder says.
            shown = reason if path.parent.name == "measurements" else error
            raise RequestError(shown.message, path=path) from None
        return source
    folder = path.parent.parent
    source.measurements.append(Measured(measurement, folder, named))
    proofs = [f"{cell.record}.json" for cell in measurement.cells]
    _read_runs(source, folder, named, [each for each in proofs if (folder / each).is_file()])
    return source


def _read_runs(source: Source, folder: Path, named: str, files: Sequence[str]) -> None:
    for file in dict.fromkeys(files):
        # A name in a document may be a path to anywhere.
        if Path(file).name != file or file in source.skipped or not (folder / file).is_file():
            continue
        try:
            _read_run(source, folder, named, file)
        except RecordError as error:
            source.skipped[file] = error.message


def _read_run(source: Source, folder: Path, named: str, file: str) -> None:
    record = read_record(folder / file)
    try:
        certificate = read_header(folder / file).certificate
    except RecordError:  # of an older format, which holds its certificate
        certificate = ""
    source.runs.append(Run(record, certificate or record.name, named))
