"""The cells of a sweep: every combination of the values of some settings, on every adapter."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from dlb.adapters import AdapterEnvironment
from dlb.errors import RequestError, Sentence, SettingError, UnknownNameError, sentence_of
from dlb.request import Request
from dlb.resolver import Resolver
from dlb.settings import AXES, Settings
from dlb_graph.workload import Workload
from dlb_graph.workload.changes import parse_value

__all__ = [
    "MOST_CELLS",
    "NONE",
    "Axis",
    "Matrix",
    "NoCells",
    "SweepCell",
    "axes_of",
    "check_size",
    "make_cells",
    "value_text",
    "with_values",
    "words_of",
]

#: A matrix of more cells is refused, unless more are asked for.
MOST_CELLS = 1000
#: The value of ``strategy`` and ``variant`` for none.
NONE = "none"
#: Fields of a workload that say what it is, not how it runs.
_FIXED = {"name", "title", "source", "onnx"}


@dataclass(frozen=True)
class Axis:
    """A setting or a field of the workload, and the values that it takes.

    Attributes:
        name: a name of :data:`dlb.settings.AXES`, or the path of a field of the workload.
        values: numbers, booleans or text; at least one, all different.
    """

    name: str
    values: tuple[Any, ...]


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
    refused: Sequence[tuple[str, Sentence]] = ()


class NoCells(SettingError):
    """No cell of a matrix can be run."""


def words_of(varied: Mapping[str, Any]) -> list[str]:
    """Values that were varied, as text; a field of the workload by its last name."""
    return [f"{name.rpartition('.')[2]}={value_text(value)}" for name, value in varied.items()]


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
            raise _refused(name, "give it once, with all its values")
        axes.append(_axis(name, values))
    return axes


def _parse(word: str) -> tuple[str, list[Any]]:
    name, sign, text = word.partition("=")
    if not name or not sign:
        raise _refused(word, "give NAME=VALUE,VALUE, such as threads=1,2")
    values = _split(text)
    if not text.strip() or not all(value.strip() for value in values):
        raise _refused(word, "a value is missing, such as in threads=1,2")
    is_text = name in AXES and AXES[name].kind is not int
    return name, [value.strip() if is_text else parse_value(value.strip()) for value in values]


def _refused(word: str, reason: str) -> SettingError:
    return SettingError(lambda name: f"{name('vary')} {word}: {reason}")


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
        raise _refused(name, "has no value; give one or more")
    for value in values:
        if name in AXES:
            AXES[name].check([value] if AXES[name].many else value, called=name)
        if isinstance(value, float) and not math.isfinite(value):
            raise _refused(f"{name}={value}", "must be finite")
    for place, value in enumerate(values):
        # 1, 1.0 and true are equal in Python, but only numbers of one value are the same.
        if any(
            value == other and isinstance(value, bool) == isinstance(other, bool)
            for other in values[:place]
        ):
            raise _refused(name, f"has the value {value_text(value)} twice")
    return Axis(name, tuple(values))


def check_size(axes: Sequence[Axis], adapters: int, most: int) -> None:
    """Refuse a matrix of more than ``most`` cells.

    Raises:
        RequestError: it has more.
    """
    count = math.prod(len(axis.values) for axis in axes) * adapters
    if count > most:
        raise SettingError(
            lambda name: (
                f"the matrix has {count:,} cells, and at most {most:,} are run; vary less, or "
                f"raise it with {name('most_cells')} {count}"
            )
        )


def make_cells(
    resolver: Resolver,
    environments: Sequence[AdapterEnvironment],
    axes: Sequence[Axis],
    settings: Settings,
    *,
    most: int = MOST_CELLS,
    skip_refused: bool = False,
) -> Matrix:
    """Every combination on every adapter, checked before anything is run.

    The first axis varies slowest, and the adapter fastest.

    Args:
        resolver: makes the requests.
        settings: what all cells have in common.
        most: a matrix of more cells is refused.
        skip_refused: leave out combinations that cannot be run, in place of refusing the whole.

    Raises:
        NoCells: no combination can be run.
        RequestError: a name is unknown, a combination cannot be run, or there are too many.
    """
    check_size(axes, len(environments), most)
    _check_names(axes, resolver.workload)
    cells: list[SweepCell] = []
    repeated: list[str] = []
    refused: list[tuple[str, Sentence]] = []
    identities: set[object] = set()
    for values in itertools.product(*(axis.values for axis in axes)):
        varied = {axis.name: value for axis, value in zip(axes, values)}
        for environment in environments:
            title = ", ".join([environment.adapter, *words_of(varied)])
            try:
                request = resolver.resolve(
                    with_values(settings, varied), [environment], environments
                )
            except RequestError as error:
                refused.append((title, _as_varied(sentence_of(error), varied)))
                if not skip_refused:
                    raise _refused_cell(*refused[0]) from None
                continue
            if request.identity in identities:
                repeated.append(title)
                continue
            identities.add(request.identity)
            cells.append(SweepCell(request, varied))
    if not cells:
        title, sentence = refused[0]
        raise NoCells(lambda name: f"no cell can be run; the first: {title}: {sentence(name)}")
    return Matrix(cells, repeated, refused)


def _refused_cell(title: str, sentence: Sentence) -> SettingError:
    return SettingError(
        lambda name: (
            f"cell {title}: {sentence(name)} ({name('skip_refused')} leaves out cells that "
            "cannot be run)"
        )
    )


def _as_varied(sentence: Sentence, varied: Mapping[str, Any]) -> Sentence:
    """A sentence in which what varies has the name that it has there."""
    names = {AXES[axis].name: axis for axis in varied if axis in AXES}
    if any(axis not in AXES for axis in varied):
        names["changes"] = ""

    def spelled(name: Callable[[str], str]) -> Callable[[str], str]:
        return lambda setting: names.get(setting) or name("vary" if setting in names else setting)

    return lambda name: sentence(spelled(name))


def with_values(settings: Settings, values: Mapping[str, Any]) -> Settings:
    """The settings with values of axes; what is no setting is a field of the workload."""
    chosen: dict[str, Any] = {}
    changes = []
    for name, value in values.items():
        if name not in AXES:
            changes.append(f"{name}={_toml(value)}")
        elif AXES[name].many:
            words = () if value == NONE else tuple(str(value).split("+"))
            chosen[AXES[name].name] = (*getattr(settings, AXES[name].name), *words)
        else:
            chosen[name] = "" if name == "strategy" and value == NONE else value
    return replace(settings, **chosen, changes=(*settings.changes, *changes))


def _check_names(axes: Sequence[Axis], workload: Workload) -> None:
    fields = {*AXES, *workload.__struct_fields__} - _FIXED
    for axis in axes:
        if axis.name in _FIXED or axis.name.partition(".")[0] not in fields:
            raise UnknownNameError(
                "setting or field of a workload:",
                axis.name,
                fields,
                "fields are as --set takes them",
            )


def value_text(value: Any) -> str:
    """A value of an axis as text."""
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) else str(value)


def _toml(value: Any) -> str:
    """A value as a workload file has it; text stays a bare word."""
    if isinstance(value, str):
        return value
    import tomli_w

    return " ".join(tomli_w.dumps({"v": value}).split("=", 1)[1].split())
