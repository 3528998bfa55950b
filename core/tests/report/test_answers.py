"""Results as Python shows them: in a line, as a page of text, and as HTML in a notebook."""

from __future__ import annotations

from html.parser import HTMLParser

import msgspec
import pytest

from dlb.execution.run import Outcome
from dlb.failure import Failure
from dlb.proof.certificate import Baseline, Certificate, CheckResult, Figure
from dlb.proof.findings import Finding
from dlb.proof.findings.common import CannotRun
from dlb.report.answers import COLOURS, NotProven

HOSTILE = "<script>x</script>\"'&\x1b[31m\u202e"


def certificate(
    verdict: str = "passed", name: str = "mlp", tensor: str = "fc1.weight"
) -> Certificate:
    """One check of two adapters; the second has this verdict."""
    checks = [
        CheckResult(
            check="forward float64",
            group="forward",
            adapter=adapter,
            baseline=Baseline(kind="canonical_graph"),
            verdict=own,  # type: ignore[arg-type]
            tolerance=1e-10,
            figures=(
                Figure(tensor=tensor, relative_l2=2e-16 if own == "passed" else 3e-4, largest=0.0),
            ),
        )
        for adapter, own in (("torch", "passed"), ("tf", verdict))
    ]
    frameworks = {"torch": "PyTorch 2.9", "tf": "TensorFlow 2.20"}
    return Certificate(
        workload=name, workload_hash="0", seed=0, adapters=frameworks, checks=tuple(checks)
    )


class Page(HTMLParser):
    """Names of elements that are open and in all, attributes, and the text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.names: list[str] = []
        self.text = ""
        self.feed(page)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert {name for name, _ in attrs} <= {"style", "scope"}
        self.open.append(tag)
        self.names.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def test_a_certificate_is_a_line_a_page_and_a_table() -> None:
    proof = certificate("failed")
    assert repr(proof) == "<Certificate mlp: torch proven, tf deviates>"
    lines = str(proof).splitlines()
    assert lines[:2] == [
        "mlp: torch proven, tf deviates",
        "tf differs first in forward float64: fc1.weight, 3.0e-04 apart",
    ]
    assert lines[2].startswith("  likely: ")
    assert [line.split() for line in lines[-2:]] == [
        ["forward", "float64", "1e-10", "2.0e-16", "3.0e-04", "failed"],
        ["proof", "proven", "deviates"],
    ]
    page = Page(proof._repr_html_())
    assert page.names.count("table") == 1 and page.names.count("th") == 4
    assert "tf differs first in forward float64: fc1.weight" in page.text


@pytest.mark.parametrize(
    ("proof", "line", "good"),
    [
        (certificate(), "mlp: torch proven, tf proven", True),
        (certificate("failed"), "mlp: torch proven, tf deviates", False),
        (certificate("not run"), "mlp: torch proven, tf unproven", None),
        (
            msgspec.structs.replace(certificate(), checks=()),
            "mlp: nothing was checked",
            None,
        ),
    ],
)
def test_the_bar_says_whether_it_is_good(proof: Certificate, line: str, good: bool | None) -> None:
    assert proof.answer().line == line and proof.answer().good is good
    assert f"4px solid {COLOURS[good]};" in proof._repr_html_()
    assert proof.agrees is (good is True)


def luminance(colour: str) -> float:
    """Relative luminance, as WCAG 2 defines it."""
    parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    red, green, blue = (
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@pytest.mark.parametrize("colour", COLOURS.values())
@pytest.mark.parametrize("ground", ["#ffffff", "#111111"])
def test_the_bar_is_seen_in_light_and_in_dark(colour: str, ground: str) -> None:
    """3 to 1, which WCAG 2 asks of what is no text. Text and lines have the page's own colours."""
    low, high = sorted((luminance(colour), luminance(ground)))
    assert (high + 0.05) / (low + 0.05) >= 3
    style = certificate()._repr_html_()
    assert "background" not in style and style.count("#") == 1


def test_what_strangers_wrote_is_text() -> None:
    failure = Failure(kind="WorkerDied", message=HOSTILE)
    proof = msgspec.structs.replace(
        certificate("failed", HOSTILE, HOSTILE), failures={"tf": failure}
    )
    proof = msgspec.structs.replace(
        proof, checks=(*proof.checks, msgspec.structs.replace(proof.checks[0], verdict="not run",
            findings=(Finding(cause=CannotRun(failure=failure)),)))
    )  # fmt: skip
    page = Page(proof._repr_html_())
    assert set(page.names) <= {"div", "p", "strong", "table", "caption", "tr", "th", "td"}
    assert page.text.count("<script>") > 3
    for text in (repr(proof), str(proof), str(NotProven(proof)), proof._repr_html_()):
        assert "\x1b" not in text and "\u202e" not in text and "\\u001b" in text


def test_an_outcome_says_what_its_certificate_says() -> None:
    outcome = Outcome([], certificate())
    assert repr(outcome) == "<Outcome mlp: torch proven, tf proven>"
    assert outcome._repr_html_() == certificate()._repr_html_()
