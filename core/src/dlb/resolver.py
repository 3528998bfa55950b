"""From settings to a request: changes, data and defaults are filled in, and what cannot be run is refused."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Union

from dlb.adapters import AdapterEnvironment, check_strategy
from dlb.errors import SettingError
from dlb.provenance import available_cores, free_cores
from dlb.request import TRAJECTORY_STEPS, Request, check
from dlb.samples import Splits, replace_missing_data, with_data
from dlb.settings import SETTINGS, Settings
from dlb.variants import choose
from dlb_graph.workload import Workload
from dlb_graph.workload.changes import with_changes

if TYPE_CHECKING:
    from dlb_graph.files.read import ImportedModel

__all__ = ["Resolver"]

#: Steps that ``verify`` trains before it exports: enough to change every weight.
VERIFY_STEPS = 5
#: Settings of which a rule makes something else.
_RESOLVED = "batch_size", "steps", "epochs", "warmup", "threads", "changes", "data", "variants"
Environments = Union[Sequence[AdapterEnvironment], Callable[[], Sequence[AdapterEnvironment]]]


class Resolver:
    """Makes requests of one workload; what several requests have in common is found out once.

    Args:
        workload, imported: as :func:`dlb.catalogue.load_with_file` returns them.
        out: folder for records.
        trial_steps: those that a measurement asks for, which must be more than the warm-up; None for none.
        command: ``verify`` trains a few steps alone, and takes samples that are made up for data that are not
            here.
        report: then receives a line.
    """

    def __init__(
        self,
        workload: Workload,
        imported: ImportedModel | None = None,
        *,
        out: Path | None = None,
        trial_steps: int | None = None,
        command: Literal["run", "verify"] = "run",
        report: Callable[[str], None] = warnings.warn,
    ) -> None:
        self.workload, self.imported, self.out, self.command = workload, imported, out, command
        self._trial_steps = trial_steps
        replaces = report if command == "verify" else None
        self._samples = cache(partial(_samples, workload, imported is not None, replaces))
        self._check_strategy, self._choose = cache(check_strategy), cache(choose)

    def resolve(
        self,
        settings: Settings,
        environments: Environments,
        among: Sequence[AdapterEnvironment] = (),
    ) -> Request:
        """A request that can be carried out.

        Args:
            environments: of the adapters; or what finds them, called when all else is known to be right.
            among: those of all requests, if this is one of many; ``variants`` may name each of them.

        Raises:
            SettingError: settings do not fit the workload or each other.
            RequestError: a change, the data, a strategy or a variant is refused, or an adapter is not found.
        """
        if settings.steps is not None and settings.epochs is not None:
            raise SettingError(
                lambda name: f"{name('steps')} and {name('epochs')} exclude each other"
            )
        splits = self._samples(settings.changes, settings.data)
        workload = splits.workload
        batch, steps = settings.batch_size or workload.batch_size, settings.steps
        if steps is None:
            steps = (settings.epochs or workload.epochs) * max(1, splits.count // batch)
        request = Request(
            workload=workload,
            splits=splits,
            environments=(),
            out=self.out,
            batch_size=batch,
            steps=steps,
            warmup=min(10, steps // 10) if settings.warmup is None else settings.warmup,
            threads=settings.threads or max(1, available_cores() // settings.workers),
            imported=self.imported,
            command=self.command,
            **{name: getattr(settings, name) for name in SETTINGS if name not in _RESOLVED},
        )
        if self.command == "verify":
            trajectory = settings.steps or TRAJECTORY_STEPS
            request = replace(request, steps=VERIFY_STEPS, warmup=0, trajectory_steps=trajectory)
        check(request)
        self._check_trial_steps(request)
        here = tuple(environments() if callable(environments) else environments)
        if request.strategy:
            self._check_strategy(request.strategy, here)
        chosen = self._choose(settings.variants, tuple(among or here))
        adapters = {environment.adapter for environment in here}
        choices = {adapter: chosen[adapter] for adapter in chosen if adapter in adapters}
        request = replace(request, environments=here, choices=choices)
        if among:  # of many requests not all data are held at once
            splits.close()
        return _sharing_cores(request, settings.threads) if self.command == "verify" else request

    def _check_trial_steps(self, request: Request) -> None:
        count = self._trial_steps
        if count is not None and count <= request.warmup:
            raise SettingError(
                lambda name: (
                    f"{name('trial_steps')} is {count}; it must be more than the "
                    f"{request.warmup} steps of {name('warmup')}"
                )
            )


def _samples(
    workload: Workload,
    keep_model: bool,
    report: Callable[[str], None] | None,
    changes: tuple[str, ...],
    data: str | None,
) -> Splits:
    """The changed workload with the chosen data."""
    changed = with_changes(workload, changes, keep_model=keep_model)
    changed = changed if data is None else with_data(changed, data)
    return Splits(changed if report is None else replace_missing_data(changed, report))


def _sharing_cores(request: Request, threads: int | None) -> Request:
    """The request on adapters that run at the same time, since nothing is timed.

    Much of a proof uses one thread alone (imports, exports), so that adapters run beside other work too, but
    with no more threads than cores are free. Adapters never share a GPU.
    """
    cores, workers = available_cores(), request.workers
    at_once = max(1, min(len(request.environments), cores // (workers * (threads or 1))))
    at_once = at_once if request.device == "cpu" else 1
    return replace(
        request, at_once=at_once, threads=threads or max(1, free_cores() // (workers * at_once))
    )
