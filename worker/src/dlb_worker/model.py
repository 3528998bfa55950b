"""The resolved workload: what an adapter builds.

The core resolves a workload before a worker sees it. Every attribute is written out, every shape is
known, every parameter is listed. A worker infers nothing. Shapes are those of one sample, without the
batch axis, in canonical layout: [C, H, W] for maps, [T, features] for sequences.
"""

from dataclasses import dataclass, field
from typing import Any, Dict, FrozenSet, Mapping, Set, Tuple

__all__ = ["Input", "Loss", "Model", "Node", "Optimizer", "Parameter", "Workload", "read_workload"]

Shape = Tuple[int, ...]

#: The linear maps of an attention layer, in the order of its parameters.
ATTENTION_MAPS = ("query", "key", "value", "output")
#: Inputs that a layer only chooses by, which get no gradient: their places, by kind.
CHOOSING = {"where": 0, "top_k": 0, "gather_elements": 1}


class _Attributes:
    """Attributes of a kind, read as fields: ``node.kernel`` is ``node.attributes["kernel"]``."""

    kind: str
    attributes: Mapping[str, Any]

    def __getattr__(self, name: str) -> Any:
        # Looked up only when it is no field. Copying asks before there are fields.
        if name.startswith("__") or name == "attributes":
            raise AttributeError(name)
        try:
            return self.attributes[name]
        except KeyError:
            raise AttributeError(
                "'{}' has no attribute '{}'; it has {}".format(
                    self.kind, name, ", ".join(sorted(self.attributes)) or "none"
                )
            ) from None


@dataclass(frozen=True)
class Input:
    """What the model reads.

    Attributes:
        name: what nodes call it.
        shape: of one sample.
        kind: ``real`` (the model's floating type) or ``index`` (int64, for an embedding).
    """

    name: str
    shape: Shape
    kind: str


@dataclass(frozen=True)
class Parameter:
    """A parameter or a state of a layer, in canonical (ONNX) layout.

    Attributes:
        name: ``layer.role``, such as ``conv1.weight``.
        shape: its shape.
        trained: whether training moves it by its gradient; running statistics are states.
    """

    name: str
    shape: Shape
    trained: bool


@dataclass(frozen=True)
class Node(_Attributes):
    """One layer.

    Attributes:
        name: unique in the model.
        kind: the layer type, such as ``conv``; see the reference of workloads.
        attributes: every attribute of that kind, also readable as ``node.NAME``.
        inputs: names of the nodes, or of the model's input, that it reads.
        input_shapes: a shape for each input.
        shape: of its value.
        parameters: by role. A weight that is tied to another layer is not among them.
        weights_of: an earlier node of the same kind and attributes, whose parameters are those of this one;
            empty where it has its own.
    """

    name: str
    kind: str
    attributes: Mapping[str, Any]
    inputs: Tuple[str, ...]
    input_shapes: Tuple[Shape, ...]
    shape: Shape
    parameters: Mapping[str, Parameter] = field(default_factory=dict)
    weights_of: str = ""

    @property
    def input_shape(self) -> Shape:
        """Shape of its first input."""
        return self.input_shapes[0]

    @property
    def tied_to(self) -> str:
        """The embedding whose weight this layer computes with; empty where it has its own."""
        return str(self.attributes.get("tied_to", ""))


def _owners(node: Node) -> Tuple[str, ...]:
    """The layers whose parameters a layer computes with."""
    return (node.weights_of or node.name, node.tied_to)


@dataclass(frozen=True)
class Model:
    """A directed acyclic graph of layers.

    Attributes:
        input: what it reads.
        nodes: the layers; each follows its inputs, and the last one gives the logits.
    """

    input: Input
    nodes: Tuple[Node, ...]

    @property
    def last(self) -> str:
        """Name of the layer that gives the logits."""
        return self.nodes[-1].name

    @property
    def parameters(self) -> Dict[str, Parameter]:
        """Every parameter and state by name, in the order of the layers."""
        return {each.name: each for node in self.nodes for each in node.parameters.values()}

    @property
    def unreached(self) -> FrozenSet[str]:
        """Layers whose parameters have a gradient of zero: what they compute is only chosen by.

        A framework may have no gradient of these at all, and leave out their weight decay.
        """
        reached: Set[str] = {self.last}
        for node in reversed(self.nodes):
            if node.name in reached:
                chosen_by = CHOOSING.get(node.kind)
                reached.update(n for place, n in enumerate(node.inputs) if place != chosen_by)
        shared = {each for node in self.nodes if node.name in reached for each in _owners(node)}
        own = {node.name for node in self.nodes if node.parameters and not node.weights_of}
        return frozenset(own - shared)

    def readers(self, name: str) -> Tuple[Node, ...]:
        """The nodes that read a value."""
        return tuple(node for node in self.nodes if name in node.inputs)


@dataclass(frozen=True)
class Loss(_Attributes):
    """The loss.

    Attributes:
        kind: such as ``softmax_cross_entropy``; see the reference of workloads.
        attributes: its numbers, such as ``label_smoothing`` or ``delta``.
    """

    kind: str
    attributes: Mapping[str, Any]

    @property
    def of_classes(self) -> bool:
        """Whether labels are classes, int64; else they are real targets of the outputs' shape."""
        return self.kind in ("softmax_cross_entropy", "ctc")


@dataclass(frozen=True)
class Optimizer(_Attributes):
    """The optimizer.

    Attributes:
        kind: such as ``sgd`` or ``adam``; see the reference of workloads.
        attributes: every number of it, such as ``learning_rate`` and ``clip_norm``.
    """

    kind: str
    attributes: Mapping[str, Any]

    @property
    def accumulate(self) -> int:
        """How many equal parts a step takes its batch in."""
        return int(self.attributes.get("accumulate", 1))


@dataclass(frozen=True)
class Workload:
    """What is trained. The core sends the learning rate of each step.

    Attributes:
        name: the workload's.
        model, loss, optimizer: what is built.
    """

    name: str
    model: Model
    loss: Loss
    optimizer: Optimizer

    def document(self) -> Dict[str, Any]:
        """Plain containers, for the wire; :func:`read_workload` is the inverse."""
        model = self.model
        return {
            "name": self.name,
            "model": {
                "input": vars(model.input),
                "nodes": [
                    dict(
                        vars(node),
                        attributes=dict(node.attributes),
                        parameters={role: vars(each) for role, each in node.parameters.items()},
                    )
                    for node in model.nodes
                ],
            },
            "loss": {"kind": self.loss.kind, "attributes": dict(self.loss.attributes)},
            "optimizer": {
                "kind": self.optimizer.kind,
                "attributes": dict(self.optimizer.attributes),
            },
        }


def read_workload(document: Mapping[str, Any]) -> Workload:
    """The workload of a document; JSON's lists become tuples.

    Raises:
        KeyError, TypeError: it is no such document.
    """
    model = document["model"]
    return Workload(
        name=document["name"],
        model=Model(
            input=Input(**_tuples(model["input"])),
            nodes=tuple(_read_node(node) for node in model["nodes"]),
        ),
        loss=Loss(**_tuples(document["loss"])),
        optimizer=Optimizer(**_tuples(document["optimizer"])),
    )


def _read_node(node: Mapping[str, Any]) -> Node:
    fields = _tuples({name: value for name, value in node.items() if name != "parameters"})
    parameters = {role: Parameter(**_tuples(each)) for role, each in node["parameters"].items()}
    return Node(parameters=parameters, **fields)


def _tuples(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _tuples(each) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return tuple(_tuples(each) for each in value)
    return value
