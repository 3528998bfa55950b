"""Texts and numbers of documents that may come from strangers, as safe text of bounded length."""

from __future__ import annotations

import math
from typing import Any

from dlb.printable import UNSEEN

__all__ = ["finite", "number_text", "plain"]

MOST_CHARACTERS = 200


def plain(value: Any, most: int = MOST_CHARACTERS) -> str:
    """A value as one line: what cannot be seen is replaced by U+FFFD, and a long text is cut."""
    try:
        text = value if isinstance(value, str) else str(value)
    except ValueError:  # an integer of thousands of digits
        text = "a number of thousands of digits"
    # Cut first: the text may be very long.
    if len(text) > most:
        text = f"{text[: most - most // 2]} … {text[len(text) - most // 2 :]}"
    return UNSEEN.sub(lambda found: " " if found[0] in "\t\n\r" else "\ufffd", text)


def finite(value: Any) -> float | None:
    """A number as a float; None if it is none, or not finite."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def number_text(value: Any, digits: int = 4) -> str:
    """A number with so many significant digits, ``-`` if there is none."""
    number = finite(value)
    if number is None:
        return "-"
    if isinstance(value, int) and abs(value) < 1e9:
        return f"{value:,}"
    if number and not 1e-4 <= abs(number) < 1e7:
        return f"{number:.{max(0, digits - 1)}e}"
    whole = len(f"{abs(number):.0f}")
    decimals = max(0, digits - whole) if abs(number) >= 1 else digits
    text = f"{number:,.{decimals}f}"
    return text.rstrip("0").rstrip(".") if "." in text and abs(number) < 1 else text
