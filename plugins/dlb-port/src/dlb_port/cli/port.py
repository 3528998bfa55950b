"""``dlb port``: the same model, which users wrote in several frameworks."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dlb.cli.options import CERTIFICATE, WORKERS, find_environments, option, with_options
from dlb.cli.output import note, print_answer, print_json, print_table, say
from dlb_port.cli.inputs import BATCHES, INPUTS, input_spec

if TYPE_CHECKING:
    from dlb_port.port_proof import Port

__all__ = ["port_command"]


@click.command("port")
@click.argument("models", nargs=-1, metavar="ADAPTER=MODULE:FACTORY|[NAME=]FILE.onnx ...")
@click.option(
    "--against",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Compare with a capture of the reference (see: dlb capture), which need not run here.",
)
@click.option(
    "--map",
    "map_file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Map of matching parameters. Default: matched automatically, and written to dlb-map.toml.",
)
@click.option(
    "--layout",
    "layouts",
    multiple=True,
    metavar="ADAPTER=ORDER",
    help="The order of the axes that a model reads, such as tf=NHWC.",
)
@click.option(
    "--output-layout",
    "output_layouts",
    multiple=True,
    metavar="ADAPTER=ORDER",
    help="The order of the axes that a model returns.",
)
@with_options(INPUTS)
@click.option(
    "--dtype",
    type=click.Choice(["float64", "float32"]),
    default="float64",
    show_default=True,
    help="float32 for ports that cannot run in float64: they are compared within rounding.",
)
@click.option(
    "--export",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="FOLDER",
    help="Also export each model to FOLDER as ONNX, and verify the files.",
)
@click.option(
    "--trainer",
    "trainers",
    multiple=True,
    metavar="ADAPTER=MODULE:FUNCTION",
    help="Also compare your own training programs: a function of the model that returns its step.",
)
@BATCHES
@option("seed")
@CERTIFICATE
@with_options(WORKERS)
def port_command(**options: Any) -> int:
    """Prove that models that you wrote in several frameworks are the same model.

    Each MODULE:FACTORY is a function that returns the model in that adapter's framework; the first
    model is the reference. Two models of one adapter need a name each, such as torch-old=MODULE:FACTORY
    torch-new=MODULE:FACTORY. An ONNX file may take the place of a model, and is compared in evaluation
    mode. dlb finds which parameter is which, carries the weights over, and compares
    outputs, gradients, running statistics and some training steps in float64, then outputs and
    gradients in float32. It names the first layer that differs.
    """
    from dlb.cli.tables import print_certificate
    from dlb.errors import RequestError
    from dlb.proof.certificate import check_destination, write
    from dlb.provenance import free_cores
    from dlb_port.inputs import InputSpec
    from dlb_port.port_proof import MAP, verify_port
    from dlb_port.words import adapters_needed, check_models

    against = options["against"]
    models = check_models(options["models"], () if against is None else (captured_name(against),))
    check_destination(options["certificate"])
    spec = input_spec(options)
    if against is not None and spec != InputSpec():
        raise RequestError("a capture has its own inputs and seed; leave those options out")
    as_json = options["as_json"]

    def on_matched(port: Port) -> None:
        if not as_json:
            print_matching(port)
        if port.written:
            note(f"dlb: the map is written to {port.written}; edit it, and give it with --map")
        if port.kept:
            note(f"dlb: {port.kept} is there already and was left as it is; --map uses it")

    port = verify_port(
        models,
        environments=find_environments(
            list(adapters_needed(models).values()), options["provision"], options["source"]
        ),
        against=against,
        dtype=options["dtype"],
        inputs=spec,
        layouts=_layouts("--layout", options["layouts"]),
        output_layouts=_layouts("--output-layout", options["output_layouts"]),
        map_file=options["map_file"],
        proposal=None if options["map_file"] else MAP,
        export=options["export"],
        trainers=_layouts("--trainer", options["trainers"], "torch=package.module:trainer"),
        batches=options["batches"],
        threads=options["threads"] or free_cores(),
        device=options["device"],
        call_seconds=options["call_seconds"],
        report=note,
        on_matched=on_matched,
    )
    assert port.certificate is not None
    if options["certificate"] is not None:
        write(port.certificate, options["certificate"])
    if as_json:
        print_json(document(port, models))
    else:
        print_certificate(port.certificate)
        print_answer(port.answer().line)
    return 0 if port.agrees else 1


def captured_name(against: Path) -> str:
    """What a capture calls its model."""
    from dlb_port.captures import read_capture

    with read_capture(against) as captured:
        return captured.capture.name


def _layouts(flag: str, options: tuple[str, ...], example: str = "tf=NHWC") -> dict[str, str]:
    from dlb.errors import RequestError

    layouts = {}
    for word in options:
        name, equals, order = word.partition("=")
        if not equals or name in layouts:
            raise RequestError(f"{flag} {word}: must be ADAPTER=..., such as {example}, once each")
        layouts[name] = order
    return layouts


def print_matching(port: Port) -> None:
    """Print matched parameters, one table for each model."""
    for name, pairs in port.pairs.items():
        rows = []
        for pair in pairs:
            steps = [f"reshape {list(pair.reshape)}"] if pair.reshape else []
            steps += [f"transpose {list(pair.transpose)}"] if pair.transpose else []
            layout = pair.target.role or "as it is"
            rows.append(
                [
                    pair.source.name,
                    pair.target.name,
                    " x ".join(map(str, pair.target.shape)) or "scalar",
                    ", ".join(steps) or layout,
                    pair.why,
                ]
            )
        columns = [port.reference, name, "shape", "carried as", "found"]
        print_table(columns, rows, "Weights")
    for line in port.undecided:
        say(f"not decided: {line}")


def document(port: Port, models: dict[str, str]) -> dict[str, Any]:
    """What ``--json`` prints."""
    import msgspec

    from dlb_port.weight_map import Entry

    return {
        "answer": port.answer().line,
        "proven": port.proven,
        "models": models,
        "reference": port.reference,
        "map": None if port.written is None else str(port.written),
        "weights": {
            name: [
                msgspec.to_builtins(
                    Entry(pair.source.name, pair.target.name, pair.reshape, pair.transpose)
                )
                for pair in pairs
            ]
            for name, pairs in port.pairs.items()
        },
        "certificate": msgspec.to_builtins(port.certificate),
    }
