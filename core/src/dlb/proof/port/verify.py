"""Proving a port: load the models, match, carry the weights, compare."""

from __future__ import annotations

import contextlib
import hashlib
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from dlb.adapters import Home, find_adapters
from dlb.capabilities import capabilities_of, check_user_models
from dlb.errors import DlbError, RequestError, WorkerRaised
from dlb.proof.certificate import Certificate
from dlb.proof.port.comparison import compare_models
from dlb.proof.port.inputs import (
    LAYOUTS,
    Given,
    as_read,
    check_layout,
    from_read,
    make_input,
)
from dlb.proof.port.matching import Owned, propose
from dlb.proof.port.model import Model
from dlb.proof.port.weight_map import (
    Entry,
    ModelMap,
    Pair,
    WeightMap,
    pairs_of,
    read_map,
    write_map,
)
from dlb.supervision.adopted import AdoptedRemote
from dlb.supervision.group import Launch, worker_group
from dlb.supervision.remote import start

__all__ = ["MAP", "Port", "check_models", "verify_models", "verify_port"]

Array = npt.NDArray[Any]
#: Where a proposal is written when no map is given.
MAP = Path("dlb-map.toml")
#: The end of what a worker printed, kept when it is needed.
KEPT_OUTPUT_BYTES = 1_000_000
SPELLING = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*")


