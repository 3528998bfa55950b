"""What passes between the core and an adapter: plain data, and two small interfaces.

The hooks themselves are in :mod:`dlb.hookspecs`. An adapter imports from here, from
``dlb.workload`` and ``dlb.errors``, and from nowhere else in the core.
"""

from __future__ import annotations

import abc
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from dlb.errors import UnsupportedError

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from dlb.workload import Workload

    Array = npt.NDArray[np.generic]

__all__ = [
    "CONTRACT",
    "AdapterDescription",
    "AdoptRequest",
    "AdoptedLayer",
    "AdoptedModel",
    "AdoptedParameter",
    "Batches",
    "BuildRequest",
    "Clock",
    "FrameworkFacts",
    "Gradients",
    "LaunchPlan",
    "LayerCall",
    "LoadRequest",
    "PlanRequest",
    "Process",
    "StartRequest",
    "StrategyDescription",
    "StrategySession",
    "Trace",
    "TrainableModel",
]

#: Version of the hook contract: (major, minor). An adapter made for another major does not run.
CONTRACT = (1, 4)

DType = Literal["float32", "float64"]
Device = Literal["cpu", "cuda"]


@dataclass(frozen=True)
class AdapterDescription:
    """What an adapter is and what it can do, told without importing the framework.

    Attributes:
        name: what ``--on`` calls it.
        title: the framework's own name.
        distribution: the adapter's distribution, e.g. ``dlb-torch``.
        framework: the framework's distributions, the first found installed counts.
        contract: the :data:`CONTRACT` it was written for.
        layers: layer type to ``native``, or to how it is composed from native operators. A type
            that is missing is refused before any work.
        optimizers: optimizer types, as layers.
        dtypes, devices: what a model can be built in and on.
        exporter: the framework's exporter, by name.
        deviations: what the framework is known to do differently, a sentence each. They are
            shown on the certificate; they never widen a tolerance.
        variants: named choices of how a model is built (``compile``, ``layout``), each with its
            values, of which the first is the default. Whatever is chosen computes the same.
            Since contract 1.2.
        features: what it can do besides, by name: ``clip_norm``, ``label_smoothing``,
            ``tied_weights``, ``augmentation``, ``masks``, ``user_models``, ``export``.
    """

    name: str
    title: str
    distribution: str
    framework: tuple[str, ...]
    contract: tuple[int, int]
    layers: Mapping[str, str]
    optimizers: Mapping[str, str]
    dtypes: tuple[str, ...] = ("float32", "float64")
    devices: tuple[str, ...] = ("cpu",)
    exporter: str = ""
    deviations: tuple[str, ...] = ()
    variants: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    features: tuple[str, ...] = ()

    def choices(self, variant: Mapping[str, str]) -> dict[str, str]:
        """The value of every choice that is offered, the default where ``variant`` has none.

        Raises:
            UnsupportedError: ``variant`` has a choice or a value that is not offered.
        """
        for name, value in variant.items():
            if name not in self.variants:
                offered = ", ".join(sorted(self.variants)) or "none"
                raise UnsupportedError(
                    f"adapter '{self.name}' offers no variant '{name}'; it offers {offered}"
                )
            if value not in self.variants[name]:
                raise UnsupportedError(
                    f"adapter '{self.name}' offers no variant '{name}={value}'; '{name}' is one "
                    f"of {', '.join(self.variants[name])}"
                )
        return {name: variant.get(name, values[0]) for name, values in self.variants.items()}


@dataclass(frozen=True)
class StartRequest:
    """How the framework is to be brought up, before anything is built.

    Attributes:
        threads: threads a step may use inside one operator and across operators together.
        device: ``cpu`` or ``cuda``; anything but ``cpu`` must exist or be refused.
        seed: for whatever randomness the framework keeps to itself (dropout masks).
    """

    threads: int
    device: Device = "cpu"
    seed: int = 0


