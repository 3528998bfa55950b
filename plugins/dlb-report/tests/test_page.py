"""The page of a report: what it says, that it loads nothing, and that strangers' texts do no harm."""

from __future__ import annotations

import base64
import csv
import gzip
import hashlib
import io
import re
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from example_results import HARMS, certificate, hostile, measure, ordinary, run

import dlb_report
from dlb.errors import RequestError, UnknownNameError
from dlb_report.writing import write_report


class Page(HTMLParser):
    """What a browser would see of a page: elements, texts and the addresses in it."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str]] = []
        self.links: dict[str, str] = {}
        self.texts: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]
        named = dict(attrs)
        if named.get("download"):
            self.links[str(named["download"])] = str(named["href"])

    def handle_data(self, data: str) -> None:
        self.texts.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.texts).split())

    def table(self, name: str) -> list[dict[str, str]]:
        """The rows of a file for downloading."""
        compressed = f"{name}.gz" in self.links
        link = self.links[f"{name}.gz" if compressed else name]
        content = base64.b64decode(link.partition(",")[2])
        content = gzip.decompress(content) if compressed else content
        return list(csv.DictReader(io.StringIO(content.decode())))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return ordinary(tmp_path_factory.mktemp("ordinary") / "results")


@pytest.fixture(scope="module")
def page(folder: Path) -> Page:
    return Page(dlb_report.make_report(folder))


def test_the_summary_comes_first_in_words(page: Page) -> None:
    text = page.text
    sentence = r"(N)% slower proven (N)% to (N)%: TensorFlow 2\.0 than PyTorch 2\.0 4 rounds"
    said = re.search(sentence.replace("N", r"\d+(?:\.\d)?"), text)
    assert said is not None and float(said[2]) < float(said[1]) < float(said[3])
    answer = "lenet5: TensorFlow takes 1.310 times PyTorch's time (1.305 to 1.314); both proven."
    assert text[: said.start()].count(answer) == 1
    assert said.start() < text.index("Step times in rounds")


def test_every_section_is_there(page: Page) -> None:
    found = {value for name, value in page.attributes if name == "id"}
    assert found >= {
        "summary", "ratios", "steps", "throughput", "peak", "training", "resources", "proof", "audit", "runs",
        "provenance", "results",
    }  # fmt: skip
    assert page.tags.count("svg") > 10 and page.tags.count("table") > 8


def test_every_chart_has_its_data(page: Page) -> None:
    ratios = page.table("ratios-1.csv")
    assert [row["word"] for row in ratios] == ["", "slower"]
    assert float(ratios[1]["low"]) < 1.31 < float(ratios[1]["high"])
    steps = page.table("steps-1.csv")
    assert len(steps) == 12 * 60 and {row["disturbed"] for row in steps} == {"0", "1"}
    assert {row["kind"] for row in page.table("training-1.csv")} == {"loss", "test"}
    assert {row["series"] for row in page.table("resources-1.csv")} == {
        "resources/cores",
        "resources/memory_bytes",
    }
    assert len(page.table("proof-1.csv")) in (4, 8)
    assert len(page.table("results.csv")) == 4
    trials = page.table("trials-1.csv")
    assert len(trials) == 12 and float(trials[0]["forward_seconds"]) == pytest.approx(0.0054)
    (first, second) = page.table("peak-1.csv")
    assert float(first["share_of_product"]) > float(second["share_of_product"]) > 0.2


def test_it_loads_nothing(page: Page, folder: Path) -> None:
    text = dlb_report.make_report(folder)
    for name, value in page.attributes:
        if name in ("src", "href", "action", "data", "xlink:href", "poster", "background"):
            assert value.startswith(("#", "data:text/csv", "data:application/gzip")), (name, value)
        assert not name.startswith("on") and name != "style"
    assert not {"link", "img", "iframe", "object", "embed", "base"} & set(page.tags)
    assert re.findall(r"url\((?!#)|@import", text) == []
    policy = re.search(r'Content-Security-Policy" content="([^"]+)"', text)
    assert (policy is not None and policy[1].startswith("default-src &#39;none&#39;")) or policy
    for tag in ("script", "style"):
        inline = re.findall(rf"<{tag}>(.*?)</{tag}>", text, re.S)
        assert len(inline) == 1
        digest = base64.b64encode(hashlib.sha256(inline[0].encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}'" in policy[1]
    assert len(text.encode()) < 1_000_000


def test_what_is_not_proven_says_so_at_every_figure(tmp_path: Path) -> None:
    folder = ordinary(tmp_path / "results", deviates="tf")
    text = Page(dlb_report.make_report(folder)).text
    assert "TensorFlow 2.0 (deviates)" in text
    assert re.search(
        r"% slower deviates [\d.% to]+: TensorFlow 2\.0 \(deviates\) than PyTorch 2\.0 4 rounds",
        text,
    )
    assert (
        "lenet5: Not proven: TensorFlow (deviates). TensorFlow takes 1.310 times PyTorch's" in text
    )
    assert "tf differs first in forward float64" in text
    below = text.partition("Step times in rounds")[2]
    named = re.findall(r"TensorFlow 2\.0(?! \(deviates\)).{80}", below)
    # The strip of the proof has the status before the name, the table of runs in its last column.
    assert re.search(r"deviates TensorFlow 2\.0: 1 failed, 3 passed", below)
    assert len(named) == 2 and "deviates" in named[1]


def changed(folder: Path, change: Callable[[dict[str, Any]], None]) -> str:
    """The page of a measurement whose document was changed."""
    records = [run(folder, each, certificate(["torch", "tf"])) for each in ("torch", "tf")]
    measure(folder, records, [0.018, 0.0236], change=change)
    return dlb_report.make_report(folder)


def slower_here_and_faster_there(document: dict[str, Any]) -> None:
    for trial in document["trials"]:
        if trial["cell"] == 1:
            trial["median"] *= 0.5 if trial["round"] % 2 else 1.3


def disturbed(document: dict[str, Any]) -> None:
    slower_here_and_faster_there(document)
    for trial in document["trials"]:
        trial["disturbed"] = True


def interrupted(document: dict[str, Any]) -> None:
    document["ended"], document["rounds"] = "interrupted", 9


def of_one_round(document: dict[str, Any]) -> None:
    document["trials"] = [each for each in document["trials"] if each["round"] == 0]


@pytest.mark.parametrize(
    ("change", "title", "says"),
    [
        (
            slower_here_and_faster_there,
            "TensorFlow and PyTorch cannot be told apart; both proven",
            "the interval holds 1; more rounds (--rounds) make it narrower",
        ),
        (
            disturbed,
            "TensorFlow and PyTorch cannot be told apart",
            "other work used the cores in 12 of 12 trials; measure again on a quiet machine",
        ),
        (
            of_one_round,
            "TensorFlow took 1.31 times PyTorch's time in one round",
            "one round has no interval",
        ),
        (
            interrupted,
            "TensorFlow takes 1.310 times PyTorch's time",
            "4 of 9 rounds; the same command",
        ),
    ],
)
def test_what_cannot_be_told_apart_says_why(
    tmp_path: Path, change: Callable[[dict[str, Any]], None], title: str, says: str
) -> None:
    text = changed(tmp_path, change)
    page = Page(text)
    assert f"lenet5: {title}" in page.text and says in page.text
    alerts = re.search(r'<div class="alerts".*?</div>', text, re.S)
    assert (alerts is not None) == (change in (disturbed, interrupted))
    if alerts is not None:
        assert text.index("<h1>") < alerts.start() < text.index('id="summary"')
    assert page.text.count("other work used the cores") <= 2  # the alert, and why it is unclear


def test_one_thing_has_one_median(folder: Path, page: Page) -> None:
    expected = [float(row["seconds"]) for row in page.table("ratios-1.csv")]
    text = dlb_report.make_report(folder)
    shown = re.findall(r">(\d+\.\d\d) ms</text>", text)
    assert [f"{each * 1e3:.2f}" for each in expected] == shown
    tables = re.findall(r"<table>.*?</table>", text, re.S)
    for title, column in (("95% intervals</span>", 4), ("Times of steady steps, ms</span>", 1)):
        table = next(each for each in tables if title in each)
        rows = re.findall(r"<tr><th scope=\"row\".*?</tr>", table, re.S)
        cells = [re.findall(r"<td[^>]*>([^<]*)</td>", row) for row in rows]
        assert [each[column] for each in cells] == shown, title


def test_small_multiples_have_one_scale_and_one_legend(folder: Path) -> None:
    text = dlb_report.make_report(folder)
    scales = re.findall(r'id="steps-1-\d".*?data-y="([^"]+)"', text)
    assert len(scales) == 2 and len(set(scales)) == 1
    assert text.count("before the steady state, left out</span>") == 1


def test_the_ratio_is_in_the_first_columns_and_the_proof_in_one_strip(folder: Path) -> None:
    text = dlb_report.make_report(folder)
    head = re.search(r"<thead>.*?</thead>", text.partition('id="ratios"')[2], re.S)
    assert head is not None
    columns = re.findall(r">([^<>\n]+)</th>", head[0])
    assert columns[:5] == ["adapter", "times torch", "interval", "proof", "result"]
    proof = text.partition('id="proof"')[2].partition("</section>")[0]
    strip, _, folded = proof.partition("<details>")
    assert re.findall('status good">([a-z]+)', strip) == ["proven"], "of the run that comes last"
    assert "4 passed" in strip and "<table" not in strip
    assert "<table" in folded and 'id="proof-1"' in folded


def test_folders_are_compared(tmp_path: Path) -> None:
    one, other = ordinary(tmp_path / "before"), tmp_path / "after"
    other.mkdir()
    proof = certificate(["torch", "tf"])
    records = [run(other, each, proof, place) for place, each in enumerate(["torch", "tf"])]
    measure(other, records, [0.018, 0.0118])
    text = Page(dlb_report.make_report([one, other])).text
    assert re.search(
        r"(2\.\d+ times as slow|(99|100)(\.\d)?% slower) proven [\d.% to]+: TensorFlow 2\.0 in before "
        r"(as|than) TensorFlow 2\.0 in after",
        text,
    )
    assert "PyTorch 2.0 in after is as fast as PyTorch 2.0 in before, within 1%" in text
    assert "after next to before" in text


def test_folders_of_two_machines_have_no_ratio(tmp_path: Path) -> None:
    one, other = ordinary(tmp_path / "a"), tmp_path / "b"
    other.mkdir()
    records = [run(other, "torch", certificate(["torch"]))]

    def elsewhere(document: dict) -> None:  # type: ignore[type-arg]
        document["machine"]["cpu"] = "another processor"

    measure(other, records, [0.01], change=elsewhere)
    text = Page(dlb_report.make_report([one, other])).text
    assert "From two machines, so that no ratio is shown" in text
    assert not re.search(r"in [ab] (than|as) ", text)


def test_what_is_shown_of_many_is_said(tmp_path: Path) -> None:
    folder = ordinary(tmp_path / "results")
    for place in range(3):
        run(folder, "torch", certificate(["torch"]), 10 + place)
    text = Page(dlb_report.make_report(folder, limit=1)).text
    assert re.search(r"1 measurement and 6 runs; shown in detail: the last \d runs? ", text)
    assert "; shown in detail: " not in Page(dlb_report.make_report(folder, limit=200)).text


def test_one_document(folder: Path) -> None:
    (path,) = (folder / "measurements").glob("*.json")
    text = Page(dlb_report.make_report(path)).text
    assert "% slower" in text and "forward float64" in text
    record = next(folder.glob("*torch*.json"))
    assert "18" in Page(dlb_report.make_report(record)).text


def test_strangers_do_no_harm(tmp_path: Path) -> None:
    folder = hostile(tmp_path / "results")
    with pytest.warns(UserWarning, match="is skipped"):
        text = dlb_report.make_report(folder, limit=50)
    page = Page(text)
    assert page.tags.count("script") == 1 and page.tags.count("style") == 1
    assert not {"img", "iframe"} & set(page.tags)
    assert not any(name.startswith("on") for name, _ in page.attributes)
    assert all(
        value.startswith(("#", "data:text/csv", "data:application/gzip"))
        for name, value in page.attributes
        if name == "href"
    )
    assert HARMS in page.text, "it is shown, as text"
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", text)
    assert "x" * 2500 not in text and len(text.encode()) < 5_000_000
    assert "not-json.json is skipped" in page.text and "deep.json is skipped" in page.text
    assert (
        "many-digits.json is skipped: not a record: an integer has more than 64 bits" in page.text
    )
    for row in page.table("results.csv"):
        assert not row["workload"].startswith("=")
    for form in ("markdown", "latex"):
        with pytest.warns(UserWarning):
            written = dlb_report.make_report(folder, form=form, limit=50)
        assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e]", written)
        assert "<script>" not in written
        assert not re.search(r"(?<!\\)\\(input|end\{document)|\n# heading", written)
        assert form == "latex" or "[link](" not in written


def test_few_points_and_rows_where_many_do_not_fit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = ordinary(tmp_path / "results")
    whole = dlb_report.make_report(folder)
    most = len(whole.encode()) - 1000
    monkeypatch.setattr("dlb_report.html.MOST_BYTES", most)
    text = dlb_report.make_report(folder)
    assert len(text.encode()) <= most and "% slower" in text
    line = re.compile(r'id="steps-1-1".*?class="line[^>]* d="([^"]+)"', re.S)
    assert len(line.search(text)[1]) < len(line.search(whole)[1])  # type: ignore[index]
    monkeypatch.setattr("dlb_report.html.MOST_BYTES", 10_000)
    assert "the page would be too large" in dlb_report.make_report(folder)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"paths": ["nowhere"]}, "no results folder"),
        ({"condition": "thread=2"}, "did you mean 'threads'"),
        ({"condition": "threads=77"}, "no results that the filter chooses"),
        ({"baseline": "jax"}, "jax"),
        ({"form": "pdf"}, "choose from html"),
        ({"paths": []}, "no results"),
    ],
)
def test_bad_requests(folder: Path, change: dict, says: str) -> None:  # type: ignore[type-arg]
    paths = [Path(each) for each in change.pop("paths", [folder])]
    with pytest.raises((RequestError, UnknownNameError), match=re.escape(says)):
        write_report(paths, **change)


def test_the_filter_and_the_baseline(folder: Path) -> None:
    text = Page(dlb_report.make_report(folder, condition="batch_size=128")).text
    assert "% slower" not in text and "batch size 128" in text
    text = Page(dlb_report.make_report(folder, baseline="tf", title="My title")).text
    assert "Time of a step as a multiple of TensorFlow 2.0" in text and "My title" in text
