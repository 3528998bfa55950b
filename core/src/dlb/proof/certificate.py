"""The certificate: what was compared, the distances, and the verdicts.

It is one JSON document, in its own file (``dlb verify --certificate``) or in a run's record. It holds fields
and no sentences; :mod:`dlb.report` makes the sentences.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import ClassVar, Literal, Union, get_args

import msgspec

from dlb import documents
from dlb.errors import RecordError, RequestError
from dlb.failure import Failure
from dlb.proof.findings import Figure, Finding, Part, causes, code_of
from dlb.shown import Shown
from dlb_worker.contract import PRECISION

__all__ = [
    "CHECK_GROUPS",
    "FORMAT",
    "Baseline",
    "Certificate",
    "CheckGroup",
    "CheckResult",
    "Divergence",
    "Divergent",
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
#: Groups of checks, in the order in which they are run; ``dlb verify --group`` selects some of them.
CheckGroup = Literal[
    "file",
    "weights",
    "forward",
    "layers",
    "gradients",
    "update",
    "trajectory",
    "float32",
    "audit",
    "structure",
    "export",
    "distributed",
]
#: The groups that prove a workload on adapters without a strategy.
CHECK_GROUPS: tuple[CheckGroup, ...] = tuple(
    group for group in get_args(CheckGroup) if group not in ("file", "distributed")
)
#: Why a group of checks does not apply to a subject.
Inapplicable = Literal[
    "no_description",
    "no_optimizer",
    "evaluation_only",
    "float32_only",
    "is_exported",
    "not_asked",
    "not_timed",
    "one_worker",
]
#: The outcome of a proof, as every command shows it.
ProofStatus = Literal[
    "proven",
    "deviates",
    "unproven",
    "diverged",
    "deviates within float32 constants",
    "the same model in float16",
    "the same model in bfloat16",
    "the same model, quantised",
    "within rounding",
]

#: Words for failed checks that a rounding explains, by the code of the cause that every one of them has.
_ROUNDED_STATUS: Mapping[str, ProofStatus] = {
    "float32_constant": "deviates within float32 constants",
    "float16_model": "the same model in float16",
    "bfloat16_model": "the same model in bfloat16",
    "quantised_model": "the same model, quantised",
    "rounded_constants": "within rounding",
    "computes_in_float32": "within rounding",
    "narrow_values": "within rounding",
}
#: What a check compares with.
BaselineKind = Literal[
    "canonical_graph",
    "canonical_layers",
    "canonical_structure",
    "given_weights",
    "optimizer_definition",
    "finite_differences",
    "canonical_backward",
    "dropout_definition",
    "adapters",
    "own_float64",
    "sample_order",
    "step_definition",
    "core_clock",
    "timed_model",
    "trained_weights",
    "own_model",
    "onnx_runtime",
    "single_worker",
    "schedule_in_numpy",
    "onnx_file",
    "model",
    "model_weights",
    "model_statistics",
]


class Baseline(Part, frozen=True, kw_only=True, omit_defaults=True):
    """What a check compares with.

    Attributes:
        kind: kind of baseline.
        names: names of the adapters, models or files.
        sha256: SHA-256 of the file.
        float64: whether a file or an adapter is run in float64, if ``kind`` does not say so.
    """

    kind: BaselineKind
    names: tuple[str, ...] = ()
    sha256: str = ""
    float64: bool = False


class CheckResult(Part, frozen=True, kw_only=True):
    """The result of one check of one adapter.

    Attributes:
        check: name of the check.
        group: group of the check.
        adapter: the adapter whose model was compared.
        baseline: what the model was compared with.
        verdict: ``not run`` if the check could not be run; it never counts as passed.
        tolerance: the largest relative L2 distance that passes. None if bits or graphs must agree, or if
            the check was not run. If each tensor has its own tolerance: that of the first figure.
        figures: one per tensor, worst first. If each tensor has its own tolerance, the first figure is
            the largest multiple of it.
        findings: faults, worst first; reasons why it was not run; facts about the comparison.
        seconds: time of the check.
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
    """How far an adapter's float32 trajectory drifts from its float64 trajectory. It has no verdict.

    Distances are relative L2 over all parameters together, relative to the change of the float64 steps.
    Null stands for infinity.

    Attributes:
        adapter: the adapter.
        steps: numbers of steps after which the weights were compared.
        distances: of the float32 trajectory from the float64 trajectory, one per entry of ``steps``.
        perturbed: of float32 trajectories from perturbed weights (one unit in the last place) to the
            plain float32 trajectory, one row per run. Only one adapter has it; it is a band for all.
    """

    adapter: str
    steps: tuple[int, ...]
    distances: tuple[float | None, ...]
    perturbed: tuple[tuple[float | None, ...], ...] = ()

    def __post_init__(self) -> None:
        for row in (self.distances, *self.perturbed):
            if len(row) != len(self.steps):
                raise ValueError(f"{len(row)} distances of {len(self.steps)} steps")


