"""What passes between the core and an adapter: plain data, in order of use.

The hooks are in :mod:`dlb_worker.hookspecs`; the base class that answers them is
:class:`dlb_worker.Adapter`. Models are in :mod:`dlb_worker.native`.
"""

import time
from dataclasses import dataclass, field
from typing import (
    TYPE_CHECKING,
    Any,
    Callable,
    Iterable,
    Mapping,
    NamedTuple,
    Optional,
    Tuple,
    Union,
)

from dlb_worker.errors import UnsupportedError
from dlb_worker.model import Workload

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray
else:  # The command describes adapters without importing NumPy.
    Array = Any

__all__ = [
    "ADDED",
    "ASYNCHRONOUS_CASES",
    "CASES",
    "CONTRACT",
    "FEATURES",
    "LOSSES",
    "PHASES",
    "PRECISION",
    "AdapterDescription",
    "Batches",
    "BuildRequest",
    "Clock",
    "DataRequest",
    "Dropout",
    "ForwardPass",
    "FrameworkFacts",
    "Gradients",
    "Inputs",
    "LaunchPlan",
    "LayerCall",
    "ParameterDescription",
    "PeakRequest",
    "PlanRequest",
    "Process",
    "StartRequest",
    "StrategyDescription",
    "UserLayer",
    "UserModelRequest",
]

#: Version of the hook contract: (major, minor). An adapter made for another major does not run.
CONTRACT = (2, 1)

#: What an adapter may be able to do besides its layers, optimizers and losses, and what each one means.
FEATURES = {
    "accumulate": "takes the batch of a step in parts, and moves weights by the mean of their gradients",
    "amsgrad": "computes adam and adamw with the largest second moment so far",
    "augmentation": "feeds batches that the core cut out of images",
    "class_weights": "computes the loss with a weight for each class",
    "clip_norm": "brings gradients down to a norm before a step",
    "clip_value": "limits every element of a gradient before a step",
    "clip_variable_norm": "brings the gradient of each parameter down to a norm of its own before a step",
    "dilated_max_pool": "builds max poolings whose windows have gaps",
    "export": "writes an ONNX file with the framework's exporter",
    "export_user_models": "writes a user's model as an ONNX file",
    "ignore_index": "computes the loss with a label that counts nothing",
    "label_smoothing": "computes the loss with smoothed labels",
    "losses_of_maps": "computes losses of outputs with three axes a sample, or more",
    "masks": "multiplies by given masks in dropout layers of models built for proofs",
    "repeatable_dropout": "draws dropout masks again from a seed, and takes other given masks later",
    "shared_layers": "computes several layers with the parameters of one",
    "three_axes": "builds convolutions, poolings and normalisations of films and volumes [C, D, H, W]",
    "tied_weights": "computes a linear layer with an embedding's weight",
    "unequal_shares": "weighs the gradients of a step by the process's share of the batch",
    "user_models": "loads a model that a user wrote in the framework",
    "weight_decay_on": "leaves biases, and the scales and slopes of layers, without weight decay",
}

#: What each minor version added: fields of a description, features, and optional methods of an adapter, of a
#: session and of a built model.
ADDED = {
    (2, 1): frozenset(
        {
            "accumulate",
            "amsgrad",
            "asynchronous",
            "averages_every",
            "cases",
            "class_weights",
            "clip_value",
            "clip_variable_norm",
            "dilated_max_pool",
            "gradient_after_reduction",
            "ignore_index",
            "losses",
            "losses_of_maps",
            "peak_work",
            "placement",
            "pulls_first",
            "replicas",
            "shared_layers",
            "staleness",
            "step_phases",
            "three_axes",
            "unequal_shares",
            "weight_decay_on",
        }
    ),
}

