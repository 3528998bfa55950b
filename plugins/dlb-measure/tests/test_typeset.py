"""Tables as Markdown: texts of strangers mean nothing, in every reader of it."""

from __future__ import annotations

from dlb.report.table import Table
from dlb_measure.tables.typeset import FORMS


def test_nothing_of_a_text_has_a_meaning_in_markdown() -> None:
    table = Table(["a|b", "c"], [["<script>x</script>", "~5 & $x$ _y_ [z](w)"]], "1 < 2")
    text = "\n".join(FORMS["markdown"].table(table))
    assert not set("<>~$") & set(text) and "&#60;script&#62;" in text
    assert r"a\|b" in text and r"\_y\_" in text and r"\[z\]" in text
