"""``dlb port``: the same model, which users wrote in several frameworks."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dlb.cli.options import CERTIFICATE, SEED, WORKERS, with_options
from dlb.cli.output import note, print_json, print_table, print_warnings

if TYPE_CHECKING:
    from dlb.proof.port_proof import Port

__all__ = ["port_command"]


@click.command("port")
@click.argument("models", nargs=-1, metavar="ADAPTER=MODULE:FACTORY|[NAME=]FILE.onnx ...")
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
@click.option(
    "--input",
    "inputs",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="An .npz file to run on, instead of seeded noise: an array for each input.",
)
@click.option(
    "--input-shape",
    "input_shapes",
    multiple=True,
    metavar="[NAME=]SHAPE",
    help="Shape of one sample of noise, such as 3,32,32. With several inputs: one for each, in order.",
)
@click.option(
    "--tokens",
    multiple=True,
    metavar="[NAME=]N",
    help="Use random integers below N instead of noise, for that input or for all.",
)
@click.option("--batch-size", type=int, metavar="N", help="Samples of the input. Default: 8.")
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
@click.option(
    "--batches",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="An .npz file with the batches of the training programs, [steps, batch, ...].",
)
@SEED
@CERTIFICATE
@with_options(WORKERS)
def port_command(inputs: Path | None, **options: Any) -> int:
    """Prove that models that you wrote in several frameworks are the same model.

    Each MODULE:FACTORY is a function that returns the model in that adapter's framework; the first
    model is the reference. Two models of one adapter need a name each, such as torch-old=MODULE:FACTORY
    torch-new=MODULE:FACTORY. An ONNX file may take the place of a model, and is compared in evaluation
    mode. dlb finds which parameter is which, carries the weights over, and compares
    outputs, gradients, running statistics and some training steps in float64, then outputs and
    gradients in float32. It names the first layer that differs.
    """
    model_options = {
        name: options.pop(name)
        for name in (
            "models",
            "map_file",
            "layouts",
            "output_layouts",
            "input_shapes",
            "tokens",
            "trainers",
            "batches",
        )
    }
    return _compare(inputs, model_options, options)


def _compare(inputs: Path | None, model_options: dict[str, Any], options: dict[str, Any]) -> int:
    from dlb.adapters import find_adapters
    from dlb.cli.tables import print_certificate
    from dlb.errors import RequestError
    from dlb.proof.certificate import check_destination, write
    from dlb.proof.port.inputs import BATCH, InputSpec
    from dlb.proof.port_proof import MAP, adapters_needed, check_models, verify_port
    from dlb.provenance import available_cores

    print_warnings()
    models = check_models(model_options["models"])
    check_destination(options["certificate"])
    if options["source"] is not None and not options["provision"]:
        raise RequestError("--from says what --provision makes environments from; add --provision")
    if inputs is not None and (model_options["input_shapes"] or model_options["tokens"]):
        raise click.UsageError("--input excludes --input-shape and --tokens")
    threads = options["threads"]
    if threads is not None and threads < 1:
        raise RequestError(f"--threads is {threads}; it must be 1 or more")
    as_json = options["as_json"]
    shapes = _shapes(model_options["input_shapes"])

    def on_matched(port: Port) -> None:
        if not as_json:
            print_matching(port)
        if port.written:
            note(f"dlb: the map is written to {port.written}; edit it, and give it with --map")
        if port.kept:
            note(f"dlb: {port.kept} is there already and was left as it is; --map uses it")

    port = verify_port(
        models,
        environments=find_adapters(
            list(adapters_needed(models).values()),
            provision=options["provision"],
            source=options["source"],
            report=note,
        ),
        input_spec=InputSpec(
            file=inputs,
            shapes=shapes,
            tokens=_tokens(model_options["tokens"], shapes),
            batch=BATCH if options["batch_size"] is None else options["batch_size"],
            seed=options["seed"],
        ),
        layouts=_layouts("--layout", model_options["layouts"]),
        output_layouts=_layouts("--output-layout", model_options["output_layouts"]),
        map_file=model_options["map_file"],
        proposal=None if model_options["map_file"] else MAP,
        export=options["export"],
        trainers=_layouts("--trainer", model_options["trainers"], "torch=package.module:trainer"),
        batches=model_options["batches"],
        threads=threads or available_cores(),
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
    return 0 if port.proven else 1


def _shapes(options: tuple[str, ...]) -> dict[str, tuple[int, ...]]:
    """Shapes by the input's name; "" is the only input."""
    from dlb.errors import RequestError

    shapes: dict[str, tuple[int, ...]] = {}
    for option in options:
        name, _, text = option.rpartition("=")
        if name in shapes or (len(options) > 1 and not name):
            raise RequestError(
                f"--input-shape {option}: several inputs need a name each, such as image=3,32,32"
            )
        try:
            shapes[name] = tuple(int(part) for part in text.split(",") if part.strip())
        except ValueError:
            raise RequestError(
                f"--input-shape {option}: must be the shape of one sample, such as 3,32,32"
            ) from None
    return shapes


def _tokens(options: tuple[str, ...], shapes: dict[str, tuple[int, ...]]) -> dict[str, int]:
    """Upper bounds of integers by the input's name; one without a name is for all inputs."""
    from dlb.errors import RequestError

    tokens: dict[str, int] = {}
    for option in options:
        name, _, text = option.rpartition("=")
        if not text.isdecimal() or not 1 <= int(text) <= 2**62:
            raise RequestError(f"--tokens {option}: must be a number of 1 or more, such as 1000")
        tokens |= {each: int(text) for each in ((name,) if name else shapes or ("",))}
    return tokens


def _layouts(flag: str, options: tuple[str, ...], example: str = "tf=NHWC") -> dict[str, str]:
    from dlb.errors import RequestError

    layouts = {}
    for option in options:
        name, equals, order = option.partition("=")
        if not equals or name in layouts:
            raise RequestError(
                f"{flag} {option}: must be ADAPTER=..., such as {example}, once each"
            )
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
        click.echo(f"not decided: {line}")


def document(port: Port, models: dict[str, str]) -> dict[str, Any]:
    """What ``--json`` prints."""
    import msgspec

    from dlb.proof.port.weight_map import Entry

    return {
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
