"""The certificate: what was compared with what, how far apart they were, and what follows.

One JSON document, by itself (``dlb verify --certificate``) or in a run's record. It holds fields, and no
sentences: :mod:`dlb.report` makes those.

History of the format:

- 1: the first. It said in prose what checks found; :mod:`dlb.format_1` converts it.
- 2: findings have fields; names of fields and of checks are the field's words.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Literal, get_args

import msgspec

from dlb import documents
from dlb.errors import RecordError, RequestError
from dlb.failure import Failure
from dlb.proof.findings import Figure, Finding, Part

__all__ = [
    "CHECK_GROUPS",
    "FORMAT",
    "Baseline",
    "Certificate",
    "CheckGroup",
    "CheckResult",
    "Divergence",
    "Figure",
    "Inapplicable",
    "ProofStatus",
    "Verdict",
    "check_destination",
    "make_schema",
    "read",
    "schema",
    "with_variant",
    "write",
]

#: Version of the certificate's document.
FORMAT = 2

Verdict = Literal["passed", "failed", "not run"]
#: What a check is about; ``dlb verify --group`` asks for some of them. In the order of running.
CheckGroup = Literal[
    "file",
    "weights",
    "forward",
    "layers",
    "gradients",
    "update",
    "trajectory",
    "float32",
    "structure",
    "export",
    "distributed",
]
#: The groups that a workload on adapters without a strategy is proven by.
CHECK_GROUPS: tuple[CheckGroup, ...] = tuple(
    group for group in get_args(CheckGroup) if group not in ("file", "distributed")
)
#: Why a group of checks does not apply to what is proven.
Inapplicable = Literal[
    "no_description", "no_optimizer", "evaluation_only", "is_exported", "not_asked", "one_worker"
]
#: What a result is called wherever it is shown.
ProofStatus = Literal["proven", "deviates", "unproven"]

#: What a check compares with.
BaselineKind = Literal[
    "canonical_graph",
    "canonical_layers",
    "canonical_structure",
    "given_weights",
    "optimizer_definition",
    "finite_differences",
    "dropout_definition",
    "adapters",
    "own_float64",
    "timed_model",
    "own_model",
    "onnx_runtime",
    "single_worker",
    "onnx_file",
    "model",
    "model_weights",
    "model_statistics",
    "note",
]


class Baseline(Part, frozen=True, kw_only=True, omit_defaults=True):
    """What a check compares with.

    Attributes:
        kind: what it is. ``note`` is a phrase of a document of format 1, in ``names``.
        names: of the adapters, models or files.
        sha256: of the file.
        float64: whether a file or an adapter is run in float64 where that is not said by ``kind``.
    """

    kind: BaselineKind
    names: tuple[str, ...] = ()
    sha256: str = ""
    float64: bool = False


class CheckResult(Part, frozen=True, kw_only=True):
    """What one check found of one adapter.

    Attributes:
        check: its name.
        group: its group.
        adapter: whose model was compared.
        baseline: what it was compared with.
        verdict: ``not run`` where it could not be run; it never counts as passed.
        tolerance: the largest relative L2 distance that passes; None where bits or graphs must
            agree, and where it was not run. Where every tensor has a tolerance of its own: that of
            the first figure.
        figures: of each tensor, worst first: the largest; or, where there is no one tolerance for all
            tensors, the one that is the largest part of its own, which is the result's.
        findings: faults, the worst first; reasons not to run; facts about the comparison.
        seconds: what it cost.
    """

    check: str
    group: CheckGroup
    adapter: str
    baseline: Baseline
    verdict: Verdict
    tolerance: float | None = None
    figures: tuple[Figure, ...] = ()
    findings: tuple[Finding, ...] = ()
    seconds: float = 0.0

    @property
    def worst(self) -> Figure | None:
        """The figure of the tensor furthest away."""
        return self.figures[0] if self.figures else None


class Divergence(Part, frozen=True, kw_only=True):
    """How far an adapter's float32 trajectory drifts from its float64 one. It is no verdict.

    Distances are relative L2, over all parameters together, to what the float64 steps changed; null
    stands for infinity.

    Attributes:
        adapter: whose.
        steps: after which the weights were looked at.
        distances: of the float32 trajectory from the float64 one, after each.
        perturbed: of float32 trajectories from weights that differ by one unit in the last place,
            from the float32 one, a row each. One adapter alone has it: the band that the others are
            seen in.
    """

    adapter: str
    steps: tuple[int, ...]
    distances: tuple[float | None, ...]
    perturbed: tuple[tuple[float | None, ...], ...] = ()


class Certificate(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Everything that was compared for one workload.

    Attributes:
        workload, workload_hash, seed: what was compared, and the weights it started from.
        adapters: framework and version, by adapter.
        checks: the result of every check.
        variants: choices of adapters that are not at their default, by adapter.
        deviations: what adapters declare to do differently, by adapter.
        failures: what ended an adapter's run before all its checks were run, by adapter.
        left_out: groups that were not asked for. What is proven is proven in every group that applies.
        inapplicable: groups that do not apply to a port or to two files, and why.
        divergences: of float32 trajectories, shown and not judged.
        format: version of this document.
        converted_from: the format that the document was read in; 0 where it is this one.
    """

    workload: str
    workload_hash: str
    seed: int
    adapters: dict[str, str]
    checks: tuple[CheckResult, ...]
    variants: dict[str, dict[str, str]] = {}
    deviations: dict[str, tuple[str, ...]] = {}
    failures: dict[str, Failure] = {}
    left_out: tuple[CheckGroup, ...] = ()
    inapplicable: dict[CheckGroup, Inapplicable] = {}
    divergences: tuple[Divergence, ...] = ()
    format: int = FORMAT
    converted_from: int = 0

    def results_of(self, adapter: str) -> tuple[CheckResult, ...]:
        """The results of one adapter, in order."""
        return tuple(result for result in self.checks if result.adapter == adapter)

    @property
    def findings(self) -> Iterator[tuple[CheckResult, Finding]]:
        """Every finding, with the result that holds it."""
        for result in self.checks:
            for finding in result.findings:
                yield result, finding

    def title(self, adapter: str) -> str:
        """An adapter with its variant, as it is shown: ``torch (compile=inductor)``."""
        return with_variant(adapter, self.variants.get(adapter, {}))

    @property
    def judged_adapters(self) -> tuple[str, ...]:
        """Adapters that have results, or whose runs failed, in order."""
        checked = {result.adapter for result in self.checks}
        return tuple(
            adapter for adapter in self.adapters if adapter in checked or adapter in self.failures
        )

    def status(self, adapter: str) -> ProofStatus:
        """``deviates`` if one check failed; ``unproven`` if one was not run, if there are none, if a
        group was left out, or if the run failed."""
        if any(result.verdict == "failed" for result in self.results_of(adapter)):
            return "deviates"
        return "proven" if self.passed(adapter) and not self.left_out else "unproven"

    def passed(self, adapter: str) -> bool:
        """Whether every check that was asked for was run, and passed."""
        if adapter in self.failures:
            return False
        return {result.verdict for result in self.results_of(adapter)} == {"passed"}


