"""A sentence of any finding, and all of those of a result."""

from __future__ import annotations

from collections.abc import Iterable

from dlb.proof.certificate import CheckResult
from dlb.proof.findings import Finding
from dlb.report import files, port, workload
from dlb.report.common import RENDERERS

__all__ = ["describe", "sentence"]

#: Modules that put their sentences into the table.
_MODULES = (files, port, workload)
#: Sentences of a result that a line shows.
_LISTED = 6


def sentence(finding: Finding, adapter: str) -> str:
    """A finding in words.

    Args:
        adapter: as it is called where the sentence is shown.
    """
    return RENDERERS[type(finding.cause)](finding.cause, finding, adapter)


def describe(result: CheckResult) -> str:
    """What a check found, in one line; empty where there is nothing to say."""
    return join([sentence(finding, result.adapter) for finding in result.findings])


def join(sentences: Iterable[str]) -> str:
    """Sentences in one line, the first of many."""
    texts = [text for text in sentences if text]
    more = [f"and {len(texts) - _LISTED} more"] if len(texts) > _LISTED else []
    return "; ".join([*texts[:_LISTED], *more])
