"""Measurements: a JSON document with a header, its cells and the figures of every trial.

It is ``measurements/NAME.json`` in a results folder. The times of a trial's steps are beside it, in
``series/SHA256.safetensors``. Both are written when a trial ends, so that a measurement that was killed goes on
where it was.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar, Literal, TypeVar

import msgspec

from dlb import documents
from dlb.errors import RecordError
from dlb.failure import Failure
from dlb.proof.certificate import ProofStatus, Verdict
from dlb.record import Options, read_header
from dlb.shown import Shown
from dlb_measure.plan import Order, SteadyRule, Until
from dlb_measure.ratios import CONFIDENCE
from dlb_measure.steady import SteadyClass
from dlb_measure.stopping import confidence_after
from dlb_worker.contract import PRECISION

__all__ = [
    "FORMAT",
    "Cell",
    "Ended",
    "Measurement",
    "Part",
    "Peak",
    "TrialResult",
    "find_unfinished",
    "keep",
    "latest",
    "make_schema",
    "read",
    "readable",
    "schema",
    "write",
]

FORMAT = 1
Form = TypeVar("Form")
#: Why no further round was run; empty while a measurement goes on.
Ended = Literal["", "rounds", "precision", "settled", "budget", "interrupted"]


class Part(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base class: immutable; unknown fields are rejected."""


class Cell(Part, frozen=True, kw_only=True):
    """What is measured: a workload on an adapter with its options.

    Attributes:
        adapter, framework: what ran.
        workload_name, workload_hash: the workload.
        options: options of its trials.
        proof: the status of its proof.
        record: name of the record that holds the proof.
        varied: in a sweep, the settings that tell it from other cells, by name.
        operations, bytes: work of a step of one worker, as :mod:`dlb_graph.workload.work` counts it; 0 if it
            was not counted.
    """

    adapter: str
    framework: str
    workload_name: str
    workload_hash: str
    options: Options
    proof: ProofStatus
    record: str
    varied: dict[str, Any] = {}
    operations: int = 0
    bytes: int = 0

    @property
    def computed_in(self) -> str:
        """The dtype of its matrix products."""
        return self.options.variant.get(PRECISION, self.options.dtype)


class Peak(Part, frozen=True, kw_only=True):
    """What this machine does at most, by a large matrix product and a large copy of one adapter.

    Attributes:
        adapter, device, dtype, threads: what computed it.
        operations_per_second: of the fastest product; null if it could not be measured.
        operations_spread: how far the median product was below it, relative.
        rows: of the square matrices.
        bytes_per_second, bytes_spread: of the copies, read and written; null as above.
        other_cores: cores that other processes used meanwhile.
        reason: why something could not be measured.
    """

    adapter: str
    device: str
    dtype: str
    threads: int
    operations_per_second: float | None = None
    operations_spread: float | None = None
    rows: int = 0
    bytes_per_second: float | None = None
    bytes_spread: float | None = None
    other_cores: float = 0.0
    reason: str = ""


class TrialResult(Part, frozen=True, kw_only=True):
    """One trial: a fresh process that trained a new model.

    Attributes:
        round, cell, again, hash_seed, padding: as :class:`dlb_measure.schedule.Trial`.
        attempt: 0, or how often the trial was repeated since it was disturbed.
        started: start time, ISO 8601, UTC.
        kind, first_steady: class of the series, and its first steady step.
        median, mean, p95, p99: seconds of steady steps; null if there are none.
        samples_per_second: of steady steps, with the waiting for batches.
        start_seconds, build_seconds, first_step_seconds: the phases before.
        phases: median seconds of the parts of a step, of steps behind the others; empty where it is one piece.
        phases_unknown: why it is; empty where it is not.
        waiting: mean seconds that a steady step waited for its batch, beside its own time.
        cpu_seconds: of all workers, during training.
        memory_bytes: resident size at the end; null if it cannot be told.
        other_cores: cores that other processes used meanwhile.
        disturbed: whether that is more than a quiet machine's.
        checks: verdicts of the checks of the timed model itself.
        judged: audited steps whose changes were compared with the definition of a step.
        observed: what observers recorded, by plugin, without its series.
        series: SHA-256 of the file of its series; empty after a failure.
        failure: what went wrong; null if nothing did.
    """

    round: int
    cell: int
    again: bool
    hash_seed: int
    padding: int
    attempt: int
    started: str
    kind: SteadyClass = "no steady state"
    first_steady: int = 0
    median: float | None = None
    mean: float | None = None
    p95: float | None = None
    p99: float | None = None
    samples_per_second: float | None = None
    waiting: float | None = None
    phases: dict[str, float] = {}
    phases_unknown: str = ""
    start_seconds: float = 0.0
    build_seconds: float = 0.0
    first_step_seconds: float = 0.0
    cpu_seconds: float = 0.0
    memory_bytes: int | None = None
    other_cores: float = 0.0
    disturbed: bool = False
    checks: dict[str, Verdict] = {}
    judged: int = 0
    observed: dict[str, dict[str, Any]] = {}
    series: str = ""
    failure: Failure | None = None

    def __post_init__(self) -> None:
        # A time that is null was not measured; no ratio can be made of one that is not above 0.
        for name in ("median", "mean", "p95", "p99", "samples_per_second"):
            value = getattr(self, name)
            if value is not None and not 0 < value < math.inf:
                raise ValueError(f"{name} of a trial is {value}")

    @property
    def sound(self) -> bool:
        """Whether it was measured, and every check of the timed model passed."""
        return self.failure is None and not self.unproven

    @property
    def unproven(self) -> bool:
        """Whether a check of the timed model did not pass. A trial that failed before its checks was not
        measured, which says nothing of the model."""
        if self.failure is not None:
            return "failed" in self.checks.values()
        return set(self.checks.values()) != {"passed"}


