"""The whole report: its summary and its sections, in their order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dlb_report.blocks import Section
from dlb_report.chosen import Results, Summed, answer_of, fact_lines, title_of
from dlb_report.proof_sections import audit_section, proof_section, provenance_section
from dlb_report.resources import resources_section
from dlb_report.sections import (
    Maker,
    alert_lines,
    compared_section,
    folders_compared,
    list_section,
    ratios_section,
    runs_section,
    section,
    summary_parts,
)
from dlb_report.step_sections import peak_section, steps_section
from dlb_report.summary import runs_headline
from dlb_report.throughput import throughput_section
from dlb_report.training import training_section

__all__ = ["Report", "whole_report"]

#: Name, title, and what the section shows. A section without results is left out.
_SECTIONS: tuple[tuple[str, str, str, Maker], ...] = (
    (
        "folders",
        "Folders next to each other",
        "Each framework next to itself in the first folder.",
        compared_section,
    ),
    (
        "ratios",
        "Ratios",
        "Step times in rounds of new processes, as ratios with 95% intervals. “Faster” is said only if the "
        "interval leaves out 1, and the ratio is beyond that of a framework next to itself.",
        ratios_section,
    ),
    (
        "steps",
        "Step times",
        "How the times of steps are distributed, and how they run: what lies before the steady state is left "
        "out of the figures, and stays in the picture.",
        steps_section,
    ),
    (
        "throughput",
        "Throughput by size",
        "Samples per second where results differ in one size alone.",
        throughput_section,
    ),
    (
        "peak",
        "Share of the peak",
        "Operations and bytes of the description by the second, next to the fastest matrix product and the "
        "fastest copy that were measured on this machine.",
        peak_section,
    ),
    (
        "training",
        "Loss and accuracy",
        "By step, and by the seconds of steps and of waiting for batches.",
        training_section,
    ),
    (
        "resources",
        "Processors, memory, energy",
        "As observers saw the processes from outside. Energy is measured, or left out with the reason.",
        resources_section,
    ),
    (
        "proof",
        "Proof",
        "Whether the frameworks ran the same model: each check with the worst relative L2 distance of any "
        "tensor.",
        proof_section,
    ),
    (
        "audit",
        "Audit",
        "Steps that were drawn at random while the timed run went on, compared with the definition.",
        audit_section,
    ),
    ("runs", "Runs", "One process of each framework, by command.", runs_section),
    ("provenance", "Provenance", "Where the figures come from.", provenance_section),
    ("results", "Results", "Everything that was chosen.", list_section),
)

#: Longest answer that is a heading.
MOST_HEADING = 160


@dataclass(frozen=True)
class Report:
    """What is written, whatever the form.

    Attributes:
        heading: what a page begins with: the answer, if it is all that the title says, and short.
        answer: what the last measurement says; empty without one.
        alerts: what limits every figure.
        facts: how much there is, and where it comes from.
        summary: the sentences that come first.
    """

    title: str
    heading: str
    answer: str
    alerts: Sequence[str]
    facts: Sequence[str]
    summary: Sequence[Summed]
    sections: Sequence[Section]


def whole_report(results: Results, title: str = "") -> Report:
    """Make every section.

    Raises:
        UnknownNameError: no measurement has the baseline.
    """
    results.check_baseline()
    summary = summary_parts(results)
    made = [section(name, words, lead, maker(results)) for name, words, lead, maker in _SECTIONS]
    short, answer = title or _title(results, summary), answer_of(results)
    whole = not title and not results.several and 0 < len(answer) <= MOST_HEADING
    return Report(
        short,
        answer if whole else short,
        answer,
        alert_lines(results),
        fact_lines(results),
        summary,
        [each for each in made if each],
    )


def _title(results: Results, summary: Sequence[Summed]) -> str:
    """What was found: by the last measurement, by two folders, or by a command without rounds."""
    if results.measured and not results.several:
        return title_of(results, results.measured[0])
    if any(folders_compared(results)) and summary[0].statements:
        return summary[0].statements[0].text
    if len(results.commands) == 1:
        return runs_headline([run.record for run in results.commands[0]])
    return f"Report on {' and '.join(source.label for source in results.sources)}"
