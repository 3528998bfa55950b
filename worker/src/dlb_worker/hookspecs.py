"""The hooks. This page is the adapter author's manual: one function each, in order of use.

Most adapters subclass :class:`dlb_worker.Adapter`, whose methods answer these hooks. Any hook can also
be answered by a function in another package: a strategy for a framework that it did not write, a data
set, an observer, a command. An entry point in the group ``dlb`` names the adapter object or the module::

    [project.entry-points.dlb]
    torch = "dlb_torch.plugin:adapter"

Loading it must not import the framework. A hook that takes ``framework`` answers for its own framework
and returns None for any other; the first answer that is not None is used. Hooks run in a worker process,
except where it says that they run in the command's process.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable, Iterator, Mapping, Optional, Sequence, Union

import pluggy

from dlb_worker.contract import (
    AdapterDescription,
    Batches,
    BuildRequest,
    Clock,
    DataRequest,
    FrameworkFacts,
    LaunchPlan,
    PeakRequest,
    PlanRequest,
    StartRequest,
    StrategyDescription,
    UserModelRequest,
)

if TYPE_CHECKING:
    from dlb_worker.native import BuiltModel, StrategySession, UserModel

__all__ = ["hookspec"]

hookspec = pluggy.HookspecMarker("dlb")


# --- description ---------------------------------------------------------------------------


@hookspec
def dlb_describe() -> AdapterDescription:  # type: ignore[empty-body]
    """Describe the adapter: name, layers, optimizers, features, devices, deviations.

    Runs in the command's process too, so it must be quick and import no framework.
    """


@hookspec
def dlb_strategies() -> Sequence[StrategyDescription]:  # type: ignore[empty-body]
    """The distributed strategies that this plugin brings, for any frameworks.

    Runs in the command's process too.
    """


# --- a worker's life -----------------------------------------------------------------------


@hookspec(firstresult=True)
def dlb_start(framework: str, request: StartRequest) -> Optional[FrameworkFacts]:
    """Import the framework, set its threads and device, and report what it really uses.

    Called once, before anything else of the framework is touched. Environment variables that the
    framework reads at import can still be set here. A strategy is joined after it.

    Raises:
        UnsupportedError: the device does not exist.
    """


@hookspec(firstresult=True)
def dlb_build_model(framework: str, request: BuildRequest) -> "Optional[BuiltModel]":
    """Build the workload's model natively, with the framework's own layers and fast path.

    Several models may exist in one process, of different dtypes.

    Raises:
        UnsupportedError: something that the framework cannot do; the message names the layer.
    """


@hookspec(firstresult=True)
def dlb_load_data(framework: str, request: DataRequest) -> Optional[Batches]:
    """An iterable of native (inputs, labels), one for each row of ``request.order``, in order."""


@hookspec(firstresult=True)
def dlb_clock(framework: str, device: str) -> Optional[Clock]:
    """A clock for steps on the device, which reads only after the device has finished."""


@hookspec(firstresult=True)
def dlb_peak_work(framework: str, request: PeakRequest) -> Optional[Callable[[], Any]]:
    """Work that shows what the device can do at most, as the framework does it. Optional.

    The worker times it with the adapter's clock, several times. Arrays are made here, outside the time,
    and may hold any finite numbers.

    Raises:
        UnsupportedError: there is no such work on the device or in the dtype.

    Returns:
        what does the work once, and returns what the clock waits for.
    """


@hookspec(firstresult=True)
def dlb_export_onnx(
    framework: str, model: "Union[BuiltModel, UserModel]", path: Path
) -> Optional[str]:
    """Write the model in evaluation mode with the framework's real exporter.

    One file, weights inside. One input [batch, ...] in canonical layout (int64 where the model reads
    integers), one output, the logits. The batch axis may be fixed, at ``BuildRequest.batch_size`` or a
    number that divides it.

    A user's model is written as it is: inputs and outputs as it reads and gives them, the batch axis
    that of its ``example`` or free. Only adapters with the feature ``export_user_models`` are asked.

    Raises:
        UnsupportedError: the exporter cannot write the model.

    Returns:
        the exporter and its version.
    """


@hookspec(firstresult=True)
def dlb_load_user_model(framework: str, request: UserModelRequest) -> "Optional[UserModel]":
    """Load a model that a user wrote in the framework. Optional.

    Called after :func:`dlb_start`. The user's code runs in it, and in what is done with the model.
    Nothing is compiled.

    Raises:
        UnsupportedError: the factory returned no model of the framework, the model cannot be had in
            the dtype that is asked for, or it has parameters without a shape and there is no input to show it.
    """


# --- distributed strategies ----------------------------------------------------------------


@hookspec(firstresult=True)
def dlb_plan(framework: str, request: PlanRequest) -> Optional[LaunchPlan]:
    """Lay out the processes of a strategy. Imports no framework.

    Called once, in a process of the adapter's environment that is none of those laid out. None for a
    strategy of somebody else.
    """


@hookspec(firstresult=True)
def dlb_join(framework: str, strategy: str, rank: int, workers: int) -> "Optional[StrategySession]":
    """Join the strategy, in a worker, after :func:`dlb_start` and before anything is built.

    May block until every peer has come: the supervisor ends a run whose peers do not come. None for a
    strategy of somebody else.
    """


@hookspec(firstresult=True)
def dlb_serve(framework: str, strategy: str, role: str, rank: int) -> Optional[bool]:
    """Be a scheduler or a server. Returns True when it is over; may also simply be ended."""


# --- what cuts across ----------------------------------------------------------------------


@hookspec
def dlb_workloads() -> Mapping[str, Path]:  # type: ignore[empty-body]
    """Workload files by name. Runs in the command's process."""