@dataclass(frozen=True)
class FrameworkFacts:
    """What the framework says of itself once it is up.

    Attributes:
        version: of the framework.
        threads: the number of threads that it reports to use, read back, not echoed.
        device: the device's own name.
        build: BLAS, oneDNN, CUDA and the like, as far as the framework can tell.
    """

    version: str
    threads: int
    device: str
    build: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class BuildRequest:
    """Build a model, ready to train.

    Attributes:
        workload: what to build, with its loss and optimizer.
        weights: every parameter and state in canonical layout, float32, by ``layer.parameter``;
            each is read from a file when it is asked for, during the hook alone.
        dtype: of parameters and computation.
        device: where.
        batch_size: samples in one step of *this* process.
        session: the strategy this process has joined, or None alone.
        variant: choices of :attr:`AdapterDescription.variants` that are not at their default.
        masks: of models that are built for proofs only, what each dropout layer of a rate above 0
            multiplies by in training mode instead of drawing: float32 zeros and ones
            [rows, *shape of the layer's value] in canonical layout, by layer name. A batch of n
            samples takes the first n rows; there are enough. Empty: every layer draws its own.
    """

    workload: Workload
    weights: Mapping[str, Array]
    dtype: DType
    device: Device
    batch_size: int
    session: StrategySession | None = None
    variant: Mapping[str, str] = field(default_factory=dict)
    masks: Mapping[str, Array] = field(default_factory=dict)


@dataclass(frozen=True)
class LoadRequest:
    """Feed a data set to the framework, in the order that the core has set.

    Attributes:
        inputs: [N, ...] samples in canonical layout ([C, H, W] or [T]) and the run's dtype.
        labels: int64 [N] or [N, T].
        order: int64 [steps, batch], the indices of each step's samples.
        via: ``pipeline`` (the framework's own input pipeline, which gathers, converts and
            batches while training goes on) or ``memory`` (the whole set lies on the device as native
            tensors, and a step indexes it).
        device, dtype, variant: as in :class:`BuildRequest`.
        crops: int32 [steps, batch, 3], what is cut out of each image [C, H, W] of each step: see
            :func:`dlb.data.augmentation.cut`. None where nothing is augmented, and with
            ``memory``.
    """

    inputs: Array
    labels: Array
    order: Array
    via: Literal["pipeline", "memory"]
    device: Device
    dtype: DType
    variant: Mapping[str, str] = field(default_factory=dict)
    crops: Array | None = None

    def batch(self, step: int) -> tuple[Array, Array]:
        """Inputs and labels of a step, gathered and cut: what a pipeline makes native."""
        from dlb.data.augmentation import cut

        inputs, labels = self.inputs[self.order[step]], self.labels[self.order[step]]
        return inputs if self.crops is None else cut(inputs, self.crops[step]), labels


#: Native (inputs, labels) for each step, as :meth:`TrainableModel.train_step` takes them.
Batches = Any


@dataclass(frozen=True)
class Gradients:
    """Loss and gradients of one batch in training mode.

    Attributes:
        loss: mean over the batch, 0-d.
        parameters: of every trained parameter, canonical layout, by ``layer.parameter``.
        inputs: of the input batch, or None where the input is integers.
        states: of an :class:`AdoptedModel`, as the passes left them before they were put back: what
            is not trained, by name, such as running statistics. Since contract 1.4.
    """

    loss: Array
    parameters: Mapping[str, Array]
    inputs: Array | None
    states: Mapping[str, Array] = field(default_factory=dict)


class TrainableModel(abc.ABC):
    """A native model with its loss and optimizer. What is proven, timed and exported is this."""

    @abc.abstractmethod
    def weights(self) -> dict[str, Array]:
        """Every parameter and state in canonical layout and the model's dtype."""

    @abc.abstractmethod
    def load_weights(self, weights: Mapping[str, Array]) -> None:
        """Set every parameter and state from canonical layout; the optimizer's state is kept."""

    @abc.abstractmethod
    def optimizer_state(self) -> dict[str, Array]:
        """The optimizer's state in canonical layout by ``layer.parameter.slot``.

        Slots: ``velocity`` for SGD with momentum as :class:`dlb.workload.SGD` defines it,
        ``m`` and ``v`` for Adam. Empty where there is none, or before the first step.
        """

    @abc.abstractmethod
    def forward(
        self, inputs: Array, *, training: bool = False, layers: Sequence[str] = ()
    ) -> dict[str, Array]:
        """Values of ``layers`` and of the last layer, by layer name, in canonical layout.

        Args:
            inputs: [batch, ...] in canonical layout.
            training: batch normalisation by the batch's statistics, which leaves the running
                ones as they were; dropout acts.
            layers: names of layers whose output is wanted besides the logits.
        """

    @abc.abstractmethod
    def gradients(self, inputs: Array, labels: Array) -> Gradients:
        """Loss and gradients of one batch in training mode; nothing is updated.

        Args:
            inputs: [batch, ...] in canonical layout.
            labels: int64 [batch] or [batch, T].
        """

    @abc.abstractmethod
    def set_learning_rate(self, learning_rate: float) -> None:
        """The rate for the steps from here on. Called before the first step and at a change."""

    @abc.abstractmethod
    def train_step(self, inputs: Any, labels: Any) -> Any:
        """Forward, backward and update on a native batch, as the framework's users run it.

        Returns:
            the mean loss as something that ``float()`` takes; reading it may wait for the device.
        """

    def native_layers(self) -> Mapping[str, str]:
        """What the framework says of the layers that it built, by layer name, for people.

        Read from the native objects, never from the description, so that the two can be compared.
        Not abstract: it came with contract 1.2.
        """
        return {}


