"""The hooks. This page is the adapter author's manual: one function each, in order of use.

An adapter is a module with functions of these names marked ``@dlb.hookimpl``, named by an entry
point in the group ``dlb``::

    [project.entry-points.dlb]
    torch = "dlb_torch.plugin"

Loading that module must not import the framework: import it inside the functions. Hooks that
take ``framework`` are answered only for the adapter's own name and return None for any other;
the first answer that is not None is used. All run in a worker process, except where it is said
that they run in the command's own. Any hook can also be answered by a package that is no adapter:
a strategy for a framework it did not write, a data set, an observer, a command.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pluggy

if TYPE_CHECKING:
    import click

    from dlb.contract import (
        AdapterDescription,
        AdoptedModel,
        AdoptRequest,
        Batches,
        BuildRequest,
        Clock,
        FrameworkFacts,
        LaunchPlan,
        LoadRequest,
        PlanRequest,
        StartRequest,
        StrategyDescription,
        StrategySession,
        TrainableModel,
    )
    from dlb.data.catalogue import DataSetDescription

__all__ = ["hookimpl", "hookspec"]

hookspec = pluggy.HookspecMarker("dlb")
hookimpl = pluggy.HookimplMarker("dlb")


# --- description ---------------------------------------------------------------------------


@hookspec
def dlb_describe() -> AdapterDescription:  # type: ignore[empty-body]
    """Describe the adapter: name, layers, optimizers, devices, deviations.

    Runs in the command's process too, so it must be quick and import no framework.
    """


@hookspec
def dlb_strategies() -> Sequence[StrategyDescription]:  # type: ignore[empty-body]
    """The distributed strategies that this plugin brings, for whichever frameworks.

    Runs in the command's process too.
    """


# --- a worker's life -----------------------------------------------------------------------


@hookspec(firstresult=True)
def dlb_start(framework: str, request: StartRequest) -> FrameworkFacts | None:
    """Import the framework, set its threads and device, and report what it really uses.

    Called once, before anything else of the framework is touched; environment variables that the
    framework reads at import can still be set here. A strategy is joined after it.

    Raises:
        dlb.errors.UnsupportedError: the device does not exist.
    """


@hookspec(firstresult=True)
def dlb_build_model(framework: str, request: BuildRequest) -> TrainableModel | None:
    """Build the workload's model natively, with the framework's own layers and fast path.

    Several models may exist in one process, of different dtypes.

    Raises:
        dlb.errors.UnsupportedError: something the framework cannot do, the layer named.
    """


@hookspec(firstresult=True)
def dlb_load_data(framework: str, request: LoadRequest) -> Batches | None:
    """An iterable of native (inputs, labels), one for each row of ``request.order``, in order."""


@hookspec(firstresult=True)
def dlb_clock(framework: str, device: str) -> Clock | None:
    """A clock for steps on the device, which reads only after the device has finished."""


@hookspec(firstresult=True)
def dlb_export_onnx(framework: str, model: TrainableModel, path: Path) -> str | None:
    """Write the model in evaluation mode with the framework's real exporter.

    One file, weights inside. One input [batch, ...] in canonical layout, one output, the logits.
    The batch axis may be fixed at ``BuildRequest.batch_size``.

    Returns:
        the exporter and its version.
    """


@hookspec(firstresult=True)
def dlb_adopt_model(framework: str, request: AdoptRequest) -> AdoptedModel | None:
    """Take in a model that somebody wrote in the framework itself. Since contract 1.1; optional.

    Called after :func:`dlb_start`; the model's own code runs in it, and in what is done with the
    model. Nothing is compiled.

    Raises:
        dlb.errors.UnsupportedError: what was made is no model of the framework, cannot be had in
            float64, or has parameters without a shape, and there is no input to show it.
    """


# --- distributed strategies ----------------------------------------------------------------


@hookspec(firstresult=True)
def dlb_plan(framework: str, request: PlanRequest) -> LaunchPlan | None:
    """Lay out the processes of a strategy. Imports no framework; called once, in a process of
    the adapter's environment that is none of those laid out. None for a strategy not its own."""


@hookspec(firstresult=True)
def dlb_join(framework: str, strategy: str, rank: int, workers: int) -> StrategySession | None:
    """Join the strategy, in a worker, after :func:`dlb_start` and before anything is built.

    May block until every peer has come: the supervisor ends a run whose peers do not. None for a
    strategy not its own.
    """


@hookspec(firstresult=True)
def dlb_serve(framework: str, strategy: str, role: str, rank: int) -> bool | None:
    """Be a scheduler or a server. Returns True when it is over; may also simply be ended."""


# --- what cuts across ----------------------------------------------------------------------


@hookspec
def dlb_workloads() -> Mapping[str, Path]:  # type: ignore[empty-body]
    """Workload files by name. Runs in the command's process."""


@hookspec
def dlb_datasets() -> Sequence[DataSetDescription]:  # type: ignore[empty-body]
    """Data sets that ``dlb data`` can find and fetch. Runs in the command's process."""


@hookspec
def dlb_observe_run(framework: str, context: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:  # type: ignore[empty-body]
    """Wrap the timed training of one worker.

    A generator that yields once: what is before runs before the first step, what is after runs
    after the last. What it yields is a mapping that it may fill until it ends; it is recorded
    under the plugin's name. Runs inside the worker.

    Args:
        context: ``workload``, ``dtype``, ``device``, ``batch_size``, ``steps``, ``rank``.
    """


@hookspec
def dlb_observe_step(framework: str, step: int, seconds: float, loss: float) -> None:
    """After each timed step, outside its time. Costs nothing when no plugin has it."""


@hookspec
def dlb_commands() -> Sequence[click.Command]:  # type: ignore[empty-body]
    """Commands added to ``dlb``. Runs in the command's process at every start: be light."""
