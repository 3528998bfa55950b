"""The sentence of any finding, and all sentences of a result."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from dlb.proof.certificate import Certificate, CheckResult, Divergent, Inapplicable
from dlb.proof.findings import Finding, Unknown, vocabularies
from dlb.report import audit, workload
from dlb.report.common import RENDERERS

__all__ = ["describe", "divergence_text", "inapplicable_groups", "join", "sentence"]

#: Modules that register their sentences when they are imported.
_MODULES = (audit, workload)
#: Most sentences of a result in one line.
_LISTED = 6


def sentence(finding: Finding, adapter: str) -> str:
    """A finding in words.

    Args:
        adapter: name of the adapter in the sentence.
    """
    cause = finding.cause
    if type(cause) not in RENDERERS:
        vocabularies()
    render = RENDERERS.get(type(cause)) or RENDERERS[Unknown]
    return render(cause, finding, adapter)


def describe(result: CheckResult) -> str:
    """The findings of a check in one line; empty if there are none."""
    return join([sentence(finding, result.adapter) for finding in result.findings])


#: Reasons why groups of checks do not apply, in words.
_INAPPLICABLE: Mapping[Inapplicable, str] = {
    "evaluation_only": "since a file holds no training",
    "float32_only": "since the port ran in float32 only",
    "is_exported": "since a file is an export itself",
    "no_description": "since there is no workload",
    "no_optimizer": "since a user's model has no optimizer",
    "not_asked": "since it was not asked for",
    "not_timed": "since nothing is timed",
    "one_worker": "since there is one worker",
}


def divergence_text(divergent: Divergent) -> str:
    """Where the workload computes NaN or infinity, and what to do about it."""
    run = {"timed": "timed run", "trajectory": "proof's trajectory"}[divergent.run]
    return (
        f"diverged: from step {divergent.step} of the {run} on, the loss is not finite, in dlb's own NumPy "
        "too; lower optimizer.learning_rate, or clip gradients with optimizer.clip_norm"
    )


def inapplicable_groups(certificate: Certificate) -> dict[str, list[str]]:
    """Groups of checks that do not apply, by the reason in words."""
    by_reason: dict[str, list[str]] = {}
    for group, reason in certificate.inapplicable.items():
        by_reason.setdefault(_INAPPLICABLE[reason], []).append(group)
    return by_reason


def join(sentences: Iterable[str]) -> str:
    """Sentences in one line; at most the first :data:`_LISTED`, then the number of others."""
    texts = [text for text in sentences if text]
    more = [f"and {len(texts) - _LISTED} more"] if len(texts) > _LISTED else []
    return "; ".join([*texts[:_LISTED], *more])
