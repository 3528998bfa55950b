"""Run records: one versioned JSON document per run, written atomically. A folder of them is the
database. The certificate, the series of the steps and the exported model are beside them, in ``certificates/``,
``series/`` and ``models/``, named by the SHA-256 of their content.

History of the format:

- 1: the first.
- 2: the certificate's format 2; a failure has fields; certificate and series are files of their own.
"""

from __future__ import annotations

import hashlib
import re
import secrets
import tempfile
from collections.abc import Iterable, Mapping
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from dlb import contents, documents
from dlb.errors import RecordError, RequestError
from dlb.failure import Failure
from dlb.proof.certificate import Certificate, ProofStatus
from dlb_graph.regular_files import open_regular, remove_parts

__all__ = [
    "FORMAT",
    "Exported",
    "Options",
    "Quality",
    "QualitySummary",
    "Record",
    "StoredRecord",
    "Tested",
    "Timing",
    "TimingSummary",
    "check_folder",
    "discard_certificate",
    "is_disturbed",
    "keep_model",
    "new_name",
    "read",
    "read_folder",
    "read_header",
    "safe_name",
    "schema",
    "series_of",
    "without_series",
    "write",
]

Array = npt.NDArray[Any]
FORMAT = 2
#: Cores that other processes may use without a note. If they use more, this share of all cores must be idle.
MOST_OTHER_CORES, LEAST_IDLE_SHARE = 0.1, 0.1


