"""The data that every stage uses, and the models that stages build."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy.typing as npt

from dlb.adapters import AdapterEnvironment
from dlb.execution.turns import ALL_AT_ONCE, Blocks
from dlb.execution.workers import Workers, start_workers
from dlb.prepared import Prepared
from dlb.proof import divergence
from dlb.proof.certificate import CheckResult
from dlb.proof.findings import Finding
from dlb.proof.findings.workload import SmallerMaps
from dlb.proof.reference import Reference
from dlb.proof.rounding import Rounding, rounding_of
from dlb.request import Reporter, Request
from dlb.supervision.group import Group, Host, Launch
from dlb.supervision.remote import RemoteModel, scratch_file
from dlb_graph.workload.shapes import trained_names
from dlb_worker.contract import PRECISION

__all__ = ["Stage", "drop_at_end"]

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Stage:
    """The data that every stage of one adapter's run uses.

    Attributes:
        environment: the adapter and its interpreter.
        scratch: a folder for the adapter's processes.
        stop: ends the run when it is set.
        keep: receives each result at once, so that a later error loses none.
        blocks: of the steps that are timed, between which others are.
    """

    environment: AdapterEnvironment
    request: Request
    prepared: Prepared
    reporter: Reporter
    scratch: Path
    stop: threading.Event
    keep: Callable[[CheckResult], None]
    blocks: Blocks = ALL_AT_ONCE

    @property
    def adapter(self) -> str:
        """The adapter's name."""
        return self.environment.adapter

    @property
    def rounding(self) -> Rounding:
        """The type that the timed model computes in, if that is not float64."""
        return rounding_of(self.request.variant(self.adapter))

    def _variant(self, mixed: bool) -> dict[str, str]:
        """The adapter's choices; those that round more than the dtype are for what is timed."""
        chosen = self.request.variant(self.adapter)
        return chosen if mixed else {k: v for k, v in chosen.items() if k != PRECISION}

    def phase(self, text: str) -> None:
        """Report the current step to the user."""
        self.reporter.phase(self.adapter, text)

    def start(
        self, name: str, *, single: bool = False, threads: int | None = None
    ) -> AbstractContextManager[Workers]:
        """Start workers in a new folder ``name``.

        Args:
            single: start one worker without the strategy.
            threads: other than those of the request.
        """
        folder = self.scratch / name
        folder.mkdir()
        request = self.request
        launch = Launch(
            adapter=self.adapter,
            python=self.environment.python,
            scratch=folder,
            threads=threads or request.threads,
            strategy="" if single else request.strategy,
            workers=1 if single else request.workers,
            device=request.device,
            call_seconds=request.call_seconds,
            stop=self.stop,
            variables=request.variables,
            hosts=() if single else tuple(map(Host.of, request.hosts)),
        )
        return start_workers(launch, request.seed)

    def build(
        self,
        group: Group,
        dtype: str,
        batch_size: int,
        weights: Mapping[str, Array] | None = None,
        step_scale: float = 0.0,
        clip: float | None = None,
        mixed: bool = False,
        first_row: int = 0,
        of: Reference | None = None,
    ) -> RemoteModel:
        """Build a model for the proof: its dropouts use given masks, and no weight is constant.

        Args:
            dtype: ``float32`` or ``float64``.
            batch_size: samples of a batch, all workers together.
            weights: by ``layer.parameter``; the reference's weights if left out.
            step_scale: relative increase of the learning rate.
            clip: another limit of the workload's clipping; its own if left out.
            mixed: whether it computes in the precision of the timed model.
            first_row: the row of the masks that the first sample has.
            of: whose model, and masks; the ordinary one's if left out.
        """
        reference = of or self.prepared.references.ordinary
        replace = msgspec.structs.replace
        optimizer = self.request.workload.optimizer
        rate = optimizer.learning_rate * (1.0 + step_scale)
        limit = {} if clip is None else {optimizer.clipping: clip}
        workload = replace(
            self.request.workload,
            model=reference.model,
            optimizer=replace(optimizer, learning_rate=rate, **limit),
        )
        return RemoteModel(
            group,
            workload,
            reference.weights if weights is None else weights,
            dtype=dtype,
            batch_size=batch_size,
            masks=reference.masks,
            variant=self._variant(mixed),
            first_row=first_row,
        )

    @contextmanager
    def on_smaller_maps(
        self, group: Group, dtype: str, batch_size: int, model: RemoteModel | None = None
    ) -> Iterator[RemoteModel]:
        """A model for the update checks and the extremes.

        Args:
            model: of the same, on maps of the run's size; it is used where there are no smaller ones.
        """
        references = self.prepared.references
        if model is not None and references.first_update.model is references.ordinary.model:
            yield model
            return
        with drop_at_end(self.build(group, dtype, batch_size, of=references.first_update)) as own:
            yield own

    @property
    def maps(self) -> tuple[Finding, ...]:
        """That the maps of the update checks and the extremes are smaller than the run's, if they are."""
        references = self.prepared.references
        compared, timed = (
            each.model.input.shape for each in (references.first_update, references.ordinary)
        )
        if compared == timed:
            return ()
        return (Finding(cause=SmallerMaps(shape=compared, timed=timed)),)

    def build_plain(
        self,
        group: Group,
        dtype: str,
        batch_size: int,
        weights: Mapping[str, Array],
        mixed: bool = False,
    ) -> RemoteModel:
        """Build a model as it is timed: its dropouts draw their own masks.

        Args:
            mixed: whether it computes in the precision of the timed model.
        """
        return RemoteModel(
            group,
            self.request.workload,
            weights,
            dtype=dtype,
            batch_size=batch_size,
            variant=self._variant(mixed),
        )

    def follow(
        self,
        group: Group,
        dtype: str,
        weights: Mapping[str, Array] | None = None,
        step_scale: float = 0.0,
        at_end: Callable[[RemoteModel], None] | None = None,
    ) -> list[divergence.Changes]:
        """Train a new model; the changes from the reference's weights after each observed step.

        Args:
            weights: weights at the start, by ``layer.parameter``; the reference's if left out.
            step_scale: relative increase of the learning rate.
            at_end: receives the trained model.
        """
        batches, reference = self.prepared.update_batches, self.prepared.references.first_update
        trained = {name: reference.weights[name] for name in trained_names(reference.model)}
        with drop_at_end(
            self.build(group, dtype, batches.batch_size, weights, step_scale, of=reference)
        ) as model:
            path, folder = batches.path(dtype), scratch_file(group, "")
            changes = divergence.follow(
                model, path, batches.order, batches.numbers, folder, trained
            )
            if at_end is not None:
                at_end(model)
            return changes


@contextmanager
def drop_at_end(model: RemoteModel) -> Iterator[RemoteModel]:
    """Drop the model at the end of the block. After an error its worker may be gone, so nothing is done."""
    yield model
    model.drop()
