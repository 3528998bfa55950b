"""Arguments that are not as a public function annotates them, refused in a sentence."""

from __future__ import annotations

import builtins
import inspect
import sys
from collections.abc import Callable, Collection, Mapping
from functools import wraps
from numbers import Integral, Real
from os import PathLike
from reprlib import repr as short
from types import SimpleNamespace
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from dlb_graph.errors import RequestError, UnknownNameError

F = TypeVar("F", bound=Callable[..., Any])
_ACCEPTED: Mapping[str, Any] = {"int": Integral, "float": Real, "Path": PathLike}
_NONE: Mapping[str, Any] = {}


class _Names(dict[str, Any]):
    def __missing__(self, name: str) -> Any:  # a builtin, or imported for type checkers alone
        return getattr(builtins, name, None) or type(name, (), {})


def checked(function: F, settings: Mapping[str, Any] = _NONE) -> F:
    """Refuse arguments that a function does not have, lacks, or that are of another type: RequestError.

    Args:
        settings: by the name of an argument, what has a ``check`` of its value.
    """
    signature = inspect.signature(function)

    @wraps(function)
    def called(*args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True
        try:
            check(args, kwargs)
            return function(*args, **kwargs)
        except RequestError as error:  # it says what to change; where it was noticed does not help
            raise error.with_traceback(None) from None

    def check(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        try:
            values = signature.bind(*args, **kwargs).arguments
        except TypeError as error:
            known = signature.parameters
            for name in kwargs.keys() - known.keys():
                raise UnknownNameError(f"{function.__name__}() argument", name, known) from None
            raise RequestError(f"{function.__name__}(): {error}") from None
        check_values(function, values)
        for name in values.keys() & settings.keys():
            settings[name].check(values[name])

    return called  # type: ignore[return-value]


def check_values(owner: Any, values: Mapping[str, Any]) -> None:
    """Refuse values that are not as a function or a class annotates them: RequestError."""
    names = _Names(vars(sys.modules[owner.__module__]))
    own = {name: text for name, text in owner.__annotations__.items() if name in values}
    for name, kind in get_type_hints(SimpleNamespace(__annotations__=own), localns=names).items():
        if not _fits(values[name], kind):
            text = str(kind).replace("typing.", "")  # the words that may be chosen
            text = text if "Literal" in text else own[name].replace("Mapping", "dict")
            such = f", such as {[values[name]]}" if _fits([values[name]], kind) else ""
            text = f"{short(values[name])}; it must be {text.replace('Sequence', 'list')}{such}"
            raise RequestError(f"{name} is {text}")


def _fits(value: Any, kind: Any) -> bool:
    origin, parts = get_origin(kind), get_args(kind)
    if kind is Any or origin is Callable:
        return kind is Any or callable(value)
    if origin is None:
        if accepted := _ACCEPTED.get(kind.__name__):
            return isinstance(value, accepted) and not isinstance(value, bool)
        return kind.__name__ in {each.__name__ for each in type(value).__mro__}
    if origin is Literal:
        return isinstance(value, str) and value in parts
    if not isinstance(origin, type) or origin.__module__ == "types":  # a union
        return any(_fits(value, part) for part in parts)
    if not isinstance(value, Collection) or isinstance(value, (str, bytes)):
        return False
    pairs = value.items() if isinstance(value, Mapping) else ((each,) for each in value)
    whole = isinstance(value, Mapping) == (len(parts) == 2)
    return whole and all(_fits(each, part) for pair in pairs for each, part in zip(pair, parts))
