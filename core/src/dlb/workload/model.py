"""A model: a graph of named layers. A workload: a model, its data, loss, optimizer, schedule."""

from __future__ import annotations

import hashlib
from typing import Literal

import msgspec

from dlb.workload.layers import Layer
from dlb.workload.training import Constant, Loss, Optimizer, Schedule

__all__ = ["Augmentation", "Data", "Input", "Model", "Node", "Workload", "workload_hash"]


class Input(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the model reads: the shape of one sample, without the batch axis.

    Attributes:
        name: what nodes call it.
        shape: of one sample, e.g. (1, 28, 28) for [C, H, W] or (20,) for 20 tokens.
        kind: ``real`` (the run's floating type) or ``index`` (int64, for an embedding).
    """

    name: str = "input"
    shape: tuple[int, ...]
    kind: Literal["real", "index"] = "real"


class Node(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One layer in the graph.

    Attributes:
        name: unique; parameters are called ``name.parameter``.
        layer: what it computes.
        inputs: names of nodes or of the model's input; left empty, the node before this one.
    """

    name: str
    layer: Layer
    inputs: tuple[str, ...] = ()


class Model(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A directed acyclic graph of layers, in an order in which each follows its inputs.

    The last node gives the logits, [N, classes] or [N, T, classes].
    """

    input: Input
    nodes: tuple[Node, ...]

    def wired(self) -> tuple[Node, ...]:
        """The nodes with their inputs written out."""
        nodes: list[Node] = []
        previous = self.input.name
        for node in self.nodes:
            nodes.append(node if node.inputs else msgspec.structs.replace(node, inputs=(previous,)))
            previous = node.name
        return tuple(nodes)


class Augmentation(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is done to an image each time that it is trained on.

    Attributes:
        area: least and largest share of the image as it is stored that is cut out of it at a random
            place and resized to the input (Szegedy et al. 2015, arXiv:1409.4842, section 6); of
            (1, 1) nothing is.
        aspect: least and largest width by height of what ``area`` cuts.
        pad: zeros that are put on each side of the input [C, H, W], after normalisation, of which a
            window of its own size is then cut at a random place; below H and W.
        flip: whether it is mirrored left to right with a probability of 1/2.
    """

    area: tuple[float, float] = (1.0, 1.0)
    aspect: tuple[float, float] = (3 / 4, 4 / 3)
    pad: int = 0
    flip: bool = False

    @property
    def resizes(self) -> bool:
        """Whether parts of images are resized, so that each visit of an image is another sample."""
        return self.area != (1.0, 1.0)

    @property
    def moves(self) -> bool:
        """Whether there is something left to do once images have the input's size."""
        return bool(self.pad) or self.flip


class Data(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The data set and how images become inputs: ``(value / 255 - mean) / std`` a channel.

    Attributes:
        name: of a data set, or of a kind of local data.
        mean, std: as many numbers each, of images alone.
        path: of local data, where they are.
        labels: of a pair of IDX files, the second one.
        augmentation: of the images that are trained on.
    """

    name: str
    mean: tuple[float, ...] = (0.0,)
    std: tuple[float, ...] = (1.0,)
    path: str = ""
    labels: str = ""
    augmentation: Augmentation = Augmentation()


class Workload(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Everything that two frameworks must agree on to have run the same thing.

    Attributes:
        name: what the command line calls it.
        title, source: for people: what it is, and the paper and table it is from.
        batch_size, epochs: defaults of a run.
        model, data, loss, optimizer, schedule: what is trained, on what, and how.
        onnx: SHA-256 (hex) of the ONNX file that the model and its weights were read from; empty
            where weights are seeded.
    """

    name: str
    title: str = ""
    source: str = ""
    batch_size: int
    epochs: int = 1
    data: Data
    loss: Loss = Loss()
    optimizer: Optimizer
    schedule: Schedule = Constant()
    model: Model
    onnx: str = ""


def workload_hash(workload: Workload) -> str:
    """SHA-256 (hex) of what the workload means.

    Name, title and source are left out, inputs are written out, and so are fields at their
    default, so that a field added to the format in future leaves old hashes as they are.
    """
    model = msgspec.structs.replace(workload.model, nodes=workload.model.wired())
    bare = msgspec.structs.replace(workload, name="", title="", source="", model=model)
    return hashlib.sha256(
        msgspec.json.encode(without_defaults(bare), order="deterministic")
    ).hexdigest()


def without_defaults(value: object) -> object:
    """Plain containers of a description, less the fields that stand at their default."""
    if isinstance(value, msgspec.Struct):
        config = value.__struct_config__
        fields: dict[str, object] = (
            {config.tag_field: config.tag} if config.tag_field and config.tag else {}
        )
        for field in msgspec.structs.fields(value):
            held = getattr(value, field.name)
            if held != field.default:
                fields[field.encode_name] = without_defaults(held)
        return fields
    if isinstance(value, (tuple, list)):
        return [without_defaults(item) for item in value]
    return value