class _Part(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base class: immutable; unknown fields are rejected."""


class Options(_Part, frozen=True, kw_only=True):
    """The options of the run.

    ``batch_size`` counts the samples of all workers together. ``warmup`` steps train but are not in
    the summary. ``variant`` has the adapter's choices that differ from their default; ``variables``,
    environment variables that were set for the workers alone. ``hosts`` has where workers ran, by rank and
    in turn, if that was not this machine.
    """

    batch_size: int
    steps: int
    warmup: int
    threads: int
    device: str
    dtype: str
    seed: int
    input: str
    strategy: str = ""
    workers: int = 1
    hosts: tuple[str, ...] = ()
    variant: dict[str, str] = {}
    variables: dict[str, str] = {}


class TimingSummary(_Part, frozen=True, kw_only=True):
    """The time and the resources that training took.

    Attributes:
        total_seconds: time of the whole training loop.
        start_seconds, build_seconds: time to start the framework; time to build the timed model.
        median, lower_quartile, upper_quartile: of ``step_seconds`` after the warm-up.
        samples_per_second: samples after the warm-up, divided by the time of their steps and data.
        cpu_seconds: user and system time of the process during the loop.
        busy_threads: threads that worked for at least 5% of the loop; null where the system does not
            report it.
        memory_bytes: resident size at the end of the loop.
        other_cores: mean number of dlb's cores that other processes kept busy during the loop; null
            in older records, which did not measure it.
        audited_steps: steps, from 0, that were audited; they are timed as the others.
        staleness: of an asynchronous strategy, how many pushes had no other between their worker's pull and
            themselves, how many had one, and so on; empty where that is not known.
    """

    total_seconds: float
    start_seconds: float
    build_seconds: float
    median: float
    lower_quartile: float
    upper_quartile: float
    samples_per_second: float
    cpu_seconds: float
    busy_threads: int | None
    memory_bytes: int | None
    other_cores: float | None = None
    audited_steps: tuple[int, ...] = ()
    staleness: tuple[int, ...] = ()


class Timing(TimingSummary, frozen=True, kw_only=True):
    """The same, with its series.

    Attributes:
        step_seconds: time of every step, warm-up included: forward, backward, update, until the
            device has finished.
        data_seconds: time that each step waited for its batch.
    """

    step_seconds: tuple[float, ...]
    data_seconds: tuple[float, ...]


class Tested(_Part, frozen=True, kw_only=True):
    """A test of the model while it trains.

    Attributes:
        step: the steps before it.
        seconds: their time, with the waiting for batches.
        accuracy: share of test samples whose largest logit is at the label, or share of logits on their
            target's side of 0; null for losses of numbers.
        loss: mean loss of the test samples, without smoothing and class weights; null if it is not finite.
    """

    step: int
    seconds: float
    accuracy: float | None
    loss: float | None


class QualitySummary(_Part, frozen=True, kw_only=True):
    """The result of training: accuracy and loss on the test split, at the end and while it trained.

    ``test_accuracy`` is null for losses of numbers. ``test_seconds`` are those of the forward passes of the
    test at the end; they and ``test_loss`` are null in older records.
    """

    test_accuracy: float | None
    test_samples: int
    test_loss: float | None = None
    test_seconds: float | None = None
    tests: tuple[Tested, ...] = ()


class Quality(QualitySummary, frozen=True, kw_only=True):
    """The same, with the mean loss of each step. A loss that is NaN or infinite is null."""

    losses: tuple[float | None, ...]


class Exported(_Part, frozen=True, kw_only=True):
    """The exported model: ``models/SHA256.onnx`` in the record's folder."""

    sha256: str
    bytes: int


class _Run(_Part, frozen=True, kw_only=True):
    """One adapter's run of one workload.

    Attributes:
        format: version of the document's format.
        name: the record's name; its file is ``NAME.json``.
        started: start time, ISO 8601, UTC.
        command: ``run`` or ``verify``.
        adapter, framework, framework_version: what ran.
        workload: the whole description; ``workload_hash``: the hash of its meaning.
        data: the data set's name, and where it was read from.
        options: the options of the run.
        proof: the certificate's status of this adapter: ``proven``, ``deviates`` or ``unproven``.
        exported: null if the run did not get that far.
        failure: what went wrong; null if nothing did.
        machine, worker, core: hardware and system; the worker's interpreter, packages and
            libraries; dlb's version and revision.
        observed: what observer plugins recorded, by plugin.
    """

    format: int
    name: str
    started: str
    command: str
    adapter: str
    framework: str
    framework_version: str
    workload_name: str
    workload: dict[str, Any]
    workload_hash: str
    data: dict[str, str]
    options: Options
    proof: ProofStatus
    exported: Exported | None = None
    failure: Failure | None = None
    machine: dict[str, Any] = {}
    worker: dict[str, Any] = {}
    core: dict[str, Any] = {}
    observed: dict[str, dict[str, Any]] = {}


class Record(_Run, frozen=True, kw_only=True):
    """One adapter's run of one workload, with all that is kept of it.

    Attributes:
        certificate: every comparison of this run, those of other adapters included.
        timing, quality: null if the run did not get that far.
    """

    certificate: Certificate | None
    timing: Timing | None = None
    quality: Quality | None = None


class StoredRecord(_Run, frozen=True, kw_only=True):
    """The document of a record: what an index lists.

    Attributes:
        certificate: SHA-256 of ``certificates/SHA256.json``; empty if there is none.
        series: SHA-256 of ``series/SHA256.safetensors``, with ``step_seconds``, ``data_seconds``, ``losses``
            and those of observers, as ``PLUGIN/NAME``; empty if there is none.
        timing, quality: null if the run did not get that far.
    """

    certificate: str
    series: str = ""
    timing: TimingSummary | None = None
    quality: QualitySummary | None = None


def new_name(workload: str, adapter: str, moment: datetime) -> str:
    """A unique name that sorts by time."""
    return f"{moment:%Y%m%dT%H%M%SZ}-{safe_name(workload)}-{adapter}-{secrets.token_hex(3)}"


def safe_name(workload: str) -> str:
    """A workload's name as a part of a file's."""
    return re.sub(r"[^A-Za-z0-9_-]+", "-", workload).strip("-") or "workload"


def is_disturbed(timing: Timing, cores: int) -> bool:
    """Whether other processes used so many cores that the measured times are too long.

    Args:
        cores: cores of the machine.
    """
    # In seconds, not shares: the total of an edited record may be zero.
    other_cores = timing.other_cores or 0.0
    idle_seconds = (cores - other_cores) * timing.total_seconds - timing.cpu_seconds
    return (
        other_cores > MOST_OTHER_CORES
        and idle_seconds < LEAST_IDLE_SHARE * cores * timing.total_seconds
    )


def now() -> datetime:
    """The current time in UTC."""
    return datetime.now(timezone.utc)


def check_folder(folder: Path) -> Path:
    """Make the folder for records, and check before any work that it is writable. Parts of files go.

    Raises:
        RequestError: it cannot be made or written to.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            remove_parts(folder)
    except OSError as error:
        raise RequestError(
            f"cannot write records to {folder}: {error.strerror or error}; "
            "choose another folder with --out"
        ) from None
    return folder


def write(record: Record, folder: Path) -> Path:
    """Write a record and what belongs to it atomically; it replaces one of the same name.

    Raises:
        RecordError: it cannot be written; an older record of the name is unchanged.
    """
    path = folder / f"{record.name}.json"
    stored = _stored(record, folder)
    try:
        documents.write_atomically(path, documents.encode(stored))
    except OSError as error:
        raise documents.not_written(path, error) from None
    return path


def _stored(record: Record, folder: Path) -> StoredRecord:
    """The document of a record, whose certificate and series are written."""
    certificate, series = "", _series(record)
    if record.certificate is not None:
        content = documents.encode(record.certificate)
        certificate = contents.keep(folder, "certificates", content)
    kept = {name: getattr(record, name) for name in _Run.__struct_fields__}
    return StoredRecord(
        **{**kept, "observed": without_series(record.observed)},
        certificate=certificate,
        series=contents.keep_arrays(folder, series) if series else "",
        timing=_summary(record.timing, TimingSummary),
        quality=_summary(record.quality, QualitySummary),
    )


def _summary(whole: Any, form: Any) -> Any:
    """The fields of a part that are in the document."""
    if whole is None:
        return None
    return form(**{name: getattr(whole, name) for name in form.__struct_fields__})


def _series(record: Record) -> dict[str, Array]:
    """Series by name; a number that is null is NaN."""
    series = series_of(record.observed)
    if record.timing is not None:
        series["step_seconds"] = _numbers(record.timing.step_seconds)
        series["data_seconds"] = _numbers(record.timing.data_seconds)
    if record.quality is not None:
        series["losses"] = _numbers(record.quality.losses)
    return series


def series_of(observed: Mapping[str, Any]) -> dict[str, Array]:
    """The series of observers, as ``PLUGIN/NAME``."""
    return {
        f"{plugin}/{name}": _numbers(values)
        for plugin, seen in observed.items()
        if _has_series(seen)
        for name, values in seen["series"].items()
    }


def without_series(observed: Mapping[str, Any]) -> dict[str, Any]:
    """What observers recorded, without their series."""
    return {
        plugin: {
            name: value for name, value in seen.items() if name != "series" or not _has_series(seen)
        }
        for plugin, seen in observed.items()
    }


def _has_series(seen: Mapping[str, Any]) -> bool:
    """Whether an observer's ``series`` are lists of numbers by name; anything else stays in the document."""
    series = seen.get("series")
    return isinstance(series, Mapping) and all(
        isinstance(values, (list, tuple))
        and all(each is None or isinstance(each, (int, float)) for each in values)
        for values in series.values()
    )


def _numbers(values: Iterable[float | None]) -> Array:
    return np.array([np.nan if each is None else each for each in values], np.float64)


def discard_certificate(before: Record, now: Certificate, folder: Path) -> None:
    """Delete the certificate of a record that has another one by now."""
    if before.certificate is not None:
        content = documents.encode(before.certificate)
        if content != documents.encode(now):
            contents.discard(folder, "certificates", hashlib.sha256(content).hexdigest())


def keep_model(file: Path, folder: Path) -> Exported:
    """Copy an exported model to the folder's ``models/``, named by its SHA-256.

    Raises:
        RecordError: it cannot be read or written.
    """
    try:
        with open_regular(file, follow=False) as opened:
            content = opened.read()
    except OSError as error:
        raise RecordError(
            f"cannot read the exported model: {error.strerror or error}", path=file
        ) from None
    digest = contents.keep(folder, "models", content)
    return Exported(sha256=digest, bytes=len(content))


def read(path: Path) -> Record:
    """Read a record, and validate it.

    Raises:
        RecordError: the file cannot be read, is not a record, or has a later format; what belongs to it is not
            there; or it claims another proof than its certificate says.
    """
    stored = documents.read(path, "record", FORMAT, StoredRecord)
    found = _whole(stored, path)
    _check_proof(found, found.certificate, path)
    return found


def read_header(path: Path) -> StoredRecord:
    """Read the document of a record, and its certificate.

    Raises:
        RecordError: the file cannot be read, or is not a record of this format; or it claims another proof
            than its certificate says, which may be missing.
    """
    stored = documents.read(path, "record", FORMAT, StoredRecord)
    _check_proof(stored, _certificate(stored, path), path)
    return stored


def _certificate(stored: StoredRecord, path: Path) -> Certificate | None:
    if not stored.certificate:
        return None
    content = contents.read(path.parent, "certificates", stored.certificate)
    try:
        return documents.decode(content, Certificate)
    except documents.UNREADABLE as error:
        raise RecordError(f"its certificate is none: {error}", path=path) from None


def _check_proof(claimed: _Run, certificate: Certificate | None, path: Path) -> None:
    """Raises RecordError if a record claims what its certificate does not say; unproven it may always be."""
    derived = certificate.status(claimed.adapter) if certificate else "unproven"
    if claimed.proof not in (derived, "unproven"):
        raise RecordError(
            f"it claims '{claimed.proof}', and its certificate says {derived}", path=path
        )


def _whole(stored: StoredRecord, path: Path) -> Record:
    """The record of a document."""
    certificate, series = _certificate(stored, path), {}
    if stored.series:
        series = contents.read_arrays(path.parent, stored.series)
    observed = dict(stored.observed)
    for name, array in series.items():
        plugin, _, own = name.partition("/")
        if own:
            seen = observed.get(plugin, {})
            others = seen["series"] if _has_series(seen) else {}
            observed[plugin] = {**seen, "series": {**others, own: array.tolist()}}
    try:
        timing = quality = None
        if stored.timing is not None:
            timing = Timing(
                **_fields(stored.timing),
                step_seconds=tuple(series["step_seconds"].tolist()),
                data_seconds=tuple(series["data_seconds"].tolist()),
            )
        if stored.quality is not None:
            losses = tuple(
                each if np.isfinite(each) else None for each in series["losses"].tolist()
            )
            quality = Quality(**_fields(stored.quality), losses=losses)
    except KeyError as error:
        if stored.series:
            path = contents.path_of(path.parent, "series", stored.series)
        raise RecordError(f"the record's series {error} is missing", path=path) from None
    kept = {name: getattr(stored, name) for name in _Run.__struct_fields__}
    return Record(
        **{**kept, "observed": observed}, certificate=certificate, timing=timing, quality=quality
    )


def _fields(part: msgspec.Struct) -> dict[str, Any]:
    return {name: getattr(part, name) for name in part.__struct_fields__}


def read_folder(folder: Path) -> tuple[list[Record], list[RecordError]]:
    """The records in a folder, ordered by name, and an error for each file that is not a record."""
    records, errors = [], []
    for path in sorted(folder.glob("*.json")):
        try:
            records.append(read(path))
        except RecordError as error:
            errors.append(error)
    return records, errors


def schema() -> bytes:
    """The shipped JSON Schema (2020-12) of a record."""
    return documents.shipped_schema("record", FORMAT)


def make_schema() -> bytes:
    """The JSON Schema of :class:`StoredRecord`; the shipped one is generated with it."""
    return documents.make_schema(StoredRecord, f"dlb run record, format {FORMAT}")
