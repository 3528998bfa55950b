"""A model that somebody wrote, in a worker: finding its factory, and what is sent of it."""

from __future__ import annotations

import importlib
import inspect
import os
import sys
import traceback
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from dlb.contract import AdoptedModel, Gradients, Trace
from dlb.errors import UnsupportedError

__all__ = ["described", "factory", "gradient_arrays", "trace_arrays"]


def factory(name: str, folder: str) -> Callable[[], Any]:
    """A function that imports and calls ``package.module:factory``, with a folder to look in first.

    What it raises says what the person who wrote the factory can do; the traceback goes to the
    worker's output. It is a :class:`dlb.errors.UnsupportedError`.
    """

    def make() -> Any:
        # As for a script that is run there: its modules first, and its files by relative paths.
        sys.path.insert(0, folder)
        os.chdir(folder)
        found = _find(name, folder)
        with _Told(f"'{name}' raised", folder):
            made = found()
        if made is None:
            raise UnsupportedError(f"'{name}' returned None; it must return the model")
        return made

    return make


def _find(name: str, folder: str) -> Callable[[], Any]:
    """The factory, imported and seen to take no arguments."""
    place, _, attribute = name.partition(":")
    try:
        with _Told(f"importing '{place}' raised", folder, ModuleNotFoundError):
            value: Any = importlib.import_module(place)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{place}.".startswith(f"{error.name}."):
            raise UnsupportedError(
                f"importing '{place}' needs '{error.name}', which this adapter's environment has "
                "not; install it there, or make the module do without"
            ) from None
        raise UnsupportedError(
            f"there is no module '{error.name}' in {folder} or in this adapter's environment; "
            f"run dlb in the folder that '{place}' is in"
        ) from None
    for part in attribute.split("."):
        if not hasattr(value, part):
            raise UnsupportedError(f"'{place}' has no '{attribute}'; {_callables(value)}")
        value = getattr(value, part)
    if not callable(value):
        raise UnsupportedError(
            f"'{name}' is a {type(value).__name__}; it must be a function that returns the model"
        )
    try:
        inspect.signature(value).bind()
    except TypeError:
        raise UnsupportedError(
            f"'{name}' needs arguments: {inspect.signature(value)}; a factory takes none, so write "
            "one that calls it with them"
        ) from None
    except ValueError:  # one that tells no signature
        pass
    return value  # type: ignore[no-any-return]


def _callables(module: Any) -> str:
    names = [
        name
        for name, value in vars(module).items()
        if callable(value)
        and not name.startswith("_")
        and getattr(value, "__module__", None) == getattr(module, "__name__", "")
    ]
    return f"it has {', '.join(names[:10]) or 'no functions'}"


class _Told:
    """Turns whatever somebody's code raises into one line, and prints the traceback."""

    def __init__(self, said: str, folder: str, *kept: type[BaseException]) -> None:
        self.said, self.folder, self.kept = said, folder, kept

    def __enter__(self) -> None: ...

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if error is None or isinstance(error, (KeyboardInterrupt, *self.kept)):
            return
        traceback.print_exception(kind, error, trace)
        frames = [
            frame
            for frame in traceback.extract_tb(trace)
            if Path(frame.filename).is_relative_to(self.folder)
        ]
        where = f" ({Path(frames[-1].filename).name}, line {frames[-1].lineno})" if frames else ""
        raise UnsupportedError(
            shortened(f"{self.said} {type(error).__name__}: {error}") + where
        ) from None


def shortened(text: str) -> str:
    """On one line, and of bounded length."""
    line = " ".join(text.split()).rstrip(": ")
    return line if len(line) < 500 else line[:500] + " ..."


def described(model: AdoptedModel) -> dict[str, Any]:
    """Layers, parameters and what the model says of its input, for the core."""
    shape = model.input_shape()
    return {
        "layers": [{**asdict(one), "attributes": dict(one.attributes)} for one in model.layers()],
        "parameters": [asdict(one) for one in model.parameters()],
        "input_shape": None if shape is None else list(shape),
    }


def trace_arrays(trace: Trace) -> tuple[dict[str, Any], dict[str, Any]]:
    """What is answered of a pass, and its arrays; one that occurs twice is written once."""
    numbers: dict[int, int] = {}
    arrays: dict[str, Any] = {
        f"outputs/{number}": array for number, array in enumerate(trace.outputs)
    }

    def number(array: Any) -> int | None:
        if array is None:
            return None
        if id(array) not in numbers:
            numbers[id(array)] = len(numbers)
            arrays[f"values/{numbers[id(array)]}"] = array
        return numbers[id(array)]

    calls = [
        {"layer": call.layer, "inputs": number(call.inputs), "output": number(call.output)}
        for call in trace.calls
    ]
    return {"outputs": len(trace.outputs), "calls": calls}, arrays


def gradient_arrays(found: Gradients) -> dict[str, Any]:
    """``loss``, ``parameters/NAME``, ``states/NAME`` and ``inputs``, as they are written."""
    arrays = {f"parameters/{name}": array for name, array in found.parameters.items()}
    arrays.update({f"states/{name}": array for name, array in found.states.items()})
    arrays["loss"] = np.asarray(found.loss)
    if found.inputs is not None:
        arrays["inputs"] = found.inputs
    return arrays
