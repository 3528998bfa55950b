"""The settings of a run, each declared once.

Options of commands, arguments of Python, axes of sweeps, jobs, records and keys of proofs are made of them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

from dlb.errors import SettingError
from dlb.proof.certificate import CHECK_GROUPS, CheckGroup

__all__ = ["AXES", "SETTINGS", "Setting", "Settings", "in_command", "settings_of"]

_LARGEST = 2**31 - 1


@dataclass(frozen=True)
class Setting:
    """What is true of a setting wherever it is asked for.

    Attributes:
        default: None where the workload or a rule of :class:`dlb.resolver.Resolver` has it.
        kind: type of its value, or the words that it may be.
        commands: what has it as an option, and as an argument in Python.
        help: what it is.
        least, most: bounds of a number, or of how many values.
        many: whether it is several values of that kind.
        flag, metavar: its option and what stands for the value there, if not made of name and kind.
        varies: whether it may vary in a sweep.
        recorded: whether the options of a record have it.
        proven: whether a proof depends on it, so that it is part of a kept proof's key.
        name: its name everywhere.
    """

    default: Any
    kind: Any = str
    commands: Sequence[str] = ()
    help: str = ""
    least: float = 0
    most: float = _LARGEST
    many: bool = False
    flag: str = ""
    metavar: str | None = None
    varies: bool = False
    recorded: bool = False
    proven: bool = False
    name: str = ""

    @property
    def plain(self) -> bool:
        """Whether it is a single value, which a request has as it is."""
        return not self.many and self.kind is not dict

    @property
    def axis(self) -> str:
        """Its name in a sweep: that of one value."""
        return self.flag.lstrip("-") or self.name

    def check(self, value: Any, called: str = "") -> None:
        """Check a value, or each of several.

        Args:
            called: its name, if the caller has written another.

        Raises:
            SettingError: the value is of another kind, or out of range.
        """
        if value is None and self.default is None:
            return
        if self.many and (isinstance(value, str) or not isinstance(value, Collection)):
            such = f", such as {[value]}" if isinstance(value, str) else ""
            raise SettingError(
                lambda name: f"{name(self.name)} is {value}; it must be a list{such}"
            )
        if self.many and len(value) < self.least:
            raise SettingError(lambda name: f"{name(self.name)} is empty; leave it out")
        for one in value if self.many else (value,):
            if problem := self._problem(one):
                raise SettingError(
                    lambda name: f"{called or name(self.name)} is {one}; it must be {problem}"  # noqa: B023
                )

    def _problem(self, value: Any) -> str:
        """What a value must be; empty if it is."""
        if isinstance(self.kind, tuple):
            return "" if value in self.kind else f"one of {', '.join(self.kind)}"
        if self.kind not in (int, float):
            return "" if isinstance(value, self.kind) else f"of type {self.kind.__name__}"
        accepted = int if self.kind is int else (int, float)
        if not isinstance(value, accepted) or isinstance(value, bool):
            word = "a whole number" if self.kind is int else "a number"
            return f"{word}, {self.least:g} or more"
        if not self.least <= value:
            return f"{self.least:g} or more"
        return "" if value <= self.most else f"{self.most:,.12g} or less"


def _setting(default: Any, kind: Any, commands: str, **facts: Any) -> Any:
    setting = Setting(default, kind, commands.split(), **facts)
    if isinstance(default, dict):
        return field(default_factory=dict, metadata={"setting": setting})
    return field(default=default, metadata={"setting": setting})


#: What is computed depends on it.
_COMPUTES: dict[str, Any] = {"varies": True, "recorded": True, "proven": True}


# fmt: off
@dataclass(frozen=True)
class Settings:
    """What a workload is run with.

    Raises:
        SettingError: a value is of another kind, or out of range.
    """

    changes: tuple[str, ...] = _setting(
        (), str, "run verify tune sweep scale", many=True, flag="--set", metavar="FIELD=VALUE",
        help="Change a field of the workload, as optimizer.learning_rate=0.01; repeat for several.")
    batch_size: int | None = _setting(
        None, int, "run verify tune sweep", least=1, **_COMPUTES,
        help="Samples a step, all workers together. Default: the workload's.")
    dtype: str = _setting(
        "float32", ("float32", "float64"), "run verify tune sweep scale", **_COMPUTES)
    strategy: str = _setting(
        "", str, "run verify sweep", metavar="NAME", **_COMPUTES,
        help="Distributed strategy; see: dlb list strategies.")
    workers: int = _setting(
        1, int, "run verify sweep", least=1, **_COMPUTES, help="Worker processes of the strategy.")
    hosts: tuple[str, ...] = _setting(
        (), str, "run verify", many=True, flag="--host", metavar="ADDRESS[=COMMAND]", recorded=True,
        proven=True, help="Host of the next worker: its IPv4 address, and what starts a worker; repeat for "
        "several, which workers take in turn. Default: this machine.")
    variants: tuple[str, ...] = _setting(
        (), str, "run verify sweep scale", many=True, flag="--variant", varies=True, proven=True,
        metavar="[ADAPTER:]NAME=VALUE",
        help="Option of how models are built; repeat for several. See: dlb list adapters.")
    data: str | None = _setting(
        None, str, "run verify tune sweep scale", metavar="NAME[:PATH]", varies=True,
        help="Data set to use instead of the workload's; PATH is for your own. See: dlb data list.")
    variables: Mapping[str, str] = _setting(
        {}, dict, "run verify sweep scale", flag="--variable", metavar="NAME=VALUE", recorded=True, proven=True,
        help="Environment variable of the workers' processes, such as TF_ENABLE_ONEDNN_OPTS=0; repeat for "
        "several.")
    seed: int = _setting(
        0, int, "run verify tune sweep scale", most=2**32 - 1, **_COMPUTES,
        help="Seed of the weights and of the order of samples.")
    device: str = _setting(
        "cpu", ("cpu", "cuda"), "run verify tune sweep scale", **_COMPUTES)
    threads: int | None = _setting(
        None, int, "run verify tune sweep scale", least=1, **_COMPUTES,
        help="Threads of each worker. Default: all cores, divided among workers. Without timing, adapters "
        "run at the same time and divide the cores that other processes leave.")
    call_seconds: float = _setting(
        300.0, float, "run verify tune sweep scale", least=1, most=1e6, flag="--timeout", metavar="SECONDS",
        help="End a worker that makes no progress for so long.")
    prove_again: bool = _setting(
        False, bool, "run", help="Make the proof again, even if one was kept that holds.")
    groups: frozenset[CheckGroup] = _setting(
        frozenset(CHECK_GROUPS), (*CHECK_GROUPS, "distributed"), "verify", many=True, least=1, flag="--group",
        proven=True, help="Run only the checks of this group; repeat for several. Default: all.")
    steps: int | None = _setting(
        None, int, "run verify tune sweep scale", least=1, varies=True, recorded=True, help="Training steps.")
    epochs: int | None = _setting(
        None, int, "run sweep scale", least=1, varies=True,
        help="Passes over the data, instead of steps. Default: the workload's.")
    warmup: int | None = _setting(
        None, int, "run sweep scale", recorded=True,
        help="First steps left out of the summary. Default: 10, or a tenth of few steps.")
    input: str = _setting(
        "pipeline", ("pipeline", "memory"), "run sweep scale", **_COMPUTES,
        help="The framework's own input pipeline, or data already in memory.")
    test_steps: int | None = _setting(
        None, int, "run sweep", least=1, flag="--test-every",
        help="Test the model every so many steps, beside the end.")
    test_seconds: float | None = _setting(
        None, float, "run sweep", least=0.001, flag="--test-every",
        help="Test the model every so many seconds of training, beside the end.")

    def __post_init__(self) -> None:
        for setting in SETTINGS.values():
            value = getattr(self, setting.name)
            setting.check(value)
            if setting.many:
                object.__setattr__(self, setting.name, type(setting.default)(value))
# fmt: on


#: Every setting by its name.
SETTINGS: Mapping[str, Setting] = {
    declared.name: replace(declared.metadata["setting"], name=declared.name)
    for declared in fields(Settings)
}
#: Those that may vary in a sweep, by their name there.
AXES: Mapping[str, Setting] = {
    setting.axis: setting for setting in SETTINGS.values() if setting.varies
}


def settings_of(command: str) -> list[Setting]:
    """The settings that a command has."""
    return [setting for setting in SETTINGS.values() if command in setting.commands]


def in_command(name: str) -> str:
    """A setting as the command line has it."""
    flag = SETTINGS[name].flag if name in SETTINGS else ""
    return flag or f"--{name.replace('_', '-')}"
