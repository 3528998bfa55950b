"""``dlb report``: a page of what was really run and measured."""

from __future__ import annotations

import pytest
from dlb_process import Dlb


def test_a_report_of_a_run_and_a_measurement(dlb: Dlb) -> None:
    assert dlb.run("--rounds", 2, "--repeats", 0, "--test-every", 5).status == 0
    done = dlb("report", dlb.out, "--plots", "plots")
    assert done.status == 0 and done.err == "" and "Report: report.html" in done.out
    page = (dlb.folder / "report.html").read_text(encoding="utf-8")
    for said in ("Content-Security-Policy", "Training loss by step", "Test accuracy by step"):
        assert said in page
    for said in ("Cores in use over time", "forward float64", "audit, steps", "2 rounds"):
        assert said in page
    assert list((dlb.folder / "plots").glob("*.svg"))
    text = dlb("report", dlb.out, "--format", "markdown").out
    assert text.startswith("# Report on ") and "| proof |" in text
    (dlb.out / "notes.json").write_text("{}")
    done = dlb("report", dlb.out, "--format", "latex", "-o", "r.tex")
    assert done.status == 0 and "notes.json is skipped" in done.err
    assert r"\begin{tabular}" in (dlb.folder / "r.tex").read_text()


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("nowhere",), "nowhere: no results folder"),
        ((), "dlb-results: no results folder"),
        ((".",), "there are no results"),
        ((".", "."), "the same results twice"),
        ((".", "--filter", "thread=2"), "did you mean 'threads'"),
        ((".", "--format", "pdf"), "'pdf'"),
    ],
)
def test_bad_requests(dlb: Dlb, words: tuple[str, ...], says: str) -> None:
    ended = dlb("report", *words)
    assert ended.status == 2 and says in ended.complaint
    assert not (dlb.folder / "report.html").exists()
