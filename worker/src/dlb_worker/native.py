"""Models in a framework: built from a workload, or written by a user.

A model lists its :class:`NativeParameter` objects. From them the base class does all that is the same
in every framework: weights out and in, gradients and optimizer state in canonical layout.
"""

import abc
from typing import Any, Callable, Dict, Iterable, Iterator, List, Mapping, Optional, Sequence, Tuple

import numpy as np

from dlb_worker.contract import ForwardPass, Gradients, Inputs, ParameterDescription, UserLayer
from dlb_worker.errors import UnsupportedError
from dlb_worker.model import Optimizer
from dlb_worker.parameters import NativeParameter
from dlb_worker.placement import ADDEND, HELD, Placement
from dlb_worker.updates import decays

__all__ = [
    "BuiltModel",
    "NativeModel",
    "StrategySession",
    "UserModel",
    "last_result",
    "tensors",
    "text_attributes",
]

Array = np.ndarray


class NativeModel(abc.ABC):
    """A model whose parameters cross to and from canonical layout.

    Attributes:
        parameters: every parameter and state, in the order of the layers.
        dtype: ``float32`` or ``float64``.
        session: the strategy's that the model is part of, set by the worker. Where it says that this process
            holds a part of a parameter, the model reads and writes that part.
    """

    parameters: Sequence[NativeParameter]
    dtype: str
    session: "Optional[StrategySession]" = None

    @property
    def replica(self) -> int:
        """Whose parameters, state and part of a batch are read, see :class:`StrategySession`."""
        return 0 if self.session is None else self.session.replica

    def replicas(self) -> Iterator[int]:
        """Each replica of the model that this process holds; until the next one, it is the one that is read."""
        try:
            for number in range(1 if self.session is None else self.session.replicas):
                if self.session is not None:
                    self.session.replica = number
                yield number
        finally:
            if self.session is not None:
                self.session.replica = 0

    @abc.abstractmethod
    def read(self, native: Any) -> Array:
        """A copy in host memory of one of the framework's parameters."""

    @abc.abstractmethod
    def write(self, native: Any, array: Array) -> None:
        """Set one of the framework's parameters to an array of its shape and dtype."""

    def weights(self) -> Dict[str, Array]:
        """Copies of every parameter and state by name, in canonical layout and the model's dtype."""
        return {each.name: self.canonical(each) for each in self.parameters}

    def trained_natives(self) -> List[Any]:
        """The framework's objects of what is trained, in the order of the parameters."""
        return [native for each in self.parameters if each.trained for native in each.natives]

    def states(self) -> Dict[str, Array]:
        """Copies of what is not trained, as :meth:`weights`."""
        return {each.name: self.canonical(each) for each in self.parameters if not each.trained}

    def load_weights(self, weights: Mapping[str, Array]) -> None:
        """Set parameters and states, by name, from canonical layout; optimizer state is kept.

        All that ``weights`` has of a model's parameters are set.
        """
        for each in self.parameters:
            if each.name not in weights:
                continue
            array = np.asarray(weights[each.name], self.dtype)
            for native, part in zip(each.natives, each.mapping.to_native(array)):
                placed = self.placement(native)
                own = part if placed is None else part[placed.part]
                self.write(native, np.asarray(own, order="C"))

    def gather(self, gradient: Callable[[Any], Array]) -> Dict[str, Array]:
        """Gradients of what is trained, canonical, from the gradient of each native parameter."""
        return {
            each.name: each.mapping.to_gradient(
                [self._filled(native, gradient(native)) for native in each.natives]
            )
            for each in self.parameters
            if each.trained
        }

    def canonical(self, parameter: NativeParameter) -> Array:
        """A copy of one parameter or state in canonical layout, 0 where this process holds nothing of it."""
        natives = parameter.natives
        return parameter.mapping.to_canonical([self._filled(n, self.read(n)) for n in natives])

    def placement(self, native: Any) -> Optional[Placement]:
        """The part of a native parameter that this process holds; None for the whole one."""
        return None if self.session is None else self.session.placement(native)

    def marks(self) -> Dict[str, Array]:
        """Of each parameter that this process holds in part, which elements; int8, in canonical layout."""

        def mark(native: Any) -> Array:
            place = self.placement(native)
            number = ADDEND if place and place.partial else HELD
            return self._filled(native, np.full(self.read(native).shape, number, "int8"))

        return {
            each.name: each.mapping.to_gradient([mark(native) for native in each.natives])
            for each in self.parameters
            if any(self.placement(native) for native in each.natives)
        }

    def _filled(self, native: Any, part: Array) -> Array:
        """The whole array of a native parameter, from this process's part."""
        placed = self.placement(native)
        return part if placed is None else placed.filled(part)


