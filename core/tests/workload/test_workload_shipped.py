"""The workloads that come with dlb: made by the script beside the tests, and known networks."""

from __future__ import annotations

import math
import sys
from pathlib import Path

import pytest

from dlb_graph import workload as W
from dlb_graph.workload import files
from dlb_graph.workload.shapes import trained_names

MAKER = Path(__file__).parents[2] / "workloads"
sys.path.insert(0, str(MAKER))
import make  # noqa: E402

#: Trained parameters that others count: torchvision's models of the same networks (AlexNet's two
#: towers: Krizhevsky et al. 2012 say 60 million), Keras' MobileNet, Caffe's cifar10_quick.
COUNTED = {
    "vgg-19": 143_667_240,
    "resnet-50": 25_557_032,
    "mobilenet-v1": 4_231_976,
    "caffe-cifar10": 145_578,
    "caffe-mnist": 431_080,
    "ptb-lstm": 4_651_600,
}


@pytest.mark.parametrize("workload", make.WORKLOADS, ids=lambda workload: workload.name)
def test_a_file_is_what_the_script_makes(workload: W.Workload) -> None:
    assert files.load(workload.name) == workload
    path = Path(str(files.shipped_folder())) / f"{workload.name}.toml"
    assert path.read_text(encoding="utf-8") == make.text_of(workload)


@pytest.mark.parametrize(("name", "count"), COUNTED.items())
def test_known_networks_have_the_parameters_that_others_count(name: str, count: int) -> None:
    model = files.load(name).model
    shapes = W.parameter_shapes(model)
    assert sum(math.prod(shapes[key]) for key in trained_names(model)) == count
