"""Findings: what a check saw, as fields. :mod:`dlb.report` makes sentences of them.

Packages add causes of their own, with their checks and sentences, by the hook ``dlb_findings``.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import msgspec

from dlb.proof.findings import audit, common, workload
from dlb_graph.comparing import asynchronous, read_facts, reduction
from dlb_graph.comparing.causes import Cause, Figure, LayerFacts, Part, shape_of
from dlb_worker.errors import one_line
from dlb_worker.plugins import load_plugins

__all__ = [
    "AnyCause",
    "Cause",
    "Figure",
    "Finding",
    "LayerFacts",
    "Part",
    "Unknown",
    "causes",
    "code_of",
    "shape_of",
    "vocabularies",
]

#: A cause of any package. A document's is made by its code; its schema is that of :func:`causes`.
if TYPE_CHECKING:
    AnyCause = Cause
else:
    AnyCause = Annotated[Any, msgspec.Meta(extra_json_schema={"$ref": "#/$defs/Cause"})]


class Unknown(dict[str, Any]):
    """The fields of a cause that no installed package has, as the document has them.

    It may say that something was rounded in order to compare, so nothing that has it is called proven.
    """

    locates = False
    aside = "rounding"


class Finding(Part, frozen=True, kw_only=True, omit_defaults=True):
    """One thing that a check found: a fault, a reason not to run, or a fact about the comparison.

    The check and the adapter are those of the :class:`~dlb.proof.certificate.CheckResult` that holds it.

    Attributes:
        cause: what it is: a code with fields of its own.
        layer: the layer that it is about, as described and as built.
        figure: the distance of the tensor that it is about.
        tolerance: the largest distance of it that passes.
    """

    cause: AnyCause
    layer: LayerFacts | None = None
    figure: Figure | None = None
    tolerance: float | None = None

    def __post_init__(self) -> None:
        """Make the cause of a document's fields."""
        fields: Any = self.cause
        if isinstance(fields, (Cause, Unknown)):
            return
        if not isinstance(fields, dict) or not isinstance(fields.get("code"), str):
            raise ValueError("its `cause` must be an object with a `code`")
        kind = causes().get(fields["code"])
        try:
            cause = Unknown(fields) if kind is None else msgspec.convert(fields, kind)
        except msgspec.ValidationError as error:
            raise ValueError(f"its `cause`: {error}") from None
        msgspec.structs.force_setattr(self, "cause", cause)


def code_of(cause: AnyCause) -> str:
    """The code of a cause, known or not."""
    return cause["code"] if isinstance(cause, Unknown) else str(cause.__struct_config__.tag)


class Vocabulary(NamedTuple):
    """What a package adds: modules of causes, and tables of :class:`~dlb.proof.check_table.CheckKind`."""

    causes: Sequence[ModuleType]
    checks: Sequence[Mapping[str, Any]]


@cache
def vocabularies() -> Sequence[Vocabulary]:
    """What installed packages add, whose sentences are registered then.

    A module that cannot be imported is left out, with a warning.
    """
    added = []
    for name, module in load_plugins().named("dlb_findings").items():
        try:
            imported = import_module(str(module))
            added.append(Vocabulary(imported.CAUSES, imported.CHECKS))
        # A plugin is someone else's code, which may raise anything.
        except Exception as error:
            warnings.warn(f"findings of {name} left out: {one_line(error)}", stacklevel=2)
    return added


@cache
def causes() -> Mapping[str, type[Cause]]:
    """Every cause by its code: dlb's own, whose codes no package takes, and those of packages."""
    modules = [asynchronous, audit, common, workload, read_facts, reduction]
    modules += [module for added in vocabularies() for module in added.causes]
    kinds = [kind for module in modules for kind in _kinds(module)]
    return {str(kind.__struct_config__.tag): kind for kind in reversed(kinds)}


def _kinds(module: ModuleType) -> list[type[Cause]]:
    return [
        kind
        for kind in vars(module).values()
        if isinstance(kind, type) and issubclass(kind, Cause) and kind is not Cause
    ]
