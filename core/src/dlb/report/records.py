"""Records and certificates as tables and lines of text."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from typing import Any, TypeVar, get_args

from dlb.progress import loss_text
from dlb.proof.certificate import Certificate, CheckGroup, CheckResult, with_variant
from dlb.proof.check_table import kind_named
from dlb.proof.explain import explain
from dlb.proof.findings.common import FeatureMissing
from dlb.record import Record, is_disturbed
from dlb.report.common import lateness
from dlb.report.sentences import describe, divergence_text, inapplicable_groups, join, sentence
from dlb.report.table import Table

__all__ = [
    "certificate_lines",
    "certificate_table",
    "checks_in_order",
    "distance_text",
    "divergences_table",
    "folded_lines",
    "further_lines",
    "provenance_table",
    "result_lines",
    "results_table",
    "share_text",
    "tests_table",
]

Value = TypeVar("Value")
#: Tests during training that are shown of an adapter.
MOST_TESTS = 12


def results_table(records: Sequence[Record]) -> Table:
    """Times, loss, accuracy and proof status of each adapter; of one record or more."""
    first = records[0]
    options = first.options
    strategy = f"{options.workers} x {options.strategy}, " if options.strategy else ""
    title = (
        f"{first.workload_name}: {options.steps} steps of {options.batch_size} ({options.dtype}, "
        f"{options.device}, {strategy}{options.threads} threads), data {first.data.get('name')}"
        f"{', quick' * (first.command == 'quick')}"
    )
    columns = ["adapter", "framework", "step ms", "quartiles", "samples/s", "start s", "loss"]
    columns += ["accuracy", "threads", "proof"]
    rows = [_result_row(record) for record in records]
    return Table(columns, rows, title, right=columns[2:9])


def result_lines(records: Sequence[Record]) -> Iterator[str]:
    """The loss of the test at the end where it has no accuracy, how long it took, and what a reader must know
    of times."""
    tests = [(_name(each), each.quality) for each in records if each.quality is not None]
    losses = [
        f"{name} {_loss(test.test_loss)}" for name, test in tests if test.test_accuracy is None
    ]
    if losses:
        yield f"Loss of the test at the end: {', '.join(losses)}"
    tested = [
        f"{name} {test.test_seconds:.2f}" for name, test in tests if test.test_seconds is not None
    ]
    if tested:
        yield f"Seconds of the test at the end: {', '.join(tested)}"
    for record in records:
        cores = _entry(record.machine, "available_cores", 0)
        if record.timing is not None and is_disturbed(record.timing, cores):
            taken = f"other work took {record.timing.other_cores:.1f} of {cores} cores"
            yield f"{_name(record)}: while it was timed, {taken}: its times are not a quiet machine's"
        if record.timing is not None and record.timing.staleness:
            yield f"{_name(record)}: {lateness(record.timing.staleness)}"


def _name(record: Record) -> str:
    return with_variant(record.adapter, record.options.variant)


def _loss(loss: float | None) -> str:
    return "not a number" if loss is None else loss_text(loss)


def share_text(share: float | None) -> str:
    """A share in percent; ``-`` where there is none."""
    return "-" if share is None else f"{share:.1%}"


def tests_table(records: Iterable[Record]) -> Table:
    """The tests while models trained, at most so many of each adapter; without rows if there were none."""
    rows = []
    for record in records:
        tests = record.quality.tests if record.quality else ()
        stride = -(-len(tests) // MOST_TESTS)
        for test in tests[::-1][:: max(1, stride)][::-1]:
            times = [f"{test.step:,}", f"{test.seconds:,.1f}"]
            rows.append([_name(record), *times, _loss(test.loss), share_text(test.accuracy)])
    columns = ["adapter", "after step", "seconds", "test loss", "accuracy"]
    return Table(columns, rows, "Tests during training", right=columns[1:])


def _result_row(record: Record) -> list[str]:
    cells = [_name(record), f"{record.framework} {record.framework_version}".strip() or "-"]
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
        cells += [_loss(quality.losses[-1]), share_text(quality.test_accuracy)]
    threads = timing.busy_threads if timing else None
    cells.append("-" if threads is None else str(threads))
    return [*cells, record.proof if not record.failure else f"failed, {record.proof}"]


def checks_in_order(certificate: Certificate) -> list[str]:
    """The names of all checks, in the order of their groups."""
    order = get_args(CheckGroup)
    groups = {result.check: order.index(result.group) for result in certificate.checks}
    return sorted(groups, key=lambda name: groups[name])


def certificate_table(certificate: Certificate) -> Table:
    """All checks, one column for each adapter, with the worst figure and the verdict."""
    adapters = list(dict.fromkeys(result.adapter for result in certificate.checks))
    by_place = {(result.check, result.adapter): result for result in certificate.checks}
    rows = []
    for name in checks_in_order(certificate):
        own = [result for result in certificate.checks if result.check == name]
        tolerances = [result.tolerance for result in own if result.tolerance is not None]
        check = kind_named(name)
        shown = check.shown if check else "exact"
        tolerance = f"{max(tolerances):.0e}" if tolerances else shown
        cells = [_cell_text(certificate, by_place.get((name, adapter))) for adapter in adapters]
        rows.append([name, tolerance, *cells])
    rows.append(["proof", "", *[_proof_text(certificate, adapter) for adapter in adapters]])
    title = f"{certificate.workload}: worst relative L2 distance of any tensor"
    columns = ["check", "tolerance", *map(certificate.title, adapters)]
    return Table(columns, rows, title, right=["tolerance"])


def folded_lines(certificate: Certificate) -> Iterator[str]:
    """Of each adapter its status, and how many checks passed; nothing if one did not."""
    if any(result.verdict != "passed" for result in certificate.checks):
        return
    for adapter in certificate.judged_adapters:
        own = certificate.results_of(adapter)
        figures = [(each.worst, each.tolerance, each.check) for each in own if each.worst]
        shares = [
            (one.relative_l2 / most, name)
            for one, most, name in figures
            if one.relative_l2 and most
        ]
        share, name = max(shares, default=(0.0, ""))
        closest = f"; closest to its tolerance: {name}, at {share:.0%} of it" if name else ""
        word = f"{certificate.title(adapter)}: {_proof_text(certificate, adapter)}"
        yield f"{word}, {len(own)} checks passed{closest}"


def _proof_text(certificate: Certificate, adapter: str) -> str:
    """``proven``, or ``proven, 2 set aside`` if so many things were in order to compare."""
    aside = certificate.set_aside(adapter)
    return certificate.status(adapter) + (f", {len(aside)} set aside" if aside else "")


def certificate_lines(certificate: Certificate, *, whole: bool = True) -> Iterator[str]:
    """What limits the proof: checks that failed or were not run, and what was left out.

    Args:
        whole: all checks that failed; else of each adapter the first, from which others mostly follow.
    """
    yield from sorted(set(_fact_lines(certificate)))
    first = {(each.adapter, each.check) for each in explain(certificate)}
    yield from _not_passed_lines(certificate, None if whole else first)


def further_lines(certificate: Certificate) -> Iterator[str]:
    """What is to be known of the whole proof."""
    for adapter, divergent in certificate.diverged.items():
        yield f"{certificate.title(adapter)}: {divergence_text(divergent)}"
    if certificate.left_out:
        yield f"Left out, so nothing is proven: {', '.join(certificate.left_out)}"
    groups = inapplicable_groups(certificate).items()
    if groups:
        listed = (f"{', '.join(without)}, {reason}" for reason, without in groups)
        yield f"Not checked: {'; '.join(listed)}"
    for adapter, declared in certificate.deviations.items():
        for text in declared:
            yield f"{adapter} declares: {text}"


def _not_passed_lines(
    certificate: Certificate, failed_ones: Set[tuple[str, str]] | None
) -> Iterator[str]:
    """A line for each check that failed or was not run; one line for all that say the same.

    Args:
        failed_ones: of those that failed, adapter and check of these; None for all.
    """
    lacking: dict[tuple[str, str], list[str]] = {}
    titles: dict[str, list[str]] = {}
    for result in certificate.checks:
        title, text = certificate.title(result.adapter), describe(result)
        folded = failed_ones is not None and (result.adapter, result.check) not in failed_ones
        if result.verdict == "passed" or (result.verdict == "failed" and folded):
            continue
        if any(isinstance(finding.cause, FeatureMissing) for finding in result.findings):
            lacking.setdefault((title, text), []).append(result.check)
            continue
        failed = result.worst is not None and result.verdict == "failed" and _is_past(result)
        worst = [f"worst: {result.worst.tensor}"] if failed and result.worst else []
        parts = [part for part in (_verdict_text(certificate, result), *worst, text) if part]
        titles.setdefault(f", {result.check}: {'; '.join(parts)}", []).append(title)
    for (title, text), checks in lacking.items():
        line = f": {len(checks)} check{'s' * (len(checks) > 1)} not run, since {text}: {'; '.join(checks)}"
        titles.setdefault(line, []).append(title)
    for line, alike in titles.items():
        yield f"{', '.join(alike)}{line}"


def _fact_lines(certificate: Certificate) -> Iterator[str]:
    """Lines about passed checks: how a file was read, and what limits what was compared."""
    for result in certificate.checks:
        aside = [finding for finding in result.findings if finding.cause.aside]
        check = kind_named(result.check)
        if result.findings and result.group == "file":
            yield f"{result.check}: {describe(result)}"
        elif aside and result.verdict == "passed":
            texts = join(sentence(finding, result.adapter) for finding in aside)
            yield f"set aside, {result.check}: {texts}"
        elif check and check.summary and result.verdict == "passed":
            yield f"{check.summary} of {certificate.title(result.adapter)}: {describe(result)}"


def divergences_table(certificate: Certificate) -> Table:
    """The drift of float32 trajectories after each observed step, with the perturbed band."""
    divergences = certificate.divergences
    columns = [(each.adapter, [*map(distance_text, each.distances)]) for each in divergences]
    for each in divergences:
        if each.perturbed:
            runs = [
                [math.inf if value is None else value for value in row] for row in each.perturbed
            ]
            ends = [map(distance_text, (min(row), max(row))) for row in zip(*runs, strict=True)]
            columns.insert(0, (f"{each.adapter}, perturbed", [*map(" to ".join, ends)]))
    steps = [f"{step}" for step in (divergences[0].steps if divergences else ())]
    rows = [[*row] for row in zip(steps, *(distances for _, distances in columns))]
    title = (
        f"{certificate.workload}: float32 trajectories, distance from float64 (shown, no verdict)"
    )
    names = [name for name, _ in columns]
    return Table(["after step", *names], rows, title, right=["after step"])


def distance_text(value: float | None) -> str:
    """A distance in a table; null stands for infinity."""
    if value is None or math.isinf(value):
        return "infinite"
    return "0" if value == 0 else f"{value:.1e}"


def _verdict_text(certificate: Certificate, result: CheckResult) -> str:
    """``by rounding`` of a check that failed where one rounding explains every one that did."""
    rounded = result.verdict == "failed" and not certificate.deviates(result.adapter)
    return "by rounding" if rounded else result.verdict


def _cell_text(certificate: Certificate, result: CheckResult | None) -> str:
    if result is None:
        return "-"
    word = _verdict_text(certificate, result)
    if result.verdict == "not run" or result.worst is None:
        return word
    shown = distance_text(result.worst.relative_l2)
    if result.verdict == "passed":
        return shown
    return f"{shown} {word}" if _is_past(result) else word


def _is_past(result: CheckResult) -> bool:
    """Whether the largest distance is past the tolerance: a check may fail where no figure is."""
    size = result.worst.relative_l2 if result.worst else None
    return result.tolerance is None or size is None or size > result.tolerance


def _entry(facts: Mapping[str, Any], name: str, default: Value) -> Value:
    """A fact of a record that may have been edited: the default if it is missing or of another type."""
    value = facts.get(name)
    return value if isinstance(value, type(default)) else default


def _state(state: dict[str, Any]) -> str:
    """The state of a machine, and what of it is not known."""
    known = [f"{name} {value}" for name, value in state.items() if name != "unknown"]
    return ", ".join(each.replace(" None", " not known") for each in known) or "-"


def _pairs(facts: Mapping[str, Any], name: str, sign: str) -> str:
    entries = _entry(facts, name, dict[str, Any]()).items()
    return ", ".join(f"{key}{sign}{value}" for key, value in entries) or "-"


def provenance_table(record: Record) -> Table:
    """Where the figures of a record come from."""
    machine, worker = record.machine, record.worker
    rows = [
        ["record", f"{record.name}, {record.started}, format {record.format}"],
        ["workload", f"{record.workload_name} {record.workload_hash}"],
        ["adapter", _name(record)],
        ["data", f"{record.data.get('name')} from {record.data.get('from')}"],
        [
            "machine",
            f"{machine.get('cpu')}, {machine.get('available_cores')} cores, "
            f"{_entry(machine, 'memory_bytes', 0) / 2**30:.0f} GiB, {machine.get('system')}",
        ],
        ["state", _state(_entry(machine, "state", dict[str, Any]()))],
        [
            "worker",
            f"Python {worker.get('python')}, {worker.get('threads')} threads by its own "
            f"account, {len(_entry(worker, 'packages', dict[str, Any]()))} packages",
        ],
        ["libraries", _pairs(worker, "build", " ")],
        ["allocator", str(worker.get("allocator", "not known"))],
        ["variables", _pairs(worker, "variables", "=")],
        ["dlb", f"{record.core.get('version')} {record.core.get('git') or ''}"],
        [
            "exported",
            f"{record.exported.sha256}, {record.exported.bytes} bytes" if record.exported else "-",
        ],
    ]
    return Table(["provenance", ""], rows)
