"""ONNX files in which numbers in fixed places are replaced by one number."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from test_imported import CONV, TAIL, before_head, conv, kinds, node, real, saved

from dlb.errors import DlbError
from dlb.proof.checks.file import check_file
from dlb_graph import workload as W
from dlb_graph.files.read import import_file
from dlb_worker.masks import packed

#: Places of a map [4, 5, 6] that stay: some of each row.
KEPT = (np.arange(30) % 4 > 0).reshape(5, 6)
LOWEST = float(np.finfo(np.float32).min)


def masked(*nodes: onnx.NodeProto, **held: np.ndarray) -> onnx.ModelProto:
    """Nodes from the map ``c`` [4, 5, 6] to scores ``s``, a softmax of these, and a linear layer."""
    last = node("Softmax", ["s"], ["h"], axis=-1)
    return before_head([conv(), *nodes, last], {**CONV, **held}, 120)


def mask(kept: np.ndarray, value: float = LOWEST) -> W.Mask:
    sizes = (1,) * (3 - kept.ndim) + kept.shape
    return W.Mask(sizes=sizes, kept=packed(kept), value=value)


ADDED = np.where(KEPT, 0, -np.inf).astype("f4")
FILES: dict[str, tuple[onnx.ModelProto, list[W.Layer]]] = {
    "a choice": (
        masked(node("Where", ["kept", "c", "low"], ["s"]), kept=KEPT, low=np.float32(-7.3)),
        [mask(KEPT, float(np.float32(-7.3)))],
    ),
    "a choice the other way round": (
        masked(node("Where", ["left", "low", "c"], ["s"]), left=~KEPT, low=np.float32(-np.inf)),
        [mask(KEPT)],
    ),
    "a choice between a map and equal numbers": (
        masked(
            node("Where", ["kept", "c", "low"], ["s"]),
            kept=np.broadcast_to(KEPT, (1, 4, 5, 6)),
            low=np.where(KEPT, real(4, 5, 6), 0.5).astype("f4"),
        ),
        [mask(KEPT, 0.5)],
    ),
    "a choice of all": (
        masked(
            node("Where", ["all", "c", "low"], ["t"]),
            node("Tanh", ["t"], ["s"]),
            all=np.ones((5, 6), bool),
            low=np.float32(1),
        ),
        [W.Tanh()],
    ),
    "minus infinity is added": (
        masked(node("Add", ["c", "mask"], ["s"]), mask=ADDED),
        [mask(KEPT)],
    ),
    "a number that stands for it is added": (
        masked(node("Add", ["c", "mask"], ["s"]), mask=np.where(KEPT, 0, -1e32).astype("f4")),
        [mask(KEPT)],
    ),
    "infinity is subtracted": (
        masked(node("Sub", ["c", "mask"], ["s"]), mask=-ADDED),
        [mask(KEPT)],
    ),
    "minus infinity for a column": (
        masked(node("Add", ["c", "mask"], ["s"]), mask=ADDED[:1]),
        [mask(KEPT[:1])],
    ),
    "minus infinity for a column of each channel": (
        masked(
            node("Add", ["c", "mask"], ["s"]),
            mask=np.where(np.arange(24).reshape(4, 1, 6) % 5 > 0, 0, LOWEST).astype("f4"),
        ),
        [mask(np.arange(24).reshape(4, 1, 6) % 5 > 0)],
    ),
    "minus infinity among other numbers": (
        masked(
            node("Add", ["c", "mask"], ["s"]), mask=np.where(KEPT, real(5, 6), -np.inf).astype("f4")
        ),
        [W.Shift(sizes=(1, 5, 6)), mask(KEPT)],
    ),
    "channels last": (
        masked(
            node("Transpose", ["c"], ["t"], perm=[0, 2, 3, 1]),
            node("Where", ["kept", "t", "low"], ["u"]),
            node("Transpose", ["u"], ["s"], perm=[0, 3, 1, 2]),
            kept=KEPT[:, :, None],
            low=np.float32(LOWEST),
        ),
        [mask(KEPT)],
    ),
    "a map that is repeated": (
        masked(
            node("ReduceMean", ["c"], ["m"], axes=[2], keepdims=1),
            node("Where", ["kept", "m", "low"], ["s"]),
            kept=KEPT,
            low=np.float32(-1e4),
        ),
        [
            W.Reduce(function="mean", axes=(2,), keepdims=True),
            W.Gather(axis=2, indices=(0,) * 5),
            mask(KEPT, -1e4),
        ],
    ),
}


@pytest.mark.parametrize("name", FILES)
def test_a_mask_is_read_as_its_layer(name: str, tmp_path: Path) -> None:
    model, layers = FILES[name]
    found = import_file(saved(tmp_path, model))
    assert check_file(found).verdict == "passed"
    assert kinds(found.workload.model) == [
        *("conv", *map(W.type_name, layers)),
        *("softmax", *TAIL),
    ]
    read = [each.layer for each in found.workload.model.nodes[1:]]
    assert read[: len(layers)] == layers


REFUSED = {
    "several numbers": (
        masked(node("Where", ["kept", "c", "low"], ["s"], name="n"), kept=KEPT, low=real(6)),
        "node 'n' (Where): only one value and one constant number",
    ),
    "two values": (
        masked(
            node("Tanh", ["c"], ["t"]),
            node("Where", ["kept", "c", "t"], ["s"], name="n"),
            kept=KEPT,
        ),
        "node 'n' (Where): only one value and one constant number",
    ),
    "nothing": (
        masked(
            node("Where", ["kept", "c", "low"], ["s"], name="n"),
            kept=np.zeros((5, 6), bool),
            low=np.float32(1),
        ),
        "node 'n' (Where): makes a constant of the input",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_no_mask_is_refused(name: str, tmp_path: Path) -> None:
    model, message = REFUSED[name]
    with pytest.raises(DlbError) as raised:
        import_file(saved(tmp_path, model))
    assert message in str(raised.value)
