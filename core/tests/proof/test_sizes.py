"""How large the checks of a model are."""

from __future__ import annotations

import pytest

from dlb.proof.sizes import LARGE, LARGEST, proof_sizes
from dlb.workload import BatchNorm, Conv, Input, Model, Node, multiply_adds


def model(side: int, *more: object) -> Model:
    """A convolution of 9 * 64 * 64 multiply-adds for each place."""
    conv = Conv(out_channels=64, kernel=(3, 3), pads=(1, 1, 1, 1))
    layers = (conv, *more)
    nodes = tuple(Node(name=f"n{place}", layer=layer) for place, layer in enumerate(layers))
    return Model(input=Input(shape=(64, side, side)), nodes=nodes)


@pytest.mark.parametrize(
    ("side", "more", "sizes"),
    [
        (32, (), (16, 4, 20)),
        (128, (), (4, 4, 20)),
        (300, (), (2, 2, 5)),
        (300, (BatchNorm(),), (4, 4, 5)),
    ],
)
def test_a_sample_that_costs_more_has_fewer_beside_it(
    side: int, more: tuple[object, ...], sizes: tuple[int, int, int]
) -> None:
    given = model(side, *more)
    work = sum(multiply_adds(given).values())
    assert (work > LARGE, work > LARGEST) == (sizes[0] < 16, sizes[2] < 20)
    found = proof_sizes(given)
    assert (found.batch, found.update, found.steps) == sizes
    assert found.extremes > 1  # statistics of one sample are none
