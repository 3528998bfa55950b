"""The proof of a port: load the models, match parameters, carry the weights, compare."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime, timezone
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from dlb import __version__
from dlb.adapters import AdapterEnvironment, adapters_of_models, find_adapters
from dlb.documents import replaceable
from dlb.errors import DlbError, RequestError, UnsupportedError, WorkerRaised
from dlb.proof.certificate import Baseline, Certificate, CheckResult
from dlb.proof.checks.export import check_user_export
from dlb.proof.checks.float32 import (
    Float32Port,
    check_port_gradients_float32,
    check_port_outputs_float32,
)
from dlb.proof.checks.float32_constants import with_constants_named
from dlb.proof.checks.forward import check_outputs, check_training_outputs
from dlb.proof.checks.gradients import check_user_gradients
from dlb.proof.checks.layers import check_counterparts
from dlb.proof.checks.own_steps import Program, check_own_steps, read_batches
from dlb.proof.checks.settings import check_settings, have_settings
from dlb.proof.checks.statistics import check_statistics
from dlb.proof.checks.updates import check_port_trajectory
from dlb.proof.checks.weights import check_carried_weights
from dlb.proof.distance import same_bits
from dlb.proof.engine import EVALUATION_ONLY, FLOAT32_ONLY, INAPPLICABLE, Check, run
from dlb.proof.files.read import read_model_file
from dlb.proof.findings import Finding
from dlb.proof.findings.common import FeatureMissing
from dlb.proof.findings.port import NotLoaded
from dlb.proof.port.capture import (
    FORMAT,
    Capture,
    CaptureFile,
    Recording,
    read_capture,
    write_capture,
)
from dlb.proof.port.comparison import PortComparison
from dlb.proof.port.culprit import owner_pairs
from dlb.proof.port.inputs import Inputs, InputSpec, check_layout, in_dtype, scaled
from dlb.proof.port.matching import is_state
from dlb.proof.port.model import Model
from dlb.proof.port.onnx_model import is_file
from dlb.proof.port.reference_model import ReferenceModel
from dlb.proof.port.session import PortSession
from dlb.proof.port.states import compare_states
from dlb.proof.port.varied import varied
from dlb.proof.port.weight_map import Entry, ModelMap, Pair, WeightMap, read_map, write_map
from dlb.proof.worker_logs import keep_output, names_log, with_kept_logs
from dlb.scratch import scratch_folder
from dlb.supervision.group import Launch
from dlb_worker.contract import Gradients

__all__ = [
    "MAP",
    "Port",
    "adapters_needed",
    "capture_model",
    "check_models",
    "verify_models",
    "verify_port",
]

Array = npt.NDArray[Any]
#: A check of a port.
PortCheck = Callable[[Check, PortComparison], CheckResult]
#: Where a proposal is written when no map is given.
MAP = Path("dlb-map.toml")
#: A name is a folder's and a file's, too.
NAME = re.compile(r"[^\W_][\w.-]*")
SPELLING = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*")


@dataclass
class Port:
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
        return self._all("proven")

    @property
    def agrees(self) -> bool:
        """Whether every model is proven, or, if it runs in float32 only, within rounding."""
        return self._all("proven", "within rounding")

    def _all(self, *words: str) -> bool:
        certificate = self.certificate
        return certificate is not None and all(
            certificate.status(name) in words for name in certificate.judged_adapters
        )


def verify_models(models: Mapping[str, str], **options: Any) -> Certificate:
    """Prove that models written by hand in several frameworks are the same model.

    Args:
        models: ``package.module:factory`` by the model's name; the first is the reference. A name is
            that of an adapter, or ``ADAPTER-WORD``, so that several may be of one. The factory takes no
            arguments and returns a native model. It runs in its adapter's environment, in the current
            folder. In its place, the path of an ONNX file ends in ``.onnx``; then the name is free.
        options: see :func:`verify_port`.

    Raises:
        RequestError: a factory, a map, an input that cannot be used, or parameters that cannot be
            matched; nothing was proven.
        WorkerError: a worker failed.
    """
    port = verify_port(models, **options)
    assert port.certificate is not None
    return port.certificate


def check_models(models: Sequence[str], taken: Collection[str] = ()) -> dict[str, str]:
    """Factories by model, from arguments ``ADAPTER=MODULE:FACTORY`` of the command line.

    ``[NAME=]FILE.onnx`` is a file, called as the file if it has no name. The second model of ``torch`` is
    called ``torch-2``, unless the argument gives it a name of its own, such as
    ``torch-new=MODULE:FACTORY``.

    Args:
        taken: names that other models have.

    Raises:
        RequestError: an argument has another form, or a name is given twice.
    """
    known = adapters_of_models(word.partition("=")[0] for word in models)
    factories: dict[str, str] = {}
    for word in models:
        name, equals, factory = word.partition("=")
        if is_file(word) and not (equals and NAME.fullmatch(name)):
            name, equals, factory = _name_of(word), "=", word
            known[name] = name
        if not equals or not name:
            raise RequestError(
                f"{word}: must be ADAPTER=MODULE:FACTORY, such as torch=package.module:make, or an ONNX "
                "file, such as model.onnx"
            )
        if name in factories and known[name] != name:
            raise RequestError(f"{word}: '{name}' is {factories[name]} already; give another name")
        numbered = (f"{name}-{number}" for number in count(2))
        while name in factories or name in taken:
            name = next(numbered)
        factories[name] = factory
    if not taken:
        _files(factories)
    return factories


def _name_of(path: str) -> str:
    """What a file is called that has no name: its stem, as far as a name may have its characters."""
    return re.sub(r"[^A-Za-z0-9_.-]+", "-", Path(path).stem).strip("-_.") or "file"


def _files(models: Mapping[str, str]) -> dict[str, str]:
    """Paths of the models that are files, by name.

    Raises:
        RequestError: every model is a file.
    """
    files = {name: factory for name, factory in models.items() if is_file(factory)}
    if len(files) == len(models) > 1:
        raise RequestError(
            "at least one model of a port must be in a framework; compare ONNX files with: dlb diff "
            + " ".join(files.values())
        )
    return files


def adapters_needed(models: Mapping[str, str]) -> dict[str, str]:
    """The adapter of each model that needs one, by the model's name; a file needs none."""
    return adapters_of_models(name for name, factory in models.items() if not is_file(factory))


