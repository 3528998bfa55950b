"""Markdown, LaTeX, and the charts as files."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest
from example_results import ordinary

import dlb_report
from dlb.errors import RequestError
from dlb.report.common import shortened


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return ordinary(tmp_path_factory.mktemp("forms") / "results")


def test_markdown(folder: Path) -> None:
    text = dlb_report.make_report(folder, form="markdown")
    lines = text.splitlines()
    assert lines[0] == "# lenet5: TensorFlow takes 1.310 times PyTorch's time; both proven"
    assert any(line.startswith("- TensorFlow 2.0 is 31") for line in lines)
    tables = [line for line in lines if line.startswith("|")]
    assert "| tf | 1.3" in text and "| 23.58 |" in text and "--:" in text
    assert {line.count("|") for line in tables[:4]} == {11}


def test_latex(folder: Path) -> None:
    text = dlb_report.make_report(folder, form="latex")
    assert text.count(r"\begin{tabular}") == text.count(r"\end{tabular}") >= 3
    assert r"\toprule" in text and r"95\% intervals" in text
    assert r"  \item TensorFlow 2.0 is 31" in text
    labels = re.findall(r"\\label\{tab:([a-z0-9-]+)\}", text)
    assert len(labels) == len(set(labels)) == text.count(r"\begin{table}")
    assert re.search(
        r"\\begin\{tabular\}\{l S\[table-format=1\.3\] l l l S\[table-format=2\.2\]", text
    )


def test_charts_as_files(folder: Path, tmp_path: Path) -> None:
    dlb_report.make_report(folder, plots=tmp_path / "plots")
    found = sorted((tmp_path / "plots").glob("*.svg"))
    assert {"ratios-1.svg", "steps-1-1.svg", "proof-1.svg"} <= {path.name for path in found}
    for path in found:
        drawing = ElementTree.parse(path).getroot()
        assert drawing.tag == "{http://www.w3.org/2000/svg}svg"
        assert "var(" not in path.read_text()
    pytest.importorskip("resvg_py")
    image = (tmp_path / "plots" / "ratios-1.png").read_bytes()
    assert image.startswith(b"\x89PNG")
    pytest.importorskip("typst")
    for path in found:
        assert path.with_suffix(".pdf").read_bytes().startswith(b"%PDF-")


def test_the_file_is_written_whole(folder: Path, tmp_path: Path) -> None:
    text = dlb_report.make_report(folder, tmp_path / "r.html")
    assert (tmp_path / "r.html").read_text(encoding="utf-8") == text
    for path in (tmp_path / "no" / "r.html", tmp_path):
        with pytest.raises(RequestError, match="cannot write"):
            dlb_report.make_report(folder, path)
    dlb_report.make_report(folder, "/dev/null", form="latex")
    assert Path("/dev/null").is_char_device()


def test_a_long_list_is_shown_by_its_beginning() -> None:
    assert shortened(tuple(range(12))) == tuple(range(12))
    assert shortened(tuple(range(832))) == "(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, ... 832 in all)"
