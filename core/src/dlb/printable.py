"""Text of strangers on its way out: to a terminal, which obeys control characters, or to a spreadsheet."""

from __future__ import annotations

import re
from typing import Any

__all__ = ["UNSEEN", "cell", "printable"]

#: Control characters, those that change the direction of writing or have no width, halves of surrogate pairs.
UNSEEN = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\ud800-\udfff]"
)
#: A spreadsheet takes a text that begins so for a formula.
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def printable(text: str) -> str:
    """The text with what cannot be seen as ``\\uXXXX``, which means the same in JSON; lines and tabs stay."""
    return UNSEEN.sub(
        lambda found: found[0] if found[0] in "\n\t" else f"\\u{ord(found[0]):04x}", text
    )


def cell(value: Any) -> Any:
    """A value as a cell of a CSV file: a number as it is, a text that is no formula of a spreadsheet."""
    if not isinstance(value, str):
        return value
    text = printable(value)
    return f"'{text}" if value.startswith(_FORMULA) else text