def verify_port(
    models: Mapping[str, str],
    *,
    against: Path | None = None,
    dtype: str = "float64",
    environments: Sequence[AdapterEnvironment] = (),
    input_spec: InputSpec | None = None,
    layouts: Mapping[str, str] | None = None,
    output_layouts: Mapping[str, str] | None = None,
    map_file: Path | None = None,
    proposal: Path | None = None,
    folder: Path | None = None,
    export: Path | None = None,
    trainers: Mapping[str, str] | None = None,
    batches: Path | None = None,
    threads: int = 1,
    device: str = "cpu",
    call_seconds: float = 300.0,
    report: Callable[[str], None] = lambda line: None,
    on_matched: Callable[[Port], None] = lambda port: None,
) -> Port:
    """Prove a port, and report how the parameters were matched.

    Args:
        models: see :func:`verify_models`. With ``against``, all are compared with the capture.
        against: a capture of the reference, which :func:`capture_model` wrote; its inputs are used.
        dtype: ``float32`` for models that cannot run in float64. They are compared within rounding, and are
            not proven. The reference runs in both.
        environments: environments of the models' adapters; if left out, those that are found.
        input_spec: the input; if left out, noise of the shape that a model declares.
        layouts, output_layouts: layout of each model's inputs and outputs; override the map's.
        map_file: the map of parameters; if left out, parameters are matched automatically.
        proposal: where the matched parameters are written, unless the file exists.
        folder: folder in which factories are found and run; the current folder if left out.
        export: folder for an ONNX file of each model, ``NAME.onnx``; created if needed.
        trainers: ``package.module:function`` of each model's own training program.
        batches: an .npz file with the batches of these programs.
        threads, device, call_seconds: options of each worker; seconds without progress end it.
        report: called with a line for each step.
        on_matched: called after matching, before weights are carried, even if the matching is incomplete.

    Raises:
        RequestError, WorkerError: as :func:`verify_models`.
    """
    with ExitStack() as stack:
        captured = None if against is None else stack.enter_context(read_capture(against))
        named = _checked(models, captured)
        weight_map = read_map(map_file, list(named)) if map_file else WeightMap()
        folder = folder or Path.cwd()
        program = _program(named, trainers or {}, batches, folder, captured)
        if program is not None and dtype == "float32":
            raise RequestError(
                "training programs are compared in float64; leave out --dtype float32"
            )
        if export is not None:
            _make_folder(export)
        scratch = stack.enter_context(scratch_folder())
        session = PortSession(
            named,
            weight_map,
            _layouts(named, weight_map, layouts or {}, captured),
            _output_layouts(named, output_layouts or {}, captured),
            folder,
            scratch,
            report,
            captured,
            dtype,
        )
        launch = Launch("", Path(), scratch, threads, device=device, call_seconds=call_seconds)
        questions = _questions(input_spec or InputSpec(), captured)
        with _kept_output(scratch):
            _read_files(session, _files(named))
            session.start(stack, _environments(models, environments), launch, questions.seed)
            inputs = session.inputs(input_spec or InputSpec())
            session.load(inputs)
            port = Port(session.reference)
            port.pairs, port.undecided = session.match(map_file is not None)
            _propose(port, weight_map, session, proposal, on_matched)
            port.certificate = _prove(session, port.pairs, inputs, questions, export, program)
            return _with_kept_logs(port, scratch)


