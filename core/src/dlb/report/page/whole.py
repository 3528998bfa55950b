"""The whole report: its summary and its sections, in their order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dlb.report.page.blocks import Section
from dlb.report.page.chosen import Results, Summed, fact_lines
from dlb.report.page.proof_sections import audit_section, proof_section, provenance_section
from dlb.report.page.resources import resources_section
from dlb.report.page.sections import (
    Maker,
    compared_section,
    list_section,
    ratios_section,
    runs_section,
    section,
    summary_parts,
)
from dlb.report.page.step_sections import peak_section, steps_section
from dlb.report.page.throughput import throughput_section
from dlb.report.page.training import training_section

__all__ = ["Report", "make_report"]

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


@dataclass(frozen=True)
class Report:
    """What is written, whatever the form.

    Attributes:
        facts: how much there is, and where it comes from.
        summary: the sentences that come first.
    """

    title: str
    facts: Sequence[str]
    summary: Sequence[Summed]
    sections: Sequence[Section]


def make_report(results: Results, title: str = "") -> Report:
    """Make every section.

    Raises:
        UnknownNameError: no measurement has the baseline.
    """
    results.check_baseline()
    summary = summary_parts(results)
    made = [section(name, words, lead, maker(results)) for name, words, lead, maker in _SECTIONS]
    labels = " and ".join(source.label for source in results.sources)
    return Report(
        title or f"Report on {labels}",
        fact_lines(results),
        summary,
        [each for each in made if each],
    )
