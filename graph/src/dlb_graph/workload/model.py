"""A model: a graph of named layers. A workload: a model, its data, loss, optimizer, schedule."""

from __future__ import annotations

import hashlib
from typing import Literal

import msgspec

from dlb_graph.layers import AnyLayer, default_of, fields_of
from dlb_graph.losses import AnyLoss, SoftmaxCrossEntropy
from dlb_graph.optimizers import AnyOptimizer
from dlb_graph.workload.training import Constant, Schedule, with_epoch

__all__ = [
    "SYNTHETIC",
    "Augmentation",
    "Data",
    "Input",
    "Model",
    "Node",
    "Workload",
    "workload_hash",
]


class Input(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The input of the model.

    Attributes:
        name: the input's name, which nodes use.
        shape: the shape of one sample without the batch axis, such as (1, 28, 28) for [C, H, W] or
            (20,) for 20 tokens.
        kind: ``real`` (the run's floating type) or ``index`` (int64, for an embedding).
    """

    name: str = "input"
    shape: tuple[int, ...]
    kind: Literal["real", "index"] = "real"


class Node(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One layer in the graph.

    Attributes:
        name: a unique name; parameters are called ``name.parameter``.
        layer: the layer.
        inputs: names of nodes or of the model's input; if empty, the previous node.
        weights_of: an earlier node with the same layer, whose parameters this one computes with; empty if it
            has its own.
    """

    name: str
    layer: AnyLayer
    inputs: tuple[str, ...] = ()
    weights_of: str = ""

    @property
    def owner(self) -> str:
        """The node whose parameters it computes with."""
        return self.weights_of or self.name


class Model(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A directed acyclic graph of layers; each node comes after its inputs.

    The last node outputs the logits, [N, classes] or [N, T, classes], or the numbers that a loss compares with
    targets of their shape.
    """

    input: Input
    nodes: tuple[Node, ...]

    def wired(self) -> tuple[Node, ...]:
        """The nodes with explicit inputs."""
        nodes: list[Node] = []
        previous = self.input.name
        for node in self.nodes:
            nodes.append(node if node.inputs else msgspec.structs.replace(node, inputs=(previous,)))
            previous = node.name
        return tuple(nodes)


class Augmentation(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The random augmentation of training images, drawn again for each use of an image.

    Attributes:
        area: smallest and largest fraction of the stored image for a random crop, which is resized
            to the input (Szegedy et al. 2015, arXiv:1409.4842, section 6); (1, 1) for no crop.
        aspect: smallest and largest ratio of width to height of that crop.
        pad: zeros on each side of the input [C, H, W] after normalisation, before a random crop of
            the input's size; less than H and W.
        flip: whether to mirror an image left to right with probability 1/2.
    """

    area: tuple[float, float] = (1.0, 1.0)
    aspect: tuple[float, float] = (3 / 4, 4 / 3)
    pad: int = 0
    flip: bool = False

    @property
    def resizes(self) -> bool:
        """Whether crops are resized, so that each use of an image is another sample."""
        return self.area != (1.0, 1.0)

    @property
    def moves(self) -> bool:
        """Whether images of the input's size are cropped or mirrored."""
        return bool(self.pad) or self.flip


#: The name of synthetic data; no data set can have it.
SYNTHETIC = "synthetic"


class Data(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The data set and its normalisation: ``(value / 255 - mean) / std`` per channel.

    Attributes:
        name: the name of a data set, or of a kind of local data.
        mean, std: one number, or one per channel, each; for images alone.
        path: the path of local data.
        labels: for a pair of IDX files, the path of the labels.
        augmentation: the augmentation of training images.
    """

    name: str
    mean: tuple[float, ...] = (0.0,)
    std: tuple[float, ...] = (1.0,)
    path: str = ""
    labels: str = ""
    augmentation: Augmentation = Augmentation()


class Workload(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Everything that two frameworks must agree on to run the same training.

    Attributes:
        name: the name on the command line.
        title, source: text for people: a title, and the paper and table that it comes from.
        batch_size, epochs: defaults of a run.
        model, data, loss, optimizer, schedule: the model, its data, and how it is trained.
        onnx: SHA-256 (hex) of the ONNX file that the model and its weights come from; empty if
            weights are seeded.
    """

    name: str
    title: str = ""
    source: str = ""
    batch_size: int
    epochs: int = 1
    data: Data
    loss: AnyLoss = SoftmaxCrossEntropy()
    optimizer: AnyOptimizer
    schedule: Schedule = Constant()
    model: Model
    onnx: str = ""


def workload_hash(workload: Workload) -> str:
    """SHA-256 (hex) of the meaning of a workload.

    The hash leaves out name, title, source, and fields at their default. A new field of the format
    therefore does not change old hashes. The inputs of nodes are explicit.
    """
    model = msgspec.structs.replace(workload.model, nodes=workload.model.wired())
    schedule = with_epoch(workload.schedule, 0)
    unnamed = msgspec.structs.replace(
        workload, name="", title="", source="", model=model, schedule=schedule
    )
    return hashlib.sha256(
        msgspec.json.encode(without_defaults(unnamed), order="deterministic")
    ).hexdigest()


def without_defaults(value: object) -> object:
    """A description as plain containers, without fields at their default."""
    if isinstance(value, msgspec.Struct):
        config = value.__struct_config__
        fields: dict[str, object] = (
            {config.tag_field: config.tag} if config.tag_field and config.tag else {}
        )
        for field in fields_of(type(value)):
            field_value = getattr(value, field.name)
            if field_value != default_of(value, field):
                fields[field.encode_name] = without_defaults(field_value)
        return fields
    if isinstance(value, (tuple, list)):
        return [without_defaults(item) for item in value]
    return value