@hookspec
def dlb_studies() -> Mapping[str, Path]:  # type: ignore[empty-body]
    """Study files by name, for ``dlb study``. Runs in the command's process."""


@hookspec
def dlb_executors() -> Mapping[str, Callable[[str], Any]]:  # type: ignore[empty-body]
    """Where cells of a sweep can run (``dlb sweep --executor NAME://ADDRESS``).

    By name, a function that makes a :class:`concurrent.futures.Executor` from the address, which may be
    empty. What is submitted is a function of dlb-core and bytes; where it runs, dlb-core and the adapters
    must be installed. Runs in the command's process.
    """


@hookspec
def dlb_datasets() -> Sequence[Any]:  # type: ignore[empty-body]
    """Data sets (:class:`dlb.data.description.DataSetDescription`) that ``dlb data`` can find and fetch.

    Runs in the command's process.
    """


@hookspec
def dlb_own_data() -> Mapping[str, str]:  # type: ignore[empty-body]
    """Kinds of data that are the user's own: by name, a :class:`dlb.data.own.OwnData` as ``MODULE:NAME``.

    It is imported when it is used. A workload has the name, and a path. Runs in the command's process.
    """


@hookspec
def dlb_exports() -> Mapping[str, str]:  # type: ignore[empty-body]
    """Further forms of ``dlb results export --format NAME``: by name, a function as ``MODULE:NAME``.

    It is imported when it is used, and called with the results folder (a path), the rows of its index that
    were chosen, and the text of ``--output`` (None without it). It returns the bytes of a file, which are
    written there or to standard output; or, if it wrote elsewhere, a line that says where.

    Runs in the command's process.
    """


@hookspec
def dlb_findings() -> Mapping[str, str]:  # type: ignore[empty-body]
    """Modules of what checks find, by distribution, imported when a certificate is read or shown.

    A module has ``CAUSES``, modules of :class:`dlb.proof.findings.Cause`, and ``CHECKS``, tables of checks;
    sentences are registered as it is imported. The code of a cause is ``DISTRIBUTION.NAME``, which says what
    to install where a certificate is shown without the package. Runs in the command's process.
    """


@hookspec
def dlb_observe_run(framework: str, context: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:  # type: ignore[empty-body]
    """Wrap the timed training of one worker.

    A generator that yields once: what stands before the yield runs before the first step, the rest
    after the last. It yields a mapping that it may fill until it ends; the record has it under the
    plugin's name. Runs inside the worker.

    Args:
        context: ``workload``, ``dtype``, ``device``, ``batch_size``, ``steps``, ``rank``.
    """


@hookspec
def dlb_observe_step(framework: str, step: int, seconds: float, loss: float) -> None:
    """After each timed step, outside its time. Costs nothing when no plugin has it."""


@hookspec
def dlb_observe_processes(  # type: ignore[empty-body]
    framework: str, processes: Callable[[], Sequence[int]], device: str
) -> Iterator[Mapping[str, Any]]:
    """Wrap the timed training of all workers, from outside.

    A generator as that of :func:`dlb_observe_run`. Numbers by step or by time belong in a mapping
    ``series`` of lists. Runs in the command's process.

    Args:
        processes: the numbers (PIDs) of the workers and servers that run now.
    """


@hookspec
def dlb_commands() -> Sequence[Any]:  # type: ignore[empty-body]
    """Commands (:class:`click.Command`) added to ``dlb``.

    Runs in the command's process at every start, so it must be quick.
    """