def with_variant(adapter: str, variant: Mapping[str, str]) -> str:
    """An adapter's name, and its choices that are not at their default."""
    chosen = ", ".join(f"{name}={value}" for name, value in variant.items())
    return f"{adapter} ({chosen})" if chosen else adapter


def check_destination(path: Path | None) -> None:
    """Raises RequestError, before any work, for a path that no certificate could be written to."""
    if path is not None and not path.absolute().parent.is_dir():
        raise RequestError(f"--certificate {path}: there is no folder {path.parent}; make it first")


def write(certificate: Certificate, path: Path) -> None:
    """Write a certificate, whole or not at all.

    Raises:
        RecordError: it cannot be written; what was there before is as it was.
    """
    try:
        documents.write_atomically(path, documents.encode(certificate))
    except OSError as error:
        raise RecordError(
            f"cannot write {path}: {error.strerror or error}; give another path"
        ) from None


def read(path: Path) -> Certificate:
    """Read a certificate of this format or of format 1, and check it against its form.

    Raises:
        RecordError: it cannot be read, is not a certificate, or is of a later format.
    """
    from dlb import format_1

    return documents.read(
        path, Certificate, "certificate", FORMAT, {1: format_1.convert_certificate}
    )


def schema() -> bytes:
    """JSON Schema (2020-12) of a certificate, as shipped."""
    return documents.shipped_schema("certificate", FORMAT)


def make_schema() -> bytes:
    """The schema that follows from :class:`Certificate`; the shipped one is made from it."""
    return documents.make_schema(Certificate, f"dlb certificate, format {FORMAT}")
