"""Names of what a page compares, each with its status, and a look that stays the same in all charts."""

from __future__ import annotations

from dataclasses import dataclass, field

from dlb.proof.certificate import with_variant
from dlb.record import Record
from dlb.report.page.charts import STYLES
from dlb.report.page.sources import Measured
from dlb.report.plain import plain
from dlb.results.compared import cell_names

__all__ = ["Looks", "cell_titles", "labelled", "run_title"]

#: Longest name in a chart.
MOST_NAME = 60
#: Statuses that need no word next to a figure.
_PLAIN = ("proven", "within rounding")


@dataclass
class Looks:
    """The look of each name, in the order in which names appear."""

    known: dict[str, int] = field(default_factory=dict)

    def of(self, name: str) -> int:
        return self.known.setdefault(name, len(self.known) % STYLES)


def labelled(name: str, status: str) -> str:
    """A name, and its status if that is not ``proven``."""
    return name if status in _PLAIN else f"{name} ({status})"


def cell_titles(measured: Measured) -> list[str]:
    """The frameworks of the cells; adapters with what differs, where a framework is there twice."""
    cells, names = measured.measurement.cells, cell_names(measured.measurement)
    frameworks = [cell.framework for cell in cells]
    titles = []
    for cell, name in zip(cells, names):
        single = cell.framework and frameworks.count(cell.framework) == 1
        variant = name[len(cell.adapter) :] if name.startswith(cell.adapter) else ""
        titles.append(plain(f"{cell.framework}{variant}" if single else name, MOST_NAME))
    return titles


def run_title(record: Record) -> str:
    """A framework with its variant."""
    framework = f"{record.framework} {record.framework_version}".strip() or record.adapter
    return plain(with_variant(framework, record.options.variant), MOST_NAME)
