"""The cells of a sweep: every combination of the values of some settings, on every adapter."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dlb.adapters import AdapterEnvironment, check_strategy
from dlb.errors import RequestError, UnknownNameError
from dlb.provenance import available_cores
from dlb.request import Request, check
from dlb.samples import count_samples, with_data
from dlb.variants import choose
from dlb.workload import Workload, workload_hash
from dlb.workload.changes import parse_value, with_changes

if TYPE_CHECKING:
    from dlb.imported import ImportedModel

__all__ = [
    "MOST_CELLS",
    "NONE",
    "SETTINGS",
    "Axis",
    "Matrix",
    "Settings",
    "SweepCell",
    "axes_of",
    "check_size",
    "make_cells",
    "request_maker",
    "words_of",
]

#: A matrix of more cells is refused, unless more are asked for.
MOST_CELLS = 1000
#: Settings of a request that can be varied, and what their values are: numbers from this one on, one of
#: these words, or text.
SETTINGS: Mapping[str, int | tuple[str, ...] | None] = {
    "threads": 1,
    "batch_size": 1,
    "workers": 1,
    "steps": 1,
    "epochs": 1,
    "seed": 0,
    "dtype": ("float32", "float64"),
    "device": ("cpu", "cuda"),
    "input": ("pipeline", "memory"),
    "strategy": None,
    "variant": None,
    "data": None,
}
_LARGEST = 2**31 - 1
#: The value of ``strategy`` and ``variant`` for none.
NONE = "none"
#: Fields of a workload that say what it is, not how it runs.
_FIXED = {"name", "title", "source", "onnx"}


@dataclass(frozen=True)
class Axis:
    """A setting or a field of the workload, and the values that it takes.

    Attributes:
        name: a name of :data:`SETTINGS`, or the path of a field as ``--set`` takes it.
        values: numbers, booleans or text; at least one, all different.
    """

    name: str
    values: tuple[Any, ...]


@dataclass(frozen=True)
class Settings:
    """What a cell is run with; None stands for the default of ``dlb run``.

    Attributes:
        variants: ``[ADAPTER:]NAME=VALUE`` each.
        changes: ``FIELD=VALUE`` each.
        data: ``NAME[:PATH]``.
        variables: environment variables of the workers.
        others: as the fields of :class:`dlb.request.Request`.
    """

    batch_size: int | None = None
    steps: int | None = None
    epochs: int | None = None
    warmup: int | None = None
    threads: int | None = None
    device: str = "cpu"
    dtype: str = "float32"
    seed: int = 0
    input: str = "pipeline"
    strategy: str = ""
    workers: int = 1
    variants: tuple[str, ...] = ()
    changes: tuple[str, ...] = ()
    data: str | None = None
    variables: Mapping[str, str] = field(default_factory=dict)
    test_steps: int | None = None
    test_seconds: float | None = None
    call_seconds: float = 300.0


@dataclass(frozen=True)
class SweepCell:
    """One cell: a request of one adapter, and the values that tell it from the others.

    Attributes:
        request: what is run and measured.
        varied: by axis, the cell's value.
    """

    request: Request
    varied: Mapping[str, Any]

    @property
    def adapter(self) -> str:
        return self.request.environments[0].adapter

    @property
    def title(self) -> str:
        """The cell in words: the adapter and what was varied."""
        return ", ".join([self.adapter, *words_of(self.varied)])


@dataclass(frozen=True)
class Matrix:
    """The cells of a sweep.

    Attributes:
        cells: every cell that can be run, each once.
        repeated: combinations that are the same as an earlier cell, and so were left out.
        refused: combinations that cannot be run, with the reason; only if they were to be left out.
    """

    cells: Sequence[SweepCell]
    repeated: Sequence[str] = ()
    refused: Sequence[tuple[str, str]] = ()


def words_of(varied: Mapping[str, Any]) -> list[str]:
    """Values that were varied, as text; a field of the workload by its last name."""
    return [f"{name.rpartition('.')[2]}={_text(value)}" for name, value in varied.items()]


def axes_of(given: Iterable[str] | Mapping[str, Sequence[Any]]) -> list[Axis]:
    """The axes of a sweep.

    Args:
        given: ``NAME=VALUE,VALUE`` each, or the values by name. Values are written as in a workload file; a
            bare word is text. Several choices of one variant are joined by ``+``; ``none`` is no strategy or
            variant.

    Raises:
        RequestError: a name or a value is missing, given twice, or of the wrong kind.
    """
    if isinstance(given, Mapping):
        pairs = [(name, list(values)) for name, values in given.items()]
    else:
        pairs = [_parse(word) for word in given]
    axes: list[Axis] = []
    for name, values in pairs:
        if any(axis.name == name for axis in axes):
            raise RequestError(f"--vary {name}: give it once, with all its values")
        axes.append(_axis(name, values))
    return axes


def _parse(word: str) -> tuple[str, list[Any]]:
    name, sign, text = word.partition("=")
    if not name or not sign:
        raise RequestError(f"--vary {word}: give NAME=VALUE,VALUE, such as threads=1,2")
    values = _split(text)
    if not text.strip() or not all(value.strip() for value in values):
        raise RequestError(f"--vary {word}: a value is missing, such as in threads=1,2")
    kept_as_text = name in SETTINGS and not isinstance(SETTINGS[name], int)
    return name, [value.strip() if kept_as_text else parse_value(value.strip()) for value in values]


def _split(text: str) -> list[str]:
    """The values of a list, cut at commas outside of brackets and quotes."""
    if re.search(r"[\[{\"']", text) is None:
        return text.split(",")
    values, depth, quote, begin = [], 0, "", 0
    for place, letter in enumerate(text):
        if quote:
            quote = "" if letter == quote else quote
        elif letter in "\"'":
            quote = letter
        elif letter in "[{":
            depth += 1
        elif letter in "]}":
            depth -= 1
        elif letter == "," and depth == 0:
            values.append(text[begin:place])
            begin = place + 1
    return [*values, text[begin:]]


def _axis(name: str, values: Sequence[Any]) -> Axis:
    if not values:
        raise RequestError(f"--vary {name}: has no value; give one or more")
    kind = SETTINGS.get(name)
    for value in values:
        if isinstance(kind, int) and not (
            isinstance(value, int)
            and not isinstance(value, bool)
            and kind <= value <= (2**32 - 1 if name == "seed" else _LARGEST)
        ):
            raise RequestError(f"--vary {name}={value}: must be a whole number, {kind} or more")
        if isinstance(kind, tuple) and value not in kind:
            raise RequestError(f"--vary {name}={value}: must be one of {', '.join(kind)}")
        if isinstance(value, float) and not math.isfinite(value):
            raise RequestError(f"--vary {name}={value}: must be finite")
    for place, value in enumerate(values):
        # 1, 1.0 and true are equal in Python, but only numbers of one value are the same.
        if any(
            value == other and isinstance(value, bool) == isinstance(other, bool)
            for other in values[:place]
        ):
            raise RequestError(f"--vary {name}: has the value {_text(value)} twice")
    return Axis(name, tuple(values))


def check_size(axes: Sequence[Axis], adapters: int, most: int) -> None:
    """Refuse a matrix of more than ``most`` cells.

    Raises:
        RequestError: it has more.
    """
    count = math.prod(len(axis.values) for axis in axes) * adapters
    if count > most:
        raise RequestError(
            f"the matrix has {count:,} cells, and at most {most:,} are run; vary less, or raise it with "
            f"--most-cells {count}"
        )


def make_cells(
    workload: Workload,
    imported: ImportedModel | None,
    environments: Sequence[AdapterEnvironment],
    axes: Sequence[Axis],
    settings: Settings,
    out: Path,
    *,
    most: int = MOST_CELLS,
    skip_refused: bool = False,
) -> Matrix:
    """Every combination on every adapter, checked before anything is run.

    The first axis varies slowest, and the adapter fastest.

    Args:
        settings: what all cells have in common.
        most: a matrix of more cells is refused.
        skip_refused: leave out combinations that cannot be run, in place of refusing the whole.

    Raises:
        RequestError: a name is unknown, a combination cannot be run, or there are too many or none.
    """
    check_size(axes, len(environments), most)
    _check_names(axes, workload)
    make = request_maker(workload, imported, environments, out)
    cells: list[SweepCell] = []
    repeated: list[str] = []
    refused: list[tuple[str, str]] = []
    met: set[object] = set()
    for values in itertools.product(*(axis.values for axis in axes)):
        varied = {axis.name: value for axis, value in zip(axes, values)}
        for environment in environments:
            title = ", ".join([environment.adapter, *words_of(varied)])
            try:
                request = make(environment, _with(settings, varied))
            except RequestError as error:
                reason = error.message.replace("--set ", "--vary ")
                if not skip_refused:
                    raise RequestError(
                        f"cell {title}: {reason} (--skip-refused leaves out cells that cannot be run)"
                    ) from None
                refused.append((title, reason))
                continue
            key = _identity(request)
            if key in met:
                repeated.append(title)
                continue
            met.add(key)
            cells.append(SweepCell(request, varied))
    if not cells:
        raise RequestError(f"no cell can be run; the first: {refused[0][0]}: {refused[0][1]}")
    return Matrix(cells, repeated, refused)


def request_maker(
    workload: Workload,
    imported: ImportedModel | None,
    environments: Sequence[AdapterEnvironment],
    out: Path,
) -> Callable[[AdapterEnvironment, Settings], Request]:
    """What makes a request of one adapter, with the defaults of ``dlb run``.

    What is the same for several requests is found out once. It raises :class:`RequestError` where settings do
    not fit the workload or the adapter.
    """

    @cache
    def described(changes: tuple[str, ...], data: str | None) -> tuple[Workload, int]:
        changed = with_changes(workload, changes, keep_model=imported is not None)
        changed = changed if data is None else with_data(changed, data)
        return changed, count_samples(changed)

    @cache
    def variants(words: tuple[str, ...]) -> dict[str, dict[str, str]]:
        return choose(words, environments)

    @cache
    def has_strategy(environment: AdapterEnvironment, strategy: str) -> None:
        check_strategy(strategy, [environment])

    def make(environment: AdapterEnvironment, settings: Settings) -> Request:
        changed, samples = described(settings.changes, settings.data)
        batch = changed.batch_size if settings.batch_size is None else settings.batch_size
        if not 1 <= batch <= samples:
            raise RequestError(
                f"a batch of {batch}; it must be from 1 to the {samples} training samples of "
                f"'{changed.data.name}'"
            )
        steps = settings.steps
        if steps is None:
            steps = (settings.epochs or changed.epochs) * (samples // batch)
        if settings.strategy:
            has_strategy(environment, settings.strategy)
        variant = variants(settings.variants).get(environment.adapter, {})
        request = Request(
            workload=changed,
            environments=[environment],
            out=out,
            batch_size=batch,
            steps=steps,
            warmup=min(10, steps // 10) if settings.warmup is None else settings.warmup,
            threads=settings.threads or max(1, available_cores() // settings.workers),
            device=settings.device,
            dtype=settings.dtype,
            seed=settings.seed,
            input_mode=settings.input,
            strategy=settings.strategy,
            workers=settings.workers,
            call_seconds=settings.call_seconds,
            variants={environment.adapter: variant} if variant else {},
            imported=imported,
            variables=settings.variables,
            test_steps=settings.test_steps,
            test_seconds=settings.test_seconds,
        )
        check(request)
        return request

    return make


def _with(settings: Settings, varied: Mapping[str, Any]) -> Settings:
    """The settings of one cell."""
    own: dict[str, Any] = {}
    changes = []
    for name, value in varied.items():
        if name == "variant":
            words = () if value == NONE else tuple(str(value).split("+"))
            own["variants"] = (*settings.variants, *words)
        elif name == "strategy":
            own["strategy"] = "" if value == NONE else value
        elif name in SETTINGS:
            own[name] = value
        else:
            changes.append(f"{name}={_toml(value)}")
    return replace(settings, **own, changes=(*settings.changes, *changes))


def _check_names(axes: Sequence[Axis], workload: Workload) -> None:
    fields = {*SETTINGS, *workload.__struct_fields__} - _FIXED
    for axis in axes:
        if axis.name in _FIXED or axis.name.partition(".")[0] not in fields:
            raise UnknownNameError(
                "setting or field of a workload:",
                axis.name,
                fields,
                "fields are as --set takes them",
            )


def _identity(request: Request) -> object:
    """What makes two cells the same."""
    adapter = request.environments[0].adapter
    return (
        adapter, workload_hash(request.workload), request.batch_size, request.steps, request.warmup,
        request.threads, request.device, request.dtype, request.seed, request.input_mode, request.strategy,
        request.workers, tuple(sorted(request.variant(adapter).items())),
        tuple(sorted(request.variables.items())),
    )  # fmt: skip


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) else str(value)


def _toml(value: Any) -> str:
    """A value as a workload file has it; text stays a bare word."""
    if isinstance(value, str):
        return value
    import tomli_w

    return next(_lines(tomli_w.dumps({"v": value})))


def _lines(text: str) -> Iterator[str]:
    yield " ".join(text.split("=", 1)[1].split())