#: What a strategy may claim: that so K workers, each on its share of a batch, end as one worker does; or, if
#: they take no steps together, as the strategy is defined.
CASES = {
    "equal_shares": "K divides the batch",
    "unequal_shares": "K does not; the adapter needs the feature of that name",
    "ignored_labels": "workers have other numbers of labels that count nothing",
    "accumulation": "each worker takes its share in parts, in other sizes than its peers",
    "clip_binds": "the norm of all gradients is above its limit",
    "clip_idle": "it is below",
    "tied_weights": "two layers compute with one weight",
    "weight_decay": "weights decay, biases do not",
    "local_statistics": "batch normalisation uses the statistics of each worker's share",
    "global_statistics": "it uses those of the whole batch",
    "dropout": "each worker has the masks of its own samples",
    "adam": "the optimizer is Adam",
}

#: What an asynchronous strategy may claim besides.
ASYNCHRONOUS_CASES = {
    "stale_gradients": "a worker computes gradients, and pushes them after its peers have pushed twice",
    "every_push_counts": "all push as they will, and the weights move by the sum of what was pushed",
}

#: The losses of an adapter that does not say which it has.
LOSSES = {"softmax_cross_entropy": "native"}

#: The parts of a training step, in their order.
PHASES = ("forward", "backward", "update")


#: The variant that rounds more than the dtype. It is ``full`` by default; ``bfloat16`` computes matrix products
#: in bfloat16, with weights, gradients of weights and the optimizer in float32.
PRECISION = "precision"


@dataclass(frozen=True)
class AdapterDescription:
    """What an adapter is and what it can do, known without importing the framework.

    Attributes:
        name: what ``--on`` calls it.
        title: the framework's own name.
        distribution: the adapter's distribution, such as ``dlb-torch``.
        framework: the framework's distributions; the first one installed gives its version.
        contract: the :data:`CONTRACT` that it was written for.
        layers: layer kind to a sentence that begins with ``native`` or ``composed``. The core
            refuses a kind that is missing before any work.
        optimizers: optimizer kinds, as layers.
        features: names from :data:`FEATURES`.
        dtypes, devices: what a model can be built in and on.
        exporter: the framework's exporter, by name.
        deviations: what the framework is known to do differently, a sentence each. Certificates
            show them; they never widen a tolerance.
        variants: named choices of how a model is built (``compile``, ``layout``), each with its
            values, the default first. Every choice computes the same, but for :data:`PRECISION`.
        losses: loss kinds, as layers.
    """

    name: str
    title: str
    distribution: str
    framework: Tuple[str, ...]
    contract: Tuple[int, int]
    layers: Mapping[str, str]
    optimizers: Mapping[str, str]
    features: Tuple[str, ...] = ()
    dtypes: Tuple[str, ...] = ("float32", "float64")
    devices: Tuple[str, ...] = ("cpu",)
    exporter: str = ""
    deviations: Tuple[str, ...] = ()
    variants: Mapping[str, Tuple[str, ...]] = field(default_factory=dict)
    losses: Mapping[str, str] = field(default_factory=LOSSES.copy)

    def choices(self, variant: Mapping[str, str]) -> Mapping[str, str]:
        """The value of every choice, the default where ``variant`` has none.

        Raises:
            UnsupportedError: ``variant`` has a choice or a value that is not offered.
        """
        for name, value in variant.items():
            if name not in self.variants:
                raise UnsupportedError(
                    "adapter '{}' offers no variant '{}'; it offers {}".format(
                        self.name, name, ", ".join(sorted(self.variants)) or "none"
                    )
                )
            if value not in self.variants[name]:
                raise UnsupportedError(
                    "adapter '{}' offers no variant '{}={}'; '{}' is one of {}".format(
                        self.name, name, value, name, ", ".join(self.variants[name])
                    )
                )
        return {name: variant.get(name, values[0]) for name, values in self.variants.items()}


@dataclass(frozen=True)
class StartRequest:
    """How to start the framework, before anything is built.

    Attributes:
        threads: threads that a step may use, inside one operator and across operators together.
        device: ``cpu`` or ``cuda``; a device that does not exist must be refused.
        seed: for the randomness that the framework keeps to itself (dropout masks).
        strategy: that this process joins next, by ``dlb_join``; empty for none. A framework may have to know of
            its peers before its first array.
        workers: of the strategy.
    """

    threads: int
    device: str = "cpu"
    seed: int = 0
    strategy: str = ""
    workers: int = 1


