"""``dlb show``: a record or a workload."""

from __future__ import annotations

import math
from pathlib import Path

import click
import msgspec

from dlb.cli.output import json_option, print_json, print_table, set_option

__all__ = ["show_command"]


@click.command("show")
@click.argument("words", metavar="[record|workload] NAME", nargs=-1, required=True)
@set_option
@json_option
def show_command(words: tuple[str, ...], changes: tuple[str, ...], as_json: bool) -> None:
    """Show a record (a .json file) or a workload (a name, a .toml or an .onnx file).

    Which of the two it is need not be said.
    """
    *kind, what = words
    if kind not in ([], ["record"], ["workload"]):
        raise click.UsageError("one record or one workload at a time")
    if kind == ["record"] or (not kind and what.endswith(".json")):
        if changes:
            raise click.UsageError("--set changes a workload, not a record")
        show_record(Path(what), as_json)
    else:
        show_workload(what, changes, as_json)


def show_record(path: Path, as_json: bool) -> None:
    """Results, proof and provenance."""
    from dlb.cli.tables import print_record
    from dlb.errors import RecordError, RequestError
    from dlb.record import read

    try:
        one = read(path)
    except RecordError as error:
        raise RequestError(error.message, path=error.path) from None
    if as_json:
        print_json(msgspec.to_builtins(one))
    else:
        print_record(one)


def show_workload(name: str, changes: tuple[str, ...], as_json: bool) -> None:
    """Layers with their shapes and parameters."""
    from dlb.catalogue import load_workload
    from dlb.workload import (
        Augmentation,
        infer_shapes,
        multiply_adds,
        parameter_shapes,
        state_names,
        type_name,
        workload_hash,
    )
    from dlb.workload.changes import with_changes
    from dlb.workload.files import to_document

    read = with_changes(load_workload(name), changes)
    shapes, parameters = infer_shapes(read.model), parameter_shapes(read.model)
    counts = {
        node.name: sum(
            math.prod(shape) for key, shape in parameters.items() if key.split(".")[0] == node.name
        )
        for node in read.model.nodes
    }
    work = multiply_adds(read.model)
    states = sum(math.prod(parameters[name]) for name in state_names(read.model))
    trained = sum(counts.values()) - states
    if as_json:
        print_json(
            {
                "workload": to_document(read),
                "hash": workload_hash(read),
                "shapes": shapes,
                "parameters": counts,
                "trained": trained,
                "multiply_adds": work,
            }
        )
        return
    rows = []
    for node in read.model.wired():
        attributes = [
            f"{field}={value}"
            for field in node.layer.__struct_fields__
            if (value := getattr(node.layer, field)) != ""
        ]
        size = " x ".join(map(str, shapes[node.name]))
        rows.append(
            [
                node.name,
                type_name(node.layer),
                ", ".join(node.inputs),
                size,
                f"{counts[node.name]:,}",
                f"{work[node.name]:,}" if node.name in work else "",
                ", ".join(attributes),
            ]
        )
    print_table(
        ["layer", "type", "inputs", "output", "parameters", "multiply-adds", "attributes"],
        rows,
        f"{read.name}: {read.title}",
        right=["parameters", "multiply-adds"],
    )
    running = f", {states:,} running statistics" if states else ""
    click.echo(
        f"{trained:,} parameters{running}; {sum(work.values()):,} multiply-adds a sample; "
        f"hash {workload_hash(read)}"
    )
    augmented = f", {read.data.augmentation}" if read.data.augmentation != Augmentation() else ""
    click.echo(
        f"data {read.data.name}{augmented}; batch size {read.batch_size}; {read.loss}; "
        f"{read.optimizer}; {read.schedule}"
    )
    if read.source:
        click.echo(f"source: {read.source}")
