"""One cell of a sweep anywhere: a job in bytes, and what came of it in bytes.

A job has everything that a cell is run with, so that another machine with dlb-core and the adapter can run
it. What comes back is a results folder, packed: the record, the cell's own measurement, and their files.
"""

from __future__ import annotations

import io
import re
import tempfile
import zipfile
from pathlib import Path
from typing import Any

import msgspec

from dlb import documents
from dlb.errors import DlbError, RecordError, RequestError
from dlb.execution.measure import Plan
from dlb.execution.sweep import sweep
from dlb.failure import Failure, failure_of
from dlb.matrix import Settings, SweepCell
from dlb.progress import Silent
from dlb.workload.files import from_document, to_document

__all__ = ["Returned", "job_of", "run_cell", "unpack"]

#: What a results folder holds; nothing else is taken from a machine.
_NAMES = re.compile(r"(?:(?:certificates|series|models|measurements)/)?[A-Za-z0-9_-]+\.[a-z]+")
#: A cell leaves far less behind.
_LARGEST_BYTES = 1 << 30


class _Job(msgspec.Struct, frozen=True, kw_only=True):
    """What a cell is run with; options are fields of :class:`dlb.matrix.Settings`."""

    workload: dict[str, Any]
    adapter: str
    options: dict[str, Any]
    varied: dict[str, Any]
    plan: dict[str, Any] | None


class Returned(msgspec.Struct, frozen=True, kw_only=True):
    """What came of a cell.

    Attributes:
        record: name of its record; empty if there is none.
        measurement: name of its measurement; empty if there is none.
        failure: what ended it; None if nothing did.
        files: its results folder, a zip file.
    """

    record: str = ""
    measurement: str = ""
    failure: Failure | None = None
    files: bytes = b""


def job_of(cell: SweepCell, plan: Plan | None) -> bytes:
    """A cell as a job.

    Raises:
        RequestError: its weights are those of an ONNX file, which the job does not have.
    """
    request = cell.request
    if request.imported is not None:
        raise RequestError("--executor: an ONNX file runs on this machine alone; leave it out")
    options = {
        "batch_size": request.batch_size,
        "steps": request.steps,
        "warmup": request.warmup,
        "threads": request.threads,
        "device": request.device,
        "dtype": request.dtype,
        "seed": request.seed,
        "input": request.input_mode,
        "strategy": request.strategy,
        "workers": request.workers,
        "variants": [f"{name}={value}" for name, value in request.variant(cell.adapter).items()],
        "variables": dict(request.variables),
        "test_steps": request.test_steps,
        "test_seconds": request.test_seconds,
        "call_seconds": request.call_seconds,
    }
    job = _Job(
        workload=to_document(request.workload),
        adapter=cell.adapter,
        options=options,
        varied=dict(cell.varied),
        plan=None if plan is None else msgspec.to_builtins(plan),
    )
    return msgspec.json.encode(job)


def run_cell(job: bytes) -> bytes:
    """Prove, train and measure the cell of a job on this machine. An error of the cell does not raise."""
    with tempfile.TemporaryDirectory() as folder:
        return msgspec.msgpack.encode(_run(job, Path(folder)))


def _run(job: bytes, out: Path) -> Returned:
    from dlb.adapters import find_adapters
    from dlb.matrix import request_maker

    told = msgspec.json.decode(job, type=_Job)
    try:
        environments = find_adapters([told.adapter])
        options = {**told.options, "variants": tuple(told.options["variants"])}
        make = request_maker(from_document(told.workload), None, environments, out)
        request = make(environments[0], Settings(**options))
        plan = None if told.plan is None else msgspec.convert(told.plan, Plan)
        swept = sweep([SweepCell(request, told.varied)], plan, Silent())
    except DlbError as error:
        return Returned(failure=failure_of(error))
    (cell,) = swept.sweep.cells
    return Returned(
        record=cell.record,
        measurement="" if swept.measurement is None else swept.measurement.name,
        failure=cell.failure,
        files=_pack(out),
    )


def _pack(out: Path) -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(out.rglob("*")):
            name = path.relative_to(out).as_posix()
            if path.is_file() and _NAMES.fullmatch(name):
                archive.write(path, name)
    return content.getvalue()


def unpack(content: bytes, out: Path) -> Returned:
    """Put the files of a cell into a results folder; what records and measurements name comes first.

    Raises:
        RecordError: the content is not what :func:`run_cell` returns, or cannot be written.
    """
    try:
        returned = msgspec.msgpack.decode(content, type=Returned)
        with (
            zipfile.ZipFile(io.BytesIO(returned.files)) if returned.files else _nothing() as archive
        ):
            members = archive.infolist()
            if sum(each.file_size for each in members) > _LARGEST_BYTES:
                raise RecordError(f"a cell returned more than {_LARGEST_BYTES} bytes")
            for each in sorted(members, key=lambda member: "/" not in member.filename):
                if not _NAMES.fullmatch(each.filename):
                    raise RecordError(
                        f"a cell returned a file '{each.filename}', which no cell has"
                    )
                path = out / each.filename
                path.parent.mkdir(parents=True, exist_ok=True)
                documents.write_atomically(path, archive.read(each))
    except (msgspec.DecodeError, zipfile.BadZipFile) as error:
        raise RecordError(f"a cell returned something else than results: {error}") from None
    except OSError as error:
        raise RecordError(f"cannot write to {out}: {error.strerror or error}") from None
    return returned


def _nothing() -> zipfile.ZipFile:
    content = io.BytesIO()
    zipfile.ZipFile(content, "w").close()
    return zipfile.ZipFile(content)
