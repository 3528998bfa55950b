"""``dlb show``: a record or a workload."""

from __future__ import annotations

import math
from pathlib import Path

import click
import msgspec

from dlb.cli.output import json_option, print_json, print_table

__all__ = ["show_command"]


@click.command("show")
@click.argument("what", metavar="RECORD|WORKLOAD")
@json_option
def show_command(what: str, as_json: bool) -> None:
    """Show a record (a .json file) or a workload (a name, a .toml or an .onnx file)."""
    if what.endswith(".json"):
        show_record(Path(what), as_json)
    else:
        show_workload(what, as_json)


def show_record(path: Path, as_json: bool) -> None:
    """Results, proof and provenance."""
    from dlb.errors import RecordError, RequestError
    from dlb.record import read
    from dlb.tables import print_record

    try:
        one = read(path)
    except RecordError as error:
        raise RequestError(str(error)) from None
    if as_json:
        print_json(msgspec.to_builtins(one))
    else:
        print_record(one)


def show_workload(name: str, as_json: bool) -> None:
    """Layers with their shapes and parameters."""
    from dlb.catalogue import load_workload
    from dlb.workload import (
        infer_shapes,
        multiply_adds,
        parameter_shapes,
        type_name,
        workload_hash,
    )
    from dlb.workload.files import to_document

    read = load_workload(name)
    shapes, parameters = infer_shapes(read.model), parameter_shapes(read.model)
    counts = {
        node.name: sum(
            math.prod(shape) for key, shape in parameters.items() if key.split(".")[0] == node.name
        )
        for node in read.model.nodes
    }
    work = multiply_adds(read.model)
    if as_json:
        print_json(
            {
                "workload": to_document(read),
                "hash": workload_hash(read),
                "shapes": shapes,
                "parameters": counts,
                "multiply_adds": work,
            }
        )
        return
    rows = []
    for node in read.model.wired():
        attributes = [
            f"{field}={getattr(node.layer, field)}" for field in node.layer.__struct_fields__
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
    click.echo(
        f"{sum(counts.values()):,} parameters; {sum(work.values()):,} multiply-adds a sample; "
        f"hash {workload_hash(read)}"
    )
    click.echo(
        f"data {read.data.name}; batch size {read.batch_size}; {read.optimizer}; {read.schedule}"
    )
    if read.source:
        click.echo(f"source: {read.source}")
