"""Run records: one JSON document a run, versioned, written atomically; a folder of them is the
database. The exported model lies beside them under ``models/`` by its SHA-256.

History of the format:

- 1: the first.
- 2: the certificate's format 2; a failure has fields.
"""

from __future__ import annotations

import hashlib
import re
import secrets
import tempfile
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import msgspec

from dlb import documents
from dlb.errors import RecordError, RequestError
from dlb.failure import Failure
from dlb.proof.certificate import Certificate, ProofStatus

__all__ = [
    "FORMAT",
    "Exported",
    "Options",
    "Quality",
    "Record",
    "Timing",
    "check_folder",
    "keep_model",
    "new_name",
    "read",
    "read_folder",
    "schema",
    "write",
]

FORMAT = 2


class _Part(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base: immutable; unknown fields are refused."""


class Options(_Part, frozen=True, kw_only=True):
    """What was asked for.

    ``batch_size`` is of all workers together; ``warmup`` steps train but are not in the summary;
    ``variant`` has the adapter's choices that are not at their default.
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
    variant: dict[str, str] = {}


class Timing(_Part, frozen=True, kw_only=True):
    """What training cost.

    Attributes:
        step_seconds: every step, warm-up included: forward, backward, update, device finished.
        data_seconds: waiting for each step's batch.
        total_seconds: the whole loop.
        start_seconds, build_seconds: bringing the framework up; building the timed model.
        median, lower_quartile, upper_quartile: of step_seconds after the warm-up.
        samples_per_second: samples after the warm-up over the time of those steps and their data.
        cpu_seconds: user and system time of the process over the loop.
        busy_threads: threads that worked for at least 5% of the loop.
        memory_bytes: resident size at the end of the loop.
        other_cores: cores that other processes kept busy meanwhile, of those that dlb may use; None
            of records from before it was looked at.
    """

    step_seconds: tuple[float, ...]
    data_seconds: tuple[float, ...]
    total_seconds: float
    start_seconds: float
    build_seconds: float
    median: float
    lower_quartile: float
    upper_quartile: float
    samples_per_second: float
    cpu_seconds: float
    busy_threads: int
    memory_bytes: int
    other_cores: float | None = None


class Quality(_Part, frozen=True, kw_only=True):
    """What training reached: the mean loss of each step, and accuracy on the whole test split.

    A loss that is not a number is null.
    """

    losses: tuple[float | None, ...]
    test_accuracy: float
    test_samples: int


class Exported(_Part, frozen=True, kw_only=True):
    """The exported model: ``models/SHA256.onnx`` beside the record."""

    sha256: str
    bytes: int


class Record(_Part, frozen=True, kw_only=True):
    """One adapter's run of one workload.

    Attributes:
        format: version of this document's form.
        name: of the record; its file is ``NAME.json``.
        started: ISO 8601, UTC.
        command: ``run`` or ``verify``.
        adapter, framework, framework_version: what ran.
        workload: the whole description; ``workload_hash``: of what it means.
        data: name and where it was read from.
        options: what was asked for.
        proof: ``proven``, ``deviates`` or ``unproven``, as the certificate says of this adapter.
        certificate: every comparison of this run, of other adapters too.
        timing, quality, exported: null where it was not reached.
        failure: what went wrong; null when nothing did.
        machine, worker, core: hardware and system; the worker's interpreter, packages and
            libraries; dlb's version and revision.
        observed: what observer plugins recorded, by plugin.
        converted_from: the format that the document was read in; 0 where it is this one.
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
    certificate: Certificate | None
    timing: Timing | None = None
    quality: Quality | None = None
    exported: Exported | None = None
    failure: Failure | None = None
    machine: dict[str, Any] = {}
    worker: dict[str, Any] = {}
    core: dict[str, Any] = {}
    observed: dict[str, Any] = {}
    converted_from: int = 0


def new_name(workload: str, adapter: str, moment: datetime) -> str:
    """A name that sorts by time and is not taken."""
    plain = re.sub(r"[^A-Za-z0-9_-]+", "-", workload).strip("-") or "workload"
    return f"{moment:%Y%m%dT%H%M%SZ}-{plain}-{adapter}-{secrets.token_hex(3)}"


def now() -> datetime:
    """The time of a record."""
    return datetime.now(timezone.utc)


def check_folder(folder: Path) -> Path:
    """Make the folder for records and see that it can be written to, before any work.

    Raises:
        RequestError: it cannot.
    """
    try:
        (folder / "models").mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise RequestError(
            f"cannot write records to {folder}: {error.strerror or error}; "
            "choose another folder with --out"
        ) from None
    return folder


def write(record: Record, folder: Path) -> Path:
    """Write a record, whole or not at all; one of the same name is replaced.

    Raises:
        RecordError: it cannot be written; what was there before is as it was.
    """
    path = folder / f"{record.name}.json"
    try:
        documents.write_atomically(path, documents.encode(record))
    except OSError as error:
        raise RecordError(
            f"cannot write {path}: {error.strerror or error}; free some space or choose another "
            "folder with --out; finished records are as they were"
        ) from None
    return path


def keep_model(file: Path, folder: Path) -> Exported:
    """Move an exported model to its place by content.

    Raises:
        RecordError: it cannot be written.
    """
    try:
        content = file.read_bytes()
        digest = hashlib.sha256(content).hexdigest()
        place = folder / "models" / f"{digest}.onnx"
        if not place.exists():
            documents.write_atomically(place, content)
    except OSError as error:
        raise RecordError(
            f"cannot keep the exported model in {folder}: {error.strerror or error}; free some "
            "space or choose another folder with --out"
        ) from None
    return Exported(sha256=digest, bytes=len(content))


def read(path: Path) -> Record:
    """Read a record of this format or of format 1, and check it against its form.

    Raises:
        RecordError: it cannot be read, is not a record, or is of a later format.
    """
    from dlb.proof import format_1

    return documents.read(path, Record, "record", FORMAT, {1: format_1.convert_record})


def read_folder(folder: Path) -> tuple[list[Record], list[RecordError]]:
    """Every record of a folder by name, and what is wrong with the files that are none."""
    records, errors = [], []
    for path in sorted(folder.glob("*.json")):
        try:
            records.append(read(path))
        except RecordError as error:
            errors.append(error)
    return records, errors


def schema() -> bytes:
    """JSON Schema (2020-12) of a record, as shipped."""
    return documents.shipped_schema("record", FORMAT)


def make_schema() -> bytes:
    """The schema that follows from :class:`Record`; the shipped one is made from it."""
    return documents.make_schema(Record, f"dlb run record, format {FORMAT}")
