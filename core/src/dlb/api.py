"""The proof as functions: ``dlb.verify`` for programs, ``dlb.assert_proven`` for test suites."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Sequence
from pathlib import Path

from dlb.proof.certificate import CHECK_GROUPS, Certificate, CheckGroup

__all__ = ["assert_proven", "verify"]


def verify(
    workload: str | Path,
    on: Sequence[str] = (),
    *,
    groups: Collection[CheckGroup] = CHECK_GROUPS,
    steps: int | None = None,
    seed: int = 0,
    threads: int | None = None,
    device: str = "cpu",
    variants: Sequence[str] = (),
) -> Certificate:
    """Prove that adapters build the same workload, as ``dlb verify`` does.

    Args:
        workload: a name, or the path of a ``.toml`` or an ``.onnx`` file. Where its data set is not on
            this machine, the proof is on made-up samples, and a warning says so.
        on: adapters; every one found when empty.
        groups: the groups of checks to run.
        steps: training steps that the trajectory is followed over; 20 when left out.
        seed: of the weights and inputs.
        threads: of each worker; when left out, the cores there are, shared out among adapters,
            which then run at the same time.
        device: ``cpu`` or ``cuda``.
        variants: how models are built, ``[ADAPTER:]NAME=VALUE`` each, as ``--variant`` takes them.

    Returns:
        the certificate; :meth:`~dlb.proof.certificate.Certificate.status` says ``proven``,
        ``deviates`` or ``unproven`` of an adapter, and ``failures`` what ended a run early.

    Raises:
        dlb.errors.RequestError: the request cannot be carried out; nothing was started.
        KeyboardInterrupt: it was interrupted; every worker has been ended.
    """
    from dlb.adapters import find_adapters
    from dlb.catalogue import load_with_file
    from dlb.errors import RequestError
    from dlb.progress import Silent
    from dlb.provenance import available_cores
    from dlb.request import TRAJECTORY_STEPS, VERIFY_STEPS, Request, share_cores
    from dlb.run import run
    from dlb.samples import with_data_here
    from dlb.variants import choose

    unknown = set(groups) - set(CHECK_GROUPS)
    if unknown or not groups:
        raise RequestError(f"groups {sorted(unknown)}: choose from {', '.join(CHECK_GROUPS)}")
    read, imported = load_with_file(str(workload))
    read = with_data_here(read, warnings.warn)
    homes = find_adapters(on)
    at_once, each = share_cores(available_cores(), len(homes), threads, device=device)
    request = Request(
        workload=read,
        homes=homes,
        out=None,
        batch_size=read.batch_size,
        steps=VERIFY_STEPS,
        warmup=0,
        threads=each,
        at_once=at_once,
        device=device,
        seed=seed,
        command="verify",
        groups=frozenset(groups),
        trajectory_steps=TRAJECTORY_STEPS if steps is None else steps,
        variants=choose(variants, homes),
        imported=imported,
    )
    outcome = run(request, Silent())
    if outcome.interrupted:
        raise KeyboardInterrupt
    return outcome.certificate


def assert_proven(
    workload: str | Path,
    on: Sequence[str] = (),
    *,
    groups: Collection[CheckGroup] = CHECK_GROUPS,
    steps: int | None = None,
    seed: int = 0,
    variants: Sequence[str] = (),
) -> Certificate:
    """Assert, in a test, that adapters pass every check asked for; arguments as :func:`verify`.

    Raises:
        AssertionError: one differs, or could not be checked; its text says where, by how much and
            what it probably is.
    """
    from dlb.proof.explain import explain
    from dlb.report.explanations import explanation_line, reason_text
    from dlb.report.sentences import describe

    certificate = verify(workload, on, groups=groups, steps=steps, seed=seed, variants=variants)
    wrong = [adapter for adapter in certificate.judged_adapters if not certificate.passed(adapter)]
    lines = [
        f"{explanation_line(explanation, certificate)}; likely: {reason_text(explanation)}"
        for explanation in explain(certificate)
    ]
    lines += [
        f"{certificate.title(result.adapter)}, {result.check}: not run: {describe(result)}"
        for result in certificate.checks
        if result.verdict == "not run"
    ]
    lines += [f"{name} failed: {failure.line}" for name, failure in certificate.failures.items()]
    if wrong:
        raise AssertionError(
            f"{certificate.workload} is not proven the same on {', '.join(wrong)}:\n"
            + "\n".join(lines)
        )
    return certificate