@dataclass(frozen=True)
class FrameworkFacts:
    """What the framework reports once it is up.

    Attributes:
        version: its version.
        threads: the number of threads that it reports to use: read back, not echoed.
        device: the device's own name.
        build: BLAS, oneDNN, CUDA and the like, as far as the framework reports them.
    """

    version: str
    threads: int
    device: str
    build: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class BuildRequest:
    """Build a model, ready to train.

    Attributes:
        workload: what to build, resolved, with its loss and optimizer.
        weights: every parameter and state in canonical layout, float32, by ``layer.role``. Each is
            read from a file when it is asked for, during the hook only.
        dtype: ``float32`` or ``float64``, of parameters and computation.
        device: ``cpu`` or ``cuda``.
        batch_size: samples in one step of *this* process.
        session: the strategy's session that this process has joined, or None.
        variant: choices of :attr:`AdapterDescription.variants` that are not at their default.
        masks: for models built for proofs only. By layer name, what each dropout layer of a rate
            above 0 multiplies by in training mode instead of drawing: float32 zeros and ones
            [rows, *shape of the layer's value] in canonical layout. A batch of n samples takes the
            first n rows. Empty: every layer draws its own mask.
        seed: for randomness that belongs to this model.
        share: what a step's gradients are multiplied by before workers take the mean: samples of this
            process, times workers, divided by those of all. 1 where shares are equal; other numbers are
            only for adapters with the feature ``unequal_shares``.
    """

    workload: Workload
    weights: Mapping[str, Array]
    dtype: str
    device: str
    batch_size: int
    session: Any = None
    variant: Mapping[str, str] = field(default_factory=dict)
    masks: Mapping[str, Array] = field(default_factory=dict)
    seed: int = 0
    share: float = 1.0


@dataclass(frozen=True)
class DataRequest:
    """Feed a data set to the framework, in the order that the core decided.

    Attributes:
        inputs: [N, ...] samples in canonical layout ([C, H, W] or [T]) and the run's dtype.
        labels: int64 [N], [N, T] or [N, H, W]; or, as the loss reads, targets of the outputs' shape, of the
            run's dtype.
        order: int64 [steps, batch], the indices of each step's samples.
        input_mode: ``pipeline`` (the framework's own input pipeline, which gathers, converts and
            batches while training goes on) or ``memory`` (the whole set lies on the device as native
            tensors, and a step indexes it).
        device, dtype, variant: as in :class:`BuildRequest`.
        crops: int32 [steps, batch, 3], what to cut out of each image of each step: see
            :func:`dlb_worker.crops.cut`. None where nothing is augmented, and with ``memory``.
    """

    inputs: Array
    labels: Array
    order: Array
    input_mode: str
    device: str
    dtype: str
    variant: Mapping[str, str] = field(default_factory=dict)
    crops: Optional[Array] = None

    def batch(self, step: int) -> Tuple[Array, Array]:
        """Inputs and labels of a step, gathered and cut: what a pipeline makes native."""
        from dlb_worker.crops import cut

        inputs, labels = self.inputs[self.order[step]], self.labels[self.order[step]]
        return inputs if self.crops is None else cut(inputs, self.crops[step]), labels


#: What a user's model reads: one array, or several by name in the order of its arguments.
Inputs = Union[Array, Mapping[str, Array]]
#: Native (inputs, labels) for each step, as ``BuiltModel.train_step`` takes them.
Batches = Iterable[Tuple[Any, Any]]


@dataclass(frozen=True)
class Gradients:
    """Loss and gradients of one batch.

    Attributes:
        loss: mean over the batch, 0-d; for a user's model the sum of outputs times cotangents.
        parameters: for every trained parameter, canonical layout, by name.
        inputs: for the input batch, or None where the input is integers or there are several.
        states: for a user's model, states by name as one step of training leaves them.
        several: for a user's model with several inputs, for each one that is real, by name.
    """

    loss: Array
    parameters: Mapping[str, Array]
    inputs: Optional[Array]
    states: Mapping[str, Array] = field(default_factory=dict)
    several: Mapping[str, Array] = field(default_factory=dict)


