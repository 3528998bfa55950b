"""Finding plugins: entry points of the group ``dlb``, loaded one at a time.

One that fails to load, breaks the contract or misspells a hook is named with its distribution
and version and left out; ``DLB_STRICT_PLUGINS=1`` makes that fatal.
"""

from __future__ import annotations

import contextlib
import inspect
import os
import sys
from collections.abc import Mapping
from functools import lru_cache
from importlib import metadata
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

import pluggy

from dlb import hookspecs
from dlb.errors import PluginError, UnknownNameError

if TYPE_CHECKING:
    from dlb.contract import AdapterDescription, StrategyDescription

__all__ = ["BrokenPlugin", "LoadedPlugin", "Plugins", "load_plugins"]

GROUP = "dlb"
#: Hooks of the command's own process. They are asked as a plugin is loaded, so that one whose
#: answer fails is left out then and never brings a command down.
OF_THE_COMMAND = ("dlb_strategies", "dlb_workloads", "dlb_datasets", "dlb_commands")


# Named tuples, not dataclasses: this module is loaded at every start, and those take milliseconds.


class LoadedPlugin(NamedTuple):
    """A plugin in use: its entry point, distribution and version, and the hooks it answers."""

    name: str
    distribution: str
    version: str
    hooks: tuple[str, ...]


class BrokenPlugin(NamedTuple):
    """A plugin left out, and why, in one line."""

    name: str
    distribution: str
    version: str
    reason: str

    def __str__(self) -> str:
        return f"plugin '{self.name}' of {self.distribution} {self.version} left out: {self.reason}"


class Plugins(NamedTuple):
    """The plugins of this environment.

    Attributes:
        hook: call hooks here, by keyword.
        loaded, broken: what was found.
        adapters: descriptions by adapter name.
    """

    manager: pluggy.PluginManager
    loaded: tuple[LoadedPlugin, ...]
    broken: tuple[BrokenPlugin, ...]
    adapters: Mapping[str, AdapterDescription]

    @property
    def hook(self) -> Any:
        return self.manager.hook

    def adapter(self, name: str) -> AdapterDescription:
        """The adapter of that name.

        Raises:
            UnknownNameError: this environment has none.
        """
        if name not in self.adapters:
            reasons = "; ".join(str(one) for one in self.broken)
            raise UnknownNameError("adapter", name, self.adapters, reasons)
        return self.adapters[name]

    def strategies(self) -> tuple[StrategyDescription, ...]:
        """Every strategy that the plugins here bring."""
        return tuple(one for some in self.hook.dlb_strategies() for one in some)


@lru_cache(maxsize=1)
def load_plugins() -> Plugins:
    """Load every plugin of this environment, once.

    Raises:
        PluginError: one is broken and ``DLB_STRICT_PLUGINS`` is set.
    """
    manager = pluggy.PluginManager("dlb")
    manager.add_hookspecs(hookspecs)
    loaded: list[LoadedPlugin] = []
    broken: list[BrokenPlugin] = []
    adapters: dict[str, AdapterDescription] = {}
    for point in sorted(metadata.entry_points(group=GROUP), key=lambda point: point.name):
        known = point.dist
        name, version = (known.name, known.version) if known else ("an unknown distribution", "")
        try:
            # What a plugin prints must not get into the one document that --json promises.
            with contextlib.redirect_stdout(sys.stderr):
                module = point.load()
                hooks = check_hooks(module)
                manager.register(module, name=point.name)
                for hook in OF_THE_COMMAND:
                    if hook in hooks:
                        check_answer(hook, getattr(module, hook)())
                described = module.dlb_describe() if "dlb_describe" in hooks else None
            if described is not None:
                check_description(described)
                if described.name in adapters:
                    other = adapters[described.name].distribution
                    raise PluginError(
                        f"{other} has an adapter '{described.name}' too; uninstall one of them"
                    )
                adapters[described.name] = described
        # A plugin is someone else's code and may raise anything at import, SystemExit included.
        except (Exception, SystemExit) as error:
            if manager.has_plugin(point.name):
                manager.unregister(name=point.name)
            reason = (
                f"{type(error).__name__}: {error}"
                if not isinstance(error, PluginError)
                else str(error)
            )
            broken.append(BrokenPlugin(point.name, name, version, " ".join(reason.split())))
            continue
        loaded.append(LoadedPlugin(point.name, name, version, hooks))
    if broken and os.environ.get("DLB_STRICT_PLUGINS", "") not in ("", "0"):
        raise PluginError(f"{broken[0]}; DLB_STRICT_PLUGINS is set, so this is fatal")
    return Plugins(manager, tuple(loaded), tuple(broken), adapters)


def check_hooks(module: ModuleType) -> tuple[str, ...]:
    """Names of the hooks that a plugin answers.

    Raises:
        PluginError: a name or an argument that the contract does not know.
    """
    known = {
        name: set(inspect.signature(function).parameters)
        for name, function in vars(hookspecs).items()
        if name.startswith("dlb_")
    }
    found = []
    for name, member in vars(module).items():
        if not name.startswith("dlb_") or not callable(member) or isinstance(member, type):
            continue
        if name not in known:
            import difflib

            from dlb.contract import CONTRACT

            near = difflib.get_close_matches(name, known, n=1)
            proposal = f"; did you mean '{near[0]}'?" if near else ""
            raise PluginError(f"'{name}' is not a hook of contract {_shown(CONTRACT)}{proposal}")
        if getattr(member, "dlb_impl", None) is None:
            raise PluginError(f"hook '{name}' is not marked; put @dlb.hookimpl above it")
        extra = set(inspect.signature(member).parameters) - known[name]
        if extra:
            raise PluginError(
                f"hook '{name}' takes {', '.join(sorted(extra))}, which the contract does not "
                f"pass; it passes {', '.join(sorted(known[name])) or 'nothing'}"
            )
        found.append(name)
    if not found:
        raise PluginError("it answers no hook; mark its functions with @dlb.hookimpl")
    return tuple(sorted(found))


def check_answer(hook: str, answer: Any) -> None:
    """Raises PluginError unless the answer is a mapping or a sequence, as the hook says."""
    kind: type | tuple[type, ...] = Mapping if hook == "dlb_workloads" else (list, tuple)
    if not isinstance(answer, kind):
        wanted = "mapping" if kind is Mapping else "list or tuple"
        raise PluginError(f"{hook} gave a {type(answer).__name__}, not a {wanted}")


def check_description(described: Any) -> None:
    """Raises PluginError unless it is a description made for this contract."""
    from dlb.contract import CONTRACT, AdapterDescription

    if not isinstance(described, AdapterDescription):
        raise PluginError(
            f"dlb_describe gave a {type(described).__name__}, not an AdapterDescription"
        )
    major, minor = described.contract
    if major != CONTRACT[0] or minor > CONTRACT[1]:
        raise PluginError(
            f"it is made for contract {_shown(described.contract)} and this dlb-core has "
            f"{_shown(CONTRACT)}; install versions that go together"
        )


def _shown(contract: tuple[int, int]) -> str:
    return ".".join(map(str, contract))