class BuiltModel(NativeModel):
    """A workload's model with its loss and optimizer. What is proven, timed and exported is this.

    Looking changes nothing: only ``load_weights``, ``set_learning_rate`` and ``train_step`` alter a
    model. Arrays that are passed in are left as they are. Arrays that are returned do not change.
    """

    @abc.abstractmethod
    def slots(self, native: Any) -> Mapping[str, Array]:
        """The optimizer's state for one native parameter, by slot, in the parameter's layout.

        Slots are called as :mod:`dlb_graph.optimizers` calls them, such as ``velocity`` for SGD with
        momentum and ``m`` and ``v`` for Adam, and mean what they mean there (undo the framework's
        scaling and sign). Empty where there is none, and before the first step.
        """

    def undecayed_natives(self, optimizer: Optimizer) -> List[Any]:
        """The framework's objects of what is trained and has no weight decay."""
        exempt = (each for each in self.parameters if not decays(optimizer, each.role))
        return [native for each in exempt if each.trained for native in each.natives]

    def optimizer_state(self) -> Dict[str, Array]:
        """The optimizer's state in canonical layout by ``layer.role.slot``."""
        state = {}
        for each in self.parameters:
            slots = [self.slots(native) for native in each.natives] if each.trained else [{}]
            for slot in slots[0]:
                values = [self._filled(n, own[slot]) for n, own in zip(each.natives, slots)]
                state[f"{each.name}.{slot}"] = each.mapping.to_canonical(values)
        return state

    @abc.abstractmethod
    def forward(
        self, inputs: Array, *, training: bool = False, layers: Sequence[str] = ()
    ) -> Dict[str, Array]:
        """Values of ``layers`` and of the last layer, by layer name, in canonical layout.

        Args:
            inputs: [batch, ...] in canonical layout, of any batch size.
            training: batch normalisation uses the batch's statistics and leaves the running ones
                as they are; dropout acts.
            layers: names of layers whose values are returned with the logits.
        """

    @abc.abstractmethod
    def gradients(self, inputs: Array, labels: Array) -> Gradients:
        """Loss and gradients of one batch in training mode; nothing is updated.

        Args:
            inputs: [batch, ...] in canonical layout.
            labels: int64 [batch, ...]; or, as the loss reads, targets of the outputs' shape, of the
                model's dtype.
        """

    @abc.abstractmethod
    def set_learning_rate(self, learning_rate: float) -> None:
        """The rate for the steps from here on. Called before the first step and at a change."""

    @abc.abstractmethod
    def train_step(self, inputs: Any, labels: Any) -> Any:
        """Forward, backward and update on a native batch, as the framework's users run it.

        With the feature ``accumulate`` and an optimizer whose ``accumulate`` is above 1, it takes the batch in
        that many equal parts (:func:`dlb_worker.parts.in_parts`), and moves weights by their mean gradient.

        Returns:
            the mean loss as something that ``float()`` takes; reading it may wait for the device.
        """

    def step_phases(self, inputs: Any, labels: Any) -> Iterator[Tuple[str, Any]]:
        """A step as ``train_step``, in its parts, so that each can be timed. Optional.

        The parts are :data:`dlb_worker.contract.PHASES`, in their order; the first two come again for each part
        of a batch that is taken in parts. Each is given when its work was
        asked for, with a result that a clock may wait for; the last one's is the mean loss.

        Raises:
            UnsupportedError: the step is one piece; a sentence says why.
        """
        raise UnsupportedError("the adapter does not divide its step")

    def read_batch(self, inputs: Any, labels: Any) -> Tuple[Array, Array]:
        """Copies of what the replica takes of a native batch of ``train_step``, in canonical layout."""
        return np.array(inputs), np.array(labels)

    def load_masks(self, masks: Mapping[str, Array]) -> None:
        """Replace the masks of a model that was built with some; see :class:`BuildRequest`.

        They have the shapes of those that it was built with.

        Only adapters with the feature ``repeatable_dropout`` are asked.
        """
        raise UnsupportedError("this adapter's models keep the masks that they were built with")

    def seed_dropout(self, seed: int) -> None:
        """Let dropouts draw from a seed: a pass in training mode after it draws the same masks again.

        Only adapters with the feature ``repeatable_dropout`` are asked.

        Raises:
            UnsupportedError: as it is built, the model cannot draw the same masks again.
        """
        raise UnsupportedError("this adapter's models cannot draw the same masks again")

    def describe_layers(self) -> Mapping[str, str]:
        """What the framework says about the layers that it built, by layer name, for people.

        Read from the native objects, never from the description, so that the two can be compared.
        """
        return {}