@dataclass(frozen=True)
class UserModelRequest:
    """Load a model that a user wrote in the framework.

    Attributes:
        make: imports and calls the user's factory, and returns its model. The adapter calls it
            once, so that it can set the framework's default type before.
        inputs: a batch as this model reads it, for layers that learn their shapes from their first
            input; several by name; None where there is none yet.
        dtype: of parameters and computation.
        device: where.
    """

    make: Callable[[], Any]
    inputs: Optional[Inputs]
    dtype: str
    device: str


@dataclass(frozen=True)
class UserLayer:
    """A layer of a user's model.

    Attributes:
        name: its path in the model, parts joined by dots; "" for the model itself.
        type: the framework's name for its type.
        attributes: its arguments, as text.
        kind: the layer kind that its type is, where the adapter knows it (``conv``); "" otherwise.
        momentum: the share of its running statistics that a batch normalisation keeps at a step, as
            ONNX defines it; None for any other layer, and for one that keeps no fixed share.
        penalties: what the layer adds to the loss or does to its parameters after a step, in the
            framework's words, by the name of the parameter, or ``output``.
    """

    name: str
    type: str
    attributes: Mapping[str, str]
    kind: str = ""
    momentum: Optional[float] = None
    penalties: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class ParameterDescription:
    """A parameter or state of a user's model, as it is carried to another.

    Attributes:
        name: the framework's own, unique in the model. Several are joined by `` + `` where the layer
            adds them, by `` | `` where they lie one after another, and by `` * `` where the first is the
            length and the second the direction of what the layer computes with.
        layer: name of the layer that owns it.
        role: the canonical parameter that it is by its layer's type (``weight``, ``mean``); it then
            crosses in canonical layout. "" where that is not known; then nothing is transposed.
        shape: as it crosses.
        native_shape, dtype: as the framework has it.
        trained: whether a gradient moves it; otherwise it is a state.
        frozen: whether it is a parameter that a gradient could move, but that is not trained. A buffer, a
            constant or a running mean is none.
    """

    name: str
    layer: str
    role: str
    shape: Tuple[int, ...]
    native_shape: Tuple[int, ...]
    dtype: str
    trained: bool
    frozen: bool = False


@dataclass(frozen=True)
class Dropout:
    """What a layer or a function drops in training mode.

    Attributes:
        rate: the share that is dropped, above 0.
        of: what is dropped: ``elements``, ``channels``, ``attention weights``, ``outputs between layers``
            of a recurrent layer, or the framework's words.
    """

    rate: float
    of: str


@dataclass(frozen=True)
class LayerCall:
    """One call of a layer.

    Attributes:
        layer: its name.
        inputs, output: its first input and its output, canonical where the layer says how they lie;
            None where there is no array. A layer that applies an activation to its result makes two
            calls: its own, and one of a layer named for the activation.
        others: its further inputs, such as the second of a sum; None for one without an array.
        dropout: what it drops, in training mode or, for a layer, in any mode; None if it drops nothing.
    """

    layer: str
    inputs: Optional[Array]
    output: Optional[Array]
    others: Tuple[Optional[Array], ...] = ()
    dropout: Optional[Dropout] = None


@dataclass(frozen=True)
class ForwardPass:
    """One forward pass.

    Attributes:
        outputs: of the model, in its order.
        calls: of layers, in the order in which they ended.
        names: of the outputs: keys and places in what the model returned, joined by dots. Empty
            where the adapter does not tell them.
    """

    outputs: Tuple[Array, ...]
    calls: Tuple[LayerCall, ...]
    names: Tuple[str, ...] = ()


