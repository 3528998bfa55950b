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
from typing import Any, Callable, Dict, Iterator, List, Mapping, NamedTuple, Tuple, get_type_hints

import importlib_metadata
import pluggy

from dlb_worker import hookspecs
from dlb_worker.contract import CONTRACT, AdapterDescription, StrategyDescription
from dlb_worker.errors import PluginError, UnknownNameError, one_line

__all__ = [
    "NAME",
    "BrokenPlugin",
    "LoadedPlugin",
    "Plugins",
    "check_description",
    "check_hooks",
    "entries_of",
    "guarded",
    "load_plugin",
    "load_plugins",
    "observer",
    "plugins_of",
]

GROUP = "dlb"
#: Plugins and all that they bring are called by it: folders, files, options and commands have these names.
NAME = re.compile("[a-z0-9](?:[a-z0-9_-]{0,62}[a-z0-9])?")
#: The project's own packages, ``dlb-NAME``. They are loaded first.
OWN = {
    "chainer", "cntk", "core", "dask", "data", "measure", "mxnet", "port", "report", "studies", "submitit",
    "tf", "theano", "torch", "track",
}  # fmt: skip
#: What is asked once, as a plugin is loaded: what an entry is in words, and the module and name of its type. Of
#: this package's own alone, the type is known; what a plugin made of another has imported it.
ENTRIES = {
    "dlb_describe": ("an adapter", "dlb_worker.contract", "AdapterDescription"),
    "dlb_strategies": ("a strategy", "dlb_worker.contract", "StrategyDescription"),
    "dlb_workloads": ("a workload", "", ""),
    "dlb_studies": ("a study", "", ""),
    "dlb_executors": ("an executor", "", ""),
    "dlb_exports": ("a form of export", "", ""),
    "dlb_findings": ("a module of findings", "", ""),
    "dlb_own_data": ("data", "", ""),
    "dlb_datasets": ("a data set", "dlb.data.description", "DataSetDescription"),
    "dlb_commands": ("a command", "click", "Command"),
}
#: Of a package's metadata, no more is read.
MOST_BYTES = 1 << 24
#: When it is said what is waited for.
SLOW_SECONDS = 5.0


class LoadedPlugin(NamedTuple):
    """A plugin in use: its entry point, distribution and version, and the hooks it answers."""

    name: str
    distribution: str
    version: str
    hooks: Tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"plugin '{self.name}' of {self.distribution} {self.version}".strip()


class BrokenPlugin(NamedTuple):
    """A plugin left out, and why, in one line."""

    name: str
    distribution: str
    version: str
    reason: str

    def __str__(self) -> str:
        return f"{LoadedPlugin(*self[:3])} left out: {self.reason}"


class Plugins(NamedTuple):
    """The plugins of this environment.

    Attributes:
        manager: pluggy's.
        loaded, broken: the plugins in use, and those left out.
        brought: by hook, what plugins bring: by name, the plugin and the entry.
    """

    manager: pluggy.PluginManager
    loaded: Tuple[LoadedPlugin, ...]
    broken: Tuple[BrokenPlugin, ...]
    brought: Mapping[str, Mapping[str, Tuple[LoadedPlugin, Any]]]

    @property
    def hook(self) -> Any:
        """Call hooks of the worker here, by keyword."""
        return self.manager.hook

    @property
    def adapters(self) -> Mapping[str, AdapterDescription]:
        """Descriptions by adapter name."""
        return self.named("dlb_describe")

    def adapter(self, name: str) -> AdapterDescription:
        """The adapter of that name.

        Raises:
            UnknownNameError: this environment has none.
        """
        if name not in self.adapters:
            reasons = "; ".join(str(plugin) for plugin in self.broken)
            raise UnknownNameError("adapter", name, self.adapters, reasons)
        return self.adapters[name]

    def named(self, hook: str) -> Dict[str, Any]:
        """What plugins bring by a hook, by name."""
        return {name: entry for name, (_, entry) in self.brought[hook].items()}

    def strategies(self) -> Tuple[StrategyDescription, ...]:
        """Every strategy that the plugins here bring."""
        return tuple({id(each): each for each in self.named("dlb_strategies").values()}.values())


