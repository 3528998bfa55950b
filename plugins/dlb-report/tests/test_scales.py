"""Scales: every value has a place, whatever it is."""

from __future__ import annotations

import math
from xml.etree import ElementTree

import numpy as np
import pytest
from example_results import HOSTILE
from hypothesis import given
from hypothesis import strategies as st

from dlb.report.plain import number_text, plain
from dlb_report.curves import Curve, curves_chart
from dlb_report.html import chart_markup
from dlb_report.scales import make_scale, thinned

ANY = st.floats(allow_nan=True, allow_infinity=True)


@given(st.lists(ANY, max_size=20), ANY, st.booleans(), st.booleans())
def test_every_value_has_a_place(values: list[float], value: float, log: bool, zero: bool) -> None:
    scale = make_scale(values, log=log, zero=zero)
    assert math.isfinite(scale.low) and math.isfinite(scale.high) and scale.low < scale.high
    assert 0.0 <= scale.at(value) <= 1.0
    assert len(scale.ticks) <= 12 and all(len(text) <= 12 for _, text in scale.ticks)
    for each in values:
        if abs(each) < 1e100 and (each > 1e-100 or not scale.log):
            assert scale.low <= each <= scale.high


@pytest.mark.parametrize(
    ("low", "high", "log", "ticks"),
    [
        (0, 100, False, ["0", "20", "40", "60", "80", "100"]),
        (0.1, 0.35, False, ["0.10", "0.15", "0.20", "0.25", "0.30", "0.35"]),
        (1e-18, 1e-5, True, ["1e-18", "1e-15", "1e-12", "1e-9", "1e-6"]),
        (1, 100, True, ["1", "2", "5", "10", "20", "50", "100"]),
        (1, 1000, True, ["1", "10", "100", "1,000"]),
    ],
)
def test_ticks_are_round(low: float, high: float, log: bool, ticks: list[str]) -> None:
    assert [text for _, text in make_scale([low, high], log=log, padding=0.0).ticks] == ticks


@given(st.lists(ANY, max_size=300), st.integers(2, 50))
def test_thinning_keeps_the_ends_of_each_bucket(values: list[float], most: int) -> None:
    series = np.array(values, np.float64)
    kept = thinned(series, most)
    assert len(kept) <= max(most, 2) and sorted(set(kept)) == list(kept)
    shown = series[np.isfinite(series)]
    if len(shown):
        assert series[kept].min() == shown.min() and series[kept].max() == shown.max()


@given(st.lists(ANY, min_size=1, max_size=30), st.sampled_from(HOSTILE))
def test_a_chart_is_xml_whatever_it_shows(values: list[float], text: str) -> None:
    series = np.array(values, np.float64)
    steps = np.arange(len(series), dtype=np.float64)
    chart = curves_chart("c", text, [Curve(text, 0, steps, series, True)], text, text, 50)
    if chart is not None:
        for width in (None, 700):
            for element in ElementTree.fromstring(chart_markup(chart, width)).iter():
                assert not element.tag.endswith(("script", "image", "a", "foreignObject"))
                assert not any(name.startswith("on") or "href" in name for name in element.attrib)


@given(st.text(), st.integers(1, 50))
def test_plain_text_is_one_line_of_bounded_length(text: str, most: int) -> None:
    shown = plain(text, most)
    assert len(shown) <= most + 3 and not set(shown) & {"\n", "\r", "\x1b", "\x00", "\u202e"}
    if text.isascii() and text.isprintable() and len(text) <= most:
        assert shown == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0"), (12, "12"), (1234.5, "1,234"), (0.12345, "0.1235"), (1e-300, "1.000e-300"), (None, "-"),
        (math.nan, "-"), (math.inf, "-"), (True, "-"), ("x", "-"), (10**400, "-"), (64.591, "64.59"),
    ],
)  # fmt: skip
def test_numbers(value: object, text: str) -> None:
    assert number_text(value) == text