def capture_model(
    name: str,
    factory: str,
    to: Path,
    *,
    environments: Sequence[AdapterEnvironment] = (),
    input_spec: InputSpec | None = None,
    layout: str = "",
    output_layout: str = "",
    folder: Path | None = None,
    trainer: str = "",
    batches: Path | None = None,
    threads: int = 1,
    device: str = "cpu",
    call_seconds: float = 300.0,
    report: Callable[[str], None] = lambda line: None,
) -> Port:
    """Write what a model computes, so that ports can be compared with it where it does not run.

    The model is proven the same as itself, made a second time, while its answers are recorded. So whoever
    reads the capture knows that they are not drawn at random.

    Args:
        name: an adapter's name, or ``ADAPTER-WORD``; what the model is called.
        factory: ``package.module:factory``.
        to: the file.
        layout, output_layout, trainer: of the model.
        environments, input_spec, folder, batches, threads, device, call_seconds, report: see
            :func:`verify_port`.

    Returns:
        the proof of the model against itself.

    Raises:
        RequestError, WorkerError: as :func:`verify_models`; the file was not written.
    """
    again = f"{name}-again"
    named = _checked({name: factory, again: factory}, None)
    if not to.absolute().parent.is_dir():
        raise RequestError(f"there is no folder {to.absolute().parent}", path=to)
    try:
        replaceable(to)
    except OSError as error:
        raise RequestError(f"the capture cannot be written: {error}", path=to) from None
    folder = folder or Path.cwd()
    trainers = dict.fromkeys(named, trainer) if trainer else {}
    program = _program(named, trainers, batches, folder, None)
    with ExitStack() as stack:
        scratch = stack.enter_context(scratch_folder())
        session = PortSession(
            named,
            WeightMap(),
            dict.fromkeys(named, check_layout(name, layout)),
            dict.fromkeys(named, check_layout(name, output_layout)),
            folder,
            scratch,
            report,
        )
        session.recording = Recording()
        launch = Launch("", Path(), scratch, threads, device=device, call_seconds=call_seconds)
        spec = input_spec or InputSpec()
        questions = _questions(spec, None)
        with _kept_output(scratch):
            session.start(stack, _environments(named, environments), launch, questions.seed)
            inputs = session.inputs(spec)
            session.load(inputs)
            port = Port(name)
            port.pairs, _ = session.match(mapped=False)
            drawn = _drawn(session, inputs)
            port.certificate = _prove(session, port.pairs, inputs, questions, None, program)
        capture = Capture(
            format=FORMAT,
            made=datetime.now(timezone.utc).isoformat(timespec="seconds"),
            core=__version__,
            name=name,
            adapter=adapters_of_models([name])[name],
            framework=session.versions[name],
            factory=factory,
            features=tuple(sorted(session.features[name])),
            seed=questions.seed,
            scaled=questions.scaled,
            input_layout=layout,
            output_layouts=output_layout,
            leave=session.models[name].leave,
            inputs=session.recording.keep_all(inputs),
            trainer=trainer,
            batches=session.recording.keep_all(program.batches if program else {}),
            models={dtype: made.recorded() for dtype, made in session.recorders.items()},
            drawn=session.recording.keep_all(drawn),
        )
        write_capture(to, capture, session.recording)
        return _with_kept_logs(port, scratch)


