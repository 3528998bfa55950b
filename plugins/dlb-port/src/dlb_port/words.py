"""The models of a port as a command names them: factories, files, layouts, training programs."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import Any, Union

from dlb import environments
from dlb.adapters import known_adapters
from dlb.errors import RequestError, UnsupportedError
from dlb_port.captures import CaptureFile
from dlb_port.inputs import check_layout
from dlb_port.onnx_model import is_file
from dlb_port.own_steps import Program, read_batches
from dlb_port.weight_map import ModelMap, WeightMap
from dlb_worker.user_code import name_function

__all__ = [
    "Function",
    "adapters_needed",
    "adapters_of_models",
    "check_models",
    "layouts_of_inputs",
    "layouts_of_outputs",
    "model_files",
    "name_functions",
    "named_models",
    "read_program",
]

#: ``package.module:function``, or the function itself.
Function = Union[str, Callable[..., Any]]
#: A name is a folder's and a file's, too.
NAME = re.compile(r"[^\W_][\w.-]*")
SPELLING = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*")


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
        model_files(factories)
    return factories


def _name_of(path: str) -> str:
    """What a file is called that has no name: its stem, as far as a name may have its characters."""
    return re.sub(r"[^A-Za-z0-9_.-]+", "-", Path(path).stem).strip("-_.") or "file"


def model_files(models: Mapping[str, str]) -> dict[str, str]:
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


def name_functions(
    functions: Mapping[str, Function], folder: str | Path | None
) -> tuple[dict[str, str], dict[str, Path]]:
    """``module:function`` of each model, and the folder where a worker looks for it. Raises RequestError."""
    names, folders = {}, {}
    for model, each in functions.items():
        try:
            found = _in_file(each, folder) if isinstance(each, str) else name_function(each)
            names[model], own = found
        except UnsupportedError as error:
            raise RequestError(f"{model}={error}") from None
        folders[model] = Path((isinstance(each, str) and own) or folder or own or Path.cwd())
    return names, folders


def _in_file(function: str, within: str | Path | None) -> tuple[str, Path | None]:
    """``folder/net.py:make`` as ``net:make`` and the folder; as it is if it names no file."""
    path, _, attribute = function.rpartition(":")
    if not path.endswith(".py"):
        return function, None
    file = Path(within or "", path).absolute()
    if not file.is_file():
        raise UnsupportedError(f"{function}: there is no file {file}")
    module, folder = file.stem, file.parent
    while (folder / "__init__.py").exists():
        module, folder = f"{folder.name}.{module}", folder.parent
    return f"{module}:{attribute}", folder


def named_models(models: Mapping[str, str], captured: CaptureFile | None) -> dict[str, str]:
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
        raise RequestError("a port needs two models or more; give another ADAPTER=MODULE:FACTORY")
    model_files(named)
    return named


def layouts_of_inputs(
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


def layouts_of_outputs(
    models: Mapping[str, str], given: Mapping[str, str], captured: CaptureFile | None
) -> dict[str, str | tuple[str, ...]]:
    layouts: dict[str, str | tuple[str, ...]] = dict(
        _given_layouts("--output-layout", models, given)
    )
    if captured is not None:
        layouts[captured.capture.name] = captured.capture.output_layouts
    return layouts


def _given_layouts(
    option: str, models: Mapping[str, str], given: Mapping[str, str]
) -> dict[str, str]:
    for name, layout in given.items():
        if name not in models:
            raise RequestError(f"{option} {name}={layout}: no model '{name}'")
        check_layout(name, layout)
    return dict(given)


def read_program(
    models: Mapping[str, str],
    trainers: Mapping[str, str],
    batches: str | Path | None,
    folders: Mapping[str, Path],
    captured: CaptureFile | None,
) -> Program | None:
    """Users' own training programs; None if there are none. A capture has its own program and batches.

    Raises:
        RequestError: a model has none while others do, or there are no batches.
    """
    for name, path in model_files(models).items() if trainers or batches else ():
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
        folders = {captured.capture.name: Path(), **folders}
    missing = [name for name in models if name not in trainers]
    if missing:
        raise RequestError(
            f"'{missing[0]}' has no training program; give --trainer {missing[0]}=MODULE:FUNCTION"
        )
    if captured is not None:
        return Program(trainers, captured.arrays(captured.capture.batches), folders)
    if batches is None:
        raise RequestError(
            "training programs need --batches FILE, an .npz file of arrays [steps, batch, ...]"
        )
    return Program(trainers, read_batches(Path(batches)), folders)


def adapters_of_models(names: Iterable[str]) -> dict[str, str]:
    """The adapter of each of a user's models, by the model's name.

    A model is called as its adapter, or, so that one adapter may have several, ``ADAPTER-WORD``. If no
    adapter fits, the name itself is returned, which :func:`find_adapters` refuses.
    """
    installed = known_adapters()
    known = sorted({*installed, *environments.also_known()}, key=len, reverse=True)
    return {
        name: environments.adapter_called(
            next((each for each in known if f"{name}-".startswith(f"{each}-")), name), installed
        )
        for name in names
    }
