"""Options that say what users' models are run on."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from dlb_port.inputs import InputSpec

__all__ = ["ARRAYS", "BATCHES", "INPUTS", "input_spec"]

ARRAYS = click.option(
    "--input",
    "inputs",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="An .npz file to run on, instead of seeded noise: an array for each input.",
)
BATCHES = click.option(
    "--batches",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="An .npz file with the batches of the training programs, [steps, batch, ...].",
)
INPUTS = (
    ARRAYS,
    click.option(
        "--input-shape",
        "input_shapes",
        multiple=True,
        metavar="[NAME=]SHAPE",
        help="Shape of one sample of noise, such as 3,32,32. With several inputs: one for each, in order.",
    ),
    click.option(
        "--tokens",
        multiple=True,
        metavar="[NAME=]N",
        help="Use random integers below N instead of noise, for that input or for all.",
    ),
    click.option("--batch-size", type=int, metavar="N", help="Samples of the input. Default: 8."),
)


def input_spec(options: Mapping[str, Any]) -> InputSpec:
    """The inputs that options ask for.

    Raises:
        RequestError: an option has a wrong form.
    """
    from dlb_port.inputs import BATCH, InputSpec

    if options["inputs"] is not None and (options["input_shapes"] or options["tokens"]):
        raise click.UsageError("--input excludes --input-shape and --tokens")
    shapes = _shapes(options["input_shapes"])
    return InputSpec(
        file=options["inputs"],
        shapes=shapes,
        tokens=_tokens(options["tokens"], shapes),
        batch=BATCH if options["batch_size"] is None else options["batch_size"],
        seed=options["seed"],
    )


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
