"""What dlb does as functions: :data:`dlb.__all__` names those of the package."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from dlb.proof.certificate import CHECK_GROUPS, Certificate, CheckGroup

if TYPE_CHECKING:
    from dlb.execution.run import Outcome
    from dlb.proof.port_proof import Port
    from dlb.record import Record

__all__ = ["assert_proven", "compare_files", "read_records", "run", "verify", "verify_port"]


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
    from dlb.execution.run import run as run_request
    from dlb.progress import Silent
    from dlb.provenance import available_cores
    from dlb.request import TRAJECTORY_STEPS, VERIFY_STEPS, Request, share_cores
    from dlb.samples import with_data_here
    from dlb.variants import choose

    unknown = set(groups) - set(CHECK_GROUPS)
    if unknown or not groups:
        raise RequestError(f"groups {sorted(unknown)}: choose from {', '.join(CHECK_GROUPS)}")
    read, imported = load_with_file(str(workload))
    read = with_data_here(read, warnings.warn)
    environments = find_adapters(on)
    at_once, each = share_cores(available_cores(), len(environments), threads, device=device)
    request = Request(
        workload=read,
        environments=environments,
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
        variants=choose(variants, environments),
        imported=imported,
    )
    outcome = run_request(request, Silent())
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


def run(
    workload: str | Path,
    on: Sequence[str] = (),
    *,
    steps: int | None = None,
    batch_size: int | None = None,
    warmup: int | None = None,
    dtype: str = "float32",
    seed: int = 0,
    threads: int | None = None,
    device: str = "cpu",
    input_mode: str = "pipeline",
    strategy: str = "",
    workers: int = 1,
    variants: Sequence[str] = (),
    changes: Sequence[str] = (),
    data: str | None = None,
    out: str | Path = "dlb-results",
) -> Outcome:
    """Train a workload on adapters, time it, export it and prove it, as ``dlb run`` does.

    Args:
        workload: a name, or the path of a ``.toml`` or an ``.onnx`` file.
        on: adapters; every one found when empty.
        steps: training steps; the workload's epochs when left out.
        batch_size: samples in a step, all workers together; the workload's when left out.
        warmup: first steps left out of the summary; 10, or a tenth of few steps, when left out.
        dtype: ``float32`` or ``float64``.
        seed: of the weights and the order of samples.
        threads: of each worker; the cores there are, shared out, when left out.
        device: ``cpu`` or ``cuda``.
        input_mode: ``pipeline`` or ``memory``.
        strategy: a distributed strategy; "" for none.
        workers: its worker processes.
        variants: how models are built, ``[ADAPTER:]NAME=VALUE`` each.
        changes: fields of the workload, ``FIELD=VALUE`` each.
        data: other data than the workload's, ``NAME[:PATH]``.
        out: folder for records.

    Returns:
        a record for each adapter, their paths, and the certificate.

    Raises:
        dlb.errors.RequestError: the request cannot be carried out; nothing was started.
        dlb.errors.RecordError: a record cannot be written; those before it are kept.
        KeyboardInterrupt: it was interrupted; finished records are kept, every worker has ended.
    """
    from dlb.adapters import check_strategy, find_adapters
    from dlb.catalogue import load_with_file
    from dlb.execution.run import run as run_request
    from dlb.progress import Silent
    from dlb.provenance import available_cores
    from dlb.request import Request
    from dlb.samples import count_samples, with_data
    from dlb.variants import choose
    from dlb.workload.changes import with_changes

    read, imported = load_with_file(str(workload))
    read = with_changes(read, tuple(changes), keep_model=imported is not None)
    if data is not None:
        read = with_data(read, data)
    size = read.batch_size if batch_size is None else batch_size
    count = steps if steps is not None else read.epochs * (count_samples(read) // max(1, size))
    environments = find_adapters(on)
    if strategy:
        check_strategy(strategy, environments)
    request = Request(
        workload=read,
        environments=environments,
        out=Path(out),
        batch_size=size,
        steps=count,
        warmup=min(10, count // 10) if warmup is None else warmup,
        threads=max(1, available_cores() // max(1, workers)) if threads is None else threads,
        device=device,
        dtype=dtype,
        seed=seed,
        input_mode=input_mode,
        strategy=strategy,
        workers=workers,
        variants=choose(variants, environments),
        imported=imported,
    )
    outcome = run_request(request, Silent())
    if outcome.interrupted:
        raise KeyboardInterrupt
    return outcome


def verify_port(
    models: Mapping[str, str],
    *,
    inputs: str | Path | None = None,
    input_shape: Sequence[int] | None = None,
    tokens: int | None = None,
    seed: int = 0,
    layouts: Mapping[str, str] | None = None,
    map_file: str | Path | None = None,
    folder: str | Path | None = None,
    export: str | Path | None = None,
    threads: int = 1,
    device: str = "cpu",
) -> Port:
    """Prove that models written by hand in several frameworks are the same, as ``dlb port`` does.

    Args:
        models: ``package.module:factory`` by adapter; the first is the reference.
        inputs: an ``.npz`` file to run on; seeded noise when left out.
        input_shape: of one sample of noise, where no model says it.
        tokens: integers below it instead of noise.
        seed: of the noise.
        layouts: by adapter, the order of the axes that a model reads, such as ``NHWC``.
        map_file: which parameter is which; proposed when left out.
        folder: where the modules are looked for; the current one when left out.
        export: folder for an ONNX file of each model, which is verified; none when left out.
        threads: of each worker.
        device: ``cpu`` or ``cuda``.

    Returns:
        how parameters were matched, and the certificate.

    Raises:
        dlb.errors.RequestError: a factory, a map or an input cannot be used, or parameters cannot be
            matched; nothing was proven.
        dlb.errors.WorkerError: a worker failed.
    """
    from dlb.proof.port.inputs import InputSpec
    from dlb.proof.port_proof import verify_port as prove

    shape = None if input_shape is None else tuple(input_shape)
    return prove(
        models,
        input_spec=InputSpec(
            file=None if inputs is None else Path(inputs), shape=shape, tokens=tokens, seed=seed
        ),
        layouts=layouts,
        map_file=None if map_file is None else Path(map_file),
        folder=None if folder is None else Path(folder),
        export=None if export is None else Path(export),
        threads=threads,
        device=device,
    )


def compare_files(
    first: str | Path, second: str | Path, *, inputs: str | Path | None = None, seed: int = 0
) -> Certificate:
    """Compare two ONNX files, as ``dlb diff`` does.

    Args:
        inputs: an ``.npz`` file with the inputs; seeded noise that fits when left out.
        seed: of the noise.

    Returns:
        a certificate about the second file, compared with the first.

    Raises:
        dlb.errors.DataError, dlb.errors.UnsupportedError, dlb.errors.RequestError: a file cannot be
            read, the two read different things, or the inputs do not fit.
    """
    from dlb.proof.file_proof import verify_files

    given = None if inputs is None else Path(inputs)
    return verify_files(Path(first), Path(second), given, seed)


def read_records(path: str | Path) -> list[Record]:
    """The records of a folder by name, or the one in a file.

    Raises:
        dlb.errors.RecordError: the file is no record, or a file of the folder is none.
    """
    from dlb.record import read, read_folder

    place = Path(path)
    if not place.is_dir():
        return [read(place)]
    records, errors = read_folder(place)
    if errors:
        raise errors[0]
    return records
