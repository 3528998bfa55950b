"""``dlb export``: a workload's ONNX graph."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from dlb.cli.options import option, reading_options, workload_argument
from dlb.cli.output import echo

if TYPE_CHECKING:
    from dlb_graph.options import Reading

__all__ = ["export_command"]


@click.command("export")
@workload_argument()
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@click.option(
    "--from",
    "adapter",
    metavar="ADAPTER",
    help="Use this adapter's export instead of the canonical graph.",
)
@option("dtype")
@option("seed")
@option("changes")
@reading_options
def export_command(
    workload: str,
    reading: Reading,
    file: Path,
    adapter: str | None,
    dtype: str,
    seed: int,
    changes: tuple[str, ...],
) -> None:
    """Write WORKLOAD with its seeded weights as ONNX to FILE."""
    from dlb.catalogue import load_with_file
    from dlb.documents import write_atomically
    from dlb.errors import RequestError
    from dlb.scratch import scratch_folder
    from dlb_graph.regular_files import open_regular
    from dlb_graph.workload.changes import with_changes
    from dlb_graph.workload.initial import initial_weights

    described, imported = load_with_file(workload, reading)
    described = with_changes(described, changes, keep_model=imported is not None)
    weights = dict(imported.weights if imported else initial_weights(described.model, seed))
    with scratch_folder() as folder:
        exported = folder / "model.onnx"
        if adapter is None:
            from dlb_graph.truth.canonical import canonical_graph

            graph = canonical_graph(described.model, weights, dtype=dtype)  # type: ignore[arg-type]
            exported.write_bytes(graph.SerializeToString())
        else:
            from dlb.adapters import find_adapters
            from dlb.capabilities import capabilities_of, check_capabilities, check_export
            from dlb.supervision import Launch, worker_group
            from dlb.supervision.remote import RemoteModel, start

            environment = find_adapters([adapter])[0]
            with worker_group(Launch(adapter, environment.python, Path(folder))) as group:
                start(group, threads=1, device="cpu", seed=seed)
                capabilities = capabilities_of(group.call("describe")[0], adapter)
                check_capabilities(capabilities, described, dtype=dtype, device="cpu")
                check_export(capabilities)
                RemoteModel(
                    group, described, weights, dtype=dtype, batch_size=described.batch_size
                ).export(exported)
        try:
            with open_regular(exported, follow=False) as written:
                write_atomically(file, written.read())
        except OSError as error:
            raise RequestError(f"cannot write {file}: {error.strerror or error}") from None
    echo(f"{file}: {file.stat().st_size} bytes")
