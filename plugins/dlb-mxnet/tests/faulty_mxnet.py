"""MXNet's adapter with a fault of its strategy ``local``: the file ``DLB_SEEDED_FAULT`` has its name.

They are what goes wrong between replicas of one process, and cannot between processes.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from dlb_mxnet.plugin import Local, MXNetAdapter

NAME = "faulty-mxnet"


def seeded() -> str:
    """The name of the fault, which is read for each model: a worker serves one fault after another."""
    return Path(os.environ["DLB_SEEDED_FAULT"]).read_text(encoding="utf-8")


class FaultyLocal(Local):
    """The KVStore of one process for the faulty adapter."""

    frameworks = (NAME,)

    def join(self, rank: int, workers: int) -> Any:
        from dlb_mxnet.strategy import LocalSession

        session = LocalSession(rank, workers)
        right = session.distribute

        def distribute(native: Any) -> Any:
            fault, trainer = seeded(), right(native)
            if fault == "gradients are not added":
                trainer._kvstore_params["kvstore"] = None
            elif fault == "gradients are added again":
                add = trainer._allreduce_grads
                trainer._allreduce_grads = lambda: [add(), add()]
            elif fault == "one replica's weight is not updated":
                update, shape = trainer._updaters[1], (6, 4)

                def others(indices: Any, gradients: Any, weights: Any) -> None:
                    found = [
                        each for each in zip(indices, gradients, weights) if each[2].shape != shape
                    ]
                    update(*map(list, zip(*found)))

                trainer._updaters[1] = others
            return trainer

        session.distribute = distribute  # type: ignore[method-assign]
        return session


class FaultyMXNet(MXNetAdapter):
    """MXNet with one fault."""

    name = NAME
    distribution = NAME
    strategies = (FaultyLocal(),)

    def build_model(self, request: Any, **variant: str) -> Any:
        model = super().build_model(request, **variant)
        fault = seeded()
        if fault == "replicas have equal masks":
            for name, mask in request.masks.items():
                model.write(model.network.layers[name].mask, mask)
        elif fault == "shares of replicas overlap":
            ends = [2, 4, 6]
            model._divided = lambda batch: [
                batch.take(_places(end), mode="wrap").as_in_context(context)
                for end, context in zip(ends, model.contexts)
            ]
        return model


def _places(end: int) -> Any:
    """The last sample of the replica before, and the last one of its own."""
    import mxnet as mx

    return mx.nd.array([max(end - 3, 0), end - 1])


adapter = FaultyMXNet()
