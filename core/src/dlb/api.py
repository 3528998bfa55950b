"""The commands of dlb as functions. :data:`dlb.__all__` lists the public ones."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dlb.proof.certificate import CHECK_GROUPS, Certificate, CheckGroup

if TYPE_CHECKING:
    from dlb.execution.measure import Plan
    from dlb.execution.run import Outcome
    from dlb.execution.sweep import Swept
    from dlb.measure.comparison import Compared
    from dlb.proof.port.inputs import InputSpec
    from dlb.proof.port_proof import Port
    from dlb.reading import Reading
    from dlb.record import Record
    from dlb.request import Request
    from dlb.results.measurement import Measurement

__all__ = [
    "assert_proven",
    "capture",
    "compare",
    "compare_files",
    "make_report",
    "read_measurement",
    "read_records",
    "run",
    "sweep",
    "verify",
    "verify_port",
]


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
    reading: Reading | None = None,
) -> Certificate:
    """Prove that adapters build the same workload, as ``dlb verify`` does.

    Args:
        workload: a name, or the path of a ``.toml`` or an ``.onnx`` file. If its data set is not on
            this machine, the proof uses synthetic samples, and a warning says so.
        on: adapters; all that are available if empty.
        groups: the groups of checks to run.
        steps: training steps of the trajectory; 20 by default.
        seed: seeds the weights and inputs.
        threads: threads of each worker. By default, the adapters run at the same time and share
            the available cores.
        device: ``cpu`` or ``cuda``.
        variants: how models are built, ``[ADAPTER:]NAME=VALUE`` each, as ``--variant`` takes them.
        reading: sizes, constants and output of an ONNX file, if it leaves a choice.

    Returns:
        the certificate. :meth:`~dlb.proof.certificate.Certificate.status` returns ``proven``,
        ``deviates`` or ``unproven`` for an adapter; ``failures`` says what ended a run early.

    Raises:
        dlb.errors.RequestError: the request cannot be carried out; nothing was started.
        KeyboardInterrupt: the run was interrupted; every worker has ended.
    """
    from dlb.adapters import find_adapters
    from dlb.catalogue import load_with_file
    from dlb.errors import RequestError
    from dlb.execution.run import run as run_request
    from dlb.progress import Silent
    from dlb.provenance import available_cores
    from dlb.request import TRAJECTORY_STEPS, VERIFY_STEPS, Request, share_cores
    from dlb.samples import replace_missing_data
    from dlb.variants import choose

    unknown = set(groups) - set(CHECK_GROUPS)
    if unknown or not groups:
        raise RequestError(f"groups {sorted(unknown)}: choose from {', '.join(CHECK_GROUPS)}")
    resolved, imported = load_with_file(str(workload), reading)
    resolved = replace_missing_data(resolved, warnings.warn)
    environments = find_adapters(on)
    at_once, threads_per_worker = share_cores(
        available_cores(), len(environments), threads, device=device
    )
    request = Request(
        workload=resolved,
        environments=environments,
        out=None,
        batch_size=resolved.batch_size,
        steps=VERIFY_STEPS,
        warmup=0,
        threads=threads_per_worker,
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
    threads: int | None = None,
    device: str = "cpu",
    variants: Sequence[str] = (),
) -> Certificate:
    """Assert, in a test, that adapters pass every requested check; arguments as :func:`verify`.

    Raises:
        AssertionError: an adapter differs, or could not be checked. The text says where, by how
            much, and the likely cause.
    """
    from dlb.proof.explain import explain
    from dlb.report.explanations import explanation_line, reason_text
    from dlb.report.sentences import describe

    certificate = verify(
        workload,
        on,
        groups=groups,
        steps=steps,
        seed=seed,
        threads=threads,
        device=device,
        variants=variants,
    )
    not_proven = [
        adapter for adapter in certificate.judged_adapters if not certificate.passed(adapter)
    ]
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
    if not_proven:
        raise AssertionError(
            f"{certificate.workload} is not proven the same on {', '.join(not_proven)}:\n"
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
    reading: Reading | None = None,
    out: str | Path = "dlb-results",
    prove_again: bool = False,
    test_steps: int | None = None,
    variables: Mapping[str, str] | None = None,
    plan: Plan | None = None,
) -> Outcome:
    """Train a workload on adapters, time it, export it and prove it, as ``dlb run`` does.

    Args:
        workload: a name, or the path of a ``.toml`` or an ``.onnx`` file.
        on: adapters; all that are available if empty.
        steps: training steps; by default, as many as the workload's epochs have.
        batch_size: samples in a step of all workers together; by default, the workload's.
        warmup: first steps that the summary leaves out; by default 10, and at most a tenth.
        dtype: ``float32`` or ``float64``.
        seed: seeds the weights and the order of samples.
        threads: threads of each worker; by default, the workers share the available cores.
        device: ``cpu`` or ``cuda``.
        input_mode: ``pipeline`` or ``memory``.
        strategy: a distributed strategy; "" for none.
        workers: worker processes of the strategy.
        variants: how models are built, ``[ADAPTER:]NAME=VALUE`` each.
        changes: changed fields of the workload, ``FIELD=VALUE`` each.
        data: data to use instead of the workload's, ``NAME[:PATH]``.
        reading: sizes, constants and output of an ONNX file, if it leaves a choice.
        out: folder for records.
        prove_again: make the proof again, even if one was kept that holds.
        test_steps: test the model every so many steps, too.
        variables: environment variables of the workers' processes.
        plan: how to measure afterwards, in rounds of new processes; ``dlb.Plan()`` as ``dlb run`` does,
            None for no rounds.

    Returns:
        a record for each adapter, their paths, the certificate, and the measurement, if there was a plan and an
        adapter did not fail. :func:`compare` has its ratios, :mod:`dlb.frames` makes data frames of it.

    Raises:
        dlb.errors.RequestError: the request cannot be carried out; nothing was started.
        dlb.errors.RecordError: a record cannot be written; earlier records are kept.
        KeyboardInterrupt: the run was interrupted; finished records and trials are kept, every worker has
            ended. The same call goes on with the trials.
    """
    from dlb.execution.measure import measure_cells, ready_cells
    from dlb.execution.run import run as run_request
    from dlb.progress import Silent

    request = _run_request(
        workload,
        on,
        steps=steps,
        batch_size=batch_size,
        warmup=warmup,
        dtype=dtype,
        seed=seed,
        threads=threads,
        device=device,
        input_mode=input_mode,
        strategy=strategy,
        workers=workers,
        variants=variants,
        changes=changes,
        data=data,
        reading=reading,
        out=out,
        prove_again=prove_again,
        test_steps=test_steps,
        variables=dict(variables or {}),
    )
    outcome = run_request(request, Silent())
    if outcome.interrupted:
        raise KeyboardInterrupt
    cells = [] if plan is None else ready_cells(request, outcome)
    if plan is not None and cells:
        outcome.measurement = measure_cells(cells, plan, Silent())
        if outcome.measurement.ended == "interrupted":
            raise KeyboardInterrupt
    return outcome


def read_measurement(path: str | Path) -> Measurement:
    """The measurement in a file, or the last one of a results folder.

    Raises:
        dlb.errors.RecordError: there is none, or it cannot be read.
    """
    from dlb.results.measurement import latest

    return latest(Path(path))


def compare(measurement: Measurement, baseline: str = "") -> list[Compared]:
    """Every cell of a measurement next to a baseline: ratios, intervals and words.

    Args:
        baseline: the adapter of a cell; the first cell if empty.

    Raises:
        dlb.errors.UnknownNameError: no cell has that adapter.
    """
    from dlb.results.compared import compared_cells, find_cell

    return compared_cells(measurement, find_cell(measurement, baseline))


def _run_request(
    workload: str | Path,
    on: Sequence[str] = (),
    *,
    steps: int | None = None,
    batch_size: int | None = None,
    warmup: int | None = None,
    threads: int | None = None,
    strategy: str = "",
    workers: int = 1,
    variants: Sequence[str] = (),
    changes: Sequence[str] = (),
    data: str | None = None,
    reading: Reading | None = None,
    out: str | Path = "dlb-results",
    **settings: Any,
) -> Request:
    """What :func:`run` runs; arguments as there."""
    from dlb.adapters import check_strategy, find_adapters
    from dlb.catalogue import load_with_file
    from dlb.provenance import available_cores
    from dlb.request import Request
    from dlb.samples import count_samples, with_data
    from dlb.variants import choose
    from dlb.workload.changes import with_changes

    resolved, imported = load_with_file(str(workload), reading)
    resolved = with_changes(resolved, tuple(changes), keep_model=imported is not None)
    if data is not None:
        resolved = with_data(resolved, data)
    if batch_size is None:
        batch_size = resolved.batch_size
    if steps is None:
        steps = resolved.epochs * (count_samples(resolved) // max(1, batch_size))
    environments = find_adapters(on)
    if strategy:
        check_strategy(strategy, environments)
    return Request(
        workload=resolved,
        environments=environments,
        out=Path(out),
        batch_size=batch_size,
        steps=steps,
        warmup=min(10, steps // 10) if warmup is None else warmup,
        threads=max(1, available_cores() // max(1, workers)) if threads is None else threads,
        strategy=strategy,
        workers=workers,
        variants=choose(variants, environments),
        imported=imported,
        **settings,
    )


def sweep(
    workload: str | Path,
    on: Sequence[str] = (),
    *,
    vary: Mapping[str, Sequence[Any]],
    plan: Plan | None = None,
    skip_refused: bool = False,
    most_cells: int | None = None,
    reading: Reading | None = None,
    out: str | Path = "dlb-results",
    **settings: Any,
) -> Swept:
    """Prove and measure a workload in every combination of some settings, as ``dlb sweep`` does.

    A sweep that was interrupted or killed goes on where it was when it is called again in the same way.

    Args:
        workload: a name, or the path of a ``.toml`` or an ``.onnx`` file.
        on: adapters; all that are available if empty.
        vary: values by setting (``threads``, ``batch_size``, ``workers``, ``steps``, ``epochs``, ``seed``,
            ``dtype``, ``device``, ``input``, ``strategy``, ``variant``, ``data``) or by field of the workload
            (``optimizer.learning_rate``).
        plan: how to measure, a :class:`dlb.Plan`; 5 rounds by default.
        skip_refused: leave out combinations that cannot be run.
        most_cells: a matrix of more cells is refused; 1000 by default.
        reading: sizes, constants and output of an ONNX file, if it leaves a choice.
        out: folder for results.
        settings: what all cells have in common: fields of :class:`dlb.matrix.Settings`.

    Returns:
        the cells and the measurement; its :meth:`~dlb.execution.sweep.Swept.results` are typed rows.

    Raises:
        dlb.errors.RequestError: a name, a value or a combination is refused; nothing was started.
        dlb.errors.RecordError: a file cannot be written; what has ended is kept.
        KeyboardInterrupt: it was interrupted; what has ended is kept, every worker has ended.
    """
    from dlb.adapters import find_adapters
    from dlb.catalogue import load_with_file
    from dlb.execution.measure import Plan
    from dlb.execution.sweep import sweep as run_sweep
    from dlb.matrix import MOST_CELLS, Settings, axes_of, make_cells
    from dlb.progress import Silent

    resolved, imported = load_with_file(str(workload), reading)
    matrix = make_cells(
        resolved,
        imported,
        find_adapters(on),
        axes_of(vary),
        Settings(**settings),
        Path(out),
        most=MOST_CELLS if most_cells is None else most_cells,
        skip_refused=skip_refused,
    )
    swept = run_sweep(matrix.cells, Plan() if plan is None else plan, Silent())
    if swept.interrupted:
        raise KeyboardInterrupt
    return swept


def verify_port(
    models: Mapping[str, str],
    *,
    against: str | Path | None = None,
    dtype: str = "float64",
    inputs: str | Path | None = None,
    input_shape: Sequence[int] | Mapping[str, Sequence[int]] | None = None,
    tokens: int | Mapping[str, int] | None = None,
    seed: int = 0,
    layouts: Mapping[str, str] | None = None,
    output_layouts: Mapping[str, str] | None = None,
    map_file: str | Path | None = None,
    folder: str | Path | None = None,
    export: str | Path | None = None,
    trainers: Mapping[str, str] | None = None,
    batches: str | Path | None = None,
    threads: int = 1,
    device: str = "cpu",
) -> Port:
    """Prove that user models in several frameworks compute the same, as ``dlb port`` does.

    Args:
        models: ``package.module:factory`` by adapter, or by ``ADAPTER-WORD`` if there are several of one; or
            the path of an ``.onnx`` file by any name. The first is the reference.
        against: a file that :func:`capture` wrote; its model is the reference, and its inputs are used.
        dtype: ``float32`` for models that cannot run in float64: they are compared within rounding.
        inputs: an ``.npz`` file with the inputs; by default, seeded noise.
        input_shape: shape of one sample of noise, where no model states it; by name for several inputs.
        tokens: use random integers below this number instead of noise; by name for several inputs.
        seed: seeds the noise.
        layouts: by adapter, the order of the axes that a model reads, such as ``NHWC``.
        output_layouts: by adapter, the order of the axes that a model returns.
        map_file: the parameter mapping; by default, dlb proposes one.
        folder: where modules are searched; by default, the current folder.
        export: folder for an ONNX export of each model, which is verified; None for no export.
        trainers: by adapter, a function of the model that returns its training step, to compare too.
        batches: an ``.npz`` file with the batches of these steps.
        threads: threads of each worker.
        device: ``cpu`` or ``cuda``.

    Returns:
        the parameter mapping and the certificate.

    Raises:
        dlb.errors.RequestError: a factory, a map or an input cannot be used, or parameters cannot be
            matched; nothing was proven.
        dlb.errors.WorkerError: a worker failed.
    """
    from dlb.proof.port_proof import verify_port as prove

    return prove(
        models,
        against=None if against is None else Path(against),
        dtype=dtype,
        input_spec=_input_spec(inputs, input_shape, tokens, seed),
        layouts=layouts,
        output_layouts=output_layouts,
        map_file=None if map_file is None else Path(map_file),
        folder=None if folder is None else Path(folder),
        export=None if export is None else Path(export),
        trainers=trainers,
        batches=None if batches is None else Path(batches),
        threads=threads,
        device=device,
    )


def capture(
    file: str | Path,
    name: str,
    factory: str,
    *,
    inputs: str | Path | None = None,
    input_shape: Sequence[int] | Mapping[str, Sequence[int]] | None = None,
    tokens: int | Mapping[str, int] | None = None,
    seed: int = 0,
    layout: str = "",
    output_layout: str = "",
    folder: str | Path | None = None,
    trainer: str = "",
    batches: str | Path | None = None,
    threads: int = 1,
    device: str = "cpu",
) -> Port:
    """Write what a user model computes, for ports to be compared with elsewhere, as ``dlb capture`` does.

    Args:
        file: a safetensors file, which is written.
        name: the model's adapter, or ``ADAPTER-WORD``.
        factory: ``package.module:factory``.
        layout, output_layout: the order of the axes that the model reads and returns.
        trainer: a function of the model that returns its training step, to capture too.
        inputs, input_shape, tokens, seed, folder, batches, threads, device: see :func:`verify_port`.

    Returns:
        the proof of the model against itself, made a second time.

    Raises:
        dlb.errors.RequestError, dlb.errors.WorkerError: as :func:`verify_port`; nothing was written.
    """
    from dlb.proof.port_proof import capture_model

    return capture_model(
        name,
        factory,
        Path(file),
        input_spec=_input_spec(inputs, input_shape, tokens, seed),
        layout=layout,
        output_layout=output_layout,
        folder=None if folder is None else Path(folder),
        trainer=trainer,
        batches=None if batches is None else Path(batches),
        threads=threads,
        device=device,
    )


def _input_spec(
    inputs: str | Path | None,
    input_shape: Sequence[int] | Mapping[str, Sequence[int]] | None,
    tokens: int | Mapping[str, int] | None,
    seed: int,
) -> InputSpec:
    from dlb.proof.port.inputs import InputSpec

    if input_shape is None or not isinstance(input_shape, Mapping):
        input_shape = {} if input_shape is None else {"": input_shape}
    shapes = {name: tuple(shape) for name, shape in input_shape.items()}
    if isinstance(tokens, int):
        tokens = dict.fromkeys(shapes or ("",), tokens)
    file = None if inputs is None else Path(inputs)
    return InputSpec(file=file, shapes=shapes, tokens=tokens or {}, seed=seed)


def compare_files(
    first: str | Path, second: str | Path, *, inputs: str | Path | None = None, seed: int = 0
) -> Certificate:
    """Compare two ONNX files, as ``dlb diff`` does.

    Args:
        inputs: an ``.npz`` file with the inputs; by default, seeded noise of the right shapes.
        seed: seeds the noise.

    Returns:
        a certificate of the second file, compared with the first.

    Raises:
        dlb.errors.DataError, dlb.errors.UnsupportedError, dlb.errors.RequestError: a file cannot be
            read, the two files have different inputs, or the given inputs do not fit.
    """
    from dlb.proof.file_proof import verify_files

    inputs_path = None if inputs is None else Path(inputs)
    return verify_files(Path(first), Path(second), inputs_path, seed)


def make_report(
    results: str | Path | Sequence[str | Path],
    output: str | Path | None = None,
    *,
    form: str = "html",
    condition: str = "",
    baseline: str = "",
    title: str = "",
    limit: int = 10,
    plots: str | Path | None = None,
) -> str:
    """Write a report on results, as ``dlb report`` does.

    Args:
        results: a results folder, or the file of a measurement or a record; several are
            compared with the first.
        output: where to write it; nowhere if None.
        form: ``html``, ``markdown`` or ``latex``.
        condition: which results of folders, as ``dlb results --filter``.
        baseline: adapter that ratios are to; the first of each measurement if empty.
        title: title of the report.
        limit: so many last measurements and runs of each folder are shown in detail.
        plots: folder for the charts as SVG, and as PNG if ``dlb-core[plots]`` is installed.

    Returns:
        the report. A warning names each file that cannot be read.

    Raises:
        dlb.errors.RequestError: there are no such results, or the report cannot be written.
    """
    from dlb.report.page.writing import save, write_report

    several = [results] if isinstance(results, (str, Path)) else results
    written = write_report(
        [Path(each) for each in several],
        form,
        condition=condition,
        baseline=baseline,
        title=title,
        limit=limit,
        plots=None if plots is None else Path(plots),
    )
    for line in written.skipped:
        warnings.warn(line, stacklevel=2)
    if output is not None:
        save(written, Path(output))
    return written.content.decode()


def read_records(path: str | Path) -> list[Record]:
    """The records in a folder, ordered by name, or the one in a file.

    Raises:
        dlb.errors.RecordError: the file, or a file in the folder, is not a record.
    """
    from dlb.record import read, read_folder

    path = Path(path)
    if not path.is_dir():
        return [read(path)]
    records, errors = read_folder(path)
    if errors:
        raise errors[0]
    return records