class Measurement(Shown, Part, frozen=True, kw_only=True):
    """A measurement.

    Attributes:
        format: version of this document.
        name: its file is ``NAME.json``.
        key: hash of what is measured and how; an unfinished one of the same key is gone on with.
        started: start time, ISO 8601, UTC.
        seed, order: of the rounds.
        rounds: rounds that are planned.
        pilot: first rounds that decided how many there are; null if that was asked for.
        precision: half of the interval's width that was asked for; null if rounds were.
        budget_seconds: time that it may take; null for any.
        margin: cells that differ by less count as the same.
        steady: which steps of a trial count.
        until, quick: as :class:`dlb_measure.plan.Plan`.
        cells, trials: what was measured, and every trial in the order of its end.
        peaks: what the machine does at most, measured before the first trial.
        ended: why it ended.
        machine, core: hardware and system; dlb's version and revision.
    """

    format: int
    answered_by: ClassVar[str] = "dlb_measure.tables.measurements:measurement_answer"
    name: str
    key: str
    started: str
    seed: int
    order: Order
    rounds: int
    pilot: int | None
    precision: float | None
    budget_seconds: float | None
    margin: float
    steady: SteadyRule
    until: Until = "all"
    quick: bool = False
    cells: tuple[Cell, ...]
    trials: tuple[TrialResult, ...] = ()
    peaks: tuple[Peak, ...] = ()
    ended: Ended = ""
    machine: dict[str, Any] = {}
    core: dict[str, Any] = {}

    def __post_init__(self) -> None:
        if not self.cells:
            raise ValueError("a measurement has no cell")
        for trial in self.trials:
            if not 0 <= trial.cell < len(self.cells):
                raise ValueError(f"a trial of cell {trial.cell} among {len(self.cells)}")
        if not 0 <= self.margin < math.inf or (self.pilot is not None and self.pilot < 1):
            raise ValueError(f"a margin of {self.margin} and a pilot of {self.pilot}")
        if self.rounds < 1:
            raise ValueError(f"a measurement of {self.rounds} rounds")

    @property
    def done(self) -> int:
        """Rounds that were begun."""
        return len({trial.round for trial in self.trials})

    @property
    def trials_a_round(self) -> int:
        """One of each cell, and a second one of one cell."""
        return len(self.cells) + (not self.quick)

    @property
    def confidence(self) -> float:
        """Of the intervals of its ratios: 95%, or what keeps the promise where words may end the rounds."""
        if self.until == "all" or not self.trials:
            return CONFIDENCE
        last = self.ended in ("rounds", "budget")
        return confidence_after(min(self.done, self.rounds), self.rounds, last=last)


def write(measurement: Measurement, folder: Path) -> Path:
    """Write a measurement atomically into a results folder.

    Raises:
        RecordError: it cannot be written; the old file is unchanged.
    """
    return keep(measurement, folder / "measurements" / f"{measurement.name}.json")


def keep(document: msgspec.Struct, path: Path) -> Path:
    """Write a document atomically; errors as :func:`write`."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        documents.write_atomically(path, documents.encode(document))
    except OSError as error:
        raise documents.not_written(path, error) from None
    return path


def readable(folder: Path, read: Callable[[Path], Form]) -> Iterator[Form]:
    """The documents of a folder that can be read, the last first; others are somebody else's."""
    for path in sorted(folder.glob("*.json"), reverse=True):
        with contextlib.suppress(RecordError):
            yield read(path)


def read(path: Path) -> Measurement:
    """Read a measurement, and validate it.

    Raises:
        RecordError: the file cannot be read, is not a measurement, or has a later format; or it claims another
            proof than its record.
    """
    measurement = documents.read(path, "measurement", FORMAT, Measurement)
    cells = tuple(_with_proof(cell, path) for cell in measurement.cells)
    return msgspec.structs.replace(measurement, cells=cells)


def _with_proof(cell: Cell, path: Path) -> Cell:
    """The cell, which is unproven if its record is not there.

    Raises:
        RecordError: it claims a proof that its record has not.
    """
    of_record = path.parent.parent / f"{Path(cell.record).name}.json"
    if cell.proof == "unproven" or not of_record.exists():
        return msgspec.structs.replace(cell, proof="unproven")
    proof = read_header(of_record).proof
    if cell.proof != proof:
        reason = (
            f"it claims '{cell.proof}' of {cell.adapter}, and record {cell.record} says {proof}"
        )
        raise RecordError(reason, path=path)
    return cell


def latest(path: Path) -> Measurement:
    """A measurement: that of a file, or the last one of a results folder.

    Raises:
        RecordError: there is none, or it cannot be read.
    """
    if not path.is_dir():
        return read(path)
    names = sorted((path / "measurements").glob("*.json"))
    if not names:
        raise RecordError("holds no measurement; make one with: dlb run ... --rounds 5", path=path)
    return read(names[-1])


def schema() -> bytes:
    """The JSON Schema (2020-12) of a measurement, as shipped in the wheel."""
    return documents.shipped_schema("measurement", FORMAT, "dlb_measure")


def make_schema() -> bytes:
    """The same, made from the types; the shipped file is generated with it."""
    return documents.make_schema(Measurement, f"dlb measurement, format {FORMAT}")


def find_unfinished(folder: Path, key: str) -> Measurement | None:
    """The last measurement of a results folder that has a key and was not finished; None if there is none."""
    for each in readable(folder / "measurements", read):
        if key and each.key == key and each.ended in ("", "interrupted"):
            return each
    return None
