"""Every check of a user's model and of a file by name, and the groups of checks that do not apply to them.

The tables of checks in the documentation are compared with these.
"""

from __future__ import annotations

from collections.abc import Mapping

from dlb.proof.certificate import CheckGroup, Inapplicable
from dlb.proof.check_table import Ability, CheckKind

__all__ = ["EVALUATION_ONLY", "FILE", "FLOAT32_ONLY", "NOT_OF_FILES", "NOT_OF_PORTS", "PORT"]

_K = CheckKind
_T: frozenset[Ability] = frozenset({"training"})
_64: frozenset[Ability] = frozenset({"float64"})
_T64, _SETTINGS = _T | _64, _T | frozenset[Ability]({"settings"})
_STATISTICS, _STEPS = (
    _T64 | frozenset[Ability]({"statistics"}),
    _T64 | frozenset[Ability]({"own steps"}),
)
_BITS = "the same bits"

# fmt: off
#: The checks of a user's model, against another user's model.
PORT: Mapping[str, CheckKind] = {kind.name: kind for kind in (
    _K("weights", "weights", "model_weights", _BITS),
    _K("settings", "structure", "model", "equal", _SETTINGS, reason="finding"),
    _K("forward", "forward", "model", "1e-10", _64),
    _K("layers", "layers", "model", "1e-10", _64),
    _K("forward, training", "forward", "model", "1e-10", _T64, "forward"),
    _K("running statistics", "forward", "model_statistics", "1e-10", _STATISTICS),
    _K("gradients", "gradients", "model", "1e-10", _T64),
    _K("trajectory", "trajectory", "model", "1e-10", _T64),
    _K("own steps", "update", "model", "1e-10", _STEPS),
    _K("forward float32", "float32", "model", "20 times the smaller error, and at least 2e-5"),
    _K("gradients float32", "float32", "model",
       "20 times the better model's error, or what rounding the weights makes", _T),
    _K("running statistics float32", "float32", "model_statistics", "1e-4", _STATISTICS - _64),
    _K("export", "export", "own_model", "1e-5"),
)}
#: The checks of a file, against another file.
FILE: Mapping[str, CheckKind] = {kind.name: kind for kind in (
    _K("structure", "structure", "onnx_file", "equal", reason="finding"),
    _K("weights", "weights", "onnx_file", _BITS, reason="finding"),
    _K("forward float64", "forward", "onnx_file", "1e-10", reason="finding"),
    _K("layers", "layers", "onnx_file", "as before", reason="finding"),
    _K("forward float32", "float32", "onnx_file", "20 times the distance of the nearer one, and at least 2e-5"),
)}
# fmt: on
#: Groups that do not apply to a file, which holds no training, nor to a port of which a model is a file.
EVALUATION_ONLY: Mapping[CheckGroup, Inapplicable] = {
    "gradients": "evaluation_only",
    "trajectory": "evaluation_only",
}
#: What is not compared of a port that runs in float32 only.
FLOAT32_ONLY: Mapping[CheckGroup, Inapplicable] = {
    "forward": "float32_only",
    "layers": "float32_only",
    "gradients": "float32_only",
    "trajectory": "float32_only",
}
#: Groups that do not apply to any port, with the reason.
NOT_OF_PORTS: Mapping[CheckGroup, Inapplicable] = {
    "file": "no_description",
    "update": "no_optimizer",
    "audit": "not_timed",
    "structure": "no_description",
    "export": "not_asked",
    "distributed": "one_worker",
}
#: The same for two files.
NOT_OF_FILES: Mapping[CheckGroup, Inapplicable] = {
    "file": "no_description",
    **EVALUATION_ONLY,
    "update": "evaluation_only",
    "audit": "not_timed",
    "export": "is_exported",
    "distributed": "one_worker",
}
