"""Records and certificates in the terminal, and as documents for programs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from dlb.cli.output import Detail, detail, echo, say, show_table
from dlb.execution.run import Outcome
from dlb.proof.certificate import Certificate
from dlb.record import Record
from dlb.report.explanations import explanation_lines
from dlb.report.records import (
    certificate_lines,
    certificate_table,
    divergences_table,
    folded_lines,
    further_lines,
    provenance_table,
    result_lines,
    results_table,
    tests_table,
)

__all__ = ["outcome_document", "print_certificate", "print_outcome", "print_record"]


def outcome_document(outcome: Outcome) -> dict[str, Any]:
    """The document of ``--json``: records without their raw series, which are in the files."""
    return {
        "answer": outcome.answer().line,
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
    for part, name in (
        ("timing", "step_seconds"),
        ("timing", "data_seconds"),
        ("quality", "losses"),
    ):
        (document[part] or {}).pop(name, None)
    return document


def print_outcome(outcome: Outcome) -> None:
    """Print the results if records were written, the proof, and the folder of the records."""
    if outcome.paths:
        print_results(outcome.records)
    print_certificate(outcome.certificate, folded=detail() < Detail.CHECKS)
    if outcome.certificate.kept:
        echo(
            f"Proof of {outcome.certificate.kept} used again, since nothing that it depends on has "
            "changed (--prove-again makes it anew)"
        )
    for record in outcome.records:
        if record.failure:
            say(f"{record.adapter} failed: {record.failure.line}")
    if outcome.paths:
        echo(f"Records: {outcome.paths[0].parent} ({len(outcome.paths)} written)")


def print_results(records: Sequence[Record]) -> None:
    """Print a table with times, loss, accuracy and proof status of each adapter."""
    show_table(results_table(records))
    tests = tests_table(records)
    if tests.rows:
        show_table(tests)
    for line in result_lines(records):
        echo(line)


def print_certificate(
    certificate: Certificate, *, whole: bool = False, folded: bool = False
) -> None:
    """Print a table of all checks, one column for each adapter, and last where each differs first.

    Args:
        whole: say of every check that failed what it found, not of the first alone, as with ``-v``.
        folded: if all passed, print a line for each adapter in place of tables.
    """
    if not certificate.checks:
        return
    lines = [*folded_lines(certificate)] if folded else []
    if not lines:
        show_table(certificate_table(certificate))
    whole = whole or detail() >= Detail.PHASES
    for line in (*lines, *certificate_lines(certificate, whole=whole)):
        echo(line)
    if certificate.divergences and not lines:
        show_table(divergences_table(certificate))
    for line in further_lines(certificate):
        echo(line)
    for line in explanation_lines(certificate, short=detail() == Detail.ANSWER):
        say(line)


def print_record(record: Record) -> None:
    """Print a record: results, proof and provenance."""
    print_results([record])
    if record.certificate is not None:
        print_certificate(record.certificate)
    if record.failure:
        echo(f"failed: {record.failure.line}")
    show_table(provenance_table(record))
