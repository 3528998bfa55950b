"""The parts of a batch, and the mean of what they give."""

import numpy as np

from dlb_worker.model import Optimizer
from dlb_worker.parts import in_parts, mean_gradients, rows_by_rank


def test_parts_are_equal_and_in_order():
    inputs, labels = np.arange(12).reshape(6, 2), np.arange(6)
    parts = list(in_parts(3, inputs, labels))
    assert [part[0].tolist() for part in parts] == [
        [[0, 1], [2, 3]],
        [[4, 5], [6, 7]],
        [[8, 9], [10, 11]],
    ]
    assert [part[1].tolist() for part in parts] == [[0, 1], [2, 3], [4, 5]]


def test_a_batch_may_be_one_part():
    ((inputs, labels),) = in_parts(1, np.arange(4), np.arange(4))
    assert inputs.tolist() == labels.tolist() == [0, 1, 2, 3]


def test_gradients_are_averaged_by_name():
    parts = ({"w": np.array([1.0, 2.0]) * n, "loss": np.array(float(n))} for n in (1, 2, 6))
    found = mean_gradients(parts)
    assert found["w"].tolist() == [3.0, 6.0] and found["loss"] == 3.0


def test_those_of_one_part_are_as_they_are():
    gradient = np.array([1.0, 2.0])
    assert mean_gradients([{"w": gradient}])["w"] is gradient


def test_a_core_that_names_no_parts_has_one():
    assert Optimizer("sgd", {"learning_rate": 0.1}).accumulate == 1
    assert Optimizer("sgd", {"learning_rate": 0.1, "accumulate": 4}).accumulate == 4


def test_neighbours_have_the_same_samples_where_there_are_fewer_shares():
    assert rows_by_rank((3, 2), 2) == [slice(0, 3), slice(3, 5)]
    assert rows_by_rank((5,), 3) == [slice(0, 5)] * 3
    assert rows_by_rank((3, 2), 4) == [slice(0, 3)] * 2 + [slice(3, 5)] * 2
