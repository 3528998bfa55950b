"""The base classes of adapters and strategies. Their methods answer the hooks."""

import abc
import importlib
from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable, Mapping, Optional, Sequence, Tuple

from dlb_worker import hookimpl
from dlb_worker.contract import (
    LOSSES,
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
from dlb_worker.errors import UnsupportedError
from dlb_worker.layers import Layer, sentences

if TYPE_CHECKING:
    from dlb_worker.native import BuiltModel, StrategySession, UserModel

__all__ = ["Adapter", "Strategy", "lazy_method"]


def lazy_method(module: str, name: str) -> Callable[..., Any]:
    """A method that calls a function or a class of a module, which it imports only then.

    With it an adapter or a strategy names what answers, and needs no framework to be loaded.
    """

    def method(self: Any, *arguments: Any, **options: Any) -> Any:
        return getattr(importlib.import_module(module), name)(*arguments, **options)

    return method


class Strategy(abc.ABC):
    """A distributed strategy. An adapter lists its own; another package names one by an entry point.

    Attributes:
        name, title, frameworks, synchronous, parallelism, parameters, backends, devices, cases: see
            :class:`dlb_worker.contract.StrategyDescription`.
        averages_every, asynchronous, pulls_first: see there.
    """

    name: str
    title: str
    frameworks: Tuple[str, ...]
    synchronous: bool
    parallelism = "data"
    parameters = "replicated"
    backends: Tuple[str, ...] = ()
    devices: Tuple[str, ...] = ("cpu",)
    cases: Tuple[str, ...] = ("equal_shares",)
    averages_every = 0
    asynchronous = False
    pulls_first = False

    @abc.abstractmethod
    def plan(self, request: PlanRequest) -> LaunchPlan:
        """Lay out the processes; imports no framework."""

    @abc.abstractmethod
    def join(self, rank: int, workers: int) -> "StrategySession":
        """Join, in a worker whose framework is up and before anything is built."""

    def serve(self, role: str, rank: int) -> None:
        """Be a scheduler or a server, until it is over or the process is ended."""
        raise UnsupportedError(f"strategy '{self.name}' has no role '{role}'")

    @hookimpl
    def dlb_strategies(self) -> Sequence[StrategyDescription]:
        return (
            StrategyDescription(
                name=self.name,
                title=self.title,
                frameworks=self.frameworks,
                synchronous=self.synchronous,
                parallelism=self.parallelism,
                parameters=self.parameters,
                backends=self.backends,
                devices=self.devices,
                cases=self.cases,
                averages_every=self.averages_every,
                asynchronous=self.asynchronous,
                pulls_first=self.pulls_first,
            ),
        )

    @hookimpl
    def dlb_plan(self, framework: str, request: PlanRequest) -> Optional[LaunchPlan]:
        return self.plan(request) if self._answers(framework, request.strategy) else None

    @hookimpl
    def dlb_join(
        self, framework: str, strategy: str, rank: int, workers: int
    ) -> "Optional[StrategySession]":
        return self.join(rank, workers) if self._answers(framework, strategy) else None

    @hookimpl
    def dlb_serve(self, framework: str, strategy: str, role: str, rank: int) -> Optional[bool]:
        if not self._answers(framework, strategy):
            return None
        self.serve(role, rank)
        return True

    def _answers(self, framework: str, strategy: str) -> bool:
        return framework in self.frameworks and strategy == self.name


class Adapter(abc.ABC):
    """A framework's adapter. Import the framework inside the methods, never at module level.

    What is not told here is a field of :class:`dlb_worker.contract.AdapterDescription`.

    Attributes:
        layers: the registry, by layer kind.
        strategies: the distributed strategies that the adapter itself brings.
    """

    name: str
    title: str
    distribution: str
    framework: Tuple[str, ...]
    contract: Tuple[int, int]
    layers: Mapping[str, Layer]
    optimizers: Mapping[str, str]
    features: Tuple[str, ...] = ()
    dtypes: Tuple[str, ...] = ("float32", "float64")
    devices: Tuple[str, ...] = ("cpu",)
    exporter = ""
    deviations: Tuple[str, ...] = ()
    variants: Mapping[str, Tuple[str, ...]] = {}
    losses: Mapping[str, str] = LOSSES
    strategies: Tuple[Strategy, ...] = ()

    def describe(self) -> AdapterDescription:
        """What the adapter is and can do."""
        return AdapterDescription(
            name=self.name,
            title=self.title,
            distribution=self.distribution,
            framework=self.framework,
            contract=self.contract,
            layers=sentences(self.layers),
            optimizers=self.optimizers,
            features=self.features,
            dtypes=self.dtypes,
            devices=self.devices,
            exporter=self.exporter,
            deviations=self.deviations,
            variants=self.variants,
            losses=self.losses,
        )

    @abc.abstractmethod
    def start(self, request: StartRequest) -> FrameworkFacts:
        """See :func:`dlb_worker.hookspecs.dlb_start`."""

    @abc.abstractmethod
    def build_model(self, request: BuildRequest, **variant: str) -> "BuiltModel":
        """See :func:`dlb_worker.hookspecs.dlb_build_model`.

        Args:
            variant: the value of every variant that the adapter offers.
        """

    @abc.abstractmethod
    def load_data(self, request: DataRequest) -> Batches:
        """See :func:`dlb_worker.hookspecs.dlb_load_data`."""

    def clock(self, device: str) -> Clock:
        """See :func:`dlb_worker.hookspecs.dlb_clock`; by default operators return when done."""
        return Clock()

    def peak_work(self, request: PeakRequest) -> Callable[[], Any]:
        """See :func:`dlb_worker.hookspecs.dlb_peak_work`; by default NumPy's, on the processor."""
        from dlb_worker.peak import numpy_work

        return numpy_work(request)

    def export_onnx(self, model: Any, path: Path) -> str:
        """See :func:`dlb_worker.hookspecs.dlb_export_onnx`."""
        raise UnsupportedError(f"adapter '{self.name}' exports no ONNX")

    def load_user_model(self, request: UserModelRequest) -> "UserModel":
        """See :func:`dlb_worker.hookspecs.dlb_load_user_model`."""
        raise UnsupportedError(f"adapter '{self.name}' loads no user models")

    @hookimpl
    def dlb_describe(self) -> AdapterDescription:
        return self.describe()

    @hookimpl
    def dlb_start(self, framework: str, request: StartRequest) -> Optional[FrameworkFacts]:
        return self.start(request) if framework == self.name else None

    @hookimpl
    def dlb_build_model(self, framework: str, request: BuildRequest) -> "Optional[BuiltModel]":
        if framework != self.name:
            return None
        self._check(request)
        return self.build_model(request, **self.describe().choices(request.variant))

    def _check(self, request: BuildRequest) -> None:
        """Refuse what is not described, which a worker may be asked for by other callers than dlb.

        Raises:
            UnsupportedError: a layer, the optimizer, the loss, the dtype or the device.
        """
        workload = request.workload
        for node in workload.model.nodes:
            if node.kind not in self.layers:
                raise UnsupportedError(
                    f"{self.title} cannot build layer '{node.name}': adapter '{self.name}' has no "
                    f"{node.kind}"
                )
        for what, value, known in (
            ("optimizer", workload.optimizer.kind, self.optimizers),
            ("loss", workload.loss.kind, self.losses),
            ("dtype", request.dtype, self.dtypes),
            ("device", request.device, self.devices),
        ):
            if value not in known:
                raise UnsupportedError(
                    f"adapter '{self.name}' has no {what} {value}; it has {', '.join(known)}"
                )

    @hookimpl
    def dlb_load_data(self, framework: str, request: DataRequest) -> Optional[Batches]:
        return self.load_data(request) if framework == self.name else None

    @hookimpl
    def dlb_clock(self, framework: str, device: str) -> Optional[Clock]:
        return self.clock(device) if framework == self.name else None

    @hookimpl
    def dlb_peak_work(self, framework: str, request: PeakRequest) -> Optional[Callable[[], Any]]:
        return self.peak_work(request) if framework == self.name else None

    @hookimpl
    def dlb_export_onnx(self, framework: str, model: Any, path: Path) -> Optional[str]:
        return self.export_onnx(model, path) if framework == self.name else None

    @hookimpl
    def dlb_load_user_model(
        self, framework: str, request: UserModelRequest
    ) -> "Optional[UserModel]":
        return self.load_user_model(request) if framework == self.name else None
