"""A report on results: one HTML page that needs nothing else, or the same tables as Markdown or LaTeX.

==================  ===================================================================
module              what it holds
==================  ===================================================================
``sources``         results folders and documents, read as far as they can be
``chosen``          what a page shows, with titles, looks, series and headings
``naming``          names with their status, and their looks
``summary``         what was found, in sentences
``sections``        the sections: summary, folders, ratios, runs, the list of results
``step_sections``   step times, the parts of a step, share of the peak
``throughput``      throughput by size; ``training``: loss and accuracy; ``resources``
``proof_sections``  the proof, the audit, provenance
``whole``           all sections in their order
``blocks``          what a section is made of: sentences, tables, charts, files of data
``charts``          charts as data; ``figures``, ``curves`` make them, ``scales`` place them
``html``            the page; ``texts``: Markdown and LaTeX; ``images``: SVG and PNG files
``writing``         from results to bytes
``command``         ``dlb report``; ``plugin`` adds it to dlb
==================  ===================================================================
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.2.0"
__all__ = ["__version__", "make_report"]

if TYPE_CHECKING:
    from dlb_report.writing import make_report


def __getattr__(name: str) -> Any:
    if name == "make_report":
        from dlb_report.writing import make_report

        return make_report
    raise AttributeError(f"module 'dlb_report' has no attribute '{name}'")
