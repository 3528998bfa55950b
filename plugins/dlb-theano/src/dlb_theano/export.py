"""ONNX by the adapter: Theano has no exporter."""

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import onnx

from dlb_worker.onnx_file import write_model
from dlb_worker.onnx_graph import onnx_model

if TYPE_CHECKING:
    from dlb_theano.model import TheanoModel


def export(model: "TheanoModel", path: Path) -> str:
    """Write the network in evaluation mode, weights inside, the batch axis free."""
    written = onnx_model(model.workload.model, model.dtype, "dlb-theano")
    weights = {each.name: partial(model.canonical, each) for each in model.parameters}
    write_model(path, written, weights)
    return "onnx.helper {}, by dlb-theano".format(onnx.__version__)