@dataclass(frozen=True)
class _Questions:
    """What decides the questions that the reference is asked, beside its inputs.

    Attributes:
        seed: seed of weights, cotangents and perturbations.
        scaled: whether inputs of other scales are compared, too.
    """

    seed: int
    scaled: bool


def _questions(input_spec: InputSpec, captured: CaptureFile | None) -> _Questions:
    if captured is not None:
        return _Questions(captured.capture.seed, captured.capture.scaled)
    # A user's own arrays may have bounds that larger ones would leave, such as those of an image.
    return _Questions(input_spec.seed, input_spec.file is None)


def _checked(models: Mapping[str, str], captured: CaptureFile | None) -> dict[str, str]:
    """Factories by name, the reference first.

    Raises:
        RequestError: a name or a factory has a wrong form, or there are too few.
    """
    named = {} if captured is None else {captured.capture.name: captured.capture.factory}
    for name, factory in models.items():
        if name in named:
            raise RequestError(
                f"'{name}' is what the capture calls its model; call this one '{name}-port'"
            )
        if not NAME.fullmatch(name):
            raise RequestError(
                f"{name}={factory}: '{name}' must be an adapter's name, or such as torch-new"
            )
        if not is_file(factory) and not SPELLING.fullmatch(factory):
            raise RequestError(
                f"{name}={factory}: '{factory}' must be MODULE:FACTORY, such as package.module:make"
            )
        named[name] = factory
    if len(named) < 2:
        raise RequestError(
            "a port is proven of two models or more; give another ADAPTER=MODULE:FACTORY"
        )
    _files(named)
    return named


def _environments(
    models: Mapping[str, str], environments: Sequence[AdapterEnvironment]
) -> dict[str, AdapterEnvironment]:
    """The environment of each model's adapter."""
    adapters = adapters_needed(models)
    by_adapter = {
        environment.adapter: environment
        for environment in environments or find_adapters(list(adapters.values()))
    }
    return {name: by_adapter[adapter] for name, adapter in adapters.items()}


def _layouts(
    models: Mapping[str, str],
    weight_map: WeightMap,
    given: Mapping[str, str],
    captured: CaptureFile | None,
) -> dict[str, str]:
    layouts = {name: weight_map.models.get(name, ModelMap()).input for name in models}
    layouts |= _given_layouts("--layout", models, given)
    if captured is not None:
        layouts[captured.capture.name] = captured.capture.input_layout
    return layouts


def _output_layouts(
    models: Mapping[str, str], given: Mapping[str, str], captured: CaptureFile | None
) -> dict[str, str | tuple[str, ...]]:
    layouts: dict[str, str | tuple[str, ...]] = {}
    layouts |= _given_layouts("--output-layout", models, given)
    if captured is not None:
        layouts[captured.capture.name] = captured.capture.output_layouts
    return layouts


def _given_layouts(
    option: str, models: Mapping[str, str], given: Mapping[str, str]
) -> dict[str, str]:
    for name, layout in given.items():
        if name not in models:
            raise RequestError(f"{option} {name}={layout}: there is no model of '{name}'")
        check_layout(name, layout)
    return dict(given)


