"""Finding plugins: entry points of the group ``dlb``, loaded one at a time.

One that fails to load, breaks the contract or misspells a hook is named with its distribution
and version and left out; ``DLB_STRICT_PLUGINS=1`` makes that fatal.
"""

import contextlib
import difflib
import importlib
import inspect
import os
import re
import signal
import sys
import threading
from functools import lru_cache
from pathlib import Path
from types import ModuleType
from typing import Any, Callable, Dict, Iterator, List, Mapping, NamedTuple, Tuple

import importlib_metadata
import pluggy

from dlb_worker import hookspecs
from dlb_worker.contract import CONTRACT, AdapterDescription, StrategyDescription
from dlb_worker.errors import DlbError, PluginError, UnknownNameError, one_line

__all__ = [
    "BrokenPlugin",
    "LoadedPlugin",
    "Plugins",
    "check_answer",
    "check_description",
    "check_hooks",
    "load_plugin",
    "load_plugins",
    "observer",
    "plugins_of",
]

GROUP = "dlb"
#: Folders and files are named by it.
ADAPTER_NAME = re.compile("[a-z0-9][a-z0-9_-]{0,63}")
#: Hooks of the command's own process. They are asked as a plugin is loaded, so that one whose
#: answer fails is left out then and never brings a command down.
COMMAND_HOOKS = (
    "dlb_strategies",
    "dlb_workloads",
    "dlb_studies",
    "dlb_executors",
    "dlb_datasets",
    "dlb_commands",
)


class LoadedPlugin(NamedTuple):
    """A plugin in use: its entry point, distribution and version, and the hooks it answers."""

    name: str
    distribution: str
    version: str
    hooks: Tuple[str, ...]


class BrokenPlugin(NamedTuple):
    """A plugin left out, and why, in one line."""

    name: str
    distribution: str
    version: str
    reason: str

    def __str__(self) -> str:
        where = f"{self.distribution} {self.version}".strip()
        return f"plugin '{self.name}' of {where} left out: {self.reason}"


class Plugins(NamedTuple):
    """The plugins of this environment.

    Attributes:
        manager: pluggy's.
        loaded, broken: the plugins in use, and those left out.
        adapters: descriptions by adapter name.
    """

    manager: pluggy.PluginManager
    loaded: Tuple[LoadedPlugin, ...]
    broken: Tuple[BrokenPlugin, ...]
    adapters: Mapping[str, AdapterDescription]

    @property
    def hook(self) -> Any:
        """Call hooks here, by keyword."""
        return self.manager.hook

    def adapter(self, name: str) -> AdapterDescription:
        """The adapter of that name.

        Raises:
            UnknownNameError: this environment has none.
        """
        if name not in self.adapters:
            reasons = "; ".join(str(plugin) for plugin in self.broken)
            raise UnknownNameError("adapter", name, self.adapters, reasons)
        return self.adapters[name]

    def strategies(self) -> Tuple[StrategyDescription, ...]:
        """Every strategy that the plugins here bring."""
        return tuple(each for own in self.hook.dlb_strategies() for each in own)


class _Registry:
    """Plugins as they are registered, one at a time."""

    def __init__(self) -> None:
        self.manager = pluggy.PluginManager("dlb")
        self.manager.add_hookspecs(hookspecs)
        self.adapters: Dict[str, AdapterDescription] = {}

    def register(self, plugin: Any, name: str) -> Tuple[str, ...]:
        """Register an object and its strategies; the names of the hooks that it answers.

        Raises:
            PluginError: it breaks the contract, and is not registered.
        """
        hooks = check_hooks(plugin)
        self.manager.register(plugin, name=name)
        try:
            for hook in COMMAND_HOOKS:
                if hook in hooks:
                    check_answer(hook, getattr(plugin, hook)())
            if "dlb_describe" in hooks:
                self._describe(plugin.dlb_describe())
            for strategy in getattr(plugin, "strategies", ()):
                self.register(strategy, f"{name}.{strategy.name}")
        except BaseException:
            for registered, _ in self.manager.list_name_plugin():
                if registered == name or registered.startswith(f"{name}."):
                    self.manager.unregister(name=registered)
            raise
        return hooks

    def _describe(self, description: Any) -> None:
        check_description(description)
        if description.name in self.adapters:
            other = self.adapters[description.name].distribution
            raise PluginError(
                f"{other} has an adapter '{description.name}' too; uninstall one of them"
            )
        self.adapters[description.name] = description


@contextlib.contextmanager
def observer(name: str, generator: Any, observed: Dict[str, Any]) -> Iterator[None]:
    """Run an observer's generator around the block, and keep what it yielded under its name.

    Raises:
        DlbError: it failed; the message names it.
    """
    wrapped = contextlib.contextmanager(lambda: generator)()
    with _named(name):
        seen = wrapped.__enter__()
    try:
        yield
    finally:
        with _named(name):
            wrapped.__exit__(None, None, None)
            observed[name] = dict(seen)