@dataclass(frozen=True)
class AdoptRequest:
    """Take in a model that somebody wrote in the framework itself, in float64.

    Attributes:
        make: imports and calls the factory; the model it returns. It is called once, by the
            adapter, so that the framework's default type can be float64 meanwhile.
        inputs: a batch as this model reads it, with which layers that learn their shapes from
            what they are given can be shown it; or None where there is none yet.
        dtype: of parameters and computation.
        device: where.
    """

    make: Callable[[], Any]
    inputs: Array | None
    dtype: DType
    device: Device


@dataclass(frozen=True)
class AdoptedLayer:
    """A layer of somebody's model.

    Attributes:
        name: its path in the model, parts joined by dots; "" for the model itself.
        type: the framework's name of its type.
        attributes: what it was made with, as text.
        kind: the layer type of :mod:`dlb.workload` that it is by its type, where that is known
            (``conv``, ``lstm``); "" otherwise.
        momentum: the part of its running statistics that a batch normalisation keeps at a step of
            training, as ONNX has it; None of any other layer, and of one that keeps no fixed part.
    """

    name: str
    type: str
    attributes: Mapping[str, str]
    kind: str = ""
    momentum: float | None = None


@dataclass(frozen=True)
class AdoptedParameter:
    """A parameter or state of somebody's model, as it is carried to another.

    Attributes:
        name: the framework's own, unique in the model; several joined by `` + `` where the layer
            adds them, by `` | `` where they lie one after another.
        layer: name of the layer that owns it.
        role: the canonical parameter that it is by the type of its layer (``weight``,
            ``mean``), and is then given and taken in canonical layout; ""
            where that is not known, and then nothing is transposed.
        shape: as it is given and taken.
        native_shape: as the framework has it.
        dtype: as the framework has it.
        trained: whether a gradient moves it; a state otherwise.
    """

    name: str
    layer: str
    role: str
    shape: tuple[int, ...]
    native_shape: tuple[int, ...]
    dtype: str
    trained: bool


@dataclass(frozen=True)
class LayerCall:
    """One call of a layer.

    Attributes:
        layer: its name.
        inputs, output: its first input and its output, canonical where the layer says how they
            lie; None where there is no array. A layer that applies an activation to its result is
            two calls: its own, and one of a layer of the activation's name.
    """

    layer: str
    inputs: Array | None
    output: Array | None


@dataclass(frozen=True)
class Trace:
    """One forward pass.

    Attributes:
        outputs: of the model, as it gives them, in order.
        calls: of every layer, in the order in which they ended.
    """

    outputs: tuple[Array, ...]
    calls: tuple[LayerCall, ...]


