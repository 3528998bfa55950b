"""The table at the end: what became of the tests about each layer type of the contract."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from dlb_graph import workload as W

__all__ = ["OTHER", "PROPERTY", "lines"]

#: The property of a test's report that names its row.
PROPERTY = "layer"
#: The row of the tests that are not about one layer type.
OTHER = "other tests"

#: pytest's outcomes by column, the mildest first: a test may have several, and the worst counts.
COLUMNS = {
    "passed": ("passed",),
    "not described": ("skipped",),
    "expected failures": ("xfailed",),
    "failed": ("failed", "error"),
}
_SHOWN = ("passed", "failed", "expected failures", "not described")


def lines(stats: Mapping[str, Iterable[Any]]) -> Iterator[str]:
    """The table of pytest's reports by outcome; nothing where no test of the suite was run."""
    ended: dict[str, tuple[str, str]] = {}
    for column, outcomes in COLUMNS.items():
        for outcome in outcomes:
            for report in stats.get(outcome, ()):
                row = dict(getattr(report, "user_properties", ())).get(PROPERTY)
                if row is not None:
                    ended[report.nodeid] = (str(row), column)
    if not ended:
        return
    counts = Counter(ended.values())
    met = {row for row, _ in counts}
    rows = [row for row in (*W.LAYERS, OTHER) if row in met]
    rows += sorted(met - {*rows})  # cases of strategies
    width = max(map(len, rows))
    yield "  ".join([" " * width, *_SHOWN])
    for row in rows:
        cells = (f"{counts[row, column] or '-':>{len(column)}}" for column in _SHOWN)
        yield "  ".join([f"{row:<{width}}", *cells])