class Clock:
    """Times one step on the host. Use :meth:`stop`'s result only.

    Args:
        wait: returns when the device has finished what it was asked for. It receives the step's
            result, or None before a step: some frameworks can wait only for a value.
    """

    def __init__(self, wait: Callable[[Any], Any] = lambda result: None) -> None:
        self.wait = wait
        self._started = 0.0

    def start(self) -> None:
        """Wait until the device is idle (a batch may still be on its way), then begin."""
        self.wait(None)
        self._started = time.perf_counter()

    def stop(self, result: Any = None) -> float:
        """Wait for the step's result; return the seconds since :meth:`start`."""
        self.wait(result)
        return time.perf_counter() - self._started


class PeakRequest(NamedTuple):
    """Work whose speed says what the device can do at most.

    Attributes:
        work: ``product`` of two square matrices, or ``copy`` of an array to another.
        dtype: ``float32``, ``float64`` or ``bfloat16``.
        device, threads: as in :class:`StartRequest`.
        size: rows of a matrix, or numbers of the array.
    """

    work: str
    dtype: str
    device: str
    threads: int
    size: int = 0


@dataclass(frozen=True)
class StrategyDescription:
    """A distributed strategy.

    Attributes:
        name: what ``--strategy`` calls it.
        title: the framework's own name for it.
        frameworks: adapters that it works with. A strategy may come from another package.
        synchronous: whether K workers must equal one worker on the same global batch.
        averages_every: after how many steps workers take the mean of their parameters, for local SGD, which
            is not synchronous; 0 for any other strategy.
        asynchronous: whether each worker's gradients move shared weights by themselves. It pushes them in
            ``update``, the last of :data:`PHASES`, and pulls the weights after that.
        pulls_first: whether it pulls them in ``forward`` instead, and holds none between its steps: the weights
            that it gives are then the shared ones.
        parallelism: what is divided: ``data``, ``model`` or ``pipeline``.
        parameters: who holds them: ``replicated``, ``sharded`` or ``server``.
        backends: what carries the messages.
        devices: where it runs.
        cases: names from :data:`CASES` and :data:`ASYNCHRONOUS_CASES`, in which that is so.
    """

    name: str
    title: str
    frameworks: Tuple[str, ...]
    synchronous: bool
    parallelism: str = "data"
    parameters: str = "replicated"
    backends: Tuple[str, ...] = ()
    devices: Tuple[str, ...] = ("cpu",)
    cases: Tuple[str, ...] = ("equal_shares",)
    averages_every: int = 0
    asynchronous: bool = False
    pulls_first: bool = False


@dataclass(frozen=True)
class PlanRequest:
    """What a strategy needs to know to lay out its processes.

    Attributes:
        strategy: its name.
        workers: how many.
        host: address at which all reach worker 0, and what is neither a worker nor started by one.
        ports: free ports on it, more than enough: 4 + 2 for each worker.
        device: as in :class:`StartRequest`.
        hosts: address of each worker, by rank; empty where all are on one host.
    """

    strategy: str
    workers: int
    host: str
    ports: Tuple[int, ...]
    device: str = "cpu"
    hosts: Tuple[str, ...] = ()

    def address(self, rank: int) -> str:
        """Address at which peers reach a worker."""
        return self.hosts[rank] if self.hosts else self.host


@dataclass(frozen=True)
class Process:
    """One process of a strategy.

    Attributes:
        role: ``worker`` trains and answers calls; any other (``scheduler``, ``server``) runs next to
            the workers.
        rank: among the processes of its role.
        environment: variables that it needs.
    """

    role: str
    rank: int
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class LaunchPlan:
    """The processes of a distributed run, all owned by the core's one supervisor.

    Attributes:
        processes: every process, workers in the order of their rank.
        launcher: a command that starts the workers together (``mpiexec -n 2``); empty to start each
            by itself.
        rank_variables: with a launcher, environment variables in which a worker finds its rank.
        shares: into how many shares a batch is divided, each of as many neighbouring workers, which train on
            the same samples; 1 where all do. 0: a share for each worker.
    """

    processes: Tuple[Process, ...]
    launcher: Tuple[str, ...] = ()
    rank_variables: Tuple[str, ...] = ()
    shares: int = 0
