"""Results as JUnit XML and as Markdown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from xml.etree import ElementTree

from dlb.printable import printable
from dlb.report.answers import Answer
from dlb.report.table import Table
from dlb_measure.tables.typeset import FORMS, joined

__all__ = ["Checked", "junit", "markdown"]


@dataclass(frozen=True)
class Checked:
    """What was found of one file.

    Attributes:
        file: its path.
        what: ``diff`` or ``verify``.
        answer: what the certificate says; None if there is none.
        passed: whether that is as it should be.
        error: why there is no certificate, in one line.
        skipped: why nothing was checked.
        seconds: how long it took.
    """

    file: str
    what: str
    answer: Answer | None = None
    passed: bool = False
    error: str = ""
    skipped: str = ""
    seconds: float = 0.0

    @property
    def word(self) -> str:
        """``passed``, ``failed``, ``error`` or ``not checked``."""
        if self.skipped:
            return "not checked"
        return "error" if self.error else "passed" if self.passed else "failed"

    @property
    def line(self) -> str:
        """What was found, in one line."""
        return self.answer.line if self.answer else self.error or self.skipped

    @property
    def reasons(self) -> list[str]:
        """The first wrong places and their likely causes, a line each, of what did not pass."""
        found = self.answer.reasons if self.answer and not self.passed else ()
        return [reason.strip() for reason in found]


def junit(results: Sequence[Checked]) -> bytes:
    """A document as most services read it: a test case for each file."""
    words = [each.word for each in results]
    suite = ElementTree.Element("testsuite", name="dlb", tests=str(len(results)))
    for name, word in (("failures", "failed"), ("errors", "error"), ("skipped", "not checked")):
        suite.set(name, str(words.count(word)))
    suite.set("time", f"{sum(each.seconds for each in results):.3f}")
    names = {"failed": "failure", "error": "error", "not checked": "skipped"}
    for each in results:
        case = ElementTree.SubElement(suite, "testcase", classname=f"dlb.{each.what}")
        case.set("name", printable(each.file))
        case.set("time", f"{each.seconds:.3f}")
        if name := names.get(each.word, ""):
            part = ElementTree.SubElement(case, name, message=printable(each.line))
            part.text = each.answer.text() if each.answer else printable(each.line)
    suites = ElementTree.Element("testsuites")
    suites.append(suite)
    return bytes(ElementTree.tostring(suites, encoding="utf-8", xml_declaration=True))


def markdown(results: Sequence[Checked]) -> str:
    """A table of files, and of each that did not pass the reasons and the checks."""
    form = FORMS["markdown"]
    rows = [[each.file, each.what, each.word, each.line] for each in results]
    lines = form.heading("dlb", 2)
    if not rows:
        lines += form.paragraph("No ONNX file and no workload changed.")
        return joined(lines)
    lines += form.table(Table(["file", "command", "", "what was found"], rows))
    for each in results:
        if each.answer is not None and not each.passed:
            lines += form.heading(each.file, 3)
            lines += form.items([reason.strip() for reason in each.answer.reasons])
            lines += [line for table in each.answer.tables for line in form.table(table)]
    return joined(lines)