class _Registry:
    """Plugins, one at a time. Of a reserved distribution ``dlb-NAME``, no other has the adapter NAME."""

    def __init__(self, reserved: Tuple[str, ...] = ()) -> None:
        self.reserved = reserved
        self.manager = pluggy.PluginManager("dlb")
        self.manager.add_hookspecs(hookspecs)
        self.brought: Dict[str, Dict[str, Any]] = {hook: {} for hook in ENTRIES}

    def register(self, plugin: Any, by: LoadedPlugin) -> LoadedPlugin:
        """Register an object and its strategies, and keep what they bring.

        Raises:
            PluginError: it breaks the contract, or brings what another has; nothing of it is registered.
        """
        hooks = check_hooks(plugin)
        strategies = getattr(plugin, "strategies", ())
        parts = {by.name: plugin, **{f"{by.name}.{part.name}": part for part in strategies}}
        brought: List[Tuple[str, str, Any]] = []
        for part in parts.values():
            for hook in ENTRIES.keys() & set(check_hooks(part)):
                for name, entry in entries_of(hook, getattr(part, hook)()).items():
                    self._check_free(hook, name, by)
                    brought.append((hook, name, entry))
        if {*parts} & dict(self.manager.list_name_plugin()).keys() or self.manager.is_registered(
            plugin
        ):
            raise PluginError(f"another plugin is called '{by.name}' too, or is the same")
        for name, part in parts.items():
            self.manager.register(part, name=name)
        for hook, name, entry in brought:
            self.brought[hook][name] = by, entry
        return by._replace(hooks=hooks)

    def _check_free(self, hook: str, name: str, by: LoadedPlugin) -> None:
        """Raises PluginError if somebody else has this name."""
        what = ENTRIES[hook][0]
        if name in self.brought[hook]:
            other = self.brought[hook][name][0].distribution
            raise PluginError(f"{other} has {what} '{name}' too; uninstall one of them")
        owner = f"dlb-{name}"
        if hook == "dlb_describe" and owner in self.reserved and owner != _normal(by.distribution):
            raise PluginError(f"only {owner} has {what} '{name}'; give it another name")


def _normal(distribution: str) -> str:
    """A distribution's name as packages' names are compared."""
    return re.sub("[-_.]+", "-", distribution).lower()


@contextlib.contextmanager
def guarded(doing: str, failed: str = "") -> Iterator[None]:
    """Run a plugin's code, which may raise, print (not into the document of ``--json``) and wait as it likes.

    Args:
        doing: what is said to be waited for, after some seconds.
        failed: what failed, before the reason in the error.

    Raises:
        PluginError: it raised, an interrupt of its own included. One that came from outside passes.
    """
    timer = threading.Timer(SLOW_SECONDS, print, [f"dlb: {doing} ..."], {"file": sys.stderr})
    timer.daemon = True
    timer.start()
    try:
        with _signals() as arrived, _ASIDE:
            yield
    except BaseException as error:
        if arrived:
            raise
        reason = re.sub("^PluginError: ", "", one_line(error))
        raise PluginError(f"{failed}: {reason}" if failed else reason) from error
    finally:
        timer.cancel()


class _Aside:
    """What is printed while a plugin's code runs goes to standard error, and the current folder stays.

    Both are the whole process's, and plugins run in several threads: the first that enters turns them aside,
    and the last that leaves puts them back.
    """

    def __init__(self) -> None:
        self._lock, self._within = threading.Lock(), 0
        self._after = contextlib.ExitStack()

    def __enter__(self) -> None:
        with self._lock:
            self._within += 1
            if self._within > 1:
                return
            with contextlib.suppress(OSError, ValueError):
                sys.stdout.flush()
                folder, output, errors = os.open(".", os.O_RDONLY), os.dup(1), os.dup(2)
                for descriptor in (folder, output, errors):
                    self._after.callback(os.close, descriptor)
                self._after.callback(os.fchdir, folder)
                self._after.callback(os.dup2, errors, 2)
                self._after.callback(os.dup2, output, 1)
                os.dup2(2, 1)
            self._after.enter_context(contextlib.redirect_stdout(sys.stderr))

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._within -= 1
            if not self._within:
                self._after.close()


_ASIDE = _Aside()


@contextlib.contextmanager
def observer(name: str, start: Callable[[], Any], observed: Dict[str, Any]) -> Iterator[None]:
    """Run an observer's generator around the block, and keep what it yielded under its name.

    Args:
        start: makes the generator.

    Raises:
        PluginError: it failed, and the block did not; the message names it.
    """
    waiting, failed = f"waiting for observer '{name}'", f"observer '{name}' failed"
    with guarded(waiting, failed):
        wrapped = contextlib.contextmanager(start)()
        seen = wrapped.__enter__()
    try:
        yield
    except BaseException:
        # What went wrong in the block matters more than what becomes of its observer.
        with contextlib.suppress(PluginError), guarded(waiting, failed):
            wrapped.__exit__(None, None, None)
        raise
    with guarded(waiting, failed):
        wrapped.__exit__(None, None, None)
        observed[name] = dict(seen)


