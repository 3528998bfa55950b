"""ONNX by CNTK's own exporter: operator set 9, the batch axis fixed at 1."""

from pathlib import Path
from typing import Any

import cntk as C

__all__ = ["export"]


def export(model: Any, path: Path) -> str:
    """Write the network in evaluation mode, weights inside."""
    C.combine([model.logits]).save(str(path), format=C.ModelFormat.ONNX)
    return "Function.save(format=ModelFormat.ONNX) {}".format(C.__version__)