def _with_kept_logs(port: Port, scratch: Path) -> Port:
    """The port; logs that its certificate names are copied, so that they outlive ``scratch``."""
    assert port.certificate is not None
    if any(map(names_log, port.certificate.checks)):
        copies = keep_output(scratch, None, "port")
        checks = tuple(with_kept_logs(result, copies) for result in port.certificate.checks)
        port.certificate = msgspec.structs.replace(port.certificate, checks=checks)
    return port


def _read_files(session: PortSession, files: Mapping[str, str]) -> None:
    """Read the models that are ONNX files, as :func:`dlb.proof.files.read.read_model_file` does."""
    for name, path in files.items():
        session.report(f"{name}: reading {path}")
        file = read_model_file(Path(path), name)
        session.files[name] = file.float64
        session.held += file.held
        session.versions[name] = f"ONNX file, {file.description}"


def _program(
    models: Mapping[str, str],
    trainers: Mapping[str, str],
    batches: Path | None,
    folder: Path,
    captured: CaptureFile | None,
) -> Program | None:
    """Users' own training programs; None if there are none. A capture has its own program and batches.

    Raises:
        RequestError: a model has none while others do, or there are no batches.
    """
    for name, path in _files(models).items() if trainers or batches else ():
        raise RequestError(f"{name}={path}: a file has no training program; leave out --trainer")
    for name, trainer in trainers.items():
        if name not in models:
            raise RequestError(f"--trainer {name}={trainer}: there is no model of '{name}'")
        if not SPELLING.fullmatch(trainer):
            raise RequestError(f"--trainer {name}={trainer}: must be MODULE:FUNCTION")
    if not trainers and batches is None:
        return None
    if captured is not None and batches is not None:
        raise RequestError("a capture has its own batches; leave --batches out")
    if captured is not None and not captured.capture.trainer:
        raise RequestError(
            "its model has no training program; capture it with --trainer and --batches",
            path=captured.path,
        )
    if captured is not None:
        trainers = {captured.capture.name: captured.capture.trainer, **trainers}
    missing = [name for name in models if name not in trainers]
    if missing:
        raise RequestError(
            f"'{missing[0]}' has no training program; give --trainer {missing[0]}=MODULE:FUNCTION"
        )
    if captured is not None:
        return Program(trainers, captured.arrays(captured.capture.batches), folder)
    if batches is None:
        raise RequestError(
            "training programs need --batches FILE, an .npz file of arrays [steps, batch, ...]"
        )
    return Program(trainers, read_batches(batches), folder)


@contextmanager
def _kept_output(scratch: Path) -> Iterator[None]:
    """If the block raises, copy the log that the error points to, so that it outlives ``scratch``."""
    try:
        yield
    except DlbError as error:
        if error.log:
            error.log = keep_output(scratch, None, "port").get(error.log, error.log)
        raise