class UserModel(NativeModel):
    """A model that a user wrote. Looking changes nothing but what is loaded.

    Attributes:
        example: a batch as the model reads it, set by the worker; None where there is none.
    """

    example: Optional[Inputs] = None

    def describe_parameters(self) -> List[ParameterDescription]:
        """Every parameter and state that holds real numbers.

        Raises:
            UnsupportedError: one has another dtype than the model.
        """
        descriptions = []
        for each in self.parameters:
            arrays = [self.read(native) for native in each.natives]
            for array in arrays:
                if str(array.dtype) != self.dtype:
                    raise UnsupportedError(
                        f"parameter '{each.name}' is {array.dtype} although {self.dtype} was asked "
                        "for; take the fixed type out of the code of its layer"
                    )
            descriptions.append(
                ParameterDescription(
                    name=each.name,
                    layer=each.layer,
                    role=each.role,
                    shape=each.mapping.to_canonical(arrays).shape,
                    native_shape=arrays[0].shape,
                    dtype=str(arrays[0].dtype),
                    trained=each.trained,
                    frozen=each.frozen,
                )
            )
        return descriptions

    @abc.abstractmethod
    def layers(self) -> Sequence[UserLayer]:
        """Every layer, the model itself first."""

    def input_shape(self) -> Optional[Tuple[int, ...]]:
        """Shape of one sample as the model reads it, if the model says so; -1 is any size."""
        return None

    @abc.abstractmethod
    def forward(
        self, inputs: Inputs, *, training: bool = False, layers: Sequence[str] = ()
    ) -> ForwardPass:
        """One pass, from a fresh state where the model has one.

        Args:
            inputs: [batch, ...] as the model reads it; several by name.
            training: as users train it; states are left as they were.
            layers: names of the layers whose values are returned; other layers' values are None.
        """

    def set_dropout(self, active: bool) -> None:
        """Let what the calls of a pass report as dropout drop nothing, or act again.

        Other random numbers are left as they are. An adapter that reports no dropout need not do anything.
        """

    def bypass(self, layers: Sequence[str]) -> None:
        """Let layers return their first input from now on, such as those that drop samples.

        Args:
            layers: their names.

        Raises:
            UnsupportedError: the adapter cannot.
        """
        raise UnsupportedError("this adapter leaves no layer out")

    @abc.abstractmethod
    def vjp(
        self, inputs: Inputs, cotangents: Sequence[Array], *, training: bool = False
    ) -> Gradients:
        """Gradients of the sum of all real outputs times their cotangents; nothing is updated.

        Args:
            inputs: as in :meth:`forward`.
            cotangents: an array for each output, of its shape. Those of integer outputs do not count.
            training: as in :meth:`forward`. ``states`` of the result are as one step of training
                leaves them; those of the model stay as they were.
        """

    def own_steps(
        self,
        make_step: Callable[[Any], Callable[[Any], Any]],
        batches: Iterable[Mapping[str, Array]],
    ) -> Iterator[float]:
        """Train by the user's own steps, and give the loss after each. The weights move.

        Args:
            make_step: the user's function of the model, which makes its optimizer and returns a step: a
                function of a batch, a dictionary of native tensors, which returns the loss.
            batches: an array for each name, as the model reads it.
        """
        raise UnsupportedError("this adapter takes no steps of a user's own program")


class StrategySession(abc.ABC):
    """This process's membership in a running strategy.

    Attributes:
        rank, workers: this process's place.
        replicas: how many replicas of a model this process holds, each with a share of its batches.
        replica: whose parameters, gradients and state the model and the session give; set by the worker.
    """

    rank: int
    workers: int
    replicas: int = 1
    replica: int = 0

    @abc.abstractmethod
    def distribute(self, native: Any) -> Any:
        """Make a native training object distributed.

        What goes in and comes out is the framework's. Each adapter documents its own (for torch: a
        module and its optimizer), so that another package's strategy can serve it.
        """

    def gradient_after_reduction(self, native: Any) -> Array:
        """The gradient of a native parameter in the last step, before or after it was clipped. Optional.

        Raises:
            UnsupportedError: it is not known.
        """
        raise UnsupportedError("the strategy does not say what the optimizer gets")

    def placement(self, native: Any) -> Optional[Placement]:
        """Which part of a native parameter this process holds. Optional; None where it is the whole one.

        The model's ``read`` and ``write`` then take the part, and so do its slots and its gradients.
        """
        return None

    def staleness(self) -> Sequence[int]:
        """Of each push of the last model, how many of its peers' came after the worker's pull before it.

        Of an asynchronous strategy. Optional; empty where it is not known.
        """
        return ()

    @abc.abstractmethod
    def leave(self) -> None:
        """Leave in an orderly way. Called once, after the last step."""


def last_result(phases: Iterable[Tuple[str, Any]]) -> Any:
    """Take a step in its parts to the end: the mean loss."""
    *_, (_, loss) = phases
    return loss


def tensors(
    value: Any, is_tensor: Callable[[Any], bool], name: str = ""
) -> Iterator[Tuple[str, Any]]:
    """The tensors that a model returned, each with its keys and places, joined by dots.

    A model returns one tensor, or lists, tuples and mappings of them.

    Raises:
        UnsupportedError: there is something else in it.
    """
    if is_tensor(value):
        yield name, value
    elif isinstance(value, (Mapping, list, tuple)):
        for key, each in value.items() if isinstance(value, Mapping) else enumerate(value):
            yield from tensors(each, is_tensor, f"{name}.{key}".lstrip("."))
    elif value is not None:
        raise UnsupportedError(
            f"the model returns a {type(value).__name__} among its outputs; return tensors, or "
            "lists, tuples or dictionaries of them"
        )


def text_attributes(attributes: Mapping[str, Any]) -> Dict[str, str]:
    """Those of a layer's attributes that are numbers, words, None or several of them, as text."""
    return {name: str(value) for name, value in attributes.items() if _is_plain(value)}


def _is_plain(value: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return all(_is_plain(each) for each in value)
    return value is None or isinstance(value, (bool, int, float, str))
