"""How Python shows a result: a line as its ``repr``, a page when it is printed, and in notebooks."""

from __future__ import annotations

from importlib import import_module
from typing import Any, ClassVar

from dlb.printable import printable

__all__ = ["Shown"]


class Shown:
    """Base class of results. ``answered_by`` makes the answer: ``MODULE:NAME``, imported when it is needed."""

    __slots__ = ()
    answered_by: ClassVar[str] = ""

    def answer(self) -> Any:
        """What the result says: a :class:`dlb.report.answers.Answer`."""
        module, _, name = self.answered_by.partition(":")
        return getattr(import_module(module), name)(self)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {printable(self.answer().line)}>"

    def __str__(self) -> str:
        return str(self.answer().text())

    def _repr_html_(self) -> str:
        return str(self.answer().html())