@dataclass
class Port:
    """What came of proving a port, filled in as far as it got.

    Attributes:
        reference: the first model.
        pairs: matched parameters of each other model.
        undecided: what could not be matched, a line each.
        written: the map that was written, if one was.
        kept: a map that was there already, and was left as it is.
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
        """Whether every model but the reference is proven."""
        certificate = self.certificate
        return certificate is not None and all(
            certificate.status(name) == "proven" for name in self.pairs
        )


def verify_models(models: Mapping[str, str], **options: Any) -> Certificate:
    """Prove that models written by hand in several frameworks are the same model.

    Args:
        models: ``package.module:factory`` by adapter; the first is the reference. The factory takes
            no arguments and returns a native model. It runs in its adapter's environment, in the
            current folder.
        options: see :func:`verify_port`.

    Raises:
        RequestError: a factory, a map, an input that cannot be used, or parameters that cannot be
            matched; nothing was proven.
        WorkerError: a worker failed.
    """
    port = verify_port(models, **options)
    assert port.certificate is not None
    return port.certificate


def check_models(models: Sequence[str]) -> dict[str, str]:
    """Factories by adapter, of ``NAME=MODULE:FACTORY`` as the command line has them.

    Raises:
        RequestError: one is misspelt, an adapter is named twice, or there is only one.
    """
    found: dict[str, str] = {}
    for one in models:
        name, equals, factory = one.partition("=")
        if not equals or not name:
            raise RequestError(
                f"--model {one}: must be ADAPTER=MODULE:FACTORY, such as torch=package.module:make"
            )
        if name in found:
            raise RequestError(
                f"--model {one}: adapter '{name}' has a model already, {found[name]}; each model is "
                "of a framework of its own"
            )
        found[name] = factory
    return found


def verify_port(
    models: Mapping[str, str],
    *,
    homes: Sequence[Home] = (),
    given: Given | None = None,
    layouts: Mapping[str, str] | None = None,
    map_file: Path | None = None,
    proposal: Path | None = None,
    folder: Path | None = None,
    threads: int = 1,
    device: str = "cpu",
    call_seconds: float = 300.0,
    report: Callable[[str], None] = lambda line: None,
    on_matched: Callable[[Port], None] = lambda port: None,
) -> Port:
    """Prove a port, and tell how the parameters were matched.

    Args:
        models: see :func:`verify_models`.
        homes: of the adapters; found when not given.
        given: the input; noise of the shape that a model tells, when nothing is said.
        layouts: the order of the axes that a model reads, by adapter; comes before the map's.
        map_file: which parameter is which. Without it that is proposed.
        proposal: where a proposal is written, unless there is such a file already.
        folder: where factories are looked for, and run; the current one.
        threads, device, call_seconds: of each worker.
        report: hears what is being done, a line at a time.
        on_matched: hears of the matching before anything is carried, also where it is not whole.

    Raises:
        RequestError, WorkerError: as :func:`verify_models`.
    """
    names = list(models)
    if len(names) < 2:
        raise RequestError("a port is proven of two models or more; give another --model")
    for name, factory in models.items():
        if not SPELLING.fullmatch(factory):
            raise RequestError(
                f"--model {name}={factory}: '{factory}' must be MODULE:FACTORY, such as "
                "package.module:make"
            )
    said = read_map(map_file, names) if map_file else WeightMap()
    words = {name: said.models.get(name, ModelMap()).input for name in names}
    for name, word in (layouts or {}).items():
        if name not in models:
            raise RequestError(f"--layout {name}={word}: there is no --model of '{name}'")
        words[name] = check_layout(name, word)
    homes = homes or find_adapters(names)
    with tempfile.TemporaryDirectory(prefix="dlb-") as scratch, ExitStack() as stack:
        proof = _Proof(models, said, words, folder or Path.cwd(), Path(scratch), report)
        launch = Launch(
            "", Path(), Path(scratch), threads, device=device, call_seconds=call_seconds
        )
        with _kept_output(Path(scratch)):
            proof.start(stack, homes, launch, (given or Given()).seed)
            inputs = proof.input(given or Given())
            proof.adopt(inputs)
            port = proof.match(map_file is not None)
            _propose(port, said, words, proposal, on_matched)
            return proof.compare(port, inputs, (given or Given()).seed)


def _propose(
    port: Port,
    said: WeightMap,
    words: Mapping[str, str],
    proposal: Path | None,
    on_matched: Callable[[Port], None],
) -> None:
    """Write the matching that was found, tell of it, and go no further if it is not whole."""
    if proposal is not None:
        found = {}
        for name in (port.reference, *port.pairs):
            before = said.models.get(name, ModelMap())
            entries = None
            if name in port.pairs:
                entries = tuple(
                    Entry(pair.source.name, pair.target.name, pair.reshape, pair.transpose)
                    for pair in port.pairs[name]
                )
            one = msgspec.structs.replace(before, input=words[name], weights=entries)
            if one != ModelMap():
                found[name] = one
        if proposal.exists():
            port.kept = proposal
        else:
            write_map(proposal, WeightMap(found), port.undecided)
            port.written = proposal
    on_matched(port)
    if port.undecided:
        count, first = len(port.undecided), "; ".join(port.undecided[:3])
        where = ""
        if port.written:
            where = (
                f". Give each an entry in {port.written}, or a place in a 'leave', and give that with "
                "--map"
            )
        raise RequestError(
            f"{count} parameters cannot be matched without a guess: {first}"
            + (f"; and {count - 3} more" if count > 3 else "")
            + (
                where
                or ". Give each an entry or a place in a 'leave' of a map, and that with --map"
            )
        )


class _Proof:
    """The models of one request and their workers."""

    def __init__(
        self,
        models: Mapping[str, str],
        said: WeightMap,
        words: Mapping[str, str],
        folder: Path,
        scratch: Path,
        report: Callable[[str], None],
    ) -> None:
        self.factories = models
        self.said, self.words = said, words
        self.folder, self.scratch, self.report = folder, scratch, report
        self.groups: dict[str, Any] = {}
        self.versions: dict[str, str] = {}
        self.models: dict[str, Model] = {}
        #: The model that told the shape of the input, if one did.
        self.told_by = ""

    def start(self, stack: ExitStack, homes: Sequence[Home], launch: Launch, seed: int) -> None:
        """A worker for each adapter, its framework up."""
        for home in homes:
            self.report(f"{home.adapter}: starting")
            place = self.scratch / home.adapter
            place.mkdir()
            one = replace(launch, adapter=home.adapter, python=home.python, scratch=place)
            group = self.groups[home.adapter] = stack.enter_context(worker_group(one))
            facts = start(group, threads=launch.threads, device=launch.device, seed=seed)[0]
            self.versions[home.adapter] = f"{facts['framework']} {facts['version']}"
            check_user_models(capabilities_of(group.call("describe")[0], home.adapter))

    def taken_in(self, name: str, inputs: Array | None) -> AdoptedRemote:
        """A model, made by its factory.

        Raises:
            RequestError: whatever keeps it from being taken in is for the user to mend.
        """
        try:
            return AdoptedRemote(self.groups[name], self.factories[name], self.folder, inputs)
        except DlbError as error:
            log = self.scratch / name / "worker-0.log"
            shown = error.log or (str(log) if _size(log) else None)
            raise RequestError(
                error.message, adapter=error.adapter, path=error.path or None, log=shown
            ) from None

    def input(self, given: Given) -> Array:
        """The input, of the shape that is said, or that the first model tells that can.

        Raises:
            RequestError: nobody tells a shape, or the input cannot be made.
        """
        if given.file is not None or given.shape is not None:
            return make_input(given)
        problems = []
        for name in self.factories:
            try:
                model = self.taken_in(name, None)
            except RequestError as error:
                problems.append(error)
                continue
            shape = model.input_shape
            model.drop()
            if shape is not None and min(shape, default=1) > 0:
                self.told_by = name
                one = from_read(np.empty((1, *shape), bool), self.words[name])
                return make_input(replace(given, shape=one.shape[1:]))
        if problems:
            raise problems[0]
        raise RequestError(
            "none of the models tells the shape of its input; give that of one sample, such as "
            "--input-shape 3,32,32 (with --tokens N for integers below N), or an array with --input"
        )

    def adopt(self, inputs: Array) -> None:
        """Take every model in, and see that it can read the input."""
        for name in self.factories:
            self.report(f"{name}: taking in {self.factories[name]}")
            said = self.said.models.get(name, ModelMap())
            read = as_read(inputs, self.words[name], name)
            remote = self.taken_in(name, read)
            self._check_shape(remote, inputs, read)
            model = Model(remote, self.words[name], said.output, said.leave)
            try:
                model.calls = [call.layer for call in model.forward(inputs).calls]
            except WorkerRaised as error:
                raise RequestError(
                    f"{error.message}: its model cannot be run on an input of shape "
                    f"{list(read.shape)}{self._advice(name, read)}",
                    adapter=error.adapter,
                    log=error.log or None,
                ) from None
            self.models[name] = model

    def _check_shape(self, remote: AdoptedRemote, inputs: Array, read: Array) -> None:
        wanted = remote.input_shape
        if wanted is None:
            return
        if len(wanted) != read.ndim - 1 or any(
            size not in (-1, given) for size, given in zip(wanted, read.shape[1:])
        ):
            raise RequestError(
                f"its model reads samples of shape {list(wanted)} (-1 is any); it is "
                f"given {list(read.shape[1:])}{self._advice(remote.name, read)}",
                adapter=remote.name,
            )

    def _advice(self, name: str, read: Array) -> str:
        """How to tell that a model's axes have another order."""
        words = [word for word, axes in LAYOUTS.items() if len(axes) == read.ndim]
        if not words:
            return ""
        said = f'--layout {{}}={words[0]}, or input = "{words[0]}" under [models.{{}}] of the map'
        if self.told_by and not self.words[self.told_by]:
            asked = self.told_by
            return (
                f". The shape is what '{asked}' tells; if the order of its axes is not the canonical "
                f"one, say so: {said.format(asked, asked)}"
            )
        return f". If the order of its axes is not the canonical one, say so: {said.format(name, name)}"

    def match(self, told: bool) -> Port:
        """Pair the parameters of each model with the reference's."""
        reference, *others = self.models.values()
        port = Port(reference.name)
        for other in others:
            said = self.said.models.get(other.name, ModelMap())
            names = (reference.name, other.name)
            if told and said.weights is not None:
                left, right = reference.remote.parameters, other.remote.parameters
                port.pairs[other.name] = pairs_of(said, left, right, reference.leave, names)
                continue
            for model in (reference, other):
                unknown = [one for one in model.leave if one not in model.remote.parameters]
                if unknown:
                    raise RequestError(
                        f"the map leaves '{unknown[0]}', which is no parameter of {model.name}"
                    )
            proposal = propose(_owned(reference), _owned(other), names)
            port.pairs[other.name] = proposal.pairs
            port.undecided += proposal.undecided
        if not any(port.pairs.values()) and not port.undecided:
            raise RequestError("the models have no parameters, so there is nothing to carry")
        return port

    def compare(self, port: Port, inputs: Array, seed: int) -> Port:
        """Carry the weights and run the checks, with each model but the reference."""
        reference, *others = self.models.values()
        weights = reference.remote.weights()
        results = compare_models(reference, others, port.pairs, inputs, seed, self.report)
        port.certificate = Certificate(
            workload=" ".join(f"{name}={factory}" for name, factory in self.factories.items()),
            workload_hash=_digest({**weights, " input": inputs}),
            seed=seed,
            adapters=self.versions,
            checks=tuple(results),
        )
        return port


def _owned(model: Model) -> Owned:
    kept = [one for name, one in model.remote.parameters.items() if name not in model.leave]
    return Owned(model.remote.layers, kept, model.calls)


def _digest(arrays: Mapping[str, Array]) -> str:
    """SHA-256 of names, shapes and numbers: what was compared."""
    digest = hashlib.sha256()
    for name, array in sorted(arrays.items()):
        digest.update(f"{name} {array.dtype} {array.shape}\n".encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


@contextmanager
def _kept_output(scratch: Path) -> Iterator[None]:
    """Keep the output of the worker that an error points to, where it can still be read."""
    try:
        yield
    except DlbError as error:
        log = Path(error.log) if error.log else None
        if log is not None and scratch in log.parents:
            with contextlib.suppress(OSError):  # The error itself is still shown.
                kept = Path(tempfile.mkdtemp(prefix="dlb-output-")) / f"{log.parent.name}.log"
                kept.write_bytes(log.read_bytes()[-KEPT_OUTPUT_BYTES:])
                error.log = str(kept)
        raise
