"""Results as runs of MLflow."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from dlb.errors import RequestError
from dlb.printable import printable
from dlb_track.tracked import Tracked, needs, tracked_runs

__all__ = ["export"]

EXPERIMENT = "dlb"
#: The tag that says which document a run has, and of which it is written once.
DOCUMENT = "dlb.document"
#: What MLflow takes in one call.
MOST_METRICS, MOST_PARAMS = 1000, 100


def export(folder: Path, rows: Sequence[Mapping[str, Any]], output: str | None) -> str:
    """Write results as runs of an experiment; a document that is there already is left as it is.

    Args:
        folder: the results folder.
        rows: the results.
        output: a tracking address or a database. If None, that of ``MLFLOW_TRACKING_URI``, or
            ``sqlite:///mlflow.db``. The experiment is that of ``MLFLOW_EXPERIMENT_NAME``, or ``dlb``.

    Raises:
        PackageMissing: mlflow is not installed.
        RequestError: a result cannot be read, or the store cannot be written.
    """
    # What dlb writes goes to the store, and to nobody else.
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    try:
        from mlflow import MlflowClient
        from mlflow.exceptions import MlflowException
    except ImportError:
        raise needs("mlflow", "mlflow") from None
    address = output or os.environ.get("MLFLOW_TRACKING_URI") or "sqlite:///mlflow.db"
    written = kept = 0
    try:
        client = MlflowClient(tracking_uri=address)
        experiment = _experiment(client)
        for run in tracked_runs(folder, rows):
            if _is_there(client, experiment, run):
                kept += 1
            else:
                _write(client, experiment, run)
                written += 1
    except (MlflowException, OSError, ValueError) as error:
        reason = _without_password(printable(" ".join(str(error).split())))
        raise RequestError(
            f"MLflow cannot write to {_without_password(address)}: {reason}"
        ) from None
    there = f", {kept} were there already" if kept else ""
    shown = _without_password(address)
    look = (
        ""
        if "://" in shown and not shown.startswith(("sqlite:", "file:"))
        else (f"; look at them with: mlflow ui --backend-store-uri {shown}")
    )
    return f"{written} runs in {shown}{there}{look}"


def _without_password(text: str) -> str:
    return re.sub(r"//[^/@\s]*@", "//***@", text)


def _experiment(client: Any) -> str:
    name = os.environ.get("MLFLOW_EXPERIMENT_NAME", EXPERIMENT)
    found = client.get_experiment_by_name(name)
    return str(found.experiment_id if found else client.create_experiment(name))


def _is_there(client: Any, experiment: str, run: Tracked) -> bool:
    found = client.search_runs(
        [experiment], f"tags.`{DOCUMENT}` = '{run.sha256}' AND attributes.status != 'RUNNING'"
    )
    return bool(found)


def _write(client: Any, experiment: str, run: Tracked) -> None:
    from mlflow.entities import Param

    words = {DOCUMENT: run.sha256, **{f"dlb.{name}": word for name, word in run.words.items()}}
    created = client.create_run(
        experiment, run_name=run.name, start_time=int(run.started * 1000) or None
    )
    number = created.info.run_id
    status = "FAILED"
    try:
        for name, word in words.items():
            client.set_tag(number, name, word)
        params = [Param(name, str(value)) for name, value in run.settings.items()]
        for begin in range(0, len(params), MOST_PARAMS):
            client.log_batch(number, params=params[begin : begin + MOST_PARAMS])
        metrics = list(_metrics(run))
        for begin in range(0, len(metrics), MOST_METRICS):
            client.log_batch(number, metrics=metrics[begin : begin + MOST_METRICS])
        with tempfile.TemporaryDirectory() as files:
            for name, document in run.files.items():
                (Path(files) / name).write_bytes(document)
            client.log_artifacts(number, files)
        status = "FAILED" if "failure" in run.words else "FINISHED"
    finally:
        client.set_terminated(number, status, int(_end(run) * 1000) or None)


def _metrics(run: Tracked) -> Iterator[Any]:
    from mlflow.entities import Metric

    for name, figure in run.figures.items():
        yield Metric(name, figure, int(_end(run) * 1000), 0)
    for name, points in run.series.items():
        # A figure of the end has the name of its series.
        shown = f"{name}_while_training" if name in run.figures else name
        for point in points:
            yield Metric(shown, point.value, int((point.seconds or run.started) * 1000), point.step)


def _end(run: Tracked) -> float:
    return (
        max((point.seconds for points in run.series.values() for point in points), default=0)
        or run.started
    )
