"""``dlb show``: a record or a workload."""

from __future__ import annotations

import math
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from dlb.cli.options import option, reading_options
from dlb.cli.output import echo, json_option, print_json, print_table

if TYPE_CHECKING:
    from dlb_graph.options import Reading

__all__ = ["show_command"]


@click.command("show")
@click.argument("words", metavar="[record|workload] NAME", nargs=-1, required=True)
@option("changes")
@reading_options
@json_option
def show_command(
    words: tuple[str, ...], changes: tuple[str, ...], reading: Reading, as_json: bool
) -> None:
    """Show a record (a .json file) or a workload (a name, a .toml or an .onnx file).

    Without the first word, a name that ends in .json is a record.
    """
    *kind, what = words
    if kind not in ([], ["record"], ["workload"]):
        raise click.UsageError("one record or one workload at a time")
    if kind == ["record"] or (not kind and what.endswith(".json")):
        if changes or reading.chosen:
            raise click.UsageError(
                "--set and what is read of a file change a workload, not a record"
            )
        show_record(Path(what), as_json)
    else:
        show_workload(what, changes, reading, as_json)


def show_record(path: Path, as_json: bool) -> None:
    """Show results, proof and provenance of a record."""
    from dlb.cli.tables import print_record
    from dlb.errors import RecordError, RequestError
    from dlb.record import read

    try:
        shown = read(path)
    except RecordError as error:
        raise RequestError(error.message, path=error.path) from None
    if as_json:
        print_json(msgspec.to_builtins(shown))
    else:
        print_record(shown)


def show_workload(name: str, changes: tuple[str, ...], reading: Reading, as_json: bool) -> None:
    """Show the layers of a workload, with shapes and parameters, and the work of a step."""
    from dlb.catalogue import load_with_file
    from dlb.data.own import own_kinds
    from dlb.errors import RequestError
    from dlb.report.common import shortened
    from dlb.samples import open_split
    from dlb_graph.workload import (
        Augmentation,
        infer_shapes,
        multiply_adds,
        parameter_shapes,
        state_names,
        type_name,
        workload_hash,
    )
    from dlb_graph.workload.changes import with_changes
    from dlb_graph.workload.files import to_document
    from dlb_graph.workload.work import step_work

    shown = with_changes(load_with_file(name, reading)[0], changes)
    shapes, parameters = infer_shapes(shown.model), parameter_shapes(shown.model)
    counts = {node.name: 0 for node in shown.model.nodes}
    for key, shape in parameters.items():
        counts[key.split(".")[0]] += math.prod(shape)
    operations = multiply_adds(shown.model)
    step = step_work(shown, shown.batch_size)
    states = sum(math.prod(parameters[name]) for name in state_names(shown.model))
    trained = sum(counts.values()) - states
    figures = {"operations": step.operations, "bytes": step.bytes}
    if as_json:
        print_json(
            {
                "workload": to_document(shown),
                "hash": workload_hash(shown),
                "shapes": shapes,
                "parameters": counts,
                "trained": trained,
                "multiply_adds": operations,
                "step": {"batch_size": shown.batch_size, **figures, **asdict(step)},
            }
        )
        return
    rows = []
    for node in shown.model.wired():
        attributes = [
            f"{field}={shortened(value)}"
            for field in node.layer.__struct_fields__
            if (value := getattr(node.layer, field)) not in ("", None)
        ]
        size, inputs = " x ".join(map(str, shapes[node.name])), ", ".join(node.inputs)
        own = f"of {node.weights_of}" if node.weights_of else f"{counts[node.name]:,}"
        work = f"{operations[node.name]:,}" if node.name in operations else ""
        cells = [node.name, type_name(node.layer), inputs, size, own, work, ", ".join(attributes)]
        rows.append(cells)
    print_table(
        ["layer", "type", "inputs", "output", "parameters", "multiply-adds", "attributes"],
        rows,
        f"{shown.name}: {shown.title}" if shown.title else shown.name,
        right=["parameters", "multiply-adds"],
    )
    running = f", {states:,} running statistics" if states else ""
    echo(
        f"{trained:,} parameters{running}; {sum(operations.values()):,} multiply-adds a sample; "
        f"hash {workload_hash(shown)}"
    )
    echo(
        f"one step of {shown.batch_size} samples in float32: {step.operations:,} operations, at least "
        f"{step.bytes:,} bytes"
    )
    augmented = f", {shown.data.augmentation}" if shown.data.augmentation != Augmentation() else ""
    echo(
        f"data {shown.data.name}{augmented}; batch size {shown.batch_size}; {shown.loss}; "
        f"{shown.optimizer}; {shown.schedule}"
    )
    if shown.source:
        echo(f"source: {shown.source}")
    try:
        if shown.data.path or shown.data.name in own_kinds():
            echo(f"samples: {open_split(shown, 'train').where}")
    except RequestError as error:
        echo(f"cannot be trained yet: {error}")
