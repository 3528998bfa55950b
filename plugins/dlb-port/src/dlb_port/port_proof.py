"""The proof of a port: load the models, match parameters, carry the weights, compare."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import msgspec
import numpy.typing as npt

from dlb import __version__
from dlb.adapters import AdapterEnvironment, find_adapters
from dlb.api import checked
from dlb.errors import DlbError, RequestError
from dlb.proof.certificate import Certificate
from dlb.proof.worker_logs import keep_output, names_log, with_kept_logs
from dlb.report.answers import Answer, NotProven
from dlb.scratch import scratch_folder
from dlb.shown import Shown
from dlb.supervision.group import Launch
from dlb_graph.comparing.distance import same_bits
from dlb_graph.files.model_file import read_model_file
from dlb_graph.regular_files import replaceable
from dlb_port.captures import FORMAT, Capture, CaptureFile, Recording, read_capture, write_capture
from dlb_port.inputs import Inputs, InputSpec, check_layout, spec_of
from dlb_port.port_checks import Questions, prove
from dlb_port.session import PortSession
from dlb_port.weight_map import Entry, ModelMap, Pair, WeightMap, read_map, write_map
from dlb_port.words import (
    Function,
    adapters_needed,
    adapters_of_models,
    layouts_of_inputs,
    layouts_of_outputs,
    model_files,
    name_functions,
    named_models,
    read_program,
)

__all__ = ["MAP", "Port", "assert_port_proven", "capture", "verify_port"]

Array = npt.NDArray[Any]
#: Where a proposal is written when no map is given.
MAP = Path("dlb-map.toml")


@dataclass(repr=False)
class Port(Shown):
    """The result of proving a port. After an error it holds the results so far.

    Attributes:
        reference: name of the first model.
        pairs: matched parameters of each other model.
        undecided: one line for each parameter that could not be matched.
        written: the map that was written; None if none was.
        kept: a map that existed and was not changed; None if there was none.
        certificate: the proof.
    """

    reference: str
    pairs: dict[str, list[Pair]] = field(default_factory=dict)
    undecided: list[str] = field(default_factory=list)
    written: Path | None = None
    kept: Path | None = None
    certificate: Certificate | None = None

    @property
    def proven(self) -> bool:
        """Whether every model that was checked is proven. Only the export of the reference is checked."""
        own = self.certificate
        return own is not None and {*map(own.status, own.judged_adapters)} <= {"proven"}

    @property
    def agrees(self) -> bool:
        """Whether every model is proven, or, if it runs in float32 only, within rounding."""
        return self.certificate is not None and self.certificate.agrees

    def answer(self) -> Answer:
        return self.certificate.answer() if self.certificate else Answer("no proof")


@checked
def verify_port(
    models: Mapping[str, Function],
    *,
    against: str | Path | None = None,
    dtype: str = "float64",
    inputs: str | Path | InputSpec | None = None,
    input_shape: Sequence[int] | Mapping[str, Sequence[int]] | None = None,
    tokens: int | Mapping[str, int] | None = None,
    seed: int = 0,
    layouts: Mapping[str, str] | None = None,
    output_layouts: Mapping[str, str] | None = None,
    map_file: str | Path | None = None,
    proposal: Path | None = None,
    folder: str | Path | None = None,
    export: str | Path | None = None,
    trainers: Mapping[str, Function] | None = None,
    batches: str | Path | None = None,
    threads: int = 1,
    device: str = "cpu",
    environments: Sequence[AdapterEnvironment] = (),
    call_seconds: float = 300.0,
    report: Callable[[str], None] = lambda line: None,
    on_matched: Callable[[Port], None] = lambda port: None,
) -> Port:
    """Prove that user models in several frameworks compute the same, as ``dlb port`` does.

    Args:
        models: ``package.module:factory`` by adapter, or by ``ADAPTER-WORD`` if there are several of one; or
            the path of an ``.onnx`` file by any name. A factory may be given itself, if a worker can import it
            by its module and name. The first is the reference, unless all are compared with a capture. A
            factory takes no arguments and returns a native model.
        against: a file that :func:`capture` wrote; its model is the reference, and its inputs are used.
        dtype: ``float32`` for models that cannot run in float64: they are compared within rounding, and are
            not proven. The reference runs in both.
        inputs: an ``.npz`` file with the inputs; by default, seeded noise.
        input_shape: shape of one sample of noise, where no model states it; by name for several inputs.
        tokens: use random integers below this number instead of noise; by name for several inputs.
        seed: seeds the noise.
        layouts: by adapter, the order of the axes that a model reads, such as ``NHWC``.
        output_layouts: by adapter, the order of the axes that a model returns. Both override the map's.
        map_file: the parameter mapping; by default, dlb proposes one.
        proposal: where that is written, unless the file exists.
        folder: where modules are searched and run; by default, the current folder, and for a factory that was
            given itself the one that its module was imported from.
        export: folder for an ONNX export of each model, which is verified; None for no export.
        trainers: by adapter, a function of the model that returns its training step, to compare too.
        batches: an ``.npz`` file with the batches of these steps.
        threads: threads of each worker.
        device: ``cpu`` or ``cuda``.
        environments: of the models' adapters; by default, those that are found.
        call_seconds: a worker that makes no progress for so long is ended.
        report: called with a line for each step.
        on_matched: called after matching, before weights are carried, even if the matching is incomplete.

    Returns:
        the parameter mapping and the certificate.

    Raises:
        dlb.errors.RequestError: a factory, a map or an input cannot be used, or parameters cannot be
            matched; nothing was proven.
        dlb.errors.WorkerError: a worker failed.
    """
    input_spec = spec_of(inputs, input_shape, tokens, seed)
    with ExitStack() as stack:
        captured = None if against is None else stack.enter_context(read_capture(Path(against)))
        factories, folders = name_functions(models, folder)
        named = named_models(factories, captured)
        weight_map = read_map(Path(map_file), list(named)) if map_file else WeightMap()
        steps, step_folders = name_functions(trainers or {}, folder)
        program = read_program(named, steps, batches, step_folders, captured)
        if program is not None and dtype == "float32":
            raise RequestError("training programs need float64; leave out --dtype float32")
        if export is not None:
            export = Path(export)
            _make_folder(export)
        scratch = stack.enter_context(scratch_folder())
        session = PortSession(
            named,
            weight_map,
            layouts_of_inputs(named, weight_map, layouts or {}, captured),
            layouts_of_outputs(named, output_layouts or {}, captured),
            folders,
            scratch,
            report,
            captured,
            dtype,
        )
        launch = Launch("", Path(), scratch, threads, device=device, call_seconds=call_seconds)
        questions = _questions(input_spec, captured)
        with _kept_output(scratch):
            _read_files(session, model_files(named))
            session.start(stack, _environments(factories, environments), launch, questions.seed)
            arrays = session.inputs(input_spec)
            session.load(arrays)
            port = Port(session.reference)
            port.pairs, port.undecided = session.match(map_file is not None)
            _propose(port, weight_map, session, proposal, on_matched)
            port.certificate = prove(session, port.pairs, arrays, questions, export, program)
            return _with_kept_logs(port, scratch)


def assert_port_proven(models: Mapping[str, Function], **options: Any) -> Port:
    """As :func:`verify_port`, for tests.

    Raises:
        dlb.report.answers.NotProven: an AssertionError: a model is neither proven nor within rounding. The text
            says first where it differs, by how much, and the likely cause; then it has the table of all checks.
    """
    __tracebackhide__ = True
    port = verify_port(models, **options)
    if port.certificate is not None and not port.agrees:
        raise NotProven(port.certificate)
    return port


@checked
def capture(
    file: str | Path,
    name: str,
    factory: Function,
    *,
    inputs: str | Path | InputSpec | None = None,
    input_shape: Sequence[int] | Mapping[str, Sequence[int]] | None = None,
    tokens: int | Mapping[str, int] | None = None,
    seed: int = 0,
    layout: str = "",
    output_layout: str = "",
    folder: str | Path | None = None,
    trainer: Function = "",
    batches: str | Path | None = None,
    threads: int = 1,
    device: str = "cpu",
    environments: Sequence[AdapterEnvironment] = (),
    call_seconds: float = 300.0,
    report: Callable[[str], None] = lambda line: None,
) -> Port:
    """Write what a user model computes, for ports to be compared with elsewhere, as ``dlb capture`` does.

    The model is proven the same as itself, made a second time, while its answers are recorded. So whoever
    reads the capture knows that they are not drawn at random.

    Args:
        file: a safetensors file, which is written.
        name: the model's adapter, or ``ADAPTER-WORD``.
        factory: ``package.module:factory``, or the factory itself.
        layout, output_layout: the order of the axes that the model reads and returns.
        trainer: a function of the model that returns its training step, to capture too.
        inputs, input_shape, tokens, seed, folder, batches, threads, device, environments, call_seconds, report:
            see :func:`verify_port`.

    Returns:
        the proof of the model against itself, made a second time.

    Raises:
        dlb.errors.RequestError, dlb.errors.WorkerError: as :func:`verify_port`; nothing was written.
    """
    again = f"{name}-again"
    factories, folders = name_functions({name: factory, again: factory}, folder)
    named = named_models(factories, None)
    to = Path(file)
    if not to.absolute().parent.is_dir():
        raise RequestError(f"there is no folder {to.absolute().parent}", path=to)
    try:
        replaceable(to)
    except OSError as error:
        raise RequestError(f"the capture cannot be written: {error}", path=to) from None
    steps, step_folders = name_functions(dict.fromkeys(named, trainer) if trainer else {}, folder)
    program = read_program(named, steps, batches, step_folders, None)
    with ExitStack() as stack:
        scratch = stack.enter_context(scratch_folder())
        session = PortSession(
            named,
            WeightMap(),
            dict.fromkeys(named, check_layout(name, layout)),
            dict.fromkeys(named, check_layout(name, output_layout)),
            folders,
            scratch,
            report,
        )
        session.recording = Recording()
        launch = Launch("", Path(), scratch, threads, device=device, call_seconds=call_seconds)
        spec = spec_of(inputs, input_shape, tokens, seed)
        questions = _questions(spec, None)
        with _kept_output(scratch):
            session.start(stack, _environments(named, environments), launch, questions.seed)
            arrays = session.inputs(spec)
            session.load(arrays)
            port = Port(name)
            port.pairs, _ = session.match(mapped=False)
            drawn = _drawn(session, arrays)
            port.certificate = prove(session, port.pairs, arrays, questions, None, program)
        document = Capture(
            format=FORMAT,
            made=datetime.now(timezone.utc).isoformat(timespec="seconds"),
            core=__version__,
            name=name,
            adapter=adapters_of_models([name])[name],
            framework=session.versions[name],
            factory=named[name],
            features=tuple(sorted(session.features[name])),
            seed=questions.seed,
            further=questions.further,
            input_layout=layout,
            output_layouts=output_layout,
            leave=session.models[name].leave,
            inputs=session.recording.keep_all(arrays),
            trainer=steps.get(name, ""),
            batches=session.recording.keep_all(program.batches if program else {}),
            models={dtype: made.recorded() for dtype, made in session.recorders.items()},
            drawn=session.recording.keep_all(drawn),
        )
        write_capture(to, document, session.recording)
        return _with_kept_logs(port, scratch)


def _questions(input_spec: InputSpec, captured: CaptureFile | None) -> Questions:
    if captured is not None:
        return Questions(captured.capture.seed, captured.capture.further)
    # A user's own arrays may have bounds that larger ones would leave, such as those of an image.
    return Questions(input_spec.seed, input_spec.file is None)


def _environments(
    models: Mapping[str, str], environments: Sequence[AdapterEnvironment]
) -> dict[str, AdapterEnvironment]:
    """The environment of each model's adapter."""
    adapters = adapters_needed(models)
    found = environments or find_adapters(list(adapters.values()))
    by_adapter = {each.adapter: each for each in found}
    return {name: by_adapter[adapter] for name, adapter in adapters.items()}