class Divergent(Part, frozen=True, kw_only=True):
    """Training that ends in NaN or infinity, as it does in dlb's own NumPy.

    Attributes:
        run: ``timed``, or the ``trajectory`` of the proof.
        step: the first step, from 0, whose loss or gradients are not finite. Checks are judged up to it.
    """

    run: Literal["timed", "trajectory"]
    step: int


class Certificate(Shown, msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Everything that was compared for one workload.

    Attributes:
        workload, workload_hash, seed: what was compared, and the seed of its weights.
        adapters: framework and version, by adapter.
        checks: the result of every check.
        variants: options of an adapter's build that are not at their default, by adapter.
        deviations: deviations that adapters declare, by adapter.
        failures: errors that ended an adapter's run before all its checks were run, by adapter.
        diverged: by adapter, where the workload computes NaN or infinity; no fault of the adapter.
        left_out: groups that were not asked for; nothing counts as proven then.
        inapplicable: groups that do not apply to a port or to two files, with the reason.
        divergences: drifts of float32 trajectories, without a verdict.
        format: version of this document.
        made: when the checks were run, ISO 8601; empty in older documents.
        kept: when the proof was made whose checks were used again, ISO 8601; empty if every check was
            run. What is about the timed run itself is always run.
    """

    answered_by: ClassVar[str] = "dlb.report.answers:certificate_answer"
    workload: str
    workload_hash: str
    seed: int
    adapters: dict[str, str]
    checks: tuple[CheckResult, ...]
    variants: dict[str, dict[str, str]] = {}
    deviations: dict[str, tuple[str, ...]] = {}
    failures: dict[str, Failure] = {}
    diverged: dict[str, Divergent] = {}
    left_out: tuple[CheckGroup, ...] = ()
    inapplicable: dict[CheckGroup, Inapplicable] = {}
    divergences: tuple[Divergence, ...] = ()
    format: int = FORMAT
    kept: str = ""
    made: str = ""

    def results_of(self, adapter: str) -> tuple[CheckResult, ...]:
        """The results of one adapter, in order."""
        return tuple(result for result in self.checks if result.adapter == adapter)

    @property
    def findings(self) -> Iterator[tuple[CheckResult, Finding]]:
        """Every finding, with the result that holds it."""
        for result in self.checks:
            for finding in result.findings:
                yield result, finding

    def set_aside(self, adapter: str) -> tuple[tuple[CheckResult, Finding], ...]:
        """What was set aside, replaced, rounded or fixed in order to compare, each with its check."""
        return tuple(
            (result, finding)
            for result in self.results_of(adapter)
            for finding in result.findings
            if finding.cause.aside
        )

    def title(self, adapter: str) -> str:
        """An adapter with its variant: ``torch (compile=inductor)``."""
        return with_variant(adapter, self.variants.get(adapter, {}))

    @property
    def judged_adapters(self) -> tuple[str, ...]:
        """Adapters that have results, or whose runs failed, in order."""
        checked = {result.adapter for result in self.checks}
        return tuple(
            adapter for adapter in self.adapters if adapter in checked or adapter in self.failures
        )

    def status(self, adapter: str) -> ProofStatus:
        """The outcome for one adapter.

        ``deviates`` if a check failed; apart from that, if one rounding to another type explains every
        failed check (:meth:`rounding`): ``deviates within float32 constants`` of a framework, ``the same model
        in float16``, ``within rounding`` of two files with constants that were rounded at different steps.
        ``diverged`` if the workload computes NaN or infinity, up to which every check passed.
        ``unproven`` if a check was not run, if there are no checks, if a group was left out, or if the run
        failed. ``within rounding`` if all checks passed of a port that ran in float32 only, of a variant
        that rounds more than its dtype, or with something rounded in order to compare, such as values that a
        file rounds to a narrower type. Otherwise ``proven``.
        """
        if any(result.verdict == "failed" for result in self.results_of(adapter)):
            finding = self.rounding(adapter)
            return _ROUNDED_STATUS[code_of(finding.cause)] if finding else "deviates"
        if adapter in self.diverged:
            return "diverged"
        if not self.passed(adapter) or self.left_out:
            return "unproven"
        rounds_more = PRECISION in self.variants.get(adapter, {}) or any(
            finding.cause.aside == "rounding" for _, finding in self.set_aside(adapter)
        )
        if rounds_more or "float32_only" in self.inapplicable.values():
            return "within rounding"
        return "proven"

    def rounding(self, adapter: str) -> Finding | None:
        """What the first check that failed found of the one rounding that explains all that failed."""
        own = (result for result in self.results_of(adapter) if result.verdict == "failed")
        failed = [{code_of(each.cause): each for each in result.findings[::-1]} for result in own]
        codes = (
            code for code in _ROUNDED_STATUS if failed and all(code in each for each in failed)
        )
        return next((failed[0][code] for code in codes), None)

    def deviates(self, adapter: str) -> bool:
        """Whether checks failed, and not because one file or model is the other but for a rounding."""
        return self.status(adapter).startswith("deviates")

    @property
    def agrees(self) -> bool:
        """Whether there are adapters, and every one is proven, or within rounding."""
        statuses = {*map(self.status, self.judged_adapters)}
        return bool(statuses) and statuses <= {"proven", "within rounding"}

    def passed(self, adapter: str) -> bool:
        """Whether every check that was asked for was run, and passed."""
        if adapter in self.failures or adapter in self.diverged:
            return False
        return {result.verdict for result in self.results_of(adapter)} == {"passed"}


def with_variant(adapter: str, variant: Mapping[str, str]) -> str:
    """An adapter's name, and its variant in parentheses."""
    chosen = ", ".join(f"{name}={value}" for name, value in variant.items())
    return f"{adapter} ({chosen})" if chosen else adapter


def check_destination(path: Path | None) -> None:
    """Check, before any work, that a certificate can be written to a path.

    Raises:
        RequestError: the folder does not exist.
    """
    if path is not None and not path.absolute().parent.is_dir():
        raise RequestError(f"--certificate {path}: there is no folder {path.parent}; make it first")


def write(certificate: Certificate, path: Path) -> None:
    """Write a certificate atomically.

    Raises:
        RecordError: the file cannot be written; an earlier file is unchanged.
    """
    try:
        documents.write_atomically(path, documents.encode(certificate))
    except OSError as error:
        raise RecordError(
            f"cannot write {path}: {error.strerror or error}; give another path"
        ) from None


def read(path: Path) -> Certificate:
    """Read a certificate, and validate it.

    Raises:
        RecordError: the file cannot be read, is not a certificate, or has a later format.
    """
    return documents.read(path, "certificate", FORMAT, Certificate)


def schema() -> bytes:
    """JSON Schema (2020-12) of a certificate, as shipped."""
    return documents.shipped_schema("certificate", FORMAT)


def make_schema() -> bytes:
    """The schema derived from :class:`Certificate`; the shipped schema is generated with it."""
    return documents.make_schema(
        Certificate, f"dlb certificate, format {FORMAT}", Cause=Union[tuple(causes().values())]
    )
