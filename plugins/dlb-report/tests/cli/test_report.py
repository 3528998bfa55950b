"""``dlb report``: a page of what was really run and measured."""

from __future__ import annotations

import base64
import gzip
import re

import numpy as np
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
    assert text.startswith("# ") and "| result |" in text and "| proof |" in text
    (dlb.out / "notes.json").write_text("{}")
    done = dlb("report", dlb.out, "--format", "latex", "-o", "r.tex")
    assert done.status == 0 and "notes.json is skipped" in done.err
    assert r"\begin{tabular}" in (dlb.folder / "r.tex").read_text()


def test_no_path_of_the_user_s_folder_is_published(dlb: Dlb) -> None:
    home = str(dlb.folder)
    draw = np.random.RandomState(0)
    images, labels = draw.randint(0, 256, (90, 1, 28, 28)).astype(np.uint8), np.arange(90) % 10
    np.savez(dlb.folder / "mine.npz", inputs=images, labels=labels)
    more = {"HOME": home, "XLA_FLAGS": f"--xla_data={home}/cuda -L{home}/lib"}
    words = ("--data", f"npz:{home}/mine.npz", "--batch-size", 5, "--rounds", 1, "--repeats", 0)
    assert dlb.run(*words, more=more).status == 0
    assert dlb("report", dlb.out, more=more).status == 0
    written = [path for path in dlb.out.rglob("*") if path.suffix == ".json"]
    assert {path.parent.name for path in written} >= {"results", "certificates", "measurements"}
    texts = [path.read_text() for path in (*written, dlb.folder / "report.html")]
    files = re.findall(r"data:(text/csv|application/gzip)[^,]*,([^\"]+)", texts[-1])
    contents = [(kind, base64.b64decode(content)) for kind, content in files]
    texts += [
        (gzip.decompress(each) if "gzip" in kind else each).decode() for kind, each in contents
    ]
    for text in texts:
        assert home not in text
    (record,) = dlb.records().values()
    assert record["data"]["from"].startswith("~/mine.npz (SHA-256")
    assert record["worker"]["variables"]["XLA_FLAGS"] == "--xla_data=~/cuda -L~/lib"
    assert "~/mine.npz" in texts[len(written)]


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