class AdoptedModel(abc.ABC):
    """A model that somebody wrote, looked at. Looking changes nothing but what is loaded.

    :class:`dlb.adoption.NativeModel` is half of it.
    """

    @abc.abstractmethod
    def layers(self) -> Sequence[AdoptedLayer]:
        """Every layer, the model itself first."""

    @abc.abstractmethod
    def parameters(self) -> Sequence[AdoptedParameter]:
        """Every parameter and state that is real numbers, in the order of the layers."""

    @abc.abstractmethod
    def input_shape(self) -> tuple[int, ...] | None:
        """Shape of one sample as the model reads it, if the model tells."""

    @abc.abstractmethod
    def weights(self) -> dict[str, Array]:
        """Every parameter and state by name, as :class:`AdoptedParameter` says."""

    @abc.abstractmethod
    def load_weights(self, weights: Mapping[str, Array]) -> None:
        """Set parameters and states by name, as :class:`AdoptedParameter` says."""

    @abc.abstractmethod
    def forward(
        self, inputs: Array, *, training: bool = False, layers: Sequence[str] = ()
    ) -> Trace:
        """One pass, from a fresh state where the model has one.

        Args:
            inputs: [batch, ...] as the model reads it.
            training: as users train it; states are left as they were.
            layers: names of layers whose values are wanted; of others None is given.
        """

    @abc.abstractmethod
    def gradients(
        self, inputs: Array, cotangents: Sequence[Array], *, training: bool = False
    ) -> Gradients:
        """Gradients of the sum of all outputs times their cotangents; nothing is updated.

        ``loss`` of the result is that sum.

        Args:
            inputs: [batch, ...] as the model reads it.
            cotangents: an array for each output, of its shape.
            training: as in :meth:`forward`. ``states`` of the result are then as one step of
                training leaves them, and those of the model as they were.
        """


class Clock:
    """Times one step on the host. Use :meth:`stop`'s result only.

    Args:
        synchronise: returns when the device has finished everything asked of it.
    """

    def __init__(self, synchronise: Callable[[], object] = lambda: None) -> None:
        self.synchronise = synchronise
        self._started = 0.0

    def start(self) -> None:
        """Wait until the device is idle (a batch may still be on its way), then begin."""
        self.synchronise()
        self._started = time.perf_counter()

    def stop(self) -> float:
        """Wait for the device, and give the seconds since :meth:`start`."""
        self.synchronise()
        return time.perf_counter() - self._started


@dataclass(frozen=True)
class StrategyDescription:
    """A distributed strategy.

    Attributes:
        name: what ``--strategy`` calls it.
        title: the framework's own name for it.
        frameworks: adapters it works with. A strategy may come from another package.
        synchronous: whether K workers must equal one worker on the same global batch.
        parallelism: what is divided.
        parameters: who holds them.
        backends: what carries the messages.
        devices: where it runs.
    """

    name: str
    title: str
    frameworks: tuple[str, ...]
    synchronous: bool
    parallelism: Literal["data", "model", "pipeline"] = "data"
    parameters: Literal["replicated", "sharded", "server"] = "replicated"
    backends: tuple[str, ...] = ()
    devices: tuple[str, ...] = ("cpu",)


@dataclass(frozen=True)
class PlanRequest:
    """What a strategy needs to know to lay out its processes.

    Attributes:
        strategy: its name.
        workers: how many.
        host: address that peers reach each other by.
        ports: free ports on it, more than enough: 4 + 2 for each worker.
        device: as in :class:`StartRequest`.
    """

    strategy: str
    workers: int
    host: str
    ports: tuple[int, ...]
    device: Device = "cpu"


@dataclass(frozen=True)
class Process:
    """One process of a strategy.

    Attributes:
        role: ``worker`` trains and answers calls; any other (``scheduler``, ``server``) is kept
            running beside the workers.
        rank: among the processes of its role.
        environment: variables it needs.
    """

    role: str
    rank: int
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class LaunchPlan:
    """The processes of a distributed run, all owned by the core's one supervisor.

    Attributes:
        processes: every process, workers in the order of their rank.
        launcher: a command that the workers are started through together (``mpiexec -n 2``);
            empty to start each by itself.
        rank_variables: with a launcher, environment variables in which a worker finds its rank.
    """

    processes: tuple[Process, ...]
    launcher: tuple[str, ...] = ()
    rank_variables: tuple[str, ...] = ()


class StrategySession(abc.ABC):
    """This process's membership in a running strategy.

    Attributes:
        rank, workers: this process's place.
    """

    rank: int
    workers: int

    @abc.abstractmethod
    def distribute(self, native: Any) -> Any:
        """Make a native training object distributed.

        What goes in and comes out is the framework's, and each adapter documents its own (for
        torch: a module and its optimizer), so that another package's strategy can serve it.
        """

    @abc.abstractmethod
    def leave(self) -> None:
        """Leave in an orderly way. Called once, after the last step."""
