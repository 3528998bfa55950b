"""Which smaller maps exercise a network as its own do."""

from __future__ import annotations

import msgspec
import pytest

from dlb_graph.workload import Model, infer_shapes, parameter_shapes
from dlb_graph.workload.files import load
from dlb_graph.workload.smaller_maps import on_smaller_maps


@pytest.mark.parametrize(
    ("name", "size"), [("resnet-50", 84), ("inception-v3", 149), ("vgg-19", 224), ("vit-tiny", 224)]
)
def test_a_shipped_network(name: str, size: int) -> None:
    """Where linear layers read a whole map, or positions have weights, there is no smaller one."""
    model = load(name).model
    smaller = on_smaller_maps(model)
    assert smaller.input.shape == (3, size, size)
    assert parameter_shapes(smaller) == parameter_shapes(model)


NODES = [
    {
        "name": "first",
        "layer": {"type": "conv", "out_channels": 2, "kernel": [3, 3], "pads": [1] * 4},
    },
    {"name": "mean", "layer": {"type": "global_average_pool"}},
    {"name": "flat", "layer": {"type": "flatten"}},
    {"name": "last", "layer": {"type": "linear", "out_features": 2}},
]


def _made(size: list[int], **first: object) -> Model:
    nodes = [{**NODES[0], "layer": {**NODES[0]["layer"], **first}}, *NODES[1:]]  # type: ignore[dict-item]
    return msgspec.convert({"input": {"shape": size}, "nodes": nodes}, Model)


def test_a_window_is_no_larger_than_its_map() -> None:
    """A dilated window counts by its reach, and one that was larger than its map may stay so."""
    assert on_smaller_maps(_made([3, 16, 16])).input.shape == (3, 4, 4)
    assert on_smaller_maps(_made([3, 16, 16], dilation=[4, 4], pads=[4] * 4)).input.shape[1] == 10
    assert on_smaller_maps(_made([3, 8, 8], dilation=[4, 4], pads=[4] * 4)).input.shape[1] == 8


def test_a_map_keeps_two_places_and_its_proportions() -> None:
    """Strides leave what the run's size has."""
    smaller = on_smaller_maps(_made([3, 32, 64], stride=[8, 8]))
    assert infer_shapes(smaller)["first"][1:] == (2, 3)
    assert smaller.input.shape == (3, 12, 24)
