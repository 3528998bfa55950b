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
from dlb.failure import Failure, failure_of
from dlb.progress import Silent
from dlb.settings import Settings
from dlb_graph.workload.files import from_document, to_document
from dlb_measure.matrix import SweepCell
from dlb_measure.plan import Plan
from dlb_measure.sweeping import sweep

__all__ = ["Returned", "job_of", "returned_of", "run_cell", "unpack"]

#: What a results folder holds; nothing else is taken from a machine.
_NAMES = re.compile(r"(?:(?:certificates|series|models|measurements)/)?[A-Za-z0-9_-]+\.[a-z]+")
#: A cell leaves far less behind.
_LARGEST_BYTES = 1 << 30


class _Job(msgspec.Struct, frozen=True, kw_only=True):
    """What a cell is run with; settings are fields of :class:`dlb.settings.Settings`."""

    workload: dict[str, Any]
    adapter: str
    settings: dict[str, Any]
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
    job = _Job(
        workload=to_document(request.workload),
        adapter=cell.adapter,
        settings=msgspec.to_builtins(request.settings),
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
    from dlb.resolver import Resolver

    told = msgspec.json.decode(job, type=_Job)
    try:
        resolver = Resolver(from_document(told.workload), out=out)
        request = resolver.resolve(Settings(**told.settings), lambda: find_adapters([told.adapter]))
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


def returned_of(content: bytes) -> Returned:
    """What :func:`run_cell` returned.

    Raises:
        RecordError: it is something else.
    """
    try:
        return msgspec.msgpack.decode(content, type=Returned)
    except msgspec.DecodeError as error:
        raise RecordError(f"a cell returned something else than results: {error}") from None


def unpack(returned: Returned, out: Path) -> None:
    """Put the files of a cell into a results folder; what records and measurements name comes first.

    Raises:
        RecordError: they are none of a cell, or cannot be written.
    """
    if not returned.files:
        return
    try:
        with zipfile.ZipFile(io.BytesIO(returned.files)) as archive:
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
    except zipfile.BadZipFile as error:
        raise RecordError(f"a cell returned something else than results: {error}") from None
    except OSError as error:
        raise RecordError(f"cannot write to {out}: {error.strerror or error}") from None
