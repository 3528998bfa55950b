"""``dlb capture``: what a model of your own computes, for ports to be compared with elsewhere."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from dlb.cli.options import WORKERS, find_environments, option, with_options
from dlb.cli.output import note, print_answer, print_json
from dlb_port.cli.inputs import BATCHES, INPUTS, input_spec

__all__ = ["capture_command"]


@click.command("capture")
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@click.argument("model", metavar="ADAPTER=MODULE:FACTORY")
@click.option("--layout", default="", metavar="ORDER", help="The order of the axes that it reads.")
@click.option(
    "--output-layout", default="", metavar="ORDER", help="The order of the axes that it returns."
)
@with_options(INPUTS)
@click.option(
    "--trainer",
    default="",
    metavar="MODULE:FUNCTION",
    help="Also capture your own training program: a function of the model that returns its step.",
)
@BATCHES
@option("seed")
@with_options(WORKERS)
def capture_command(file: Path, model: str, **options: Any) -> int:
    """Write what a model computes to FILE, so that a port is proven where the model does not run.

    FILE holds inputs, weights, outputs, gradients and training steps: give it to dlb port --against FILE.
    The model is compared with itself, made again, so that nothing in the file is left to chance.
    """
    from dlb.cli.tables import print_certificate
    from dlb.provenance import free_cores
    from dlb_port.port_proof import capture
    from dlb_port.words import adapters_of_models, check_models

    ((name, factory),) = check_models([model]).items()
    port = capture(
        file,
        name,
        factory,
        environments=find_environments(
            list(adapters_of_models([name]).values()), options["provision"], options["source"]
        ),
        inputs=input_spec(options),
        layout=options["layout"],
        output_layout=options["output_layout"],
        trainer=options["trainer"],
        batches=options["batches"],
        threads=options["threads"] or free_cores(),
        device=options["device"],
        call_seconds=options["call_seconds"],
        report=note,
    )
    assert port.certificate is not None
    size = file.stat().st_size
    if options["as_json"]:
        import msgspec

        print_json(
            {
                "file": str(file),
                "bytes": size,
                "repeatable": port.proven,
                "certificate": msgspec.to_builtins(port.certificate),
            }
        )
    else:
        print_certificate(port.certificate)
        line = f"{file}: {size / 1e6:.1f} MB; compare a port with: dlb port --against {file}"
        print_answer(line if port.proven else f"{line}; but {port.answer().line}")
    return 0 if port.proven else 1