def _with_kept_logs(port: Port, scratch: Path) -> Port:
    """The port; logs that its certificate names are copied, so that they outlive ``scratch``."""
    assert port.certificate is not None
    if any(map(names_log, port.certificate.checks)):
        copies = keep_output(scratch, None, "port")
        checks = tuple(with_kept_logs(result, copies) for result in port.certificate.checks)
        port.certificate = msgspec.structs.replace(port.certificate, checks=checks)
    return port


def _read_files(session: PortSession, files: Mapping[str, str]) -> None:
    """Read the models that are ONNX files, as :func:`dlb_graph.files.model_file.read_model_file` does."""
    for name, path in files.items():
        session.report(f"{name}: reading {path}")
        file = read_model_file(Path(path), name)
        session.files[name] = file.float64
        session.held += file.held
        session.versions[name] = f"ONNX file, {file.description}"


@contextmanager
def _kept_output(scratch: Path) -> Iterator[None]:
    """If the block raises, copy the log that the error points to, so that it outlives ``scratch``."""
    try:
        yield
    except DlbError as error:
        if error.log:
            error.log = keep_output(scratch, None, "port").get(error.log, error.log)
        raise


def _drawn(session: PortSession, inputs: Inputs) -> dict[str, Array]:
    """What the reference does not train and its factory makes otherwise when it is called again."""
    made = session.models[session.reference].remote.weights()
    return {
        name: array
        for name, array in session.made_again(session.reference, inputs).items()
        if not same_bits(array, made[name])
    }


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RequestError(f"cannot be made: {error.strerror or error}", path=folder) from None


