"""A user's factory: naming it, finding it, calling it, and turning what it raises into one line."""

import importlib
import inspect
import os
import sys
import sysconfig
import traceback
from pathlib import Path
from typing import Any, Callable, Optional, Tuple

from dlb_worker.errors import UnsupportedError

__all__ = ["factory", "name_function", "trainer"]


def name_function(function: Callable[..., Any]) -> Tuple[str, Optional[Path]]:
    """``package.module:name`` of a function or class, for :func:`factory`, and the folder to look in.

    That folder is None for an installed module, since a worker has its own packages.

    Raises:
        UnsupportedError: another process cannot import it by a name.
    """
    module = getattr(function, "__module__", None) or ""
    attribute = getattr(function, "__qualname__", None) or type(function).__name__
    if module == "__main__":
        raise UnsupportedError(
            f"{attribute}: what a notebook or a script defines cannot be imported by another process; "
            "write it to a module (in a notebook: %%writefile nets.py), and import it from there"
        )
    value: Any = sys.modules.get(module)
    for part in attribute.split("."):
        value = getattr(value, part, None)
    if value != function:
        raise UnsupportedError(
            f"{attribute}: another process cannot import it as '{module}:{attribute}', such as a lambda or a "
            "function within a function; give one that its module has at the top"
        )
    path = Path(getattr(sys.modules[module], "__file__", None) or "built in").resolve()
    installed = [Path(sysconfig.get_paths()[key]) for key in ("stdlib", "purelib", "platlib")]
    if not path.exists() or any(folder in path.parents for folder in installed):
        return f"{module}:{attribute}", None
    inner = module.count(".") + (path.stem == "__init__")
    return f"{module}:{attribute}", path.parents[inner]


def factory(name: str, folder: str) -> Callable[[], Any]:
    """A function that imports and calls ``package.module:factory``, with a folder to look in first.

    What it raises says what the author of the factory can do; the traceback goes to the worker's
    output. It is an :class:`UnsupportedError`.
    """

    def make() -> Any:
        return _called(name, folder, "the model")

    return make


def trainer(name: str, folder: str) -> Callable[[Any], Callable[[Any], Any]]:
    """A function that imports and calls ``package.module:trainer`` with a model.

    It returns the user's step: a function of a batch that trains the model and returns the loss. What
    either raises is as for :func:`factory`.
    """

    def make(model: Any) -> Callable[[Any], Any]:
        step = _called(name, folder, "a step, a function of a batch", model)
        if not callable(step):
            raise UnsupportedError(
                f"'{name}' returned a {type(step).__name__}; it must return a step, a function of a batch"
            )

        def take(batch: Any) -> Any:
            with _UserCode(f"the step of '{name}' raised", folder):
                return step(batch)

        return take

    return make


def _called(name: str, folder: str, result: str, *arguments: Any) -> Any:
    """What a user's function returns, which must be something.

    Args:
        result: what it has to return, in words.
    """
    # As for a script that runs there: its modules first, and its files by relative paths.
    sys.path.insert(0, folder)
    os.chdir(folder)
    function = _find(name, folder, *arguments)
    with _UserCode(f"'{name}' raised", folder):
        made = function(*arguments)
    if made is None:
        raise UnsupportedError(f"'{name}' returned None; it must return {result}")
    return made


def _find(name: str, folder: str, *arguments: Any) -> Callable[..., Any]:
    """A user's function, imported and seen to take these arguments."""
    module, _, attribute = name.partition(":")
    try:
        with _UserCode(f"importing '{module}' raised", folder, ModuleNotFoundError):
            value: Any = importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module}.".startswith(f"{error.name}."):
            raise UnsupportedError(
                f"importing '{module}' needs '{error.name}', which this adapter's environment does "
                "not have; install it there, or make the module work without it"
            ) from None
        raise UnsupportedError(
            f"there is no module '{error.name}' in {folder} or in this adapter's environment; "
            f"run dlb in the folder of '{module}'"
        ) from None
    for part in attribute.split("."):
        if not hasattr(value, part):
            raise UnsupportedError(f"'{module}' has no '{attribute}'; {_functions(value)}")
        value = getattr(value, part)
    if not callable(value):
        raise UnsupportedError(
            f"'{name}' is a {type(value).__name__}; it must be a function that returns the model"
        )
    try:
        inspect.signature(value).bind(*arguments)
    except TypeError:
        takes = "a trainer takes the model" if arguments else "a factory takes none"
        raise UnsupportedError(
            f"'{name}' needs arguments: {inspect.signature(value)}; {takes}, so write one that "
            "calls it with them"
        ) from None
    except ValueError:  # it has no signature
        pass
    return value  # type: ignore[no-any-return]


def _functions(module: Any) -> str:
    names = [
        name
        for name, value in vars(module).items()
        if callable(value)
        and not name.startswith("_")
        and getattr(value, "__module__", None) == getattr(module, "__name__", "")
    ]
    return f"it has {', '.join(names[:10]) or 'no functions'}"


class _UserCode:
    """Turns whatever a user's code raises into one line, and prints the traceback."""

    def __init__(self, what: str, folder: str, *passed: Any) -> None:
        self.what, self.folder, self.passed = what, folder, passed

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if error is None or isinstance(error, (KeyboardInterrupt,) + self.passed):
            return
        traceback.print_exception(kind, error, trace)
        frames = [
            frame
            for frame in traceback.extract_tb(trace)
            if Path(self.folder) in Path(frame.filename).parents
        ]
        place = f" ({Path(frames[-1].filename).name}, line {frames[-1].lineno})" if frames else ""
        raise UnsupportedError(
            _shortened(f"{self.what} {type(error).__name__}: {error}") + place
        ) from None


def _shortened(text: str) -> str:
    """On one line, and of bounded length."""
    line = " ".join(text.split()).rstrip(": ")
    return line if len(line) < 500 else line[:500] + " ..."
