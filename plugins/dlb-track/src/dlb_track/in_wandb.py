"""Results as runs of Weights & Biases, offline unless ``WANDB_MODE`` says otherwise."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dlb.errors import RequestError
from dlb.printable import printable
from dlb_track.tracked import Tracked, needs, tracked_runs

__all__ = ["export"]

PROJECT = "dlb"


def export(folder: Path, rows: Sequence[Mapping[str, Any]], output: str | None) -> str:
    """Write results as runs; those that are in the folder already are left as they are.

    Args:
        folder: the results folder.
        rows: the results.
        output: the folder in which ``wandb/`` is made; the current one if None. The project is that of
            ``WANDB_PROJECT``, or ``dlb``.

    Raises:
        PackageMissing: wandb is not installed.
        RequestError: a result cannot be read, or wandb cannot write.
    """
    os.environ.setdefault("WANDB_MODE", "offline")
    os.environ.setdefault("WANDB_ERROR_REPORTING", "false")
    try:
        import wandb
    except ImportError:
        raise needs("wandb", "wandb") from None
    base = Path(output or ".")
    written = kept = 0
    try:
        base.mkdir(parents=True, exist_ok=True)
        for run in tracked_runs(folder, rows):
            if any((base / "wandb").glob(f"*run-*-{_identity(run)}")):
                kept += 1
                continue
            _write(wandb, run, base)
            written += 1
    except (wandb.Error, OSError) as error:
        reason = printable(" ".join(str(error).split()))
        raise RequestError(f"wandb cannot write to {base}: {reason}") from None
    there = f", {kept} were there already" if kept else ""
    sync = ""
    if os.environ["WANDB_MODE"] == "offline":
        sync = f"; send them with: wandb sync {base / 'wandb'}/offline-run-*"
    return f"{written} runs in {base / 'wandb'}{there}{sync}"


def _identity(run: Tracked) -> str:
    """The run's id: the same document has the same, wherever it is sent from."""
    return run.sha256[:16]


def _write(wandb: Any, run: Tracked, base: Path) -> None:
    logged = wandb.init(
        project=os.environ.get("WANDB_PROJECT", PROJECT),
        id=_identity(run),
        name=run.name,
        group=run.words.get("measurement"),
        config={**run.settings, **run.words, "document_sha256": run.sha256},
        dir=str(base),
        resume="allow",
        settings=wandb.Settings(
            silent=True, console="off", disable_git=True, save_code=False,
            x_disable_stats=True, x_disable_meta=True, x_disable_machine_info=True,
        ),
    )  # fmt: skip
    try:
        # Steps of wandb only rise, so each row has all series of one step.
        by_step: dict[int, dict[str, float]] = {}
        for name, points in run.series.items():
            for point in points:
                by_step.setdefault(point.step, {})[name] = point.value
        for step in sorted(by_step):
            logged.log(by_step[step], step=step)
        logged.summary.update({**run.figures, **run.words})
        artifact = wandb.Artifact(f"{run.name[:100]}-documents", type="dlb")
        for name, document in run.files.items():
            with artifact.new_file(name, mode="wb") as file:
                file.write(document)
        logged.log_artifact(artifact)
    finally:
        logged.finish(exit_code=int("failure" in run.words))
