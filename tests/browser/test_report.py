"""The report in a browser: on a telephone and a desk, light and dark, with its script and without."""

from __future__ import annotations

import csv
import gzip
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page

from conftest import Watched

TELEPHONE, DESK = {"width": 390, "height": 844}, {"width": 1440, "height": 900}
SIZES = {"telephone": TELEPHONE, "desk": DESK}
NAMES = ("ordinary", "two", "hostile")


@pytest.mark.parametrize(
    ("name", "size", "scheme"),
    [
        ("ordinary", "telephone", "light"),
        ("ordinary", "telephone", "dark"),
        ("ordinary", "desk", "light"),
        ("ordinary", "desk", "dark"),
        ("two", "desk", "light"),
        ("hostile", "telephone", "dark"),
        ("hostile", "desk", "light"),
    ],
)
def test_it_is_shown(
    browser: Browser, pages: dict[str, Path], name: str, size: str, scheme: str
) -> None:
    with browser.new_context(viewport=SIZES[size], color_scheme=scheme) as context:  # type: ignore[arg-type]
        page = context.new_page()
        watched = Watched(page, pages[name])
        page.wait_for_selector("svg.plot")
        assert page.evaluate("window.harmed") is None
        # Nothing is wider than the window; wide tables scroll in themselves.
        assert page.evaluate("document.documentElement.scrollWidth") <= SIZES[size]["width"]
        dark = page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert (dark == "rgb(14, 19, 26)") == (scheme == "dark")
        found = Axe().run(page)
        serious = [
            f"{each['id']}: {each['nodes'][0]['html'][:200]}"
            for each in found.response["violations"]
            if each["impact"] in ("serious", "critical")
        ]
        assert serious == []
        assert watched.is_quiet()


def test_the_colours_are_a_choice(browser: Browser, pages: dict[str, Path]) -> None:
    with browser.new_context(viewport=DESK, color_scheme="light") as context:  # type: ignore[arg-type]
        page = context.new_page()
        watched = Watched(page, pages["ordinary"])
        for name, colour in (
            ("Dark", "rgb(14, 19, 26)"),
            ("Light", "rgb(244, 245, 247)"),
            ("Auto", "rgb(244, 245, 247)"),
        ):
            page.get_by_text(name, exact=True).click()
            assert page.get_by_label(name).is_checked()
            assert page.evaluate("getComputedStyle(document.body).backgroundColor") == colour
        page.get_by_text("Dark", exact=True).click()
        page.reload()
        assert page.get_by_label("Dark").is_checked(), "the choice is kept"
        assert watched.is_quiet()


@pytest.mark.parametrize("size", SIZES)
def test_every_control_works(browser: Browser, pages: dict[str, Path], size: str) -> None:
    with browser.new_context(viewport=SIZES[size]) as context:  # type: ignore[arg-type]
        page = context.new_page()
        watched = Watched(page, pages["ordinary"])
        for link in page.locator(".bar nav a").all():
            link.click()
            assert page.locator(link.get_attribute("href") or "").is_visible()
        for folded in page.locator("main summary").all():
            folded.click()
        assert page.locator("details:not([open])").count() == 0
        _sort(page)
        _hide_lines(page)
        _choose_part(page)
        assert watched.is_quiet()


def _sort(page: Page) -> None:
    table = page.locator("#ratios table").first
    head = table.locator("thead th").filter(has_text="median ms")
    for order, first in (("ascending", "torch"), ("descending", "tf")):
        head.get_by_role("button").click()
        assert head.get_attribute("aria-sort") == order
        assert table.locator("tbody tr").first.locator("th").inner_text() == first


def _hide_lines(page: Page) -> None:
    figure = page.locator("figure:has(#loss-2)")
    button = figure.locator(".legend button").first
    assert button.get_attribute("aria-pressed") == "true"
    button.click()
    assert button.get_attribute("aria-pressed") == "false"
    assert figure.locator(".line.off").count() >= 1
    button.click()
    assert figure.locator(".line.off").count() == 0


