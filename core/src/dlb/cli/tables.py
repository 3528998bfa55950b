"""Records and certificates as tables for people and as documents for programs."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeVar, get_args

import click
import msgspec

from dlb.cli.output import print_table
from dlb.execution.run import Outcome
from dlb.progress import loss_text
from dlb.proof.certificate import Certificate, CheckGroup, CheckResult, with_variant
from dlb.proof.findings.common import FeatureMissing
from dlb.proof.findings.port import CutDifferently, DropoutSame, WeightsLeft
from dlb.proof.findings.workload import RoundingGrows
from dlb.record import Record, is_disturbed
from dlb.report.sentences import describe, divergence_text, inapplicable_groups

__all__ = ["outcome_document", "print_certificate", "print_outcome", "print_record"]

Value = TypeVar("Value")
#: Tests during training that are shown of an adapter.
MOST_TESTS = 12
#: Facts about passed checks that are shown.
_SHOWN_FACTS = (CutDifferently, DropoutSame, RoundingGrows, WeightsLeft)


def outcome_document(outcome: Outcome) -> dict[str, Any]:
    """The document of ``--json``: records without their raw series, which are in the files."""
    return {
        "proven": outcome.proven,
        "passed": outcome.passed,
        "interrupted": outcome.interrupted,
        "records": [_without_series(record) for record in outcome.records],
        "files": [str(path) for path in outcome.paths],
        "certificate": msgspec.to_builtins(outcome.certificate),
    }


def _without_series(record: Record) -> dict[str, Any]:
    document: dict[str, Any] = msgspec.to_builtins(record)
    del document["certificate"], document["workload"]
    for part, series in (("timing", ("step_seconds", "data_seconds")), ("quality", ("losses",))):
        for name in series:
            if document[part] is not None:
                del document[part][name]
    return document


def print_outcome(outcome: Outcome) -> None:
    """Print the results if records were written, the proof, and the folder of the records."""
    if outcome.paths:
        print_results(outcome.records)
    print_certificate(outcome.certificate)
    if outcome.certificate.kept:
        click.echo(
            f"Proof of {outcome.certificate.kept} used again, since nothing that it depends on has "
            "changed (--prove-again makes it anew)"
        )
    for record in outcome.records:
        if record.failure:
            click.echo(f"{record.adapter} failed: {record.failure.line}")
    if outcome.paths:
        click.echo(f"Records: {outcome.paths[0].parent} ({len(outcome.paths)} written)")


def print_results(records: Iterable[Record]) -> None:
    """Print a table with times, loss, accuracy and proof status of each adapter."""
    records = list(records)
    if not records:
        return
    first = records[0]
    options = first.options
    strategy = f"{options.workers} x {options.strategy}, " if options.strategy else ""
    title = (
        f"{first.workload_name}: {options.steps} steps of {options.batch_size} ({options.dtype}, "
        f"{options.device}, {strategy}{options.threads} threads), data {first.data.get('name')}"
    )
    columns = ["adapter", "framework", "step ms", "quartiles", "samples/s", "start s", "loss"]
    columns += ["accuracy", "threads", "proof"]
    print_table(columns, [_result_row(record) for record in records], title, right=columns[2:9])
    _print_tests(records)
    for record in records:
        cores = _entry(record.machine, "available_cores", 0)
        if record.timing is not None and is_disturbed(record.timing, cores):
            name = with_variant(record.adapter, record.options.variant)
            click.echo(
                f"{name}: while it was timed, other work took {record.timing.other_cores:.1f} of {cores} "
                "cores: its times are not a quiet machine's"
            )


def _print_tests(records: list[Record]) -> None:
    """Print the tests while models trained, at most so many of each adapter."""
    rows = []
    for record in records:
        tests = record.quality.tests if record.quality else ()
        name = with_variant(record.adapter, record.options.variant)
        stride = -(-len(tests) // MOST_TESTS)
        for test in tests[::-1][:: max(1, stride)][::-1]:
            loss = "not a number" if test.loss is None else loss_text(test.loss)
            rows.append(
                [name, f"{test.step:,}", f"{test.seconds:,.1f}", loss, f"{test.accuracy:.1%}"]
            )
    if rows:
        columns = ["adapter", "after step", "seconds", "test loss", "accuracy"]
        print_table(columns, rows, "Tests during training", right=columns[1:])


def _result_row(record: Record) -> list[str]:
    name = with_variant(record.adapter, record.options.variant)
    cells = [name, f"{record.framework} {record.framework_version}".strip() or "-"]
    timing, quality = record.timing, record.quality
    if timing is None:
        cells += ["-"] * 4
    else:
        cells += [
            f"{timing.median * 1e3:.2f}",
            f"{timing.lower_quartile * 1e3:.2f} to {timing.upper_quartile * 1e3:.2f}",
            f"{timing.samples_per_second:,.0f}",
            f"{timing.start_seconds:.1f}",
        ]
    if quality is None or not quality.losses:
        cells += ["-", "-"]
    else:
        last_loss = quality.losses[-1]
        cells += [
            "not a number" if last_loss is None else loss_text(last_loss),
            f"{quality.test_accuracy:.1%}",
        ]
    threads = timing.busy_threads if timing else None
    cells.append("-" if threads is None else str(threads))
    return [*cells, record.proof if not record.failure else f"failed, {record.proof}"]


def print_certificate(certificate: Certificate) -> None:
    """Print a table of all checks, one column for each adapter, with the worst figure and the verdict."""
    adapters = list(dict.fromkeys(result.adapter for result in certificate.checks))
    if not adapters:
        return
    order = get_args(CheckGroup)
    groups = {result.check: order.index(result.group) for result in certificate.checks}
    names = sorted(groups, key=lambda name: groups[name])
    by_place = {(result.check, result.adapter): result for result in certificate.checks}
    rows = []
    for name in names:
        tolerances = [
            result.tolerance
            for result in certificate.checks
            if result.check == name and result.tolerance is not None
        ]
        tolerance = f"{max(tolerances):.0e}" if tolerances else "exact"
        if name == "audit, clock":
            tolerance = "2%"
        cells = [_cell_text(by_place.get((name, adapter))) for adapter in adapters]
        rows.append([name, tolerance, *cells])
    rows.append(["proof", "", *[certificate.status(adapter) for adapter in adapters]])
    title = f"{certificate.workload}: worst relative L2 distance of any tensor"
    columns = ["check", "tolerance", *map(certificate.title, adapters)]
    print_table(columns, rows, title, right=["tolerance"])
    for line in sorted(set(_fact_lines(certificate))):
        click.echo(line)
    for line in _not_passed_lines(certificate):
        click.echo(line)
    _print_divergences(certificate)
    for adapter, divergent in certificate.diverged.items():
        click.echo(f"{certificate.title(adapter)}: {divergence_text(divergent)}")
    if certificate.left_out:
        click.echo(f"Left out, so nothing is proven: {', '.join(certificate.left_out)}")
    for reason, without in inapplicable_groups(certificate).items():
        click.echo(f"Not checked, {reason}: {', '.join(without)}")
    for adapter, declared in certificate.deviations.items():
        for text in declared:
            click.echo(f"{adapter} declares: {text}")
    if certificate.converted_from:
        click.echo(
            f"Converted from format {certificate.converted_from}: sentences are shown as they were "
            "written, and layers are named in them only"
        )


def _not_passed_lines(certificate: Certificate) -> Iterator[str]:
    """A line for each check that failed or was not run; one line for all that lack the same feature."""
    lacking: dict[tuple[str, str], list[str]] = {}
    for result in certificate.checks:
        title, text = certificate.title(result.adapter), describe(result)
        if result.verdict == "passed":
            continue
        if any(isinstance(finding.cause, FeatureMissing) for finding in result.findings):
            lacking.setdefault((title, text), []).append(result.check)
            continue
        failed = result.worst is not None and result.verdict == "failed"
        worst = [f"worst: {result.worst.tensor}"] if failed and result.worst else []
        parts = [part for part in (result.verdict, *worst, text) if part]
        yield f"{title}, {result.check}: {'; '.join(parts)}"
    for (title, text), checks in lacking.items():
        names = "; ".join(checks)
        yield f"{title}: {len(checks)} checks not run, since {text}: {names}"


def _fact_lines(certificate: Certificate) -> Iterator[str]:
    """Lines about passed checks: how a file was read, and what limits what was compared."""
    for result in certificate.checks:
        shown = any(isinstance(finding.cause, _SHOWN_FACTS) for finding in result.findings)
        if result.findings and (result.check == "file" or (result.verdict == "passed" and shown)):
            yield f"{result.check}: {describe(result)}"
        elif result.check == "audit, steps" and result.verdict == "passed":
            yield f"audit of {certificate.title(result.adapter)}: {describe(result)}"


def _print_divergences(certificate: Certificate) -> None:
    """Print the drift of float32 trajectories after each observed step, with the perturbed band."""
    divergences = certificate.divergences
    if not divergences:
        return
    columns = [
        (divergence.adapter, [f"{_distance_text(value)}" for value in divergence.distances])
        for divergence in divergences
    ]
    for divergence in divergences:
        if divergence.perturbed:
            runs = [[_finite_or_infinity(value) for value in row] for row in divergence.perturbed]
            band = [
                f"{_distance_text(min(at_step))} to {_distance_text(max(at_step))}"
                for at_step in zip(*runs, strict=True)
            ]
            columns.insert(0, (f"{divergence.adapter}, perturbed", band))
    rows = [
        [f"{step}", *at_step]
        for step, *at_step in zip(divergences[0].steps, *(distances for _, distances in columns))
    ]
    title = (
        f"{certificate.workload}: float32 trajectories, distance from float64 (shown, no verdict)"
    )
    print_table(["after step", *(name for name, _ in columns)], rows, title, right=["after step"])


def _finite_or_infinity(value: float | None) -> float:
    return math.inf if value is None else value


def _distance_text(value: float | None) -> str:
    """A distance in a table."""
    if value is None or math.isinf(value):
        return "infinite"
    return "0" if value == 0 else f"{value:.1e}"


def _cell_text(result: CheckResult | None) -> str:
    if result is None:
        return "-"
    if result.verdict == "not run" or result.worst is None:
        return result.verdict
    shown = _distance_text(result.worst.relative_l2)
    return shown if result.verdict == "passed" else f"{shown} failed"


def _entry(facts: Mapping[str, Any], name: str, default: Value) -> Value:
    """A fact of a record that may have been edited: the default if it is missing or of another type."""
    value = facts.get(name)
    return value if isinstance(value, type(default)) else default


def _state(state: dict[str, Any]) -> str:
    """The state of a machine, and what of it is not known."""
    known = [f"{name} {value}" for name, value in state.items() if name != "unknown"]
    return ", ".join(each.replace(" None", " not known") for each in known) or "-"


def print_record(record: Record) -> None:
    """Print a record: results, proof and provenance."""
    print_results([record])
    if record.certificate is not None:
        print_certificate(record.certificate)
    if record.failure:
        click.echo(f"failed: {record.failure.line}")
    machine, worker = record.machine, record.worker
    no_facts: dict[str, Any] = {}
    rows = [
        ["record", f"{record.name}, {record.started}, format {record.format}"],
        ["workload", f"{record.workload_name} {record.workload_hash}"],
        ["adapter", with_variant(record.adapter, record.options.variant)],
        ["data", f"{record.data.get('name')} from {record.data.get('from')}"],
        [
            "machine",
            f"{machine.get('cpu')}, {machine.get('available_cores')} cores, "
            f"{_entry(machine, 'memory_bytes', 0) / 2**30:.0f} GiB, {machine.get('system')}",
        ],
        ["state", _state(_entry(machine, "state", no_facts))],
        [
            "worker",
            f"Python {worker.get('python')}, {worker.get('threads')} threads by its own "
            f"account, {len(_entry(worker, 'packages', no_facts))} packages",
        ],
        [
            "libraries",
            ", ".join(f"{key} {value}" for key, value in _entry(worker, "build", no_facts).items()),
        ],
        ["allocator", str(worker.get("allocator", "not known"))],
        [
            "variables",
            ", ".join(f"{k}={v}" for k, v in _entry(worker, "variables", no_facts).items()) or "-",
        ],
        ["dlb", f"{record.core.get('version')} {record.core.get('git') or ''}"],
        [
            "exported",
            f"{record.exported.sha256}, {record.exported.bytes} bytes" if record.exported else "-",
        ],
    ]
    print_table(["provenance", ""], rows)
