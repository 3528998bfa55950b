"""Operations and bytes of a training step. The test of dlb-torch compares operations with torch's own count."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from dlb.catalogue import load_workload
from dlb_graph import workload as W
from dlb_graph.workload.work import Work, step_work

#: Multiply-adds of one image's forward pass as others count them, and how far ours may be off: some count
#: no linear layers, another input size or other strides.
PUBLISHED = [
    # He et al., arXiv:1512.03385, table 1.
    ("resnet-50", 3.8e9, 0.02),
    # torchvision's table of models (docs.pytorch.org/vision/stable/models.html), column GFLOPS.
    ("vgg-19", 19.63e9, 0.001),
    ("inception-v3", 5.71e9, 0.001),
    # Szegedy et al., arXiv:1409.4842, section 1.
    ("googlenet", 1.5e9, 0.06),
    # Howard et al., arXiv:1704.04861, table 8.
    ("mobilenet-v1", 569e6, 0.001),
    # github.com/albanie/convnet-burden, of Caffe's model.
    ("alexnet", 727e6, 0.01),
]


@pytest.mark.parametrize(("name", "multiply_adds", "apart"), PUBLISHED)
def test_operations_are_those_that_others_publish(
    name: str, multiply_adds: float, apart: float
) -> None:
    operations = step_work(load_workload(name), 1).forward.operations
    assert operations == pytest.approx(2 * multiply_adds, rel=apart)


def workload(*nodes: W.Node, shape: tuple[int, ...] = (8,), **optimizer: Any) -> W.Workload:
    model = W.Model(input=W.Input(shape=shape), nodes=nodes)
    return W.Workload(
        name="small",
        title="small",
        model=model,
        data=W.Data(name="synthetic"),
        batch_size=4,
        loss=W.SoftmaxCrossEntropy(),
        optimizer=W.SGD(learning_rate=0.1, **optimizer),
    )


def node(name: str, layer: W.Layer, *inputs: str) -> W.Node:
    return W.Node(name=name, layer=layer, inputs=inputs)


def test_a_perceptron_by_hand() -> None:
    """8 inputs, 6 hidden, 3 outputs; 54 + 21 weights, of which 48 + 18 in matrices; a batch of 4."""
    counted = step_work(
        workload(
            node("hidden", W.Linear(out_features=6)),
            node("bend", W.ReLU()),
            node("out", W.Linear(out_features=3)),
        ),
        4,
    )
    # Inputs are read, hidden values written and read, outputs written and read by the loss; labels are read.
    read_and_written = 4 * (8 + 6 + 6 + 3 + 3)
    assert counted.forward == Work(2 * 4 * 66, 4 * (read_and_written + 75) + 8 * 4)
    # Gradients of both values are written and read; both inputs are read again; one matrix is; all weights'
    # gradients are written.
    again = 4 * (2 * (6 + 3) + 8 + 6)
    assert counted.backward == Work(2 * 4 * (2 * 18 + 48), 4 * (again + 18 + 75))
    assert counted.update == Work(2 * 75, 4 * 3 * 75)


def test_targets_are_read_as_the_outputs_are() -> None:
    """Three real numbers a sample, for an integer."""
    nodes = (node("out", W.Linear(out_features=3)),)
    classes = workload(*nodes)
    numbers = msgspec.structs.replace(classes, loss=W.SquaredError())
    apart = step_work(numbers, 4).forward.bytes - step_work(classes, 4).forward.bytes
    assert apart == 4 * (3 * 4 - 8)


def test_a_sum_is_made_in_place_of_the_branch_that_nobody_else_reads() -> None:
    branches = (
        node("first", W.Linear(out_features=8)),
        node("second", W.Linear(out_features=8), "first"),
        node("sum", W.Add(), "first", "second"),
    )
    without = step_work(workload(*branches[:2]), 1)
    counted = step_work(workload(*branches), 1)
    # Only the first branch is read once more; and its gradient is the sum's.
    assert counted.forward.bytes - without.forward.bytes == 4 * 8
    assert counted.backward == without.backward


def test_a_value_that_two_layers_read_is_not_overwritten() -> None:
    read_by_two = (
        node("map", W.Linear(out_features=8)),
        node("bend", W.ReLU(), "map"),
        node("sum", W.Add(), "map", "bend"),
    )
    alone = step_work(workload(read_by_two[0]), 1)
    counted = step_work(workload(*read_by_two), 1)
    # The bent values are read from one place and written to another, and the sum is made there.
    assert counted.forward.bytes - alone.forward.bytes == 4 * (8 + 8 + 8)


def test_layers_that_only_rearrange_cost_nothing() -> None:
    maps = (node("conv", W.Conv(out_channels=2, kernel=(1, 1))), node("flat", W.Flatten()))
    shape = (1, 4, 4)
    both, alone = (step_work(workload(*nodes, shape=shape), 1) for nodes in (maps, maps[:1]))
    assert both.operations == alone.operations and both.backward == alone.backward


def test_decay_of_weights_alone_costs_nothing_for_biases() -> None:
    optimizer = {"weight_decay": 0.1, "weight_decay_on": "weights"}
    counted = step_work(workload(node("out", W.Linear(out_features=3)), **optimizer), 1)
    assert counted.update == Work(27 * 2 + 24 * 2, 27 * 3 * 4)


@pytest.mark.parametrize(
    ("optimizer", "operations", "numbers"),
    [
        ({}, 2, 3),
        ({"momentum": 0.9}, 4, 5),
        ({"momentum": 0.9, "nesterov": True}, 6, 5),
        ({"momentum": 0.9, "weight_decay": 0.1, "clip_norm": 1.0}, 9, 6),
    ],
)
def test_the_update_is_that_of_the_optimizer(
    optimizer: dict[str, float], operations: int, numbers: int
) -> None:
    counted = step_work(workload(node("out", W.Linear(out_features=3)), **optimizer), 1)
    assert counted.update == Work(27 * operations, 27 * numbers * 4)


@pytest.mark.parametrize(
    ("optimizer", "operations", "numbers"),
    [
        (W.Adam(), 14, 7),
        (W.AdamW(), 16, 7),
        (W.AdamW(amsgrad=True), 17, 9),
        (W.RMSprop(), 9, 5),
        (W.RMSprop(momentum=0.9, clip_value=1.0), 13, 7),
        (W.Adagrad(), 7, 5),
        (W.Adadelta(), 16, 7),
        (W.Adamax(), 11, 7),
    ],
    ids=repr,
)
def test_the_update_has_the_arithmetic_of_the_definition(
    optimizer: W.Optimizer, operations: int, numbers: int
) -> None:
    described = workload(node("out", W.Linear(out_features=3)))
    described = msgspec.structs.replace(described, optimizer=optimizer)
    assert step_work(described, 1).update == Work(27 * operations, 27 * numbers * 4)


def test_values_may_take_fewer_bytes_than_weights() -> None:
    described = workload(node("out", W.Linear(out_features=3)))
    plain, mixed = step_work(described, 4), step_work(described, 4, value_bytes=2)
    assert mixed.operations == plain.operations and mixed.update == plain.update
    # Inputs are read in both passes; outputs are written and read, and so is their gradient.
    assert plain.bytes - mixed.bytes == 2 * 4 * (2 * 8 + 4 * 3)


def test_layers_whose_values_nobody_uses_are_left_out() -> None:
    used = (node("out", W.Linear(out_features=3)),)
    beside = (node("unused", W.Linear(out_features=100)), node("out", used[0].layer, "input"))
    assert step_work(workload(*beside), 1).forward == step_work(workload(*used), 1).forward