def _choose_part(page: Page) -> None:
    plot = page.locator("#steps-1-1")
    plot.scroll_into_view_if_needed()
    figure = page.locator("figure:has(#steps-1-1)")
    box = plot.locator(".stretched").bounding_box()
    assert box is not None
    middle = box["y"] + box["height"] / 2
    page.mouse.move(box["x"] + box["width"] * 0.25, middle)
    tip = figure.locator(".tip")
    assert tip.is_visible() and "PyTorch 2.0: " in tip.inner_text()
    before = plot.locator(".xs text").all_inner_texts()
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.6, middle, steps=4)
    page.mouse.up()
    assert plot.locator(".stretched").get_attribute("viewBox") != "0 0 10000 10000"
    assert plot.locator(".xs text").all_inner_texts() != before
    whole = figure.get_by_role("button", name="Whole width")
    whole.click()
    assert plot.locator(".stretched").get_attribute("viewBox") == "0 0 10000 10000"
    assert plot.locator(".xs text").all_inner_texts() == before
    assert not whole.is_visible()


def test_the_keyboard_reaches_all(browser: Browser, pages: dict[str, Path]) -> None:
    with browser.new_context(viewport=DESK) as context:  # type: ignore[arg-type]
        page = context.new_page()
        watched = Watched(page, pages["ordinary"])
        reached = set()
        for _ in range(60):
            page.keyboard.press("Tab")
            reached.add(page.evaluate("document.activeElement.tagName"))
        assert {"A", "INPUT", "BUTTON", "SUMMARY", "DIV"} <= reached
        assert watched.is_quiet()


def test_many_rows_are_searched(browser: Browser, tmp_path: Path) -> None:
    from example_results import certificate, run

    import dlb_report

    for number in range(30):
        adapter = "torch" if number % 3 else "tf"
        run(tmp_path, adapter, certificate([adapter]), number)
    dlb_report.make_report(tmp_path, tmp_path / "r.html", limit=2)
    with browser.new_context(viewport=DESK) as context:  # type: ignore[arg-type]
        page = context.new_page()
        watched = Watched(page, tmp_path / "r.html")
        section = page.locator("#results")
        section.locator("summary").click()
        section.get_by_label("Search these rows").fill("lenet5 tf")
        assert section.locator("tbody tr:visible").count() == 10
        assert watched.is_quiet()


@pytest.mark.parametrize("script", [True, False])
def test_the_data_are_files(
    browser: Browser, pages: dict[str, Path], tmp_path: Path, script: bool
) -> None:
    context = browser.new_context(viewport=DESK, java_script_enabled=script, accept_downloads=True)  # type: ignore[arg-type]
    with context:
        page = context.new_page()
        watched = Watched(page, pages["ordinary"])
        names = {link.get_attribute("download") for link in page.locator("a[download]").all()}
        assert {"ratios-1.csv", "trials-1.csv", "results.csv", "steps-1.csv.gz"} <= names
        for name in ("ratios-1.csv", "steps-1.csv.gz"):
            with page.expect_download() as started:
                page.locator(f"a[download='{name}']").click()
            path = tmp_path / name
            started.value.save_as(path)
            content = path.read_bytes()
            content = gzip.decompress(content) if name.endswith(".gz") else content
            rows = list(csv.DictReader(content.decode().splitlines()))
            assert {row["name"] for row in rows} >= {"PyTorch 2.0", "TensorFlow 2.0"}
        assert [each for each in watched.requests if not each.startswith("data:")] == []


@pytest.mark.parametrize("name", NAMES)
def test_without_its_script(browser: Browser, pages: dict[str, Path], name: str) -> None:
    with browser.new_context(viewport=TELEPHONE, java_script_enabled=False) as context:  # type: ignore[arg-type]
        page = context.new_page()
        watched = Watched(page, pages[name])
        assert page.locator("#summary .cards li").count() >= 1
        assert page.locator("table").count() > 8
        assert page.locator("svg.plot").first.is_visible()
        assert page.locator("svg.plot path.line").count() > 4
        page.locator("main summary").first.click()
        assert page.locator("details[open] table").first.is_visible()
        page.get_by_text("Dark", exact=True).click()
        assert page.get_by_label("Dark").is_checked()
        assert watched.is_quiet()


def test_it_is_printed(browser: Browser, pages: dict[str, Path]) -> None:
    with browser.new_context(
        viewport={"width": 760, "height": 1000}, color_scheme="dark"
    ) as context:
        page = context.new_page()
        Watched(page, pages["ordinary"])
        assert page.pdf(format="A4").startswith(b"%PDF")
        page.emulate_media(media="print")
        assert (
            page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
        )
        assert not page.locator(".bar").is_visible()
        assert page.evaluate("document.documentElement.scrollWidth") <= 760
