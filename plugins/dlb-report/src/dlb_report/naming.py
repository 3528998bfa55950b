"""Names of what a page compares, each with its status, and a look that stays the same in all charts."""

from __future__ import annotations

from dataclasses import dataclass, field

from dlb.proof.certificate import with_variant
from dlb.record import Record
from dlb.report.plain import plain
from dlb_measure.results.compared import framework_names
from dlb_report.charts import STYLES
from dlb_report.sources import Measured

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
    names = framework_names(measured.measurement, versions=True)
    return [plain(name, MOST_NAME) for name in names]


def run_title(record: Record) -> str:
    """A framework with its variant."""
    framework = f"{record.framework} {record.framework_version}".strip() or record.adapter
    return plain(with_variant(framework, record.options.variant), MOST_NAME)
