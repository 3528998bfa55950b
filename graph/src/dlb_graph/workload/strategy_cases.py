"""Small workloads on which K workers must end as one does, one for each case that a strategy may claim."""

from __future__ import annotations

from typing import Any

from dlb_graph.layers import BatchNorm, Dropout, Embedding, Linear, Tanh
from dlb_graph.losses import SoftmaxCrossEntropy
from dlb_graph.optimizers import SGD, Adam
from dlb_graph.workload.model import Data, Input, Model, Node, Workload
from dlb_worker.contract import ASYNCHRONOUS_CASES, CASES

__all__ = ["STRATEGY_CASES"]

CLASSES = 5
_FC, _TANH = Node(name="fc", layer=Linear(out_features=6)), Node(name="tanh", layer=Tanh())
_LOGITS = Node(name="logits", layer=Linear(out_features=CLASSES))
_TABLE = Node(name="table", layer=Embedding(entries=9, features=6))
_TIED = Node(name="logits", layer=Linear(out_features=9, tied_to="table", bias=False))
_NORM = Node(name="norm", layer=BatchNorm(momentum=0.7))
_DROP = Node(name="drop", layer=Dropout(rate=0.4))


def _case(
    batch_size: int = 6, *between: Node, model: Model | None = None, **fields: Any
) -> Workload:
    """A workload; fields are those of SGD, or ``loss`` and ``optimizer``."""
    nodes = (_FC, _TANH, *between, _LOGITS)
    loss = fields.pop("loss", SoftmaxCrossEntropy())
    other = fields.pop("optimizer", None)
    return Workload(
        name="case",
        batch_size=batch_size,
        data=Data(name="made-up"),
        loss=loss,
        optimizer=other or SGD(learning_rate=0.05, momentum=0.9, **fields),
        model=model or Model(input=Input(shape=(4,)), nodes=nodes),
    )


_WORDS = Model(input=Input(shape=(3,), kind="index"), nodes=(_TABLE, _TANH, _TIED))

#: Batches of 6 divide by 2 and 3, those of 5 by neither. 10 in two parts are 6 and 4, or 4, 4 and 2. One worker
#: takes that of ``local_statistics`` in K parts.
STRATEGY_CASES = {
    "equal_shares": _case(),
    "unequal_shares": _case(5),
    "ignored_labels": _case(loss=SoftmaxCrossEntropy(ignore_index=0)),
    "accumulation": _case(10, accumulate=2),
    "clip_binds": _case(clip_norm=1e-3),
    "clip_idle": _case(clip_norm=1e3),
    "tied_weights": _case(model=_WORDS),
    "weight_decay": _case(weight_decay=0.1, weight_decay_on="weights"),
    "local_statistics": _case(6, _NORM),
    "global_statistics": _case(6, _NORM),
    "dropout": _case(6, _DROP),
    "adam": _case(optimizer=Adam(learning_rate=0.01)),
    "stale_gradients": _case(),
    "every_push_counts": _case(optimizer=SGD(learning_rate=0.05)),
}
assert STRATEGY_CASES.keys() == {**CASES, **ASYNCHRONOUS_CASES}.keys()