@lru_cache(maxsize=1)
def load_plugins() -> Plugins:
    """Load every plugin of this environment, once.

    Raises:
        PluginError: one is broken and ``DLB_STRICT_PLUGINS`` is set.
    """
    points, broken = _entry_points()
    loaded: List[LoadedPlugin] = []
    own = {f"dlb-{name}" for name in OWN}
    registry = _Registry((*own, *(_normal(plugin.distribution) for plugin, _ in points)))
    for plugin, point in sorted(
        points, key=lambda each: (_normal(each[0].distribution) not in own, each[0])
    ):
        try:
            with guarded(f"loading {plugin}"):
                _check_name("an entry point", plugin.name)
                loaded.append(registry.register(point.load(), plugin))
        except PluginError as error:
            broken.append(BrokenPlugin(*plugin[:3], reason=error.message))
    if broken and os.environ.get("DLB_STRICT_PLUGINS", "") not in ("", "0"):
        raise PluginError(f"{broken[0]}; DLB_STRICT_PLUGINS is set, so this is fatal")
    return Plugins(registry.manager, tuple(sorted(loaded)), tuple(broken), registry.brought)


def _entry_points() -> Tuple[List[Tuple[LoadedPlugin, Any]], List[BrokenPlugin]]:
    """Each plugin with its entry point, and those that cannot be read.

    Distributions are read one by one: any package of the environment may be damaged, and is nobody's business
    unless it has plugins.
    """
    points: List[Tuple[LoadedPlugin, Any]] = []
    broken: List[BrokenPlugin] = []
    seen = set()
    for distribution in importlib_metadata.distributions():
        folder = getattr(distribution, "_path", None)
        try:
            points_file = b"[dlb]" if folder is None else _read(folder / "entry_points.txt")
        except Exception:  # there is none, or what is none; in a zip file, it may be anything
            continue
        if b"[dlb]" not in points_file:
            continue
        try:
            if isinstance(folder, Path) and (folder / "METADATA").exists():
                _read(folder / "METADATA")
            own = [point for point in distribution.entry_points if point.group == GROUP]
            metadata = distribution.metadata  # parsed anew whenever it is asked for
            name, version = metadata["Name"], metadata["Version"]
            if not (isinstance(name, str) and isinstance(version, str)):
                raise ValueError("its METADATA has no Name or no Version")
        # Missing or damaged metadata raise anything, depending on the version of importlib-metadata.
        except Exception as error:
            where = getattr(folder, "name", str(folder))
            reason = f"its metadata cannot be read ({one_line(error)})"
            remedy = f"install it again, or delete {folder}"
            broken.append(BrokenPlugin(where.split("-")[0], where, "", f"{reason}; {remedy}"))
            continue
        # As an import does, the first on the path is taken.
        if _normal(name) not in seen:
            seen.add(_normal(name))
            for point in own:
                texts = [" ".join(text.split())[:80] for text in (point.name, name, version)]
                points.append((LoadedPlugin(texts[0], texts[1], texts[2]), point))
    return points, broken


def _read(path: Any) -> bytes:
    """A file of metadata; raises ValueError if a pipe or a device is in its place, or it is too large."""
    if isinstance(path, Path) and not (path.is_file() and path.stat().st_size <= MOST_BYTES):
        raise ValueError(f"{path.name} is no file of at most {MOST_BYTES} bytes")
    return bytes(path.read_bytes())


@contextlib.contextmanager
def _signals() -> Iterator[List[int]]:
    """The signals that arrive in the block; a plugin may raise the same. Their handlers are kept."""
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
            signal.signal(changed, previous)


def load_plugin(place: str) -> Plugins:
    """One plugin by itself, as if nothing else were installed: for tests of an adapter.

    Args:
        place: ``package.module`` or ``package.module:object``, as an entry point has it.

    Raises:
        PluginError: it cannot be imported, or breaks the contract.
    """
    module, _, attribute = place.partition(":")
    with guarded(f"loading plugin {place}", f"plugin {place}"):
        plugin: Any = importlib.import_module(module)
        for part in filter(None, attribute.split(".")):
            plugin = getattr(plugin, part)
    return plugins_of(plugin, place)


def plugins_of(plugin: Any, name: str) -> Plugins:
    """One plugin that is imported already, as if nothing else were installed.

    Raises:
        PluginError: it breaks the contract.
    """
    registry = _Registry()
    by = LoadedPlugin(name, name.partition(":")[0], "")
    loaded = registry.register(plugin, by)
    return Plugins(registry.manager, (loaded,), (), registry.brought)


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
        if inspect.iscoroutinefunction(member) or inspect.isasyncgenfunction(member):
            raise PluginError(f"hook '{name}' is asynchronous; make it a plain function")
        marks = getattr(member, "dlb_impl", None)
        if marks is None:
            raise PluginError(f"hook '{name}' is not marked; put @dlb_worker.hookimpl above it")
        if marks["hookwrapper"] or marks.get("wrapper"):
            raise PluginError(f"hook '{name}' is a wrapper, of which the contract has none")
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


