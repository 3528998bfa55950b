"""TensorFlow's adapter with a fault of its strategies of one process; the file ``DLB_SEEDED_FAULT`` names it.

They are what goes wrong between replicas of one process, and what a server may do with what is pushed.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from dlb_tf.plugin import CentralStorage, Mirrored, ParameterServer, TFAdapter

NAME = "faulty-tf"


def seeded() -> str:
    """The name of the fault, which is read for each model: a worker serves one fault after another."""
    return Path(os.environ["DLB_SEEDED_FAULT"]).read_text(encoding="utf-8")


def with_fault(session: Any) -> Any:
    """A session whose optimizers have the fault, under what tells their gradients."""
    right = session.distribute

    def distribute(native: Any) -> Any:
        def make() -> Any:
            made, fault = native(), seeded()
            optimizer = made.optimizer
            add, update = optimizer._all_reduce_sum_gradients, optimizer.update_step
            if fault == "gradients are not added":
                optimizer._all_reduce_sum_gradients = list
            elif fault == "gradients are added again":
                optimizer._all_reduce_sum_gradients = lambda pairs: add(add(pairs))
            elif fault == "one replica's weight is not updated":
                # Of one set of variables, all replicas have the first device's.
                left_out = f"CPU:{len(session.strategy.extended.parameter_devices) > 1:d}"

                def others(gradient: Any, variable: Any, learning_rate: Any) -> None:
                    if variable.shape != (4, 6) or not variable.device.endswith(left_out):
                        update(gradient, variable, learning_rate)

                optimizer.update_step = others
            return made

        return right(make)

    session.distribute = distribute
    return session


class FaultyMirrored(Mirrored):
    """MirroredStrategy for the faulty adapter."""

    frameworks = (NAME,)

    def join(self, rank: int, workers: int) -> Any:
        return with_fault(super().join(rank, workers))


class FaultyCentralStorage(CentralStorage):
    """CentralStorageStrategy for it."""

    frameworks = (NAME,)

    def join(self, rank: int, workers: int) -> Any:
        return with_fault(super().join(rank, workers))


class FaultyParameterServer(ParameterServer):
    """ParameterServerStrategy for it."""

    frameworks = (NAME,)


def push_wrongly(model: Any, fault: str) -> None:
    """Give a model on a server a fault of its pushes."""
    import tensorflow as tf

    def count_alone(*gradients: Any) -> Any:
        return tf.raw_ops.ResourceCountUpTo(resource=model.count.handle, limit=1 << 62, T=tf.int64)

    def pull_alone(inputs: Any, labels: Any) -> Any:
        loss, _, *gradients = model._pull(inputs, labels)
        return loss, tf.constant(0, tf.int64), *gradients

    deal, counting, lost = model._deal, model._dealt(0, count_alone), []
    if fault == "a push is lost while all train as they will":
        model._shares[1] = model._dealt(1, pull_alone)

    def wrongly(function: Any, *arguments: Any) -> Any:
        if function is model._pushes:
            if fault == "one worker's pushes count twice" and model.replica == 1:
                deal(function, *arguments).fetch()
            if fault == "one push is lost" and model.replica == 2 and not lost:
                lost.append(model.replica)
                function = counting
        return deal(function, *arguments)

    model._deal = wrongly


class FaultyTF(TFAdapter):
    """TensorFlow with one fault."""

    name = NAME
    distribution = NAME
    strategies = (FaultyMirrored(), FaultyCentralStorage(), FaultyParameterServer())

    def build_model(self, request: Any, **variant: str) -> Any:
        model, fault = super().build_model(request, **variant), seeded()
        if fault == "replicas have equal masks":
            for name in request.masks:
                (layer,) = model.network.layers[name]
                layer.firsts = [0] * len(layer.firsts)
        elif fault == "shares of replicas overlap":
            import tensorflow as tf

            def divided(batch: Any) -> Any:
                # The last sample of the replica before, and the last one of its own.
                parts = [tf.gather(batch, (max(end - 3, 0), end - 1)) for end in (2, 4, 6)]
                return model.strategy.experimental_distribute_values_from_function(
                    lambda context: parts[context.replica_id_in_sync_group]
                )

            model._divided = divided
        elif "push" in fault:
            push_wrongly(model, fault)
        return model


adapter = FaultyTF()
