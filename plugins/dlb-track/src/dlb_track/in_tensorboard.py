"""Results as event files of TensorBoard: a folder for each run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dlb.documents import write_atomically
from dlb.errors import RequestError
from dlb_track.tracked import Tracked, in_markdown, needs, tracked_runs

__all__ = ["export"]

#: Ends the names of dlb's event files, which are replaced when a result is written again.
SUFFIX = ".dlb"


def export(folder: Path, rows: Sequence[Mapping[str, Any]], output: str | None) -> str:
    """Write results below a log folder; a run that was written before is replaced.

    Args:
        folder: the results folder.
        rows: the results.
        output: the log folder; ``runs`` if None.

    Raises:
        PackageMissing: tensorboard is not installed.
        RequestError: a result cannot be read, or the folder cannot be written.
    """
    try:
        import tensorboard.summary.writer.event_file_writer  # noqa: F401
    except ImportError:
        raise needs("tensorboard", "tensorboard") from None
    logs = Path(output or "runs")
    written = 0
    for run in tracked_runs(folder, rows):
        try:
            _write(run, logs / run.name)
        except OSError as error:
            raise RequestError(f"cannot write: {error.strerror or error}", path=logs) from None
        written += 1
    return f"{written} runs in {logs}; look at them with: tensorboard --logdir {logs}"


def _write(run: Tracked, folder: Path) -> None:
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.plugins.hparams import api_pb2, metadata, plugin_data_pb2
    from tensorboard.summary.writer.event_file_writer import EventFileWriter

    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob(f"events.out.tfevents.*{SUFFIX}"):
        old.unlink()
    writer = EventFileWriter(str(folder), filename_suffix=SUFFIX)

    def add(summary: Any, seconds: float, step: int = 0) -> None:
        writer.add_event(Event(wall_time=seconds or run.started, step=step, summary=summary))

    started = plugin_data_pb2.SessionStartInfo(start_time_secs=run.started)
    for name, setting in {**run.settings, **run.words}.items():
        if isinstance(setting, str):
            started.hparams[name].string_value = setting
        else:
            started.hparams[name].number_value = setting
    ended = plugin_data_pb2.SessionEndInfo(
        status=api_pb2.STATUS_FAILURE if "failure" in run.words else api_pb2.STATUS_SUCCESS
    )
    for tag, content in (
        (metadata.SESSION_START_INFO_TAG, {"session_start_info": started}),
        (metadata.SESSION_END_INFO_TAG, {"session_end_info": ended}),
    ):
        data = plugin_data_pb2.HParamsPluginData(version=metadata.PLUGIN_DATA_VERSION, **content)
        value = Summary.Value(tag=tag, metadata=metadata.create_summary_metadata(data))
        value.tensor.CopyFrom(metadata.NULL_TENSOR)
        add(Summary(value=[value]), run.started)
    add(Summary(value=[_text("dlb", _table(run))]), run.started)
    for name, figure in run.figures.items():
        add(Summary(value=[Summary.Value(tag=f"figures/{name}", simple_value=figure)]), run.started)
    for name, points in run.series.items():
        tag = name if "/" in name else f"steps/{name}"
        for point in points:
            value = Summary.Value(tag=tag, simple_value=point.value)
            add(Summary(value=[value]), point.seconds, point.step)
    writer.close()
    for name, document in run.files.items():
        write_atomically(folder / name, document)


def _text(tag: str, markdown: str) -> Any:
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.plugins.text import metadata
    from tensorboard.util import tensor_util

    described = metadata.create_summary_metadata(display_name=tag, description="")
    value = Summary.Value(tag=f"{tag}/text_summary", metadata=described)
    value.tensor.CopyFrom(tensor_util.make_tensor_proto([markdown.encode()]))
    return value


def _table(run: Tracked) -> str:
    """A table in Markdown, in which a stranger's text is text."""
    rows = {"sha256 of the document": run.sha256, **run.words, **run.settings}
    lines = [f"| {in_markdown(name)} | {in_markdown(value)} |" for name, value in rows.items()]
    return "\n".join(["| what | value |", "|---|---|", *lines])
