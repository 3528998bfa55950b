"""A part of a model card of Hugging Face: metadata (``model-index``) and a table in Markdown.

Source: https://huggingface.co/docs/hub/model-cards
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dlb import documents
from dlb.data.own import own_data, own_kinds
from dlb.data.registry import data_sets
from dlb.errors import RecordError, RequestError
from dlb.proof.certificate import with_variant
from dlb.record import Record, read
from dlb_measure.ratios import CONFIDENCE, Ratio
from dlb_measure.results.compared import compared_cells
from dlb_measure.results.measurement import Measurement
from dlb_measure.results.measurement import read as read_measurement
from dlb_track.tracked import in_markdown, needs, text

__all__ = ["export"]


def export(folder: Path, rows: Sequence[Mapping[str, Any]], output: str | None) -> bytes:
    """The part of a model card that says which frameworks were proven the same, and how they were measured.

    Of several runs of an adapter, the last one counts; ratios are those of the last measurement of these runs.

    Args:
        folder: the results folder.
        rows: the results; runs of one workload, and their measurements.
        output: not used.

    Raises:
        PackageMissing: huggingface_hub is not installed.
        RequestError: there is no run, or there are several workloads; or a document cannot be read.
    """
    try:
        from huggingface_hub import EvalResult, ModelCardData
    except ImportError:
        raise needs("huggingface-hub", "model-card") from None
    records = _records(folder, rows)
    first = records[0]
    results = [
        EvalResult(
            task_type=_task(first),
            dataset_type=text(first.data.get("name", "unknown")),
            dataset_name=_data_title(first),
            metric_type=kind,
            metric_value=value,
            metric_name=f"Test {kind} ({_title(record)} {text(record.framework_version)}, {record.proof})",
            dataset_split="test",
        )
        for record in records
        if record.quality is not None
        for kind, value in (
            ("accuracy", record.quality.test_accuracy),
            ("loss", record.quality.test_loss),
        )
        if value is not None
    ]
    name = text(first.workload_name)
    # A model-index must have a result; without one, there is the table alone.
    data = ModelCardData(model_name=name, eval_results=results) if results else ModelCardData()
    metadata = f"---\n{data.to_yaml()}\n---\n\n" if results else ""
    return (metadata + "\n".join(_markdown(folder, rows, records)) + "\n").encode()


def _records(folder: Path, rows: Sequence[Mapping[str, Any]]) -> list[Record]:
    """The last record of each adapter and variant, the first first."""
    last: dict[str, Record] = {}
    for row in rows:
        if row["kind"] == "run":
            try:
                record = read(folder / row["file"])
            except RecordError as error:
                raise RequestError(error.message, path=error.path) from None
            last.setdefault(_title(record), record)
    if not last:
        raise RequestError("a model card needs a run; see: dlb results list", path=folder)
    workloads = {record.workload_hash: record.workload_name for record in last.values()}
    if len(workloads) > 1:
        named = ", ".join(f"{text(name)} ({hash[:12]})" for hash, name in workloads.items())
        raise RequestError(
            f"a model card is of one workload, and these are runs of {len(workloads)}: {named}; "
            "choose with --filter workload=NAME, or name=NAME",
            path=folder,
        )
    return sorted(last.values(), key=lambda record: record.started)


def _title(record: Record) -> str:
    return text(with_variant(record.adapter, record.options.variant))


def _task(record: Record) -> str:
    """The Hub's word for the task, where the data set is known; else ``other``."""
    known = data_sets().get(record.data.get("name", ""))
    return "image-classification" if known and known.format in ("idx", "records") else "other"


def _data_title(record: Record) -> str:
    name = record.data.get("name", "unknown")
    known = data_sets().get(name)
    return text(known.title if known else own_data(name).title if name in own_kinds() else name)


