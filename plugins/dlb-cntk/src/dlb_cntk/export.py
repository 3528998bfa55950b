"""ONNX by CNTK's own exporter: operator set 9, the batch axis fixed at 1."""

from pathlib import Path
from typing import Any

import cntk as C

from dlb_worker.errors import UnsupportedError


def export(model: Any, path: Path) -> str:
    """Write the network in evaluation mode, weights inside.

    Raises:
        UnsupportedError: there is something that CNTK has and its exporter does not.
    """
    described = model.workload.model
    if described.input.kind == "index":
        raise UnsupportedError("CNTK exports no model that reads integers: its inputs are all real")
    for node in described.nodes:
        if node.kind == "slice" and any(step != 1 for _, _, step in node.ranges):
            raise UnsupportedError(f"CNTK does not export the steps of slice '{node.name}'")
    C.combine([model.logits]).save(str(path), format=C.ModelFormat.ONNX)
    return f"Function.save(format=ModelFormat.ONNX) {C.__version__}"