@contextlib.contextmanager
def _named(observer: str) -> Iterator[None]:
    """Name the observer in whatever the block raises."""
    try:
        yield
    except (Exception, SystemExit) as error:
        raise DlbError(f"observer '{observer}' failed: {one_line(error)}") from error


@lru_cache(maxsize=1)
def load_plugins() -> Plugins:
    """Load every plugin of this environment, once.

    Raises:
        PluginError: one is broken and ``DLB_STRICT_PLUGINS`` is set.
    """
    registry = _Registry()
    loaded: List[LoadedPlugin] = []
    points, broken = _entry_points()
    for name, version, point in sorted(points, key=lambda found: found[2].name):
        try:
            # What a plugin prints must not get into the one document that --json promises.
            with _signals() as arrived, contextlib.redirect_stdout(sys.stderr):
                hooks = registry.register(point.load(), point.name)
        # A plugin is someone else's code and may raise anything at import, an interrupt included.
        except BaseException as error:
            if arrived:
                raise
            reason = error.message if isinstance(error, PluginError) else one_line(error)
            broken.append(BrokenPlugin(point.name, name, version, " ".join(reason.split())))
            continue
        loaded.append(LoadedPlugin(point.name, name, version, hooks))
    if broken and os.environ.get("DLB_STRICT_PLUGINS", "") not in ("", "0"):
        raise PluginError(f"{broken[0]}; DLB_STRICT_PLUGINS is set, so this is fatal")
    return Plugins(registry.manager, tuple(loaded), tuple(broken), registry.adapters)


def _entry_points() -> Tuple[List[Tuple[str, str, Any]], List[BrokenPlugin]]:
    """Name and version of the distribution, and entry point, of each plugin; and those that cannot be read.

    Distributions are read one by one: any package of the environment may be damaged, and is nobody's business
    unless it has plugins.
    """
    points: List[Tuple[str, str, Any]] = []
    broken: List[BrokenPlugin] = []
    seen = set()
    for distribution in importlib_metadata.distributions():
        folder = getattr(distribution, "_path", None)
        try:
            own = [point for point in distribution.entry_points if point.group == GROUP]
            if not own:
                continue
            name, version = distribution.metadata["Name"], distribution.version
            if not (isinstance(name, str) and isinstance(version, str)):
                raise ValueError("its METADATA has no Name or no Version")
        # Missing or damaged metadata raise anything, depending on the version of importlib-metadata.
        except Exception as error:
            if _has_plugins(folder):
                where = getattr(folder, "name", str(folder))
                reason = f"its metadata cannot be read ({one_line(error)})"
                remedy = f"install it again, or delete {folder}"
                broken.append(BrokenPlugin(where.split("-")[0], where, "", f"{reason}; {remedy}"))
            continue
        # As an import does, the first on the path is taken.
        key = re.sub("[-_.]+", "-", name).lower()
        if key not in seen:
            seen.add(key)
            points += [(name, version, point) for point in own]
    return points, broken


def _has_plugins(folder: Any) -> bool:
    """Whether a folder of metadata that cannot be read names plugins."""
    try:
        with (Path(str(folder)) / "entry_points.txt").open("rb") as file:
            return re.search(rb"(?m)^\s*\[dlb\]", file.read(1 << 20)) is not None
    except OSError:
        return False


@contextlib.contextmanager
def _signals() -> Iterator[List[int]]:
    """The signals that arrive in the block and are handled in Python; a plugin may raise the same by itself."""
    arrived: List[int] = []
    handlers: Dict[int, Callable[[int, Any], Any]] = {}

    def handle(number: int, frame: Any) -> None:
        arrived.append(number)
        handlers[number](number, frame)

    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGINT, signal.SIGTERM):
            handler = signal.getsignal(number)
            if callable(handler):
                handlers[number] = handler
                signal.signal(number, handle)
    try:
        yield arrived
    finally:
        for changed, previous in handlers.items():
            if signal.getsignal(changed) is handle:
                signal.signal(changed, previous)


def load_plugin(place: str) -> Plugins:
    """One plugin by itself, as if nothing else were installed: for tests of an adapter.

    Args:
        place: ``package.module`` or ``package.module:object``, as an entry point has it.

    Raises:
        PluginError: it cannot be imported, or breaks the contract.
    """
    module, _, attribute = place.partition(":")
    try:
        plugin: Any = importlib.import_module(module)
        for part in filter(None, attribute.split(".")):
            plugin = getattr(plugin, part)
    # Someone else's code, which may raise anything.
    except Exception as error:
        raise PluginError(f"plugin {place}: {one_line(error)}") from error
    return plugins_of(plugin, place)