def _prove(
    session: PortSession,
    pairs: Mapping[str, Sequence[Pair]],
    inputs: Inputs,
    questions: _Questions,
    export: Path | None,
    program: Program | None,
) -> Certificate:
    """Carry the weights and run the checks, for each model except the reference."""
    reference, *models = session.models.values()
    carried = {
        name: each
        for name, each in reference.remote.parameters.items()
        if name not in reference.leave
    }
    made = reference.remote.weights()
    own = varied(made, carried, questions.seed)
    # Rounded to float32, so that the same weights can be loaded in float32. What code computes is not:
    # another model's code computes it too.
    weights = {
        name: array
        if is_state(reference.remote.parameters[name])
        else array.astype(np.float32).astype(array.dtype)
        for name, array in own.items()
    }
    # The reference loads its own weights too, since it may return the sum of two biases as one.
    reference.remote.load_weights(weights)
    layers = [layer for matched in pairs.values() for layer in owner_pairs(matched)]
    for model in session.models.values():
        # What raises in training mode does so in the check of it, which says why.
        with suppress(WorkerRaised, UnsupportedError):
            model.record_dropout(inputs)
    session.report(f"{reference.name}: computing the reference")
    others = scaled(inputs) if questions.scaled else []
    truth = ReferenceModel(reference, inputs, others, questions.seed, list(dict.fromkeys(layers)))
    results: list[CheckResult] = []
    ports = []
    for model in models:
        session.report(f"{model.name}: comparing with {reference.name}")
        states = compare_states(
            reference,
            model,
            pairs[model.name],
            made,
            model.remote.weights(),
            partial(_made_again, session, (reference, model), inputs),
            partial(_moved, model, truth),
        )
        port = PortComparison(truth, model, states, weights, session.scratch / model.name)
        results += _located([_run(check, compare, port) for check, compare in _checks(port)])
        if program is not None:
            by_model = Baseline(kind="model", names=(reference.name,))
            steps = Check("own steps", "update", model.name, by_model)
            results.append(_run(steps, partial(check_own_steps, program=program), port))
        ports.append(port)
    if session.recording is not None:
        truth.ask_further()
    results += _prove_float32(session, truth, ports, export)
    results = [each for port in ports for each in _named(results, port)] + [
        result for result in results if result.adapter == reference.name
    ]
    inapplicable = dict(INAPPLICABLE["port"])
    if any(port.evaluation_only for port in ports):
        inapplicable |= EVALUATION_ONLY
    if any(port.float32_only for port in ports):
        inapplicable |= FLOAT32_ONLY
    for group in {result.group for result in results} & set(inapplicable):
        del inapplicable[group]
    return Certificate(
        workload=" ".join(f"{name}={factory}" for name, factory in session.factories.items()),
        workload_hash=_digest({**weights, **{f" {name}": array for name, array in inputs.items()}}),
        seed=questions.seed,
        adapters=session.versions,
        checks=tuple(results),
        inapplicable=inapplicable,
    )


def _made_again(
    session: PortSession, models: tuple[Model, Model], inputs: Inputs
) -> tuple[Mapping[str, Array], Mapping[str, Array]]:
    reference, model = models
    return session.made_again(reference.name, inputs), session.made_again(model.name, inputs)


def _moved(model: Model, truth: ReferenceModel) -> Mapping[str, Array]:
    """The states of a model after a pass in training mode; none if it cannot be run so."""
    try:
        return model.gradients(truth.inputs, truth.cotangents, training=True).states
    except (WorkerRaised, UnsupportedError):
        return {}


def _drawn(session: PortSession, inputs: Inputs) -> dict[str, Array]:
    """What the reference does not train and its factory makes otherwise when it is called again."""
    made = session.models[session.reference].remote.weights()
    return {
        name: array
        for name, array in session.made_again(session.reference, inputs).items()
        if not same_bits(array, made[name])
    }


def _named(results: Sequence[CheckResult], port: PortComparison) -> list[CheckResult]:
    """The results of one port; a difference that a constant in float32 explains is named as that."""
    own = [result for result in results if result.adapter == port.model.name]
    perturbed = port.truth.perturbed_passes if port.evaluation_only else port.perturbed
    if not any(result.verdict == "failed" for result in own) or not perturbed or port.float32_only:
        return own
    return with_constants_named(own, port, port.perturbed)


def _located(results: Sequence[CheckResult]) -> list[CheckResult]:
    """Results without that of layers, if it was not run and no outputs differ: it has none to locate."""
    differ = any(result.group == "forward" and result.verdict != "passed" for result in results)
    return [
        result
        for result in results
        if differ or result.group != "layers" or result.verdict != "not run"
    ]


def _run(check: Check, compare: PortCheck, port: PortComparison) -> CheckResult:
    """Run a check of a port; if the model raises, the result is ``not run``."""
    return run(check, lambda check: compare(check, port), errors=(WorkerRaised, UnsupportedError))


