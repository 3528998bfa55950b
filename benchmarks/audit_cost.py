"""What the audit of a timed run costs: seconds of the whole run, and whether audited steps take longer.

    python benchmarks/audit_cost.py [WORKLOAD ...] [--on ADAPTER] [--rounds N] [--steps N] > FILE.csv

Each round runs every workload once with the audit and once without, in a random order, as ``dlb run``
does: proof, training, test and export, in new processes. The CSV has a row for each workload: the ratio of
the seconds of both runs, and of a run that uses a kept proof; the ratio of the median time of steps of both;
and in audited runs the ratio of an audited step to those after it, and to the rest. Each ratio is the geometric
mean over rounds, with the smallest and the largest.
"""

from __future__ import annotations

import argparse
import csv
import math
import os
import random
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from dlb.adapters import find_adapters
from dlb.catalogue import load_with_file
from dlb.execution.run import run
from dlb.progress import Silent
from dlb.proof.certificate import CHECK_GROUPS
from dlb.proof.findings.audit import StepsAudited
from dlb.resolver import Resolver
from dlb.samples import replace_missing_data
from dlb.settings import Settings

RATIOS = ("run", "run_kept_proof", "step", "audited_to_next", "audited_to_rest")


def main() -> int:
    """Measure and print; progress goes to standard error."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("workloads", nargs="*", default=["lenet5"])
    parser.add_argument("--on", default="torch", metavar="ADAPTER")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, help="instead of the workload's epochs")
    asked = parser.parse_args()
    table = csv.writer(sys.stdout, lineterminator="\n")
    columns = [f"{name}{end}" for name in RATIOS for end in ("", "_low", "_high")]
    table.writerow(
        [
            "workload",
            "adapter",
            "steps",
            "seconds",
            "seconds_kept_proof",
            "judged",
            "chance",
            *columns,
        ]
    )
    for workload in asked.workloads:
        rounds = [_round(workload, asked.on, asked.steps) for _ in range(asked.rounds)]
        row: list[Any] = [workload, asked.on, rounds[0]["steps"]]
        row += [
            f"{statistics.median(each[key] for each in rounds):.1f}" for key in ("seconds", "kept")
        ]
        row += [min(each["judged"] for each in rounds), f"{min(e['chance'] for e in rounds):.3f}"]
        for name in RATIOS:
            ratios = [each[name] for each in rounds]
            mean = math.exp(statistics.fmean(map(math.log, ratios)))
            row += [f"{value:.3f}" for value in (mean, min(ratios), max(ratios))]
        table.writerow(row)
        sys.stdout.flush()
    return 0


def _round(workload: str, adapter: str, steps: int | None) -> dict[str, Any]:
    """One run with the audit, one without, and both again with a kept proof."""
    audited, plain = set(CHECK_GROUPS), set(CHECK_GROUPS) - {"audit"}
    cells = [("audited", audited), ("plain", plain)]
    random.shuffle(cells)
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as home:
        os.environ["DLB_HOME"] = os.environ.get("DLB_HOME") or home
        for name, groups in cells:
            found[name] = _run(workload, adapter, steps, groups, prove_again=True)
            print(f"{workload}, {name}: {found[name]['seconds']:.1f} s", file=sys.stderr)
        kept = _run(workload, adapter, steps, audited, prove_again=False)
        print(f"{workload}, kept proof: {kept['seconds']:.1f} s", file=sys.stderr)
    record = found["audited"]["record"]
    times, chosen = record.timing.step_seconds, set(record.timing.audited_steps) - {0}
    after = {step + 1 for step in chosen if step + 1 < len(times)} - chosen
    rest = set(range(1, len(times))) - chosen - after
    watched = statistics.median(times[step] for step in chosen)
    coverage = next(
        finding.cause
        for result in record.certificate.checks
        for finding in result.findings
        if isinstance(finding.cause, StepsAudited)
    )
    audit = found["audited"]["seconds"] - found["plain"]["seconds"]
    return {
        "steps": len(times),
        "seconds": found["audited"]["seconds"],
        "kept": kept["seconds"],
        "judged": coverage.judged,
        "chance": coverage.chance,
        "run": found["audited"]["seconds"] / found["plain"]["seconds"],
        "run_kept_proof": kept["seconds"] / max(kept["seconds"] - audit, 1e-9),
        "step": record.timing.median / found["plain"]["record"].timing.median,
        "audited_to_next": watched / statistics.median(times[step] for step in after),
        "audited_to_rest": watched / statistics.median(times[step] for step in rest),
    }


def _run(
    workload: str, adapter: str, steps: int | None, groups: set[Any], *, prove_again: bool
) -> dict[str, Any]:
    described, imported = load_with_file(workload)
    described = replace_missing_data(described, lambda line: print(line, file=sys.stderr))
    settings = Settings(steps=steps, groups=frozenset(groups), prove_again=prove_again)
    with tempfile.TemporaryDirectory() as folder:
        resolver = Resolver(described, imported, out=Path(folder))
        request = resolver.resolve(settings, find_adapters([adapter]))
        began = time.perf_counter()
        outcome = run(request, Silent())
        seconds = time.perf_counter() - began
    (record,) = outcome.records
    if record.timing is None:
        raise SystemExit(f"{workload} failed: {record.failure}")
    return {"seconds": seconds, "record": record}


if __name__ == "__main__":
    sys.exit(main())