def entries_of(hook: str, answer: Any) -> Dict[str, Any]:
    """What a hook of the command returned, by name; a strategy once for each framework.

    Raises:
        PluginError: it is not what the hook says, or has a name that nothing may have.
    """
    if hook == "dlb_describe":
        check_description(answer)
        answer = [answer]
    mapping = not ENTRIES[hook][1]
    if not isinstance(answer, Mapping if mapping else (list, tuple)):
        expected = "mapping" if mapping else "list or tuple"
        raise PluginError(f"{hook} returned a {type(answer).__name__}, not a {expected}")
    entries: Dict[str, Any] = {}
    names: Any = answer if mapping else (getattr(each, "name", None) for each in answer)
    for name, entry in zip(names, answer.values() if isinstance(answer, Mapping) else answer):
        if not _is_entry(hook, entry):
            raise PluginError(f"{hook} returned a wrong entry: {repr(entry)[:80]}")
        _check_name(ENTRIES[hook][0], name)
        if hook == "dlb_strategies":
            entries.update({f"{name} of {framework}": entry for framework in entry.frameworks})
        else:
            entries[name] = Path(entry) if hook in ("dlb_workloads", "dlb_studies") else entry
    return entries


def _is_entry(hook: str, entry: Any) -> bool:
    """Whether it is what the hook says."""
    _, module, name = ENTRIES[hook]
    if module:
        fits = isinstance(entry, getattr(sys.modules.get(module), name, ())) and not _wrong_field(
            entry
        )
        return fits and (hook != "dlb_commands" or _fits(entry.get_short_help_str(), str))
    if hook == "dlb_executors":
        return callable(entry)
    return isinstance(entry, (str, os.PathLike)) and "\0" not in str(entry)


def _check_name(what: str, name: Any) -> None:
    """Raises PluginError unless something may be called so."""
    if type(name) is not str or not NAME.fullmatch(name):
        allowed = "a-z, 0-9, and '-' or '_' between them, at most 64 letters"
        raise PluginError(f"{what} cannot be called {repr(name)[:80]}: use {allowed}")


_kinds: Any = lru_cache(maxsize=None)(get_type_hints)


def _wrong_field(description: Any) -> str:
    """The first field of a dataclass that is not of its type; empty if there is none, or it is none."""
    kinds = _kinds(type(description)) if hasattr(description, "__dataclass_fields__") else {}
    wrong = (name for name, kind in kinds.items() if not _fits(getattr(description, name), kind))
    return next(wrong, "")


def _fits(value: Any, kind: Any) -> bool:
    """Whether a value is of a type that descriptions have."""
    origin: Any = getattr(kind, "__origin__", None)
    parts: Tuple[Any, ...] = getattr(kind, "__args__", None) or ()
    if origin in (tuple, Tuple):
        if not isinstance(value, (tuple, list)):
            return False
        if parts[-1] is Ellipsis:
            return all(_fits(each, parts[0]) for each in value)
        return len(value) == len(parts) and all(map(_fits, value, parts))
    if getattr(origin, "__name__", "") == "Mapping":
        items = value.items() if isinstance(value, Mapping) else [(None, None)]
        return all(_fits(name, parts[0]) and _fits(each, parts[1]) for name, each in items)
    if not isinstance(kind, type):  # a choice
        return value in parts
    if kind is str:  # without halves of characters, which nothing can write
        return isinstance(value, str) and value.encode("utf-8", "replace").decode() == value
    if kind is int:
        return isinstance(value, int) and abs(value) < 1 << 63
    return isinstance(value, kind) and not _wrong_field(value)


def check_description(description: Any) -> None:
    """Raises PluginError unless it is a description made for this contract."""
    if not isinstance(description, AdapterDescription):
        raise PluginError(
            f"dlb_describe returned a {type(description).__name__}, not an AdapterDescription"
        )
    _check_name("an adapter", description.name)
    wrong = _wrong_field(description)
    if wrong:
        raise PluginError(f"its description has a wrong '{wrong}'; see AdapterDescription")
    major, minor = description.contract
    if major != CONTRACT[0] or minor > CONTRACT[1]:
        raise PluginError(
            f"it is made for contract {_shown(description.contract)} and this dlb has "
            f"{_shown(CONTRACT)}; install versions that go together"
        )


def _shown(contract: Tuple[int, int]) -> str:
    return ".".join(map(str, contract))
