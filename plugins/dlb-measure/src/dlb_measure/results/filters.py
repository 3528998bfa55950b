"""Conditions on results, such as ``workload=lenet5 and (threads=2 or threads=4)``, as SQL."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from dlb.errors import RequestError, UnknownNameError

__all__ = ["where"]

#: Comparisons, brackets and words of a condition; SQLite takes some more.
MOST_PARTS = 90
#: ``~``: contains.
_TOKEN = re.compile(
    r"""\s*(?:
        (?P<bracket>[()])
      | (?P<field>[A-Za-z_]+)\s*(?P<comparison><=|>=|!=|=|<|>|~)\s*
        (?P<value>"[^"]*"|'[^']*'|[^\s()"']+)
      | (?P<word>and|or|not)\b
    )""",
    re.VERBOSE,
)


def where(condition: str, columns: Mapping[str, str]) -> tuple[str, tuple[Any, ...]]:
    """A condition as SQL with its values apart.

    Args:
        condition: comparisons of fields (``=``, ``!=``, ``<``, ``<=``, ``>``, ``>=``, ``~`` for "contains"),
            joined by ``and``, ``or``, ``not`` and brackets; true of all if empty.
        columns: SQL types by name of field.

    Raises:
        RequestError: the condition has a wrong form, or an unknown field.
    """
    if not condition.strip():
        return "1", ()
    parts: list[str] = []
    values: list[Any] = []
    place = 0
    while condition[place:].strip():
        found = _TOKEN.match(condition, place)
        if found is None:
            raise _wrong(condition, f"'{condition[place:].strip()[:40]}' is none of its parts")
        if found["field"]:
            text, value = _comparison(found, columns)
            parts.append(text)
            values.append(value)
        else:
            parts.append((found["bracket"] or found["word"]).upper())
        place = found.end()
    if len(parts) > MOST_PARTS:
        raise RequestError(f"the filter has {len(parts)} parts; at most {MOST_PARTS} are read")
    _check_order(condition, parts)
    return f"({' '.join(parts)})", tuple(values)


def _comparison(found: re.Match[str], columns: Mapping[str, str]) -> tuple[str, Any]:
    name, sign, text = found["field"], found["comparison"], found["value"]
    if name not in columns:
        raise UnknownNameError("field of results", name, columns)
    text = text[1:-1] if text[0] in "\"'" else text
    if sign == "~":
        return f'instr(lower("{name}"), lower(?)) > 0', text
    if columns[name] == "TEXT":
        return f'"{name}" {sign} ?', text
    try:
        return f'"{name}" {sign} ?', float(text)
    except ValueError:
        raise RequestError(f"'{name}' of results is a number, and '{text}' is none") from None


def _check_order(condition: str, parts: list[str]) -> None:
    """Check that operands and joints alternate, and that brackets close.

    Raises:
        RequestError: they do not.
    """
    depth, operand_next = 0, True
    for part in parts:
        if part in ("AND", "OR"):
            right, operand_next = not operand_next, True
        elif part in ("NOT", "("):
            right = operand_next
        elif part == ")":
            right = not operand_next and depth > 0
        else:
            right, operand_next = operand_next, False
        depth += {"(": 1, ")": -1}.get(part, 0)
        if not right:
            raise _wrong(condition, f"'{part.lower()}' stands in a wrong place")
    if operand_next or depth:
        raise _wrong(condition, "something is missing at its end")


def _wrong(condition: str, reason: str) -> RequestError:
    return RequestError(
        f"the filter '{condition[:200]}' has a wrong form: {reason}; write it as: "
        "workload=lenet5 and (threads=2 or threads=4)"
    )
