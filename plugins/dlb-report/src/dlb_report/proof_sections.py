"""Sections about the proof: every check, the first difference, the audit, and where figures come from."""

from __future__ import annotations

import math
from collections.abc import Iterator

import msgspec

from dlb.proof.certificate import Certificate
from dlb.proof.explain import explain
from dlb.report.explanations import built_text, explanation_line, not_run_texts, reason_text
from dlb.report.plain import plain
from dlb.report.records import (
    certificate_lines,
    certificate_table,
    checks_in_order,
    divergences_table,
    further_lines,
    provenance_table,
)
from dlb.report.sentences import describe
from dlb.report.table import Table
from dlb_report.blocks import Block, Data, Folded, Lines, Plot, Shown, Statement, Strip, data_of
from dlb_report.chosen import Results, heading_of_runs
from dlb_report.curves import distances_chart
from dlb_report.naming import run_title
from dlb_report.sources import Run

__all__ = ["audit_section", "proof_section", "provenance_section"]

#: Longest line of a certificate's.
MOST_LINE = 600
#: Lines of a certificate at most.
MOST_LINES = 40


def _certificates(results: Results) -> Iterator[tuple[list[Run], Certificate]]:
    """Each certificate once, with the runs that share it."""
    for runs in results.commands:
        certificate = runs[0].record.certificate
        if certificate is not None and certificate.checks:
            yield runs, certificate


def proof_section(results: Results) -> Iterator[Block]:
    """A word for each framework, the first difference of those that deviate, and every check, folded."""
    for number, (runs, certificate) in enumerate(_certificates(results), 1):
        yield heading_of_runs(runs)
        yield Strip(list(_words(results, runs, certificate)))
        first = list(_first_differences(certificate))
        if first:
            yield Lines(first[:MOST_LINES], warning=True)
        blocks: list[Lines | Shown | Plot] = []
        chart = _distances(results, runs, certificate, number)
        if chart is not None:
            blocks.append(chart)
        blocks.append(Shown(certificate_table(certificate), _figures_data(certificate, number)))
        lines = [*certificate_lines(certificate), *further_lines(certificate)]
        if lines:
            blocks.append(Lines([plain(line, MOST_LINE) for line in lines[:MOST_LINES]]))
        if certificate.divergences:
            blocks.append(Shown(divergences_table(certificate), folded=True, main=False))
        yield Folded(f"All {len(checks_in_order(certificate))} checks, with figures", blocks)


def _words(results: Results, runs: list[Run], certificate: Certificate) -> Iterator[Statement]:
    """The verdict on each framework, how many checks passed, and the one nearest to its tolerance."""
    for run in runs[:24]:
        own = [each for each in certificate.checks if each.adapter == run.record.adapter]
        verdicts = [each.verdict for each in own]
        counts = {word: verdicts.count(word) for word in ("failed", "not run", "passed")}
        said = ", ".join(f"{count} {word}" for word, count in counts.items() if count)
        nearest = ""
        shares = [
            (each.worst.relative_l2 / each.tolerance, each.check)
            for each in own
            if each.tolerance and each.worst and each.worst.relative_l2
        ]
        if shares and (worst := max(shares))[0] < 1:
            nearest = f"nearest to its tolerance: {plain(worst[1], 60)}, at {worst[0]:.1%} of it"
        status = "failed" if run.record.failure else run.record.proof
        title = run_title(run.record) + (f", {plain(run.source, 40)}" if run.source else "")
        yield Statement(f"{title}: {said or 'nothing was checked'}", status, nearest, status)


def _first_differences(certificate: Certificate) -> Iterator[str]:
    for explanation in explain(certificate):
        if explanation.check:
            yield plain(explanation_line(explanation, certificate), MOST_LINE)
        if explanation.check and (built := built_text(explanation)):
            yield plain(f"built: {built}", MOST_LINE)
        if reason := reason_text(explanation):
            yield plain(f"probably: {reason}", MOST_LINE)
        yield from (plain(text, MOST_LINE) for text in not_run_texts(explanation))


def _distances(
    results: Results, runs: list[Run], certificate: Certificate, number: int
) -> Plot | None:
    titles = {run.record.adapter: results.title(run) for run in runs}
    checks = []
    for name in checks_in_order(certificate):
        own, tolerance = [], None
        for result in certificate.checks:
            if result.check != name or result.worst is None or result.verdict == "not run":
                continue
            title = titles.get(result.adapter, plain(certificate.title(result.adapter), 60))
            distance = result.worst.relative_l2
            distance = math.inf if distance is None else distance
            tolerance = result.tolerance if tolerance is None else tolerance
            if not math.isnan(distance) and distance >= 0:
                own.append((title, results.looks.of(title), distance, result.verdict == "passed"))
        checks.append((plain(name, 60), tolerance, own[:24]))
    chart = distances_chart(f"proof-{number}", checks[:60])
    return None if chart is None else Plot([chart])


def _figures_data(certificate: Certificate, number: int) -> Data:
    rows = [
        [
            result.check,
            result.group,
            result.adapter,
            result.verdict,
            result.tolerance,
            *(
                [result.worst.tensor, result.worst.relative_l2, result.worst.largest]
                if result.worst
                else [None] * 3
            ),
            describe(result),
        ]
        for result in certificate.checks[:5000]
    ]
    columns = ["check", "group", "adapter", "verdict", "tolerance", "worst_tensor", "relative_l2"]
    return data_of(f"proof-{number}", [*columns, "largest", "findings"], rows)


def audit_section(results: Results) -> Iterator[Block]:
    """What the audit of each timed run judged, and found."""
    for number, (runs, certificate) in enumerate(_certificates(results), 1):
        rows = [
            [
                plain(certificate.title(result.adapter), 60),
                plain(result.check, 60),
                result.verdict,
                plain(describe(result), MOST_LINE),
            ]
            for result in certificate.checks
            if result.group == "audit"
        ]
        if rows:
            yield heading_of_runs(runs)
            columns = ["adapter", "check", "verdict", "what was judged or found"]
            table = Table(columns, rows, "The audit of timed runs")
            # What passed is asked for; what did not is seen.
            folded = all(row[2] == "passed" for row in rows)
            yield Shown(table, data_of(f"audit-{number}", columns, rows), folded, main=False)
        else:
            yield heading_of_runs(runs)
            yield Lines(["No timed run was audited: its figures are unproven"], warning=True)


def provenance_section(results: Results) -> Iterator[Block]:
    """Machine, versions and options of each run."""
    for runs in results.commands:
        yield heading_of_runs(runs)
        tables = [provenance_table(run.record) for run in runs]
        columns = ["", *(plain(run.record.adapter, 60) for run in runs)]
        rows = [
            [cells[0][0], *(plain(each[1], 400) for each in cells)]
            for cells in zip(*(table.rows for table in tables))
        ]
        rows.append(["proof made", *(plain(_made(run), 400) for run in runs)])
        rows.append(["options", *(plain(_options(run), 400) for run in runs)])
        data = data_of(f"provenance-{runs[0].record.name}"[:80], columns, rows)
        yield Shown(Table(columns, rows, "Provenance"), data, main=False)


def _made(run: Run) -> str:
    certificate = run.record.certificate
    if certificate is None:
        return "-"
    return f"{certificate.kept}, used again" if certificate.kept else certificate.made or "-"


def _options(run: Run) -> str:
    options = msgspec.to_builtins(run.record.options)
    return ", ".join(f"{name} {value}" for name, value in options.items() if value not in ("", {}))