def _markdown(
    folder: Path, rows: Sequence[Mapping[str, Any]], records: Sequence[Record]
) -> list[str]:
    first = records[0]
    proven = [record for record in records if record.proof in ("proven", "within rounding")]
    lines = ["## The same model in several frameworks", ""]
    names = ", ".join(in_markdown(_title(record)) for record in proven)
    if len(proven) > 1:
        sentence = f"proved that these frameworks train the same model: {names}."
    elif proven:
        sentence = f"proved that {names} trains the model of the workload."
    else:
        sentence = "did not prove any of these runs."
    lines += [f"dlb (deep learning bench) {sentence}", ""]
    ratios, measurement = _ratios(folder, rows, records)
    against = f"time of a step / {in_markdown(_title(first))}'s" if ratios else ""
    heads = ["framework", "proof", "test accuracy", "test loss", "step", "samples/s"]
    heads += [against] if ratios else []
    lines += [f"| {' | '.join(heads)} |", f"|---|---|{'--:|' * (len(heads) - 2)}"]
    for record in records:
        timing, quality = record.timing, record.quality
        cells = [
            f"{in_markdown(_title(record))}: "
            + in_markdown(f"{record.framework} {record.framework_version}"),
            f"**{record.proof}**" + (": run failed" if record.failure else ""),
            _number(quality.test_accuracy if quality else None, "{:.2%}"),
            _number(quality.test_loss if quality else None, "{:.4g}"),
            _number(timing.median * 1e3 if timing else None, "{:.3g} ms"),
            _number(timing.samples_per_second if timing else None, "{:,.0f}"),
        ]
        if ratios:
            cells.append(_ratio(ratios.get(record.name)) if record is not first else "1")
        lines.append(f"| {' | '.join(cells)} |")
    lines += ["", *_how(records, measurement), ""]
    return lines


def _how(records: Sequence[Record], measurement: Measurement | None) -> list[str]:
    """How it was proven and measured, a line each."""
    first = records[0]
    options = first.options
    version = in_markdown(first.core.get("version", "unknown"))
    threads = f"{options.threads} thread{'s' * (options.threads > 1)}"
    lines = [
        f"- Workload {in_markdown(first.workload_name)}, hash `{first.workload_hash}`.",
        f"- Trained {options.steps} steps of {options.batch_size} samples in {options.dtype}, seed "
        f"{options.seed}, on {options.device} ({in_markdown(first.machine.get('cpu', 'unknown'))}), "
        f"{threads}, dlb {version}, "
        f"{in_markdown(first.started[:10])}.",
        "- The proof compares weights, outputs, layers, gradients, updates, the timed run and the exported "
        "file, in float64 and float32.",
    ]
    if measurement is not None:
        rounds = len({trial.round for trial in measurement.trials})
        lines.append(
            f"- Ratios are of {rounds} rounds of new processes, with an interval of {CONFIDENCE:.0%}."
        )
    digests = {
        hashlib.sha256(documents.encode(record.certificate)).hexdigest()
        for record in records
        if record.certificate is not None
    }
    lines += [f"- Certificate (SHA-256): `{digest}`." for digest in sorted(digests)]
    return lines


def _ratios(
    folder: Path, rows: Sequence[Mapping[str, Any]], records: Sequence[Record]
) -> tuple[dict[str, Ratio], Measurement | None]:
    """By record, its ratio to the first in the last measurement of all these records."""
    names = {record.name for record in records}
    for row in rows:
        if row["kind"] != "measurement":
            continue
        try:
            measurement = read_measurement(folder / row["file"])
        except RecordError as error:
            raise RequestError(error.message, path=error.path) from None
        places = {cell.record: place for place, cell in enumerate(measurement.cells)}
        if names <= places.keys():
            compared = compared_cells(measurement, places[records[0].name])
            found = {
                measurement.cells[each.cell].record: each.ratio
                for each in compared
                if each.ratio is not None
            }
            if found:
                return found, measurement
    return {}, None


def _ratio(ratio: Ratio | None) -> str:
    if ratio is None:
        return "-"
    if ratio.rounds < 2:
        return f"{ratio.ratio:.2f} (one round)"
    return f"{ratio.ratio:.2f} ({ratio.low:.2f} to {ratio.high:.2f})"


def _number(value: float | None, form: str) -> str:
    return "-" if value is None else form.format(value)