def plugins_of(plugin: Any, name: str) -> Plugins:
    """One plugin that is imported already, as if nothing else were installed.

    Raises:
        PluginError: it breaks the contract.
    """
    registry = _Registry()
    hooks = registry.register(plugin, name)
    loaded = (LoadedPlugin(name, name.partition(":")[0], "", hooks),)
    return Plugins(registry.manager, loaded, (), registry.adapters)


def check_hooks(plugin: Any) -> Tuple[str, ...]:
    """Names of the hooks that a plugin, a module or an object, answers.

    Raises:
        PluginError: a name or an argument that the contract does not know.
    """
    known = {
        name: set(inspect.signature(function).parameters)
        for name, function in vars(hookspecs).items()
        if name.startswith("dlb_")
    }
    found = []
    for name in dir(plugin):
        if not name.startswith("dlb_"):
            continue
        member = getattr(plugin, name)
        if not callable(member) or isinstance(member, type):
            continue
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            proposal = f"; did you mean '{near[0]}'?" if near else ""
            raise PluginError(f"'{name}' is not a hook of contract {_shown(CONTRACT)}{proposal}")
        if getattr(member, "dlb_impl", None) is None:
            raise PluginError(f"hook '{name}' is not marked; put @dlb_worker.hookimpl above it")
        extra = set(inspect.signature(member).parameters) - known[name]
        if extra:
            raise PluginError(
                f"hook '{name}' takes {', '.join(sorted(extra))}, which the contract does not "
                f"pass; it passes {', '.join(sorted(known[name])) or 'nothing'}"
            )
        found.append(name)
    if not found:
        kind = "module" if isinstance(plugin, ModuleType) else type(plugin).__name__
        raise PluginError(
            f"this {kind} answers no hook; name an Adapter or a Strategy object, or mark functions "
            "with @dlb_worker.hookimpl"
        )
    return tuple(sorted(found))


def check_answer(hook: str, answer: Any) -> None:
    """Raises PluginError unless the answer is a mapping or a sequence of what the hook says."""
    mapping = hook in ("dlb_workloads", "dlb_studies", "dlb_executors")
    if not isinstance(answer, Mapping if mapping else (list, tuple)):
        expected = "mapping" if mapping else "list or tuple"
        raise PluginError(f"{hook} returned a {type(answer).__name__}, not a {expected}")
    wrong: List[Any]
    if isinstance(answer, Mapping):
        fits: Callable[[Any], bool] = callable if hook == "dlb_executors" else _is_path
        wrong = [name for name in answer if not isinstance(name, str) or not fits(answer[name])]
    elif hook == "dlb_strategies":
        wrong = [each for each in answer if not isinstance(each, StrategyDescription)]
    else:
        wrong = [each for each in answer if not isinstance(getattr(each, "name", None), str)]
    if wrong:
        raise PluginError(f"{hook} returned a wrong entry: {repr(wrong[0])[:80]}")


def _are_texts(values: Any) -> bool:
    return isinstance(values, (list, tuple, set, frozenset)) and all(
        isinstance(each, str) for each in values
    )


def _is_path(value: Any) -> bool:
    return isinstance(value, (str, os.PathLike))


def check_description(description: Any) -> None:
    """Raises PluginError unless it is a description made for this contract."""
    if not isinstance(description, AdapterDescription):
        raise PluginError(
            f"dlb_describe returned a {type(description).__name__}, not an AdapterDescription"
        )
    name = description.name
    if not (isinstance(name, str) and ADAPTER_NAME.fullmatch(name)):
        raise PluginError(
            f"adapter name {repr(name)[:80]}: use lowercase letters, digits, '-' and '_', at most 64, and a "
            "letter or digit first"
        )
    lists = ("framework", "features", "dtypes", "devices", "deviations")
    wrong = [name for name in lists if not _are_texts(getattr(description, name))]
    tables = {
        name: getattr(description, name) for name in ("layers", "optimizers", "losses", "variants")
    }
    for name, table in tables.items():
        values = table.values() if isinstance(table, Mapping) and name == "variants" else ()
        if not (isinstance(table, Mapping) and all(map(_are_texts, (list(table), *values)))):
            wrong.append(name)
    wrong += [n for n in ("title", "distribution") if not isinstance(getattr(description, n), str)]
    if wrong:
        raise PluginError(f"its description has a wrong '{wrong[0]}'; see AdapterDescription")
    major, minor = description.contract
    if major != CONTRACT[0] or minor > CONTRACT[1]:
        raise PluginError(
            f"it is made for contract {_shown(description.contract)} and this dlb has "
            f"{_shown(CONTRACT)}; install versions that go together"
        )


def _shown(contract: Tuple[int, int]) -> str:
    return ".".join(map(str, contract))