def _propose(
    port: Port,
    weight_map: WeightMap,
    session: PortSession,
    proposal: Path | None,
    on_matched: Callable[[Port], None],
) -> None:
    """Write and report the matched parameters.

    Raises:
        RequestError: the matching is incomplete, or the map cannot be written.
    """
    if proposal is not None:
        models = {}
        for name in (port.reference, *port.pairs):
            model_map = weight_map.models.get(name, ModelMap())
            entries = None
            if name in port.pairs:
                entries = tuple(
                    Entry(pair.source.name, pair.target.name, pair.reshape, pair.transpose)
                    for pair in port.pairs[name]
                )
            model = msgspec.structs.replace(
                model_map,
                input=session.axis_orders[name],
                output=session.output_orders.get(name) or model_map.output,
                leave=session.models[name].leave,
                weights=entries,
            )
            if model != ModelMap():
                models[name] = model
        if proposal.exists():
            port.kept = proposal
        else:
            write_map(proposal, WeightMap(models), port.undecided)
            port.written = proposal
    on_matched(port)
    if port.undecided:
        count, listed = len(port.undecided), "; ".join(port.undecided[:3])
        more = f"; and {count - 3} more" if count > 3 else ""
        edit = f"Edit {port.written} and give it with --map" if port.written else "Give a --map"
        raise RequestError(
            f"{count} parameters could not be matched unambiguously: {listed}{more}. {edit}: add a "
            f"`weights` entry for each, or list it under `leave`{session.folding_advice()}"
        )