def _checks(port: PortComparison) -> Iterator[tuple[Check, PortCheck]]:
    """The float64 checks, in order."""
    name, names = port.model.name, (port.truth.model.name,)
    by_model = Baseline(kind="model", names=names)
    weights = Baseline(kind="model_weights", names=names)
    yield Check("weights", "weights", name, weights), check_carried_weights
    if have_settings(port) and not port.evaluation_only:
        yield Check("settings", "structure", name, by_model), check_settings
    if port.float32_only:
        return
    yield Check("forward", "forward", name, by_model), check_outputs
    yield Check("layers", "layers", name, by_model), check_counterparts
    if port.evaluation_only:
        return
    yield Check("forward, training", "forward", name, by_model), check_training_outputs
    if port.normalisations:
        statistics = Baseline(kind="model_statistics", names=names)
        yield Check("running statistics", "forward", name, statistics), check_statistics
    yield Check("gradients", "gradients", name, by_model), check_user_gradients
    yield Check("trajectory", "trajectory", name, by_model), check_port_trajectory


def _prove_float32(
    session: PortSession,
    truth: ReferenceModel,
    ports: Sequence[PortComparison],
    export: Path | None,
) -> Iterator[CheckResult]:
    """The float32 checks. They come last, since models are made again in float32."""
    session.report("comparing in float32")
    float64 = Baseline(kind="model", names=(truth.model.name,), float64=True)
    # Whatever happens here costs these checks alone: those in float64 are done.
    errors = (DlbError,)
    prepared: list[tuple[PortComparison, list[Gradients] | DlbError]] = []
    for port in ports:
        try:
            training = not port.evaluation_only and port.randomness is None
            port.perturbed = truth.perturbed_gradients(
                training, port.weights, passes_only=port.evaluation_only
            )
            prepared.append((port, port.perturbed))
        except errors as error:
            prepared.append((port, error))
    loaded: dict[str, Model] = {}
    for port, perturbed in prepared:
        name = port.model.name
        outputs = Check("forward float32", "float32", name, float64)
        gradients = Check("gradients float32", "float32", name, float64)
        try:
            if isinstance(perturbed, DlbError):
                raise perturbed
            for model_name, weights in (
                (truth.model.name, port.weights),
                (name, port.carried_weights),
            ):
                if model_name not in loaded:
                    loaded[model_name] = session.load_float32(model_name, truth.inputs, weights)
        except errors as error:
            yield outputs.raised(error)
            if not port.evaluation_only:
                yield gradients.raised(error)
            continue
        float32_models = Float32Port(loaded[truth.model.name], loaded[name], perturbed)
        for check, compare in (
            (outputs, check_port_outputs_float32),
            (gradients, check_port_gradients_float32),
        ):
            if check is gradients and port.evaluation_only:
                continue
            result = run(check, partial(compare, port=port, single=float32_models), errors)
            yield result
            if port.float32_only and check is outputs and result.verdict == "failed":
                by_model = Baseline(kind="model", names=(truth.model.name,))
                located = Check("layers", "layers", name, by_model)
                yield run(located, partial(check_counterparts, port=port), errors)
    if export is not None:
        yield from _prove_exports(session, loaded, truth.inputs, export)


def _prove_exports(
    session: PortSession, loaded: Mapping[str, Model], inputs: Inputs, folder: Path
) -> Iterator[CheckResult]:
    """Export every model in float32, the reference included, and compare files with models."""
    session.report("exporting and verifying")
    float32_inputs = in_dtype(inputs, "float32")
    for name in session.groups:
        check = Check("export", "export", name, Baseline(kind="own_model"))
        if "export_user_models" not in session.features[name]:
            yield check.not_run(Finding(cause=FeatureMissing(feature="export_user_models")))
        elif name in loaded:
            path, model = folder / f"{name}.onnx", loaded[name]
            compare = partial(check_user_export, model=model, exported=path, inputs=float32_inputs)
            yield run(check, compare, (DlbError,))
        else:
            yield check.not_run(Finding(cause=NotLoaded(dtype="float32")))


def _digest(arrays: Mapping[str, Array]) -> str:
    """SHA-256 of names, dtypes, shapes and numbers."""
    digest = hashlib.sha256()
    for name, array in sorted(arrays.items()):
        digest.update(f"{name} {array.dtype} {array.shape}\n".encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RequestError(
            f"cannot make the folder of exports: {error.strerror or error}", path=folder
        ) from None


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
